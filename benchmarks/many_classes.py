"""One against the rest, all classes in one training: letter (26 classes), MNIST (10), news20 (20). Prints a table.

    STREAMSVM_DATA=FOLDER python benchmarks/many_classes.py [NAME...] [--singles N]

One training solves the problems of all classes together. It is compared with separate trainings of N of these problems
(by default all), one after another, and with scikit-learn's LinearSVC(loss="hinge"), which is LIBLINEAR's one against
the rest. No chunk is kept in memory, so the bytes read measure the reads of the data. CPU seconds are measured in this
process.

At the optimum of letter without products of features, eleven classes have w = 0. LIBLINEAR's predictions for these
classes depend on rounding, so the accuracies differ. With products of features, the accuracies agree.

FOLDER holds letter/letter.scale.xz and .t.xz, mnist/*-ubyte.xz and news20/news20.xz.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from optima import unpack
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import LinearSVC as Liblinear

import streamsvm
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.models.evaluate import evaluate
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

TOL = 1e-3
Split = tuple[Any, np.ndarray, Any, np.ndarray]


def load_letter() -> Split:
    """Return letter's training and test rows unchanged."""
    parts = [load_svmlight_file(io.BytesIO(unpack(f"letter/letter.scale{end}"))) for end in ("", ".t")]
    (X, y), (X_test, y_test) = [(X.toarray().astype(np.float32), y) for X, y in parts]
    return X, y, X_test, y_test


def load_second_order() -> Split:
    """Return letter's rows with the products of their features."""
    X, y, X_test, y_test = load_letter()
    products = PolynomialFeatures(2, include_bias=False).fit(X)
    X, X_test = (products.transform(rows).astype(np.float32) for rows in (X, X_test))
    return X, y, X_test, y_test


def load_mnist() -> Split:
    """Return training and test images, scaled to 0..1."""
    found: list[Any] = []
    for name in ("train", "t10k"):
        X = np.frombuffer(unpack(f"mnist/{name}-images-idx3-ubyte"), np.uint8, offset=16).reshape(-1, 784)
        y = np.frombuffer(unpack(f"mnist/{name}-labels-idx1-ubyte"), np.uint8, offset=8)
        found += [X.astype(np.float32) / 255, y.astype(int)]
    return tuple(found)  # type: ignore[return-value]


def load_news20() -> Split:
    """Return a random four fifths of the texts, and the last fifth, weighted by tf-idf and scaled to length 1."""
    X, y = load_svmlight_file(io.BytesIO(unpack("news20/news20")), dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    train_rows, test_rows = order[: len(y) * 4 // 5], order[len(y) * 4 // 5 :]
    weigh = TfidfTransformer(sublinear_tf=True).fit(X[train_rows])
    rows = [csr_array(weigh.transform(X[part]).astype(np.float32)) for part in (train_rows, test_rows)]
    return rows[0], y[train_rows], rows[1], y[test_rows]


SETS: dict[str, tuple[Callable[[], Split], float]] = {
    "letter": (load_letter, 1.0),
    "letter, second order": (load_second_order, 1.0),
    "mnist": (load_mnist, 0.01),
    "news20": (load_news20, 1.0),
}


def measure(rows: Path, C: float) -> tuple[Any, float]:
    """Return the result of a training, and its CPU seconds."""
    began = time.process_time()
    result = train(streamsvm.open(rows), TrainOptions(C=C, tol=TOL, threads=1))
    return result, time.process_time() - began


def compare(name: str, folder: Path, n_singles: int | None) -> str:
    """Return a line of the table."""
    load, C = SETS[name]
    X, y, X_test, y_test = load()
    classes = np.unique(y)
    streamsvm.ingest(X, folder / "train.zarr", y, shuffle=None)
    streamsvm.ingest(X_test, folder / "test.zarr", y_test, shuffle=None)
    together, seconds = measure(folder / "train.zarr", C)
    accuracy = evaluate(together.model, folder / "test.zarr")["accuracy"]
    singles = []
    for label in classes[:n_singles]:
        streamsvm.ingest(X, folder / f"{label}.zarr", (y == label).astype(int), shuffle=None)
        singles.append(measure(folder / f"{label}.zarr", C))
    same = all(np.array_equal(one.model.coef, together.model.coef[k]) for k, (one, _) in enumerate(singles))
    slowest = max(one.read_bytes for one, _ in singles)
    sum_of_seconds = sum(s for _, s in singles) * len(classes) / len(singles)
    passes = np.mean([one.passes for one, _ in singles])
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LIBLINEAR reaches its limit of iterations
        liblinear = Liblinear(loss="hinge", C=C, max_iter=10_000, random_state=0).fit(X, y)
    return (
        f"| {name} | {len(classes)} | {C:g} | {together.status} | {together.passes} | {passes:.0f} | "
        f"{together.read_bytes / slowest:.2f} | {seconds:.1f} | {sum_of_seconds:.1f} | "
        f"{seconds / sum_of_seconds:.2f} | {same} | {100 * accuracy:.2f} | "
        f"{100 * liblinear.score(X_test, y_test):.2f} | "
        f"{time.process_time() - began:.1f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(SETS))
    parser.add_argument("--singles", type=int, help="problems that are solved one by one, too")
    options = parser.parse_args()
    opening.ThreadedEngine = lambda source, threads, *_: ThreadedEngine(source, threads)  # type: ignore[assignment,misc]
    print(
        "| data | classes | C | status | passes | of one (mean) | bytes / slowest one's | CPU s | one by one | share | "
        "same bits | accuracy % | LIBLINEAR's | its CPU s |\n" + "|---" * 14 + "|"
    )
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            print(compare(name, Path(folder), options.singles), flush=True)


if __name__ == "__main__":
    main()
