"""Tables that are written as Parquet, some rows at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Self

from streamsvm.data.tables import import_pyarrow


class ParquetOutput:
    """An open file of Parquet, whose columns are those of the first rows. Rows that are appended become a group."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None
        import_pyarrow("pyarrow.parquet")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def append(self, columns: Mapping[str, Any]) -> None:
        """Write some rows: arrays of numbers or texts, or lists of such arrays, all of the same length."""
        table = import_pyarrow("pyarrow").table({name: _to_arrow(values) for name, values in columns.items()})
        if self._writer is None:
            self._writer = import_pyarrow("pyarrow.parquet").ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)


def _to_arrow(values: Any) -> Any:
    pyarrow = import_pyarrow("pyarrow")
    if not isinstance(values, list):
        return pyarrow.array(values)
    lists: list[Any] = [each.tolist() for each in values]
    kind = pyarrow.string() if values[0].dtype.kind == "U" else pyarrow.from_numpy_dtype(values[0].dtype)
    return pyarrow.array(lists, pyarrow.list_(kind))
