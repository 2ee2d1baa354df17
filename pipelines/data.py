"""The search for the data files of a story, and readers of these files."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from streamsvm.numeric.rows import F32, CsrRows
from streamsvm.system.errors import InputError

LIBSVM_PAGE = "the LIBSVM site's page 'LIBSVM Data: Classification (Binary Class)'"
COVERTYPE_FEATURES = 54


@dataclass(frozen=True)
class DataFolder:
    """The folder that --data or the variable STREAMSVM_DATA names; None if neither names one."""

    path: Path | None

    def find(self, *names: str) -> Path | None:
        """Return the first of the files that exists, plain or as .xz, in the folder or in a folder below it."""
        if self.path is None:
            return None
        files = (file for name in names for end in ("", ".xz") for file in sorted(self.path.rglob(name + end)))
        return next((file for file in files if file.is_file()), None)

    def find_all(self, *names: str) -> list[Path] | None:
        """Return all files, or None if a file is missing."""
        files = [file for name in names if (file := self.find(name)) is not None]
        return files if len(files) == len(names) else None

    def explain_missing(self, wanted: str) -> InputError:
        """Return the error for a story that has found none of its data.

        wanted: the files to get and their source, in words.
        """
        searched = (
            "neither --data nor the variable STREAMSVM_DATA names a folder"
            if self.path is None
            else f"neither {self.path} nor a folder below it holds the files, plain or as .xz"
        )
        return InputError(f"no data: {searched}. Get {wanted}; put the files into one folder, and pass it as --data")


def open_packed(file: Path) -> IO[bytes]:
    """Open a file, unpacking it if it is an .xz file."""
    return lzma.open(file) if file.suffix == ".xz" else file.open("rb")


@contextmanager
def name_file(file: Path) -> Iterator[None]:
    """Convert errors of reading a file, raised in the block, to an InputError that names the file."""
    try:
        yield
    except (ValueError, EOFError, lzma.LZMAError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def read_svmlight(
    file: Path, n_features: int | None = None, dtype: type[np.floating[Any]] = np.float32
) -> tuple[csr_array, npt.NDArray[np.float64]]:
    """Return the rows and the labels of svmlight text."""
    with name_file(file), open_packed(file) as text:
        X, y = load_svmlight_file(text, n_features=n_features, dtype=dtype)
    return narrow_indices(X), y


def read_numbers(file: Path, dtype: type[np.floating[Any]], skip_lines: int = 0) -> npt.NDArray[Any]:
    """Return the rows of comma-separated numbers."""
    with name_file(file), open_packed(file) as text:
        return np.loadtxt(text, delimiter=",", dtype=dtype, skiprows=skip_lines, ndmin=2)


def read_covertype(file: Path) -> tuple[F32, npt.NDArray[np.bool_]]:
    """Return the rows of Covertype, with columns divided by their maxima, and a flag for each row of class 1."""
    table = read_numbers(file, np.float32, skip_lines=1)
    X = table[:, :COVERTYPE_FEATURES]
    return X / np.maximum(X.max(axis=0), 1), table[:, COVERTYPE_FEATURES] == 1


def narrow_indices(X: csr_array) -> csr_array:
    """Return the rows with 32-bit indices, which LIBSVM requires."""
    return csr_array((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)


def to_scipy(X: F32 | CsrRows) -> F32 | csr_array:
    """Return rows of streamsvm as a NumPy array or a SciPy matrix, for scikit-learn."""
    return csr_array((X.data, X.indices, X.indptr), shape=X.shape) if isinstance(X, CsrRows) else X
