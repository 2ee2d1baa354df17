"""What a training costs on workers: the number of them with which a pass is shortest, requests to a store, minutes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client

from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import plan_groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import SerialEngine
from streamsvm.options import TrainOptions
from streamsvm.plan import table
from streamsvm.plan.predict import plan_training
from streamsvm.plan.table import Cluster, count_requests
from tests.commands import Run, run  # noqa: F401
from tests.conftest import make_problem
from tests.engines.scans import trace_scan
from tests.object_server import ObjectServer
from tests.remote import upload


@pytest.mark.parametrize(("n_groups", "pass_seconds"), [(10_000, 20.0), (10_000, 0.05), (30, 20.0), (1000, 0.0)])
def test_no_other_number_of_workers_makes_a_pass_shorter(n_groups: int, pass_seconds: float) -> None:
    """All numbers are tried. 37,000 groups of 79 ms and 2.2 ms a worker are an example."""
    cluster = Cluster(4, 1, n_groups, 0)
    assert cluster.project_pass(pass_seconds, 4) == pytest.approx(max(pass_seconds, 4 * table.WORKER_SECONDS))
    times = {n: cluster.project_pass(pass_seconds, n) for n in range(1, n_groups + 1)}
    fastest = cluster.count_fastest(pass_seconds)
    assert times[fastest] <= min(times.values()) * 1.01
    assert Cluster(1, 1, 37_000, 0).count_fastest(37_000 * 0.079) == pytest.approx(1150, abs=5)


@pytest.mark.parametrize(("layout", "chunk_bytes"), [("dense", 3 << 20), ("sparse", 3 << 20), ("sparse", 300_000)])
def test_a_pass_asks_a_store_as_often_as_planned(
    layout: str, chunk_bytes: int, tmp_path: Path, server: ObjectServer
) -> None:
    """Chunks of more than a range and of less, and the vectors with them; sparse rows reach into the next chunk."""
    problem = make_problem(1, n=30_000, d=60, density=1.0 if layout == "dense" else 0.5)
    local = problem.store(tmp_path / "rows", layout=layout, chunk_bytes=chunk_bytes)
    remote = open_dataset(upload(server, tmp_path / "rows"))
    assert count_requests(local) == 0
    server.requests.clear()
    SerialEngine(remote).scan(trace_scan())
    assert len(server.reads("/c/")) == pytest.approx(count_requests(remote), rel=0 if layout == "dense" else 0.15)


@pytest.fixture
def dataset(tmp_path: Path, many_groups: None) -> Dataset:
    return make_problem(1, n=3000).store(tmp_path / "rows.zarr", chunk_bytes=5000)


def test_the_workers_that_are_there_are_counted(dataset: Dataset, client: Client) -> None:
    """What all of them keep in memory is not read again."""
    plan = plan_training(dataset, TrainOptions(C=0.01), client)
    assert plan.cluster is not None
    assert (plan.cluster.workers, plan.cluster.threads, plan.cluster.requests) == (2, 1, 0)
    half = replace(plan.memory, pin_bytes=int(1.05 * dataset.nbytes / 2))
    assert replace(plan, memory=half).kept_bytes == pytest.approx(plan.source.stored_bytes, rel=1e-3)
    told = json.loads(json.dumps(plan.as_json()))
    assert told["worker_minutes"] == pytest.approx(2 * told["seconds"] / 60)
    assert told["minutes_by_workers"]["1"] > 0.0
    assert told["fastest_workers"] <= plan.cluster.most_tasks
    assert plan_training(dataset, TrainOptions(C=0.01)).as_json()["workers"] is None


def test_the_plan_says_what_workers_do_not_share(dataset: Dataset, client: Client) -> None:
    """Workers share a pass, but neither a walk through blocks nor the solver between two passes."""
    walk = TrainOptions(C=0.01, resident_rows="10%", options={"acceleration": "block-ascent"})
    shared, alone = (plan_training(dataset, options, client) for options in (TrainOptions(C=0.01), walk))
    for plan, most_tasks in (shared, len(plan_groups(dataset))), (alone, 1):
        told = plan.as_json()
        assert told["tasks_of_a_pass"] == most_tasks
        assert told["driver_share"] == pytest.approx(told["passes"] * plan.between_seconds / told["seconds"])
    assert set(alone.as_json()["minutes_by_workers"]) == {1}
    assert plan_training(dataset, TrainOptions(C=0.01)).as_json()["driver_share"] is None


def test_a_walk_takes_as_long_on_any_number_of_workers() -> None:
    cluster = Cluster(4, 1, 1, 0)
    assert cluster.project_pass(20.0, 1) == pytest.approx(20.0, rel=1e-3)
    assert cluster.count_fastest(20.0) == 1


def test_the_plan_shows_what_workers_cost(dataset: Dataset, run: Run) -> None:  # noqa: F811
    ended = run("train", dataset.path, "--plan", "--workers", "1")
    lines = dict(line.split(maxsplit=1) for line in ended.out.splitlines() if line.split())
    assert lines["workers"].startswith("1 with 1 thread each, ")
    assert "worker minutes; a pass is fastest with " in lines["workers"]
    assert "workers wait for the solver, in the driver, for at least " in lines["serial"]
    assert lines["memory"].endswith("for each worker")
