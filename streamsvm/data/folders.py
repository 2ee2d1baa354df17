"""Columns in the names of folders: parts/site=1/rows.parquet has a column `site`, as Hive, pandas and pyarrow write it.

The folders COLUMN=VALUE that lie directly above a file count, however the file is named. Names and values are unquoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from streamsvm.data.values import missing_words, parse_number

MISSING_VALUE = "__HIVE_DEFAULT_PARTITION__"
INTEGER = "integer"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?")


def is_column(folder: str) -> bool:
    """Tell whether the name of a folder is COLUMN=VALUE."""
    return folder.find("=") > 0


def read_folders(path: str | Path) -> dict[str, str | None]:
    """Return the values of the columns that the folders of a file name, the outermost first; None if one is missing."""
    folders = str(path).split("/")[:-1]
    first = next((k for k in range(len(folders), 0, -1) if not is_column(folders[k - 1])), 0)
    named = [folder.partition("=") for folder in folders[first:]]
    return {unquote(name): None if value == MISSING_VALUE else unquote(value) for name, _, value in named}


def find_folders(paths: Sequence[str | Path]) -> tuple[tuple[str, str], ...]:
    """Return the columns that the folders of files name, and the kind of each: of all files together.

    A column is of integers, numbers or dates if all its values are, and otherwise of text.
    """
    found: dict[str, set[str]] = {}
    for path in paths:
        for name, value in read_folders(path).items():
            found.setdefault(name, set()).update([value] if value is not None else [])
    return tuple((name, _find_kind(words)) for name, words in found.items())


def _find_kind(words: set[str]) -> str:
    if all(map(_WHOLE_NUMBER.fullmatch, words)):
        return INTEGER
    known = words - set(missing_words(False))
    if all(parse_number(word) is not None for word in known):
        return "number"
    return "date" if all(map(_DATE.fullmatch, known)) else "text"
