"""Headers of the pages of a Parquet file, looked at before pyarrow takes memory for what they claim.

A file of a thousand bytes may claim pages of 2 GB, which pyarrow allocates and reads into for seconds. Headers are
structs of Thrift's compact protocol (parquet.thrift, PageHeader: 2 and 3 are the sizes, uncompressed and compressed; 5,
7 and 8 the headers of data and dictionary pages, whose 1 is the number of values).
"""

from __future__ import annotations

from typing import IO, Any

MOST_PAGE_BYTES = 1 << 28  # writers make pages of about a MiB
MOST_HEADER_BYTES = 1 << 20  # a header may hold the least and the greatest value
MOST_DEPTH = 8

_UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


def check_pages(file: IO[bytes], group: Any, columns: set[str], file_bytes: int) -> None:
    """Raise ValueError for a column of a row group whose pages do not fit into its bytes, or are too large."""
    for j in range(group.num_columns if group.num_rows else 0):
        chunk = group.column(j)
        if chunk.path_in_schema not in columns:
            continue
        begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        start = min(begin, chunk.data_page_offset)
        end = start + chunk.total_compressed_size
        if not 0 < start <= end <= file_bytes:
            raise ValueError(f"column {chunk.path_in_schema} lies outside of the file")
        _walk(file, start, end, group.num_rows, chunk.path_in_schema)


def _walk(file: IO[bytes], start: int, end: int, n_rows: int, name: str) -> None:
    """Look at the header of every page of a column's bytes."""
    while start < end:
        file.seek(start)
        header_bytes = 256
        while True:
            head = file.read(min(header_bytes, end - start))
            try:
                found, length = _read_struct(head, 0, 0)
                break
            except IndexError:
                if header_bytes >= min(MOST_HEADER_BYTES, end - start):
                    raise ValueError(f"column {name} has a damaged page header") from None
            file.seek(start)
            header_bytes *= 16
        unpacked, compressed, values = _whole(found, _UNCOMPRESSED), _whole(found, _COMPRESSED), _count_values(found)
        if not 0 <= compressed <= end - start - length or not 0 <= unpacked <= MOST_PAGE_BYTES:
            raise ValueError(f"column {name} has a page of {compressed:,} bytes, {unpacked:,} unpacked")
        most = unpacked if _DICTIONARY in found else n_rows
        if not 0 <= values <= most:
            raise ValueError(f"column {name} has a page of {values:,} values, where there are at most {most:,}")
        start += length + compressed


def _count_values(header: dict[int, Any]) -> int:
    """Return the number of values of a page; 0 for a page of another kind."""
    for part in (_DATA, _DICTIONARY, _DATA_2):
        if isinstance(header.get(part), dict):
            return _whole(header[part], 1)
    return 0


def _whole(found: dict[int, Any], field: int) -> int:
    """Return a whole number; -1 if there is none."""
    value = found.get(field)
    return value if isinstance(value, int) else -1


def _read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return whole numbers and structs by their field, and where the struct ends. IndexError for data that end."""
    found: dict[int, Any] = {}
    field = 0
    while kind := data[at]:
        field, at = (field + (kind >> 4), at + 1) if kind >> 4 else _read_integer(data, at + 1)
        value, at = _read_value(data, at, kind & 15, depth)
        if isinstance(value, int | dict):
            found[field] = value
    return found, at + 1


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a number or a struct, None for values of other kinds, and where it ends."""
    if depth > MOST_DEPTH:
        raise ValueError("a page header is damaged: it is nested without end")
    if kind in _BOOLEANS:
        return None, at
    if kind in _INTEGERS:
        return _read_integer(data, at)
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    if kind == _BINARY:
        length, at = _read_varint(data, at)
        return None, at + length
    if kind == _STRUCT:
        return _read_struct(data, at, depth + 1)
    if kind not in _LISTS:
        raise ValueError("a page header is damaged: it holds a value of no known kind")
    count, inner, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = _read_varint(data, at)
    for _ in range(count):
        _, at = _read_value(data, at + (inner in _BOOLEANS), inner, depth + 1)
        if at > len(data):
            raise IndexError
    return None, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return seven bits a byte, the lowest first."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a page header is damaged: a number has no end")


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    """Return a number with its sign in the lowest bit."""
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at
