"""Datasets that worker processes cannot open: the run ends with a message, and no worker is lost."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client

from streamsvm.cli.main import main
from streamsvm.data.open import UnopenedDataset, open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.edits import EditedDataset, join_copies
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.ingestion.edit import delete_rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Take
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.conftest import describe_keys, make_problem
from tests.engines.scans import trace_scan

HERE = Path("/proc/self/cwd")  # each process has a working directory of its own, so this path leads elsewhere in each


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A dataset whose path leads workers, which began in another folder, to nothing."""
    make_problem(1).store(tmp_path / "rows", chunk_bytes=1000)
    monkeypatch.chdir(tmp_path)
    return open_dataset(HERE / "rows")


@pytest.fixture
def unharmed(client: Client) -> Iterator[Client]:
    """Workers that are the same processes after the test."""
    before = client.run(os.getpid)
    yield client
    assert client.run(os.getpid) == before


def test_training_is_refused_before_the_first_pass(unharmed: Client, dataset: Dataset) -> None:
    with pytest.raises(InputError, match=rf"^worker tls://\S+: {HERE}/rows: no such dataset"):
        train(dataset, TrainOptions(), client=unharmed)


def test_the_command_names_worker_and_path(unharmed: Client, dataset: Dataset, capsys: pytest.CaptureFixture) -> None:
    """It ends with status 2, and leaves no run."""
    with dask.config.set(describe_keys(unharmed.security)):
        assert main(["train", dataset.path, "--out", "run", "--scheduler", unharmed.scheduler.address]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("streamsvm train: worker tls://")
    assert f"{HERE}/rows: no such dataset; every worker opens the dataset by this path: use a folder" in said
    assert not Path("run").exists()


def test_tasks_on_workers_that_were_not_prepared_fail(unharmed: Client, dataset: Dataset) -> None:
    """A worker may join while a training is under way."""
    engine = DistributedEngine(dataset, unharmed)
    for work in (lambda: engine.scan(trace_scan()), lambda: engine.take(Take(np.arange(3)))):
        with pytest.raises(InputError, match=rf"^worker tls://\S+: {HERE}/rows: no such dataset"):
            work()
    engine.close()


def test_views_of_a_dataset_that_is_gone_are_unpickled(dataset: Dataset, tmp_path: Path) -> None:
    """Every use of the dataset raises the error, and a process that has the dataset opens it."""
    delete_rows(dataset.path, [0, 5])
    trimmed = open_dataset(dataset.path)
    assert isinstance(trimmed, EditedDataset)
    copies = join_copies(trimmed, trimmed.deletions)
    sent = pickle.dumps(copies)
    (tmp_path / "rows").rename(tmp_path / "elsewhere")
    received = pickle.loads(sent)
    assert isinstance(received, UnopenedDataset)
    with pytest.raises(InputError, match="no such dataset"):
        _ = received.n_rows
    (tmp_path / "elsewhere").rename(tmp_path / "rows")
    assert pickle.loads(pickle.dumps(received)).n_rows == copies.n_rows == 300
