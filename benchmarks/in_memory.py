"""Linear classifiers on arrays in memory, compared with LIBLINEAR's own library. Prints a Markdown table.

    python -m benchmarks.in_memory --data FOLDER [--sets NAME...] [--costs C...] [--losses LOSS...] [--tol TOL...]

FOLDER holds the public sets that benchmarks/two_classes.py reads. streamsvm's estimator is fitted to arrays on one
thread, and the whole `fit` is timed: the checks of the input, the solver, the proof, and the model. LIBLINEAR (`pip
install liblinear-official`) gets the rows in its own format, and only its training is timed. It runs at the largest of
TOLERANCES for which its model is within `tol` of the optimum; for a smooth loss, it runs the faster of its primal and
dual solvers. The two trainers take turns a few times, and the table has the medians of their CPU seconds. Distances are
(P - D) / P, with the largest lower bound D that was proved.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from liblinear import liblinearutil  # type: ignore[import-not-found, import-untyped, unused-ignore]
from scipy.sparse import csr_array, csr_matrix

from benchmarks.two_classes import load
from streamsvm import LinearSVC, LogisticRegression
from streamsvm.numeric.compilation import one_blas_thread

SETS = ["a9a", "w8a", "ijcnn1", "covtype", "news20", "bydate"]
TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
SOLVERS = {"hinge": (3,), "squared_hinge": (2, 1), "logistic": (0, 7)}  # solver numbers of LIBLINEAR
MOST_SECONDS = 10.0  # If LIBLINEAR runs longer, it counts as too far from the optimum.
QUICK_SECONDS = 0.5  # runs faster than this are repeated three times as often


class Found(NamedTuple):
    """A weight vector with the bias last, and CPU seconds."""

    w: Any
    seconds: float


def main() -> None:
    """Print a line for each set, loss, C and tolerance."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--costs", nargs="*", type=float, default=[0.01, 0.1, 1.0])
    parser.add_argument("--losses", nargs="*", default=["hinge"], choices=list(SOLVERS))
    parser.add_argument("--tol", nargs="*", type=float, default=[1e-3, 1e-4])
    parser.add_argument("--rounds", type=int, default=3)
    own = parser.parse_args()
    print("| data | loss | C | tol | CPU s | passes | distance | LIBLINEAR's | its distance | its -s, -e | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in own.sets:
        source = load(own.data, name)
        y: Any = np.where(source.y == 1, 1.0, -1.0)
        problem = liblinearutil.problem(y, csr_matrix(source.X, dtype=np.float64), bias=1.0)
        for loss in own.losses:
            for C in own.costs:
                for cells in compare(source.X, y, problem, loss, C, own.tol, own.rounds):
                    print("|", " | ".join([name, loss, f"{C:g}", *cells]), "|", flush=True)


def compare(X: Any, y: Any, problem: Any, loss: str, C: float, tolerances: list[float], rounds: int) -> list[list[str]]:
    """Return, for each tolerance, the cells of a line."""
    bound = fit(X, y, loss, C, min(tolerances) / 100).lower_bound_
    lines = []
    for tol in tolerances:
        find = lambda w: find_distance(X, y, loss, C, w, bound)  # noqa: E731
        theirs = choose_solver(problem, loss, C, tol, find)
        ours, times, models, other = [], [], [], []
        n = rounds if theirs is None or run_liblinear(problem, C, *theirs).seconds > QUICK_SECONDS else 3 * rounds
        for _ in range(n):
            seconds, model = measure(lambda tol=tol: fit(X, y, loss, C, tol))
            models.append(model)
            ours.append(seconds)
            if theirs is not None:
                other.append(run_liblinear(problem, C, *theirs))
                times.append(other[-1].seconds)
        w = np.append(models[0].coef_[0], models[0].intercept_[0])
        cells = [f"{tol:g}", f"{median(ours):.3f}", str(models[0].n_passes_), f"{find(w):.0e}"]
        if models[0].status_ != "converged":
            cells[1] += f" {models[0].status_}"
        if theirs is None:
            lines.append([*cells, "-", "-", "-", "-"])
            continue
        ratio = median(ours) / median(times)
        its = [f"{median(times):.3f}", f"{find(other[0].w):.0e}", f"{theirs[0]}, {theirs[1]:g}"]
        lines.append([*cells, *its, f"{ratio:.2f}"])
    return lines


def fit(X: Any, y: Any, loss: str, C: float, tol: float) -> Any:
    """Return our fitted estimator."""
    if loss == "logistic":
        return LogisticRegression(C=C, tol=tol, n_jobs=1).fit(X, y)
    return LinearSVC(C=C, loss=loss, tol=tol, n_jobs=1).fit(X, y)


def choose_solver(problem: Any, loss: str, C: float, tol: float, find: Callable[[Any], float]) -> Any:
    """Return the fastest solver of LIBLINEAR that comes near enough, and its tolerance; None if no solver does."""
    best: tuple[float, tuple[int, float]] | None = None
    for solver in SOLVERS[loss]:
        for own in TOLERANCES:
            found = run_liblinear(problem, C, solver, own)
            if found.seconds > MOST_SECONDS:
                break
            if find(found.w) <= tol:
                again = min(found.seconds, run_liblinear(problem, C, solver, own).seconds)
                if best is None or again < best[0]:
                    best = again, (solver, own)
                break
    return None if best is None else best[1]


def run_liblinear(problem: Any, C: float, solver: int, tol: float) -> Found:
    """Train by LIBLINEAR."""
    with quiet():
        seconds, model = measure(lambda: liblinearutil.train(problem, f"-s {solver} -c {C} -e {tol} -B 1 -q"))
    sign = 1.0 if model.label[0] == 1 else -1.0
    return Found(sign * np.ctypeslib.as_array(model.w, (model.nr_feature + 1,)), seconds)


def find_distance(X: Any, y: Any, loss: str, C: float, w: Any, bound: float) -> float:
    """Return (P - D) / P of the weights w. bound: the lower bound D."""
    X = X.astype(np.float64) if isinstance(X, csr_array) else X
    margins = y * (X @ w[:-1] + w[-1])
    hinges = np.maximum(0.0, 1.0 - margins)
    losses = {"hinge": hinges, "squared_hinge": hinges**2, "logistic": np.logaddexp(0.0, -margins)}[loss]
    P = float(w @ w) / 2 + C * float(np.sum(losses))
    return (P - bound) / P


def measure(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds that a call takes, and its result."""
    started = time.process_time()
    result = run()
    return time.process_time() - started, result


@contextmanager
def quiet() -> Any:
    """Discard the output of compiled code."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


if __name__ == "__main__":
    with one_blas_thread():
        main()
