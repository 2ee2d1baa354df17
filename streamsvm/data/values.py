"""The values of a source, checked and converted: features, labels, sample weights, query ids and groups."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from streamsvm.data.label_lists import LabelLists, list_columns
from streamsvm.data.source_rows import Labels, SourceRows
from streamsvm.errors import InputError

Vector = npt.NDArray[Any]
Place = Callable[[int], str]  # returns where the i-th value of a piece stands in its source

NUMBER_KINDS = "biuf"  # the kinds of dtypes that are numbers: bool, int, unsigned int, float
MOST_LABEL_CHARACTERS = 1000  # each label takes as much memory as the longest one read with it
BOOLEANS = {"true": 1.0, "false": 0.0}
# What stands for a missing number in tables: what pyarrow and pandas take for one, and the mark of the UCI repository.
MISSING_WORDS = (
    "",
    "?",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "<NA>",
    "#NA",
    "NULL",
    "null",
    "None",
    "NaN",
    "nan",
    "-nan",
    "-NaN",
)
FOR_MISSING = "ingest --missing mean|zero|indicator fills missing values in (missing=... in Python)"
FOR_LABEL = "; training rows need labels: take this row out, and let `predict` give it one"
FOR_TEXT = (
    "ingest --one-hot takes a column of text as categories, --hash as hashed features, --drop leaves it out "
    "(one_hot, hash_bits, drop in Python)"
)
NOT_UTF8 = "not UTF-8 text; `iconv -f LATIN1 -t UTF-8 OLD > NEW` converts a file, with the encoding that it has"
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # the least float64 that rounds to an infinite float32
LEAST_GROUP = -(2**62)  # groups that are texts have smaller numbers
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


def to_source_rows(
    X: npt.NDArray[np.float32] | csr_array,
    vectors: Mapping[str, tuple[Vector, Place]],
    names: tuple[str, ...] | None,
    numbers: bool | None,
) -> SourceRows:
    """Return the rows of a piece, whose label, sample_weight, qid and groups are checked, as far as there are any.

    `numbers` tells whether the labels were numbers so far (None: there were none). Raises InputError for bad values.
    """
    labels: Labels | None = None
    if "label" in vectors:
        values, place = vectors["label"]
        labels = to_label_lists(values, place) if values.ndim == 2 else to_labels(values, place, numbers)
    weight = to_weights(*vectors["sample_weight"]) if "sample_weight" in vectors else None
    qid = to_qid(*vectors["qid"]) if "qid" in vectors else None
    groups = to_groups(*vectors["groups"]) if "groups" in vectors else None
    row_names = vectors["index"][0] if "index" in vectors else None
    return SourceRows(X, labels, qid, weight, names, groups, row_names=row_names)


def refuse_name(y: Any) -> None:
    """Raise InputError for labels that are one text, which is the name of a column by all likelihood."""
    if isinstance(y, str):
        raise InputError(
            f"y is the text {show_text(y)!r}, and no labels: give the values of that column, or make a dataset by "
            f"streamsvm.ingest(X, PATH, label={show_text(y)!r})"
        )


def has_number_labels(rows: SourceRows) -> bool | None:
    """Tell whether the labels are numbers; None without labels."""
    return None if rows.labels is None else rows.labels.dtype.kind == "f"


def round_to_float32(values: Any) -> npt.NDArray[np.float32]:
    """Copy values to float32. Values that overflow become infinite."""
    with np.errstate(over="ignore", under="ignore"):
        return np.array(values, dtype=np.float32, order="C")


def parse_number(token: str) -> float | None:
    """Return a number or boolean as pyarrow reads it; None if the token is neither."""
    word = token.strip().lower()
    if word in BOOLEANS:
        return BOOLEANS[word]
    try:
        return float(word) if word.isascii() and "_" not in word else None
    except ValueError:
        return None


def show_text(text: object) -> str:
    """Return a text for a message: on one line, and cut after 80 characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text)[:80])


def find_label_fault(label: str) -> str:
    """Say why an array of texts cannot hold a label, or only at a high cost; return "" if it can."""
    if len(label) > MOST_LABEL_CHARACTERS:
        return f"label has {len(label):,} characters, more than {MOST_LABEL_CHARACTERS:,}"
    return "label holds a character of code 0" if "\0" in label else ""


