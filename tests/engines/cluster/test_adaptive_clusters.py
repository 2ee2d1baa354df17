"""Clusters whose workers come and go with the tasks (`adapt`): workers come for a training, and its bits stay."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from streamsvm.data.rows.source import RowSource
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import engine as cluster
from streamsvm.engines.cluster import engine as passes
from streamsvm.engines.cluster.engine import DistributedEngine, PassOnWorkers
from streamsvm.engines.local import SerialEngine
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from tests.conftest import WORKER_BYTES, make_problem
from tests.engines.cluster.test_pass_on_workers import await_file
from tests.engines.scans import Trace, add_to_trace, combine_traces, trace_scan

pytestmark = pytest.mark.usefixtures("many_groups", "workers_import_tests")
QUICK = {"interval": "50 ms", "target_duration": "50 ms", "wait_count": 1}
SECONDS = 60.0  # that a worker waits for what never comes if the test fails


@pytest.fixture
def open_cluster() -> Iterator[Callable[..., Client]]:
    """A function that opens a cluster without workers, which adapts, and its client."""
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with ExitStack() as stack:

        def open_it(**limits: Any) -> Client:
            options: dict[str, Any] = {"n_workers": 0, "threads_per_worker": 1, "memory_limit": WORKER_BYTES}
            opened = stack.enter_context(LocalCluster(host="127.0.0.1", scheduler_kwargs=quiet, **options))
            opened.adapt(**limits, **QUICK)
            return stack.enter_context(Client(opened))

        yield open_it


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_problem(1).store(tmp_path / "rows", chunk_bytes=1000)


def test_a_cluster_starts_its_first_worker_for_a_training(
    open_cluster: Callable[..., Client], dataset: Dataset
) -> None:
    """Such a cluster starts no worker until there is a task (dask-jobqueue#26)."""
    there = train(dataset, TrainOptions(), client=open_cluster(minimum=0, maximum=2))
    here = train(dataset, TrainOptions())
    assert (there.model_sha256, there.status) == (here.model_sha256, here.status)


def test_a_second_worker_comes_for_a_training_of_long_passes(
    open_cluster: Callable[..., Client], dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All passes count as long here. The steps are those of a training on threads."""
    monkeypatch.setattr(cluster, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "SECONDS_OF_TASK", 0.0)
    client, workers = open_cluster(minimum=1, maximum=1), list[int]()

    def listen(event: Event) -> bool:
        if event.line["step"] == 3:  # other tasks precede the passes
            client.cluster.adapt(minimum=1, maximum=2, interval="10 ms", target_duration="1 ms", wait_count=10**6)
        if len(client.cluster.plan) == 2:
            client.wait_for_workers(2)
        workers.append(len(client.scheduler_info()["workers"]))
        return workers.count(2) == 3

    options = TrainOptions(C=1000, tol=1e-12, options={"acceleration": "none"})  # hundreds of steps
    there = train(dataset, options, client=client, listener=listen)
    assert (workers[0], there.status) == (1, "early_stop")
    here = train(dataset, options, listener=lambda event: event.line["step"] == there.steps)
    assert here.model_sha256 == there.model_sha256


def add_with_another(folder: Path, trace: Trace, rows: Rows) -> None:
    """Add rows once two processes have begun."""
    add_to_trace(trace, rows)
    (folder / str(os.getpid())).touch()
    ends = time.monotonic() + SECONDS
    while len(list(folder.iterdir())) < 2:
        assert time.monotonic() < ends, "no second worker has come"
        time.sleep(0.01)


@pytest.mark.parametrize("when", ["after a long pass", "when tasks hand over"])
def test_a_second_worker_comes_in_a_long_pass(
    open_cluster: Callable[..., Client],
    dataset: RowSource,
    tmp_path: Path,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pass would not end otherwise."""
    hands_over = when == "when tasks hand over"
    if not hands_over:
        monkeypatch.setattr(cluster, "LONG_SECONDS", 0.0)
        monkeypatch.setattr(cluster, "SECONDS_OF_TASK", 0.0)
    else:
        monkeypatch.setattr(passes, "HAND_OVER_SECONDS", 0.0)
    (tmp_path / "begun").mkdir()
    client = open_cluster(minimum=1, maximum=2)
    client.wait_for_workers(1)
    engine = DistributedEngine(dataset, client, most_handed=100 * hands_over)
    renew, renewed = PassOnWorkers._renew, list[int]()

    def watch(of_pass: PassOnWorkers, pending: Any) -> None:
        before = len(of_pass._futures)
        renew(of_pass, pending)
        renewed.extend([more] if (more := len(of_pass._futures) - before) else [])

    monkeypatch.setattr(PassOnWorkers, "_renew", watch)
    found = engine.scan(Scan(Trace, partial(add_with_another, tmp_path / "begun"), combine_traces))
    assert found.tree == SerialEngine(dataset).scan(trace_scan()).tree
    assert renewed[:1] == [2] * hands_over, "the rest of a task is cut in two"
    engine.close()


def add_once_told(folder: Path, trace: Trace, rows: Rows) -> None:
    """Add rows once the test has told that a worker is gone."""
    add_to_trace(trace, rows)
    (folder / str(os.getpid())).touch()
    await_file(folder / "gone")


def await_truth(is_true: Callable[[], bool]) -> None:
    ends = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_worker_may_be_retired_in_a_pass(
    open_cluster: Callable[..., Client], dataset: RowSource, tmp_path: Path
) -> None:
    """Its groups are added by the other worker."""
    begun = tmp_path / "begun"
    begun.mkdir()
    client = open_cluster(minimum=2, maximum=2)
    client.wait_for_workers(2)
    engine = DistributedEngine(dataset, client)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(engine.scan, Scan(Trace, partial(add_once_told, begun), combine_traces))
        await_truth(lambda: len(list(begun.iterdir())) == 2)
        client.cluster.adapt(minimum=1, maximum=1, **QUICK)
        await_truth(lambda: len(client.scheduler_info()["workers"]) == 1)
        (begun / "gone").touch()
        assert found.result().tree == SerialEngine(dataset).scan(trace_scan()).tree
    engine.close()
