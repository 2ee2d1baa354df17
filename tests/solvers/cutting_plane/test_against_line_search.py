"""Whatever the data, resident rows cost no more passes than the line search alone, but for two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64
from streamsvm.solvers.cutting_plane.block_ascent import BlockAscent
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane, LineState, solve
from streamsvm.solvers.cutting_plane.setup import BlockAscentSolver
from streamsvm.solvers.one_read import setup
from streamsvm.solvers.one_read.state import OneRead
from streamsvm.solvers.solver import Solver
from tests.conftest import choose_examples
from tests.linear_problems import run_steps

KINDS = ("normal", "repeated", "rare", "heavy", "sparse", "wide", "separable", "noise")


def make_rows(kind: str, seed: int, n: int, d: int) -> ArrayDataset:
    """Rows of one kind; labels sorted, so that chunks differ."""
    rng = np.random.default_rng(seed)
    X: F64 = rng.standard_normal((n, n + d if kind == "wide" else d))
    y = X[:, 0] + rng.standard_normal(n) * (0.0 if kind == "separable" else 1.0) > 0
    if kind == "repeated":
        few = rng.integers(0, max(2, n // 10), n)
        X, y = X[few], y[few]
    elif kind == "rare":
        y = np.arange(n) < 2
    elif kind == "heavy":
        X = X * rng.pareto(1.0, (n, 1))
    elif kind == "noise":
        y = rng.random(n) < 0.5
    elif kind == "sparse":
        X = X * (rng.random(X.shape) < 0.1)
    y[0], y[-1] = True, False
    order = np.argsort(y, kind="stable")
    matrix = csr_array(X[order].astype(np.float32)) if kind == "sparse" else X[order].astype(np.float32)
    return ArrayDataset(matrix, y[order].astype(np.int32), np.array([-1, 1]))


def make_fit(way: str, source: ArrayDataset, C: float, share: float) -> Solver:
    """The fit with so many resident rows, and for one read at least as many as it is chosen for."""
    if way == "one-read":
        resident = max(setup.count_enough(source), int(share * source.n_rows))
        return setup.make_solver(source, OneRead((C, C), resident))
    starts = tuple(source.chunk_starts.tolist())
    return BlockAscentSolver(source, BlockAscent((C, C), source.n_rows, starts)).beside_line_search()


@settings(max_examples=choose_examples(20, 500, 1000), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**6),
    n=st.integers(10, 150),
    d=st.integers(1, 12),
    log_C=st.floats(-3, 2),
    share=st.sampled_from([0.02, 0.1, 0.3, 1.0]),
    way=st.sampled_from(["block-ascent", "one-read"]),
)
@pytest.mark.timeout(900)
def test_never_wrong_and_never_much_slower(
    kind: str, seed: int, n: int, d: int, log_C: float, share: float, way: str
) -> None:
    source, C = make_rows(kind, seed, n, d), 10.0**log_C
    usual = run_steps(source, solve(CuttingPlane((C, C)), LineState.at_zero(source.n_features + 1)))[-1].progress
    fit = make_fit(way, source, C, share)
    last = run_steps(source, fit.solve(fit.start()))[-1]
    assert last.status == "converged"
    assert usual.lower_bound is not None
    assert last.progress.lower_bound is not None
    assert last.progress.lower_bound <= usual.objective * (1 + 1e-9)
    assert last.progress.objective >= usual.lower_bound * (1 - 1e-9)
    assert last.progress.passes <= usual.passes + 2
