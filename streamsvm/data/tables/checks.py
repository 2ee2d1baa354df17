"""Checks and conversions of the values of a source: features, labels, sample weights, query ids and groups.

This is the only module that converts values of any type to class labels, or refuses them with a reason. It also gives
advice on columns of text, and on texts that look like numbers or dates in other notations.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from streamsvm.data.rows.source import LabelLists, Labels, SourceRows, list_columns
from streamsvm.system.errors import InputError, say_count

if TYPE_CHECKING:
    pass

Vector = npt.NDArray[Any]
Place = Callable[[int], str]  # a function from i to the place of a piece's i-th value in its source, for messages

NUMBER_KINDS = "biuf"  # the kinds of dtypes that are numbers: bool, int, unsigned int, float
_MARKS = str.maketrans({",": ".", ".": ","})
BOOLEANS = {"true": 1.0, "false": 0.0}
# The spellings of pyarrow and pandas, and the question mark of the UCI repository.
_NO_NUMBERS = ("NaN", "nan", "-nan", "-NaN")
_MISSING_WORDS = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "#NA", "NULL", "null", "None", *_NO_NUMBERS)
FOR_MISSING = "ingest --missing mean|zero|indicator replaces missing values (missing=... in Python)"
TEXT, TARGET, GIVEN = "text", "target", "given"  # Columns.label_kind: for --text, --regression, and labels of frames
FOR_TEXT = "ingest --one-hot encodes text, --hash hashes it, --drop omits it (one_hot, hash_bits, drop in Python)"
NOT_UTF8 = "not UTF-8 text; `iconv -f LATIN1 -t UTF-8 OLD > NEW` converts a file, with the encoding that it has"
LEAST_WEIGHT = float(np.finfo(np.float64).tiny)
TOO_SMALL = f"below {LEAST_WEIGHT:.1e}, too small to compute with: make it larger, or 0, which omits its row"
FIRST_MERGED = 2.0**53  # from this number on, float64 merges whole numbers
FOR_ID = "; give integers or text"
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # halfway from the largest float32 to 2^128: the least value that rounds to inf
LEAST_GROUP = -(2**62)  # hashes of groups that are text are smaller than this number
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


def parse_number(token: str, decimal: str | None = None) -> float | None:
    """Return a number or boolean as pyarrow reads it; None for any other token. decimal: see Columns."""
    word = (token.translate(_MARKS) if decimal == "," else token).strip().lower()
    if word in BOOLEANS:
        return BOOLEANS[word]
    try:
        return float(word) if word.isascii() and "_" not in word else None
    except ValueError:
        return None


def parse_date(word: str, pattern: str) -> datetime | None:
    """Return the time, in UTC, that a text has by a pattern of strptime; None for any other text."""
    try:
        time = datetime.strptime(word, pattern)
    except (ValueError, re.error):
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def is_date_format(pattern: str) -> bool:
    """Return whether a pattern is one of strptime that determines the year."""
    if not any(code in pattern for code in ("%Y", "%y", "%G", "%c", "%x")):
        return False
    first = datetime(2001, 1, 1, tzinfo=UTC)
    found = parse_date(first.strftime(pattern), pattern)
    return found is not None and found.year == first.year


def show_text(text: object) -> str:
    """Return an object's text as messages show it: on one line, cut to 80 characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text)[:80])


def missing_words(is_text: bool) -> tuple[str, ...]:
    """Return the cells that represent missing values: in a column of text, only the empty cell."""
    return ("",) if is_text else _MISSING_WORDS


def find_feature_fault(value: Any) -> tuple[str, str]:
    """Explain why a value is not a finite float32, and name the ingest options that accept it; "" for none."""
    try:
        number = float("no" if isinstance(value, str) else value)
    except OverflowError:
        return "overflows float32", ""
    except (TypeError, ValueError):
        return ("missing value", FOR_MISSING) if is_missing(value) else (f"not a number: {value!r}", FOR_TEXT)
    if math.isnan(number):
        return "nan", FOR_MISSING
    if math.isinf(number):
        return "infinite", ""
    return (f"overflows float32: {number!r}" if abs(number) >= FLOAT32_OVERFLOW else ""), ""


