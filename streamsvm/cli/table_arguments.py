"""The arguments that say how tables are read and encoded."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamsvm.data.formats import MISSING

if TYPE_CHECKING:
    from streamsvm.data.tables import Columns


def add_header(command: argparse.ArgumentParser) -> None:
    """Add how the first row of CSV is read, and which character separates its columns."""
    what = "whether the first row of CSV names the columns (default: auto, by what it holds)"
    command.add_argument("--header", choices=("auto", "yes", "no"), default="auto", help=what)
    mark = "the character that separates the columns of CSV, such as ; or | (default: by the file's name and first row)"
    command.add_argument("--sep", metavar="CHARACTER", help=mark)
    point = "the decimal mark of numbers in CSV, a comma or a point (default: the point)"
    command.add_argument("--decimal", choices=(",", "."), metavar="MARK", help=point)


def add_table(command: argparse.ArgumentParser) -> None:
    """Add which columns of a table become features, and how."""
    add_header(command)
    out = "columns of a table that are left out; may be given several times"
    command.add_argument("--drop", metavar="COLUMN,..", action="append", default=[], help=out)
    names = "column of a table that names the rows, and is no feature: predictions begin with these names"
    command.add_argument("--index", metavar="COLUMN", help=names)
    filled = (
        "missing values become the mean of the column, or zero, or zero with a feature that is 1 where the value is "
    )
    filled += "missing (default: they are refused)"
    command.add_argument("--missing", choices=MISSING, help=filled)
    each = "columns of which each category becomes a feature, 0 or 1; auto: all columns of text"
    command.add_argument("--one-hot", metavar="COLUMN,..|auto", action="append", default=[], help=each)
    hashed = "all other columns of text become 2^BITS features, by a hash of their values"
    command.add_argument("--hash", dest="hash_bits", metavar="BITS", type=int, help=hashed)
    for kind, noun in (("text", "text"), ("date", "dates"), ("number", "numbers")):
        own = f"columns of a table that are of {noun}, whatever its first rows hold"
        own += "; of labels, a text such as NA is a class then" if kind == "text" else ""
        command.add_argument(f"--{kind}", metavar="COLUMN,..", action="append", default=[], help=own)
    same = "a dataset; the table is encoded as that of this dataset was, as rows for `train --eval` have to be"
    command.add_argument("--like", metavar="DATA.zarr", help=same)


def read_columns(options: argparse.Namespace) -> Columns:
    """Return the roles of the columns of a table."""
    from streamsvm.data.formats import ROLES
    from streamsvm.data.tables import Columns

    return Columns(
        **{role: getattr(options, role) for role in ROLES},
        header=options.header,
        require_label=not options.unlabelled,
        multi_label=options.multi_label,
        sep=options.sep,
        decimal=options.decimal,
        index=options.index,
        missing=options.missing,
        hash_bits=options.hash_bits,
        drop=split_names(options.drop),
        one_hot=split_names(options.one_hot),
        text=split_names(options.text),
        date=split_names(options.date),
        number=split_names(options.number),
    )


def split_names(texts: list[str]) -> tuple[str, ...]:
    """Return the names of columns in texts such as "a,b"."""
    return tuple(name for text in texts for name in text.split(",") if name)
