"""The values of a source, checked and converted: features, labels, sample weights, query ids and groups."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError

Vector = npt.NDArray[Any]
Place = Callable[[int], str]  # returns where the i-th value of a piece stands in its source

NUMBER_KINDS = "biuf"  # the kinds of dtypes that are numbers: bool, int, unsigned int, float
BOOLEANS = {"true": 1.0, "false": 0.0}
# The spellings of pyarrow and pandas, and the mark of the UCI repository.
_MISSING_WORDS = (
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
TEXT, TARGET, GIVEN = "text", "target", "given"  # labels named by --text, or by --regression, or given as values
FOR_TEXT = (
    "ingest --one-hot takes a column of text as categories, --hash as hashed features, --drop leaves it out "
    "(one_hot, hash_bits, drop in Python)"
)
NOT_UTF8 = "not UTF-8 text; `iconv -f LATIN1 -t UTF-8 OLD > NEW` converts a file, with the encoding that it has"
LEAST_WEIGHT = float(np.finfo(np.float64).tiny)
TOO_SMALL = f"below {LEAST_WEIGHT:.1e}, too small to compute with: make it larger, or 0, which leaves its row out"
FIRST_MERGED = 2.0**53  # from here on, several whole numbers become one float64
FOR_ID = ": give integers or texts"
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # the least float64 that rounds to an infinite float32
LEAST_GROUP = -(2**62)  # groups that are texts have smaller numbers
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


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


def missing_words(is_text: bool) -> tuple[str, ...]:
    """Return the cells of a table that are missing values; in a column of text only the empty cell is."""
    return ("",) if is_text else _MISSING_WORDS


def find_feature_fault(value: Any) -> str:
    """Say why a value is no finite float32; return "" if it is one."""
    try:
        number = float("no" if isinstance(value, str) else value)
    except OverflowError:
        return "overflows float32"
    except (TypeError, ValueError):
        return "missing value" if is_missing(value) else f"not a number: {value!r}"
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


def to_weights(values: Vector, place: Place) -> npt.NDArray[np.float64]:
    """Return the sample weights of a piece. Raises InputError unless they are finite and not negative."""
    if values.dtype.kind not in NUMBER_KINDS:
        bad = np.array([bool(find_feature_fault(value)) for value in values])
        refuse(bad, values, place, "sample weight is no number")
    weights = values.astype(np.float64)
    refuse(~np.isfinite(weights), values, place, "sample weight is not finite")
    refuse(weights < 0, values, place, "sample weight is negative")
    refuse((weights > 0) & (weights < LEAST_WEIGHT), values, place, f"sample weight is {TOO_SMALL}")
    return weights


def to_qid(values: Vector, place: Place) -> npt.NDArray[np.int64]:
    """Return the query ids of a piece: whole numbers of any type as they are, texts by their hash (see `to_groups`).

    Raises InputError for missing ids, and for numbers that are not whole.
    """
    if values.dtype.kind not in "iu":
        texts = {value for value in values.tolist() if isinstance(value, str) and value.strip()}
        known = {text: _number_query(text.strip()) for text in texts}
        values = np.array([known.get(value, value) for value in values.tolist()], object) if texts else values
        refuse_merged(values, place, "the query id")
        bad = np.array([not _is_whole(value) for value in values])
        refuse(bad, values, place, "query id is no whole number")
    qid = values.astype(np.int64)
    refuse(qid != values, values, place, "query id is beyond 64 bits")
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
        refuse(beyond, values, place, "the group is a time beyond 64 bits of nanoseconds")
        values = values.astype("datetime64[ns]").astype(np.int64)
    refuse_merged(values, place, "the group")
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
    if is_missing(word):
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


def refuse_merged(values: Vector, place: Place, what: str) -> None:
    """Raise InputError for a number of floating point at which whole numbers merge."""
    floats = [isinstance(value, float | np.floating) for value in values] if values.dtype.kind in "fO" else []
    for i in np.flatnonzero(floats).tolist():
        if FIRST_MERGED <= abs(values[i]) < math.inf:
            raise InputError(
                f"{place(i)}: {what} {values[i]} is a float from 2^53 on, which may have lost digits{FOR_ID}"
            )


def _is_whole(value: Any) -> bool:
    if not issubclass(type(value), Real) or not math.isfinite(value):  # numbers of NumPy are Real, too
        return False
    return float(value).is_integer() and -(2**63) <= int(value) < 2**63


def is_missing(value: object) -> bool:
    """Tell whether a value stands for none."""
    if isinstance(value, str):
        return not value
    return value is None or str(value) in ("nan", "<NA>", "NaT")


def refuse(bad: npt.NDArray[np.bool_], values: Vector, place: Place, reason: str, remedy: str = "") -> None:
    """Raise InputError, which shows the first bad value and its place, if there is one."""
    if bad.any():
        first = int(np.argmax(bad))
        shown = show_text(values[first])
        raise InputError(f"{place(first)}: {reason}" + (f": {shown}" if shown else "") + remedy)