def to_weights(values: Vector, place: Place) -> npt.NDArray[np.float64]:
    """Return the sample weights of a piece. Raises InputError unless they are finite and not negative."""
    if values.dtype.kind not in NUMBER_KINDS:
        bad = np.array([bool(find_feature_fault(value)[0]) for value in values])
        refuse(bad, values, place, "sample weight is not a number")
    weights = values.astype(np.float64)
    refuse(~np.isfinite(weights), values, place, "sample weight is not finite")
    refuse(weights < 0, values, place, "sample weight is negative")
    refuse((weights > 0) & (weights < LEAST_WEIGHT), values, place, f"sample weight is {TOO_SMALL}")
    return weights


def to_qid(values: Vector, place: Place) -> npt.NDArray[np.int64]:
    """Return the query ids of a piece as int64: whole numbers of any type unchanged, text as hashes (see `to_groups`).

    Raises InputError for missing ids, and for fractional numbers.
    """
    if values.dtype.kind not in "iu":
        texts = {value for value in values.tolist() if isinstance(value, str) and value.strip()}
        known = {text: _number_query(text.strip()) for text in texts}
        values = np.array([known.get(value, value) for value in values.tolist()], object) if texts else values
        refuse_merged(values, place, "the query id")
        bad = np.array([not _is_whole(value) for value in values])
        refuse(bad, values, place, "query id is not a whole number")
    qid = values.astype(np.int64)
    refuse(qid != values, values, place, "query id is beyond 64 bits")
    return qid


def _number_query(word: str) -> int | str:
    """Return the number of a query id. A fractional number is returned as text, which the caller refuses."""
    is_fraction = not WHOLE_NUMBER.fullmatch(word) and parse_number(word) is not None
    return word if is_fraction else _number_text(word)


def to_groups(values: Vector, place: Place) -> npt.NDArray[np.int64]:
    """Return the groups of a piece as int64: whole numbers unchanged, times in nanoseconds, text as hashes.

    Text is read as a whole number only if the number is printed in the same way: "7" is 7, but "007" is another group,
    as in pandas and pyarrow. A hash depends only on the text, so no table of strings is needed. It has 62 bits and is
    smaller than all accepted numbers. The probability that any two of a million groups have the same hash is 1e-7.
    Raises InputError for a missing group, and for a fractional number.
    """
    if values.dtype.kind == "M":
        beyond = np.array([not _fits_nanoseconds(value) for value in values])
        refuse(beyond, values, place, "the group is a time beyond 64 bits of nanoseconds")
        values = values.astype("datetime64[ns]").astype(np.int64)
    refuse_merged(values, place, "the group")
    found: dict[Any, int] = {}
    for i, value in enumerate(values.tolist()):
        if value not in found:
            found[value] = _number_group(value, partial(place, i))
    return np.array([found[value] for value in values.tolist()], np.int64)


def _fits_nanoseconds(value: np.datetime64) -> bool:
    """Return whether a time fits 64 bits of nanoseconds. If not, NumPy raises an error or, before 2.5, wraps around."""
    try:
        return bool(np.isnat(value) or value.astype("datetime64[ns]").astype(value.dtype) == value)
    except OverflowError:
        return False


def _number_group(value: Any, place: Callable[[], str]) -> int:
    """Return the number of a group (see `to_groups`)."""
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    word = value.strip() if isinstance(value, str) else value
    if is_missing(word):
        raise InputError(f"{place()}: the group is missing")
    number = _number_text(word) if isinstance(word, str) else word
    is_hash = isinstance(word, str) and str(number) != word
    if not is_hash and not (_is_whole(number) and number >= LEAST_GROUP):
        shown = show_text(word)
        raise InputError(f"{place()}: a group must be text, a time, or a whole number from -2^62 to 2^63 - 1: {shown}")
    return int(number)


