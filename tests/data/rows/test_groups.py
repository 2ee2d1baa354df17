"""Groups of rows that belong together: read at every door, stored, and refused where they are none."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamsvm
from streamsvm import LinearSVC
from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.checks import to_groups
from streamsvm.data.tables.columns import Columns
from streamsvm.estimators.inputs import open_source
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.features import make_features
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.sources.test_anndata import CELLS, Make, make, make_rows  # noqa: F401

N = 60
NAMES = np.array([f"donor {i % 7}" for i in range(N)])
X, Y = np.arange(N, dtype=np.float32)[:, None] + 1, np.arange(N) % 2


def read_partition(dataset: Dataset) -> set[frozenset[int]]:
    """Return the sets of rows that share a group; rows are told by their only feature."""
    groups = dataset.column("groups")
    assert groups is not None
    rows = np.concatenate([np.asarray(dataset.read(k).X)[:, 0] for k in range(dataset.n_chunks)]).astype(int) - 1
    return {frozenset(rows[groups == group].tolist()) for group in groups}


WANTED = {frozenset(np.flatnonzero(name == NAMES).tolist()) for name in NAMES}


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "arrays", "frame"])
def test_texts_are_groups_at_every_door(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "label": Y, "donor": NAMES})
    path, out = tmp_path / f"rows.{kind}", tmp_path / "rows.zarr"
    columns = Columns(label="label", groups="donor")
    match kind:
        case "csv":
            frame.to_csv(path, index=False)
            dataset = ingest(path, out, columns=columns, chunk_bytes=64)
        case "parquet":
            frame.to_parquet(path)
            dataset = ingest(path, out, columns=columns, chunk_bytes=64)
        case "npz":
            np.savez(path, X=X, y=Y, groups=np.arange(N) % 7)
            dataset = ingest(path, out, chunk_bytes=64)
        case "arrays":
            dataset = ingest(X, out, Y, groups=NAMES, chunk_bytes=64)
        case _:
            dataset = ingest(frame[["a"]], out, frame["label"], groups=frame["donor"], chunk_bytes=64)
    assert dataset.n_chunks > 2
    assert read_partition(dataset) == WANTED


def test_numbers_and_times_keep_their_order(tmp_path: Path) -> None:
    days = np.datetime64("2026-01-01") + np.arange(N) // 10
    for name, values in (
        ("days", days),
        ("numbers", np.arange(N) // 10 - 3),
        ("texts", (np.arange(N) // 10).astype(str)),
    ):
        dataset = ingest(X, tmp_path / f"{name}.zarr", Y, groups=values, shuffle=None)
        groups = dataset.column("groups")
        assert groups is not None
        assert np.all(np.diff(groups) >= 0)
        assert len(np.unique(groups)) == 6


def test_a_text_is_the_same_group_beside_numbers(tmp_path: Path) -> None:
    """Blocks of CSV are parsed apart: what a cell means cannot depend on the cells beside it."""
    cells = ["7", "x7", "007", " 7", "x7", "8"] * 10
    (tmp_path / "rows.csv").write_text("a,label,g\n" + "".join(f"{i + 1},{i % 2},{c}\n" for i, c in enumerate(cells)))
    dataset = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", columns=Columns(groups="g"), shuffle=None)
    groups = dataset.column("groups")
    assert groups is not None
    assert groups[[0, 2, 3, 5]].tolist() == [7, 7, 7, 8]
    assert groups[1] == groups[4] < -(2**62)


def test_columns_of_files_are_named_and_values_are_refused(tmp_path: Path) -> None:
    """Once they were left out without a word, so that folds parted what belongs together."""
    (tmp_path / "rows.csv").write_text("a,label,g,w\n" + "".join(f"{i},{i % 2},{i // 10},2.5\n" for i in range(60)))
    dataset = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", groups="g", sample_weight="w", shuffle=None)
    groups, weights = dataset.column("groups"), dataset.column("sample_weight")
    assert groups is not None
    assert weights is not None
    assert groups.tolist() == [i // 10 for i in range(60)]
    assert set(weights.tolist()) == {2.5}
    assert dataset.feature_names == ("a",)
    with pytest.raises(InputError, match=r"groups: files take the name of a column.*groups='COLUMN'"):
        ingest(tmp_path / "rows.csv", tmp_path / "more.zarr", groups=np.arange(60))
    with pytest.raises(InputError, match=r"y: files take the name of a column.*label='COLUMN'"):
        ingest(tmp_path / "rows.csv", tmp_path / "more.zarr", np.arange(60))
    with pytest.raises(InputError, match="arrays take no options for columns"):
        ingest(np.ones((3, 1)), tmp_path / "more.zarr", [0, 1, 1], groups="g")


@pytest.mark.parametrize("kind", ["csv", "parquet", "strings", "objects", "frame", "memory"])
def test_texts_of_digits_are_the_groups_that_pandas_makes_of_them(kind: str, tmp_path: Path) -> None:
    """A column of text has the groups "7" and "007"; a CSV file has no types, and pandas reads both as 7."""
    cells = pd.Series(["7", "007", "8", "+8", "0", "-0"] * 10)
    frame = pd.DataFrame({"a": X[:, 0], "label": Y, "g": cells})
    path, out = tmp_path / f"rows.{kind}", tmp_path / "rows.zarr"
    theirs, columns = cells, Columns(label="label", groups="g")
    match kind:
        case "csv":
            frame.to_csv(path, index=False)
            theirs, dataset = pd.read_csv(path)["g"], ingest(path, out, columns=columns)
        case "parquet":
            frame.to_parquet(path)
            theirs, dataset = pd.read_parquet(path)["g"], ingest(path, out, columns=columns)
        case "strings":
            dataset = ingest(X, out, Y, groups=cells.to_numpy().astype(str))
        case "objects":
            dataset = ingest(X, out, Y, groups=cells.to_numpy().astype(object))
        case "frame":
            dataset = ingest(frame[["a"]], out, Y, groups=cells)
        case _:
            with open_source(LinearSVC(), X, Y, None, None, cells) as source:
                assert source.column("groups").tolist() == to_groups(cells.to_numpy(object), str).tolist()  # type: ignore[union-attr]
                assert len(np.unique(source.column("groups"))) == 6  # type: ignore[arg-type]
            return
    assert read_partition(dataset) == {frozenset(rows.tolist()) for rows in theirs.groupby(theirs).indices.values()}


def test_rows_of_a_group_are_deleted_by_its_own_text(tmp_path: Path) -> None:
    cells = np.array(["7", "007", "8"] * 20)
    ingest(X, tmp_path / "rows.zarr", Y, groups=cells, shuffle=None)
    left = streamsvm.delete(tmp_path / "rows.zarr", groups=["007"])
    assert left.n_rows == 40
    assert np.unique(left.column("groups")).tolist() == [7, 8]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (["a", "", "b"], "row 2 (counted from 1): the group is missing"),
        (["a", None, "b"], "row 2 (counted from 1): the group is missing"),
        ([1.0, 2.5, 3.0], "row 2 (counted from 1): a group must be text, a time, or a whole number"),
        ([1.0, 2.0, np.nan], "row 3 (counted from 1): the group is missing"),
        ([1, 2, -(2**62) - 1], "row 3 (counted from 1): a group must be text, a time, or a whole number"),
        (np.array(["2026-01-01", "NaT", "2026-01-02"], "M8[s]"), "row 2 (counted from 1): a group must be text"),
        (np.array(["2026-01-01", "3000-01-01", "NaT"], "M8[s]"), "row 2 (counted from 1): the group is a time beyond"),
        ([1, 2], "groups: has 2 rows, but X has 3"),
    ],
)
def test_what_is_no_group(values: Any, fault: str, tmp_path: Path) -> None:
    given = np.array(values, object) if isinstance(values, list) and None in values else values
    with pytest.raises(InputError) as caught:
        ingest(np.ones((3, 1)), tmp_path / "rows.zarr", [0, 1, 1], groups=given)
    assert fault in str(caught.value)


def test_a_missing_group_in_csv_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,label,g\n1,0,u\n2,1,\n3,0,v\n")
    with pytest.raises(InputError, match=r"rows\.csv:3:3: column g: the group is missing"):
        ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", columns=Columns(groups="g"))


def test_features_keep_the_groups(tmp_path: Path) -> None:
    dataset = ingest(np.column_stack((X, X**2)), tmp_path / "rows.zarr", Y, groups=NAMES)
    made = make_features(
        dataset, tmp_path / "features.zarr", FeatureOptions("nystrom", 5, 0), TrainOptions(kernel="rbf", gamma=0.1)
    )
    np.testing.assert_array_equal(made.dataset.column("groups"), dataset.column("groups"))


def test_a_column_of_obs_holds_the_groups(make: Make) -> None:
    donors = np.array(["u", "v", "w"])[CELLS % 3]
    path = make(make_rows(), label=CELLS % 2, donor=donors)
    groups = open_dataset(path, "label", "donor").column("groups")
    assert groups is not None
    assert {name: len(set(groups[donors == name].tolist())) for name in "uvw"} == {"u": 1, "v": 1, "w": 1}
    assert len(np.unique(groups)) == 3
    with pytest.raises(InputError, match="no column 'mouse' in obs"):
        open_dataset(path, "label", "mouse")


def test_a_dataset_has_its_own_groups(tmp_path: Path) -> None:
    ingest(X, tmp_path / "rows.zarr", Y)
    with pytest.raises(InputError, match="--groups has no effect on a dataset that ingest wrote"):
        open_dataset(tmp_path / "rows.zarr", groups="donor")


@pytest.mark.parametrize("appended", [False, True])
def test_damaged_groups_are_in_the_way_of_folds_only(appended: bool, tmp_path: Path) -> None:
    """A training reads no groups, so it reads fewer bytes, too; whatever reads them finds the damage."""
    path = tmp_path / "rows.zarr"
    whole = ingest(X, tmp_path / "plain.zarr", Y)
    dataset = ingest(X, path, Y, groups=NAMES)
    if appended:
        dataset = ingest(X, path, Y, groups=NAMES, append=True)
        whole = ingest(X, tmp_path / "plain.zarr", Y, append=True)
    (file,) = (path / ("appended/1" if appended else "") / "groups" / "c").iterdir()
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)
    options = TrainOptions(threads=1)
    assert dataset.nbytes == whole.nbytes
    assert train(dataset, options).model_sha256 == train(whole, options).model_sha256
    assert pickle.loads(pickle.dumps(dataset)).read(0).groups is None
    assert pickle.loads(pickle.dumps(dataset.read_groups())).reads_groups
    with pytest.raises(IntegrityError, match="groups"):
        tune(dataset, options, [1.0], folds=2)
    with pytest.raises(IntegrityError, match="groups"):
        verify(dataset)
    with pytest.raises(IntegrityError, match="groups"):
        make_features(dataset, tmp_path / "features.zarr", FeatureOptions("polynomial"), options)
