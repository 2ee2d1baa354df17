"""The problems of the comparison, and their rows as plain arrays in a folder that every trainer's process reads.

The folder of a problem contains problem.json; rows.vw, the text for Vowpal Wabbit; rows.zarr, if the rows are read from
the disk; and the folders train/ and test/, with y.npy (-1 or +1) and with X.npy (float32, dense) or data.npy,
indices.npy and indptr.npy (CSR).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import norm
from sklearn.datasets import dump_svmlight_file

import streamsvm
from pipelines.data import DataFolder, narrow_indices, read_covertype, read_svmlight

Matrix: TypeAlias = npt.NDArray[np.float32] | csr_array
Labels = npt.NDArray[np.int8]
Part = tuple[Matrix, Labels]
ARRAYS = ("data", "indices", "indptr")
TEST_ROWS = 20_000  # the number of test rows, if the rows are generated
BLOCK_ROWS = 1 << 16
MOST_HUNDREDTHS = 999  # values on the disk have two decimals and absolute values below 10, so that their text is short


@dataclass(frozen=True)
class Problem:
    """The objective that all trainers minimise, and its rows.

    Attributes
    ----------
    C : float
        Cost of a row.
    gamma : float or None
        Parameter of the Gaussian kernel; None for a linear problem.
    memory : int or None
        Memory limit in bytes if the rows are on the disk; None if they are in memory.
    files : tuple of str
        The text files of the training and test rows; empty if the rows are generated.
    """

    key: str
    title: str
    C: float
    gamma: float | None = None
    memory: int | None = None
    files: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the problem, which selects the trainers."""
        return "kernel" if self.gamma is not None else "linear"


@dataclass(frozen=True)
class Sizes:
    """The number of generated rows, and the maximum number of rows that are used from a file."""

    most_rows: int | None = None
    text_rows: int = 200_000
    disk_bytes: float = 2e9
    disk_features: int = 64


SMALL = Sizes(most_rows=1500, text_rows=1500, disk_bytes=1e6)
PROBLEMS = (
    Problem("a9a", "Adult (a9a), C = 0.05", 0.05, files=("a9a", "a9a.t")),
    Problem("covtype", "Covertype, class 1, C = 1", 1.0, files=("covtype.csv",)),
    Problem("text", "text, generated, C = 1", 1.0),
    Problem("disk", "dense rows on the disk, C = 0.001", 0.001, memory=600 * 10**6),
    Problem("a9a-rbf", "Adult (a9a), exp(-0.05 d²), C = 1", 1.0, 0.05, files=("a9a", "a9a.t")),
    Problem("ijcnn1-rbf", "ijcnn1, exp(-2 d²), C = 32", 32.0, 2.0, files=("ijcnn1.trn", "ijcnn1.tst")),
)


def prepare(problem: Problem, data: DataFolder, folder: Path, sizes: Sizes) -> bool:
    """Write the folder of a problem unless it exists. Return False if a file of the problem is missing."""
    if (folder / "problem.json").exists():
        return True
    files = data.find_all(*problem.files)
    if files is None:
        return False
    shutil.rmtree(folder, ignore_errors=True)  # a killed call may have left an incomplete folder
    if problem.memory is not None:
        write_disk(folder, sizes)
    else:
        parts = READERS[problem.key](files, sizes)
        write_parts(folder, parts)
        if problem.kind == "linear" and find_spec("vowpalwabbit") is not None:
            write_text(folder / "rows.vw", *parts[0])
    (folder / "problem.json").write_text(json.dumps(asdict(problem)))  # written last, as the mark of a complete folder
    return True


def open_problem(folder: Path) -> Problem:
    """Return the problem whose folder this is."""
    found = json.loads((folder / "problem.json").read_text())
    return Problem(**{**found, "files": tuple(found["files"])})


def read_chunk(folder: Path, at: int, n: int) -> Part:
    """Return n dense rows from row `at` on, and their labels. No other part of the file stays in memory."""
    X, y = read_rows(folder, mapped=True)
    return np.array(X[at : at + n]), y[at : at + n]


def read_rows(folder: Path, mapped: bool = False) -> Part:
    """Return rows and labels. If dense rows are mapped, they stay on the disk until they are accessed."""
    y = np.load(folder / "y.npy")
    if (folder / "X.npy").exists():
        return np.load(folder / "X.npy", mmap_mode="r" if mapped else None), y
    data, indices, indptr = (np.load(folder / f"{name}.npy") for name in ARRAYS)
    return csr_array((data, indices, indptr), (len(y), json.loads((folder / "width.json").read_text()))), y


def count_bytes(X: Matrix) -> int:
    """Return the bytes that one read of the rows takes."""
    return int(X.data.nbytes + X.indices.nbytes if isinstance(X, csr_array) else X.nbytes)


def write_parts(folder: Path, parts: tuple[Part, ...]) -> None:
    """Write the training rows and, if there are any, the test rows."""
    for name, (X, y) in zip(("train", "test"), parts, strict=False):
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / "y.npy", y)
        if isinstance(X, csr_array):
            for array in ARRAYS:
                np.save(folder / name / f"{array}.npy", getattr(X, array))
            (folder / name / "width.json").write_text(json.dumps(X.shape[1]))
        else:
            np.save(folder / name / "X.npy", X)


def write_text(path: Path, X: Matrix, y: Labels) -> None:
    """Write rows as Vowpal Wabbit's lines `label | feature:value ..`, with a last feature that is 1."""
    with path.open("wb") as file:
        for at in range(0, len(y), BLOCK_ROWS):
            lines = BytesIO()
            dump_svmlight_file(csr_array(X[at : at + BLOCK_ROWS]), y[at : at + BLOCK_ROWS], lines)
            one = b" %d:1\n" % X.shape[1]
            file.writelines(line.rstrip(b"\n").replace(b" ", b" | ", 1) + one for line in lines.getvalue().splitlines())


