"""`streamsvm delete`: which rows are to be deleted, and the command."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.errors import InputError, say_count

if TYPE_CHECKING:
    from streamsvm.numeric.rows import I64

ROWS = re.compile(r"\d{1,18}(-\d{1,18})?(,\d{1,18}(-\d{1,18})?)*")  # numbers and ranges of rows


def delete(options: argparse.Namespace) -> int:
    """Delete the rows, and say how many are left."""
    import numpy as np

    from streamsvm.data.delete import delete_rows
    from streamsvm.data.open_dataset import open_dataset

    before = open_dataset(options.data).n_rows
    rows = None if options.rows is None else np.concatenate([parse_rows(text, before) for text in options.rows])
    left = delete_rows(options.data, rows, groups=options.group).n_rows
    told = {"path": str(options.data), "deleted_rows": before - left, "n_rows": left}
    text = f"{options.data}: {say_count(before - left, 'row')} deleted, {say_count(left, 'row')} left"
    print(json.dumps(told) if options.json else text)
    return 0


def parse_rows(text: str, n_rows: int) -> I64:
    """Return the numbers of some of n_rows rows, of a text like "0-99,250" or of a file with such a text a line."""
    import numpy as np

    lines = [text]
    if not ROWS.fullmatch(text):
        try:
            lines = [line.strip() for line in Path(text).read_text().splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise InputError(f"--rows {text}: neither numbers like 0-99,250 nor a file of them ({error})") from None
    found = [np.zeros(0, np.int64)]
    for line in lines:
        if not ROWS.fullmatch(line):
            raise InputError(f"{text}: numbers of rows are expected, such as 0-99,250, and not {line[:40]!r}")
        for part in line.split(","):
            first, _, last = part.partition("-")
            if int(first) > int(last or first) or int(last or first) >= n_rows:
                raise InputError(f"--rows {text}: {part} is no row, or no range, of {say_count(n_rows, 'row')}")
            found.append(np.arange(int(first), int(last or first) + 1))
    return np.concatenate(found)
