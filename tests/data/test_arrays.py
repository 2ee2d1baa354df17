"""Arrays, frames and .npy/.npz files as sources; and that all sources give the same rows."""

from __future__ import annotations

import csv
import os
import tempfile
import threading
import tracemalloc
import weakref
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamsvm.data.arrays import read_arrays
from streamsvm.data.csv_text import read_csv
from streamsvm.data.npy import read_npy
from streamsvm.data.parquet import read_parquet
from streamsvm.data.rows import SourceRows
from streamsvm.data.tables import Columns
from streamsvm.errors import InputError

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write arrays as one .npz."""

    def save_npz(compressed: bool = False, **members: Any) -> Path:
        path = tmp_path / "t.npz"
        (np.savez_compressed if compressed else np.savez)(path, **members)
        return path

    return save_npz


def together(pieces: Iterator[SourceRows]) -> dict[str, Any]:
    """All pieces of a source; X as one dense array."""
    read = list(pieces)
    for rows in read:
        assert rows.X.dtype == np.float32
        assert rows.n_rows > 0
        assert rows.X.flags.c_contiguous if isinstance(rows.X, np.ndarray) else rows.X.has_canonical_format
    dense = [rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray() for rows in read]
    whole: dict[str, Any] = {"X": np.concatenate(dense), "pieces": len(read), "names": read[0].feature_names}
    for role in ("labels", "qid", "sample_weight"):
        parts = [getattr(rows, role) for rows in read]
        whole[role] = None if parts[0] is None else np.concatenate(parts)
    return whole


def fault(source: Iterator[SourceRows]) -> str:
    with pytest.raises(InputError) as caught:
        list(source)
    return str(caught.value)


# every source


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """A random table: numbers of all magnitudes, labels that are numbers or awkward text."""
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    numbers = st.floats(-3.4e38, 3.4e38) | st.integers(-9, 9).map(float) | st.sampled_from([1e-310, -0.0])
    words = st.text(st.sampled_from("aé\",;\n\t'0"), max_size=5).map(lambda text: f"<{text}>")
    labels = draw(
        st.lists(st.integers(-5, 5).map(float), min_size=n, max_size=n)
        | st.lists(words, min_size=n, max_size=n)
    )
    return {
        "X": draw(arrays(np.float64, (n, d), elements=numbers)),
        "y": np.array(labels),
        "sample_weight": draw(arrays(np.float64, n, elements=st.floats(0, 1e300))),
        "qid": draw(arrays(np.int64, n, elements=st.integers(-(2**63), 2**63 - 1))),
        "size": draw(st.integers(1, 300)),
        "rows": draw(st.integers(1, n)),
    }


def every_source(table: dict[str, Any], folder: Path) -> Iterator[tuple[str, Iterator[SourceRows]]]:
    """The table in every form, in pieces of random size."""
    size, rows = table["size"], table["rows"]
    X, members = table["X"], {name: table[name] for name in ("y", "sample_weight", "qid")}
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    whole = frame.assign(label=members["y"], w=members["sample_weight"], q=members["qid"])
    columns = Columns(qid="q", sample_weight="w")
    for suffix, mark in ((".csv", ","), (".tsv", "\t")):
        with open(folder / f"t{suffix}", "w", newline="") as file:
            csv.writer(file, delimiter=mark).writerows([list(whole), *whole.itertuples(index=False)])
        yield suffix, read_csv([folder / f"t{suffix}"], columns, size)
    pq.write_table(pa.table(dict(whole.items())), folder / "t.parquet", row_group_size=rows + 1)
    yield "parquet", read_parquet([folder / "t.parquet"], columns, rows)
    np.savez(folder / "t.npz", X=X, **members)
    yield "npz", read_npy([folder / "t.npz"], size)
    np.savez_compressed(folder / "f.npz", X=np.asfortranarray(X), **members)
    yield "npz, by columns", read_npy([folder / "f.npz"], size)
    sp.save_npz(folder / "s.npz", sp.csr_matrix(X))
    with zipfile.ZipFile(folder / "s.npz", "a") as archive:
        for name, member in members.items():
            np.save(folder / f"{name}.npy", member)
            archive.write(folder / f"{name}.npy", f"{name}.npy")
    yield "sparse npz", read_npy([folder / "s.npz"], size)
    yield "NumPy", read_arrays(X, **members, piece_bytes=size)
    yield "CSR", read_arrays(sp.csr_array(X), **members, piece_bytes=size)
    yield "pandas", read_arrays(frame, whole["label"], whole["w"], whole["q"], size)
    chunked = {name: da.from_array(v, chunks=1 + i) for i, (name, v) in enumerate(members.items())}
    yield "Dask array", read_arrays(da.from_array(X, chunks=(rows, 1)), **chunked, piece_bytes=size)
    parts = dd.from_pandas(whole, chunksize=rows)
    q = parts["q"].to_dask_array()
    yield "Dask frame", read_arrays(parts[list(frame)], parts["label"], parts["w"], q, size)


@settings(max_examples=20, deadline=None)
@given(table=tables())
def test_every_source_gives_the_same_rows(table: dict[str, Any]) -> None:
    """One table in eleven forms."""
    with np.errstate(under="ignore"):
        X = table["X"].astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for name, source in every_source(table, Path(folder)):
            read = together(source)
            assert np.array_equal(read["X"], X), name
            assert np.array_equal(read["labels"], table["y"]), name
            assert read["labels"].dtype.kind == table["y"].dtype.kind, name
            assert np.array_equal(read["sample_weight"], table["sample_weight"]), name
            assert np.array_equal(read["qid"], table["qid"]), name


# in memory

NUMBERS = np.array([[0, 1, 2], [3, 0, 1], [1, 1, 0], [0, 0, 5]])


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "u8", "f2", "f4", "f8", "g", ">f8", ">i4", "O"])
def test_numpy_types(tmp_path: Path, dtype: str) -> None:
    """Any numeric type, in rows or columns, strided or mapped, and lists; pieces are copies."""
    X = NUMBERS.astype(dtype)
    mapped = np.memmap(tmp_path / "X", X.dtype if dtype != "O" else "f8", "w+", shape=X.shape)
    mapped[:] = X
    for form in (X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], mapped, X.tolist()):
        for piece_bytes in (1, 48, 1 << 20):
            read = together(read_arrays(form, piece_bytes=piece_bytes))
            assert np.array_equal(read["X"], X.astype(np.float32))
            assert read["pieces"] == {1: 4, 48: 2, 1 << 20: 1}[piece_bytes]
    (rows,) = read_arrays(np.float32(NUMBERS))
    assert isinstance(rows.X, np.ndarray)
    assert rows.X.flags.owndata


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_formats(form: str, kind: str, index: type) -> None:
    """Any format, class and index width."""
    X = getattr(sp, f"{form}_{kind}")(NUMBERS)
    for name in ("indices", "indptr"):
        if hasattr(X, name):
            setattr(X, name, getattr(X, name).astype(index))
    for piece_bytes in (1, 24, 1 << 20):
        pieces = list(read_arrays(X, [1, 2, 3, 4], piece_bytes=piece_bytes))
        assert [rows.n_rows for rows in pieces] == {1: [1] * 4, 24: [1, 1, 2], 1 << 20: [4]}[piece_bytes]
        assert all(isinstance(rows.X, sp.csr_array) and rows.X.indices.dtype == np.int32 for rows in pieces)
        assert np.array_equal(together(iter(pieces))["X"], NUMBERS)


def test_sparse_is_made_canonical_in_a_copy(tmp_path: Path) -> None:
    """Unsorted indices and duplicates, which are added up before they are rounded; the caller's stay."""
    data, indices = np.array([1.0, 2, 2.0**24, 1, 1]), np.array([2, 0, 1, 1, 1])
    for dtype in (np.float64, np.float32):
        X = sp.csr_array((data.astype(dtype), indices.copy(), [0, 5]), shape=(1, 3))
        assert np.array_equal(together(read_arrays(X))["X"], [[2, 2**24 + 2, 1]])
        assert np.array_equal(X.indices, indices)
        sp.save_npz(tmp_path / "t.npz", X)
        assert np.array_equal(together(read_npy([tmp_path / "t.npz"]))["X"], [[2, 2**24 + 2, 1]])
    negative = sp.csr_array((data, indices, [0, 5]), shape=(1, 3))
    negative.indices[0] = 3
    assert fault(read_arrays(negative)) == "X: a column index is outside of its 3 columns"