def _number_text(word: str) -> int:
    """Return the whole number that is printed as this text; for any other text, a hash of 62 bits below LEAST_GROUP."""
    if WHOLE_NUMBER.fullmatch(word) and str(int(word)) == word:
        return int(word)
    digest = hashlib.blake2b(word.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") // 4 - 2**63


def refuse_merged(values: Vector, place: Place, what: str) -> None:
    """Raise InputError for a float from 2^53 on, which may have lost digits. what: the noun for it in the message."""
    floats: Any = values if values.dtype.kind in "fO" else ()
    bad = [isinstance(each, float | np.floating) and FIRST_MERGED <= np.abs(each) < np.inf for each in floats]
    fault = f"{what} is a float from 2^53 on, which may have lost digits"
    refuse(np.array(bad, np.bool_), values, place, fault, FOR_ID)


def _is_whole(value: Any) -> bool:
    if not issubclass(type(value), Real) or not math.isfinite(value):  # NumPy's numbers are Real, too
        return False
    return float(value).is_integer() and -(2**63) <= int(value) < 2**63


def is_missing(value: object) -> bool:
    """Return whether a value represents a missing value: None, NaN, NaT, <NA>, or the empty string."""
    if isinstance(value, str):
        return not value
    return value is None or str(value) in ("nan", "<NA>", "NaT")


def refuse(bad: npt.NDArray[np.bool_], values: Vector, place: Place, reason: str, remedy: str = "") -> None:
    """Raise InputError with the first bad value and its place, if any value is bad."""
    if bad.any():
        first = int(np.argmax(bad))
        shown = show_text(values[first])
        raise InputError(f"{place(first)}: {reason}" + (f": {shown}" if shown else "") + remedy)


MOST_LABEL_CHARACTERS = 1000  # in an array of strings, each label takes as much memory as the longest
FOR_LABEL = "; training rows need labels: remove this row, and let `predict` label it"
MERGED = "may lose digits as a float64: write such labels as text (id72048431380967004), or number classes from 0"
FOR_MIXED = "; ingest --text COLUMN reads all labels of a table as text (text='COLUMN' in Python)"
FOR_TYPE = ": give all labels as text (y.astype(str)), or all as numbers"


def to_source_rows(
    X: Any, vectors: Mapping[str, tuple[Vector, Place]], names: tuple[str, ...] | None, numbers: bool | None
) -> SourceRows:
    """Return the rows of a piece, after converting and checking its vectors.

    vectors: for each role (label, sample_weight, qid, groups), the values and the function that names their places.
    numbers: whether the labels of earlier pieces were numbers (None: there were no labels). Raises InputError for bad
    values.
    """
    labels, merged = None, None
    if "label" in vectors:
        values, place = vectors["label"]
        labels = to_label_lists(values, place) if values.ndim == 2 else to_labels(values, place, numbers)
        merged = find_merged(labels, values, place)
    converters = {"sample_weight": to_weights, "qid": to_qid, "groups": to_groups}
    found: dict[str, Any] = {role: to(*vectors[role]) for role, to in converters.items() if role in vectors}
    row_names = vectors["index"][0] if "index" in vectors else None
    return SourceRows(X, labels, feature_names=names, row_names=row_names, merged=merged, **found)


def refuse_name(y: Any) -> None:
    """Raise InputError if y is a single string (most likely a column name), or a list with values of several types."""
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) > 1:
        raise InputError(f"y mixes text and other values{FOR_TYPE}")
    if isinstance(y, str):
        name = show_text(y)
        raise InputError(f"y is the string {name!r}: give the labels, or use streamsvm.ingest(X, PATH, label={name!r})")


def has_number_labels(rows: SourceRows) -> bool | None:
    """Return whether the labels are numbers; None if there are no labels."""
    return None if rows.labels is None else rows.labels.dtype.kind in "bf"


def find_text_fault(label: str) -> str:
    """Explain why an array of strings cannot hold a label, or would need too much memory; return "" if it can."""
    if len(label) > MOST_LABEL_CHARACTERS:
        return f"label has {len(label):,} characters, more than {MOST_LABEL_CHARACTERS:,}"
    return "label holds a character of code 0" if "\0" in label else ""


def to_labels(values: Vector, place: Place, numbers: bool | None) -> Labels:
    """Return the labels of a piece: booleans, numbers as float64, or text as NumPy strings.

    Raises InputError for bad labels.
    """
    values = settle_type(values, place, numbers)
    if numbers is not None and numbers != (values.dtype.kind in NUMBER_KINDS + "O"):
        before, now = ("numbers", "text") if numbers else ("text", "a number")
        raise InputError(f"{place(0)}: labels were {before} so far, but this is {now}: {show_text(values[0])}")
    if values.dtype.kind == "b" or (values.dtype.kind == "O" and all(isinstance(v, bool | np.bool_) for v in values)):
        return values.astype(np.bool_)
    if values.dtype.kind in NUMBER_KINDS + "O":
        coded = np.array([_round(label) for label in values]) if values.dtype.kind == "O" else values.astype(np.float64)
        refuse(~np.isfinite(coded), values, place, "label missing or not finite", FOR_LABEL)
        return coded
    named = _decode(values, place)
    refuse(named == "", values, place, "label missing", FOR_LABEL)
    return named


