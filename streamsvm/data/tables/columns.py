"""The roles of table columns: which are features, and which hold labels, query ids or weights.

Folders may name columns, as in datasets of Hive, pandas and pyarrow: the rows of parts/site=1/rows.parquet have a
column `site`. Each folder COLUMN=VALUE directly above a file is a column. If the user names a single file, its folders
are columns only if a model or a dataset needs them; pyarrow adds no columns to a single file, either. Percent-encoded
names and values are decoded.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from streamsvm.data.tables.checks import TARGET, TEXT, Vector, is_date_format, missing_words, parse_number, show_text
from streamsvm.numeric.encoding import MISSING, MOST_BITS, Encoding
from streamsvm.system.errors import InputError, NeedsOptionError, say_count

AUTO = ("auto",)  # the value of `one_hot` that selects all columns of text
FILLED_BYTES = 128 << 10  # the size of a batch of rows, which fits into the cache
LEAST_FILLED_ROWS = 1024  # with fewer rows, each copied part of a column would be too short
LABEL_NAMES = {"label", "target", "class", "y"}
KINDS_BY_HAND = ("text", "date", "number")
MISSING_VALUE = "__HIVE_DEFAULT_PARTITION__"
INTEGER = "integer"
LATER_MODULES = ("compute", "json", "orc", "parquet")  # submodules that `import pyarrow` does not load
LOGGER = logging.getLogger("streamsvm")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?")
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # a column that pandas adds to Parquet


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns. A column is given by its name, or by its number counted from 1.

    Parameters
    ----------
    label : str, optional
        The column of the labels. By default the only column named label, target, class or y, in upper or lower case.
    qid, sample_weight : str, optional
        The columns of the query ids and of the sample weights.
    features : tuple of str, optional
        The names of the features, in this order. By default all other columns are features.
    require_label : bool
        Whether a table without a label column is refused.
    header : {"auto", "yes", "no"}
        Whether the first row of text holds the column names; "auto" decides by its cells (see data.sources.csv_rows).
    groups : str, optional
        The column of the groups that cross-validation holds out whole.
    multi_label : bool
        Whether svmlight text has lists of labels, possibly empty, such as 1,3,7.
    sep : str, optional
        The character that separates the columns of text; "whitespace" means any blanks. By default it is detected (see
        data.sources.csv_rows).
    quoting : {"minimal", "none"}, optional
        Whether a quote at the start of a cell of text encloses the cell (the default), or is part of it.
    decimal : {",", "."}, optional
        The decimal mark of numbers in text; by default the point. If it is the comma, points are refused.
    drop : tuple of str
        Columns that are left out.
    index : str, optional
        The column that names the rows; it is not a feature.
    missing : {"mean", "zero", "indicator"}, optional
        The replacement of missing values: the mean of the known values, zero, or zero with an added feature that is 1.
    one_hot : tuple of str
        The columns whose categories each become a feature; ("auto",) selects all columns of text.
    hash_bits : int, optional
        If given, all other columns of text are hashed to 2^hash_bits features.
    encoding : Encoding, optional
        The encoding of columns as features, if it is known already, for example from a model.
    text, date, number : tuple of str
        The columns to read as text, dates and numbers, whatever their first rows hold. `text` may name the label.
    date_format : str, optional
        The form of the dates in text, as a pattern of strptime; by default that of ISO 8601, such as 2024-12-31.
    base : {0, 1, "auto"}, optional
        The number of the first feature in svmlight text, by default 1; see `ingestion.readers.settle_format`.
    others : tuple of str
        Columns that are known not to be features. If the features are known, other columns are ignored with a warning.
    label_kind : {"text", "target", "given"}, optional
        Whether labels are always texts, numbers that a regression predicts, or values given with a frame.
    read_label : bool
        Whether labels are read. If not, the label column is left out.
    folders : tuple of (str, str), optional
        The columns named by the folders of all files, with their kinds (see `find_folders`); None if they have not
        been determined yet.
    """

    label: str | None = None
    qid: str | None = None
    sample_weight: str | None = None
    features: tuple[str, ...] | None = None
    require_label: bool = True
    header: str = "auto"
    groups: str | None = None
    multi_label: bool = False
    sep: str | None = None
    quoting: str | None = None
    decimal: str | None = None
    drop: tuple[str, ...] = ()
    index: str | None = None
    missing: str | None = None
    one_hot: tuple[str, ...] = ()
    hash_bits: int | None = None
    encoding: Encoding | None = None
    text: tuple[str, ...] = ()
    date: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    date_format: str | None = None
    base: int | str | None = None
    others: tuple[str, ...] = ()
    label_kind: str | None = None
    read_label: bool = True
    folders: tuple[tuple[str, str], ...] | None = None

    def __post_init__(self) -> None:
        """Raise InputError for an option with an invalid value."""
        if self.missing not in (None, *MISSING):
            raise InputError(f"missing {self.missing!r}: choose from {', '.join(MISSING)}")
        if self.quoting not in (None, "minimal", "none"):
            raise InputError(f"quoting {self.quoting!r}: choose minimal or none")
        if self.decimal not in (None, ".", ","):
            raise InputError(f"decimal {self.decimal!r}: choose the comma or the point")
        if self.base is not None and str(self.base) not in ("0", "1", "auto"):
            raise InputError(f"base {self.base!r}: choose 0, 1 or auto")
        if self.date_format is not None and not is_date_format(self.date_format):
            raise InputError(f"date_format {self.date_format!r}: give a pattern of strptime, with a year: %d.%m.%Y")
        if self.hash_bits is not None and not 1 <= self.hash_bits <= MOST_BITS:
            raise InputError(f"hash_bits {self.hash_bits}: from 1 to {MOST_BITS} bits are possible (--hash)")
        if self.hash_bits is not None and self.one_hot == AUTO:
            raise InputError(
                "one_hot auto and hash_bits (--hash) both take all columns of text: name the columns for one_hot"
            )

    @property
    def named(self) -> set[str | None]:
        """The columns that the user has named, by name or by number."""
        roles = {self.label, self.qid, self.sample_weight, self.groups, self.index}
        hot = () if self.one_hot == AUTO else self.one_hot
        return roles.union(self.drop, hot, self.text, self.date, self.number)

    @property
    def needs_encoder(self) -> bool:
        """Whether these roles require an encoder: for columns other than plain numbers, or for names of rows."""
        asked = self.index, self.missing, self.hash_bits, self.encoding, self.date_format
        named = self.one_hot, self.text, self.date, self.number, self.folders
        return any(named) or self.decimal == "," or any(each is not None for each in asked)