def write_disk(folder: Path, sizes: Sizes) -> None:
    """Generate rows block by block: normal features with scales from 1 to 0.1, and a tenth of the labels flipped."""
    n, d = int(sizes.disk_bytes / 4 / sizes.disk_features), sizes.disk_features
    test = draw_block(0, min(n, TEST_ROWS), d)
    (folder / "train").mkdir(parents=True, exist_ok=True)
    X = np.lib.format.open_memmap(folder / "train" / "X.npy", "w+", np.float32, (n, d))
    y = np.empty(n, np.int8)
    with (folder / "rows.vw").open("wb") as text:
        for block, at in enumerate(range(0, n, BLOCK_ROWS), 1):
            part = slice(at, min(at + BLOCK_ROWS, n))
            X[part], y[part] = draw_block(block, part.stop - at, d)
            if find_spec("vowpalwabbit") is not None:
                text.write(format_block(X[part], y[part]))
    X.flush()
    np.save(folder / "train" / "y.npy", y)
    (folder / "test").mkdir(exist_ok=True)
    np.save(folder / "test" / "X.npy", test[0])
    np.save(folder / "test" / "y.npy", test[1])
    streamsvm.ingest(X, folder / "rows.zarr", y, shuffle=None)  # the rows are already in random order


def draw_block(block: int, n: int, d: int) -> tuple[npt.NDArray[np.float32], Labels]:
    """Return the rows of a block. Every block has a separate random generator, and all blocks share the same truth."""
    truth, random = np.random.default_rng((0, 0)).standard_normal(d), np.random.default_rng((0, 1, block))
    values = 100 * random.standard_normal((n, d), np.float32) * np.geomspace(1, 0.1, d, dtype=np.float32)
    X = np.asarray(np.clip(np.rint(values), -MOST_HUNDREDTHS, MOST_HUNDREDTHS) / 100, np.float32)
    flipped = random.random(n) < 0.1
    return X, np.where((X @ truth > 0) ^ flipped, 1, -1).astype(np.int8)


def format_block(X: npt.NDArray[np.float32], y: Labels) -> bytes:
    """Return lines `label | 0:value 1:value ..`.

    For speed, the five characters of each value are looked up in a table.
    """
    values = np.arange(-MOST_HUNDREDTHS, MOST_HUNDREDTHS + 1) / 100
    columns = [np.array([f"{j}:{value:05.2f} " for value in values], "S") for j in range(X.shape[1])]
    places = np.rint(100 * X).astype(np.int32) + MOST_HUNDREDTHS
    head = np.where(y > 0, np.bytes_("+1 | "), np.bytes_("-1 | "))
    cells = [head, *(column[places[:, j]] for j, column in enumerate(columns))]
    end = np.full(len(y), np.bytes_(f"{X.shape[1]}:1\n"))
    blocks = [cell.view(np.uint8).reshape(len(y), -1) for cell in (*cells, end)]
    return np.concatenate(blocks, axis=1).tobytes()


def read_text(width: int) -> Callable[[list[Path], Sizes], tuple[Part, ...]]:
    """Return a function that reads a training file and a test file of the LIBSVM site.

    width: the number of features.
    """

    def read(files: list[Path], sizes: Sizes) -> tuple[Part, ...]:
        parts = (read_svmlight(file, width) for file in files)
        return tuple((X[: sizes.most_rows], to_labels(y[: sizes.most_rows] > 0)) for X, y in parts)

    return read


def to_labels(positive: npt.NDArray[np.bool_]) -> Labels:
    """Return labels: +1 for the rows of the positive class, and -1 for the others."""
    return np.where(positive, 1, -1).astype(np.int8)


def shuffle_covertype(files: list[Path], sizes: Sizes) -> tuple[Part, ...]:
    """Return all rows of Covertype in random order, since the file is sorted. There are no test rows."""
    X, positive = read_covertype(files[0])
    order = np.random.default_rng(0).permutation(len(X))[: sizes.most_rows]
    return ((X[order], to_labels(positive[order])),)


def draw_text(files: list[Path], sizes: Sizes, d: int = 47_000, words: int = 96) -> tuple[Part, ...]:  # noqa: ARG001
    """Generate texts: words by Zipf's law, weighted by log counts and rarity, rows of length 1, and noisy labels."""
    n_test = min(sizes.text_rows, TEST_ROWS)
    n, random = sizes.text_rows + n_test, np.random.default_rng(0)
    share = np.cumsum(1 / (np.arange(d) + 30.0))
    drawn = random.permutation(d)[np.searchsorted(share / share[-1], random.random((n, words)))].astype(np.int32)
    X = csr_array((np.ones(drawn.size, np.float32), drawn.ravel(), np.arange(0, drawn.size + 1, words)), (n, d))
    X.sum_duplicates()
    rarity = np.log(n / (1 + np.bincount(X.indices, minlength=d))).astype(np.float32)
    X.data = (1 + np.log(X.data)) * rarity[X.indices]
    X = narrow_indices(csr_array(diags_array(1 / norm(X, axis=1)) @ X, dtype=np.float32))
    y = np.where(X @ random.standard_normal(d) + 0.3 * random.standard_normal(n) > 0, 1, -1).astype(np.int8)
    return (X[:-n_test], y[:-n_test]), (X[-n_test:], y[-n_test:])


READERS = {
    "a9a": read_text(123),
    "a9a-rbf": read_text(123),
    "ijcnn1-rbf": read_text(22),
    "covtype": shuffle_covertype,
    "text": draw_text,
}
