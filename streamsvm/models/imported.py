"""Models of other programs: a model file of LIBLINEAR becomes a linear model, to predict with and to start from.

The lines before `w` name the solver, the labels and the numbers of classes and features; then a line has the weights of
a feature, one for each class if there are more than two. If `bias` is at least 0, one line more has the weights of a
feature that has this value in all rows. Nothing is known of the rows, so that such a model has no certificate.
Source: `load_model` in LIBLINEAR's linear.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from streamsvm.errors import InputError, say_count
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64
from streamsvm.numeric.saved_parts import MOST_FEATURES

LOSSES = {
    "L2R_L1LOSS_SVC_DUAL": "hinge",
    "L2R_L2LOSS_SVC": "squared_hinge",
    "L2R_L2LOSS_SVC_DUAL": "squared_hinge",
    "L1R_L2LOSS_SVC": "squared_hinge",
    "L2R_LR": "logistic",
    "L2R_LR_DUAL": "logistic",
    "L1R_LR": "logistic",
}
NAMES = ("solver_type", "nr_class", "label", "nr_feature", "bias")
MOST_LINE = 1 << 24  # characters; a line has a number for each class
MOST_CLASSES = 1 << 20


def read_liblinear(path: str | Path) -> LinearModel:
    """Return the classifier of a model file of LIBLINEAR, for raw rows.

    Raises
    ------
    InputError
        If it is no such file, or if its model is no classifier whose loss streamsvm has.
    """
    try:
        with Path(path).open(encoding="ascii") as file:
            return _read(file)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path}: this is no model file of LIBLINEAR, which is text") from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: this is no model file of LIBLINEAR that can be read ({error})") from error


def _read(file: TextIO) -> LinearModel:
    """Return the model of a file; ValueError for an unsuitable part."""
    head = _read_head(file)
    solver = head["solver_type"][0]
    if solver not in LOSSES:
        raise ValueError(f"solver_type is {solver[:40]!r}; {', '.join(LOSSES)} are read")
    labels = [int(label) for label in head["label"]]
    if len(labels) != int(head["nr_class"][0]) or not 2 <= len(set(labels)) == len(labels) <= MOST_CLASSES:
        raise ValueError("label has not as many different labels as nr_class says, two or more")
    d, bias = int(head["nr_feature"][0]), float(head["bias"][0])
    if not 1 <= d <= MOST_FEATURES or not math.isfinite(bias):
        raise ValueError("nr_feature or bias are not possible")
    n_scores = len(labels) if len(labels) > 2 else 1
    w = _read_weights(file, d + (bias >= 0), n_scores)
    b = bias * w[:, d] if bias >= 0 else np.zeros(n_scores)
    order = np.argsort(labels)
    classes, info = (
        np.array(sorted(labels), np.int64),
        {"solver": f"liblinear {solver}", "task": "classify", "loss": LOSSES[solver]},
    )
    if n_scores == 1:
        sign = 1.0 if order[0] else -1.0  # a score above 0 is for the first label there, for the larger one here
        return LinearModel(sign * w[0, :d], float(sign * b[0]), classes, info=info)
    return LinearModel(np.ascontiguousarray(w[order, :d]), b[order], classes, info=info)


def _read_head(file: TextIO) -> dict[str, list[str]]:
    """Return the values of the lines before `w` by name; all of NAMES are there."""
    head: dict[str, list[str]] = {}
    while (words := file.readline(MOST_LINE).split()) != ["w"]:
        if len(words) < 2 or words[0] not in NAMES or words[0] in head:
            raise ValueError(f"{' '.join(words)[:40]!r} where one of {', '.join(NAMES)} and its value are expected")
        head[words[0]] = words[1:]
    if missing := [name for name in NAMES if name not in head]:
        raise ValueError(f"{missing[0]} is missing")
    return head


def _read_weights(file: TextIO, n_lines: int, n_scores: int) -> F64:
    """Return the weights of each score, (n_scores, n_lines)."""

    def read_numbers() -> Iterator[float]:
        for number in range(n_lines):
            words = file.readline(MOST_LINE).split()
            if len(words) != n_scores:
                where = f"line {number + 1:,} after w"
                raise ValueError(f"{where} has {say_count(len(words), 'number')}; {n_scores} are expected")
            yield from map(float, words)

    found = np.fromiter(read_numbers(), np.float64).reshape(n_lines, n_scores)
    if any(line.strip() for line in islice(file, 1)):
        raise ValueError("there is more after the weights")
    if not np.isfinite(found).all():
        raise ValueError("a weight is not finite")
    return np.ascontiguousarray(found.T)