class Dialect(NamedTuple):
    """The syntax of the rows of text; the delimiter is "" for other formats.

    quotes: whether quotes enclose cells. is_spaced: whether blanks separate the columns; tabs take their place before a
    row is parsed (see data.sources.parsing).
    """

    delimiter: str
    quotes: bool = True
    is_spaced: bool = False


NO_TEXT = Dialect("")


@dataclass(frozen=True)
class TableLayout:
    """The columns of one table. `features` and `vectors` (by role) hold positions in `names`.

    kinds: the kinds that the user assigned to columns, by position. label_kind, decimal: see Columns. folders: the kind
    and the value of each column that a folder names, by position; these columns come last in `names`.
    """

    where: str
    names: tuple[str, ...]
    features: tuple[int, ...]
    vectors: dict[str, int]
    dialect: Dialect
    kinds: dict[int, str] = field(default_factory=dict)
    label_kind: str | None = None
    folders: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    decimal: str | None = None

    @cached_property
    def own_names(self) -> tuple[str, ...]:
        """Names of the columns that are in the file itself."""
        return self.names[: len(self.names) - len(self.folders)]

    @cached_property
    def wanted(self) -> list[int]:
        """Positions of the columns that are read: the features in their order, then the other columns by role."""
        return [*self.features, *self.vectors.values()]

    @cached_property
    def own_wanted(self) -> list[int]:
        """Positions of the columns that are read from the file.

        There is at least one, since it gives the number of rows.
        """
        return [j for j in dict.fromkeys(self.wanted) if j not in self.folders] or [0]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(self.names[j] for j in self.features)

    def place(self, line: int, j: int) -> str:
        """Return the place of a cell in a text file, FILE:LINE:COLUMN, for messages."""
        return f"{self.where}:{line}:{j + 1}: column {show_text(self.names[j])}"


