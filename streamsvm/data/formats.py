"""All file formats by name: the endings of their files, the roles of columns that a user can name, and their readers.

A new format is a file with its reader and a line here. The choices of the command line are these names. A reader is
imported when it is needed first, so that a line here costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.errors import InputError
from streamsvm.machine import default_threads

if TYPE_CHECKING:
    from streamsvm.data.csv_text import OpenTable
    from streamsvm.data.source_rows import SourceRows
    from streamsvm.data.table_encoder import TableEncoder
    from streamsvm.data.tables import Columns

Paths = Sequence[str | Path]
ReadCodes = Callable[["Paths", "Columns", "TableEncoder"], "Iterator[SourceRows]"]
MISSING = ("mean", "zero", "indicator")  # numeric.encoding.MISSING, which takes longer to import
UNREAD = {  # the endings of files that no reader takes, and what to do with them
    ".json": "write JSON lines (.jsonl), as to_json(PATH, orient='records', lines=True) of pandas does",
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".sas7bdat", ".sav", ".dta"), "save the table as CSV or Parquet"),
    ".fcs": "save the events as CSV or Parquet, with the program that wrote them or by way of pandas",
    ".arff": "save the table as CSV or Parquet, by way of scipy.io.arff.loadarff and pandas",
    ".mtx": "give the matrix, as scipy.io.mmread reads it, to streamsvm.ingest in Python",
    ".mat": "give its arrays, as scipy.io.loadmat reads them, to streamsvm.ingest in Python",
    **dict.fromkeys((".h5", ".hdf5"), "give their arrays to streamsvm.ingest in Python"),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), "loading them would run code; save the rows as Parquet or .npz"),
    **dict.fromkeys((".zip", ".tar"), "unpack them: the files in a folder are read together"),
}
SAFETENSORS_INDEX = ".safetensors.index.json"
COMPRESSED = {".gz": 4, ".bz2": 6, ".xz": 8}  # a guess of how many times larger the text is


class Format(NamedTuple):
    """A file format.

    suffixes: the endings of its files. reads: the fields of `Columns` that its reader heeds, of those that users give.
    read: returns the rows of files, given the roles of their columns. help: the format in a few words. read_codes: of a
    table with columns of text and the like, returns the rows with codes that the encoder makes of them.
    """

    suffixes: tuple[str, ...]
    reads: tuple[str, ...]
    read: Callable[[Paths, Columns], Iterator[SourceRows]]
    help: str
    read_codes: ReadCodes | None = None


def _read_svmlight(paths: Paths, columns: Columns) -> Iterator[SourceRows]:
    from streamsvm.data.text import read_svmlight

    return read_svmlight(paths, default_threads(), lists=columns.multi_label)


def _read_csv(paths: Paths, columns: Columns) -> Iterator[SourceRows]:
    from streamsvm.data.csv_table import has_dates
    from streamsvm.data.csv_text import open_table, read_csv

    with open_table(str(paths[0]), columns, None) as first:  # of standard input there is no second look
        if has_dates(first, columns):
            yield from _encode(partial(_read_csv_codes, opened=first))(paths, columns)
        else:
            yield from read_csv(paths, columns, threads=default_threads(), opened=first)


def _read_csv_codes(
    paths: Paths, columns: Columns, encoder: TableEncoder, opened: OpenTable | None = None
) -> Iterator[SourceRows]:
    from streamsvm.data.csv_table import read_csv_table

    return read_csv_table(paths, columns, encoder, threads=default_threads(), opened=opened)


def _read_parquet(paths: Paths, columns: Columns) -> Iterator[SourceRows]:
    from streamsvm.data.arrow_tables import has_dates
    from streamsvm.data.parquet import read_parquet

    if columns.features is None and has_dates(paths):
        return _encode(_read_arrow("open_parquet"))(paths, columns)
    return read_parquet(paths, columns)


def _read_arrow(opener: str) -> ReadCodes:
    def read(paths: Paths, columns: Columns, encoder: TableEncoder) -> Iterator[SourceRows]:
        from streamsvm.data import arrow_tables

        return arrow_tables.read_arrow(paths, columns, encoder, getattr(arrow_tables, opener))

    return read


def _encode(read_codes: ReadCodes) -> Callable[[Paths, Columns], Iterator[SourceRows]]:
    """Return the reader of tables of which the user asks for nothing that only the last row decides."""

    def read(paths: Paths, columns: Columns) -> Iterator[SourceRows]:
        from streamsvm.data.encoded_rows import encode_rows
        from streamsvm.data.table_encoder import TableEncoder

        encoder = TableEncoder(columns)
        return encode_rows(read_codes(paths, columns, encoder), encoder, None, paths)

    return read


def _read_npy(paths: Paths, columns: Columns) -> Iterator[SourceRows]:  # noqa: ARG001
    from streamsvm.data.npy import read_npy

    return read_npy(paths)


def _read_h5ad(paths: Paths, columns: Columns) -> Iterator[SourceRows]:
    from streamsvm.data.anndata_objects import read_h5ad

    return read_h5ad(paths, columns)


def _read_safetensors(paths: Paths, columns: Columns) -> Iterator[SourceRows]:  # noqa: ARG001
    from streamsvm.data.safetensors import read_safetensors

    return read_safetensors(paths)


ROLES = ("label", "qid", "sample_weight", "groups")
ENCODED = ("drop", "index", "missing", "one_hot", "hash_bits", "text", "date", "number")
TABLE = (*ROLES, *ENCODED)


def _name_arrow(suffixes: tuple[str, ...], opener: str, about: str) -> Format:
    return Format(suffixes, TABLE, _encode(_read_arrow(opener)), about, _read_arrow(opener))


FORMATS = {  # The first one is that of files whose names tell none.
    "svmlight": Format((), ("multi_label",), _read_svmlight, "svmlight text"),
    "csv": Format((".csv", ".tsv"), (*TABLE, "header", "sep", "decimal"), _read_csv, "CSV, TSV", _read_csv_codes),
    "parquet": Format((".parquet", ".pq"), TABLE, _read_parquet, "Parquet", _read_arrow("open_parquet")),
    "arrow": _name_arrow((".arrow", ".feather", ".ipc"), "open_ipc", "Arrow, Feather"),
    "orc": _name_arrow((".orc",), "open_orc", "ORC"),
    "jsonl": _name_arrow((".jsonl", ".ndjson"), "open_json_lines", "JSON lines"),
    "h5ad": Format((".h5ad",), ROLES, _read_h5ad, ".h5ad of AnnData"),
    "npy": Format((".npy", ".npz"), (), _read_npy, ".npy, .npz"),
    "safetensors": Format((".safetensors",), (), _read_safetensors, ".safetensors"),
}


def guess_format(path: str | Path) -> str:
    """Return the format that the ending of a file's name tells; svmlight if it tells none.

    Raises InputError for the ending of a format that is not read, and for a file whose name tells no format and whose
    beginning is not svmlight text.
    """
    if str(path).lower().endswith(SAFETENSORS_INDEX):
        return "safetensors"
    suffixes = [suffix for suffix in map(str.lower, Path(path).suffixes) if suffix not in COMPRESSED]
    last = suffixes[-1] if suffixes else ""
    if last in UNREAD:
        raise InputError(f"{path}: {last} files are not read: {UNREAD[last]}; if it holds other text, say --format")
    told = next((name for name, about in FORMATS.items() if last in about.suffixes), None)
    if told is None:
        from streamsvm.data.foreign_text import refuse_foreign

        refuse_foreign(path)
    return told or next(iter(FORMATS))


def has_known_ending(path: str | Path) -> bool:
    """Tell whether the ending of a name is that of a file of rows, compressed or not; svmlight text may have any."""
    last = Path(path).suffix.lower()
    return last in COMPRESSED or any(last in about.suffixes for about in FORMATS.values())


def is_table(path: str | Path) -> bool:
    """Tell whether the ending of a name is that of a table."""
    return any(Path(path).suffix.lower() in about.suffixes for about in FORMATS.values() if about.reads)


def name_option(field: str) -> str:
    """Return the option of the command line that sets a field of `Columns`."""
    return f"--{'hash' if field == 'hash_bits' else field.replace('_', '-')}"


def find_format(name: str) -> Format:
    """Return the format of this name; InputError if there is none."""
    if name not in FORMATS:
        raise InputError(f"format {name!r}: choose from {', '.join(FORMATS)}")
    return FORMATS[name]
