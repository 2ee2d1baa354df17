"""Compiles every function that a fit needs, or loads it from the cache, before memory is measured and tasks run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streamsvm.methods.registry import METHODS
from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.compilation import load_or_compile
from streamsvm.numeric.moments import add_moments
from streamsvm.numeric.rows import CsrRows, Rows, compute_scores, take_rows

# The groups whose name is not that of a method: "" is for scoring rows and measuring models, "platt" for Platt's loops,
# and "one-read" for what cutting planes need beside their own group then.
GROUPS = {
    "": ("cutting-plane", "smo"),
    "platt": ("smo",),
    "one-read": ("cutting-plane",),
}
FEATURE_MAPS = "feature-map"  # This group belongs to the feature maps, which are no method and have no record.


def compile_all(groups: Sequence[str]) -> None:
    """Load several groups of compiled functions."""
    for group in groups:
        compile_kernels(group)


@lru_cache
def compile_kernels(group: str = "") -> None:
    """Load a group from numba's cache; a child process first compiles the functions that are not there."""
    load_or_compile(group, run_kernels)


def run_kernels(group: str) -> None:
    """Call the functions of a group on two rows, once dense and once sparse."""
    X, y = np.eye(2, dtype=np.float32), np.arange(2, dtype=np.int32)
    sparse = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
    make_canonical_rows(sparse)
    for rows in (Rows(0, X, y), Rows(0, sparse, y)):
        take_rows(rows.X, np.arange(2))
        compute_scores(rows.X, np.zeros((1, 2)))
        add_moments([], rows, np.ones((1, 2)))
        for each in _find_modules(group):
            each.run_kernels(group, rows)


def _find_modules(group: str) -> list[Any]:
    """Return the objects whose `run_kernels` calls a group: methods, or the set-up module of feature maps."""
    if group == FEATURE_MAPS:
        from streamsvm.methods.feature_map import setup

        return [setup]
    names = GROUPS.get(group, (group,))
    return [method for method in METHODS if method.name in names]