def test_pandas() -> None:
    """Columns of any numeric type; names if they are strings; labels of all kinds."""
    frame = pd.DataFrame({"a": pd.array([1, 2], "Int64"), "b": [True, False], "c": pd.Categorical([3, 4])})
    read = together(read_arrays(frame, pd.Series(["u", "v"], dtype="category"), qid=pd.Series([1.0, 2.0])))
    assert (read["X"].tolist(), read["names"]) == ([[1, 1, 3], [2, 0, 4]], ("a", "b", "c"))
    assert (read["labels"].tolist(), read["qid"].tolist()) == (["u", "v"], [1, 2])
    frame["c"] = pd.arrays.SparseArray([0.0, 4.0])
    assert together(read_arrays(frame))["X"].tolist() == [[1, 1, 0], [2, 0, 4]]
    frame.columns = ["a", "b", 3]
    assert together(read_arrays(frame))["names"] is None
    assert together(read_arrays(frame, pd.DataFrame({"y": ["u", "v"]})))["labels"].tolist() == ["u", "v"]
    frame["when"] = pd.to_datetime(["2020", "2021"])
    assert fault(read_arrays(frame)) == f"X: column 'when': {frame['when'].dtype} is not a number"
    frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2]})
    assert fault(read_arrays(frame)) == "X: row 2, column 1 'a' (counted from 1): nan"
    assert (
        fault(read_arrays(frame.assign(b=["1", "2"])))
        == "X: row 1, column 2 'b' (counted from 1): not a number: '1'"
    )


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        ([True, False, True], [1.0, 0.0, 1.0]),
        (np.array([1, 2, 3], np.uint8), [1.0, 2.0, 3.0]),
        (np.array([1, 2.5, True], object), [1.0, 2.5, 1.0]),
        (np.array([1, "b", 2.5], object), ["1", "b", "2.5"]),
        (["1", "2", "3"], ["1", "2", "3"]),
        (np.array([b"u", b"v", b"w"]), ["u", "v", "w"]),
        (pd.array([1, 2, 3], "Int64"), [1.0, 2.0, 3.0]),
        (pd.array(["u", "v", "w"], "string"), ["u", "v", "w"]),
        (np.array([[1], [2], [3]]), [1.0, 2.0, 3.0]),
    ],
)
def test_labels(y: Any, labels: list[Any]) -> None:
    """Numbers, booleans too, are float64; anything else is text."""
    read = together(read_arrays(np.ones((3, 1)), y))["labels"]
    assert read.tolist() == labels
    assert read.dtype.kind == ("f" if isinstance(labels[0], float) else "U")


