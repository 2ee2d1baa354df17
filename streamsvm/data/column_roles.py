"""The roles of a table's columns: as the user names them, as a dataset recalls them, and as its files can have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from streamsvm.data.formats import ENCODED, FORMATS, find_format, guess_format, name_option
from streamsvm.data.odd_texts import is_text
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.tables import Columns
from streamsvm.data.values import TARGET, TEXT
from streamsvm.errors import InputError


def name_columns(columns: Columns, vectors: Mapping[str, Any]) -> tuple[Columns, dict[str, Any]]:
    """Return the roles with those that were given as names of columns, and the values of the others."""
    named: dict[str, Any] = {role: values for role, values in vectors.items() if isinstance(values, str)}
    return replace(columns, **named), {role: None if role in named else values for role, values in vectors.items()}


def recall_label(
    columns: Columns, paths: Sequence[str | Path], file_format: str | None, dataset: str | Path | None
) -> Columns:
    """Return the roles of columns with the label in the column of a dataset, if it is known and no other is named."""
    known = None if dataset is None or columns.label is not None else open_dataset(dataset).label_column
    tables = all("label" in find_format(file_format or guess_format(path)).reads for path in paths)
    return replace(columns, label=known) if known is not None and tables else columns


def choose_label_kind(classes: npt.NDArray[Any] | None, has_targets: bool) -> str | None:
    """Return the kind of the labels of rows whose classes are known, or that have targets; see Columns.label_kind.

    Where a class looks like a number or a missing value, its labels were taken as texts.
    """
    if has_targets:
        return TARGET
    words = classes.tolist() if classes is not None and classes.dtype.kind == "U" else ()
    return TEXT if any(not is_text(word) for word in words) else None


def encode_as(columns: Columns, dataset: str | Path | None, regression: bool) -> Columns:
    """Return the roles with labels and features read as in an existing dataset, if there is one."""
    known = None if dataset is None else open_dataset(dataset)
    kind = None if known is None else choose_label_kind(known.classes, known.has_targets)
    columns = replace(columns, label_kind=TARGET if regression else kind)
    encoding = None if known is None else known.encoding
    if encoding is None:
        return columns
    for name in ENCODED[1:]:
        if getattr(columns, name) not in (None, ()):
            raise InputError(
                f"{name_option(name)} has no effect on rows that are encoded as those of {dataset}: leave it out"
            )
    return replace(columns, drop=(), encoding=encoding, features=encoding.column_names, index=encoding.index)


def _join(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def refuse_unread(name: str, kind: str, columns: Columns) -> None:
    """Raise InputError for a column, or a kind of header, that was named although files of this kind have none."""
    for field in fields(Columns):
        readers = [other for other, each in FORMATS.items() if field.name in each.reads]
        if readers and kind not in readers and getattr(columns, field.name) != field.default:
            remedy = ", or name the format, such as --format csv" if kind == next(iter(FORMATS)) else ""
            raise InputError(
                f"{name}: {name_option(field.name)} has no effect on {kind} files: leave it out{remedy}; it is for "
                f"{_join(readers)}"
            )
