"""The readers of all kinds of input, and `ingest`, which chooses one and writes its rows as a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.arrays import comes_from, read_arrays
from streamsvm.data.csv_text import read_csv
from streamsvm.data.dataset import Dataset
from streamsvm.data.ingest import IngestOptions, Report, join_names, write_dataset
from streamsvm.data.npy import read_npy
from streamsvm.data.parquet import read_parquet
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.tables import Columns
from streamsvm.data.text import read_svmlight
from streamsvm.errors import InputError
from streamsvm.files import refuse_inputs
from streamsvm.interrupts import caught
from streamsvm.machine import default_threads

COMPRESSED = {".gz": 4, ".bz2": 6, ".xz": 8}  # a guess of how many times larger the text is
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".npy": "npy", ".npz": "npy"}
FORMATS = ("svmlight", "csv", "parquet", "npy")


def ingest(
    source: Any,
    destination: str | Path,
    y: Any = None,
    *,
    sample_weight: Any = None,
    qid: Any = None,
    file_format: str | None = None,
    label: str | None = None,
    header: str = "auto",
    columns: Columns | None = None,
    options: IngestOptions | None = None,
    report: Report = lambda _: None,
    **named: Any,
) -> Dataset:
    """Write files or arrays as a dataset, and open it.

    The rows are streamed, so that memory is bounded. The dataset appears at `destination` whole or not at all.

    Parameters
    ----------
    source : path, list of paths, or array of shape (n_rows, n_features)
        Files of svmlight text, CSV, TSV, Parquet, .npy or .npz ("-" is standard input), or rows: a NumPy array, a SciPy
        sparse matrix, a pandas frame, or a Dask array or frame.
    destination : str or Path
        Path of the new dataset.
    y : array of shape (n_rows,), optional
        Labels of rows that are given as an array.
    sample_weight : array of shape (n_rows,), optional
        Weights of such rows, finite and not negative.
    qid : array of shape (n_rows,), optional
        Whole numbers that tell which query each of such rows belongs to.
    file_format : {"svmlight", "csv", "parquet", "npy"}, optional
        Format of the files. By default their names tell it.
    label : str, optional
        The column of a CSV or Parquet file that holds the labels. By default it is the one named label, target, class
        or y. The labels of a frame are given as `y`: all its columns are features.
    header : {"auto", "yes", "no"}
        Whether the first row of CSV names the columns; "auto" decides by its cells.
    columns : Columns, optional
        The roles of a table's columns, instead of `label` and `header`.
    options : IngestOptions, optional
        Layout, chunk size, codec, scaling and shuffle of the dataset.
    report : callable
        It is called as the rows are read, to show progress.
    **named
        Fields of IngestOptions (layout, chunk_bytes, codec, scale, shuffle, overwrite), instead of `options`.

    Returns
    -------
    Dataset
        The dataset at `destination`.

    Raises
    ------
    InputError
        If the input is bad; the message names file, line, column and reason.
    """
    chosen = options or IngestOptions(**named)
    if _is_path(source) or (isinstance(source, list | tuple) and source and all(map(_is_path, source))):
        paths = [source] if _is_path(source) else list(source)
        refuse_inputs(Path(destination), paths)
        pieces = open_files(paths, file_format, columns or Columns(label=label, header=header))
        name, expected_bytes = join_names(paths), guess_bytes(paths)
    else:
        if label is not None or header != "auto" or columns is not None:
            raise InputError(
                "label, header and columns are for files: give the labels of rows in memory as y, and leave the column "
                "of the labels out of a frame, since all its columns are features"
            )
        pieces = read_arrays(source, y, sample_weight, qid)
        name, expected_bytes = "X", _array_bytes(source)
    with caught():
        return write_dataset(pieces, destination, name, expected_bytes, chosen, report)


def open_files(paths: Sequence[str | Path], file_format: str | None, columns: Columns) -> Iterator[SourceRows]:
    """Return the rows of files of one format. Raises InputError for unknown or different formats."""
    kinds = {file_format or guess_format(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(
            f"{join_names(paths)}: files of different kinds ({', '.join(sorted(kinds))}); choose one by --format"
        )
    match kinds.pop():
        case "svmlight":
            return read_svmlight(paths, default_threads())
        case "csv":
            return read_csv(paths, columns)
        case "parquet":
            return read_parquet(paths, columns)
        case "npy":
            return read_npy(paths)
        case other:
            raise InputError(f"format {other!r}: choose from {', '.join(FORMATS)}")


def guess_format(path: str | Path) -> str:
    """Return the format that the ending of a file's name tells; svmlight if it tells none."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in COMPRESSED]
    return SUFFIXES.get(suffixes[-1].lower(), "svmlight") if suffixes else "svmlight"


def guess_bytes(paths: Sequence[str | Path]) -> int:
    """Return about how many bytes the rows of files take. Standard input counts as 1 GiB."""
    total = 0
    for path in paths:
        file = Path(path)
        size = file.stat().st_size if file.is_file() else 1 << 30
        total += size * COMPRESSED.get(file.suffix, 1)
    return total


def _is_path(source: Any) -> bool:
    return isinstance(source, str | Path)


def _array_bytes(source: Any) -> int:
    if comes_from(source, "scipy"):
        return 8 * int(source.nnz)
    shape = getattr(source, "shape", ())
    known = bool(shape) and all(isinstance(n, int | np.integer) for n in shape)  # Dask does not know every shape
    return 4 * math.prod(map(int, shape)) if known else 1 << 30
