"""Tables whose numbers, dates and names are written otherwise than the readers expect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamsvm
from streamsvm.data.tables.columns import Columns
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import load
from streamsvm.system.errors import InputError


def write_odd(path: Path, decimal: str, sep: str = ";") -> list[float]:
    """Write 50 rows with a column of numbers, one of which is missing, and one of text; return the numbers."""
    numbers = [-1.5 + i / 4 for i in range(50)]
    shown = [str(number).replace(".", decimal) for number in numbers]
    shown[7] = ""
    lines = [sep.join([text, "red" if i % 3 else "white", f"{i}{decimal}5"]) for i, text in enumerate(shown)]
    path.write_text("\n".join([sep.join(["x", "colour", "y"]), *lines]) + "\n")
    return numbers


def test_decimal_commas_are_the_numbers_that_they_stand_for(tmp_path: Path) -> None:
    """Of features and labels, at ingest and in what a model reads; without the option they are refused."""
    made = {}
    for name, decimal in (("comma", ","), ("point", ".")):
        numbers = write_odd(tmp_path / f"{name}.csv", decimal)
        given = {"one_hot": "colour", "missing": "mean", "regression": True, "decimal": decimal}
        made[name] = streamsvm.ingest(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", **given)
    commas, points = (made[name].read(0) for name in ("comma", "point"))
    np.testing.assert_array_equal(commas.X, points.X)
    np.testing.assert_array_equal(commas.target, points.target)
    numbers[7] = np.mean(numbers[:7] + numbers[8:])
    np.testing.assert_allclose(np.sort(commas.X[:, 0]), np.sort(numbers), rtol=1e-6)
    model = streamsvm.LinearSVR().fit(made["point"]).model_
    known = evaluate(model, tmp_path / "point.csv")
    assert evaluate(model, tmp_path / "comma.csv", Columns(decimal=",")) == known
    with pytest.raises(InputError, match=r"comma\.csv:2:1: column x: not a number: '-1,5'; .*--decimal ,"):
        evaluate(model, tmp_path / "comma.csv")
    with pytest.raises(InputError, match=r"point\.csv:2:1: column x: not a number: '-1\.5'"):
        streamsvm.ingest(tmp_path / "point.csv", tmp_path / "d.zarr", missing="mean", one_hot="colour", decimal=",")
    with pytest.raises(InputError, match="decimal ';': choose the comma or the point"):
        streamsvm.ingest(tmp_path / "point.csv", tmp_path / "d.zarr", decimal=";")


@pytest.mark.parametrize("column", ["x", "y", "weight"])
def test_beside_decimal_commas_a_point_is_refused(tmp_path: Path, column: str) -> None:
    """It may separate thousands, so it is no decimal mark in features, labels or sample weights."""
    path = tmp_path / "rows.csv"
    rows = [{"x": f"{i},5", "y": f"{i},25", "weight": "1"} for i in range(1, 5)]
    rows[2][column] = "1.234"
    path.write_text("\n".join(["x;y;weight", *(";".join(row.values()) for row in rows)]) + "\n")
    options = {"label": "y", "sample_weight": "weight", "regression": True, "decimal": ","}
    for how in {}, {"one_hot": "auto"}, {"hash_bits": 4}:
        with pytest.raises(InputError, match=rf"rows\.csv:4:\d: column {column}: .*'1\.234'.*no.* as a decimal mark"):
            streamsvm.ingest(path, tmp_path / "d.zarr", **options, **how)


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_labels_of_text_stay_as_they_are(block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some of them look like numbers, and all labels of a later block do."""
    monkeypatch.setattr("streamsvm.data.sources.csv.CODED_BLOCK_BYTES", block_bytes)
    path = tmp_path / "rows.csv"
    path.write_text("a;y\n1,5;abc\n2,5;1,5\n3,5;1,5\n4,5;7\n5,5;7\n")
    made = streamsvm.ingest(path, tmp_path / "d.zarr", decimal=",", label="y", shuffle=None)
    np.testing.assert_array_equal(made.classes, ["1,5", "7", "abc"])
    np.testing.assert_array_equal(made.read(0).y, [2, 0, 0, 1, 1])


