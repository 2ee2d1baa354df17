"""Rows that a solver holds in memory are not read again, and give the bits that they would give from disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.engines.merge import answer_all
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.passes import All, Take
from streamsvm.runs.train import train
from tests.conftest import make_problem
from tests.data.forging import find_file
from tests.engines.scans import trace_scan

pytestmark = pytest.mark.usefixtures("many_groups")


@pytest.fixture(params=[(1.0, "crc32c"), (0.4, "crc32c"), (1.0, "zstd")], ids=["dense", "sparse", "compressed"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    density, codec = request.param
    problem = make_problem(3, n=1000, d=7, density=density, weighted=True)
    return problem.store(tmp_path / "rows", chunk_bytes=3000, codec=codec)


def spoil(dataset: Dataset, n_rows: int) -> int:
    """Damage the chunks of X that lie within the first rows; return how many chunks these are."""
    n_chunks = int(np.searchsorted(dataset.chunk_starts, n_rows, side="right")) - 1
    array = dataset.layout.arrays[0]
    for index in range(n_chunks):
        path = find_file(array, index)
        path.write_bytes(b"\0" * path.stat().st_size)
    return n_chunks


@pytest.mark.parametrize("number", [1, 137, 999, 1000])
def test_held_chunks_are_not_read(dataset: Dataset, number: int) -> None:
    engine = SerialEngine(dataset)
    whole = engine.scan(trace_scan()).tree
    held = engine.take(Take(np.arange(number)))
    n_chunks = spoil(dataset, number)
    read_rows = dataset.n_rows - int(dataset.chunk_starts[n_chunks])
    for other in (SerialEngine(dataset), ThreadedEngine(dataset, 2)):
        both = answer_all(other, [All([replace(trace_scan(), held=held), trace_scan()])])[0]
        assert both[0].tree == both[1].tree == whole
        assert other.costs.read_bytes == pytest.approx(dataset.nbytes * read_rows / dataset.n_rows, abs=2000)
        other.close()


def test_workers_read_them(dataset: Dataset, client: Client) -> None:
    """They are not sent the rows that the driver holds; the bits are the same."""
    held = SerialEngine(dataset).take(Take(np.arange(500)))
    engine = DistributedEngine(dataset, client)
    assert engine.scan(replace(trace_scan(), held=held)).tree == SerialEngine(dataset).scan(trace_scan()).tree
    engine.close()


def test_shuffled_rows_are_read_once(tmp_path: Path) -> None:
    """A run whose first pass proves the model has read every row once: the sample is the first rows, which it holds."""
    problem = make_problem(1, n=20_000, d=5)
    data = ingest(problem.X, tmp_path / "rows", problem.y, chunk_bytes=20_000)
    options = TrainOptions(C=0.01, threads=1, memory_bytes=None, resident_rows="20%")
    result = train(data, replace(options, tol=0.9, options={"acceleration": "one-read"}))
    assert result.passes == 1
    assert result.read_bytes == pytest.approx(data.nbytes, rel=0.02)
