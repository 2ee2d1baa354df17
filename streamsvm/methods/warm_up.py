"""Compiles every function that a fit needs, or loads it from the cache, before memory is measured and tasks run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from streamsvm.methods.registry import METHODS
from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.compilation import load_or_compile
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import CsrRows, Matrix, Rows, take_rows

ALL_MODELS = ("cutting-plane", "ranking", "kernel-sums", "smo")  # what scores rows and measures models of any kind
FEATURE_MAPS = "feature-map"  # This group belongs to the feature maps, which are no method and have no record.
FEATURE_MAP_MODULE = "streamsvm.methods.feature_map.setup"
LAYOUTS = {False: "dense", True: "sparse"}


def compile_all(groups: Sequence[str], is_sparse: bool | None = None) -> None:
    """Load groups of compiled functions from numba's cache; a child process first compiles those that are not there.

    is_sparse: whether the rows are sparse, since functions are compiled for each layout by itself; None: for both.
    """
    layouts = [name for key, name in LAYOUTS.items() if is_sparse in (None, key)]
    _compile(tuple(f"{group}/{layout}" for layout in layouts for group in groups))


def compile_kernels(group: str = "", is_sparse: bool | None = None) -> None:
    """Load a group as `compile_all` does; without a name all that scores rows and measures models."""
    compile_all((group,) if group else ALL_MODELS, is_sparse)


@lru_cache
def _compile(names: tuple[str, ...]) -> None:
    load_or_compile(names, run_kernels)


def run_kernels(name: str) -> None:
    """Call the functions of a group on two rows of a layout. name: both, such as "cutting-plane/dense"."""
    group, _, layout = name.partition("/")
    X: Matrix = np.eye(2, dtype=np.float32)
    if layout == LAYOUTS[True]:
        X = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
        make_canonical_rows(X)
    take_rows(X, np.arange(2))
    compute_scores(X, np.zeros((1, 2)))
    for each in _find_modules(group):
        each.run_kernels(group, Rows(0, X, np.arange(2, dtype=np.int32)))


def _find_modules(group: str) -> list[Any]:
    """Return the modules whose `run_kernels` calls a group."""
    if group == FEATURE_MAPS:
        return [import_module(FEATURE_MAP_MODULE)]
    return [import_module(method.module) for method in METHODS if group in (method.compiled or (method.name,))]