@pytest.mark.parametrize("how", [{"one_hot": "auto"}, {"hash_bits": 4}, {}])
@pytest.mark.parametrize(
    ("cells", "seem"),
    [
        (("6,3", "7", "0,25"), "numbers with a comma: --decimal ,"),
        (("29.08.2006", "1.1.06", "02.03.2020 10:15"), "dates: --date-format reads them, such as %d"),
        (("08/29/2006", "12/1/2006", "1/2/2020"), "dates: --date-format reads them, such as %d"),
        (("12.5%", "3%", "100 %"), "numbers with extra characters"),
        (("$1,000", "$2.50", "-$3"[1:]), "numbers with extra characters"),
        (("1,234,567", "12", "997,800"), "numbers with extra characters"),
    ],
)
def test_numbers_and_dates_in_other_forms_are_no_text(
    tmp_path: Path, how: dict[str, Any], cells: tuple[str, ...], seem: str
) -> None:
    """They are not taken for categories, unless their column is named."""
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{x};{y};{z}\n" for x, y, z in zip(("x", *cells), "y010", "z123", strict=True)))
    with pytest.raises(InputError, match=r"rows\.csv:\d:1: column x: .* seem to be " + seem):
        streamsvm.ingest(path, tmp_path / "d.zarr", **how)
    if how:
        assert streamsvm.ingest(path, tmp_path / "d.zarr", one_hot="x").n_features == 4


def test_texts_that_only_begin_like_numbers_are_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x;y;z\n6,3;0;1\nNiepoort;1;2\n12.5%;0;3\n")
    assert streamsvm.ingest(path, tmp_path / "d.zarr", one_hot="auto").n_features == 4


