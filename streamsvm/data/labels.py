"""Convert values of any type to class labels, or refuse them with a reason. No other module does so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from streamsvm.data.label_lists import LabelLists, list_columns
from streamsvm.data.source_rows import Labels, SourceRows
from streamsvm.data.values import (
    FIRST_MERGED,
    NUMBER_KINDS,
    Place,
    Vector,
    is_missing,
    refuse,
    show_text,
    to_groups,
    to_qid,
    to_weights,
)
from streamsvm.errors import InputError

MOST_LABEL_CHARACTERS = 1000  # each label takes as much memory as the longest one read with it
FOR_LABEL = "; training rows need labels: take this row out, and let `predict` give it one"
MERGED = (
    "may lose digits as a float64, and be taken for another class: write such labels as texts, such as "
    "id72048431380967004, or number the classes from 0"
)
FOR_MIXED = "; ingest --text COLUMN takes all labels of a table as texts (text='COLUMN' in Python)"
FOR_TYPE = ": give all labels as texts, such as by y.astype(str), or all as numbers"


def to_source_rows(
    X: npt.NDArray[np.float32] | csr_array,
    vectors: Mapping[str, tuple[Vector, Place]],
    names: tuple[str, ...] | None,
    numbers: bool | None,
) -> SourceRows:
    """Return the rows of a piece, whose label, sample_weight, qid and groups are checked, as far as there are any.

    `numbers` tells whether the labels were numbers so far (None: there were none). Raises InputError for bad values.
    """
    labels, merged = None, None
    if "label" in vectors:
        values, place = vectors["label"]
        labels = to_label_lists(values, place) if values.ndim == 2 else to_labels(values, place, numbers)
        merged = find_merged(labels, values, place)
    weight = to_weights(*vectors["sample_weight"]) if "sample_weight" in vectors else None
    qid = to_qid(*vectors["qid"]) if "qid" in vectors else None
    groups = to_groups(*vectors["groups"]) if "groups" in vectors else None
    row_names = vectors["index"][0] if "index" in vectors else None
    return SourceRows(X, labels, qid, weight, names, groups, row_names=row_names, merged=merged)


def refuse_name(y: Any) -> None:
    """Raise InputError for one text, by all likelihood the name of a column, and for a list of several types."""
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) > 1:
        raise InputError(f"y holds texts and other values{FOR_TYPE}")
    if isinstance(y, str):
        raise InputError(
            f"y is the text {show_text(y)!r}, and no labels: give the values of that column, or make a dataset by "
            f"streamsvm.ingest(X, PATH, label={show_text(y)!r})"
        )


def has_number_labels(rows: SourceRows) -> bool | None:
    """Tell whether the labels are numbers; None without labels."""
    return None if rows.labels is None else rows.labels.dtype.kind == "f"


def find_text_fault(label: str) -> str:
    """Say why an array of texts cannot hold a label, or only at a high cost; return "" if it can."""
    if len(label) > MOST_LABEL_CHARACTERS:
        return f"label has {len(label):,} characters, more than {MOST_LABEL_CHARACTERS:,}"
    return "label holds a character of code 0" if "\0" in label else ""


def to_labels(values: Vector, place: Place, numbers: bool | None) -> Labels:
    """Return the labels of a piece: numbers as float64, texts as NumPy's own. Raises InputError for bad labels."""
    values = settle_type(values, place, numbers)
    if numbers is not None and numbers != (values.dtype.kind in NUMBER_KINDS + "O"):
        before, now = ("numbers", "text") if numbers else ("text", "a number")
        raise InputError(f"{place(0)}: labels were {before} so far, this is {now}: {show_text(values[0])}")
    if values.dtype.kind in NUMBER_KINDS + "O":
        coded = np.array([_round(label) for label in values]) if values.dtype.kind == "O" else values.astype(np.float64)
        refuse(~np.isfinite(coded), values, place, "label missing or not finite", FOR_LABEL)
        return coded
    named = _decode(values, place)
    refuse(named == "", values, place, "label missing", FOR_LABEL)
    return named


