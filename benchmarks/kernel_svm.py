"""Kernel SVMs, compared with scikit-learn's SVC and scikit-learn-intelex (if installed). Prints a Markdown table.

    python benchmarks/kernel_svm.py --data FOLDER [--rounds 3] [--only a9a w8a ...] [--whole-mnist]

FOLDER holds adult/a9a, web/w8a, ijcnn1/ijcnn1.trn, banana/banana.all.txt and mnist/train-images-idx3-ubyte, and their
test sets. All trainers fit the same float32 rows in memory, and take turns (A B C A B C ...). The table has medians of
--rounds rounds; a trainer that takes longer than a minute is run once. intelex gets dense rows, on which it is fastest.
SVC has a cache of 2 GB. The tolerance of 1e-3 limits the relative gap of streamsvm, and the violation of the KKT
conditions of the other trainers. The objective is the dual objective; for the other trainers, this script computes it
in float64 from their support vectors.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn import svm
from sklearn.datasets import load_svmlight_file, load_svmlight_files
from sklearn.metrics.pairwise import pairwise_kernels

from streamsvm import SVC
from streamsvm.solvers.set_up import ALL_MODELS, compile_all

Split = tuple[Any, Any, Any, Any]
SLOW_SECONDS = 60.0


def read_split(train: Path, test: Path) -> Split:
    """Return the rows of two svmlight files, with labels -1 and +1."""
    X, y, X_test, y_test = load_svmlight_files([str(train), str(test)], dtype=np.float32)
    for part in (X, X_test):  # scikit-learn's SVC refuses the 64-bit indices of scikit-learn's reader
        part.indices, part.indptr = part.indices.astype(np.int32), part.indptr.astype(np.int32)
    return X, np.where(y > 0, 1, -1), X_test, np.where(y_test > 0, 1, -1)


def read_banana(file: Path) -> Split:
    """Return 4,900 training rows and 400 test rows."""
    X, y = load_svmlight_file(str(file), dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X.toarray()[order], y[order].astype(int)
    return X[:4900], y[:4900], X[4900:], y[4900:]


def read_mnist(folder: Path, n_rows: int) -> Split:
    """Return the images of MNIST, with pixels in 0..1 and labels of 8 against the rest."""

    def read(name: str) -> tuple[Any, Any]:
        images = np.fromfile(folder / f"{name}-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)
        labels = np.fromfile(folder / f"{name}-labels-idx1-ubyte", np.uint8, offset=8)
        return images.astype(np.float32) / 255, np.where(labels == 8, 1, -1)

    X, y = read("train")
    return (X[:n_rows], y[:n_rows], *read("t10k"))


def problems(folder: Path, whole_mnist: bool) -> dict[str, tuple[Callable[[], Split], dict[str, Any]]]:
    """Return the reader and the parameters of each problem, by name."""
    poly = {"kernel": "poly", "degree": 5, "gamma": 0.01, "coef0": 1.0, "C": 100.0}
    n_rows = 60_000 if whole_mnist else 10_000
    return {
        "a9a": (lambda: read_split(folder / "adult/a9a", folder / "adult/a9a.t"), {"C": 1.0, "gamma": 0.05}),
        "w8a": (lambda: read_split(folder / "web/w8a", folder / "web/w8a.t"), {"C": 5.0, "gamma": 0.05}),
        "ijcnn1": (
            lambda: read_split(folder / "ijcnn1/ijcnn1.trn", folder / "ijcnn1/ijcnn1.tst"),
            {"C": 32.0, "gamma": 2.0},
        ),
        "banana": (lambda: read_banana(folder / "banana/banana.all.txt"), {"C": 316.2, "gamma": 0.5}),
        f"MNIST 8, {n_rows:,}": (lambda: read_mnist(folder / "mnist", n_rows), poly),
    }


def make_trainers(parameters: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return functions that make the estimators, by name."""
    trainers = {
        "streamsvm smo": lambda: SVC(**parameters),
        "streamsvm irwls": lambda: SVC(solver="irwls", **parameters),
        "scikit-learn": lambda: svm.SVC(cache_size=2000, **parameters),
    }
    try:
        from sklearnex import svm as intel
    except ImportError:
        return trainers
    return {**trainers, "intelex": lambda: intel.SVC(cache_size=2000, **parameters)}


def compute_dual(model: Any, parameters: dict[str, Any]) -> float:
    """Return D = sum a - 1/2 |w|^2 of a fitted model, in float64."""
    coef, vectors = (
        np.asarray(model.dual_coef_.toarray() if hasattr(model.dual_coef_, "toarray") else model.dual_coef_)[0],
        model.support_vectors_,
    )
    kernel = {name: value for name, value in parameters.items() if name not in ("C", "kernel")}
    square = 0.0
    for at in range(0, len(coef), 1000):
        part = slice(at, at + 1000)
        K = pairwise_kernels(
            vectors[part].astype(np.float64), vectors.astype(np.float64), parameters.get("kernel", "rbf"), **kernel
        )
        square += float(coef[part] @ (K @ coef))
    return float(np.abs(coef).sum()) - square / 2


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--whole-mnist", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    compile_all(ALL_MODELS)
    print("| problem | trainer | s | over ours | objective | off LIBSVM's dual | gap | support vectors | accuracy |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, (read, parameters) in problems(options.data, options.whole_mnist).items():
        if options.only and name.partition(",")[0].partition(" ")[0] not in options.only:
            continue
        compare(name, read(), parameters, options.rounds)


def predict(model: Any, trainer: str, X: Any) -> Any:
    """Return the predictions of a model, for rows in the layout with which it was trained."""
    return model.predict(X.toarray() if trainer == "intelex" and issparse(X) else X)


def compare(name: str, split: Split, parameters: dict[str, Any], rounds: int) -> None:
    """Print the rows of one problem."""
    X, y, X_test, y_test = split
    trainers = make_trainers(parameters)
    seconds: dict[str, list[float]] = {trainer: [] for trainer in trainers}
    fitted = {}
    for _ in range(rounds):
        for trainer, make in trainers.items():
            if seconds[trainer] and seconds[trainer][0] > SLOW_SECONDS:
                continue
            rows = X.toarray() if trainer == "intelex" and issparse(X) else X  # its fastest layout
            began = time.perf_counter()
            fitted[trainer] = make().fit(rows, y)
            seconds[trainer].append(time.perf_counter() - began)
    reference = compute_dual(fitted["scikit-learn"], parameters)
    for trainer, model in fitted.items():
        spent = median(seconds[trainer])
        objective = getattr(model, "objective_", None) or compute_dual(model, parameters)
        gap = f"{model.gap_:.1e}" if hasattr(model, "gap_") else "-"
        print(
            f"| {name} | {trainer} | {spent:.2f} | {spent / median(seconds['streamsvm smo']):.2f} | {objective:.4f} "
            f"| {objective / reference - 1:+.1e} | {gap} | {model.support_vectors_.shape[0]} "
            f"| {100 * np.mean(predict(model, trainer, X_test) == y_test):.2f}% |",
            flush=True,
        )


if __name__ == "__main__":
    main()