ONES = np.ones((3, 2))


def with_value(value: Any, dtype: Any = np.float64) -> npt.NDArray[Any]:
    X = ONES.astype(dtype)
    X[2, 1] = value
    return X


@pytest.mark.parametrize(
    ("X", "vectors", "message"),
    [
        (with_value(np.nan), {}, "X: row 3, column 2 (counted from 1): nan"),
        (with_value(-np.inf, "f4"), {}, "X: row 3, column 2 (counted from 1): infinite"),
        (with_value(1e39), {}, "X: row 3, column 2 (counted from 1): overflows float32: 1e+39"),
        (np.asfortranarray(with_value(np.nan)), {}, "X: row 3, column 2 (counted from 1): nan"),
        (sp.csc_array(with_value(np.nan)), {}, "X: row 3, column 2 (counted from 1): nan"),
        (da.from_array(with_value(np.nan), chunks=1), {}, "X: row 3, column 2 (counted from 1): nan"),
        (with_value(None, object), {}, "X: row 3, column 2 (counted from 1): missing value"),
        (with_value(pd.NA, object), {}, "X: row 3, column 2 (counted from 1): missing value"),
        (with_value("2", object), {}, "X: row 3, column 2 (counted from 1): not a number: '2'"),
        (with_value(10**400, object), {}, "X: row 3, column 2 (counted from 1): overflows float32"),
        (ONES.astype("U"), {}, "X: <U32 is not a number"),
        (ONES * 1j, {}, "X: complex128 is not a number"),
        (sp.csr_array(ONES * 1j), {}, "X: complex128 is not a number"),
        (np.ma.masked_equal(with_value(7), 7), {}, "X: has masked (missing) values"),
        ([[1, 2], [3]], {}, "X: not an array"),
        (np.ones(3), {}, "X: expected rows and columns, found 1 dimensions"),
        (np.ones((2, 2, 2)), {}, "X: expected rows and columns, found 3 dimensions"),
        (dask.delayed(ONES), {}, "X: expected rows and columns, found 0 dimensions"),
        (np.ones((0, 2)), {}, "X: no rows"),
        (np.ones((2, 0)), {}, "X: no columns"),
        (sp.csr_array((0, 2)), {}, "X: no rows"),
        (ONES, {"y": [1, 2]}, "y: 2 rows, but X has 3"),
        (ONES, {"y": ONES}, "y: expected one value for every row, found 2 dimensions"),
        (ONES, {"y": sp.csr_array(ONES[:, :1])}, "y: expected one value for every row"),
        (ONES, {"y": [1, 2, np.nan]}, "y: row 3 (counted from 1): label missing or not finite: nan"),
        (ONES, {"y": np.array(["u", "v", None])}, "y: row 3 (counted from 1): label missing: None"),
        (ONES, {"y": np.array(["u", np.nan, "w"], object)}, "y: row 2 (counted from 1): label missing: nan"),
        (ONES, {"y": ["u", "", "w"]}, "y: row 2 (counted from 1): label missing"),
        (ONES, {"sample_weight": [1]}, "sample_weight: 1 rows, but X has 3"),
        (
            ONES,
            {"sample_weight": [1, -1, 0]},
            "sample_weight: row 2 (counted from 1): sample weight is negative",
        ),
        (
            ONES,
            {"sample_weight": [1, 0, np.inf]},
            "sample_weight: row 3 (counted from 1): sample weight is not finite",
        ),
        (
            ONES,
            {"sample_weight": ["a"] * 3},
            "sample_weight: row 1 (counted from 1): sample weight is no number: a",
        ),
        (ONES, {"qid": [1, 2]}, "qid: 2 rows, but X has 3"),
        (ONES, {"qid": [1, 1.5, 2]}, "qid: row 2 (counted from 1): query id is no whole number: 1.5"),
        (ONES, {"qid": [1, np.nan, 2]}, "qid: row 2 (counted from 1): query id is no whole number: nan"),
        (
            ONES,
            {"qid": np.array([1, 2, 2**63], np.uint64)},
            "qid: row 3 (counted from 1): query id is beyond 64 bits",
        ),
    ],
)
def test_bad_arrays(X: Any, vectors: dict[str, Any], message: str) -> None:
    """The place is counted over all pieces."""
    for piece_bytes in (1, 1 << 20):
        assert fault(read_arrays(X, **vectors, piece_bytes=piece_bytes)).startswith(message)