def to_label_lists(values: Any, place: Place) -> LabelLists:
    """Return the rows of an indicator matrix as lists of labels. Raises InputError for values other than 0 and 1."""
    entries = values.data if issparse(values) else values
    if entries.dtype.kind not in NUMBER_KINDS:
        raise InputError(f"{place(0)}: {entries.dtype} is not a number; a matrix of labels holds 0 and 1")
    bad = (entries != 0) & (entries != 1)
    if bad.any():
        row = 0 if issparse(values) else int(np.argmax(bad.any(axis=1)))
        raise InputError(f"{place(row)}: a matrix of labels holds only 0 and 1, not {show_text(entries[bad].flat[0])}")
    return list_columns(values, values.shape[1])


def _decode(values: Vector, place: Place) -> npt.NDArray[np.str_]:
    """Return labels as NumPy strings. Raises InputError for bytes that are not UTF-8, and for invalid code points."""
    try:
        named: Vector = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values.astype(np.str_)
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{place(0)}: some labels are not text: {error}") from error
    codes = np.ascontiguousarray(named).view(np.uint32).reshape(len(named), -1)
    bad = (codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))
    if bad.any():
        raise InputError(f"{place(int(np.argmax(bad.any(axis=1))))}: the label is not valid text")
    return named


def settle_type(labels: Vector, place: Place, numbers: bool | None = None) -> Vector:
    """Convert labels to numbers or strings, which a model file can store. Raises InputError for other types.

    numbers: whether earlier labels were numbers (see `to_source_rows`).
    """
    if labels.dtype.kind in NUMBER_KINDS + "US":
        return labels
    if labels.dtype.kind == "T":  # NumPy's StringDType
        labels = labels.astype(object)
    if labels.dtype.kind != "O":
        raise InputError(f"{place(0)}: a label is a {labels.dtype}, neither a number nor text{FOR_TYPE}")
    refuse(np.array([is_missing(label) for label in labels]), labels, place, "label missing", FOR_LABEL)
    are_numbers = np.array([isinstance(label, Real | np.bool_ | Decimal) for label in labels], np.bool_)
    are_texts = np.array([isinstance(label, str) for label in labels], np.bool_)
    refuse(~(are_numbers | are_texts), labels, place, "label is neither a number nor text", FOR_TYPE)
    for i in np.flatnonzero(are_texts).tolist():
        if fault := find_text_fault(labels[i]):
            raise InputError(f"{place(i)}: {fault}")
    if numbers:
        refuse(are_texts, labels, place, "labels were numbers so far, but this is text", FOR_MIXED)
    if are_numbers.all():
        return labels
    refuse(are_numbers, labels, place, "other labels are text, but this is a number", FOR_TYPE)
    return labels.astype(np.str_)


