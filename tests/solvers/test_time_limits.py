"""Computations in memory look at the time limit and at Ctrl-C in every step: none waits for its last step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

from streamsvm.losses.convex import Kinks
from streamsvm.numeric.rows import Rows
from streamsvm.problems.classification import Hinge
from streamsvm.solvers.crammer_singer.block_ascent import ClassAscent
from streamsvm.solvers.crammer_singer.kernel_active_set import solve_by_interior_point
from streamsvm.solvers.cutting_plane import coordinate_ascent, small_qp
from streamsvm.solvers.cutting_plane.kink_path import minimise_kinks
from streamsvm.solvers.cutting_plane.line_search import AnyLoss, AnyLossState, RowSample
from streamsvm.solvers.cutting_plane.score_model import minimise_model
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows, Linear, minimise
from streamsvm.solvers.decomposition.all_active import solve_in_factor
from streamsvm.solvers.one_class.solver import find_nearest
from streamsvm.solvers.softmax import lbfgs
from streamsvm.system import deadline, interrupts

N, WIDTH, K, C = 80, 6, 3, 10.0  # rows, entries of w, classes, and the cost of a row
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((N, WIDTH - 1)).astype(np.float32)
CODES = (np.argmax(X[:, :K] + RANDOM.standard_normal((N, K)), axis=1)).astype(np.int32)
Y, COSTS, ZERO, HALF = np.where(CODES == 0, -1.0, 1.0), np.full(N, C), np.zeros(WIDTH), np.full(N, 0.5)
ROWS, ALL = Rows(0, X, (CODES > 0).astype(np.int32)), Rows(0, X, CODES)
DATA, NONE = HingeRows(ROWS, Y, COSTS, 1.0), Linear(ZERO, 0.0)


def ascend_classes() -> Any:
    settings = ClassAscent((C,) * K, N, (0, N))
    part = settings.make_part(ALL, np.zeros((N, K)))
    return settings.ascend([part], np.zeros(K * WIDTH), 0.0, 1e-9, 10_000, (0,))


def ascend() -> Any:
    part = coordinate_ascent.make_part(ROWS, np.full(2, C), 1.0, np.zeros(N))
    return coordinate_ascent.ascend([part], 1.0, ZERO, 0.0, 1e-9, 10_000, (0,))


def minimise_any_loss() -> Any:
    sample = RowSample(1.0, np.arange(N), 1.0, is_whole=True, held=ROWS, loss=Hinge((C, C)))
    return minimise_model(AnyLoss(sample.loss, tol=1e-9), sample, AnyLossState.at_zero(WIDTH))


def minimise_softmax() -> Any:
    sample = lbfgs.Sample(ALL, np.full(K, C), 1.0, 1, np.float64)
    start = np.zeros((K, WIDTH))
    return lbfgs.minimise(sample, lbfgs.Model(start, start), start, 1e-12)


def solve_class_kernel() -> Any:
    is_own = np.equal.outer(np.arange(K), CODES).astype(np.float64)
    return solve_by_interior_point(X @ X.T, CODES, COSTS, np.zeros((N, K)), is_own)


SOLVERS: dict[str, Callable[[], Any]] = {
    "smoothed hinge": lambda: minimise(DATA, NONE, 1e-12, ZERO),
    "shares": lambda: small_qp.maximise_shares(DATA, small_qp.multiply_rows(ROWS, 1.0), HALF, DATA.combine(HALF), 0.0),
    "refined shares": lambda: small_qp.refine_shares(DATA, HALF, DATA.combine(HALF), 0.0),
    "kinks": lambda: minimise_kinks(ROWS, Kinks(-Y[None], Y[None], COSTS[None]), 1.0, 1e-12, 300, ZERO, NONE),
    "ascent": ascend,
    "ascent, all classes": ascend_classes,
    "any loss": minimise_any_loss,
    "nearest point": lambda: find_nearest(X, np.ones(N), N / 4),
    "softmax": minimise_softmax,
    "kernel, all classes": solve_class_kernel,
    "kernel": lambda: solve_in_factor(X.astype(np.float64), Y, COSTS, 1e-12),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_in_memory_looks_at_the_limits_in_every_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit passes when it is looked at for the second time; a solver ends at most one step later."""
    steps, looks = list[int](), count()
    monkeypatch.setattr(interrupts, "check", lambda: steps.append(next(looks)))
    SOLVERS[name]()
    n_steps = len(steps)
    assert n_steps > 4
    steps.clear()
    with deadline.held(late_after(1)):
        SOLVERS[name]()
    assert len(steps) <= 3


def late_after(n_looks: int) -> Callable[[], bool]:
    """A time limit that has passed after this many looks."""
    looks = count()
    return lambda: next(looks) >= n_looks
