"""Recognise other formats in files that are read as svmlight text because their names tell no format."""

from __future__ import annotations

import re
from pathlib import Path

from streamsvm.data.formats import COMPRESSED, UNREAD
from streamsvm.data.text_files import READING_ERRORS, explain_reading, find_mark, open_text
from streamsvm.data.values import parse_number
from streamsvm.errors import InputError, NeedsOptionError
from streamsvm.urls import is_remote

HEAD_BYTES = 1 << 12
# The first bytes of other formats, and what these are: an ending of files, or a choice of --format.
_BYTES = rb"PK\x03\x04 MATLAB \x89HDF FCS[23]\. \$FL[23] \xd0\xcf\x11\xe0 <stata_dta> \x80[\x02-\x05] \x1f\x8b BZh[0-9]"
_TEXTS = rb"%%MatrixMarket %|@relation\b \[ \{ PAR1\x15 ARROW1 \x93NUMPY \xfd7zXZ"
_KINDS = ".zip .mat .h5 .fcs .sav .xls .dta .pkl .gz .bz2 .mtx .arff .json jsonl parquet arrow npy .xz"
BEGINNINGS = [re.compile(each, re.IGNORECASE) for each in (_BYTES + b" " + _TEXTS).split()]


def refuse_foreign(path: str | Path) -> None:
    """Raise InputError if a local file is no svmlight text by its beginning; the message names the remedy.

    Standard input, pipes and object stores can be read only once, so their reader raises the error.
    """
    if is_remote(path) or not Path(path).is_file():
        return
    try:
        with open_text(path) as file:
            head = file.read(HEAD_BYTES)
        advice = explain_foreign(head[find_mark(head) :])
    except READING_ERRORS as error:
        raise InputError(f"{path}: {explain_reading(error)}") from error
    if advice:
        raise NeedsOptionError(f"{path}: {advice}")


def explain_foreign(head: bytes) -> str:
    """Say what a text seems to be by its beginning, and what to do; "" if it may be svmlight text."""
    line = next((line for line in head.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    kind = next((kind for look, kind in zip(BEGINNINGS, _KINDS.split(), strict=True) if look.match(line)), None)
    if kind in COMPRESSED:
        return f"holds compressed data: let its name end in {kind}"
    if kind in UNREAD:
        return f"seems to be a {kind} file, which is not read: {UNREAD[kind]}"
    if kind is not None:
        return f"seems to be of the format {kind}: --format {kind} reads it (file_format={kind!r} in Python)"
    text = line.decode(errors="replace").strip()
    sep = "" if any(mark in text for mark in "\t,;|") else " --sep ' '"
    first = text.split(maxsplit=1)[0].split(",") if text else []
    is_row = all(parse_number(part.partition(":")[0]) is not None for part in first)
    if is_row or not text.replace("\t", "").isprintable() or (sep and (":" in text or " " not in text)):
        return ""
    return (
        f"is taken for svmlight text, as its name tells no format; the first line, {text[:60]!r}, seems to be of a "
        f"table: --format csv{sep} reads it (file_format='csv' in Python)"
    )
