"""Mixed processors and libraries: recorded with the run and told, since they may change the last bits of a model."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.numeric import compilation
from streamsvm.numeric.compilation import describe_arithmetic, list_kinds, name_differences
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.conftest import make_problem
from tests.engines.scans import trace_scan

OPTIONS = TrainOptions(C=10.0, tol=1e-9, options={"acceleration": "none"}, max_passes=4)
OTHER = {**describe_arithmetic(), "blas": "openblas 0.0.1 Prescott"}


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return make_problem(3, n=300, d=5).store(tmp_path / "rows.zarr")


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The messages of streamsvm, whatever Dask does to other loggers."""
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, listener = logging.getLogger("streamsvm"), Listener()
    logger.addHandler(listener)
    yield messages
    logger.removeHandler(listener)


def compute_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_describe", lambda: tuple(OTHER.items()))


def test_it_is_recorded_with_the_run(data: Dataset, tmp_path: Path, told: list[str]) -> None:
    result = train(data, OPTIONS, tmp_path / "run")
    assert result.arithmetic == [describe_arithmetic()]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["arithmetic"] == result.arithmetic
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["arithmetic"] == result.arithmetic
    assert describe_arithmetic()["numpy"] == np.__version__
    assert told == []


def test_a_run_that_goes_on_elsewhere_is_told(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    here = train(data, OPTIONS, tmp_path / "run").arithmetic
    compute_elsewhere(monkeypatch)
    longer = TrainOptions(**{**vars(OPTIONS), "max_passes": 6})
    for _ in range(2):
        resumed = train(data, longer, tmp_path / "run", resume=True)
        assert resumed.arithmetic == [*here, OTHER]
        assert f"round sums differently (blas: {here[0]['blas']} or {OTHER['blas']})" in told[-1]
    told.clear()
    assert train(data, OPTIONS, tmp_path / "run", overwrite=True).arithmetic == [OTHER]
    assert told == []


def test_a_worker_that_adds_otherwise_is_told(
    data: Dataset, client: Client, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    assert train(data, OPTIONS, client=client).arithmetic == [describe_arithmetic()]
    there = describe_arithmetic()
    compute_elsewhere(monkeypatch)
    assert train(data, OPTIONS, client=client).arithmetic == [OTHER, there]
    assert [message for message in told if "round sums differently" in message]


def test_a_worker_that_joins_and_adds_otherwise_is_told(
    data: Dataset, client: Client, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """Once, by the first pass after it has come."""
    there = describe_arithmetic()
    compute_elsewhere(monkeypatch)
    engine = DistributedEngine(data, client)
    for _ in range(2):
        engine.scan(trace_scan())
        assert engine.arithmetic == [OTHER, there]
        assert [message for message in told if "round sums differently" in message] == told[:1] != []


def test_the_kind_of_blas_is_told() -> None:
    """OPENBLAS_CORETYPE chooses the instructions, and with them the bits, of a process."""
    program = "from streamsvm.numeric.compilation import describe_arithmetic; print(describe_arithmetic()['blas'])"
    kinds = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "OPENBLAS_CORETYPE": kind},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for kind in ("Haswell", "Nehalem")
    ]
    if "openblas" not in kinds[0]:
        pytest.skip("NumPy has another BLAS than OpenBLAS here, and the variable is OpenBLAS's")
    assert kinds[0] != kinds[1]


def test_each_kind_is_listed_once() -> None:
    kinds = list_kinds([{"a": "1", "b": "1"}, {"a": "1", "b": "2"}, {"a": "1", "b": "1"}])
    assert kinds == [{"a": "1", "b": "1"}, {"a": "1", "b": "2"}]
    assert name_differences(kinds) == "b: 1 or 2"
