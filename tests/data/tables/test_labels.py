"""Labels by every door: each value is a class of its own, or is refused with its place."""

from __future__ import annotations

import bz2
import datetime
import gzip
import json
import lzma
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from pyarrow import feather, orc

import streamsvm
from streamsvm.data.sources import csv
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.models.predict import predict
from streamsvm.system.errors import InputError

FIRST = 72048431380967004  # it and the next two become one float64
IDS = np.array([FIRST, FIRST + 2, FIRST + 4, 7] * 4)
X = np.random.default_rng(0).normal(size=(16, 2))
TABLE = pd.DataFrame(X, columns=["a", "b"]).assign(y=IDS)


def write_file(path: Path, rows: pd.DataFrame = TABLE) -> Path:
    if path.suffix == ".csv":
        rows.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix == ".arrow":
        feather.write_feather(pa.Table.from_pandas(rows), str(path))
    elif path.suffix == ".orc":
        orc.write_table(pa.Table.from_pandas(rows), str(path))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows.astype(object).to_dict("records")))
    elif path.suffix == ".svm":
        path.write_text("# ids\n" + "".join(f"{y} 1:{a}\n" for y, a in zip(rows["y"], rows["a"], strict=True)))
    else:
        np.savez(path, X=rows[["a", "b"]], y=rows["y"])
    return path


FILES = {
    ".csv": "ids.csv:2:3: column y: ",
    ".parquet": "ids.parquet: row 1, column y: ",
    ".arrow": "ids.arrow: row 1, column y: ",
    ".orc": "ids.orc: row 1, column y: ",
    ".jsonl": "ids.jsonl: line 1, column y: ",
    ".svm": "ids.svm:2:1: ",
    ".npz": "y: row 1 (counted from 1): ",
}


def read_file(path: Path, destination: Path, **options: Any) -> Any:
    label = {} if path.suffix in (".svm", ".npz") else {"label": "y"}
    return ingest(path, destination, **label, **options)


@pytest.mark.parametrize("suffix", FILES)
def test_files_with_labels_that_float64_merges(tmp_path: Path, suffix: str) -> None:
    """They are refused as classes, with value and place, by ingest and evaluate; as targets they are rounded."""
    path, told = write_file(tmp_path / f"ids{suffix}"), f"{FILES[suffix]}the label {FIRST} may lose digits"
    with pytest.raises(InputError) as caught:
        read_file(path, tmp_path / "rows.zarr")
    assert told in str(caught.value)
    assert not (tmp_path / "rows.zarr").exists()
    assert set(read_file(path, tmp_path / "rows.zarr", regression=True).column("target")) == {float(FIRST), 7.0}
    model = streamsvm.LinearSVC().fit(X, IDS).model_
    with pytest.raises(InputError, match=f"the label {FIRST} may lose digits"):
        evaluate(model, path)


WHOLE = [2**53 - 3, 2**53 - 2, 2**53 - 1, -(2**53 - 1), 9 * 10**15 + 1]


@pytest.mark.parametrize("text", ["{:d}", "{:d}.", "{:d}.0", "{:d}.000", "{:d}e0", "{:0=+25d}.0"])
@pytest.mark.parametrize("options", [{}, {"regression": True}, {"multi_label": True}])
def test_whole_labels_of_svmlight_are_exact_below_2_to_53(tmp_path: Path, text: str, options: Any) -> None:
    """A point with zeros costs no digits, which would make two classes one."""
    path = tmp_path / "ids.svm"
    path.write_text("".join(f"{text.format(label)} 1:1\n" for label in WHOLE))
    rows = ingest(path, tmp_path / "rows.zarr", **options)
    assert sorted(set(rows.column("target") if options.get("regression") else rows.classes)) == sorted(WHOLE)


def test_large_targets_of_csv_are_read_by_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file(tmp_path / "ids.csv")
    monkeypatch.setattr(csv.Block, "_parse_slowly", None)
    assert set(read_file(path, tmp_path / "rows.zarr", regression=True).column("target")) == {float(FIRST), 7.0}


@pytest.mark.parametrize("options", [{"missing": "mean"}, {"one_hot": "auto"}])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_that_are_encoded(tmp_path: Path, suffix: str, options: Any) -> None:
    path = write_file(tmp_path / f"ids{suffix}", TABLE.assign(c=list("uvwx") * 4) if "one_hot" in options else TABLE)
    with pytest.raises(InputError, match=f"the label {FIRST} may lose digits"):
        read_file(path, tmp_path / "rows.zarr", **options)


def test_lists_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "ids.svm"
    path.write_text(f"1 1:1\n\n3,{FIRST} 1:2\n")
    with pytest.raises(InputError, match=rf"ids\.svm:3:1: the label 3,{FIRST} may lose digits"):
        ingest(path, tmp_path / "rows.zarr", multi_label=True)


