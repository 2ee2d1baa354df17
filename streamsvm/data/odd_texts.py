"""Texts in tables: what to do about columns of them, and texts that seem to be numbers or dates in other forms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from streamsvm.data.labels import FOR_LABEL, find_text_fault
from streamsvm.data.values import (
    FOR_MISSING,
    FOR_TEXT,
    GIVEN,
    TARGET,
    TEXT,
    Place,
    Vector,
    missing_words,
    parse_number,
    show_text,
)
from streamsvm.errors import InputError, say_count

MOST_NAMED = 12  # columns of a kind in a message

MARKS = str.maketrans({",": ".", ".": ","})
COMMA = "numbers with a comma: --decimal , reads them if it is the decimal mark (decimal=',' in Python)"
POINT = "numbers with a point, which is not read as a decimal mark beside --decimal , (decimal=',' in Python)"
_ODD = (  # what texts look like that are to be numbers or dates by all likelihood, and what to do about them
    (re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?"), COMMA),
    (re.compile(r"[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?"), POINT),
    (
        re.compile(r"[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2})([ T].*)?"),
        "dates, which are read in the form 2024-12-31: write them so",
    ),
    (re.compile(r"[+-]?[$€£]? ?[0-9][0-9.,' ]*[%$€£]?"), "numbers with other signs: write plain ones"),
)


def is_text(word: str) -> bool:
    """Tell whether a cell is neither a number nor a missing value."""
    return not is_gap(word, False) and parse_number(word) is None


def has_texts(words: Iterable[str], decimal: str | None = None) -> bool:
    """Tell whether some cells are texts. decimal: see Columns."""
    return any(is_text(word.translate(MARKS) if decimal == "," else word) for word in words)


def is_gap(word: str, among_texts: bool) -> bool:
    """Tell whether a cell is a missing value."""
    return word.strip() in missing_words(among_texts)


def find_label_fault(word: str, kind: str | None, decimal: str | None = None) -> str:
    """Say why a cell of a table is no label; return "" if it is one.

    kind, decimal: see Columns.
    """
    shown = show_text(word.strip())
    if is_gap(word, kind in (TEXT, GIVEN)):
        remedy = f"; if {shown} is a class, ingest --text COLUMN keeps it (text='COLUMN' in Python)"
        return f"label missing{f': {shown}' if shown else ''}{FOR_LABEL}{remedy if shown and kind is None else ''}"
    if kind == TARGET and parse_number(word.translate(MARKS) if decimal == "," else word) is None:
        odd = explain_text([word.strip()], decimal)
        return f"the label {shown!r} is a text; a target is a number{f'; these seem to be {odd}' if odd else ''}"
    return find_text_fault(word)


def refuse_labels(words: Sequence[str], codes: Vector, place: Place, kind: str | None, decimal: str | None) -> None:
    """Raise InputError for the first row that has no label. words, codes: the different texts, and that of each row."""
    faults = {k: fault for k, word in enumerate(words) if (fault := find_label_fault(word, kind, decimal))}
    if faults:
        first = int(np.argmax(np.isin(codes, list(faults))))
        raise InputError(f"{place(first)}: {faults[int(codes[first])]}")


def explain_kind(kind: str, is_known: bool) -> str:
    """Say why a column is of numbers or dates, and what names another kind. is_known: whether its encoding is."""
    if is_known:
        return f"the column is of {kind}s in the rows that the encoding was made for"
    return (
        f"the column is of {kind}s by its first rows, or by --{kind}; ingest --text, --date or --number COLUMN names "
        "its kind (text, date, number in Python)"
    )


def advise_on_table(texts: Sequence[str], gaps: Sequence[str]) -> str:
    """Say what to do about a table, some of whose columns are of text, or have missing values: about all at once."""
    if not gaps:
        return advise_on_text(texts)
    if not texts:
        return FOR_MISSING
    named = ",".join(map(show_text, gaps[:MOST_NAMED])) + ",.." * (len(gaps) > MOST_NAMED)
    return (
        f"{advise_on_text(texts)}; values are missing as well, in {named}: --missing mean|zero|indicator fills them in"
    )


def advise_on_text(columns: Sequence[str]) -> str:
    """Say what to do about the columns of a table that are of text: all of them at once, as an option names them."""
    if len(columns) < 2:
        return FOR_TEXT
    named, is_long = ",".join(map(show_text, columns[:MOST_NAMED])), len(columns) > MOST_NAMED
    return (
        f"{say_count(len(columns), 'column')} are of text: {named}{',..' * is_long}; ingest --one-hot "
        f"{'auto' if is_long else named} takes them as categories, --hash BITS as hashed features, --drop "
        f"{named}{',..' * is_long} leaves them out (one_hot, hash_bits, drop in Python)"
    )


def explain_text(words: Iterable[str], decimal: str | None = None) -> str:
    """Say of what kind texts seem to be, and what to do, if all that are no numbers look like dates or odd numbers.

    decimal: see Columns.
    """
    read = {word: word.translate(MARKS) if decimal == "," else word for word in words if not is_gap(word, False)}
    texts = [word for word, plain in read.items() if parse_number(plain) is None]
    return next((why for look, why in _ODD if texts and all(look.fullmatch(text) for text in texts)), "")
