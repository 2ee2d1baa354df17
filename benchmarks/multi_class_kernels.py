"""Three ways to train many classes with kernels, and scikit-learn's SVC (LIBSVM). Prints a Markdown table.

The ways are one against one, one against the rest, and one problem for all classes (Crammer & Singer).

    STREAMSVM_DATA=FOLDER python benchmarks/multi_class_kernels.py [NAME...] [--C C,C,..] [--gamma GAMMA,..]
        [--resident-rows SHARE]

All trainers use the same rows and one thread, and predict the same test rows. streamsvm trains to a relative gap of
1e-3, and LIBSVM to a tolerance of 1e-3 by its own rule. CPU seconds of training and of prediction are measured in this
process. With --resident-rows, only this share of the rows is in memory, and LIBSVM is left out; `passes` includes the
read that computes gamma. Letter and waveform are split into training and test rows. From both parts of MNIST, the first
10,000 images are used.

FOLDER holds letter/letter.scale.xz and .t.xz, mnist/*-ubyte.xz and waveform/waveform.data.xz.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from many_classes import Split, load_letter, load_mnist
from optima import unpack
from sklearn.svm import SVC as Libsvm  # noqa: N811

from streamsvm import SVC

LETTER_ROWS, MNIST_ROWS, WAVEFORM_ROWS = 6_000, 10_000, 3_000


def load_few_letters() -> Split:
    """Return some of letter's training rows, and its test rows."""
    X, y, X_test, y_test = load_letter()
    return X[:LETTER_ROWS], y[:LETTER_ROWS], X_test, y_test


def load_few_images() -> Split:
    """Return the first images of both parts of MNIST."""
    X, y, X_test, y_test = load_mnist()
    return X[:MNIST_ROWS], y[:MNIST_ROWS], X_test, y_test


def load_waveform() -> Split:
    """Return waveform's rows in a random order."""
    cells = np.genfromtxt(io.BytesIO(unpack("waveform/waveform.data")), delimiter=",", skip_header=1, dtype=str)
    cells = cells[np.random.default_rng(0).permutation(len(cells))]
    X, y = cells[:, :-1].astype(np.float32), cells[:, -1]
    return X[:WAVEFORM_ROWS], y[:WAVEFORM_ROWS], X[WAVEFORM_ROWS:], y[WAVEFORM_ROWS:]


SETS: dict[str, Callable[[], Split]] = {
    "letter": load_few_letters,
    "mnist": load_few_images,
    "waveform": load_waveform,
}


def measure(estimator: Any, rows: Split) -> tuple[float, float, float]:
    """Return the CPU seconds of training and of prediction, and the accuracy."""
    X, y, X_test, y_test = rows
    began = time.process_time()
    estimator.fit(X, y)
    trained = time.process_time()
    accuracy = float(np.mean(estimator.predict(X_test) == y_test))
    return trained - began, time.process_time() - trained, accuracy


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(SETS))
    parser.add_argument("--C", default="1,10", metavar="C,C,..")
    parser.add_argument("--gamma", default="scale", metavar="GAMMA,..")
    parser.add_argument("--resident-rows", metavar="SHARE")
    options = parser.parse_args()
    ways = ["ovo", "ovr", "crammer_singer", *([] if options.resident_rows else ["LIBSVM"])]
    print(
        "| data | C | gamma | trained | status | gap | passes | support vectors | train CPU s | predict CPU s | "
        "accuracy % |\n" + "|---" * 11 + "|"
    )
    for name, C, gamma in product(options.names, options.C.split(","), options.gamma.split(",")):
        rows = SETS[name]()
        given: Any = {"C": float(C), "gamma": gamma if gamma == "scale" else float(gamma)}
        SVC(**given, multi_class="ovo").fit(rows[0][:300], rows[1][:300]).predict(rows[2][:2])  # compiles
        SVC(**given, multi_class="crammer_singer").fit(rows[0][:2500], rows[1][:2500]).predict(rows[2][:2])
        own: Any = {"n_jobs": 1, "resident_rows": options.resident_rows}
        for way in ways:
            estimator: Any = Libsvm(**given) if way == "LIBSVM" else SVC(**given, multi_class=way, **own)
            trained, predicted, accuracy = measure(estimator, rows)
            told = ("", "", "")
            if way != "LIBSVM":
                told = (estimator.status_, f"{estimator.gap_:.1e}", str(estimator.n_passes_))
            print(
                f"| {name} | {C} | {gamma} | {way} | {' | '.join(told)} | {len(estimator.support_):,} | "
                f"{trained:.1f} | {predicted:.1f} | {100 * accuracy:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
