"""Cells of the CSV files that we write. A text that a spreadsheet would run as a formula gets a guard.

Spreadsheets take a cell that begins with =, +, -, @, a tab or a line's end for a formula, quoted or not, and a formula
can start programs. We put an apostrophe before such a text, as OWASP advises ("CSV Injection"). Numbers stay as they
are, signs included: -1 is a label of many datasets, and a number starts nothing.
"""

from __future__ import annotations

import re
from typing import Any

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # full width last
GUARD = "'"


def write_cell(value: Any) -> str:
    """Return a value as a cell, with quotes if CSV needs them (RFC 4180) and a guard if a spreadsheet needs it."""
    text = str(value)
    if text.lstrip(" ").startswith(FORMULA_STARTS) and not NUMBER.fullmatch(text):
        text = GUARD + text
    return '"' + text.replace('"', '""') + '"' if re.search(r"[\",\r\n\t]|^\s|\s$", text) else text


def strip_guard(text: str) -> str:
    """Return the text of a cell without the guard that `write_cell` put before it."""
    return text[len(GUARD) :] if text.startswith(GUARD) else text