def make_anndata() -> Any:
    anndata = pytest.importorskip("anndata", reason="AnnData objects need anndata")
    names = list(map(str, range(16)))
    return anndata.AnnData(np.float32(X), obs=TABLE[["y"]].set_axis(names))


def make_polars() -> Any:
    return pytest.importorskip("polars", reason="frames of polars need polars").from_pandas(TABLE)


ARRAYS: dict[str, Callable[[], Any]] = {
    "array": lambda: (X, IDS),
    "unsigned": lambda: (X, IDS.astype(np.uint64)),
    "above 2^63": lambda: (X, np.array([2**63 + 5, 2**63 + 6] * 8, np.uint64)),
    "objects": lambda: (X, IDS.astype(object)),
    "too large for float64": lambda: (X, np.array([1, 10**400] * 8, object)),
    "float64": lambda: (X, IDS.astype(np.float64)),
    "extended": lambda: (X, np.array([2**53, 2**53 + 1] * 8, np.longdouble)),
    "Dask": lambda: (da.from_array(X, (8, 2)), da.from_array(IDS, 8)),
    "Zarr": lambda: (zarr.array(X), zarr.array(IDS)),
    "pandas": lambda: (TABLE[["a", "b"]], TABLE["y"].astype("Int64")),
    "AnnData": lambda: (make_anndata(), None),
    "polars": lambda: (make_polars(), None),
    "iterator": lambda: (iter([(X, IDS)]), None),
}


@pytest.mark.parametrize("form", ARRAYS)
def test_arrays_with_labels_that_float64_merges(tmp_path: Path, form: str) -> None:
    rows, labels = ARRAYS[form]()
    named = {"label": "y"} if form in ("AnnData", "polars") else {}
    with pytest.raises(InputError, match=r"row [12].*the label .* may lose digits|label missing or not finite: 1000"):
        ingest(rows, tmp_path / "rows.zarr", labels, **named)


@pytest.mark.parametrize("to_rows", [da.from_array, zarr.array])
def test_rows_that_fit_writes_to_a_dataset(to_rows: Any) -> None:
    with pytest.raises(InputError, match=f"y: row 1 .*the label {FIRST} may lose digits"):
        streamsvm.LinearSVC().fit(to_rows(X), IDS)


def test_append_refuses_them_too(tmp_path: Path) -> None:
    ingest(X, tmp_path / "rows.zarr", np.arange(16) % 2)
    with pytest.raises(InputError, match=f"the label {FIRST} may lose digits"):
        ingest(X, tmp_path / "rows.zarr", IDS, append=True, new_classes=True)


def test_labels_in_anndata_stay_integers(tmp_path: Path) -> None:
    make_anndata().write_h5ad(tmp_path / "a.h5ad")
    assert streamsvm.open(tmp_path / "a.h5ad", "y").classes.tolist() == [7, FIRST, FIRST + 2, FIRST + 4]


@pytest.mark.parametrize("role", ["qid", "groups"])
def test_ids_stay_integers_or_are_refused(tmp_path: Path, role: str) -> None:
    ids, labels = np.sort(IDS), np.arange(16) % 2
    path = write_file(tmp_path / "ids.jsonl", TABLE.assign(id=ids, y=labels))
    for at, source in enumerate((path, write_file(tmp_path / "ids.csv", TABLE.assign(id=ids, y=labels)))):
        found = ingest(source, tmp_path / f"{at}.zarr", label="y", **{role: "id"}).column(role)
        assert sorted(set(found)) == [7, FIRST, FIRST + 2, FIRST + 4]
    found = ingest(X, tmp_path / "rows.zarr", labels, **{role: ids}).column(role)
    assert sorted(set(found)) == [7, FIRST, FIRST + 2, FIRST + 4]
    with pytest.raises(InputError, match=rf"{role}: row 5 .* is a float from 2\^53 on.*: 7\.2.*e\+16"):
        ingest(X, tmp_path / "other.zarr", labels, **{role: ids.astype(np.float64)})


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".jsonl"])
def test_gaps_beside_large_integers_are_told_as_gaps(tmp_path: Path, suffix: str) -> None:
    """pyarrow makes floats of integers beside a gap; a row without a name has an empty one."""
    ids = pd.array([FIRST + k if k != 2 else None for k in range(16)], "Int64")
    path = write_file(tmp_path / f"gaps{suffix}", TABLE.assign(id=ids, y=np.arange(16) % 2))
    for role, told in (("qid", "query id is not a whole number"), ("groups", "the group is missing")):
        with pytest.raises(InputError, match=rf"gaps{suffix}:?.*(4:4| row 3| line 3).*{told}"):
            ingest(path, tmp_path / "rows.zarr", label="y", **{role: "id"})
    model = streamsvm.LinearSVC().fit(X, np.arange(16) % 2).model_
    predict(model, path, tmp_path / "out.csv", read_as=Columns(index="id", label="y"))
    names = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)["name"]
    assert names.tolist() == [str(FIRST + k) if k != 2 else "" for k in range(16)]


