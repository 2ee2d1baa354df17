"""Columns whose values lie far from 0 and close together: they are scaled before they are rounded to float32."""

from __future__ import annotations

import logging
import re
import sys
import tracemalloc
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.columns import Columns
from streamsvm.estimators.kernel import SVC
from streamsvm.estimators.linear import LinearSVC
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.models.score import score
from streamsvm.numeric.rows import to_dense
from tests.ingestion.test_ingest_on_workers import here

__all__ = ["here"]
DAYS = np.array([int((date(2024, 1, 1) + timedelta(k)).strftime("%Y%m%d")) for k in range(60)])
N = 600


def make_frame(days: np.ndarray = DAYS) -> pd.DataFrame:
    """Rows of dates, whose class is that of the half of the days in which they lie, and of another feature."""
    rng = np.random.default_rng(0)
    at = np.append(np.arange(60), rng.integers(0, 60, N - 60))
    return pd.DataFrame({"day": days[at], "x": rng.standard_normal(N), "label": (at >= 30).astype(int)})


def write_csv(frame: pd.DataFrame, path: Path) -> str:
    frame.to_csv(path, index=False)
    return str(path)


def write_parquet(frame: pd.DataFrame, path: Path) -> str:
    frame.to_parquet(path.with_suffix(".parquet"))
    return str(path.with_suffix(".parquet"))


def take_array(frame: pd.DataFrame, _: Path) -> Any:
    return frame[["day", "x"]].to_numpy()


def take_integers(frame: pd.DataFrame, _: Path) -> Any:
    return frame[["day", "x"]].astype(np.int64).to_numpy()


DOORS: dict[str, tuple[Callable[[pd.DataFrame, Path], Any], dict[str, Any]]] = {
    "CSV": (write_csv, {}),
    "encoded CSV": (write_csv, {"missing": "mean"}),
    "Parquet": (write_parquet, {}),
    "frame": (lambda frame, _: frame, {"label": "label"}),
    "array": (take_array, {"y": make_frame()["label"]}),
    "integers": (take_integers, {"y": make_frame()["label"]}),
    "blocks": (lambda frame, _: iter([(frame[["day", "x"]], frame["label"])]), {}),
}


def read_column(dataset: Dataset) -> np.ndarray:
    return np.concatenate([dataset.read(k).X[:, 0] for k in range(dataset.n_chunks)])  # type: ignore[index]


