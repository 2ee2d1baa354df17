"""Budgeted SGD for regression, compared with exact SMO and LIBSVM: error, support vectors, CPU seconds.

Prints Markdown.

    python -m benchmarks.budgeted_regression --data FOLDER [--seeds 5] [--squared]

FOLDER holds wine/winequality-white.csv, which is standardised. The generated set has 20,000 rows of two features from
-3 to 3 and targets 3 sin(2 x_1) cos(x_2) + 100 with noise of standard deviation 0.2. The error is the root mean squared
error on a held-out quarter of the rows. gamma is 1 over the number of features for wine, and 1 for the generated rows;
epsilon is 0.1. For budgeted SGD, the table has the mean and the standard deviation of the error over the seeds. CPU
seconds are medians on one thread, without the first training of each kind, which compiles functions. With --squared the
loss is the squared error, and the exact solver is scikit-learn's kernel ridge regression, fitted to the targets minus
their median.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVR as Libsvm  # noqa: N811

from benchmarks.regression import EPSILON, load
from benchmarks.smooth_losses import measure
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.conftest import F64

HELD_OUT = 4  # one row in four is held out
BUDGETS = [(100, 2, 1), (300, 2, 1), (300, 2, 5), (300, 3, 5), (300, 4, 5)]  # B, M and epochs


def main() -> None:
    """Print a line for each set, C and solver."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--squared", action="store_true")
    given = parser.parse_args()
    wine = load(given.data, "wine")
    assert wine.target is not None
    print("| data | C | solver | error | support vectors | CPU s |\n|---|---|---|---|---|---|")
    for name, X, target, gamma in (("wine", wine.X, wine.target, 1 / 11), ("generated", *generate(), 1.0)):
        for C in (1.0, 10.0):
            compare(f"| {name} | {C:g} |", np.asarray(X), target, {"C": C, "gamma": gamma}, given)


def generate() -> tuple[F64, F64]:
    """Return the generated rows and their targets."""
    random = np.random.default_rng(1)
    X = random.uniform(-3.0, 3.0, (20_000, 2))
    return X, 3.0 * np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 100.0 + 0.2 * random.standard_normal(len(X))


def compare(head: str, X: Any, target: F64, about: dict[str, float], given: Any) -> None:
    """Print a line for each exact solver (LIBSVM and SMO, or kernel ridge regression) and for each budget."""
    order = np.random.default_rng(0).permutation(len(X))
    tested, learned = np.split(order, [len(X) // HELD_OUT])
    source = ArrayDataset(X[learned].astype(np.float32), None, None, target=target[learned])

    def tell(name: str, errors: list[float], vectors: int, seconds: list[float]) -> None:
        spread = f" ± {np.std(errors):.4f}" if len(errors) > 1 else ""
        print(f"{head} {name} | {np.mean(errors):.4f}{spread} | {vectors:,} | {np.median(seconds):.2f} |", flush=True)

    def find_error(predicted: F64) -> float:
        return float(np.sqrt(np.mean((predicted - target[tested]) ** 2)))

    options: dict[str, Any] = {"task": "regress", "kernel": "rbf", "epsilon": EPSILON, "threads": 1, **about}
    rows = X[tested].astype(np.float32)
    if given.squared:
        options |= {"loss": "squared_epsilon_insensitive", "epsilon": 0.0}
        middle = float(np.median(target[learned]))
        ridge = KernelRidge(alpha=1 / (2 * about["C"]), kernel="rbf", gamma=about["gamma"])
        seconds, other = measure(partial(ridge.fit, X[learned], target[learned] - middle))
        tell("kernel ridge", [find_error(other.predict(X[tested]) + middle)], len(learned), [seconds])
    else:
        seconds, other = measure(
            partial(Libsvm(**about, epsilon=EPSILON, cache_size=1000).fit, X[learned], target[learned])
        )
        tell("LIBSVM", [find_error(other.predict(X[tested]))], len(other.support_), [seconds])
        train(source, TrainOptions(**options, max_passes=1, tol=0.5))
        seconds, exact = measure(partial(train, source, TrainOptions(**options)))
        tell("smo", [find_error(exact.model.decide(rows))], exact.n_support_vectors or 0, [seconds])
    for budget, merge, epochs in BUDGETS:
        own = {"budget": str(budget), "merge": str(merge), "epochs": str(epochs)}
        settings = [
            TrainOptions(**options, solver="budgeted-sgd", options=own, seed=seed) for seed in range(given.seeds)
        ]
        train(source, settings[0])
        found = [measure(partial(train, source, each)) for each in settings]
        errors = [find_error(result.model.decide(rows)) for _, result in found]
        name = f"budgeted, B = {budget}, M = {merge}, {epochs} epoch{'s' * (epochs > 1)}"
        tell(name, errors, max(result.n_support_vectors or 0 for _, result in found), [took for took, _ in found])


if __name__ == "__main__":
    main()
