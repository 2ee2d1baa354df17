"""A ball after many edits: what it records of all additions bounds the rounding of its sums, in exact arithmetic."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.edit import delete_rows
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.runs.update import NAME, train_from
from streamsvm.solvers.start_from import unpack_ball
from streamsvm.system.npz import unpack_arrays, write_arrays

FAR = 100_000
OPTIONS = TrainOptions(C=0.3, tol=1e-3, resident_rows=50, threads=1, options={"intercept_scaling": "0"})

Counts = dict[tuple[float, float, float], int]


def write(path: Path) -> Dataset:
    """One heavy row, and many rows far beyond the margin, whose sum rounds the same way again and again."""
    X = np.append(np.float32(1.0), np.full(FAR, 0.7, np.float32))[:, None]
    return ingest(X, path, np.append(1, np.zeros(FAR, int)), sample_weight=np.append(4.0 * FAR, np.ones(FAR)))


def read(dataset: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All rows, their labels 1 and -1, and their weights."""
    parts = [dataset.read(index) for index in range(dataset.n_chunks)]
    X = np.concatenate([part.X[:, 0] for part in parts])  # type: ignore[index]
    y, weight = (np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "sample_weight"))
    return X, np.where(y == 1, 1.0, -1.0), weight


def count(dataset: Dataset) -> Counts:
    """How many rows are alike."""
    rows, n_alike = np.unique(np.stack(read(dataset), axis=1).astype(float), axis=0, return_counts=True)
    return dict(zip(map(tuple, rows.tolist()), n_alike.tolist(), strict=True))


def compute_primal(rows: Counts, w: float) -> Fraction:
    """P at w, without rounding."""
    slack = {row: max(Fraction(0), 1 - Fraction(row[0]) * Fraction(row[1]) * Fraction(w)) for row in rows}
    loss = sum(n * Fraction(row[2]) * slack[row] for row, n in rows.items())
    return Fraction(w) ** 2 / 2 + Fraction(OPTIONS.C) * loss


def require_certificate(dataset: Dataset, result: Result) -> None:
    """P is off by no more than its bound, and no point has a P below the lower bound."""
    rows, optimum = count(dataset), train(dataset, replace(OPTIONS, tol=1e-9)).model
    assert isinstance(result.model, LinearModel)
    assert isinstance(optimum, LinearModel)
    assert result.lower_bound is not None
    assert result.rounding_bound is not None
    P = compute_primal(rows, float(result.model.coef[0]))
    assert abs(P - Fraction(result.objective)) <= Fraction(result.rounding_bound)
    assert Fraction(result.lower_bound) <= min(P, compute_primal(rows, float(optimum.coef[0])))


def require_ledger(run: Path, dataset: Dataset) -> float:
    """The sums of a ball are off by no more than what it records allows; return by how much."""
    ball, _ = unpack_ball(unpack_arrays(run / NAME))
    ledger, rows = ball.magnitudes, count(dataset)
    active = [(row, n) for row, n in rows.items() if row[0] * row[1] * ball.centre[0] < 1.0]
    cost = sum(n * Fraction(OPTIONS.C) * Fraction(row[2]) for row, n in active)
    gradient = sum(n * Fraction(OPTIONS.C) * Fraction(row[2] * row[1]) * Fraction(row[0]) for row, n in active)
    off, lost = abs(Fraction(float(ball.sums.vectors[0])) - gradient), abs(Fraction(ball.sums.offsets) - cost)
    n = min(ledger.n_rows, ledger.additions) + 4.0
    assert off <= bound_rounding(n, float(ledger.sums[0]))
    assert off <= bound_rounding(n, ball.sums.sizes * float(ledger.largest[0]))
    assert lost <= bound_rounding(n, ball.sums.sizes)
    return float(off)


def find_far(dataset: Dataset) -> np.ndarray:
    return np.flatnonzero(read(dataset)[1] < 0)


def test_rows_that_left_count_in_the_rounding(tmp_path: Path) -> None:
    """Nearly all rows are deleted, relabelled or appended, in turn; few are left, whose sums are those of many."""
    path, number = tmp_path / "d.zarr", iter(range(9))
    dataset = write(path)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)

    def update(tol: float = OPTIONS.tol) -> Result:
        k = next(number)
        options = replace(OPTIONS, tol=tol)
        result = train_from(dataset, options, tmp_path / f"{k + 1}", start_from=tmp_path / f"{k}", keep_ball=True)
        require_certificate(dataset, result)
        return result

    dataset = delete_rows(path, find_far(dataset)[: FAR // 2])
    assert update().passes == 0
    delete_rows(path, find_far(dataset)[:5])
    relabelled = np.full((5, 1), 0.7, np.float32)
    dataset = ingest(relabelled, path, np.ones(5, int), sample_weight=np.ones(5), append=True)
    assert update().passes == 0
    dataset = delete_rows(path, find_far(dataset)[10:])
    assert update().passes == 0
    assert require_ledger(tmp_path / "3", dataset) > 0.0
    dataset = delete_rows(path, find_far(dataset)[:1])
    result = update(1e-6)
    assert result.status == "converged"
    assert result.passes > 0  # the sums of the ball are not exact enough for this gap


@pytest.mark.slow("trains many times")
def test_a_ball_that_does_not_count_its_additions_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of an earlier version: all rows are read, which is said."""
    path = tmp_path / "d.zarr"
    dataset = write(path)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    arrays = unpack_arrays(tmp_path / "0" / NAME)
    about = json.loads(str(arrays.pop("about"))) | {"format": 1}
    write_arrays(tmp_path / "0" / NAME, {"about": json.dumps(about), **arrays})
    dataset = delete_rows(path, find_far(dataset)[:10])
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        result = train_from(dataset, OPTIONS, start_from=tmp_path / "0")
    assert "All rows are read" in caplog.text
    assert "has no bound on the rounding" in caplog.text
    assert result.passes > 0
