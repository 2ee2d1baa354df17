"""All file formats by name: the endings of their files, the column roles that users can name, and their readers.

To add a format, write a module with its reader, and add a line here. The command line offers the names of the formats
as choices. A reader is imported at its first use, so the formats here cost no time until then.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
ALIASES: dict[str, Any] = {"tsv": "csv"}  # further names of formats
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
    base = 1 if columns.base is None else int(columns.base)
    return _load("svmlight.read_svmlight")(paths, default_threads(), lists=columns.multi_label, base=base)


ROLES = ("label", "qid", "sample_weight", "groups")
ENCODED = ("drop", "index", "missing", "one_hot", "hash_bits", "text", "date", "number")
TABLE = (*ROLES, *ENCODED, "date_format")
OF_TEXT = ("header", "sep", "quoting", "decimal")
SYNTAX = (*OF_TEXT, "date_format", "base")  # the fields of `Columns` that datasets and models remember


FORMATS = {  # The first format is used if neither the ending of a file nor its first rows show another one.
    "svmlight": Format((".svm", ".libsvm", ".svmlight"), ("multi_label", "base"), _read_svmlight, "svmlight text"),
    "csv": Format((".csv", ".tsv"), (*TABLE, *OF_TEXT), _read_table("csv.open_csv"), "CSV, TSV", True),
    "parquet": Format((".parquet", ".pq"), TABLE, _read_table("arrow.open_parquet"), "Parquet", True),
    "arrow": Format((".arrow", ".feather", ".ipc"), TABLE, _read_table("arrow.open_ipc"), "Arrow, Feather", True),
    "orc": Format((".orc",), TABLE, _read_table("arrow.open_orc"), "ORC", True),
    "jsonl": Format((".jsonl", ".ndjson"), TABLE, _read_table("arrow.open_json_lines"), "JSON lines", True),
    "h5ad": Format((".h5ad",), ROLES, _read_files("anndata.read_h5ad", True), ".h5ad of AnnData"),
    "npy": Format((".npy", ".npz"), (), _read_files("files_of_arrays.read_npy"), ".npy, .npz"),
    "safetensors": Format((".safetensors",), (), _read_files("files_of_arrays.read_safetensors"), ".safetensors"),
}


NAMES = ChainMap(ALIASES, FORMATS)  # FORMATS first


def guess_format(path: str | Path, known: str | None = None) -> str:
    """Return the format of a file by its ending or, for unknown endings of local files, by its first rows.

    known: the format if neither shows one, and for endings of unsupported formats (None: svmlight, and an error).
    Raises InputError for an unsupported format.
    """
    if str(path).lower().endswith(SAFETENSORS_INDEX):
        return "safetensors"
    suffixes = [suffix for suffix in map(str.lower, Path(path).suffixes) if suffix not in COMPRESSED]
    last = suffixes[-1] if suffixes else ""
    if last in UNREAD and known is None:
        raise InputError(f"{path}: {last} files are not read: {UNREAD[last]}; for text in another format, use --format")
    by_ending = next((name for name, about in FORMATS.items() if last in about.suffixes), None)
    if by_ending is None and last not in UNREAD and Path(path).is_file():
        by_ending = _look_at(path)
    return by_ending or known or next(iter(FORMATS))


def _look_at(path: str | Path) -> str | None:
    """Return the format that the first rows of a file show, if any. Raises InputError for an unsupported format."""
    head = b""
    with suppress(*_load("text.READING_ERRORS")), _load("text.open_text")(path) as file:  # raised when it is read
        head = file.read(HEAD_BYTES)
        head = head[_load("text.find_mark")(head) :]
    kind = _find_beginning(head)
    if kind is not None and kind not in FORMATS:
        raise InputError(f"{path}: {explain_beginning(head)}")
    return kind or guess_text(head)


def has_known_ending(path: str | Path) -> bool:
    """Return whether a name has the ending of a file of rows, compressed or not; other files may hold rows, too."""
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
    require_known("format", name, NAMES)
    return FORMATS[ALIASES.get(name, name)]


HEAD_BYTES = 1 << 16
# Patterns of the first bytes of formats, and in _KINDS for each the file ending, or the name that --format takes.
_BYTES = rb"PK\x03\x04 MATLAB \x89HDF FCS[23]\. \$FL[23] \xd0\xcf\x11\xe0 <stata_dta> \x80[\x02-\x05] \x1f\x8b BZh[0-9]"
_TEXTS = rb"%%MatrixMarket %|@relation\b \[ \{ PAR1\x15 ARROW1 \x93NUMPY \xfd7zXZ"
_KINDS = ".zip .mat .h5 .fcs .sav .xls .dta .pkl .gz .bz2 .mtx .arff .json jsonl parquet arrow npy .xz"
BEGINNINGS = [re.compile(each, re.IGNORECASE) for each in (_BYTES + b" " + _TEXTS).split()]


_SVMLIGHT_ROW = re.compile(
    rb"\s*(N(,N)*\s+)?(qid:\S+\s+)?([0-9]+:[^\s,;|:]+(\s+|$))+(#.*)?".replace(b"N", rb"[+-]?[0-9.]+(e[+-]?[0-9]+)?"),
    re.IGNORECASE,
)


def _find_lines(head: bytes) -> list[bytes]:
    """Return the lines that are neither blank nor comments; the last line may be cut."""
    return [line for line in head.splitlines() if line.strip() and not line.startswith(b"#")]


def _find_beginning(head: bytes) -> str | None:
    line = next(iter(_find_lines(head)), b"")
    return next((kind for look, kind in zip(BEGINNINGS, _KINDS.split(), strict=True) if look.match(line)), None)


def guess_text(head: bytes) -> str | None:
    """Return "svmlight" or "csv" if the head of a text shows rows of pairs, or of several columns; otherwise None."""
    whole = head if len(head) < HEAD_BYTES else b"".join(head.rsplit(None, 1)[:1])  # a cell may be cut
    lines = _find_lines(whole)
    if any(map(_SVMLIGHT_ROW.fullmatch, lines)):
        return "svmlight"
    first = lines[0].decode(errors="replace").strip() if lines else ""
    has_columns = any(mark in first for mark in "\t,;|") or (len(first.split()) > 1 and ":" not in first)
    return "csv" if has_columns and first.replace("\t", "").isprintable() else None


def explain_beginning(head: bytes) -> str:
    """Name the format that the head of a file suggests, and the remedy; return "" if it suggests no known format."""
    kind = _find_beginning(head)
    if kind in COMPRESSED:
        return f"holds compressed data: rename it to end in {kind}"
    if kind in UNREAD:
        return f"seems to be a {kind} file, which is not read: {UNREAD[kind]}"
    if kind is not None:
        return f"seems to be of the format {kind}: --format {kind} reads it (file_format={kind!r} in Python)"
    return ""


def explain_foreign(head: bytes) -> str:
    """Name the format that the head of an assumed svmlight file suggests, and the remedy; "" if it may be svmlight."""
    if (known := explain_beginning(head)) or guess_text(head) != "csv":
        return known
    shown = _find_lines(head)[0].decode(errors="replace").strip()[:60]
    fault = f"is read as svmlight text, but its first line, {shown!r}, looks like a table"
    return f"{fault}: --format csv reads it (file_format='csv' in Python)"
