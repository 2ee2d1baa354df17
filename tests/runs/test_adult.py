"""Adult, as it was published: certified in few passes, and by the algorithm of the paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.runs.test_train import proved


@pytest.mark.data
def test_adult_is_certified_in_few_passes(a9a: Dataset, data_folder: Path, tmp_path: Path) -> None:
    """Optimum and accuracy as LIBLINEAR finds them; the objective is recomputed row by row."""
    result = train(a9a, TrainOptions(C=0.05))
    assert result.status == "converged"
    assert result.objective - proved(result) <= 1e-3 * result.objective
    assert result.passes <= 30
    assert result.objective == pytest.approx(577.516, rel=1e-3)
    assert proved(result) <= 577.516 * (1 + 1e-6)
    model, total = result.model, 0.0
    for index in range(a9a.n_chunks):
        rows = a9a.read(index)
        assert rows.y is not None
        total += float(np.maximum(0, 1 - np.where(rows.y == 1, 1, -1) * model.decide(rows.X)).sum())
    recomputed = 0.5 * (model.coef @ model.coef + model.intercept**2) + 0.05 * total
    assert result.objective == pytest.approx(recomputed, rel=1e-9)
    test = ingest(data_folder / "adult" / "a9a.t.xz", tmp_path / "test.zarr")
    assert evaluate(model, test)["accuracy"] == pytest.approx(0.850, abs=0.001)


@pytest.mark.data
def test_adult_by_algorithm_1_as_published(a9a: Dataset) -> None:
    """To the same gap it needs some 190 passes, line search at most 30."""
    result = train(a9a, TrainOptions(C=0.05, options={"acceleration": "none"}))
    assert result.status == "converged"
    assert 150 <= result.passes <= 250
    assert result.objective == pytest.approx(577.516, rel=1e-3)
