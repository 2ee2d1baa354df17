""".npy and .npz files as sources."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import streamsvm
from streamsvm.data.sources.files_of_arrays import read_npy
from tests.data.pieces import NUMBERS, fault, together
from tests.models.test_model_files import HEADERS, claim

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write arrays as one .npz."""

    def save_npz(compressed: bool = False, **members: Any) -> Path:
        path = tmp_path / "t.npz"
        (np.savez_compressed if compressed else np.savez)(path, **members)
        return path

    return save_npz


def test_npy(tmp_path: Path) -> None:
    """X alone or with y, in rows or columns."""
    np.save(tmp_path / "X.npy", np.asfortranarray(NUMBERS))
    np.save(tmp_path / "y.npy", [["u"], ["v"], ["u"], ["w"]])
    read = together(read_npy([tmp_path / "X.npy"], 1))
    assert np.array_equal(read["X"], NUMBERS)
    assert read["labels"] is None
    read = together(read_npy([tmp_path / "X.npy", tmp_path / "y.npy"], 1))
    assert read["labels"].tolist() == ["u", "v", "u", "w"]


def test_npy_without_an_ending(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", NUMBERS)
    place = (tmp_path / "X.npy").rename(tmp_path / "X")
    made = streamsvm.ingest(place, tmp_path / "d.zarr", shuffle=None)
    assert np.array_equal(made.read(0).X, NUMBERS)
    (tmp_path / "text").write_text("1,2\n")
    assert "is not an .npy array" in fault(read_npy([tmp_path / "text"]))


def test_bad_npy(tmp_path: Path) -> None:
    """The file is named with the reason."""
    X, y = tmp_path / "X.npy", tmp_path / "y.npy"
    assert fault(read_npy([X])) == f"{X}: No such file or directory"
    assert (
        fault(read_npy([X, y, y]))
        == f"{X} {y} {y}: expected one .npz, or X.npy alone, or the two files X.npy and y.npy"
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
    assert fault(read_npy([X, y])) == f"{y}: has 2 rows, but {X} has 3"
    np.save(X, np.array([[1], [np.inf]]))
    assert fault(read_npy([X, y])) == f"{X}: row 2, column 1 (counted from 1): infinite"


CSR = {"data": [1.0, 2], "indices": [0, 1], "indptr": [0, 1, 2], "shape": [2, 2], "format": b"csr"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"Z": [[1]]}, "holds Z; expected X, or a SciPy CSR matrix"),
        ({"X": [1, 2]}, "X: expected rows and columns, found 1 dimension"),
        ({"X": np.ones((0, 2))}, "X: no rows"),
        ({"X": np.ones((2, 0))}, "X: has no columns"),
        ({"X": [["a"]]}, "X: holds <U1, not numbers"),
        ({"X": [[1], [np.nan]]}, "X: row 2, column 1 (counted from 1): nan"),
        ({"X": [[1], [2]], "y": [1]}, "y: has 1 row, but X has 2"),
        (
            {"X": [[1], [2]], "y": 2 * np.ones((2, 2))},
            "y: row 1 (counted from 1): a matrix of labels holds only 0 and 1, not 2",
        ),
        ({"X": [[1], [2]], "y": np.array([1, None])}, "y: holds Python objects, which only pickle can read"),
        ({"X": [[1], [2]], "qid": [1, 1.5]}, "qid: row 2 (counted from 1): query id is not a whole number: 1.5"),
        ({"X": np.zeros(1, [("é", "f8")])}, "X: "),
        (CSR | {"format": b"csc"}, "X: format csc; save it as a CSR matrix with two dimensions"),
        (CSR | {"shape": [3, 2]}, "X: not a CSR matrix of 3 rows, 2 columns"),
        (CSR | {"indices": [0]}, "X: not a CSR matrix of 2 rows, 2 columns"),
        (CSR | {"indices": [0, 2]}, "X: a column index is outside the 2 columns of the matrix"),
        (CSR | {"indices": [-1, 1]}, "X: a column index is outside the 2 columns of the matrix"),
        (CSR | {"indptr": [1, 1, 2]}, "X: indptr does not begin with 0"),
        (CSR | {"indptr": [0, 2, 1]}, "X: indptr does not ascend"),
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


@pytest.mark.parametrize(("n_rows", "message"), [(3, "X: is truncated"), (1, "X: is longer than its header says")])
def test_npz_whose_header_is_wrong(tmp_path: Path, n_rows: int, message: str) -> None:
    """A member of two rows that is said to have another number."""
    np.save(tmp_path / "X.npy", np.ones((2, 2)))
    content = (tmp_path / "X.npy").read_bytes().replace(b"(2, 2)", b"(%d, 2)" % n_rows)
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", content)
    found = f"an array float64 ({n_rows}, 2) takes {128 + 16 * n_rows} bytes, the file has {len(content)}"
    assert fault(read_npy([path])) == f"{path}: {message}: {found}"


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_npz(save: Save, compressed: bool) -> None:
    """A zip that is cut off, or in which a byte has changed."""
    path = save(compressed, X=np.random.default_rng(0).standard_normal((100, 100)))
    whole = path.read_bytes()
    flipped = whole[:40_000] + bytes([whole[40_000] ^ 1]) + whole[40_001:]
    for content in (b"", whole[:1000], whole[:-1000], flipped):
        path.write_bytes(content)
        assert fault(read_npy([path], 4000)).startswith(f"{path}: ")


@pytest.mark.slow("measures memory in a process of its own")
@pytest.mark.parametrize("form", ["rows", "columns", "compressed", "sparse"])
def test_npz_of_100_mb_in_little_memory(tmp_path: Path, form: str) -> None:
    """A few pieces at a time, however large the members are."""
    path, value = tmp_path / "t.npz", np.arange(12_500_000) % 997.0 + 1
    if form == "sparse":
        sp.save_npz(path, sp.csr_array((value, np.arange(len(value)) % 100, np.arange(0, len(value) + 1, 100))), False)
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


@pytest.mark.parametrize("what", HEADERS)
def test_hostile_headers(tmp_path: Path, what: str) -> None:
    """One error that names the file, in either kind of file; nothing is evaluated, no memory is taken."""
    (tmp_path / "X.npy").write_bytes(HEADERS[what])
    assert fault(read_npy([tmp_path / "X.npy"])).startswith(f"{tmp_path / 'X.npy'}: ")
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("X.npy", HEADERS[what])
    assert fault(read_npy([tmp_path / "t.npz"])).startswith(f"{tmp_path / 't.npz'}: X: ")


def test_a_file_that_is_longer_than_its_header_tells(tmp_path: Path) -> None:
    """Rows behind the array would be lost."""
    path = tmp_path / "X.npy"
    np.save(path, np.ones((2, 2)))
    path.write_bytes(path.read_bytes() + bytes(16))
    assert fault(read_npy([path])) == (
        f"{path}: is longer than its header says: an array float64 (2, 2) takes 160 bytes, the file has 176"
    )


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"X": np.ones((2, 2, 2))}, "X: an array float64 (2, 2, 2) is neither rows and columns"),
        ({"X": [[1], [2]], "y": np.array([b"a", b"\xff"])}, "y: row 1 (counted from 1): some labels are not text"),
        (
            {"X": [[1], [2]], "y": np.array([65, 0xD800], np.uint32).view("U1")},
            "y: row 2 (counted from 1): the label is not valid text",
        ),
        (CSR | {"shape": [2.0, 2.0]}, "X: format csr; save it as a CSR matrix"),
        (CSR | {"shape": [2, 2**31]}, "X: 2,147,483,648 columns; at most 2,147,483,647"),
        (CSR | {"shape": [-2, 2]}, "X: not a CSR matrix of -2 rows"),
        (CSR | {"indices": [0.0, 1.0]}, "X: indices are not whole numbers"),
        (CSR | {"format": np.zeros(10**6, np.uint8)}, "format: an array uint8 (1000000,) is not part of a CSR matrix"),
        ({"X": [["a"]] * 2, "y": [0, 1]}, "X: holds <U1, not numbers"),
    ],
)
def test_values_that_are_none(save: Save, members: dict[str, Any], message: str) -> None:
    path = save(**members)
    assert fault(read_npy([path])).startswith(f"{path}: {message}")


@pytest.mark.parametrize("code", [0xD800, 0x110000, 2**31])
def test_labels_that_are_no_characters(save: Save, code: int) -> None:
    path = save(X=[[1], [2]], y=np.array([65, code], np.uint32).view("U1"))
    assert fault(read_npy([path])) == f"{path}: y: row 2 (counted from 1): the label is not valid text"


@pytest.mark.slow("measures memory in a process of its own")
def test_rows_of_compressed_zeros(tmp_path: Path) -> None:
    """Half a GB in one row, half a MB on disk: refused before it is unpacked."""
    path = tmp_path / "t.npz"
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("X.npy", "w") as file:
        file.write(claim("(1, 67108864)"))
        for _ in range(512):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    found = fault(read_npy([path]))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == f"{path}: X: an array float64 (1, 67108864) has rows of more than 268,435,456 bytes"
    assert most_bytes < 8 << 20


def test_an_array_that_is_there_twice(tmp_path: Path) -> None:
    path, content = tmp_path / "t.npz", claim("(1, 1)") + bytes(8)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", content)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("X.npy", content)
    assert fault(read_npy([path])) == f"{path}: two arrays have the same name"
