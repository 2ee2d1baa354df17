"""Pages of Parquet that claim more than there is: refused before pyarrow takes memory for them."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.data.sources.arrow import MOST_PAGE_BYTES, _Thrift
from streamsvm.data.tables.columns import Columns
from tests.data.pieces import fault_in, listed, read_parquet

OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "none"},
    {"compression": "zstd", "data_page_version": "2.0"},
    {"use_dictionary": False},
    {"row_group_size": 100},
    {"data_page_size": 64, "write_batch_size": 10},
    {"write_page_checksum": True},
    {"write_statistics": False},
    {"compression": "gzip", "version": "1.0"},
    {"write_page_index": True},
]


def zigzag(number: int) -> bytes:
    """A number in Thrift's compact protocol."""
    value, found = (number << 1) ^ (number >> 63), b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


@pytest.mark.parametrize("options", OPTIONS)
def test_what_pyarrow_writes_is_read(tmp_path: Path, options: dict[str, Any]) -> None:
    path, values = tmp_path / "t.parquet", np.random.default_rng(0).normal(size=1000)
    table = {"y": [f"{i % 3}{'w' * 200}" for i in range(1000)], "a": values, "b.c": np.arange(1000), "d": values > 0}
    pq.write_table(pa.table(table), path, **options)
    read = listed(read_parquet([path], Columns()))
    assert read["labels"] == table["y"]
    np.testing.assert_array_equal(np.array(read["X"], np.float32)[:, 0], values.astype(np.float32))


def page_header(uncompressed: int, compressed: int, n_values: int) -> bytes:
    """Of a plain data page."""
    inside = b"\x15" + zigzag(n_values) + b"\x15\x00\x15\x06\x15\x06\x1c\x00\x00"
    return b"\x15\x00\x15" + zigzag(uncompressed) + b"\x15" + zigzag(compressed) + b"\x2c" + inside + b"\x00"


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((2**31 - 1, 80, 10), "column a has a page of 80 bytes, 2,147,483,647 unpacked"),
        ((MOST_PAGE_BYTES + 1, 80, 10), "column a has a page of 80 bytes, 268,435,457 unpacked"),
        ((80, 2**31 - 1, 10), "column a has a page of 2,147,483,647 bytes, 80 unpacked"),
        ((80, -1, 10), "column a has a page of -1 bytes"),
        ((-5, 80, 10), "column a has a page of 80 bytes, -5 unpacked"),
        ((80, 80, 2**31 - 1), "column a: a page claims 2,147,483,647 values, but at most 10 are possible"),
        ((80, 80, -1), "column a: a page claims -1 values"),
    ],
)
def test_claims(tmp_path: Path, sizes: tuple[int, int, int], reason: str) -> None:
    """Written over the only page of a column, of ten float64."""
    path = tmp_path / "t.parquet"
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"a": np.arange(10.0), "y": np.arange(10) % 2}), path, **plain)
    content, start = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0).data_page_offset
    file = io.BytesIO(content[start:])
    _Thrift(file, len(content)).read_struct()
    assert content[start : start + file.tell()] == page_header(86, 86, 10), "the header is as this test knows it"
    changed = page_header(*sizes)
    path.write_bytes(content[:start] + changed + content[start + len(changed) :])
    assert fault_in(read_parquet([path], Columns()), path).startswith(reason)


def test_headers_of_noise_end() -> None:
    """No header makes the reader run on, or end in another error."""
    rng = random.Random(0)
    for _ in range(3000):
        data = rng.randbytes(rng.randrange(1, 60))
        with suppress(ValueError, IndexError):
            _Thrift(io.BytesIO(data), len(data)).read_struct()
