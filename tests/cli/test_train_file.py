"""`train FILE` and `warm-up`: what is made on the way is made once, and told."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from streamsvm.data.open import open_dataset
from streamsvm.data.sources.parsing import PARSERS
from streamsvm.numeric import compilation
from streamsvm.solvers.registry import SOLVERS
from streamsvm.solvers.set_up import FEATURE_MAPS
from tests.commands import Run, data, run, text  # noqa: F401

WRITTEN, KEPT = "writing its rows to", "from an earlier training"


@pytest.fixture
def rows(text: Path, tmp_path: Path) -> Path:  # noqa: F811
    path = tmp_path / "rows.svm"
    path.write_bytes(text.read_bytes())
    return path


def test_a_file_is_ingested_once(run: Run, rows: Path, data: Path, tmp_path: Path) -> None:  # noqa: F811
    """The model is that of `ingest` and `train`; the dataset beside the file serves until the file changes."""
    cache = tmp_path / "rows.svm.cache.zarr"
    first = run("train", rows, "--out", tmp_path / "run", "--json")
    assert (first.code, WRITTEN in first.err) == (0, True)
    whole = run("train", data, "--out", tmp_path / "whole", "--json")
    assert first.result["objective"] == pytest.approx(whole.result["objective"], rel=2e-3)
    before = open_dataset(cache).fingerprint
    again = run("tune", rows, "--C", "1", "--folds", "2", "--out", tmp_path / "tuned")
    assert (again.code, KEPT in again.err, WRITTEN in again.err) == (0, True, False)
    assert open_dataset(cache).fingerprint == before
    with rows.open("a") as file:
        file.write("1 1:5\n")
    changed = run("train", rows, "--out", tmp_path / "run", "--overwrite", "--json")
    assert (changed.code, WRITTEN in changed.err, changed.result["n_rows"]) == (0, True, 301)
    os.utime(rows, ns=(1, 1))
    assert WRITTEN in run("train", rows, "--out", tmp_path / "run", "--overwrite").err


def test_other_labels_are_read_anew(run: Run, rows: Path, tmp_path: Path) -> None:  # noqa: F811
    assert run("train", rows, "--out", tmp_path / "run").code == 0
    ran = run("train", rows, "--task", "regress", "--out", tmp_path / "numbers")
    assert (ran.code, WRITTEN in ran.err) == (0, True)
    assert open_dataset(tmp_path / "rows.svm.cache.zarr").has_targets


def test_what_cannot_be_read_so_tells_the_commands(run: Run, rows: Path, tmp_path: Path) -> None:  # noqa: F811
    table = tmp_path / "t.csv"
    table.write_text("y,a\n1,x\n2,z\n")
    commands = "DATA.zarr`, whose options determine how the rows are read, and then `streamsvm train DATA.zarr`"
    ran = run("train", table, "--out", tmp_path / "run")
    assert ran.code == 2
    assert f"{table}:2:2: column a: not a number: 'x'" in ran.err
    assert f"run `streamsvm ingest {table} {commands}" in ran.err
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.csv").write_text("y,a\n1,2\n2,3\n")
    for named, options in ((tmp_path / "parts", ["--out", tmp_path / "run"]), (rows, ["--plan"])):
        ran = run("train", named, *options)
        assert (ran.code, f"run `streamsvm ingest {named} {commands}" in ran.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "rows.svm", "t.csv"]


def test_rows_that_were_appended_or_deleted_are_not_the_file(run: Run, rows: Path, tmp_path: Path) -> None:  # noqa: F811
    cache = tmp_path / "rows.svm.cache.zarr"
    assert run("train", rows, "--out", tmp_path / "run").code == 0
    assert run("delete", cache, "--rows", "0-9").code == 0
    ran = run("train", rows, "--out", tmp_path / "again")
    assert (ran.code, f"{cache}: rows were appended or deleted" in ran.err) == (2, True)
    assert run("train", cache, "--out", tmp_path / "again").code == 0


def test_kernels_that_would_not_be_kept_are_not_compiled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    folder = tempfile.gettempdir() + "/streamsvm-kernels-abc/numeric"
    monkeypatch.setattr(compilation, "CACHE_FOLDER", folder)
    ran = run("warm-up")
    assert (ran.code, "NUMBA_CACHE_DIR" in ran.err, ran.out) == (2, True, "")


def test_a_dataset_of_the_user_is_left_alone(run: Run, rows: Path, tmp_path: Path) -> None:  # noqa: F811
    cache = tmp_path / "rows.svm.cache.zarr"
    assert run("ingest", rows, cache).code == 0
    before = open_dataset(cache).fingerprint
    ran = run("train", rows, "--out", tmp_path / "run")
    assert (ran.code, "another command wrote this dataset" in ran.err) == (2, True)
    assert open_dataset(cache).fingerprint == before


def test_warm_up_compiles_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    compiled: list[str] = []
    monkeypatch.setattr("streamsvm.data.sources.parsing.compile_parser", compiled.append)
    monkeypatch.setattr("streamsvm.solvers.set_up.compile_all", lambda groups, _: compiled.extend(groups))
    monkeypatch.setattr("streamsvm.models.score_rows.compile_all_scores", lambda: compiled.append("scores"))
    monkeypatch.setattr("streamsvm.numeric.stored_types.load_widening", compiled.append)
    ran = run("warm-up")
    wanted = {group for method in SOLVERS for group in method.groups}
    assert set(compiled) == {*wanted, *PARSERS, FEATURE_MAPS, "scores", "float16"}
    assert (ran.code, f"{len(compiled)} groups of kernels compiled and kept in" in ran.out) == (0, True)


def test_warm_up_compiles_what_is_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    compiled: list[Any] = []
    monkeypatch.setattr("streamsvm.solvers.set_up.compile_all", lambda *given: compiled.append(given))
    assert run("warm-up", "smo", "newton", "--dense").code == 0
    wanted = {group for method in SOLVERS if method.name in ("smo", "newton") for group in method.groups}
    assert compiled == [((group,), False) for group in sorted(wanted)]
    ran = run("warm-up", "smoo")
    assert (ran.code, "'smoo': choose from cutting-plane, newton, smo" in ran.err) == (2, True)


def test_a_file_that_is_not_read_is_refused_at_once(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """Before it is told that its rows are written."""
    (tmp_path / "t.xlsx").touch()
    ran = run("train", tmp_path / "t.xlsx", "--out", tmp_path / "run")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "t.xlsx: .xlsx files are not read: save the table as CSV or Parquet" in ran.err


def test_what_is_wrong_with_a_file_is_told_in_one_line(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """The hint at `ingest` comes only where an option of it would help, and no line tells of rows that are not read."""
    (tmp_path / "empty.csv").touch()
    (tmp_path / "text.csv").write_text("a,b,label\n1,x,0\n2,y,1\n")
    (tmp_path / "names --short.csv").write_text("a,b,label\n1,1e99,0\n2,2,1\n")
    (tmp_path / "lists.svm").write_text("1,3 1:2\n2 1:3\n")
    (tmp_path / "index.csv").write_text(",a,label\n1,x,0\n2,y,1\n")
    for name, fault, hint in (
        ("empty.csv", "no rows", 0),
        ("none.csv", "no such file", 0),
        ("names --short.csv", "overflows float32", 0),
        ("text.csv", "not a number: 'x'", 1),
        ("lists.svm", "list of labels", 1),
        ("index.csv", "has no name", 1),
    ):
        ran = run("train", tmp_path / name, "--out", tmp_path / "run")
        assert (ran.code, ran.err.count("\n"), ran.err.count("streamsvm ingest")) == (2, 1, hint)
        assert fault in ran.err
