"""Trainers of the linear problem: each reads its rows, fits, and returns w and b.

All trainers solve min 1/2 |w|^2 + 1/2 b^2 + C sum hinge: the bias is the weight of a last feature that is 1. The code
within `timing("fit")` is the training. Converting the rows to the data structure of a library is part of "read", which
counts only if the rows are on the disk. For stochastic gradients, lambda = 1 / (C n).
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, hstack

from pipelines.compare.child import Task
from pipelines.compare.problems import Matrix
from pipelines.limits import RESERVED_BYTES
from streamsvm import CuttingPlane

CHUNK_ROWS = 1 << 16
FEW_ROWS = 500
MOST_ITERATIONS = 10**6
LINE_SEARCH = CuttingPlane(acceleration="line-search")
Model = dict[str, Any]


def fit_streamsvm(task: Task, **settings: Any) -> Model:
    """Fit to a few rows first, so that the time to load compiled code is not measured; then fit to all rows."""
    from streamsvm import LinearSVC

    memory = None if task.problem.memory is None else task.problem.memory - RESERVED_BYTES
    model = LinearSVC(C=task.problem.C, **{"tol": float(task.rung), "memory": memory, "n_jobs": 2, **settings})
    X, y = task.read_chunk(0, FEW_ROWS) if task.on_disk else task.read()
    model.fit(X[:FEW_ROWS], y[:FEW_ROWS])
    with task.timing("fit"):
        if task.on_disk:
            model.fit(task.folder / "rows.zarr")
        else:
            model.fit(X, y)
    task.told |= {"passes": model.n_passes_, "lower_bound": model.lower_bound_, "certified": model.objective_}
    if task.on_disk:
        task.told["read_bytes"] = model.result_.read_bytes
    return {"w": model.coef_, "b": model.intercept_[0]}


def fit_default(task: Task) -> Model:
    return fit_streamsvm(task)


def fit_line_search(task: Task) -> Model:
    return fit_streamsvm(task, solver=LINE_SEARCH)


def fit_reference(task: Task) -> Model:
    return fit_streamsvm(task, solver=LINE_SEARCH, memory=None)


def fit_interior_point(task: Task) -> Model:
    return fit_streamsvm(task, solver="interior-point")


def fit_linear_svc(task: Task) -> Model:
    from sklearn.svm import LinearSVC

    with task.timing("read"):
        X, y = task.read()
    model = LinearSVC(loss="hinge", C=task.problem.C, tol=float(task.rung), max_iter=MOST_ITERATIONS, random_state=0)
    with task.timing("fit"):
        model.fit(X, y)
    task.told["passes"] = int(model.n_iter_)
    return {"w": model.coef_, "b": model.intercept_[0]}


def fit_liblinear(task: Task) -> Model:
    """Train LIBLINEAR's solver 3. The parent process reads the number of iterations from LIBLINEAR's output."""
    from liblinear.liblinearutil import parameter, problem, train

    with task.timing("read"):
        X, y = task.read()
        rows = problem(y.astype(np.float64), csr_matrix(X))
    with task.timing("fit"):
        model = train(rows, parameter(f"-s 3 -c {task.problem.C} -e {task.rung} -B 1"))
    w, b = model.get_decfun()
    return {"w": w, "b": b}


def fit_snapml(task: Task) -> Model:
    from snapml import SupportVectorMachine

    with task.timing("read"):
        X, y = task.read()
    rows = csr_matrix(X) if isinstance(X, csr_array) else X
    model = SupportVectorMachine(
        loss="hinge",
        regularizer=1 / task.problem.C,
        tol=float(task.rung),
        max_iter=MOST_ITERATIONS,
        n_jobs=2,
        fit_intercept=True,
        intercept_scaling=1.0,
        random_state=0,
    )
    with task.timing("fit"):
        model.fit(rows, y.astype(np.float32))
    return {"w": model.coef_, "b": np.ravel(model.intercept_)[0]}


def make_sgd(task: Task, n: int, epochs: int) -> Any:
    """Return averaged stochastic gradients whose bias is penalised like any other weight."""
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(
        "hinge",
        alpha=1 / (task.problem.C * n),
        fit_intercept=False,
        max_iter=epochs,
        tol=None,
        average=True,
        random_state=0,
    )


def add_one(X: Matrix) -> Matrix:
    """Return the rows with a last feature that is 1."""
    one = np.ones((X.shape[0], 1), np.float32)
    return csr_array(hstack([X, one], "csr")) if isinstance(X, csr_array) else np.hstack([X, one])


def split_bias(w: Any) -> Model:
    flat = np.ravel(w)
    return {"w": flat[:-1], "b": flat[-1]}


def fit_sgd(task: Task) -> Model:
    """Train by stochastic gradients.

    Rows on the disk are learned chunk by chunk; each epoch has a new order of chunks and rows.
    """
    n, epochs = task.n_rows, int(task.rung)
    task.told["passes"] = epochs
    model = make_sgd(task, n, epochs)
    if task.on_disk:
        random = np.random.default_rng(0)
        with task.timing("fit"):
            for _ in range(epochs):
                for at in random.permutation(np.arange(0, n, CHUNK_ROWS)):
                    X, y = task.read_chunk(at, CHUNK_ROWS)
                    order = random.permutation(len(y))
                    model.partial_fit(add_one(X)[order], y[order], classes=[-1, 1])
    else:
        X, y = task.read()
        rows = add_one(X)
        with task.timing("fit"):
            model.fit(rows, y)
    return split_bias(model.coef_)


def fit_incremental(task: Task) -> Model:
    """Train dask-ml's Incremental around the same SGDClassifier: one task per chunk, in turn, epoch by epoch."""
    import dask
    import dask.array as da
    from dask_ml.wrappers import Incremental

    starts, n = range(0, task.n_rows, CHUNK_ROWS), task.n_rows
    if task.on_disk:
        y = np.load(task.folder / "train" / "y.npy")
        width = task.read_chunk(0, 1)[0].shape[1] + 1
        make = dask.delayed(lambda at: add_one(task.read_chunk(at, CHUNK_ROWS)[0]))
        blocks = [da.from_delayed(make(at), (min(CHUNK_ROWS, n - at), width), np.float32) for at in starts]
    else:
        X, y = task.read()
        X = add_one(X)
        blocks = [da.from_array(X[at : at + CHUNK_ROWS], chunks=-1, asarray=False) for at in starts]
    rows, labels = da.concatenate(blocks), da.from_array(y, chunks=CHUNK_ROWS)
    task.told["passes"] = int(task.rung)
    model = Incremental(make_sgd(task, n, 1), scoring="accuracy", random_state=0)
    with task.timing("fit"), dask.config.set(scheduler="synchronous"):  # Threads would read all chunks ahead.
        for _ in range(task.told["passes"]):
            model.partial_fit(rows, labels, classes=[-1, 1])
    return split_bias(model.estimator_.coef_)


