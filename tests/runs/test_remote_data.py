"""Training on data in an object store: the same bits as from the local disk, wherever the passes are carried out."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from distributed import Client

import streamsvm
from streamsvm.data.open import open_dataset
from streamsvm.data.remote import store
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.cluster import open as opening_clusters
from streamsvm.engines.cluster import watch
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.options import TrainOptions
from streamsvm.passes import Take
from streamsvm.runs.results import Event
from streamsvm.runs.train import Training, train
from streamsvm.system import deadline
from streamsvm.system.errors import TimeLimitError
from tests.commands import Run, run  # noqa: F401
from tests.conftest import make_problem
from tests.engines.cluster.test_adaptive_clusters import await_truth
from tests.engines.scans import trace_scan
from tests.object_server import ObjectServer
from tests.remote import upload

pytestmark = pytest.mark.usefixtures("many_groups")
OPTIONS = TrainOptions(C=1.0, tol=1e-3)


@pytest.fixture
def workers(client: Client, server: ObjectServer) -> Iterator[Client]:
    """Workers whose environment names the store."""
    client.run(set_variables, server.environment)
    yield client
    client.run(set_variables, dict.fromkeys(server.environment))


def set_variables(values: dict[str, str | None]) -> None:
    """Set or remove variables of this process, and let it open stores anew."""
    for name, value in values.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    store.connect.cache_clear()


def write(folder: Path, layout: str = "sparse", codec: str = "crc32c") -> Dataset:
    """Write rows in ten chunks, whose limits the chunks of labels and of row limits do not share if they are sparse."""
    problem = make_problem(3, n=1000, d=7, density=0.4, weighted=True)
    return problem.store(folder / "rows.zarr", layout=layout, chunk_bytes=3000, codec=codec)


@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_the_model_has_the_same_bits(layout: str, codec: str, server: ObjectServer, tmp_path: Path) -> None:
    local = write(tmp_path, layout, codec)
    remote = open_dataset(upload(server, local.path))
    assert train(remote, OPTIONS).model.to_bytes() == train(local, OPTIONS).model.to_bytes()
    for engine in (SerialEngine(remote), ThreadedEngine(remote, 2)):  # no chunk is kept in memory
        assert [engine.scan(trace_scan()).tree for _ in range(2)] == 2 * [SerialEngine(local).scan(trace_scan()).tree]
        engine.close()


def test_workers_read_the_store(server: ObjectServer, workers: Client, tmp_path: Path) -> None:
    local = write(tmp_path)
    remote = open_dataset(upload(server, local.path))
    model = train(remote, OPTIONS, client=workers).model
    assert {request.key for request in server.reads("X/data/c/")} >= {
        f"bucket/rows.zarr/X/data/c/{k}" for k in range(local.n_chunks)
    }
    assert model.to_bytes() == train(local, OPTIONS).model.to_bytes()


def test_commands_take_urls(server: ObjectServer, tmp_path: Path, run: Run) -> None:  # noqa: F811
    local = write(tmp_path)
    url = upload(server, local.path)
    for name, data in (("here", local.path), ("there", url)):
        assert run("train", data, "--out", tmp_path / name).code == 0
        assert run("predict", tmp_path / name, data, "--out", tmp_path / f"{name}.csv").code == 0
    assert (tmp_path / "here/model.npz").read_bytes() == (tmp_path / "there/model.npz").read_bytes()
    assert (tmp_path / "here.csv").read_bytes() == (tmp_path / "there.csv").read_bytes()
    shown, wanted = run("info", url, "--verify", "--json").result, run("info", local.path, "--verify", "--json").result
    assert shown == {**wanted, "path": url}
    for command in ("evaluate", "verify"):
        assert (
            run(command, tmp_path / "there", url, "--json").result
            == run(command, tmp_path / "here", local.path, "--json").result
        )


def test_estimators_take_them(server: ObjectServer, tmp_path: Path) -> None:
    local = write(tmp_path, "dense")
    url = upload(server, local.path)
    fits = [streamsvm.LinearSVC().fit(source) for source in (local, streamsvm.open(url))]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    np.testing.assert_array_equal(fits[0].predict(local), fits[1].predict(streamsvm.open(url)))


MANY_STEPS: Any = {"C": 100.0, "tol": 1e-6, "options": {"acceleration": "none"}}
SILENT = r"^s3://bucket/\S+: the time limit has passed, and the object store does not answer"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, server: ObjectServer) -> None:
    """No chunk is kept in memory, and the time of a training is over once an answer of the store is held."""
    monkeypatch.setattr(opening, "ThreadedEngine", lambda *given: ThreadedEngine(*given[:2], 0))
    monkeypatch.setattr(
        opening_clusters, "DistributedEngine", lambda *given: DistributedEngine(*given[:2], 0, *given[3:])
    )
    monkeypatch.setattr(store, "TOLD_SECONDS", 0.0)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(Training, "_seconds", lambda _: 1e9 if server.held.is_set() else 0.0)


@pytest.fixture
def impatient_workers(workers: Client, impatient: None) -> Iterator[Client]:
    """Workers that are the same processes after the test, and have nothing left to do."""
    before = workers.run(os.getpid)
    workers.run(set_told_seconds, 0.0)
    yield workers
    workers.run(set_told_seconds, 5.0)
    await_truth(lambda: not workers.call_stack())
    assert workers.run(os.getpid) == before


def set_told_seconds(seconds: float) -> None:
    store.TOLD_SECONDS = seconds


def upload_anew(server: ObjectServer, data: Dataset) -> str:
    """Put a dataset at a path that no other test has, since a worker may still hold the dataset of a test before."""
    return upload(server, data.path, f"bucket/{Path(data.path).parent.name}.zarr")


def hold_after(server: ObjectServer, step: int, event: Event) -> None:
    """Let the store be silent from the end of a step on."""
    if event.line["step"] == step:
        server.fault = lambda _: "held"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
def test_a_silent_store_does_not_outlast_the_limit(codec: str, server: ObjectServer, tmp_path: Path) -> None:
    """The run ends with the model of its last step, in the threads that read chunks and in the one that takes rows."""
    data = open_dataset(upload_anew(server, write(tmp_path, "dense", codec)))
    options = TrainOptions(**MANY_STEPS, max_seconds=10.0)
    result = train(data, options, listener=partial(hold_after, server, 2))
    assert (result.status, result.steps) == ("time_limit", 2)
    assert result.objective == result.history[1]["objective"]
    with deadline.held(lambda: True), pytest.raises(TimeLimitError, match=SILENT):
        data.take([200])


@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
def test_a_store_that_is_silent_to_workers_does_not_outlast_the_limit(
    codec: str, server: ObjectServer, impatient_workers: Client, tmp_path: Path
) -> None:
    """The driver tells them that no time is left, and the run ends as on threads."""
    data = open_dataset(upload_anew(server, write(tmp_path, "dense", codec)))
    options = TrainOptions(**MANY_STEPS, max_seconds=10.0)
    result = train(data, options, client=impatient_workers, listener=partial(hold_after, server, 2))
    assert (result.status, result.steps) == ("time_limit", 2)
    assert result.objective == result.history[1]["objective"]


def test_workers_that_take_rows_end_the_wait(server: ObjectServer, impatient_workers: Client, tmp_path: Path) -> None:
    data = open_dataset(upload_anew(server, write(tmp_path, "dense")))
    engine = DistributedEngine(data, impatient_workers)
    server.fault = lambda _: "held"
    with deadline.held(server.held.is_set), pytest.raises(TimeLimitError, match=SILENT):
        engine.take(Take(np.arange(3)))
    engine.close()


def test_workers_that_open_a_dataset_end_the_wait(
    server: ObjectServer, impatient_workers: Client, tmp_path: Path
) -> None:
    """They do not open it while they receive a message, and so they answer other questions meanwhile."""
    data = open_dataset(upload_anew(server, write(tmp_path)))
    server.fault = lambda _: "held"
    with pytest.raises(TimeLimitError, match=SILENT):
        train(data, replace(OPTIONS, max_seconds=0.1), client=impatient_workers)


def test_an_event_loop_does_not_open_what_it_unpickles(server: ObjectServer, tmp_path: Path) -> None:
    """Dask workers receive datasets in one, and heartbeats come from it."""
    data = open_dataset(upload_anew(server, write(tmp_path)))
    packed, n_rows = pickle.dumps(data), data.n_rows
    del data
    server.requests.clear()

    async def receive() -> Any:
        return pickle.loads(packed)

    received = asyncio.run(receive())
    assert isinstance(received, Dataset)
    assert not server.requests
    assert received.n_rows == n_rows
    assert server.requests


@pytest.mark.slow("interrupts processes")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
def test_ctrl_c_ends_the_threads_that_read(codec: str, server: ObjectServer, tmp_path: Path) -> None:
    data = open_dataset(upload_anew(server, write(tmp_path, "dense", codec)))

    def interrupt() -> None:
        server.held.wait()
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        train(data, TrainOptions(**MANY_STEPS), listener=partial(hold_after, server, 2))
    interrupting.join()