def find_feature_fault(value: Any) -> str:
    """Say why a value is no finite float32; return "" if it is one."""
    try:
        number = float("no" if isinstance(value, str) else value)
    except OverflowError:
        return "overflows float32"
    except (TypeError, ValueError):
        return "missing value" if _is_missing(value) else f"not a number: {value!r}"
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "infinite"
    return f"overflows float32: {number!r}" if abs(number) >= FLOAT32_OVERFLOW else ""


def find_remedy(fault: str) -> str:
    """Return the option by which a table with such a feature is taken; "" if there is none."""
    if fault in ("missing value", "nan"):
        return FOR_MISSING
    return FOR_TEXT if fault.startswith("not a number") else ""


def to_labels(values: Vector, place: Place, numbers: bool | None) -> Labels:
    """Return the labels of a piece: numbers as float64, all else as text. Raises InputError for bad labels."""
    if values.dtype.kind == "O":
        values = _settle_type(values, place, numbers)
    if numbers is not None and numbers != (values.dtype.kind in NUMBER_KINDS):
        before, now = ("numbers", "text") if numbers else ("text", "a number")
        raise InputError(f"{place(0)}: labels were {before} so far, this is {now}: {show_text(values[0])}")
    if values.dtype.kind in NUMBER_KINDS:
        coded = values.astype(np.float64)
        _refuse(~np.isfinite(coded), values, place, "label missing or not finite", FOR_LABEL)
        return coded
    named = _decode(values, place)
    _refuse(named == "", values, place, "label missing", FOR_LABEL)
    return named


def to_label_lists(values: Any, place: Place) -> LabelLists:
    """Return the rows of an indicator matrix, dense or sparse, as lists. InputError for values other than 0 and 1."""
    entries = values.data if issparse(values) else values
    if entries.dtype.kind not in NUMBER_KINDS:
        raise InputError(f"{place(0)}: {entries.dtype} is not a number; a matrix of labels holds 0 and 1")
    bad = (entries != 0) & (entries != 1)
    if bad.any():
        row = 0 if issparse(values) else int(np.argmax(bad.any(axis=1)))
        raise InputError(f"{place(row)}: a matrix of labels holds 0 and 1, and not {show_text(entries[bad].flat[0])}")
    return list_columns(values, values.shape[1])


def _decode(values: Vector, place: Place) -> npt.NDArray[np.str_]:
    """Return labels as text. Raises InputError for bytes that are no UTF-8, and for codes that are no character."""
    try:
        named: npt.NDArray[np.str_] = (
            np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values.astype(np.str_)
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{place(0)}: some labels are no text: {error}") from error
    codes = np.ascontiguousarray(named).view(np.uint32).reshape(len(named), -1)
    bad = (codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))
    if bad.any():
        raise InputError(f"{place(int(np.argmax(bad.any(axis=1))))}: label is no text")
    return named


def _settle_type(labels: Vector, place: Place, numbers: bool | None) -> Vector:
    """Return objects as numbers if all of them are numbers, else as text."""
    _refuse(np.array([_is_missing(label) for label in labels]), labels, place, "label missing", FOR_LABEL)
    text = np.array([not isinstance(label, Real | np.bool_) for label in labels])
    for i in np.flatnonzero(text).tolist():
        if fault := find_label_fault(str(labels[i])):
            raise InputError(f"{place(i)}: {fault}")
    if numbers:
        _refuse(text, labels, place, "labels were numbers so far, this is text")
    return labels.astype(np.str_ if numbers is False or text.any() else np.float64)


def to_weights(values: Vector, place: Place) -> npt.NDArray[np.float64]:
    """Return the sample weights of a piece. Raises InputError unless they are finite and not negative."""
    if values.dtype.kind not in NUMBER_KINDS:
        bad = np.array([bool(find_feature_fault(value)) for value in values])
        _refuse(bad, values, place, "sample weight is no number")
    weights = values.astype(np.float64)
    _refuse(~np.isfinite(weights), values, place, "sample weight is not finite")
    _refuse(weights < 0, values, place, "sample weight is negative")
    return weights


