"""What the writer of each format returns, and what several of them need: numbers as text, and classes as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvm.errors import InputError
from streamsvm.models.model import Model
from streamsvm.models.saved_model import Intercept
from streamsvm.numeric.rows import F64
from streamsvm.problems.registry import PROBLEMS

BLOCK = 4096  # features that are turned into text at a time
MOST_LISTED_CLASSES = 10
ONLY_SCORES = "the ranking is written as a regression, which predicts the score"
LABELS = np.iinfo(np.int32)  # LIBLINEAR and LIBSVM read labels as numbers of 32 bits


@dataclass(frozen=True)
class Exported:
    """A model as the contents of a file.

    parts: text or bytes, which are made while they are written. notes: sentences about what is other than in
    the model, or is left out.
    """

    parts: Iterator[str] | Iterator[bytes]
    notes: tuple[str, ...] = ()


def name_loss(model: Model) -> str:
    """Return the loss that the model was trained with."""
    task = str(model.info.get("task", model.default_task))
    return str(model.info.get("loss", next(iter(PROBLEMS[task].losses))))


def write_lines(table: F64) -> Iterator[str]:
    """Yield a line for each row of numbers, (n, k); the numbers are read back with the same bits."""
    for at in range(0, len(table), BLOCK):
        yield "".join(" ".join(map(repr, row)) + "\n" for row in table[at : at + BLOCK].tolist())


def number_classes(classes: np.ndarray) -> tuple[list[int], tuple[str, ...]]:
    """Return classes as labels of LIBLINEAR and LIBSVM, which are whole numbers, and a note if they had to be numbered.

    Classes that are such numbers stay as they are; others are numbered from 0 in their order.
    """
    if classes.dtype.kind in "iufb":
        numbers = classes.astype(np.float64)
        if np.array_equal(numbers, np.round(numbers)) and LABELS.min <= numbers.min() <= numbers.max() <= LABELS.max:
            return [int(number) for number in numbers], ()
    listed = [f"{code} is {name}" for code, name in enumerate(classes.tolist()[:MOST_LISTED_CLASSES])]
    more = ", and so on" if len(classes) > MOST_LISTED_CLASSES else ""
    note = f"labels are whole numbers there, so the classes are numbered in their order: {', '.join(listed)}{more}"
    return list(range(len(classes))), (note,)


def require_one_class_a_row(model: Model) -> None:
    """Raise InputError if rows have any number of labels, where LIBLINEAR and LIBSVM choose one for each row."""
    if model.problem.has_label_sets:
        raise InputError(
            "rows of this model have any number of labels, and this format chooses one for each row; choose --to onnx, "
            "--to csv or --to json"
        )


def require_finite(*parts: F64 | Intercept | Any) -> None:
    """Raise InputError if a weight is infinite, as those of raw features may be where those of scaled ones are not."""
    if not all(np.isfinite(part).all() for part in parts):
        raise InputError("some weights of raw rows are too large for float64; ingest with another --scale, or none")