# Dask


def test_dask_forms() -> None:
    """Unknown, empty and sparse chunks, chunks of columns; vectors in other chunks, or in memory."""
    X = np.arange(60.0).reshape(20, 3)
    y = np.where(X[:, 0] > 20, "u", "v")
    keep = X[:, 0] % 2 == 0
    chunked, flags = da.from_array(X, chunks=(3, 2)), da.from_array(keep, chunks=20)
    unknown = chunked[flags]
    assert np.isnan(unknown.shape[0])
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b", "c"]), npartitions=4)
    forms = [
        (unknown, y[keep]),
        (unknown, da.from_array(y, chunks=7)[flags]),
        (X[keep], da.from_array(y, chunks=7)[flags]),
        (unknown.rechunk({1: -1}).map_blocks(sp.csr_matrix), y[keep]),
        (unknown.rechunk({1: -1}).map_blocks(sp.csc_array), pd.Series(y[keep])),
        (frame[frame["a"] % 2 == 0], y[keep]),
        (da.concatenate([chunked[:0], chunked[flags]], allow_unknown_chunksizes=True), y[keep].tolist()),
    ]
    for form, labels in forms:
        read = together(read_arrays(form, labels, piece_bytes=48))
        assert np.array_equal(read["X"], X[keep])
        assert np.array_equal(read["labels"], y[keep])
    for n, message in ((9, "y: has fewer rows than X"), (11, "y: has more rows than X")):
        assert fault(read_arrays(unknown, y[:n])) == message
    known = (da.from_array(y[:19], chunks=7), "y: 19 rows, but X has 20")
    assert fault(read_arrays(chunked, known[0])) == known[1]
    kinds = da.from_array(np.array([1, 2, 3, "u"], object), chunks=2)
    message = "y: row 4 (counted from 1): labels were numbers so far, this is text: u"
    assert fault(read_arrays(da.ones((4, 1), chunks=2), kinds)) == message
    assert together(read_arrays(da.ones((4, 1), chunks=2), kinds[::-1]))["labels"].tolist() == [
        "u",
        "3",
        "2",
        "1",
    ]