def to_qid(values: Vector, place: Place) -> npt.NDArray[np.int64]:
    """Return the query ids of a piece: whole numbers of any type as they are, texts by their hash (see `to_groups`).

    Raises InputError for missing ids, and for numbers that are not whole.
    """
    if values.dtype.kind not in "iu":
        texts = {value for value in values.tolist() if isinstance(value, str) and value.strip()}
        known = {text: _number_query(text.strip()) for text in texts}
        values = np.array([known.get(value, value) for value in values.tolist()], object) if texts else values
        bad = np.array([not _is_whole(value) for value in values])
        _refuse(bad, values, place, "query id is no whole number")
    qid = values.astype(np.int64)
    _refuse(qid != values, values, place, "query id is beyond 64 bits")
    return qid


def _number_query(word: str) -> int | str:
    """Return the number of a query: of a text its hash; a number that is not whole is returned as it is."""
    if _WHOLE_NUMBER.fullmatch(word):
        return int(word) if str(int(word)) == word else _hash_text(word)
    return word if parse_number(word) is not None else _hash_text(word)


def to_groups(values: Vector, place: Place) -> npt.NDArray[np.int64]:
    """Return the groups of a piece as numbers: whole numbers and times as they are, texts by their hash.

    A text stands for a whole number only if it is how the number is written: "7" is 7, and "007" is another group, as
    it is to pandas and pyarrow. A hash depends on the text alone, so that no table of texts is needed. It has 62 bits
    and is below all numbers that are taken: of a million groups, two have the same one with a probability of 1e-7.
    Times count in nanoseconds.
    Raises InputError for a missing group, and for a number that is not whole.
    """
    if values.dtype.kind == "M":
        beyond = np.array([not _fits_nanoseconds(value) for value in values])
        _refuse(beyond, values, place, "the group is a time beyond 64 bits of nanoseconds")
        values = values.astype("datetime64[ns]").astype(np.int64)
    found: dict[Any, int] = {}
    for i, value in enumerate(values.tolist()):
        if value not in found:
            found[value] = _number_group(value, partial(place, i))
    return np.array([found[value] for value in values.tolist()], np.int64)


def _fits_nanoseconds(value: np.datetime64) -> bool:
    """Whether a time can be counted in nanoseconds; where not, NumPy raises an error or, before 2.5, wraps around."""
    try:
        return bool(np.isnat(value) or value.astype("datetime64[ns]").astype(value.dtype) == value)
    except OverflowError:
        return False


def _number_group(value: Any, place: Callable[[], str]) -> int:
    """Return the number of a group (see `to_groups`)."""
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    word = value.strip() if isinstance(value, str) else value
    if _is_missing(word):
        raise InputError(f"{place()}: the group is missing")
    if isinstance(word, str) and not (_WHOLE_NUMBER.fullmatch(word) and str(int(word)) == word):
        return _hash_text(word)
    if not (isinstance(word, str) or _is_whole(word)) or not LEAST_GROUP <= int(word) < 2**63:
        shown = show_text(word)
        raise InputError(f"{place()}: a group is a text, a time, or a whole number from -2^62 to 2^63 - 1: {shown}")
    return int(word)


def _hash_text(word: str) -> int:
    """Return 62 bits of the hash of a text, as a number below LEAST_GROUP."""
    digest = hashlib.blake2b(word.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") // 4 - 2**63


def _is_whole(value: Any) -> bool:
    if not issubclass(type(value), Real) or not math.isfinite(value):  # numbers of NumPy are Real, too
        return False
    return float(value).is_integer() and -(2**63) <= int(value) < 2**63


def _is_missing(value: object) -> bool:
    if isinstance(value, str):
        return not value
    return value is None or str(value) in ("nan", "<NA>", "NaT")


def _refuse(bad: npt.NDArray[np.bool_], values: Vector, place: Place, reason: str, remedy: str = "") -> None:
    """Raise InputError, which shows the first bad value and its place, if there is one."""
    if bad.any():
        first = int(np.argmax(bad))
        shown = show_text(values[first])
        raise InputError(f"{place(first)}: {reason}" + (f": {shown}" if shown else "") + remedy)
