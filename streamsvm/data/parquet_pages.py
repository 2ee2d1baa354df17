"""Checks of the page headers of a Parquet file, before pyarrow takes memory for what they claim.

A file of a thousand bytes may claim pages of 2 GB, which pyarrow allocates and reads into for seconds. The footer is
read here, too, because pyarrow's own objects for columns end the process if a statistic in it is damaged. Both are
structs of Thrift's compact protocol; the numbers below are those of the fields in parquet.thrift
(https://github.com/apache/parquet-format).
"""

from __future__ import annotations

import os
from typing import IO, Any

MOST_PAGE_BYTES = 1 << 28  # writers make pages of about a MiB
MOST_HEADER_BYTES = 1 << 20  # a header may hold the least and the greatest value
MOST_DEPTH = 16

_ROW_GROUPS = 4  # of FileMetaData
_COLUMNS, _NUM_ROWS = 1, 3  # of RowGroup
_META_DATA = 3  # of ColumnChunk
_PATH, _TOTAL_COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 7, 9, 11  # of ColumnMetaData
_UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8  # of PageHeader; 1 is the number of values
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


def check_pages(file: IO[bytes], columns: set[str]) -> None:
    """Raise ValueError if the pages of one of these columns do not fit into its bytes, or are too large."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - 8))
    footer_bytes = int.from_bytes(file.read(4), "little")
    if footer_bytes > size - 8:
        raise ValueError("the footer is truncated")
    file.seek(size - 8 - footer_bytes)
    try:
        footer, _ = _read_struct(file.read(footer_bytes), 0, 0)
    except IndexError:
        raise ValueError("the footer is damaged") from None
    for group in _get_structs(footer, _ROW_GROUPS):
        for chunk in _get_structs(group, _COLUMNS) if _get_int(group, _NUM_ROWS) else ():
            about = chunk.get(_META_DATA)
            path = about.get(_PATH) if isinstance(about, dict) else None
            if isinstance(about, dict) and isinstance(path, list) and len(path) == 1 and isinstance(path[0], bytes):
                name = path[0].decode(errors="replace")
                if name in columns:
                    _check_column(file, about, _get_int(group, _NUM_ROWS), name, size)


def _check_column(file: IO[bytes], about: dict[int, Any], n_rows: int, name: str, size: int) -> None:
    """Check the header of every page of one column of a row group."""
    offsets = [about[field] for field in (_DATA_OFFSET, _DICTIONARY_OFFSET) if isinstance(about.get(field), int)]
    start = min((offset for offset in offsets if offset > 0), default=0)
    end = start + _get_int(about, _TOTAL_COMPRESSED)
    if not 0 < start <= end <= size:
        raise ValueError(f"column {name} lies outside of the file")
    while start < end:
        header, length = _read_header(file, start, end, name)
        unpacked, compressed = _get_int(header, _UNCOMPRESSED), _get_int(header, _COMPRESSED)
        n_values = _count_values(header)
        if not 0 <= compressed <= end - start - length or not 0 <= unpacked <= MOST_PAGE_BYTES:
            raise ValueError(f"column {name} has a page of {compressed:,} bytes, {unpacked:,} unpacked")
        most = unpacked if _DICTIONARY in header else n_rows
        if not 0 <= n_values <= most:
            raise ValueError(f"column {name} has a page of {n_values:,} values, where there are at most {most:,}")
        start += length + compressed


def _read_header(file: IO[bytes], start: int, end: int, name: str) -> tuple[dict[int, Any], int]:
    """Return the header of the page that begins at `start`, and its length."""
    header_bytes = 256
    while True:
        file.seek(start)
        head = file.read(min(header_bytes, end - start))
        try:
            return _read_struct(head, 0, 0)
        except IndexError:
            if header_bytes >= min(MOST_HEADER_BYTES, end - start):
                raise ValueError(f"column {name} has a damaged page header") from None
        header_bytes *= 16


def _count_values(header: dict[int, Any]) -> int:
    """Return the number of values of a page of data or of a dictionary; 0 for other pages."""
    for part in (_DATA, _DICTIONARY, _DATA_2):
        if isinstance(header.get(part), dict):
            return _get_int(header[part], 1)
    return 0


def _get_int(found: dict[int, Any], field: int) -> int:
    """Return the whole number of a field; -1 if it holds none."""
    value = found.get(field)
    return value if isinstance(value, int) else -1


def _get_structs(found: dict[int, Any], field: int) -> list[dict[int, Any]]:
    """Return the structs in the list of a field."""
    values = found.get(field)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the values of a struct by their fields, and where it ends. Raises IndexError if the data end before."""
    found: dict[int, Any] = {}
    field = 0
    while kind := data[at]:
        field, at = (field + (kind >> 4), at + 1) if kind >> 4 else _read_integer(data, at + 1)
        found[field], at = _read_value(data, at, kind & 15, depth)
    return found, at + 1


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a number, bytes, a list, a struct, or None for values that are not needed, and where the value ends."""
    if depth > MOST_DEPTH:
        raise ValueError("the file is damaged: structs are nested without end")
    if kind in _INTEGERS:
        return _read_integer(data, at)
    if kind in _BOOLEANS:
        return None, at
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    if kind == _BINARY:
        length, at = _read_varint(data, at)
        return data[at : at + length], at + length
    if kind == _STRUCT:
        return _read_struct(data, at, depth + 1)
    if kind in _LISTS:
        return _read_list(data, at, depth)
    raise ValueError("the file is damaged: a struct holds a value of no known kind")


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    count, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = _read_varint(data, at)
    values = []
    for _ in range(count):
        value, at = _read_value(data, at + (kind in _BOOLEANS), kind, depth + 1)
        if at > len(data):
            raise IndexError
        values.append(value)
    return values, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("the file is damaged: a number has no end")


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    """Return a number that has its sign in the lowest bit, and where it ends."""
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at
