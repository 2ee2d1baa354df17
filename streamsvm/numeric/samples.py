"""Samples of the rows that stay in memory while a solver begins: which rows they are, and for how many each stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.numeric.rows import F64, I64, Rows, take_rows


def draw_sample(number: int, n_rows: int, seed: int, is_shuffled: bool) -> I64:
    """Return the numbers of a random sample, in ascending order: all rows if there is room for them.

    Of shuffled rows these are the first ones, which can be read without all others.
    """
    if number >= n_rows or is_shuffled:
        return np.arange(min(number, n_rows))
    return np.unique(np.random.default_rng((seed, 0)).integers(0, n_rows, number))


def find_first_rows(rows: Rows, numbers: I64) -> Rows | None:
    """Return the rows with these numbers, which ascend, if they are the first rows, which a pass need not read."""
    return rows if len(numbers) and numbers[-1] == len(numbers) - 1 else None


def weigh_rows(rows: Rows, weight: F64 | float) -> Rows:
    """Return a sample, in which the weight of each row is multiplied by the number of rows that it stands for."""
    own = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    return replace(rows, start=0, sample_weight=weight * own)


def pick_rows(rows: Rows, numbers: I64) -> Rows:
    """Return some of the rows, by their places among them, in memory of their own."""
    vectors: dict[str, Any] = {name: values[numbers] for name, values in rows.vectors.items()}
    return Rows(-1, take_rows(rows.X, numbers), **vectors)
