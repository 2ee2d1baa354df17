"""Compiles the functions that score rows and measure scores, or loads them from the cache, before rows are read.

A model may be used on a machine that has never trained. So a child process compiles, and the user is told of it, as for
a training (methods.warm_up).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from streamsvm.models.model import KernelModel, Model
from streamsvm.numeric.compilation import load_or_compile
from streamsvm.numeric.feature_maps import KernelMap
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.many_kernel_sums import compute_kernel_sums
from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import CsrRows, Matrix

DENSE, SPARSE, PAIRS = "scores/dense", "scores/sparse", "pairs"


def compile_scores(model: Model, is_sparse: bool, with_measures: bool = False) -> None:
    """Load the compiled functions by which a model scores rows, and perhaps those that measure the scores.

    is_sparse: whether the rows are sparse.
    """
    if isinstance(model, KernelModel):
        names = [_name_sums(model.kernel, model.support_vectors)]
    elif model.features is None:
        names = [SPARSE if is_sparse else DENSE]
    else:
        names = [DENSE]
        if isinstance(model.features.map, KernelMap):
            names.append(_name_sums(model.features.map.kernel, model.features.map.rows))
    if with_measures and (len(model.classes) == 2 or not model.problem.predicts_labels):
        names.append(PAIRS)
    _compile(tuple(names))


def compile_all_scores() -> None:
    """Load the compiled functions by which models of any kind score rows of any layout, and those of measures."""
    sums = [f"{kind}-kernel-scores/{layout}" for kind in ("linear", "rbf") for layout in ("dense", "sparse")]
    _compile((DENSE, SPARSE, PAIRS, *sums))


def run_scores(name: str) -> None:
    """Call the functions of a name on two rows."""
    X: Matrix = np.eye(2, dtype=np.float32)
    if name.endswith("sparse"):
        X = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
    if name == PAIRS:
        for starts in ([0, 2], [0, 1, 2]):  # without queries, and with queries
            count_pairs(np.zeros(2), Pairs(np.arange(2, dtype=np.int32), np.ones(2), np.array(starts)), 1.0)
    elif name in (DENSE, SPARSE):
        compute_scores(X, np.zeros((1, 2)))
    else:
        kernel = Kernel(name.partition("-")[0])
        add_kernel_sums(kernel, to_float64(X), X, np.ones(2), np.zeros(2))
        compute_kernel_sums(kernel, to_float64(X), X, np.ones((3, 2)))


def _name_sums(kernel: Kernel, rows: Matrix) -> str:
    """Return the name of sums over these rows. All kernels but the linear one share their functions."""
    kind = "linear" if kernel.name == "linear" else "rbf"
    return f"{kind}-kernel-scores/{'sparse' if isinstance(rows, CsrRows) else 'dense'}"


@lru_cache
def _compile(names: tuple[str, ...]) -> None:
    load_or_compile(names, run_scores)
