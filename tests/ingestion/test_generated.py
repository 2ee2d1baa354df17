"""Generated datasets: the same values from the same seed, a truth to be found, the shape that was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.sparse_rows import SparseTruth
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.generated import BLOCK_BYTES, Truth, write_generated
from streamsvm.models.evaluate import evaluate
from streamsvm.numeric.rows import CsrRows
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError

DENSE = Truth(n_features=20)
SPARSE = SparseTruth(n_features=1000, row_items=12)


@pytest.fixture(scope="module", params=[DENSE, SPARSE], ids=["dense", "sparse"])
def truth(request: pytest.FixtureRequest) -> Truth:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def data(truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """More than one block of rows."""
    return write_generated(tmp_path_factory.mktemp("generated") / "rows.zarr", 110_000, truth)


def test_shape_and_counts(data: Dataset, truth: Truth) -> None:
    assert BLOCK_BYTES // truth.row_bytes < data.n_rows == 110_000
    assert data.n_features == truth.n_features
    assert data.is_sparse == truth.is_sparse
    assert data.nbytes == pytest.approx(data.n_rows * truth.row_bytes, rel=0.01)
    y = np.concatenate([rows.y for index in range(data.n_chunks) for rows in data.tiles(index)])
    assert data.class_counts is not None
    assert np.bincount(y).tolist() == data.class_counts.tolist()
    assert min(data.class_counts) > 0.45 * data.n_rows


def test_same_seed_same_bits(data: Dataset, truth: Truth, tmp_path: Path) -> None:
    again = write_generated(tmp_path / "again.zarr", data.n_rows, truth)
    assert again.fingerprint == data.fingerprint
    other = replace(truth, seed=1)
    assert write_generated(tmp_path / "other.zarr", data.n_rows, other).fingerprint != data.fingerprint


def test_the_truth_can_be_found_up_to_the_noise(data: Dataset, truth: Truth) -> None:
    result = train(data, TrainOptions(C=1.0 if truth.is_sparse else 0.01))
    assert 0.87 < evaluate(result.model, data)["accuracy"] < 1 - truth.noise + 0.01


def test_sparse_rows_look_like_text() -> None:
    n_rows = 5000
    rows = next(SPARSE.make_blocks(n_rows))
    assert isinstance(rows.X, CsrRows)
    lengths = np.diff(rows.X.indptr)
    assert (lengths.min(), lengths.max(), round(lengths.mean())) == (6, 18, 12)
    assert SPARSE.count_items(n_rows) == (lengths.sum(), lengths.max())
    row = np.repeat(np.arange(n_rows), lengths)
    assert np.all((np.diff(rows.X.indices) > 0) | (np.diff(row) > 0)), "columns increase within a row"
    assert rows.X.indices.min() >= 0
    assert rows.X.indices.max() < SPARSE.n_features
    np.testing.assert_allclose(np.bincount(row, rows.X.data.astype(float) ** 2), 1, rtol=1e-5)
    often = np.sort(np.bincount(rows.X.indices, minlength=SPARSE.n_features))[::-1]
    assert often[0] > 0.9 * n_rows
    assert np.median(often) < 0.02 * n_rows


@pytest.mark.parametrize(
    ("n_rows", "truth"), [(1, DENSE), (9, Truth(0)), (9, Truth(3, noise=0.5)), (9, SparseTruth(20, row_items=11))]
)
def test_shapes_without_sense_are_refused(n_rows: int, truth: Truth, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write_generated(tmp_path / "rows.zarr", n_rows, truth)
    assert not list(tmp_path.iterdir())
