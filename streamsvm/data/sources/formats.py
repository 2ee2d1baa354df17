"""All file formats by name: the endings of their files, the column roles that users can name, and their readers.

To add a format, write a module with its reader, and add a line here. The command line offers the names of the formats
as choices. A reader is imported at its first use, so the formats here cost no time until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsvm.system.errors import InputError, require_known
from streamsvm.system.machine import default_threads

if TYPE_CHECKING:
    from streamsvm.data.rows.source import SourceRows
    from streamsvm.data.tables.columns import Columns

Paths = Sequence[str | Path]
MISSING = ("mean", "zero", "indicator")  # a copy of MISSING in numeric.encoding, a module that is slow to import
UNREAD = {  # the remedy for each file ending without a reader
    ".json": "write JSON lines (.jsonl), as to_json(PATH, orient='records', lines=True) of pandas does",
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".sas7bdat", ".sav", ".dta"), "save the table as CSV or Parquet"),
    ".fcs": "save the events as CSV or Parquet, with the program that wrote them or with pandas",
    ".arff": "read the table with scipy.io.arff.loadarff and pandas, and save it as CSV or Parquet",
    ".mtx": "read the matrix with scipy.io.mmread, and pass it to streamsvm.ingest in Python",
    ".mat": "read the arrays with scipy.io.loadmat, and pass them to streamsvm.ingest in Python",
    **dict.fromkeys((".h5", ".hdf5"), "pass their arrays to streamsvm.ingest in Python"),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), "loading them would run code; save the rows as Parquet or .npz"),
    **dict.fromkeys((".zip", ".tar"), "unpack them: the files in a folder are read together"),
}
SAFETENSORS_INDEX = ".safetensors.index.json"
COMPRESSED = {".gz": 4, ".bz2": 6, ".xz": 8}  # a guess of the compression ratio, by file ending


class Format(NamedTuple):
    """A file format.

    suffixes: the endings of its files. reads: the fields of `Columns` that users can set and its reader supports.
    read: the reader, called with the paths, the roles of columns and, for tables, an encoder (see `read_table`).
    help: a short description. has_columns: whether the files are tables.
    """

    suffixes: tuple[str, ...]
    reads: tuple[str, ...]
    read: Callable[..., Iterator[SourceRows]]
    help: str
    has_columns: bool = False


def _load(name: str) -> Any:
    """Import and return a function of data.sources, such as "csv.open_csv"."""
    module, _, function = name.partition(".")
    return getattr(import_module(f"streamsvm.data.sources.{module}"), function)


def _read_table(opener: str) -> Callable[..., Iterator[SourceRows]]:
    """Return a reader of tables. opener: the name of the opener, such as "csv.open_csv"."""
    return lambda paths, columns, encoder: _load("table_stream.read_table")(paths, columns, _load(opener), encoder)


def _read_files(name: str, has_roles: bool = False) -> Callable[..., Iterator[SourceRows]]:
    """Return a reader that calls the named function. has_roles: whether the function takes column roles."""
    return lambda paths, columns: _load(name)(paths, columns) if has_roles else _load(name)(paths)


def _read_svmlight(paths: Paths, columns: Columns) -> Any:
    return _load("svmlight.read_svmlight")(paths, default_threads(), lists=columns.multi_label)


ROLES = ("label", "qid", "sample_weight", "groups")
ENCODED = ("drop", "index", "missing", "one_hot", "hash_bits", "text", "date", "number")
TABLE = (*ROLES, *ENCODED)
OF_TEXT = ("header", "sep", "decimal")


FORMATS = {  # The first format is used for files with unknown endings.
    "svmlight": Format((), ("multi_label",), _read_svmlight, "svmlight text"),
    "csv": Format((".csv", ".tsv"), (*TABLE, *OF_TEXT), _read_table("csv.open_csv"), "CSV, TSV", True),
    "parquet": Format((".parquet", ".pq"), TABLE, _read_table("arrow.open_parquet"), "Parquet", True),
    "arrow": Format((".arrow", ".feather", ".ipc"), TABLE, _read_table("arrow.open_ipc"), "Arrow, Feather", True),
    "orc": Format((".orc",), TABLE, _read_table("arrow.open_orc"), "ORC", True),
    "jsonl": Format((".jsonl", ".ndjson"), TABLE, _read_table("arrow.open_json_lines"), "JSON lines", True),
    "h5ad": Format((".h5ad",), ROLES, _read_files("anndata.read_h5ad", True), ".h5ad of AnnData"),
    "npy": Format((".npy", ".npz"), (), _read_files("files_of_arrays.read_npy"), ".npy, .npz"),
    "safetensors": Format((".safetensors",), (), _read_files("files_of_arrays.read_safetensors"), ".safetensors"),
}


def guess_format(path: str | Path) -> str:
    """Return the format of a file by its ending; svmlight for unknown endings.

    Raises InputError for the ending of an unsupported format.
    """
    if str(path).lower().endswith(SAFETENSORS_INDEX):
        return "safetensors"
    suffixes = [suffix for suffix in map(str.lower, Path(path).suffixes) if suffix not in COMPRESSED]
    last = suffixes[-1] if suffixes else ""
    if last in UNREAD:
        raise InputError(f"{path}: {last} files are not read: {UNREAD[last]}; for text in another format, use --format")
    return next((name for name, about in FORMATS.items() if last in about.suffixes), next(iter(FORMATS)))


def has_known_ending(path: str | Path) -> bool:
    """Return whether a name has the ending of a file of rows, compressed or not; svmlight files may have any ending."""
    last = Path(path).suffix.lower()
    return last in COMPRESSED or any(last in about.suffixes for about in FORMATS.values())


def is_table(path: str | Path) -> bool:
    """Return whether a file name has the ending of a table."""
    return any(Path(path).suffix.lower() in about.suffixes for about in FORMATS.values() if about.reads)


def name_option(field: str) -> str:
    """Return the command-line option that sets a field of `Columns`."""
    return f"--{'hash' if field == 'hash_bits' else field.replace('_', '-')}"


def find_format(name: str) -> Format:
    """Return the format with this name. Raises InputError if it does not exist."""
    require_known("format", name, FORMATS)
    return FORMATS[name]


HEAD_BYTES = 1 << 12
# Patterns of the first bytes of formats, and in _KINDS for each the file ending, or the name that --format takes.
_BYTES = rb"PK\x03\x04 MATLAB \x89HDF FCS[23]\. \$FL[23] \xd0\xcf\x11\xe0 <stata_dta> \x80[\x02-\x05] \x1f\x8b BZh[0-9]"
_TEXTS = rb"%%MatrixMarket %|@relation\b \[ \{ PAR1\x15 ARROW1 \x93NUMPY \xfd7zXZ"
_KINDS = ".zip .mat .h5 .fcs .sav .xls .dta .pkl .gz .bz2 .mtx .arff .json jsonl parquet arrow npy .xz"
BEGINNINGS = [re.compile(each, re.IGNORECASE) for each in (_BYTES + b" " + _TEXTS).split()]


def _find_line(head: bytes) -> bytes:
    return next((line for line in head.splitlines() if line.strip() and not line.startswith(b"#")), b"")


def explain_beginning(head: bytes) -> str:
    """Name the format that the head of a file suggests, and the remedy; return "" if it suggests no known format."""
    line = _find_line(head)
    kind = next((kind for look, kind in zip(BEGINNINGS, _KINDS.split(), strict=True) if look.match(line)), None)
    if kind in COMPRESSED:
        return f"holds compressed data: rename it to end in {kind}"
    if kind in UNREAD:
        return f"seems to be a {kind} file, which is not read: {UNREAD[kind]}"
    if kind is not None:
        return f"seems to be of the format {kind}: --format {kind} reads it (file_format={kind!r} in Python)"
    return ""


def explain_foreign(head: bytes) -> str:
    """Name the format that the head of an assumed svmlight file suggests, and the remedy; "" if it may be svmlight."""
    from streamsvm.data.tables.checks import parse_number

    if known := explain_beginning(head):
        return known
    line = _find_line(head)
    text = line.decode(errors="replace").strip()
    sep = "" if any(mark in text for mark in "\t,;|") else " --sep ' '"
    first = text.split(maxsplit=1)[0].split(",") if text else []
    is_row = all(parse_number(part.partition(":")[0]) is not None for part in first)
    if is_row or not text.replace("\t", "").isprintable() or (sep and (":" in text or " " not in text)):
        return ""
    shown = f"its first line, {text[:60]!r}, looks like a table"
    return f"is read as svmlight text, but {shown}: --format csv{sep} reads it (file_format='csv' in Python)"
