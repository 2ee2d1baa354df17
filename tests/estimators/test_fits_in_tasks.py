"""Fits within the tasks of a cluster, which wait for other tasks of the same cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_client, worker_client

from streamsvm import LinearSVC, ingest, tune
from tests.conftest import make_problem

PROBLEM = make_problem(0, n=400, d=5)
X, Y = np.asarray(PROBLEM.X), np.asarray(PROBLEM.y)
WAIT_SECONDS = 60.0


@pytest.fixture
def busy_client() -> Iterator[Client]:
    """A worker of one thread in this process, so that its tasks find a client that Dask takes by default."""
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    workers: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "host": "127.0.0.1"}
    with LocalCluster(**workers, protocol="tcp", scheduler_kwargs=quiet) as cluster, Client(cluster) as client:
        yield client


def cut() -> tuple[Any, Any]:
    return da.from_array(X, chunks=(100, 5)), da.from_array(Y, chunks=100)


def fit_dask_rows(_: Path) -> Any:
    return LinearSVC(tol=1e-6).fit(*cut()).coef_


def fit_on_client(_: Path) -> Any:
    return LinearSVC(tol=1e-6, client=get_client()).fit(X, Y).coef_


def fit_with_a_limit(_: Path) -> Any:
    return LinearSVC(tol=1e-6, client=get_client(), max_seconds=WAIT_SECONDS).fit(X, Y).coef_


def fit_dask_rows_on_client(_: Path) -> Any:
    return LinearSVC(tol=1e-6, client=get_client()).fit(*cut()).coef_


def fit_persisted_rows(_: Path) -> Any:
    return LinearSVC(tol=1e-6).fit(*get_client().persist(cut())).coef_


def fit_by_address(_: Path) -> Any:
    return LinearSVC(tol=1e-6, client=get_client().scheduler.address).fit(X, Y).coef_


def fit_after_seceding(_: Path) -> Any:
    with worker_client() as client:
        return LinearSVC(tol=1e-6, client=client).fit(*cut()).coef_


def ingest_and_fit(folder: Path) -> Any:
    return LinearSVC(tol=1e-6).fit(ingest(cut()[0], folder / "rows.zarr", cut()[1])).coef_


def tune_dask_rows(_: Path) -> Any:
    return tune(*cut(), C=[1.0], folds=2, tol=1e-6).estimator.coef_


def tune_on_client(_: Path) -> Any:
    return tune(X, Y, C=[1.0], folds=2, tol=1e-6, client=get_client()).estimator.coef_


def predict_dask_rows(_: Path) -> Any:
    model = LinearSVC(tol=1e-6).fit(X, Y)
    assert model.score(*cut()) == model.score(X, Y)
    np.testing.assert_array_equal(model.predict(cut()[0]).compute(), model.predict(X))
    return model.coef_


WORK: list[Callable[[Path], Any]] = [
    fit_dask_rows,
    fit_on_client,
    fit_with_a_limit,
    fit_dask_rows_on_client,
    fit_persisted_rows,
    fit_by_address,
    fit_after_seceding,
    ingest_and_fit,
    tune_dask_rows,
    tune_on_client,
    predict_dask_rows,
]


@pytest.mark.parametrize("work", WORK)
def test_a_task_gives_up_its_thread_while_it_waits(
    work: Callable[[Path], Any], busy_client: Client, tmp_path: Path
) -> None:
    """Two tasks at once: the worker's thread, which one gives up, is then taken by the other.

    The tasks train on temporary datasets, for which another solver is chosen than for rows in memory.
    """
    expected = LinearSVC(tol=1e-6).fit(X, Y).coef_
    tasks = [busy_client.submit(work, tmp_path / f"{k}", pure=False) for k in range(2)]
    for task in tasks:
        np.testing.assert_allclose(task.result(WAIT_SECONDS), expected, atol=1e-3)