@pytest.mark.parametrize("scale", ["standard", "minmax"])
@pytest.mark.parametrize("door", DOORS)
def test_all_days_stay_apart(door: str, scale: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And they are scaled as in float64, by the recorded scaling."""
    take, given = DOORS[door]
    frame = make_frame()
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        dataset = ingest(take(frame, tmp_path / "t.csv"), tmp_path / "d.zarr", scale=scale, **given)
    assert "float32" not in caplog.text
    assert dataset.scaling is not None
    exact = (np.sort(frame["day"]) - dataset.scaling.offset[0]) * dataset.scaling.factor[0]
    found = np.sort(read_column(dataset))
    assert len(np.unique(found)) == 60
    np.testing.assert_allclose(found, exact, atol=1e-6)
    mean, deviation = frame["day"].mean(), frame["day"].std(ddof=0)
    expected = (mean, 1 / deviation) if scale == "standard" else (DAYS[0], 1 / (DAYS[-1] - DAYS[0]))
    np.testing.assert_allclose((dataset.scaling.offset[0], dataset.scaling.factor[0]), expected, rtol=1e-9)


@pytest.mark.parametrize("missing", [None, "mean"])
def test_workers_write_the_same_bytes(missing: str | None, tmp_path: Path) -> None:
    path = write_csv(make_frame(), tmp_path / "t.csv")
    options = IngestOptions(scale="standard")
    one = ingest(path, tmp_path / "one.zarr", missing=missing, options=options)
    columns = Columns(missing=missing)
    many = ingest_on_workers([path], tmp_path / "many.zarr", columns, options, workers=1)
    assert one.fingerprint == many.fingerprint
    np.testing.assert_array_equal(read_column(one), read_column(many))


@pytest.mark.parametrize("make", [lambda: LinearSVC(C=1e4), lambda: SVC(C=1e4)])
def test_raw_rows_are_scaled_before_they_are_rounded(make: Any, tmp_path: Path) -> None:
    """Rows of a file, of an array and of a frame have the scores of the dataset's rows, and each day its own."""
    frame = make_frame()
    path = write_csv(frame, tmp_path / "t.csv")
    dataset = ingest(path, tmp_path / "d.zarr", scale="standard", shuffle=None)
    svc = make().fit(dataset)
    expected = np.concatenate([part.scores for part in score(svc.model_, dataset)])
    scores = np.concatenate([part.scores for part in score(svc.model_, path)])
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(svc.decision_function(frame[["day", "x"]]), expected, rtol=1e-5, atol=1e-5)
    assert svc.score(frame[["day", "x"]], frame["label"]) == 1.0
    same = frame.assign(x=0.0).drop_duplicates("day")
    assert len(np.unique(svc.decision_function(same[["day", "x"]]))) == 60
    written = write_csv(same, tmp_path / "same.csv")
    assert len(np.unique(np.concatenate([part.scores for part in score(svc.model_, written)]))) == 60


def test_appended_rows_are_scaled_like_the_others(tmp_path: Path) -> None:
    frame = make_frame()
    ingest(write_csv(frame[:400], tmp_path / "t.csv"), tmp_path / "d.zarr", scale="standard")
    dataset = ingest(write_csv(frame[400:], tmp_path / "more.csv"), tmp_path / "d.zarr", append=True)
    assert dataset.scaling is not None
    exact = (np.sort(frame["day"]) - dataset.scaling.offset[0]) * dataset.scaling.factor[0]
    np.testing.assert_allclose(np.sort(read_column(dataset)), exact, atol=1e-6)


def test_outliers_among_the_first_rows_do_not_matter(tmp_path: Path) -> None:
    """A missing date is often written as 0: the others stay apart."""
    frame = make_frame()
    frame.loc[:9, "day"] = 0
    dataset = ingest(write_csv(frame, tmp_path / "t.csv"), tmp_path / "d.zarr", scale="standard")
    assert len(np.unique(read_column(dataset))) == len(np.unique(frame["day"]))


@pytest.mark.parametrize("scale", ["none", "maxabs"])
def test_a_column_whose_values_float32_merges_is_told(
    scale: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_csv(make_frame(), tmp_path / "t.csv")
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        dataset = ingest(path, tmp_path / "d.zarr", scale=scale)
    merged = len(np.unique(DAYS.astype(np.float32)))
    assert f"merges column 'day': 60 values in the first rows become {merged}" in caplog.text
    assert len(np.unique(read_column(dataset))) == merged


def write_svmlight(folder: Path) -> Path:
    rows = zip(ROWS.toarray(), CLASSES, strict=True)
    lines = (f"{label} " + " ".join(f"{j + 1}:{x!r}" for j, x in enumerate(row.tolist()) if x) for row, label in rows)
    (folder / "t.svm").write_text("\n".join(lines) + "\n")
    return folder / "t.svm"


def write_table(folder: Path, suffix: str) -> str:
    frame = make_frame().assign(kind=list("abc") * (N // 3))
    return (write_csv if suffix == ".csv" else write_parquet)(frame, folder / f"t{suffix}")


def write_npz(folder: Path) -> Path:
    np.savez(
        folder / "t.npz",
        y=CLASSES,
        **{name: getattr(ROWS, name) for name in ("data", "indices", "indptr")},
        shape=ROWS.shape,
        format=b"csr",
    )
    return folder / "t.npz"


def write_h5ad(folder: Path) -> Path:
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"y": CLASSES}, index=[str(k) for k in range(N)])
    anndata.AnnData(ROWS, obs, pd.DataFrame(index=["day", "x"])).write_h5ad(folder / "t.h5ad")
    return folder / "t.h5ad"


ROWS = csr_array(make_frame()[["day", "x"]].to_numpy() * (np.arange(N) % 3 > 0)[:, None])
CLASSES = make_frame()["label"].to_numpy()
SPARSE_DOORS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "svmlight": (write_svmlight, {}),
    "CSR": (lambda _: ROWS, {"y": CLASSES}),
    "integers": (lambda _: ROWS.astype(np.int64), {"y": CLASSES}),
    "blocks": (lambda _: iter([(ROWS[:300], CLASSES[:300]), (ROWS[300:], CLASSES[300:])]), {}),
    "Dask": (lambda _: da.from_array(ROWS.toarray(), (200, 2)).map_blocks(csr_array), {"y": CLASSES}),
    "npz": (write_npz, {}),
    "h5ad": (write_h5ad, {"label": "y"}),
    "one-hot CSV": (lambda folder: write_table(folder, ".csv"), {"one_hot": "kind"}),
    "hashed CSV": (lambda folder: write_table(folder, ".csv"), {"hash_bits": 4, "text": "kind"}),
    "hashed Parquet": (lambda folder: write_table(folder, ".parquet"), {"hash_bits": 4}),
    "one-hot frame": (
        lambda _: make_frame().assign(kind=list("abc") * (N // 3)),
        {"label": "label", "one_hot": "kind"},
    ),
}


@pytest.mark.parametrize("scale", ["none", "maxabs"])
@pytest.mark.parametrize("door", SPARSE_DOORS)
def test_sparse_rows_whose_values_float32_merges_are_told(
    door: str, scale: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No constant can be taken off sparse rows before they are rounded, since their zeros stay zeros."""
    write, given = SPARSE_DOORS[door]
    source = write(tmp_path)
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        dataset = ingest(source, tmp_path / "d.zarr", scale=scale, layout="sparse", **given)
    assert dataset.is_sparse
    ((before, after),) = re.findall(
        r"column (?:'day'|1): (\d+) values in the first rows become (\d+); subtract", caplog.text
    )
    assert int(before) > int(after)


@pytest.mark.parametrize("scale", ["standard", "minmax"])
@pytest.mark.parametrize("door", SPARSE_DOORS)
def test_sparse_rows_that_become_dense_are_scaled_before_they_are_rounded(
    door: str, scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A few rows have no date, which is a 0, unless the source is a table."""
    write, given = SPARSE_DOORS[door]
    kept = np.ones(N) if {"one_hot", "hash_bits"} & set(given) else np.arange(N) % 60 > 0
    days = (make_frame()["day"] * kept).to_numpy()
    monkeypatch.setattr(sys.modules[__name__], "ROWS", csr_array(np.column_stack((days, make_frame()["x"]))))
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        dataset = ingest(write(tmp_path), tmp_path / "d.zarr", scale=scale, layout="dense", **given)
    assert "float32" not in caplog.text
    assert dataset.scaling is not None
    offset, spread = (days.mean(), days.std()) if scale == "standard" else (days.min(), np.ptp(days))
    np.testing.assert_allclose((dataset.scaling.offset[0], 1 / dataset.scaling.factor[0]), (offset, spread), rtol=1e-6)
    exact = (np.sort(days) - dataset.scaling.offset[0]) * dataset.scaling.factor[0]
    np.testing.assert_allclose(np.sort(read_column(dataset)), exact, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("is_dense", [False, True])
def test_features_that_are_often_one_stay_as_they_are_by_minmax(is_dense: bool, tmp_path: Path) -> None:
    """Constants that were subtracted from sparse rows are added again if these rows are stored as sparse rows."""
    rng = np.random.default_rng(0)
    X = csr_array((rng.random((400, 41)) < np.append(0.9, np.full(40, 0.05))).astype(float))
    layout = "dense" if is_dense else None
    dataset = ingest(X, tmp_path / "d.zarr", np.arange(400) % 2, scale="minmax", layout=layout, shuffle=None)
    assert dataset.is_sparse != is_dense
    rows = dataset.read(0).X
    np.testing.assert_array_equal(rows if is_dense else to_dense(rows), X.toarray())


def test_columns_of_huge_numbers_do_not_overflow(tmp_path: Path) -> None:
    X = np.column_stack((np.full(300, -3.3e38), np.arange(300)))
    X[-20:, 0] = 3.3e38
    dataset = ingest(csr_array(X), tmp_path / "d.zarr", np.arange(300) % 2, scale="minmax", layout="dense")
    np.testing.assert_array_equal(np.unique(read_column(dataset)), [0.0, 1.0])


@pytest.mark.parametrize("missing", [0, 3])
def test_sparse_rows_are_appended_to_dense_rows(missing: int, tmp_path: Path) -> None:
    """They are scaled like the others, and like the same rows if these are dense. missing: rows without a date."""
    X, y = make_frame()[["day", "x"]].to_numpy(), CLASSES
    X[400 : 400 + missing, 0] = 0.0
    for name, more in (("dense", X[400:]), ("sparse", csr_array(X[400:]))):
        ingest(X[:400], tmp_path / name, y[:400], scale="standard", shuffle=None)
        ingest(more, tmp_path / name, y[400:], append=True, shuffle=None)
    dense, sparse = (read_column(open_dataset(tmp_path / name)) for name in ("dense", "sparse"))
    np.testing.assert_array_equal(sparse, dense)
    assert np.abs(sparse[: N - missing]).min() < 3.0


def test_features_that_only_later_sparse_rows_have(tmp_path: Path) -> None:
    """The first rows, which choose the constants that are subtracted, lack them."""
    texts = [f"{k % 2} 1:{day}" + f" 3:{k}" * (k >= 30) for k, day in enumerate(DAYS)]
    (tmp_path / "a.svm").write_text("\n".join(texts[:30]))
    (tmp_path / "b.svm").write_text("\n".join(texts[30:]))
    files = [tmp_path / "a.svm", tmp_path / "b.svm"]
    dataset = ingest(files, tmp_path / "d.zarr", scale="standard", layout="dense", shuffle=None)
    X = np.column_stack((DAYS, np.zeros(60), np.arange(60) * (np.arange(60) >= 30)))
    np.testing.assert_allclose(dataset.read(0).X, (X - X.mean(axis=0)) / (X.std(axis=0) + (X.std(axis=0) == 0)))


@pytest.mark.parametrize("door", ["svmlight", "one-hot CSV"])
def test_workers_tell_sparse_rows_that_float32_merges(
    door: str, tmp_path: Path, here: None, caplog: pytest.LogCaptureFixture
) -> None:
    write, given = SPARSE_DOORS[door]
    columns = Columns(one_hot=(given["one_hot"],)) if given else Columns()
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        ingest_on_workers([str(write(tmp_path))], tmp_path / "d.zarr", columns, IngestOptions())
    assert len(re.findall("float32 merges", caplog.text)) == 1


def test_columns_that_float32_holds_are_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Random numbers, small integers, a constant that float32 rounds, and dates that all lie on even numbers."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal(5000), rng.integers(1950, 2030, 5000), np.full(5000, 20240131), 2 * DAYS[:1]
    X = np.column_stack(np.broadcast_arrays(*columns)).astype(float)
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        ingest(X, tmp_path / "d.zarr", rng.integers(0, 2, 5000))
    assert caplog.text == ""


def test_values_of_the_last_possible_column_are_looked_at_in_little_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An array with an entry for each of 2^31 - 1 columns would take 16 GiB."""
    path = tmp_path / "rows.svm"
    path.write_text("".join(f"{i % 2} 1:{1 + i} {2**31 - 1}:{2**24 + i / 4}\n" for i in range(40)))
    tracemalloc.start()
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        dataset = ingest(path, tmp_path / "rows.zarr")
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert dataset.n_features == 2**31 - 1
    assert "float32 merges column 2,147,483,647: 40 values in the first rows become" in caplog.text
