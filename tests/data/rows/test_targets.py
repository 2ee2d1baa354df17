"""Targets of a regression in datasets: stored as they are, found everywhere rows are read, and damage to them found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.cli.info import describe, verify
from streamsvm.data.open import open_dataset
from streamsvm.data.rows.views import ChunkRange, HeldOut
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.ingest import MOST_CLASSES
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.features import make_features
from streamsvm.runs.train import train
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.forging import edit_manifest, forge

N = 500
NUMBERS = np.random.default_rng(0).standard_normal(N) * 10.0 ** np.random.default_rng(1).integers(-9, 9, N)
X = np.column_stack((np.arange(N), NUMBERS)).astype(np.float32)


@pytest.fixture
def stored(tmp_path: Path) -> Dataset:
    return ingest(X, tmp_path / "rows.zarr", NUMBERS, regression=True, chunk_bytes=800)


def test_targets_are_stored_as_they_are(stored: Dataset) -> None:
    assert stored.n_chunks > 4
    assert stored.has_targets
    assert stored.classes is None
    for rows in map(stored.read, range(stored.n_chunks)):
        np.testing.assert_array_equal(rows.target, NUMBERS[np.asarray(rows.X)[:, 0].astype(int)])
    column = stored.column("target")
    taken = stored.take([7, 3, 499])
    assert column is not None
    np.testing.assert_array_equal(taken.target, column[[7, 3, 499]])
    assert describe(stored)["classes"] is None
    assert verify(stored)["verified_rows"] == N
    np.testing.assert_array_equal(ChunkRange(stored, 0, 2).column("target"), column[: stored.chunk_starts[2]])
    assert HeldOut(stored, np.arange(N) > 9).has_targets


def test_targets_in_files(tmp_path: Path) -> None:
    """The numbers of CSV are those that Python reads; those of svmlight text may differ in their last bit."""
    text = "".join(f"{number!r},{i}\n" for i, number in enumerate(NUMBERS.tolist()))
    (tmp_path / "rows.csv").write_text("price,a\n" + text)
    (tmp_path / "rows.svm").write_text("".join(f"{t!r} 1:{i + 1}\n" for i, t in enumerate(NUMBERS.tolist())))
    for name, label in (("rows.csv", "price"), ("rows.svm", None)):
        dataset = ingest(tmp_path / name, tmp_path / f"{name}.zarr", label=label, regression=True, shuffle=None)
        found = dataset.column("target")
        assert found is not None
        np.testing.assert_allclose(found, NUMBERS, rtol=0 if label else 3e-16)


def test_what_has_no_targets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("label,a\nhigh,1\nlow,2\n")
    with pytest.raises(InputError, match="the label 'high' is text; a target must be a number"):
        ingest(tmp_path / "rows.csv", tmp_path / "a.zarr", regression=True)
    with pytest.raises(InputError, match="a regression needs a number as the label of each row"):
        ingest(X, tmp_path / "b.zarr", regression=True)
    with pytest.raises(InputError, match=r"the largest target is 1\.0e\+101; at most 1e\+100 is supported"):
        ingest(X, tmp_path / "c.zarr", np.full(N, 1e101), regression=True)
    with pytest.raises(InputError, match="nan"):
        ingest(X, tmp_path / "d.zarr", np.full(N, np.nan), regression=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv"]


def test_too_many_labels_name_the_option(tmp_path: Path) -> None:
    numbers = np.arange(MOST_CLASSES + 1) / 7
    with pytest.raises(InputError, match=r"at most .* labels are possible; use --regression"):
        ingest(numbers[:, None], tmp_path / "a.zarr", numbers)
    assert ingest(numbers[:, None], tmp_path / "b.zarr", numbers, regression=True).has_targets


def test_targets_are_no_classes_or_ranks(stored: Dataset) -> None:
    for task in ("classify", "rank", "roc-area"):
        with pytest.raises(InputError, match="its labels are numbers to predict: use --task regress"):
            train(stored, TrainOptions(task=task))


def test_damaged_and_forged_targets(stored: Dataset) -> None:
    path = Path(stored.path)
    file = forge(path, "target", 3, np.nan)
    with pytest.raises(IntegrityError, match="a target is infinite or not a number"):
        verify(open_dataset(path))
    file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    with pytest.raises(IntegrityError, match="target"):
        verify(open_dataset(path))
    edit_manifest(path, lambda meta: meta["arrays"]["target"].update(dtype="float32"))
    with pytest.raises(IntegrityError, match=r"target is not float64 of shape \[500\]"):
        open_dataset(path)


def test_targets_of_a_map(stored: Dataset, tmp_path: Path) -> None:
    options = TrainOptions(kernel="rbf", gamma=0.1)
    made = make_features(stored, tmp_path / "features.zarr", FeatureOptions("cholesky", 4, chunk_bytes=800), options)
    np.testing.assert_array_equal(made.dataset.column("target"), stored.column("target"))
    found = train(made.dataset, TrainOptions(task="regress", C=0.1))
    assert found.status == "converged"


def test_weights_of_rows_with_targets(tmp_path: Path) -> None:
    """A row of weight 2 counts as two rows, and the sum of the costs is checked."""
    weight = np.random.default_rng(3).integers(0, 3, N).astype(np.float64)
    repeated = np.repeat(np.arange(N), weight.astype(int))
    rows = np.random.default_rng(4).standard_normal((N, 3)).astype(np.float32)
    targets = rows @ np.array([1.0, -1.0, 2.0]) + np.random.default_rng(5).standard_normal(N)
    weighted = ingest(rows, tmp_path / "a.zarr", targets, sample_weight=weight, regression=True)
    plain = ingest(rows[repeated], tmp_path / "b.zarr", targets[repeated], regression=True)
    options = TrainOptions(task="regress", tol=1e-6)
    one, other = train(weighted, options), train(plain, options)
    assert one.objective == pytest.approx(other.objective, rel=2e-6)
    with pytest.raises(InputError, match="sum to"):
        train(weighted, TrainOptions(task="regress", C=1e99))
