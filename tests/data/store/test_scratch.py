"""Scratch files: what was written is read, and a file that is not whole is an error that names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.store.shared_files import ScratchWriter, read_scratch
from streamsvm.numeric.rows import Rows
from streamsvm.system.errors import IntegrityError


def write(path: Path, n_blocks: int) -> list[int]:
    """Write blocks of three rows; return the size of the file after each of them."""
    writer, sizes = ScratchWriter(path, 100), []
    for k in range(n_blocks):
        X = np.full((3, 2), k, np.float32)
        writer.append(Rows(3 * k, X, np.ones(3, np.int32)))
        sizes.append(writer.written_bytes)
    writer.finish()
    return sizes


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "rows", 3)
    blocks = list(read_scratch(tmp_path / "rows"))
    assert [int(rows.X[0, 0]) for rows in blocks] == [0, 1, 2]  # type: ignore[index]


@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_rows_that_are_missing_are_missed(block: int, more: int, tmp_path: Path) -> None:
    """Also where the file ends with a block: nothing else would tell that rows followed."""
    path = tmp_path / "rows"
    size = write(path, 3)[block]
    path.write_bytes(path.read_bytes()[: size + more])
    with pytest.raises(IntegrityError, match="rows: the scratch file is"):
        list(read_scratch(path))


@pytest.mark.parametrize("n_blocks", [0, 2])
def test_the_file_of_others_is_an_error(n_blocks: int, tmp_path: Path) -> None:
    write(tmp_path / "other", n_blocks)
    (tmp_path / "other").rename(tmp_path / "rows")
    with pytest.raises(IntegrityError, match="rows: the scratch file is"):
        list(read_scratch(tmp_path / "rows"))


def test_what_follows_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write(path, 1)
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(IntegrityError, match="bytes follow its end"):
        list(read_scratch(path))
