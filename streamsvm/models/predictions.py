"""Predictions of rows: arrays of labels, scores and probabilities, and the columns of a table that they become."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError, say_count
from streamsvm.models.model import Model
from streamsvm.models.probabilities import find_probabilities, require_probabilities
from streamsvm.problems.classification import choose, choose_labels
from streamsvm.problems.problem import Scored

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Wanted:
    """Which predictions are written.

    Attributes
    ----------
    probabilities : bool
        Whether there is the probability of each class.
    top : int or None
        Whether there are so many labels with the highest scores, in place of the one label and the scores of all.
    row_numbers : bool
        Whether there is the number of each row, counted from 0.
    columns : tuple of str
        The arrays and columns that are written, in this order; all if it is empty.
    """

    probabilities: bool = False
    top: int | None = None
    row_numbers: bool = False
    columns: tuple[str, ...] = ()


def check_wanted(model: Model, wanted: Wanted) -> None:
    """Raise InputError for predictions that the model does not make."""
    if wanted.probabilities:
        require_probabilities(model)
    if wanted.top is None:
        return
    if not (model.problem.predicts_labels and model.score_shape):
        raise InputError(
            f"--top {wanted.top} chooses among the scores of several classes, and the model gives each row one score"
        )
    if wanted.top > len(model.classes):
        raise InputError(f"--top {wanted.top}: the model has {say_count(len(model.classes), 'class')}")


def name_columns(model: Model, wanted: Wanted) -> dict[str, list[str]]:
    """Return the names of the columns of each array of predictions, by the name of the array."""
    problem, classes = model.problem, list(map(str, model.classes.tolist()))
    several = [str(k + 1) for k in range(wanted.top)] if wanted.top else classes
    names = {"row": ["row"], "name": ["name"]} if wanted.row_numbers else {"name": ["name"]}
    if problem.predicts_labels:
        one = "labels" if problem.has_label_sets else "label"
        names["label"] = [f"label {each}" for each in several] if wanted.top else [one]
    names["score"] = [f"score {each}" for each in several] if model.score_shape else [problem.score_name]
    if wanted.probabilities:
        names["probability"] = [f"probability {each}" for each in several]
    return names


def predict_part(model: Model, part: Scored, first_row: int, wanted: Wanted) -> Arrays:
    """Return the predictions of some rows, the first of which has this number.

    row : (n,) int64, numbers of the rows, if they are wanted
    name : (n,) texts, if something names the rows
    label : (n,) int32, positions in the classes of the model; (n, top), or an indicator matrix (n, L) uint8 of sets
    score : (n,) or (n, K) float64
    probability : (n, K) float64, if it is wanted
    """
    scores: npt.NDArray[Any] = part.scores
    arrays: Arrays = {}
    if wanted.row_numbers:
        arrays["row"] = np.arange(first_row, first_row + len(scores))
    if part.row_names is not None:
        arrays["name"] = part.row_names
    if wanted.top is not None:
        order = np.argsort(-scores, axis=1, kind="stable")[:, : wanted.top]
        arrays |= {"label": order.astype(np.int32), "score": np.take_along_axis(scores, order, axis=1)}
        if wanted.probabilities:
            arrays["probability"] = np.take_along_axis(find_probabilities(model, scores), order, axis=1)
        return arrays
    if model.problem.has_label_sets:
        arrays["label"] = choose_labels(scores).astype(np.uint8)
    elif model.problem.predicts_labels:
        arrays["label"] = choose(scores).astype(np.int32)
    arrays["score"] = scores
    if wanted.probabilities:
        arrays["probability"] = find_probabilities(model, scores)
    return arrays


def predict_parts(model: Model, scored: Iterable[Scored], wanted: Wanted) -> Iterator[Arrays]:
    """Yield the predictions of all rows, as the scores arrive. See `predict_part`."""
    n_rows = 0
    for part in scored:
        yield predict_part(model, part, n_rows, wanted)
        n_rows += len(part.scores)


def gather(parts: Iterator[Arrays], least_rows: int) -> Iterator[Arrays]:
    """Yield the parts joined to at least so many rows each; the last one may have fewer."""
    held: list[Arrays] = []
    for part in parts:
        held.append(part)
        if sum(len(each["score"]) for each in held) >= least_rows:
            yield _join(held)
            held = []
    if held:
        yield _join(held)


def _join(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def choose_columns(model: Model, wanted: Wanted) -> list[str]:
    """Return the names of the columns of a table, in order: all, but for the scores of sets of labels, which are many.

    The name of an array stands for its columns. Raises InputError for a name that is neither.
    """
    names = name_columns(model, wanted)
    if not wanted.columns:
        are_many = model.problem.has_label_sets and wanted.top is None
        return [each for array, own in names.items() if not (are_many and array == "score") for each in own]
    known = {each: [each] for own in names.values() for each in own} | names
    _require(wanted.columns, known)
    return [each for name in wanted.columns for each in known[name]]


def choose_arrays(model: Model, wanted: Wanted) -> list[str]:
    """Return the names of the arrays that are written. Raises InputError for a name that is none."""
    names = name_columns(model, wanted)
    _require(wanted.columns, names)
    return list(wanted.columns or names)


def _require(chosen: Sequence[str], known: Iterable[str]) -> None:
    for k, name in enumerate(chosen):
        if name not in known:
            listed = ", ".join(list(known)[:12])
            raise InputError(f"--columns: no predictions are called {name[:40]!r}; there are {listed}")
        if name in chosen[:k]:
            raise InputError(f"--columns: {name!r} is asked for twice")


def tabulate(model: Model, arrays: Arrays, wanted: Wanted, classes: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the columns of a table by name, (n,) each; `classes` are what stands for the classes.

    The column of sets of labels is a list of arrays. Raises InputError for names of rows that nothing names.
    """
    table: dict[str, Any] = {}
    for array, names in name_columns(model, wanted).items():
        if array not in arrays:
            continue
        values = arrays[array]
        if array == "label" and model.problem.has_label_sets and wanted.top is None:
            table[names[0]] = _split_labels(values, classes)
            continue
        values = classes[values] if array == "label" else values
        table |= zip(names, np.atleast_2d(values.T), strict=True)
    chosen = choose_columns(model, wanted)
    if "name" in wanted.columns and "name" not in table:
        raise InputError("--columns: nothing names the rows; --id COLUMN does")
    return {name: table[name] for name in chosen if name in table}


def _split_labels(has: npt.NDArray[Any], classes: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the labels of each row of an indicator matrix."""
    rows, codes = np.nonzero(has)
    return np.split(classes[codes], np.searchsorted(rows, np.arange(1, len(has))))


def fit_rows(n_values: int, width: tuple[int, ...]) -> int:
    """Return how many rows of this many values each have about `n_values` values."""
    return max(1, n_values // max(1, math.prod(width)))