@pytest.mark.parametrize("form", ["array", "frame", "sparse"])
def test_dask_is_never_computed_whole(form: str) -> None:
    """Every chunk is made once, one at a time, and let go before the next is made."""
    alive: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
    made: list[int] = []

    class Chunk(np.ndarray[Any, Any]):
        """An array whose life is watched."""

    def make(i: int) -> Any:
        assert not alive, "the chunk before is still there"
        assert threading.current_thread() is threading.main_thread()
        made.append(i)
        X = Chunk((100, 4))
        X[:] = i + 1
        chunk = sp.csr_array(X) if form == "sparse" else X
        alive[i] = chunk
        return pd.DataFrame(X, copy=False) if form == "frame" else chunk

    delayed: Any = dask.delayed(make, pure=True)
    tasks = [delayed(i) for i in range(8)]
    meta = {"array": np.ones((0, 4)), "sparse": sp.csr_array((0, 4))}.get(form)
    if form == "frame":
        X = dd.from_delayed(tasks, meta=pd.DataFrame(np.ones((0, 4))), verify_meta=False)
    else:
        X = da.concatenate([da.from_delayed(task, (100, 4), meta=meta) for task in tasks])
    pieces = 0
    for rows in read_arrays(X, np.repeat(np.arange(8) + 1, 100), piece_bytes=40 * 4 * 8):
        assert rows.labels is not None
        assert set(np.asarray(rows.X.sum(axis=1)).tolist()) == {4 * float(rows.labels[0])}
        pieces += 1
    assert made == list(range(8))
    assert pieces == 8 * 3


# files


def test_npy(tmp_path: Path) -> None:
    """X alone or with y, in rows or columns."""
    np.save(tmp_path / "X.npy", np.asfortranarray(NUMBERS))
    np.save(tmp_path / "y.npy", [["u"], ["v"], ["u"], ["w"]])
    read = together(read_npy([tmp_path / "X.npy"], 1))
    assert np.array_equal(read["X"], NUMBERS)
    assert read["labels"] is None
    read = together(read_npy([tmp_path / "X.npy", tmp_path / "y.npy"], 1))
    assert read["labels"].tolist() == ["u", "v", "u", "w"]


def test_bad_npy(tmp_path: Path) -> None:
    """The file is named with the reason."""
    X, y = tmp_path / "X.npy", tmp_path / "y.npy"
    assert fault(read_npy([X])) == f"{X}: No such file or directory"
    assert (
        fault(read_npy([tmp_path / "X.txt"]))
        == f"{tmp_path / 'X.txt'}: expected X.npy, X.npy and y.npy, or one .npz"
    )
    X.mkdir()
    assert fault(read_npy([X])) == f"{X}: Is a directory"
    X.rmdir()
    np.save(y, NUMBERS)
    for content in (b"", b"\x93NUMPY", b"not an array at all", y.read_bytes()[:-8]):
        X.write_bytes(content)
        assert fault(read_npy([X])).startswith(f"{X}: ")
    np.save(X, np.array([{}, None]), allow_pickle=True)
    assert "Python objects" in fault(read_npy([X]))
    np.save(X, np.ones((3, 1)))
    np.save(y, [1, 2])
    assert fault(read_npy([X, y])) == f"{y}: 2 rows, but {X} has 3"
    np.save(X, np.array([[1], [np.inf]]))
    assert fault(read_npy([X, y])) == f"{X}: row 2, column 1 (counted from 1): infinite"