def to_label_lists(values: Any, place: Place) -> LabelLists:
    """Return the rows of an indicator matrix, dense or sparse, as lists. InputError for values other than 0 and 1."""
    entries = values.data if issparse(values) else values
    if entries.dtype.kind not in NUMBER_KINDS:
        raise InputError(f"{place(0)}: {entries.dtype} is not a number; a matrix of labels holds 0 and 1")
    bad = (entries != 0) & (entries != 1)
    if bad.any():
        row = 0 if issparse(values) else int(np.argmax(bad.any(axis=1)))
        raise InputError(f"{place(row)}: a matrix of labels holds 0 and 1, and not {show_text(entries[bad].flat[0])}")
    return list_columns(values, values.shape[1])


def _decode(values: Vector, place: Place) -> npt.NDArray[np.str_]:
    """Return labels as text. Raises InputError for bytes that are no UTF-8, and for codes that are no character."""
    try:
        named: npt.NDArray[np.str_] = (
            np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values.astype(np.str_)
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{place(0)}: some labels are no text: {error}") from error
    codes = np.ascontiguousarray(named).view(np.uint32).reshape(len(named), -1)
    bad = (codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))
    if bad.any():
        raise InputError(f"{place(int(np.argmax(bad.any(axis=1))))}: label is no text")
    return named


def settle_type(labels: Vector, place: Place, numbers: bool | None = None) -> Vector:
    """Convert labels to numbers or texts, which a model file can store. Raises InputError for other types.

    numbers: as in `to_source_rows`.
    """
    if labels.dtype.kind in NUMBER_KINDS + "US":
        return labels
    if labels.dtype.kind == "T":  # NumPy's texts of any length
        labels = labels.astype(object)
    if labels.dtype.kind != "O":
        raise InputError(f"{place(0)}: a label is a {labels.dtype}, neither a number nor a text{FOR_TYPE}")
    refuse(np.array([is_missing(label) for label in labels]), labels, place, "label missing", FOR_LABEL)
    are_numbers = np.array([isinstance(label, Real | np.bool_ | Decimal) for label in labels], np.bool_)
    are_texts = np.array([isinstance(label, str) for label in labels], np.bool_)
    refuse(~(are_numbers | are_texts), labels, place, "label is neither a number nor a text", FOR_TYPE)
    for i in np.flatnonzero(are_texts).tolist():
        if fault := find_text_fault(labels[i]):
            raise InputError(f"{place(i)}: {fault}")
    if numbers:
        refuse(are_texts, labels, place, "labels were numbers so far, this is text", FOR_MIXED)
    if are_numbers.all():
        return labels
    refuse(are_numbers, labels, place, "other labels are texts, this is a number", FOR_TYPE)
    return labels.astype(np.str_)


def _round(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def name_classes(classes: Vector, place: Place) -> Vector:
    """Return different labels as a model holds them: bool, int64, float64, texts. InputError if float64 merges some."""
    named = np.asarray(classes.tolist())
    if named.dtype.kind in "biU":
        return named
    labels = to_labels(classes, place, None)
    if (merged := find_merged(labels, classes, place)) is not None:
        raise InputError(str(merged[0]))
    if len(np.unique(np.asarray(labels))) < len(classes):
        raise InputError(f"{place(0)}: some of the labels are one and the same as float64{FOR_TYPE}")
    return np.asarray(labels)


def find_merged(labels: Any, values: Any, place: Place) -> npt.NDArray[np.str_] | None:
    """Return why labels are no classes, (1,), if float64 does not tell one of them from its neighbours; else None.

    labels: the values as `to_labels` returns them.
    """
    if getattr(labels, "dtype", None) != np.float64 or isinstance(labels, LabelLists):
        return None
    bad = np.abs(labels) >= FIRST_MERGED
    if values.dtype.kind == "f":
        bad |= labels != values
    if not bad.any():
        return None
    first = int(np.argmax(bad))
    return np.array([f"{place(first)}: the label {show_text(values[first])} {MERGED}"])
