"""Texts in tables that seem to be numbers or dates, in forms that are not read as such."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streamsvm.data.values import MISSING_WORDS, parse_number

KNOWN_NUMBERS = "the column is of numbers in the rows that the encoding was made for"
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


def explain_text(words: Iterable[str], decimal: str | None = None) -> str:
    """Say of what kind texts seem to be, and what to do, if all that are no numbers look like dates or odd numbers.

    decimal: see Columns.
    """
    read = {word: word.translate(MARKS) if decimal == "," else word for word in words if word not in MISSING_WORDS}
    texts = [word for word, plain in read.items() if parse_number(plain) is None]
    return next((why for look, why in _ODD if texts and all(look.fullmatch(text) for text in texts)), "")
