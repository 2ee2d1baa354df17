"""NumPy, SciPy and pandas in memory as sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse as sp

from streamsvm.data.sources.arrays import read_arrays
from streamsvm.data.sources.files_of_arrays import read_npy
from streamsvm.system.errors import InputError
from tests.data.pieces import NUMBERS, fault, together


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
    assert fault(read_arrays(negative)) == "X: a column index is outside the 3 columns of the matrix"


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
    assert fault(read_arrays(frame)) == f"X: column 'when' holds {frame['when'].dtype}, not numbers"
    frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2]})
    assert fault(read_arrays(frame)) == "X: row 2, column 1 'a' (counted from 1): nan"
    assert (
        fault(read_arrays(frame.assign(b=["1", "2"]))) == "X: row 1, column 2 'b' (counted from 1): not a number: '1'"
    )


def test_all_columns_of_text_of_a_frame_are_named_at_once() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [None, "u"], "c": pd.array(["1", "x"], "object"), "d": [1.5, "3"]})
    with pytest.raises(InputError) as caught:
        list(read_arrays(frame.assign(b=["v", "u"])))
    assert str(caught.value).startswith("X: row 1, column 2 'b' (counted from 1): not a number: 'v'; 3 columns are of ")
    assert "--one-hot b,c,d encodes" in str(caught.value)
    assert "--drop b,c,d omits" in str(caught.value)
    both = r"column 2 'b' .*: (missing value|nan); 3 columns are of text: b,c,d; .* as well, in b: --missing mean"
    with pytest.raises(InputError, match=both):
        list(read_arrays(frame))


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        ([True, False, True], [True, False, True]),
        (np.array([True, False, True], object), [True, False, True]),
        (np.array([1, 2, 3], np.uint8), [1.0, 2.0, 3.0]),
        (np.array([1, 2.5, True], object), [1.0, 2.5, 1.0]),
        (["1", "2", "3"], ["1", "2", "3"]),
        (np.array([b"u", b"v", b"w"]), ["u", "v", "w"]),
        (pd.array([1, 2, 3], "Int64"), [1.0, 2.0, 3.0]),
        (pd.array(["u", "v", "w"], "string"), ["u", "v", "w"]),
        (np.array([[1], [2], [3]]), [1.0, 2.0, 3.0]),
    ],
)
def test_labels(y: Any, labels: list[Any]) -> None:
    """Numbers are float64; booleans stay booleans, and texts stay texts; so do bytes of UTF-8."""
    read = together(read_arrays(np.ones((3, 1)), y))["labels"]
    assert read.tolist() == labels
    assert read.dtype.kind == {bool: "b", float: "f", str: "U"}[type(labels[0])]


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
        (ONES.astype("U"), {}, "X: holds <U32, not numbers"),
        (ONES * 1j, {}, "X: holds complex128, not numbers"),
        (sp.csr_array(ONES * 1j), {}, "X: holds complex128, not numbers"),
        (
            np.ma.masked_equal(with_value(7), 7),
            {},
            "X: has masked (missing) values: fill them in, or remove their rows",
        ),
        ([[1, 2], [3]], {}, "X: not an array"),
        (np.ones(3), {}, "X: expected rows and columns, found 1 dimension"),
        (np.ones((2, 2, 2)), {}, "X: expected rows and columns, found 3 dimensions"),
        (dask.delayed(ONES), {}, "X: expected rows and columns, found 0 dimensions"),
        (np.ones((0, 2)), {}, "X: no rows"),
        (np.ones((2, 0)), {}, "X: has no columns"),
        (sp.csr_array((0, 2)), {}, "X: no rows"),
        (ONES, {"y": [1, 2]}, "y: has 2 rows, but X has 3"),
        (ONES, {"y": np.ones((2, 2, 2))}, "y: expected one value for every row, found 3 dimensions"),
        (ONES, {"y": 2 * ONES}, "y: row 1 (counted from 1): a matrix of labels holds only 0 and 1, not 2"),
        (ONES, {"y": sp.csr_array(2 * ONES)}, "y: row 1 (counted from 1): a matrix of labels holds only 0 and 1"),
        (ONES, {"y": sp.csr_array(ONES[:, :1])}, "y: expected one value for every row"),
        (ONES, {"y": [1, 2, np.nan]}, "y: row 3 (counted from 1): label missing or not finite: nan"),
        (ONES, {"y": np.array(["u", "v", None])}, "y: row 3 (counted from 1): label missing: None"),
        (ONES, {"y": np.array(["u", np.nan, "w"], object)}, "y: row 2 (counted from 1): label missing: nan"),
        (ONES, {"y": ["u", "", "w"]}, "y: row 2 (counted from 1): label missing"),
        (ONES, {"sample_weight": [1]}, "sample_weight: has 1 row, but X has 3"),
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
            "sample_weight: row 1 (counted from 1): sample weight is not a number: a",
        ),
        (ONES, {"qid": [1, 2]}, "qid: has 2 rows, but X has 3"),
        (ONES, {"qid": [1, 1.5, 2]}, "qid: row 2 (counted from 1): query id is not a whole number: 1.5"),
        (ONES, {"qid": [1, np.nan, 2]}, "qid: row 2 (counted from 1): query id is not a whole number: nan"),
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


def test_query_ids_that_are_texts() -> None:
    """Equal texts are one query, in all pieces; a number that is written as a text is that number."""
    given = ["q1", "q1", "q2", "7", "7"]
    for values in (given, np.array(given), np.array([*given[:3], 7, 7], object)):
        rows = list(read_arrays(np.ones((5, 1)), np.arange(5.0), qid=values))
        found = np.concatenate([each.qid for each in rows if each.qid is not None])
        assert found.tolist() == [found[0], found[0], found[2], 7, 7]
        assert len(set(found.tolist())) == 3
    for bad in ("2.5", "", str(2**63)):
        with pytest.raises(InputError, match=r"qid: row 2 .*query id is not a whole number"):
            list(read_arrays(np.ones((2, 1)), np.arange(2.0), qid=["q", bad]))
