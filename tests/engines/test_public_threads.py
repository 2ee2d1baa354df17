"""Problems known from other libraries on a cluster: the table in docs/dask.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

from streamsvm import LinearSVC, ingest
from streamsvm.data.rows.source import plan_groups
from tests.conftest import ROOT, WORKER_BYTES, make_problem

PROBLEM = make_problem(0, n=400, d=5)
X, Y = np.asarray(PROBLEM.X), np.asarray(PROBLEM.y)


@pytest.fixture
def two_workers(workers_import_tests: None) -> Iterator[Client]:
    """The client of a cluster of two workers, which may leave."""
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": WORKER_BYTES}
    with LocalCluster(host="127.0.0.1", scheduler_kwargs=quiet, **options) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.parametrize("event", ["leaves", "restarts"])
def test_a_worker_that_holds_partitions_is_gone(two_workers: Client, event: str) -> None:
    """xgboost#9419 and xgboost#9420: what it held is computed again, and the fit waits for no worker by its name."""
    rows, labels = two_workers.persist([da.from_array(X, chunks=(50, 5)), da.from_array(Y, chunks=50)])
    wait([rows, labels])
    if event == "restarts":
        two_workers.restart_workers([min(two_workers.scheduler_info()["workers"])])
    else:
        two_workers.cluster.scale(1)
        while len(two_workers.scheduler_info()["workers"]) > 1:
            pass
    there = LinearSVC(client=two_workers, tol=1e-5).fit(rows, labels)
    assert there.status_ == "converged"
    np.testing.assert_allclose(there.coef_, LinearSVC(tol=1e-5).fit(X, Y).coef_, atol=1e-3)


def test_a_worker_has_no_rows(client: Client, tmp_path: Path) -> None:
    """LightGBM#3882: there are fewer groups of chunks than workers."""
    dataset = ingest(X, tmp_path / "rows.zarr", Y)
    assert len(plan_groups(dataset)) == 1 < len(client.scheduler_info()["workers"])
    there, here = LinearSVC(client=client).fit(dataset), LinearSVC().fit(dataset)
    assert there.result_.model_sha256 == here.result_.model_sha256


def test_chunks_have_no_known_lengths(client: Client) -> None:
    """dask-ml#465: rows that were chosen by a condition."""
    some = X[:, 0] > 0
    rows, keep = da.from_array(X, chunks=(50, 5)), da.from_array(some, chunks=50)
    with client.as_current():
        there = LinearSVC(client=client).fit(rows[keep], da.from_array(Y, chunks=50)[keep])
    np.testing.assert_allclose(there.coef_, LinearSVC().fit(X[some], Y[some]).coef_, atol=1e-3)


def test_the_tests_of_the_table_are_there() -> None:
    table = (ROOT / "docs" / "dask.md").read_text().partition("## Problems known from other libraries")[2]
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", table)
    assert len(named) >= 5
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file} has no {name}"
