"""Scratch files: rows that a pass sets aside, so that later passes need not read the data for them.

A file holds rows of one group of chunks, in blocks: those of one tile are one block, with the rows' numbers and a
CRC-32C. It appears under its name when it is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError, IntegrityError, WriteError
from streamsvm.files import name_partial, remove_partials
from streamsvm.numeric.rows import I64, CsrRows, Rows

CRC_BYTES = 4
HEADER = 4  # numbers at the start of a block: rows, features, stored values (-1: dense rows), whether there are weights


@contextmanager
def make_scratch_folder(parent: str | Path, owner: str) -> Iterator[Path]:
    """Make a folder for scratch files, and remove it at the end.

    owner: the run, by which folders that a killed process left are known, and removed as well; "" for none. The caller
    must hold the lock of the run. Raises InputError if there is no folder `parent`, or if it cannot be written to.
    """
    name = f"streamsvm-scratch-{sha256(owner.encode()).hexdigest()[:16]}"
    folder = name_partial(Path(parent) / name)
    if not Path(parent).is_dir():
        raise InputError(f"scratch {parent}: no such folder")
    if owner:
        remove_partials(Path(parent), name)
    try:
        folder.mkdir()
    except OSError as error:
        raise InputError(f"scratch {parent}: cannot be written to: {error.strerror}") from error
    try:
        yield folder
    finally:
        removed = name_partial(Path(parent) / name)  # tasks that have been given up find no folder any more
        with suppress(FileNotFoundError):
            folder.rename(removed)
            shutil.rmtree(removed)


class ScratchWriter:
    """Writes the rows of a group, until they are more than `most_rows`; then nothing is kept of them.

    written_bytes: what was written, whether it is kept or not.
    """

    def __init__(self, path: Path, most_rows: int) -> None:
        self.path, self.partial, self.room = path, name_partial(path), most_rows
        self.written_bytes = self.n_rows = 0
        if not path.parent.is_dir():
            raise InputError(f"{path.parent}: no such folder; all tasks have to share the folder for scratch files")
        try:
            self._file: BinaryIO | None = self.partial.open("xb")
        except OSError as error:
            raise self._explain(error) from error

    def append(self, rows: Rows, numbers: I64) -> None:
        """Write rows of one tile, which have labels."""
        self.room -= rows.n_rows
        if self._file is None or rows.n_rows == 0:
            return
        if self.room < 0:
            self.close()
            return
        weight, X = rows.sample_weight, rows.X
        n_values = len(X.data) if isinstance(X, CsrRows) else -1
        header = np.array([rows.n_rows, X.shape[1], n_values, weight is not None], np.int64)
        parts: list[npt.NDArray[Any]] = [header, numbers, np.asarray(rows.y, np.int32)]
        parts += [] if weight is None else [weight]
        parts += [X.data, X.indices, X.indptr] if isinstance(X, CsrRows) else [X]
        crc, self.n_rows = google_crc32c.value(self.path.name.encode()), self.n_rows + rows.n_rows
        for part in parts:
            content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            crc = google_crc32c.extend(crc, content)
            self._write(content.data)
        self._write(crc.to_bytes(CRC_BYTES, "little"))

    def finish(self) -> None:
        """Mark the end of the file and give it its name, if all rows had room."""
        if self._file is not None:
            self._write(_make_end(self.path, self.n_rows))
            try:
                self._file.close()
                self.partial.replace(self.path)
            except OSError as error:
                raise self._explain(error) from error
            self._file = None

    def close(self) -> None:
        """Remove what is not finished."""
        if self._file is not None:
            with suppress(OSError):  # a full disk is told where the file is written
                self._file.close()
            self._file = None
        with suppress(FileNotFoundError):
            self.partial.unlink()

    def _write(self, content: Any) -> None:
        assert self._file is not None
        try:
            self.written_bytes += self._file.write(content)
        except OSError as error:
            raise self._explain(error) from error

    def _explain(self, error: OSError) -> WriteError:
        return WriteError(f"{self.path}: cannot be written: {error.strerror or error}")


def read_scratch(path: Path) -> Iterator[Rows]:
    """Yield the rows of each block of a file. Raises IntegrityError if a block is damaged, or the end is missing."""
    n_rows = 0
    with path.open("rb") as file:
        while (head := file.read(8 * HEADER)) != _make_end(path, n_rows):
            if len(head) < 8 * HEADER:
                raise IntegrityError(f"{path}: the scratch file is cut short")
            rows = _read_block(file, path, head)
            n_rows += rows.n_rows
            yield rows
        if file.read(1):
            raise IntegrityError(f"{path}: the scratch file is damaged: something follows its end")


def _make_end(path: Path, n_rows: int) -> bytes:
    """Return what follows the last block, which is bound to the file's name and its rows; every block has rows."""
    name = google_crc32c.value(path.name.encode())
    return np.array([0, n_rows, 0, name], np.int64).tobytes()


def _read_block(file: BinaryIO, path: Path, head: bytes) -> Rows:
    n_rows, d, n_values, has_weights = np.frombuffer(head, np.int64).tolist()
    crc = google_crc32c.extend(google_crc32c.value(path.name.encode()), head)

    def load(dtype: Any, count: int) -> npt.NDArray[Any]:
        nonlocal crc
        try:
            values = np.empty(count, dtype)
            n_read = file.readinto(values.view(np.uint8))  # type: ignore[attr-defined]
        except (ValueError, MemoryError):  # a damaged header asks for sizes that make no sense
            n_read, values = -1, np.empty(0, np.uint8)
        if n_read != values.nbytes:
            raise IntegrityError(f"{path}: the scratch file is damaged or cut short")
        crc = google_crc32c.extend(crc, values.view(np.uint8))
        return values

    numbers, y = load(np.int64, n_rows), load(np.int32, n_rows)
    weight = load(np.float64, n_rows) if has_weights else None
    if n_values < 0:
        X: Any = load(np.float32, n_rows * d).reshape(n_rows, d)
    else:
        X = CsrRows(load(np.float32, n_values), load(np.int32, n_values), load(np.int64, n_rows + 1), d)
    if int.from_bytes(file.read(CRC_BYTES), "little") != crc:
        raise IntegrityError(f"{path}: the scratch file is damaged (its checksum is wrong)")
    return Rows(-1, X, y, weight, numbers=numbers)
