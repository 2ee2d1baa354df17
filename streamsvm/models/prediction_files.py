"""Files of predictions: CSV, which may also be standard output, Parquet, NumPy's .npy, and a group of Zarr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import zarr

from streamsvm.data.csv_cells import write_cell
from streamsvm.data.destination import check_destination, check_file, new_file, new_folder
from streamsvm.data.parquet_output import ParquetOutput
from streamsvm.errors import InputError
from streamsvm.models.model import Model
from streamsvm.models.predictions import Arrays, Wanted, choose_arrays, choose_columns, fit_rows, gather, tabulate

ZARR_CHUNK_VALUES = 1 << 18
PARQUET_ROWS = 1 << 16  # of a group of rows, at least
EMPTY_CELL = '""'  # a line without a character would be no row to many readers
ENDINGS = ".csv, .parquet, .npy or .zarr"
STANDARD_OUTPUT = "-"

Write = Callable[[Iterator[Arrays]], int]


def choose_writer(model: Model, out: Path, wanted: Wanted, overwrite: bool) -> Write:
    """Return the function that writes predictions to a file of this name, and returns the number of rows.

    Raises InputError, before rows are read, for a file that cannot be written or cannot hold what is wanted.
    """
    if str(out) == STANDARD_OUTPUT:
        choose_columns(model, wanted)
        return partial(_write_csv, model, wanted, lambda: nullcontext(sys.stdout.buffer))
    writers: dict[str, Callable[..., int]] = {
        ".csv": partial(_write_csv, model, wanted, partial(new_file, out)),
        ".parquet": partial(_write_parquet, model, wanted, out),
        ".npy": partial(_write_npy, model, wanted, out),
        ".zarr": partial(_write_zarr, model, wanted, out, overwrite),
    }
    ending = out.suffix.lower()
    if ending not in writers:
        raise InputError(f"{out}: the name must end in {ENDINGS}, or be - for standard output")
    if ending in (".npy", ".zarr"):
        _check_arrays(model, out, wanted)
    else:
        choose_columns(model, wanted)
    if ending == ".zarr":
        check_destination(out, overwrite)
    else:
        check_file(out, overwrite=True)
    return writers[ending]


def _check_arrays(model: Model, out: Path, wanted: Wanted) -> None:
    """Raise InputError for what is wanted of arrays, which have the rows in their order, and hold no table."""
    if wanted.row_numbers:
        raise InputError(f"{out}: its rows are in their order, without numbers; for these choose .csv or .parquet")
    choose_arrays(model, wanted)
    is_one = len(wanted.columns) <= 1 and wanted.columns != ("name",)
    if out.suffix.lower() == ".npy" and not (is_one and wanted.probabilities == (wanted.columns == ("probability",))):
        raise InputError(
            f"{out}: a .npy file holds one array: labels, or what --columns names (score or probability); for more "
            "choose .csv, .parquet or .zarr"
        )


def _write_csv(
    model: Model, wanted: Wanted, open_file: Callable[[], AbstractContextManager[BinaryIO]], parts: Iterator[Arrays]
) -> int:
    n_rows = 0
    cells = np.array([write_cell(label) for label in model.classes.tolist()])
    with open_file() as file:
        for arrays in parts:
            if "name" in arrays:
                arrays["name"] = np.array([write_cell(name) for name in arrays["name"].tolist()], object)
            table = tabulate(model, arrays, wanted, cells)
            if not n_rows:
                file.write(f"{','.join(map(write_cell, table))}\n".encode())
            columns = map(_write_cells, table.values())
            file.write("".join(f"{','.join(line)}\n" for line in zip(*columns, strict=True)).encode())
            n_rows += len(arrays["score"])
    return n_rows


def _write_cells(values: Any) -> list[str]:
    """Return the cells of a column of numbers, of written cells, or of lists of such cells."""
    if isinstance(values, list):
        return [" ".join(each.tolist()) or EMPTY_CELL for each in values]
    if values.dtype.kind == "f":
        return [f"{value:.9g}" for value in values.tolist()]
    return list(map(str, values.tolist()))


def _write_parquet(model: Model, wanted: Wanted, out: Path, parts: Iterator[Arrays]) -> int:
    n_rows = 0
    with new_file(out) as file, ParquetOutput(file) as output:
        for arrays in gather(parts, fit_rows(PARQUET_ROWS, model.score_shape)):
            output.append(tabulate(model, arrays, wanted, model.classes))
            n_rows += len(arrays["score"])
    return n_rows


def _write_npy(model: Model, wanted: Wanted, out: Path, parts: Iterator[Arrays]) -> int:
    n_rows, about, shape = 0, {}, (0,)
    name = next(iter(wanted.columns), "label" if model.problem.predicts_labels else "score")
    with new_file(out) as file:
        for arrays in parts:
            are_codes = name == "label" and (wanted.top is not None or not model.problem.has_label_sets)
            values = model.classes[arrays[name]] if are_codes else arrays[name]
            if not n_rows:
                about = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False}
                shape = values.shape
                np.lib.format.write_array_header_1_0(file, {**about, "shape": (0, *shape[1:])})
            file.write(values.tobytes())  # `tofile` misses a full disk
            n_rows += len(values)
        file.seek(0)  # the header leaves room for a larger number of rows
        np.lib.format.write_array_header_1_0(file, {**about, "shape": (n_rows, *shape[1:])})
    return n_rows


def _write_zarr(model: Model, wanted: Wanted, out: Path, overwrite: bool, parts: Iterator[Arrays]) -> int:
    chosen, n_rows = choose_arrays(model, wanted), 0
    written: dict[str, zarr.Array[Any]] = {}
    with new_folder(out, overwrite) as folder:
        group = zarr.open_group(str(folder), mode="w", zarr_format=3)
        group.attrs["classes"] = model.classes.tolist()
        for arrays in gather(parts, fit_rows(ZARR_CHUNK_VALUES, model.score_shape)):
            for name in chosen:
                if name not in arrays:
                    continue
                values = arrays[name]
                if name not in written:
                    width = values.shape[1:]
                    chunks = (fit_rows(ZARR_CHUNK_VALUES, width), *width)
                    dtype: Any = str if name == "name" else values.dtype
                    written[name] = group.create_array(name, shape=(0, *width), chunks=chunks, dtype=dtype)
                written[name].append(values)
            n_rows += len(arrays["score"])
    return n_rows
