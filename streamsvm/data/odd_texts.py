"""Texts in tables that seem to be numbers or dates, in forms that are not read as such."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from streamsvm.data.values import MISSING_WORDS, parse_number

KNOWN_NUMBERS = "the column is of numbers in the rows that the encoding was made for"
MARKS = str.maketrans({",": ".", ".": ","})
_DECIMAL = "numbers with a comma: --decimal , reads them if it is the decimal mark (decimal=',' in Python)"
_ODD = (  # what texts look like that are to be numbers or dates by all likelihood, and what to do about them
    (re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?"), _DECIMAL),
    (
        re.compile(r"[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2})([ T].*)?"),
        "dates, which are read in the form 2024-12-31: write them so",
    ),
    (re.compile(r"[+-]?[$€£]? ?[0-9][0-9.,' ]*[%$€£]?"), "numbers with other signs: write plain ones"),
)


def explain_text(words: Iterable[str]) -> str:
    """Say of what kind texts seem to be, and what to do, if all that are no numbers look like dates or odd numbers."""
    texts = [word for word in words if word not in MISSING_WORDS and parse_number(word) is None]
    return next((why for look, why in _ODD if texts and all(look.fullmatch(text) for text in texts)), "")


def swap_marks(words: Sequence[str]) -> Sequence[str]:
    """Return texts with points for commas and commas for points, if all of them are numbers then."""
    swapped = [word.translate(MARKS) for word in words]
    return words if None in map(parse_number, swapped) else swapped
