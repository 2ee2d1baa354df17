"""One rule for missing labels: a label is missing where a cell of numbers is, unless --text names its column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, orc

import streamsvm
from streamsvm.cli.main import main
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import load
from streamsvm.models.predict import predict
from streamsvm.system.errors import InputError
from tests.data.sources.test_csv_text import give_stdin

MISSING = ["?", "NA", "N/A", "n/a", "#N/A", "<NA>", "#NA", "NULL", "null", "None", "NaN", "nan", "-nan", "-NaN"]
WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "parquet": lambda frame, path: frame.to_parquet(path),
    "feather": lambda frame, path: feather.write_feather(frame, str(path)),
    "orc": lambda frame, path: orc.write_table(pa.Table.from_pandas(frame), path),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}
PLACES = {"csv": "rows.csv:4:2: column y", "tsv": "rows.tsv:4:2: column y", "jsonl": "rows.jsonl: line 3, column y"}


def write_rows(folder: Path, kind: str, labels: list[Any]) -> Path:
    """Write a feature and labels in a format."""
    path = folder / f"rows.{kind}"
    WRITERS[kind](pd.DataFrame({"a": [float(i) for i in range(len(labels))], "y": labels}), path)
    return path


@pytest.mark.parametrize("word", MISSING)
@pytest.mark.parametrize("others", [["yes", "no", "yes"], ["1", "0", "1"]])
@pytest.mark.parametrize("how", [{}, {"missing": "zero"}])
def test_a_missing_label_is_refused(tmp_path: Path, word: str, others: list[str], how: dict[str, Any]) -> None:
    """Among texts and among numbers, by the parser of numbers and by the encoder, with the option that keeps it."""
    path = write_rows(tmp_path, "csv", [*others, word, "no" if "no" in others else "0"])
    path.write_text(path.read_text().replace('""', word))  # pandas writes none of these words for itself
    with pytest.raises(InputError) as caught:
        streamsvm.ingest(path, tmp_path / "t.zarr", **how)
    assert str(caught.value).startswith(f"{path}:5:2: column y: label missing: {word}; training rows need labels")
    assert f"if {word} is a class, ingest --text COLUMN keeps it" in str(caught.value)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("how", [{}, {"missing": "zero"}])
def test_every_format_has_the_rule(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    """And `text` is the way to a class of that name, by which the empty cell alone is missing."""
    path, place = (
        write_rows(tmp_path, kind, ["yes", "no", "NA", "no"]),
        PLACES.get(kind, ": row 3, column y"),
    )
    with pytest.raises(InputError, match=rf"{place}: label missing: NA; .* --text COLUMN keeps it"):
        streamsvm.ingest(path, tmp_path / "t.zarr", **how)
    made = streamsvm.ingest(path, tmp_path / "t.zarr", text="y", **how)
    assert made.classes is not None
    assert made.classes.tolist() == ["NA", "no", "yes"]
    path = write_rows(tmp_path, kind, ["yes", "NA", "", "no"])
    with pytest.raises(InputError, match=rf"{place}: label missing"):
        streamsvm.ingest(path, tmp_path / "t.zarr", text="y", overwrite=True, **how)


def test_a_frame_has_the_rule_and_values_beside_it_have_not(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2, 3], "y": ["yes", "NA", "no"]})
    with pytest.raises(InputError, match=r"X: row 2, column y: label missing: NA"):
        streamsvm.ingest(frame, tmp_path / "t.zarr", label="y")
    rows: list[tuple[Any, dict[str, Any]]] = [(frame, {"label": "y", "text": ["y"]})]
    rows += [(frame[["a"]], {"y": frame["y"], **how}) for how in ({}, {"missing": "zero"})]
    for k, (source, how) in enumerate(rows):
        made = streamsvm.ingest(source, tmp_path / f"{k}.zarr", **how)
        assert made.classes is not None
        assert made.classes.tolist() == ["NA", "no", "yes"]


def test_standard_input_and_packed_text_have_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_stdin(monkeypatch, b"a,y\n1,1\n2,?\n3,0\n")
    assert main(["ingest", "-", str(tmp_path / "t.zarr"), "--format", "csv"]) == 2
    assert "<stdin>:3:2: column y: label missing: ?" in capsys.readouterr().err
    write_rows(tmp_path, "csv", ["1", "?", "0"]).rename(tmp_path / "rows.txt")
    path = tmp_path / "rows.csv.gz"
    pd.read_csv(tmp_path / "rows.txt", keep_default_na=False).to_csv(path, index=False)
    assert main(["ingest", str(path), str(tmp_path / "t.zarr")]) == 2
    assert f"{path}:3:2: column y: label missing: ?" in capsys.readouterr().err


@pytest.mark.parametrize("how", [{}, {"missing": "zero"}])
@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_target_that_is_missing_or_no_number_is_named(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    place = {"csv": "rows.csv:3:2"}.get(kind, r"rows\..*: (row|line) 2")
    for word, reason in (
        ("?", r"label missing: \?; training rows need labels: remove this row, .* label it$"),
        ("1,200.5", "the label '1,200.5' is text; a target must be a number; these seem to be numbers with extra"),
        ("high", "the label 'high' is text; a target must be a number$"),
    ):
        path = write_rows(tmp_path, kind, ["41.02", word, "127.5"])
        with pytest.raises(InputError, match=rf"{place},? ?.*column y: {reason}"):
            streamsvm.ingest(path, tmp_path / "t.zarr", regression=True, **how)
    path = write_rows(tmp_path, kind, ["41.02", "-1e2", "127.5"])
    assert streamsvm.ingest(path, tmp_path / "t.zarr", regression=True, **how).has_targets


def test_a_target_with_a_decimal_comma_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;y\n1,5;41,02\n2;7\n")
    made = streamsvm.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", regression=True, decimal=",", shuffle=None)
    assert made.has_targets


def test_a_target_among_values_is_named_by_its_row(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"X: the label 'high' of row 2 is text; a target must be a number"):
        streamsvm.ingest([[1.0], [2], [3]], tmp_path / "t.zarr", ["41.02", "high", "7"], regression=True)


def test_a_class_called_na_is_remembered(tmp_path: Path) -> None:
    """By `evaluate`, by rows that are appended, and by --like; `predict` reads no labels."""
    path = write_rows(tmp_path, "csv", ["NA", "007", "NA", "007"] * 5)
    made = streamsvm.ingest(path, tmp_path / "t.zarr", text="y")
    model = streamsvm.LinearSVC().fit(made).model_
    model.save(tmp_path / "m.npz")
    found = evaluate(load(tmp_path / "m.npz"), path)
    assert (found["n_rows"], found["unknown_labels"], [each["rows"] for each in found["classes"].values()]) == (
        20,
        0,
        [10, 10],
    )
    assert streamsvm.ingest(path, tmp_path / "t.zarr", append=True).n_rows == 40
    again = streamsvm.ingest(path, tmp_path / "u.zarr", like=tmp_path / "t.zarr").classes
    assert again is not None
    assert again.tolist() == ["007", "NA"]


def test_rows_to_predict_need_no_labels(tmp_path: Path) -> None:
    made = streamsvm.ingest(write_rows(tmp_path, "csv", ["u", "v"] * 5), tmp_path / "t.zarr")
    model = streamsvm.LinearSVC().fit(made).model_
    for k, labels in enumerate((["?"] * 4, ["u", "", "v", "NA"], [""] * 4)):
        assert predict(model, write_rows(tmp_path, "csv", labels), tmp_path / f"{k}.csv") == 4
        assert len(streamsvm.LinearSVC().fit(made).predict(tmp_path / "rows.csv")) == 4


def test_the_label_has_no_other_kind(tmp_path: Path) -> None:
    path = write_rows(tmp_path, "csv", ["1", "2"])
    for how in ({"date": "y"}, {"number": ["y"]}, {"text": "2", "regression": True}):
        with pytest.raises(InputError, match=r"--\w+ names the labels, column '.': use --text "):
            streamsvm.ingest(path, tmp_path / "t.zarr", **how)
