"""Training on data in an object store: the same bits as from the local disk, wherever the passes are carried out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import streamsvm
from streamsvm.data import object_store
from streamsvm.data.dataset import Dataset
from streamsvm.data.open_dataset import open_dataset
from streamsvm.engines.dask import ThreadedEngine
from streamsvm.engines.serial import SerialEngine
from streamsvm.training.train import TrainOptions, train
from tests.commands import Run, run  # noqa: F401
from tests.conftest import make_problem
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
    object_store.connect.cache_clear()


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
