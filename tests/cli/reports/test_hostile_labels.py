"""Labels that are texts come from others: in tables, on pages and on terminals they stay texts, and labels."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import csv
import io
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import ingest
from streamsvm.cli.output import show_text
from streamsvm.cli.reports.report import Run as RunFiles
from streamsvm.cli.reports.report import make_page
from streamsvm.data.tables.written import NUMBER, strip_guard, write_cell
from tests.commands import Run, run  # noqa: F401

FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+cmd",
    "-2+3",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    "=1\n2",
    " =1",
    "\uff1d1",
    '="a,b"',
]
HARMLESS = [
    "yes",
    "no, never",
    'say "no"',
    "two\nlines",
    "two\rlines",
    "<script>alert(1)</script>",
    "'quoted'",
    "a'b",
    "é",
]
NUMBERS = ["-1", "+1", "1", "-1.5", "1e-3", "-.5", "+7.", "0"]


def read_cells(content: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content, newline="")))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_guarded(text: str) -> None:
    ((cell,),) = read_cells(write_cell(text))
    assert cell == "'" + text
    assert strip_guard(cell) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_are_as_they_were(text: str) -> None:
    assert read_cells(write_cell(text)) == [[text]]


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_are_as_they_were(text: str) -> None:
    assert write_cell(text) == text
    assert NUMBER.fullmatch(text)


@pytest.mark.parametrize(("value", "cell"), [(-1, "-1"), (-1.0, "-1.0"), (1e-300, "1e-300"), (float("nan"), "nan")])
def test_values_that_are_numbers(value: float, cell: str) -> None:
    assert write_cell(value) == cell


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00")), min_size=1))
def test_any_text_is_one_cell_and_no_formula(texts: list[str]) -> None:
    content = ",".join(map(write_cell, texts)) + "\n"
    (cells,) = read_cells(content) if content.strip("\n") else [[""]]
    for cell, text in zip(cells, texts, strict=True):
        assert cell in (text, "'" + text)
        assert not cell.startswith(("=", "@", "\t", "\r", "\n"))
        assert not cell.startswith(("+", "-")) or NUMBER.fullmatch(cell)


def write_rows(path: Path, names: list[str]) -> tuple[list[str], Path]:
    """Rows of as many classes, far apart, as a table with the names in its last column."""
    random = np.random.default_rng(0)
    centres = 10 * np.eye(len(names))
    labels = [name for name in names for _ in range(20)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{k}" for k in range(len(names))), "label"])
        for label in labels:
            writer.writerow([*(centres[names.index(label)] + random.normal(size=len(names))).round(3), label])
    return labels, path


@pytest.mark.parametrize(
    "names",
    [["=cmd|' /C calc'!A0", "-1+1"], ["=1", "+x", "@y", "no, never", 'say "no"', "<script>", "-1", "two\nlines"]],
)
def test_from_predict_to_evaluate(run: Run, tmp_path: Path, names: list[str]) -> None:
    """Predictions are taken for labels again, guarded as they are; every class is found."""
    labels, rows = write_rows(tmp_path / "rows.csv", names)
    table = read_cells(rows.read_bytes().decode())[1:]
    X = np.array([line[:-1] for line in table], np.float32)
    ingest(X, tmp_path / "d.zarr", np.array(labels))
    assert run("train", tmp_path / "d.zarr", "--out", tmp_path / "run").code == 0
    assert run("predict", tmp_path / "run", tmp_path / "d.zarr", "--out", tmp_path / "p.csv").code == 0
    header, *lines = read_cells((tmp_path / "p.csv").read_bytes().decode())
    assert header == (
        ["label", "score"] if len(names) == 2 else ["label", *(f"score {name}" for name in sorted(names))]
    )
    assert {strip_guard(line[0]) for line in lines} == set(names)
    found = run("evaluate", tmp_path / "run", rows, "--label", "label", "--json").result
    assert (found["unknown_labels"], found["accuracy"]) == (0, 1.0)
    relabelled = tmp_path / "again.csv"
    assert run("predict", tmp_path / "run", rows, "--label", "label", "--out", tmp_path / "q.csv").code == 0
    said = [line[0] for line in read_cells((tmp_path / "q.csv").read_bytes().decode())[1:]]
    with relabelled.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["f" + str(k) for k in range(len(names))] + ["label"],
                *([*line[:-1], label] for line, label in zip(table, said, strict=True)),
            ]
        )
    found = run("evaluate", tmp_path / "run", relabelled, "--label", "label", "--json").result
    assert (found["unknown_labels"], found["accuracy"]) == (0, 1.0)


def test_labels_that_are_numbers_stay_numbers(run: Run, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    ingest(X, tmp_path / "d.zarr", np.where(X[:, 0] > 0, 1, -1))
    assert run("train", tmp_path / "d.zarr", "--out", tmp_path / "run").code == 0
    assert run("predict", tmp_path / "run", tmp_path / "d.zarr", "--out", tmp_path / "p.csv").code == 0
    lines = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert {line.split(",")[0] for line in lines} == {"-1", "1"}


def test_a_terminal_is_told_texts_and_not_commands(run: Run, tmp_path: Path) -> None:
    names = ["\x1b[2J\x1b]0;title\x07", "fake\n  rows      9,999", "é"]
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    ingest(X, tmp_path / "d.zarr", np.array(names * 20))
    told = run("info", tmp_path / "d.zarr").out
    assert "\x1b" not in told
    assert "\\x1b[2J" in told
    assert not [line for line in told.splitlines() if line.startswith("  rows      9")]
    assert run("train", tmp_path / "d.zarr", "--out", tmp_path / "run").code == 0
    told = run("evaluate", tmp_path / "run", tmp_path / "d.zarr").out
    assert "\x1b" not in told
    assert "é" in told
    assert set(run("info", tmp_path / "d.zarr", "--json").result["classes"]) == set(names), (
        "JSON has escapes of its own"
    )
    assert show_text("a\u202eb") == "a\\u202eb"


def test_a_page_is_told_texts_and_not_tags() -> None:
    page = make_page([RunFiles("<script>x</script>", {"class_weight": {"<img src=x>": 2.0}, '"><b>': "a & b"}, [])])
    body = page.partition("</style>")[2]
    assert "<script" not in body
    assert "<img" not in body
    assert "<b>" not in body
    assert "<img src=x> 2" in unescape(body)