CSR = {"data": [1.0, 2], "indices": [0, 1], "indptr": [0, 1, 2], "shape": [2, 2], "format": b"csr"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"Z": [[1]]}, "holds Z; expected X, or a SciPy CSR matrix"),
        ({"X": [1, 2]}, "X: expected rows and columns, found 1 dimensions"),
        ({"X": np.ones((0, 2))}, "X: no rows"),
        ({"X": np.ones((2, 0))}, "X: no columns"),
        ({"X": [["a"]]}, "X: <U1 is not a number"),
        ({"X": [[1], [np.nan]]}, "X: row 2, column 1 (counted from 1): nan"),
        ({"X": [[1], [2]], "y": [1]}, "y: 1 rows, but X has 2"),
        ({"X": [[1], [2]], "y": np.ones((2, 2))}, "y: expected one value for every row"),
        ({"X": [[1], [2]], "y": np.array([1, None])}, "y: holds Python objects, which only pickle can read"),
        ({"X": [[1], [2]], "qid": [1, 1.5]}, "qid: row 2 (counted from 1): query id is no whole number: 1.5"),
        ({"X": np.zeros(1, [("é", "f8")])}, "X: "),
        (CSR | {"format": b"csc"}, "X: format csc; save it as CSR, of rows and columns"),
        (CSR | {"shape": [3, 2]}, "X: no CSR matrix of 3 rows, 2 columns"),
        (CSR | {"indices": [0]}, "X: no CSR matrix of 2 rows, 2 columns"),
        (CSR | {"indices": [0, 2]}, "X: a column index is outside of its 2 columns"),
        (CSR | {"indices": [-1, 1]}, "X: a column index is outside of its 2 columns"),
        (CSR | {"indptr": [1, 1, 2]}, "X: indptr does not begin with 0"),
        (CSR | {"indptr": [0, 2, 1]}, "X: indptr descends"),
        (CSR | {"indptr": [0, 1, 1]}, "data: has more rows than X"),
        (CSR | {"indptr": [0, 1, 3]}, "data: has fewer rows than X"),
        (CSR | {"data": [1.0, np.nan]}, "X: row 2, column 2 (counted from 1): nan"),
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_bad_npz(save: Save, members: dict[str, Any], message: str) -> None:
    """The member is named, and the row."""
    path = save(**members)
    for piece_bytes in (1, 1 << 20):
        assert fault(read_npy([path], piece_bytes)).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("n_rows", "message"), [(3, "truncated"), (1, "a member is longer than its header tells")]
)
def test_npz_whose_header_is_wrong(tmp_path: Path, n_rows: int, message: str) -> None:
    """A member of two rows that is said to have another number."""
    np.save(tmp_path / "X.npy", np.ones((2, 2)))
    content = (tmp_path / "X.npy").read_bytes().replace(b"(2, 2)", b"(%d, 2)" % n_rows)
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", content)
    assert fault(read_npy([path])) == f"{path}: {message}"


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_npz(save: Save, compressed: bool) -> None:
    """A zip that is cut off, or in which a byte has changed."""
    path = save(compressed, X=np.random.default_rng(0).standard_normal((100, 100)))
    whole = path.read_bytes()
    flipped = whole[:40_000] + bytes([whole[40_000] ^ 1]) + whole[40_001:]
    for content in (b"", whole[:1000], whole[:-1000], flipped):
        path.write_bytes(content)
        assert fault(read_npy([path], 4000)).startswith(f"{path}: ")


@pytest.mark.parametrize("form", ["rows", "columns", "compressed", "sparse"])
def test_npz_of_100_mb_in_little_memory(tmp_path: Path, form: str) -> None:
    """A few pieces at a time, however large the members are."""
    path, value = tmp_path / "t.npz", np.arange(12_500_000) % 997.0 + 1
    if form == "sparse":
        sp.save_npz(
            path, sp.csr_array((value, np.arange(len(value)) % 100, np.arange(0, len(value) + 1, 100))), False
        )
    else:
        X = value.reshape(125_000, 100, order="F" if form == "columns" else "C")
        (np.savez_compressed if form == "compressed" else np.savez)(path, X=X, y=np.arange(125_000))
        del X
    total = 0.0
    del value
    tracemalloc.start()
    for rows in read_npy([path], 1 << 20):
        total += float(rows.X.sum(dtype=np.float64))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 12 << 20
    assert total == np.sum(np.arange(12_500_000) % 997 + 1)
    os.remove(path)
