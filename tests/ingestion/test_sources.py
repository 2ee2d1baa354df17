"""The files that a user names: patterns, folders, and frames in memory whose columns are encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamsvm
from streamsvm import LinearSVC
from streamsvm.ingestion.readers import join_names, list_files
from streamsvm.models.model import load
from streamsvm.models.score import score
from streamsvm.system.errors import InputError
from tests.data.sources.test_encoded_tables import KEEP, N, make_frame, read_all

GIVEN = {"index": "id", "missing": "indicator", "one_hot": "auto"}


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A folder with three parts of a table, and files that are no rows."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(N), 3)):
        make_frame().iloc[rows].to_csv(folder / f"part-{k}.csv", index=False)
    (folder / "_SUCCESS.csv").write_text("")
    (folder / ".part-0.csv").write_text("")
    (folder / "notes.txt").write_text("no rows")
    return folder


def test_a_folder_and_a_pattern_are_the_files_in_their_order(parts: Path, tmp_path: Path) -> None:
    files = [parts / f"part-{k}.csv" for k in range(3)]
    assert list_files([parts]) == files
    assert list(map(Path, list_files([f"{parts}/part-[12].csv", "-"]))) == [*files[1:], Path("-")]
    wanted = read_all(streamsvm.ingest(files, tmp_path / "files.zarr", **GIVEN, **KEEP))
    for name in (parts, f"{parts}/*part-*.csv"):
        found = read_all(streamsvm.ingest(name, tmp_path / "t.zarr", overwrite=True, **GIVEN, **KEEP))
        assert np.array_equal(found, wanted)


def test_a_model_takes_a_folder(parts: Path, tmp_path: Path) -> None:
    LinearSVC().fit(streamsvm.ingest(parts, tmp_path / "t.zarr", **GIVEN, **KEEP)).save(tmp_path / "m.npz")
    model = load(tmp_path / "m.npz")
    whole = tmp_path / "whole.csv"
    make_frame().to_csv(whole, index=False)
    found, wanted = (np.concatenate([part.scores for part in score(model, path)]) for path in (parts, whole))
    assert np.array_equal(found, wanted)


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "rows[1].csv"
    path.write_text("")
    assert list_files([path]) == [path]


def test_what_names_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\*: no file matches"):
        list_files([tmp_path / "nothing*"])
    with pytest.raises(InputError, match="contains no files with known endings"):
        list_files([tmp_path])
    assert join_names([str(k) for k in range(100)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 92 more"


def test_frames_are_encoded_as_files_are(tmp_path: Path) -> None:
    frame, new = make_frame(), make_frame(1)
    frame.to_csv(tmp_path / "t.csv", index=False)
    wanted = streamsvm.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", **GIVEN, **KEEP)
    y = frame["income"]
    bare = frame.drop(columns="income").assign(work=frame["work"].astype("category"))
    for X, labels, label in (
        (frame, None, "income"),
        (pa.Table.from_pandas(frame, preserve_index=False), None, "income"),
        (bare, y, None),
        (bare, y.to_numpy(), None),
    ):
        given = {**GIVEN, "label": label, "shuffle": None, "overwrite": True}
        dataset = streamsvm.ingest(X, tmp_path / "f.zarr", labels, **given)
        assert np.array_equal(read_all(dataset), read_all(wanted))
        assert dataset.encoding == wanted.encoding
    model = LinearSVC().fit(wanted)
    new.to_csv(tmp_path / "new.csv", index=False)
    scores = model.decision_function(tmp_path / "new.csv")
    assert np.array_equal(model.decision_function(new), scores)
    assert np.array_equal(streamsvm.load(save(model, tmp_path)).decision_function(pa.table(new)), scores)
    assert 0 <= model.score(new, new["income"]) <= 1


def save(model: LinearSVC, folder: Path) -> Path:
    model.save(folder / "m.npz")
    return folder / "m.npz"


def test_frames_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    frame = make_frame()
    with pytest.raises(InputError, match=r"row 1, column id: not a number: 'row 0'; 4 columns are of text: id,work"):
        streamsvm.ingest(frame, tmp_path / "t.zarr", frame["income"])
    with pytest.raises(InputError, match=r"row 1, column 1 'id' .*'row 0'; 4 columns are of text: id,work"):
        streamsvm.ingest(frame.drop(columns="joined"), tmp_path / "t.zarr", frame["income"])
    with pytest.raises(InputError, match="label: 3 rows, but X has 300"):
        streamsvm.ingest(frame, tmp_path / "t.zarr", frame["income"][:3], missing="mean")
    with pytest.raises(InputError, match="not all column names are strings"):
        streamsvm.ingest(pd.DataFrame({0: [1.0, 2]}), tmp_path / "t.zarr", [0, 1], missing="mean")
    with pytest.raises(InputError, match="column a: its values are not of one type"):
        streamsvm.ingest(pd.DataFrame({"a": ["x", 2]}), tmp_path / "t.zarr", [0, 1], missing="mean")
    with pytest.raises(InputError, match="row 2, column work: missing value; ingest --missing"):
        streamsvm.ingest(pd.DataFrame({"work": ["a", None]}), tmp_path / "t.zarr", [0, 1], one_hot="auto")


def test_columns_of_a_dask_frame_have_roles(tmp_path: Path) -> None:
    """Its partitions are read one after another; the rows are those of the pandas frame."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=90), "c": random.choice(["u", "v", "w"], 90)})
    frame["y"], frame["w"] = np.where(frame.a > 0, "p", "q"), random.uniform(1, 2, 90)
    options: dict[str, Any] = {"label": "y", "sample_weight": "w", "one_hot": "auto", "shuffle": None}
    lazy = dd.from_pandas(frame, npartitions=4)
    one, other = (streamsvm.ingest(x, tmp_path / f"{k}.zarr", **options) for k, x in enumerate((frame, lazy)))
    assert one.feature_names == other.feature_names == ("a", "c=u", "c=v", "c=w")
    for name in ("y", "sample_weight"):
        np.testing.assert_array_equal(one.column(name), other.column(name))
    np.testing.assert_array_equal(one.read(0).X, other.read(0).X)
    with pytest.raises(InputError, match="X is a Dask frame with options for columns: name its columns, such as label"):
        streamsvm.ingest(lazy, tmp_path / "two.zarr", lazy.y, one_hot="auto")