def test_names_of_rows_among_the_categories_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And so are labels with nearly as many classes as rows; both are taken all the same."""
    path = tmp_path / "rows.csv"
    path.write_text("".join(["name,kind,x,label\n", *(f"p{i},{'ab'[i % 2]},{i},{i // 2}\n" for i in range(300))]))
    with caplog.at_level("WARNING", "streamsvm"):
        made = streamsvm.ingest(path, tmp_path / "d.zarr", one_hot="auto")
    assert made.n_features == 303
    told = [record.getMessage() for record in caplog.records]
    assert any("column name has 300 categories in 300 rows" in each and "--index name" in each for each in told)
    assert any("150 classes in 300 rows" in each and "--regression" in each for each in told)
    assert not any("column kind" in each for each in told)


def write_ranks(path: Path, seed: int, label: str = "relevance") -> None:
    """Write 12 queries of 5 rows, with ranks that the first feature and the query decide."""
    random = np.random.default_rng(seed)
    query, x = np.repeat(np.arange(12), 5), random.normal(size=(60, 2))
    rank = (x[:, 0] + random.normal(size=60) > 0) + query % 3
    rows = (f"{r},query {q},{a},{b}\n" for r, q, (a, b) in zip(rank.tolist(), query.tolist(), x.tolist(), strict=True))
    path.write_text("".join([f"{label},query,a,b\n", *rows]))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_columns_of_a_table_are_remembered(tmp_path: Path, kind: str) -> None:
    """The pairs of a ranking are those within queries, in a new table as in the dataset of its rows."""
    write_ranks(tmp_path / "new.csv", 1)
    pd.read_csv(tmp_path / "new.csv").to_parquet(tmp_path / "new.parquet")
    roles = Columns(label="relevance", qid="query")
    rows = streamsvm.ingest(tmp_path / f"new.{kind}", tmp_path / "d.zarr", columns=roles)
    model = streamsvm.RankSVM().fit(rows).model_
    found = evaluate(model, tmp_path / f"new.{kind}")
    assert (found["n_queries"], found) == (12, evaluate(model, rows))
    model.save(tmp_path / "m.npz")
    assert evaluate(load(tmp_path / "m.npz"), tmp_path / f"new.{kind}") == found
    assert evaluate(model, tmp_path / "new.csv", Columns(qid="query")) == found


def test_the_column_of_the_labels_is_remembered_by_an_append(tmp_path: Path) -> None:
    write_ranks(tmp_path / "first.csv", 1, "kind")
    write_ranks(tmp_path / "more.csv", 2, "kind")
    streamsvm.ingest(tmp_path / "first.csv", tmp_path / "d.zarr", label="kind", one_hot="query")
    assert streamsvm.ingest(tmp_path / "more.csv", tmp_path / "d.zarr", append=True).n_rows == 120
    assert streamsvm.ingest(tmp_path / "more.csv", tmp_path / "o.zarr", like=tmp_path / "d.zarr").label_column == "kind"


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
@pytest.mark.parametrize("others", [{}, {"missing": "zero"}])
def test_all_columns_of_text_are_told_at_once(kind: str, others: dict[str, Any], tmp_path: Path) -> None:
    """And the options that are told take the table."""
    texts = {"job": ["clerk", "smith", "clerk"], "town": ["x", "z", "z"]}
    frame, path = pd.DataFrame({"a": [1.0, 2, 3], **texts, "y": [0, 1, 0]}), tmp_path / f"rows.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else getattr(frame, f"to_{kind}")(path)
    with pytest.raises(InputError, match=r"column job: .*not a number.*2 columns are of text: job,town; ") as told:
        streamsvm.ingest(path, tmp_path / "d.zarr", **others)
    assert "--one-hot job,town" in str(told.value)
    assert "--drop job,town" in str(told.value)
    for k, how in enumerate([{"one_hot": "auto"}, {"one_hot": ["job", "town"]}, {"hash_bits": 3}]):
        streamsvm.ingest(path, tmp_path / f"{k}.zarr", **how, **others)
    assert streamsvm.ingest(path, tmp_path / "less.zarr", drop=["job", "town"], **others).n_features == 1


def test_columns_of_text_of_a_frame_are_told_at_once() -> None:
    frame = pd.DataFrame({"a": [1.0, 2], "job": ["clerk", "smith"], "town": ["x", "z"]})
    with pytest.raises(InputError, match=r"columns job, town must hold numbers .* for text, and `fit`"):
        streamsvm.LinearSVC().fit(frame, [0, 1])
    with pytest.raises(InputError, match=r" for text and missing='mean' for missing values, and `fit`"):
        streamsvm.LinearSVC().fit(frame.assign(a=[1.0, np.nan]), [0, 1])


def test_a_missing_label_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("y,a\n0,1\n,2\n")
    with pytest.raises(InputError, match=r"3:1: column y: label missing; .* remove this row"):
        streamsvm.ingest(tmp_path / "rows.csv", tmp_path / "d.zarr")


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "frame"])
@pytest.mark.parametrize("others", [{}, {"drop": "b"}])
def test_texts_and_missing_values_are_told_together(kind: str, others: dict[str, Any], tmp_path: Path) -> None:
    """And the options that are told take the table, both together."""
    columns = {"a": [1.0, np.nan, 3], "b": [1, 2, 3], "town": ["x", "z", "z"], "c": [1.0, 2, np.nan], "y": [0, 1, 0]}
    frame, path = pd.DataFrame(columns), tmp_path / f"rows.{kind}"
    if kind != "frame":
        frame.to_csv(path, index=False) if kind == "csv" else getattr(frame, f"to_{kind}")(path)
    source = frame if kind == "frame" else path
    label = {"label": "y", **others}
    with pytest.raises(InputError, match=r"--one-hot encodes .*; values are missing as well, in a,c: --missing"):
        streamsvm.ingest(source, tmp_path / "d.zarr", **label)
    for given in ({"one_hot": "auto"}, {"missing": "mean"}):
        with pytest.raises(InputError) as told:
            streamsvm.ingest(source, tmp_path / "d.zarr", **label, **given)
        assert ("--one-hot" in str(told.value), "--missing" in str(told.value)) == (
            "missing" in given,
            "one_hot" in given,
        )
    made = streamsvm.ingest(source, tmp_path / "d.zarr", **label, one_hot="auto", missing="mean")
    assert made.n_features == 5 - len(others)


def test_missing_values_before_and_after_a_text_are_told_with_it(tmp_path: Path) -> None:
    """Whichever comes first, and not what comes after a row that is none."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n1,2,0\n,x,1\n")
    with pytest.raises(InputError, match=r":3:1: column a: empty .*--one-hot .* in a: --missing"):
        streamsvm.ingest(path, tmp_path / "d.zarr")
    path.write_text("a,b,y\n1,x,0\n1,x,0\n1\n,x,1\n")
    with pytest.raises(InputError, match=r":2:2: column b: not a number") as told:
        streamsvm.ingest(path, tmp_path / "d.zarr")
    assert "--missing" not in str(told.value)
