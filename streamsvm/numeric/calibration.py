"""The ways to turn scores into probabilities, by name: how each is fitted, applied, stored and checked.

What is fitted is stored as JSON in the `info` of a model, under the name of the way:

    sigmoids       {"A": [..], "B": [..]}, a number for each score
    isotonic       [{"scores": [..], "probabilities": [..]}, ..], the corners of the function of each score
    temperature    {"beta": ..}

The probabilities of K > 2 classes by sigmoids or isotonic functions are divided by their sum; those of labels, of which
a row may have any number, are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.isotonic import MOST_CORNERS, apply_isotonic, fit_isotonic
from streamsvm.numeric.rows import F64, I32
from streamsvm.numeric.saved_parts import read_number, read_part
from streamsvm.numeric.sigmoids import apply_sigmoid, fit_sigmoid
from streamsvm.numeric.temperature import apply_temperature, fit_temperature

Truth = I32 | npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Calibration:
    """A way from scores to probabilities.

    key: the name in a model's `info`. fit(scores (n, K) or (n, 1), truth, weight (n,)): what is stored; ValueError if
    the rows do not suffice. truth: the codes of the rows' classes (n,), or which labels they have (n, K).
    apply(stored, scores (n,) or (n, K)): the probabilities (n, K). check(stored, n_scores): ValueError unless that was
    stored for so many scores. apply_each(stored, scores (n, K)): the probability that each score tells by itself, (n,
    K), or None where the way tells none. needs_every_class: whether rows of every class are needed, and not just rows.
    """

    key: str
    fit: Callable[[F64, Truth, F64], Any]
    apply: Callable[[Any, F64], F64]
    check: Callable[[Any, int], None]
    apply_each: Callable[[Any, F64], F64] | None = None
    needs_every_class: bool = True

    def choose_apply(self, has_label_sets: bool) -> Callable[[Any, F64], F64]:
        """Return `apply_each` for rows with sets of labels, if there is one, and otherwise `apply`."""
        return self.apply_each if has_label_sets and self.apply_each is not None else self.apply


def _each_class(scores: F64, truth: Truth) -> list[tuple[F64, Any]]:
    """Return each score of the rows, with whether the rows are of the class, or have the label, that it stands for."""
    if truth.ndim == 2:
        return list(zip(scores.T, truth.T, strict=True))
    if scores.shape[1] == 1:
        return [(scores[:, 0], truth == 1)]
    return [(scores[:, k], truth == k) for k in range(scores.shape[1])]


def share_out(each: F64) -> F64:
    """Return the probability of each class, (n, K), from (n, 1) for two classes, or from K numbers a row."""
    if each.shape[1] == 1:
        return np.column_stack((1.0 - each[:, 0], each[:, 0]))
    sums = np.sum(each, axis=1, keepdims=True)
    return np.where(sums > 0.0, each / np.where(sums > 0.0, sums, 1.0), 1.0 / each.shape[1])


def _count_rare(own: Any, weight: F64, truth: Truth) -> tuple[float, float] | None:
    """Return the weights of the rows with a label and of those without, if one of them is 0; None otherwise.

    Such a label has one probability for all rows: that of Platt's targets (numeric.sigmoids).
    """
    positive = float(np.sum(weight, where=own))
    negative = float(np.sum(weight)) - positive
    return None if truth.ndim == 1 or min(positive, negative) > 0.0 else (positive, negative)


def _fit_sigmoids(scores: F64, truth: Truth, weight: F64) -> dict[str, list[float]]:
    found = []
    for f, own in _each_class(scores, truth):
        rare = _count_rare(own, weight, truth)
        constant = None if rare is None else (0.0, float(np.log((rare[1] + 1.0) / (rare[0] + 1.0))))
        found.append(constant or fit_sigmoid(f, own, weight))
    A, B = (list(each) for each in zip(*found, strict=True))
    return {"A": A, "B": B}


def _apply_each_sigmoid(stored: Mapping[str, Any], scores: F64) -> F64:
    return apply_sigmoid(scores, np.asarray(stored["A"]), np.asarray(stored["B"]))


def _apply_sigmoids(stored: Mapping[str, Any], scores: F64) -> F64:
    return share_out(_apply_each_sigmoid(stored, np.atleast_2d(scores.T).T))


def _check_sigmoids(stored: Any, n_scores: int) -> None:
    for name in ("A", "B"):
        _read_numbers(stored, name, n_scores, "sigmoids")


def _fit_isotonic(scores: F64, truth: Truth, weight: F64) -> list[dict[str, list[float]]]:
    found = []
    for f, own in _each_class(scores, truth):
        rare = _count_rare(own, weight, truth)
        constant = None if rare is None else (np.zeros(1), np.array([(rare[0] + 1.0) / (sum(rare) + 2.0)]))
        found.append(constant or fit_isotonic(f, own, weight))
    return [{"scores": at.tolist(), "probabilities": p.tolist()} for at, p in found]


def _apply_each_isotonic(stored: Any, scores: F64) -> F64:
    each = np.empty((len(scores), len(stored)))
    for k, own in enumerate(stored):
        each[:, k] = apply_isotonic(scores[:, k], np.asarray(own["scores"]), np.asarray(own["probabilities"]))
    return each


def _apply_isotonic(stored: Any, scores: F64) -> F64:
    return share_out(_apply_each_isotonic(stored, np.atleast_2d(scores.T).T))


def _check_isotonic(stored: Any, n_scores: int) -> None:
    if not isinstance(stored, list) or len(stored) != n_scores:
        raise ValueError(f"isotonic: {n_scores} functions are expected")
    for own in stored:
        at = read_part(own, "scores") if isinstance(own, dict) else None
        if not isinstance(at, list) or not 1 <= len(at) <= MOST_CORNERS:
            raise ValueError(f"isotonic: scores of 1 to {MOST_CORNERS} corners are expected")
        corners = _read_numbers(own, "scores", len(at), "isotonic")
        p = _read_numbers(own, "probabilities", len(at), "isotonic")
        if np.any(np.diff(corners) <= 0.0):
            raise ValueError("isotonic: the scores of the corners do not ascend")
        if np.any(np.diff(p) < 0.0) or p[0] < 0.0 or p[-1] > 1.0:
            raise ValueError("isotonic: the probabilities descend, or are not from 0 to 1")


def _fit_temperature(scores: F64, codes: Truth, weight: F64) -> dict[str, float]:
    return {"beta": fit_temperature(scores, codes.astype(np.int32, copy=False), weight)}


def _apply_temperature(stored: Mapping[str, Any], scores: F64) -> F64:
    return apply_temperature(scores, float(stored["beta"]))


def _check_temperature(stored: Any, n_scores: int) -> None:  # noqa: ARG001
    if not isinstance(stored, dict) or read_number(stored, "beta") <= 0.0:
        raise ValueError("temperature: a positive number beta is expected")


def _read_numbers(stored: Any, name: str, n: int, of: str) -> F64:
    """Return n finite numbers; ValueError for anything else."""
    values = read_part(stored, name) if isinstance(stored, dict) else None
    if not isinstance(values, list) or len(values) != n:
        raise ValueError(f"{of}: {n} numbers {name} are expected")
    return np.array([read_number({name: value}, name) for value in values])


CALIBRATIONS = {
    "sigmoid": Calibration("sigmoids", _fit_sigmoids, _apply_sigmoids, _check_sigmoids, _apply_each_sigmoid),
    "isotonic": Calibration("isotonic", _fit_isotonic, _apply_isotonic, _check_isotonic, _apply_each_isotonic),
    "temperature": Calibration(
        "temperature", _fit_temperature, _apply_temperature, _check_temperature, needs_every_class=False
    ),
}


def find_calibration(info: Mapping[str, Any]) -> str | None:
    """Return the name of the way that is stored in a model's `info`, or None."""
    return next((name for name, way in CALIBRATIONS.items() if way.key in info), None)


def check_calibration(info: Mapping[str, Any], n_scores: int) -> None:
    """Raise ValueError unless what `info` stores of each way was fitted to so many scores."""
    for way in CALIBRATIONS.values():
        if way.key in info:
            way.check(info[way.key], n_scores)
