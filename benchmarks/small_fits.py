"""Small fits, and predictions of one row, compared with scikit-learn. Prints a Markdown table.

    STREAMSVM_DATA=FOLDER python benchmarks/small_fits.py [NAME...] [--rounds N]

Both trainers use their default parameters and one thread. They are called before they are measured, and then take
turns. The table has the medians of their CPU milliseconds. FOLDER holds letter/letter.scale.xz and .t.xz.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np
from many_classes import load_letter
from sklearn import linear_model, svm
from sklearn.datasets import load_iris, make_classification

import streamsvm

LETTER_ROWS = 2_600
QUICK_SECONDS = 0.02
ESTIMATORS = {"LinearSVC": svm, "SVC": svm, "LogisticRegression": linear_model}
Call = Callable[[], Any]


def main() -> None:
    """Print a line for each comparison."""
    comparisons = list_comparisons()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {'; '.join(comparisons)}")
    parser.add_argument("--rounds", type=int, default=7)
    own = parser.parse_args()
    warnings.simplefilter("ignore")  # both packages warn of trainings that end before they converge
    print("| comparison | streamsvm, CPU ms | scikit-learn, CPU ms | ratio |")
    print("|---|---|---|---|")
    for name in own.names or comparisons:
        ours, theirs = compare(*comparisons[name], own.rounds)
        print(f"| {name} | {1e3 * ours:.2f} | {1e3 * theirs:.2f} | {ours / theirs:.1f} |", flush=True)


def list_comparisons() -> dict[str, tuple[Call, Call]]:
    """Return, by the name of each comparison, a call of our estimator and the same call of scikit-learn's."""
    iris, two = load_iris(return_X_y=True), make_classification(500, 10, random_state=0)
    few = np.random.default_rng(0).standard_normal((100, 5)), np.repeat(np.arange(10), 10)
    letter = tuple(part[:LETTER_ROWS] for part in load_letter()[:2])
    sets = {"iris": iris, "2 classes, 500 x 10": two}
    listed = {f"{name}, {rows}": fits(name, *sets[rows]) for rows, name in product(sets, ESTIMATORS)}
    listed["SVC, 10 classes of 10 rows"] = fits("SVC", *few)
    listed["SVC, letter"] = fits("SVC", *letter)
    for name in ("LinearSVC", "SVC"):
        ours, theirs = (fit() for fit in fits(name, *iris))
        listed[f"{name}, predict of one row"] = partial(ours.predict, iris[0][:1]), partial(theirs.predict, iris[0][:1])
    return listed


def fits(name: str, X: Any, y: Any) -> tuple[Call, Call]:
    """Return a fit of our estimator of this name, on one thread, and one of scikit-learn's."""
    ours, theirs = getattr(streamsvm, name), getattr(ESTIMATORS[name], name)
    return lambda: ours(n_jobs=1).fit(X, y), lambda: theirs().fit(X, y)


def compare(ours: Call, theirs: Call, rounds: int) -> tuple[float, float]:
    """Return the medians of the CPU seconds of two calls. Quick calls are repeated ten times as often."""
    slowest = max([measure(call) for call in (ours, theirs, ours, theirs)][2:])
    n = rounds if slowest > QUICK_SECONDS else 10 * rounds
    mine, other = zip(*[(measure(ours), measure(theirs)) for _ in range(n)], strict=True)
    return median(mine), median(other)


def measure(call: Call) -> float:
    """Return the CPU seconds of a call."""
    started = time.process_time()
    call()
    return time.process_time() - started


if __name__ == "__main__":
    main()