def fit_vowpal_wabbit(task: Task) -> Model:
    """Train Vowpal Wabbit by gradients with steps 1 / (lambda (t + t0)).

    It always streams rows, from text or a cache file. It shrinks w only at rows that have a loss. Its effective lambda
    is therefore smaller, and its optimum differs.
    """
    from vowpalwabbit import Workspace

    X = add_one((task.read_chunk(0, CHUNK_ROWS) if task.on_disk else task.read())[0])[:CHUNK_ROWS]
    task.told["passes"] = int(task.rung)
    rate, size = X.shape[0] / float((X**2).sum()), task.problem.C * task.n_rows
    with TemporaryDirectory(dir=task.folder) as passing, task.timing("fit"):
        arguments = (
            f"--data {task.folder}/rows.vw --cache_file {passing}/cache --passes {task.rung} --loss_function hinge "
            f"--l2 {1 / size} --sgd --learning_rate {rate} --power_t 1 --initial_t {size / rate} --noconstant "
            f"--holdout_off --bit_precision 18 --quiet --predict_only_model --readable_model {passing}/text"
        )
        Workspace(arg_list=arguments.split()).finish()
        lines = (Path(passing) / "text").read_text().splitlines()
    weights = np.zeros(X.shape[1])
    for line in lines:
        place, _, value = line.partition(":")
        if place.isdecimal():
            weights[int(place)] = float(value)
    return split_bias(weights)