def test_names_of_rows_that_have_lost_digits(tmp_path: Path) -> None:
    """JSON has integers of any length, of which pyarrow makes floats."""
    path = tmp_path / "names.jsonl"
    path.write_text("".join(f'{{"id": {2**64 + k}, "a": {k + 1}, "y": {k % 2}}}\n' for k in range(4)))
    with pytest.raises(InputError, match=r"column id: the name of a row is a float from 2\^53 on.*: 1\.8.*e\+19"):
        ingest(path, tmp_path / "rows.zarr", label="y", index="id")


DAYS = np.array(["2020-01-01", "2020-01-02"] * 8, "datetime64[D]")
UNSUITABLE = {
    "days": DAYS,
    "nanoseconds": DAYS.astype("datetime64[ns]"),
    "durations": DAYS - DAYS[0],
    "records": np.array([(1, 2), (3, 4)] * 8, [("a", int), ("b", int)]),
    "bytes without a type": np.array([b"ab", b"cd"] * 8).view("V2"),
    "dates": np.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)] * 8, object),
    "objects of bytes": np.array([b"ab", b"cd"] * 8, object),
    "a number and a text": np.array([1, "1"] * 8, object),
    "a truth and a text": np.array([True, "True"] * 8, object),
    "a list of both": [1, "1"] * 8,
    "masked": np.ma.masked_equal(np.arange(16) % 2, 0),
}


@pytest.mark.parametrize("kind", UNSUITABLE)
def test_labels_that_no_file_holds_are_refused_at_the_door(tmp_path: Path, kind: str) -> None:
    told = "neither a number nor text|is a number|text and other values|masked"
    with pytest.raises(InputError, match=told):
        ingest(X, tmp_path / "rows.zarr", UNSUITABLE[kind])
    with pytest.raises(InputError, match=told):
        streamsvm.LinearSVC().fit(da.from_array(X), UNSUITABLE[kind])
    for fit in (streamsvm.LinearSVC().fit, streamsvm.SVC().fit, streamsvm.tune):
        with pytest.raises((ValueError, TypeError), match=f"{told}|Unknown label type|bytes is not supported"):
            fit(X, UNSUITABLE[kind])
    with pytest.raises(InputError, match=told):
        streamsvm.RankSVM().fit(X, UNSUITABLE[kind])


@pytest.mark.parametrize("labels", [DAYS - DAYS[0], pd.Series(DAYS).dt.to_period("D"), [[1], [2]] * 8])
def test_labels_in_frames_that_lose_their_meaning_as_text(tmp_path: Path, labels: Any) -> None:
    """A duration would lose its unit, and a period of pandas would become the number of its days since 1970."""
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=labels)
    with pytest.raises(InputError, match=r"row 1, column y: a label is a .*, neither a number nor text"):
        ingest(frame, tmp_path / "rows.zarr", label="y")


@pytest.mark.parametrize("kind", ["U", object, np.dtypes.StringDType()])
def test_an_empty_text_is_a_missing_label_by_every_door(tmp_path: Path, kind: Any) -> None:
    labels = np.array(["a", "", "a", "b"] * 4).astype(kind)
    doors = [streamsvm.LinearSVC().fit, streamsvm.SVC().fit, streamsvm.tune, lambda X, y: ingest(X, tmp_path / "r", y)]
    for fit in (*doors, lambda X, y: streamsvm.BudgetedSVC().partial_fit(X, y, classes=np.unique(y))):
        with pytest.raises(InputError, match=r"row (1|2) \(counted from 1\): label missing; training rows need labels"):
            fit(X, labels)


def test_decimals_are_numbers_and_texts_of_any_length_texts(tmp_path: Path) -> None:
    assert ingest(X, tmp_path / "0.zarr", np.array([Decimal(1), Decimal(2)] * 8)).classes.tolist() == [1, 2]
    texts = np.array(["u", "v"] * 8, np.dtypes.StringDType())
    assert ingest(X, tmp_path / "1.zarr", texts).classes.tolist() == ["u", "v"]


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")])
def test_streams_one_after_another(tmp_path: Path, pack: Any, suffix: str) -> None:
    """All streams of a compressed file are read; other bytes behind one of them, and a truncated one, are refused."""
    path, first, second = tmp_path / f"rows.svm{suffix}", pack(b"0 1:1\n1 1:2\n" * 9), pack(b"1 1:3\n" * 9)
    for content, n_rows in ((first + second, 27), (first + bytes(8), 18), (first + pack(b"") + second, 27)):
        path.write_bytes(content)
        assert ingest(path, tmp_path / "rows.zarr", overwrite=True).n_rows == n_rows
    for content in (
        first + b"1 1:3\n",
        first + bytes(4) + b"garbage " * 20,
        first + second[:-3],
        first[:-3],
        first + second[:4],
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"rows\.svm{suffix}: the compressed data are (corrupt|truncated)"):
            ingest(path, tmp_path / "rows.zarr", overwrite=True)
