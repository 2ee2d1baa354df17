"""The reader of Parquet files, which pyarrow reads a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.parquet_pages import check_pages
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.tables import Columns, TableLayout, fill_float32, import_pyarrow, lay_out
from streamsvm.data.values import Place, Vector, find_feature_fault, has_number_labels, to_source_rows
from streamsvm.errors import InputError, say_count

_PIECE_BYTES = 64 << 20  # of a piece as float64, however many columns it has
# By default pyarrow holds a whole row group in memory, which may be a whole file.
_READ_OPTIONS = {"pre_buffer": False, "buffer_size": 1 << 16, "page_checksum_verification": True}


def read_parquet(paths: Sequence[str | Path], columns: Columns, piece_rows: int = 65536) -> Iterator[SourceRows]:
    """Yield the rows of Parquet files, at most `piece_rows` and 64 MiB at a time.

    The index columns that pandas writes are left out. Labels are float64 if their column is of numbers, otherwise str.
    Raises InputError with file, row (from 1), column and reason, or file and reason.
    """
    pyarrow, parquet = import_pyarrow("pyarrow"), import_pyarrow("pyarrow.parquet")
    names: tuple[str, ...] | None = None
    numbers: bool | None = None
    for path in map(str, paths):
        n_rows = 0
        try:
            with (
                open(path, "rb") as pages,
                open(path, "rb") as opened,
                parquet.ParquetFile(opened, **_READ_OPTIONS) as file,
            ):
                layout = lay_out(tuple(file.schema_arrow.names), path, columns, names)
                names = layout.names
                wanted = [names[j] for j in (*layout.features, *layout.vectors.values())]
                check_pages(pages, set(wanted))
                most_rows = max(1, min(piece_rows, _PIECE_BYTES // (8 * len(wanted))))
                for batch in file.iter_batches(most_rows, columns=wanted):
                    rows = _read_batch(batch, layout, n_rows, numbers)
                    numbers = has_number_labels(rows)
                    n_rows += rows.n_rows
                    yield rows
                if n_rows != file.metadata.num_rows:
                    raise InputError(
                        f"{path}: it holds {say_count(n_rows, 'row')}, but its footer says {file.metadata.num_rows:,}"
                    )
        except InputError:
            raise
        except (OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise InputError(f"{path}: {reason}") from error
        if n_rows == 0:
            raise InputError(f"{path}: no rows")


def _read_batch(batch: Any, layout: TableLayout, n_before: int, numbers: bool | None) -> SourceRows:
    """Convert a piece of Parquet, before which `n_before` rows were read. Raises InputError for a bad value."""

    def place(name: str) -> Place:
        return lambda i: f"{layout.where}: row {n_before + i + 1}, column {name}"

    names = layout.feature_names
    X = fill_float32([_read_numbers(batch.column(name), layout.where, name) for name in names])
    bad = ~np.isfinite(X)
    if bad.any():
        i, k = divmod(int(np.argmax(bad)), X.shape[1])
        raise InputError(f"{place(names[k])(i)}: {find_feature_fault(batch.column(names[k])[i].as_py())}")
    vectors = {}
    for role, j in layout.vectors.items():
        name = layout.names[j]
        column = batch.column(name)
        if role == "label":
            column = column.cast("float64" if _is_number(column.type) else "string")
        vectors[role] = (column.to_numpy(zero_copy_only=False), place(name))
    return to_source_rows(X, vectors, names, numbers)


def _read_numbers(column: Any, where: str, name: str) -> Vector:
    """Return the values of a column as float64, with nan for missing ones."""
    if not _is_number(column.type):
        raise InputError(f"{where}: column {name}: {column.type} is not a number")
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))


def _is_number(arrow_type: Any) -> bool:
    types = import_pyarrow("pyarrow").types
    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(is_kind(arrow_type) for is_kind in kinds)
