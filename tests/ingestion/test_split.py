"""A split: every row is in one of two datasets, classes evenly, groups and queries whole, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import streamsvm
from streamsvm.cli.main import main
from streamsvm.data.store.dataset import Dataset
from streamsvm.system.errors import InputError

RNG = np.random.default_rng(3)
X = RNG.normal(size=(503, 4)).astype(np.float32)
Y = np.repeat(["a", "b", "c", "d"], [350, 130, 20, 3])


def split(data: Dataset, folder: Path, share: float = 0.2, **options: Any) -> tuple[Dataset, Dataset]:
    return streamsvm.split(data.path, folder / "train.zarr", folder / "out.zarr", share, **options)


def read(*parts: Dataset) -> list[tuple[Any, ...]]:
    """All rows with their labels, sorted."""
    rows = []
    for part in parts:
        for k in range(part.n_chunks):
            chunk = part.read(k)
            X = chunk.X
            dense = X if isinstance(X, np.ndarray) else csr_array((X.data, X.indices, X.indptr), X.shape).toarray()
            labels = chunk.label_sets if chunk.y is None or part.classes is None else part.classes[chunk.y]
            labels = chunk.target if labels is None else labels
            rows += zip(map(bytes, dense), np.asarray(labels).tolist(), strict=True)
    return sorted(rows)


@pytest.mark.parametrize(
    ("rows", "y", "options"),
    [
        (X, Y, {"scale": "standard"}),
        (csr_array(X * (X > 1)), Y, {"layout": "sparse", "codec": "zstd"}),
        (np.round(20 * X), Y, {"dtype": "int8"}),
        (X, X[:, 0], {"regression": True}),
        (X, (X[:, :3] > 0).astype(int), {}),
    ],
    ids=["scaled", "sparse", "int8", "targets", "label sets"],
)
def test_every_row_is_in_one_part(rows: Any, y: Any, options: dict[str, Any], tmp_path: Path) -> None:
    whole = streamsvm.ingest(rows, tmp_path / "whole.zarr", y, chunk_bytes="500B", **options)
    train, out = split(whole, tmp_path)
    assert (train.n_rows, out.n_rows) == (402, 101)
    assert read(train, out) == read(whole)
    for part in (train, out):
        assert (part.dtype, part.is_sparse, part.is_shuffled) == (whole.dtype, whole.is_sparse, True)
        assert part.n_chunks > 1
        assert (part.scaling is None) == (whole.scaling is None)
        if part.scaling is not None and whole.scaling is not None:
            np.testing.assert_array_equal(part.scaling.factor, whole.scaling.factor)


def test_classes_are_split_evenly_and_the_last_row_of_a_class_is_kept(tmp_path: Path) -> None:
    whole = streamsvm.ingest(X, tmp_path / "whole.zarr", Y)
    train, out = split(whole, tmp_path)
    assert train.class_counts is not None
    assert out.class_counts is not None
    np.testing.assert_allclose(out.class_counts, [70, 26, 4, 0.6], atol=1)
    few, many = split(whole, tmp_path, 0.9, overwrite=True)
    assert few.classes is not None
    assert few.classes.tolist() == ["a", "b", "c", "d"]
    assert many.classes is not None
    assert many.classes.tolist() == ["a", "b", "c"]  # a class without a row is not listed


def test_the_seed_decides(tmp_path: Path) -> None:
    whole = streamsvm.ingest(X, tmp_path / "whole.zarr", Y)
    first, again, other = (split(whole, tmp_path, seed=seed, overwrite=True)[1].fingerprint for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("unit", ["groups", "qid"])
def test_groups_and_queries_are_split_whole(unit: str, tmp_path: Path) -> None:
    units = np.sort(RNG.integers(0, 40, 503))
    whole = streamsvm.ingest(X, tmp_path / "whole.zarr", (X[:, 0] > 0).astype(int), **{unit: units})
    parts = split(whole, tmp_path)
    kept, out = (set(np.asarray(part.column(unit)).tolist()) for part in parts)
    assert not kept & out
    assert parts[1].n_rows == pytest.approx(0.2 * 503, abs=20)


def test_a_model_of_one_part_measures_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = "\n".join(["kind,size,label", *(f"{'uv'[i % 2]},{i % 7},{i % 2}" for i in range(100))])
    (tmp_path / "rows.csv").write_text(table)
    names = [str(tmp_path / name) for name in ("rows.csv", "rows.zarr", "train.zarr", "out.zarr", "run")]
    assert main(["ingest", *names[:2], "--one-hot", "kind"]) == 0
    assert main(["split", *names[1:4], "--share", "0.25"]) == 0
    assert f"{names[2]}: 75 rows\n{names[3]}: 25 rows\n" in capsys.readouterr().out
    assert main(["train", names[2], "--eval", names[3], "--out", names[4]]) == 0
    for rows in (names[3], names[0]):
        assert main(["evaluate", names[4], rows]) == 0
        assert "accuracy 1.0000" in capsys.readouterr().out


def test_both_parts_remember_how_the_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.svm").write_text("1 0:1 1:2\n-1 0:2 1:1\n" * 10)
    whole = streamsvm.ingest(tmp_path / "rows.svm", tmp_path / "whole.zarr", base=0)
    assert [part.read_as for part in (whole, *split(whole, tmp_path))] == 3 * [{"base": 0}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 0.0}, "share is 0.0; it must be between 0 and 1"),
        ({"share": 0.0001}, "would hold out none of the 503 rows; choose"),
        ({"share": 0.9999}, "would hold out none of the 503 rows, because one row of each class is kept"),
        ({"seed": -1}, "seed is -1; a whole number of at least 0 is expected"),
        ({"held_out": "train.zarr"}, "is read by this command"),
        ({"train": "whole.zarr"}, "is read by this command"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    streamsvm.ingest(X, "whole.zarr", Y)
    with pytest.raises(InputError, match=message):
        streamsvm.split("whole.zarr", **{"train": "train.zarr", "held_out": "out.zarr"} | given)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.zarr"]


def test_groups_that_hold_a_whole_class(tmp_path: Path) -> None:
    groups = np.where(Y == "d", 1, np.arange(503) % 2 + 2)
    whole = streamsvm.ingest(X, tmp_path / "whole.zarr", Y, groups=groups)
    with pytest.raises(InputError, match="too few groups have the class 'd': choose another share or seed"):
        split(whole, tmp_path, 0.3, seed=1)


def write_table(folder: Path) -> Path:
    path = folder / "rows.csv"
    lines = [f"{k / 7:.4f},{k % 5},{'ab'[k % 2]}" for k in range(100)]
    path.write_text("\n".join(["u,v,label", *lines]) + "\n")
    return path


def test_ingest_holds_out_rows_as_split_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, place = write_table(tmp_path), tmp_path / "made" / "rows.zarr"
    assert main(["ingest", str(table), str(place), "--holdout", "0.2", "--scale", "standard"]) == 0
    assert f"held out  {place.with_name('rows-held-out.zarr')}: 20 rows" in capsys.readouterr().out
    whole = streamsvm.ingest(table, tmp_path / "whole.zarr", scale="standard")
    same = split(whole, tmp_path)
    made = streamsvm.open(place), streamsvm.open(place.with_name("rows-held-out.zarr"))
    for one, other in zip(made, same, strict=True):
        assert read(one) == read(other)
        assert one.meta["source"] == "rows.csv"
    assert {each.name for each in place.parent.iterdir()} == {"rows.zarr", "rows-held-out.zarr"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--holdout", "1"], "share is 1.0; it must be between 0 and 1"),
        (["--holdout", "0.001"], "rows.csv: a share of 0.001 would hold out none of the 100 rows"),
        (["--holdout", "0.5", "--one-hot", "none"], "column 'none', which --one-hot names"),
        (["--holdout", "0.5", "--append"], "--holdout cannot be combined with --append: ingest all rows"),
        (["--holdout", "0.5", "--memory", "1GB"], "--holdout cannot be combined with --memory"),
    ],
)
def test_nothing_is_left_of_a_refused_holdout(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, place = write_table(tmp_path), tmp_path / "made" / "rows.zarr"
    assert main(["ingest", str(table), str(place), *options]) == 2
    assert message in capsys.readouterr().err
    assert not place.parent.exists() or not list(place.parent.iterdir())


def test_ingest_does_not_replace_held_out_rows_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, place = write_table(tmp_path), tmp_path / "rows.zarr"
    streamsvm.ingest(table, tmp_path / "rows-held-out.zarr")
    command = ["ingest", str(table), str(place), "--holdout", "0.2"]
    assert main(command) == 2
    assert "rows-held-out.zarr: already exists" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert streamsvm.open(tmp_path / "rows-held-out.zarr").n_rows == 20