def _round(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def name_classes(classes: Vector, place: Place) -> Vector:
    """Return the classes in the type that a model stores: bool, int64, float64 or text.

    Raises InputError if float64 merges some of them.
    """
    named = np.asarray(classes.tolist())
    if named.dtype.kind == "U":
        refuse(named == "", classes, place, "label missing", FOR_LABEL)
    if named.dtype.kind in "biU":
        return named
    labels = to_labels(classes, place, None)
    if (merged := find_merged(labels, classes, place)) is not None:
        raise InputError(str(merged[0]))
    if len(np.unique(np.asarray(labels))) < len(classes):
        raise InputError(f"{place(0)}: some of the labels are one and the same as float64{FOR_TYPE}")
    return np.asarray(labels)


def find_merged(labels: Any, values: Any, place: Place) -> npt.NDArray[np.str_] | None:
    """Return an error message, (1,), if a label may lose digits as a float64; otherwise None.

    Such labels cannot be classes. values: the original labels. labels: the values as `to_labels` returns them.
    """
    if getattr(labels, "dtype", None) != np.float64 or isinstance(labels, LabelLists):
        return None
    bad = np.abs(labels) >= FIRST_MERGED
    if values.dtype.kind == "f":
        bad |= labels != values
    if not bad.any():
        return None
    first = int(np.argmax(bad))
    return np.array([f"{place(first)}: the label {show_text(values[first])} {MERGED}"])


MOST_NAMED = 12  # the maximum number of columns of a kind that a message lists

COMMA = "numbers with a comma: --decimal , reads them if it is the decimal mark (decimal=',' in Python)"
POINT = (
    "numbers with a point, which --decimal , does not read as a decimal mark; --decimal . does (decimal='.' in Python)"
)
_ODD = (  # patterns of texts that are most likely numbers or dates, with their descriptions and remedies
    (re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?"), COMMA),
    (re.compile(r"[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?"), POINT),
    (
        re.compile(r"[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2})([ T].*)?"),
        "dates: --date-format reads them, such as %d.%m.%Y for 31.12.2024",
    ),
    (re.compile(r"[+-]?[$€£]? ?[0-9][0-9.,' ]*[%$€£]?"), "numbers with extra characters: write plain numbers"),
)


def is_text(word: str, decimal: str | None = None) -> bool:
    """Return whether a cell is text: neither a number nor a missing value. decimal: see Columns."""
    return not is_gap(word, False) and parse_number(word, decimal) is None


def is_gap(word: str, among_texts: bool) -> bool:
    """Return whether a cell represents a missing value. among_texts: whether its column is a column of text."""
    return word.strip() in missing_words(among_texts)


def find_label_fault(word: str, kind: str | None, decimal: str | None = None) -> str:
    """Explain why a cell of a table cannot be a label; return "" if it can.

    kind, decimal: see Columns.
    """
    shown = show_text(word.strip())
    if is_gap(word, kind in (TEXT, GIVEN)):
        remedy = f"; if {shown} is a class, ingest --text COLUMN keeps it (text='COLUMN' in Python)"
        return f"label missing{f': {shown}' if shown else ''}{FOR_LABEL}{remedy if shown and kind is None else ''}"
    if kind == TARGET and parse_number(word, decimal) is None:
        odd = explain_text([word.strip()], decimal)
        return f"the label {shown!r} is text; a target must be a number{f'; these seem to be {odd}' if odd else ''}"
    return find_text_fault(word)


def find_point(word: str) -> str:
    """Describe the fault of a number with a point where the comma is the decimal mark; return "" for other words."""
    is_odd = explain_text([word], ",") == POINT
    return f"not a number: {show_text(word)!r}; these seem to be {POINT}" if is_odd else ""


def refuse_words(words: Sequence[str], codes: Vector, place: Place, find_fault: Callable[[str], str]) -> None:
    """Raise InputError for the first row with a faulty word. codes: for each row, the index of its word in `words`."""
    faults = {k: fault for k, word in enumerate(words) if (fault := find_fault(word))}
    if faults:
        first = int(np.argmax(np.isin(codes, list(faults))))
        raise InputError(f"{place(first)}: {faults[int(codes[first])]}")


def explain_kind(kind: str, is_known: bool) -> str:
    """Explain why a column is read as numbers or dates, and how to change this.

    is_known: whether the encoding is given.
    """
    if is_known:
        return f"the column holds {kind}s in the rows for which the encoding was made"
    other = "number" if kind == "date" else "date"
    return f"its first rows or --{kind} make this a column of {kind}s; ingest --text or --{other} changes this"


def advise_on_table(texts: Sequence[str], gaps: Sequence[str]) -> str:
    """Return the remedy for all columns of a table that hold text or have missing values.

    texts, gaps: the names of these columns. The remedy lists them in the form that the options take.
    """
    if gaps and not texts:
        return FOR_MISSING
    advice, named = FOR_TEXT, _list_columns(texts)
    if len(texts) > 1:
        chosen = "auto" if len(texts) > MOST_NAMED else named
        ways = f"ingest --one-hot {chosen} encodes them, --hash BITS hashes them, --drop {named} omits them"
        advice = f"{say_count(len(texts), 'column')} are of text: {named}; {ways} (one_hot, hash_bits, drop in Python)"
    more = f"; values are missing as well, in {_list_columns(gaps)}: --missing mean|zero|indicator fills them in"
    return advice + more * bool(gaps)


def _list_columns(names: Sequence[str]) -> str:
    return ",".join(map(show_text, names[:MOST_NAMED])) + ",.." * (len(names) > MOST_NAMED)


def explain_text(words: Iterable[str], decimal: str | None = None) -> str:
    """If all texts look like dates, or like numbers in an unusual notation, name this kind and the remedy; else "".

    Words that are plain numbers or missing values are ignored. decimal: see Columns.
    """
    texts = [word for word in words if is_text(word, decimal)]
    return next((why for look, why in _ODD if texts and all(look.fullmatch(text) for text in texts)), "")