class _PyArrow:
    """The optional dependency pyarrow, imported at its first use. Raises InputError if it is not installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python and its tools look up optional attributes with such names
            raise AttributeError(name)
        try:
            module = importlib.import_module("pyarrow")
            found = importlib.import_module(f"pyarrow.{name}") if name in LATER_MODULES else getattr(module, name)
        except ImportError as error:
            raise InputError("reading CSV or Parquet needs pyarrow: pip install 'streamsvm[tables]'") from error
        self.__dict__[name] = found  # the next use finds the attribute here
        return found


pyarrow: Any = _PyArrow()


def show_name(path: str) -> str:
    """Return the name by which messages refer to a file."""
    return "<stdin>" if path == "-" else path


def lay_out(
    names: tuple[str, ...], path: str, columns: Columns, before: tuple[str, ...] | None, dialect: Dialect = NO_TEXT
) -> TableLayout:
    """Return the layout of a table; `dialect` is that of text.

    Raises InputError if its columns differ from `before` (those of the first file).
    """
    where, folders = show_name(path), _find_values(names, path, columns)
    names = (*names, *(name for name, _, _ in folders))
    position = {name: j for j, name in enumerate(names)}
    if before not in (None, names):
        raise InputError(f"{where}: its columns differ from those of the first file: {_list(names)}")
    dropped = _find_dropped(names, where, columns)
    unread = {*dropped, -1 if columns.index is None else find_column(columns.index, names)}
    wanted = None if columns.features is None else {*columns.features, columns.label, columns.qid}
    for j, name in enumerate(names):
        if j in unread or (wanted is not None and name not in wanted):
            continue
        if not name:
            remedy = f"use --index {j + 1} if it names the rows, or --drop {j + 1}"
            raise NeedsOptionError(f"{where}: column {j + 1} has no name: {remedy}")
        if position[name] != j:
            remedy = "; if the first row is data, use --header no" if dialect.delimiter else ""
            raise InputError(f"{where}: columns {j + 1} and {position[name] + 1} are both named {name!r}{remedy}")
    for name in columns.features or ():
        if name not in position:
            raise InputError(f"{where}: no column {name!r}, which is a feature; {list_near(name, names)}")
    chosen = None if columns.features is None else tuple(position[name] for name in columns.features)
    vectors = _find_vectors(names, where, columns, dropped, set(chosen or ()))
    taken = dropped | set(vectors.values()) | {j for j, name in enumerate(names) if _PANDAS_INDEX.fullmatch(name)}
    features = tuple(j for j in range(len(names)) if j not in taken) if chosen is None else chosen
    if not features:
        raise InputError(f"{where}: no feature columns; there are {_list(names)}")
    kinds = _find_kinds(names, where, columns, features, vectors.get("label"))
    label_kind = TEXT if vectors.get("label") in kinds else columns.label_kind
    if columns.features is not None and before is None:
        _warn_of_others(names, where, columns, {*features, *vectors.values(), *unread})
    if not columns.read_label:
        vectors.pop("label", None)
    values = {len(names) - len(folders) + k: (kind, value) for k, (_, kind, value) in enumerate(folders)}
    return TableLayout(where, names, features, vectors, dialect, kinds, label_kind, values, columns.decimal)


def _warn_of_others(names: tuple[str, ...], where: str, columns: Columns, used: set[int]) -> None:
    """Log a warning with the number and the first names of the columns that are neither features nor known others."""
    known = used.union(find_column(name, names) for name in columns.others)
    others = [name for j, name in enumerate(names) if j not in known]
    if others:
        verb = "is not a feature and is" if len(others) == 1 else "are not features and are"
        LOGGER.warning(f"{where}: {say_count(len(others), 'column')} {verb} ignored: {_list(others)}")


def _find_values(names: tuple[str, ...], path: str, columns: Columns) -> list[tuple[str, str, str | None]]:
    """Return name, kind and value of each column named by a folder of the file.

    Raises InputError if such a folder is missing, or if the file has a column with the same name.
    """
    values = read_folders(path)
    for name, _ in columns.folders or ():
        if name not in values:
            raise InputError(
                f"{path}: is not in a folder {name}=VALUE, as other files are: move it into such a folder, or leave it "
                "out"
            )
        if name in names and name not in columns.drop:
            raise InputError(f"{path}: column {name!r} and folder {name}={values[name]} clash: rename or --drop them")
    return [(name, kind, values[name]) for name, kind in columns.folders or ()]


def _find_kinds(
    names: tuple[str, ...], where: str, columns: Columns, features: Sequence[int], label: int | None
) -> dict[int, str]:
    """Return the kinds that the user assigned to columns, by position; "one_hot" is text with a feature per category.

    Raises InputError for a column with two kinds, and for a column that is not a feature. The label column may have the
    kind text, and no other kind.
    """
    kinds: dict[int, str] = {}
    for kind, name in ((each, name) for each in KINDS_BY_HAND for name in getattr(columns, each)):
        j = _require_column(name, names, where, f"which --{kind} names")
        if kinds.setdefault(j, kind) != kind:
            raise InputError(f"{where}: column {name!r}: --{kinds[j]} and --{kind} both name it; choose one")
        if j == label and (kind != TEXT or columns.label_kind == TARGET):
            raise InputError(f"{where}: --{kind} names the labels, column {name!r}: use --text or --regression alone")
        if j not in (*features, label):
            raise InputError(f"{where}: column {name!r}, which --{kind} names, is not a feature of the table")
    for name in () if columns.one_hot == AUTO else columns.one_hot:
        j = find_column(name, names)
        if kinds.get(j, "text") not in ("text", "one_hot"):
            raise InputError(f"{where}: column {name!r}: --one-hot and --{kinds[j]} both name it")
        if j not in features:
            near = list_near(name, [names[k] for k in features])
            raise InputError(f"{where}: column {name!r}, which --one-hot names, is not a feature of the table; {near}")
        kinds[j] = "one_hot"
    return kinds


def find_column(name: str, names: Sequence[str]) -> int:
    """Return the position of a column, given its name or its number counted from 1; -1 if it does not exist."""
    j = names.index(name) if name in names else (int(name) if name.isdecimal() else 0) - 1
    return j if j < len(names) else -1


def _require_column(name: str, names: Sequence[str], where: str, role: str) -> int:
    """Return the position of a column. Raises InputError if it is missing."""
    if (j := find_column(name, names)) == -1:
        raise InputError(f"{where}: column {name!r}, {role}, is missing; {list_near(name, names)}")
    return j


def _find_dropped(names: tuple[str, ...], where: str, columns: Columns) -> set[int]:
    """Return the positions of the columns to drop. Raises InputError if a column is missing."""
    dropped: set[int] = set()
    for name in columns.drop:
        found = {j for j, other in enumerate(names) if other == name}
        dropped |= found or {_require_column(name, names, where, "which --drop names")}
    return dropped


def _find_vectors(
    names: tuple[str, ...], where: str, columns: Columns, dropped: set[int], chosen: set[int]
) -> dict[str, int]:
    """Return the positions of label, qid, sample_weight, groups and index, by role.

    dropped, chosen: the positions of the columns that are left out, and of features that are known already. Such a
    feature may also name the rows. The label may be missing unless it is required. The index of a known encoding may be
    missing, since it only names rows. Raises InputError for other missing columns.
    """
    taken = dropped | chosen
    vectors: dict[str, int] = {}
    is_known = columns.encoding is not None and columns.index == columns.encoding.index
    optional = {"label": not columns.require_label, "index": is_known}
    for role in ("qid", "sample_weight", "groups", "index", "label"):
        name = getattr(columns, role)
        if name is None:
            continue
        j = find_column(name, names)
        if j != -1 and j not in (dropped if role == "index" else taken) and j not in vectors.values():
            vectors[role] = j
        elif not optional.get(role):
            _require_column(name, names, where, f"the {role}")
            raise InputError(f"{where}: column {name!r}, the {role}, has two roles; {list_near(name, names)}")
    if columns.label is None:
        used = taken | set(vectors.values())
        found = [j for j, name in enumerate(names) if name.lower() in LABEL_NAMES and j not in used]
        if len(found) == 1:
            vectors["label"] = found[0]
        elif columns.require_label:
            fault = f"{'several columns are' if found else 'no column is'} named label, target, class or y"
            remedy = "name it by --label COLUMN (label=... in Python)"
            raise InputError(f"{where}: which column is the label? {fault}; {remedy}; there are {_list(names)}")
    return vectors


def list_near(name: str, names: Sequence[str]) -> str:
    """Return part of a message: a suggestion of the column whose name is closest to `name`, and a list of columns."""
    lower = [other.lower() for other in names]
    near = [names[lower.index(other)] for other in get_close_matches(name.lower(), lower, 1)]
    meant = f"is {show_text(near[0])!r} meant? " if near and near[0] != name else ""
    return f"{meant}there are {_list(names)}"


def _list(names: Sequence[str]) -> str:
    others = f" and {len(names) - 8} more, the last of them {show_text(names[-1])}" if len(names) > 8 else ""
    return ", ".join(map(show_text, names[:8])) + others


def fill_features(columns: Sequence[Vector]) -> npt.NDArray[np.float32 | np.float64]:
    """Return the columns as a matrix, (rows, columns), of float32, or of float64 if the type of a column needs it.

    Rows are filled in batches. Each column writes to every cache line of a batch, and so a batch must fit the cache.
    """
    n_rows, n_columns = len(columns[0]), len(columns)
    X = np.empty((n_rows, n_columns), np.result_type(np.float32, *{column.dtype for column in columns}))
    step = max(LEAST_FILLED_ROWS, FILLED_BYTES // (4 * n_columns))
    for at in range(0, n_rows, step):
        for j, column in enumerate(columns):
            X[at : at + step, j] = column[at : at + step]
    return X


def is_column(folder: str) -> bool:
    """Return whether the name of a folder is COLUMN=VALUE."""
    return folder.find("=") > 0


def read_folders(path: str | Path) -> dict[str, str | None]:
    """Return the values of the columns named by the folders of a file, outermost first; None for a missing value."""
    folders = str(path).split("/")[:-1]
    first = next((k for k in range(len(folders), 0, -1) if not is_column(folders[k - 1])), 0)
    named = [folder.partition("=") for folder in folders[first:]]
    return {unquote(name): None if value == MISSING_VALUE else unquote(value) for name, _, value in named}


def find_folders(
    named: Sequence[str | Path], paths: Sequence[str | Path], features: Sequence[str] | None
) -> tuple[tuple[str, str], ...]:
    """Return the columns named by the folders of the files, each with its kind.

    The kind is integer, number or date if all values of the column are such values, and otherwise text. named: the
    files, folders and patterns as the user gave them. features: the features that must be read, if they are known.
    """
    is_alone = len(paths) == 1 and str(paths[0]) == str(named[0])
    found: dict[str, set[str]] = {}
    for path in paths:
        for name, value in read_folders(path).items():
            found.setdefault(name, set()).update([value] if value is not None else [])
    counted = set(features or ()) if is_alone else found.keys()
    return tuple((name, _find_kind_of(words)) for name, words in found.items() if name in counted)


def _find_kind_of(words: set[str]) -> str:
    if all(map(_WHOLE_NUMBER.fullmatch, words)):
        return INTEGER
    known = words - set(missing_words(False))
    if all(parse_number(word) is not None for word in known):
        return "number"
    return "date" if all(map(_DATE.fullmatch, known)) else "text"
