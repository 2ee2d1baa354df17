"""Overflow: numbers that are too large for their type raise an error, instead of becoming infinite or NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamsvm.errors import InputError
from streamsvm.numeric.rows import F32, F64, Matrix


def round_rows(values: F64, which: str) -> F32:
    """Return values of rows in float32. Raises InputError, which names the rows as `which`, if some overflow."""
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    if not np.isfinite(found).all():
        raise InputError(f"{which} overflow float32")
    return found


def refuse_overflow(score: Callable[[Matrix], F64]) -> Callable[[Matrix], F64]:
    """Return a function that computes scores as `score` does, and raises InputError unless they are finite."""

    def score_finite(X: Matrix) -> F64:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = score(X)
        if not np.isfinite(scores).all():
            raise InputError(
                "the scores of some rows overflow float64: numbers of the model, or of the rows, are too large"
            )
        return scores

    return score_finite
