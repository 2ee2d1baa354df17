"""The driver holds what `driver_bytes` says, measured where it holds most: as cuts are added, and saved."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pytest

from streamsvm.certificates.dual_points import Origin
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.options import TrainOptions
from streamsvm.passes import Progress, Step
from streamsvm.problems.ranking import ROW_VECTORS
from streamsvm.solvers.cutting_plane.cuts import CutSettings, RowSums, add_cuts, master_bytes
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane, LineState, start_totals
from streamsvm.solvers.cutting_plane.master import minimise_master, refine_master
from streamsvm.solvers.keep_dual import KeepDual, note_cuts
from streamsvm.solvers.one_read.solver import MOST_OWN
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.solver import Solver
from streamsvm.system.npz import pack_arrays
from tests.conftest import run_python

D, M = 50_000, 64


def full_state(random: np.random.Generator) -> LineState:
    """As many cuts as are kept at once."""
    cuts = random.standard_normal((M, D + 1))
    return replace(
        LineState.at_zero(D + 1),
        cuts=cuts,
        offsets=np.ones(M),
        sizes=np.ones(M),
        z=np.zeros(M),
        idle=np.zeros(M, np.int64),
        gram=cuts @ cuts.T,
        objective=100.0,
        passes=5,
        magnitudes=np.ones(D + 1),
        largest=np.ones(D + 1),
        total_cost=1.0,
        terms=100.0,
    )


def test_a_step_and_a_checkpoint_take_what_is_planned() -> None:
    settings, random = CuttingPlane((1.0, 1.0), max_cuts=M), np.random.default_rng(0)
    totals = start_totals(settings.cut_points(D + 1), D + 1)  # planned with the passes
    totals.gradients[:] = random.standard_normal(totals.gradients.shape)
    tracemalloc.start()
    try:
        before = full_state(random)
        tracemalloc.reset_peak()
        cuts = np.cumsum(totals.gradients, axis=0)[:4]
        after = minimise_master(add_cuts(before, RowSums(cuts, np.ones(4), np.ones(4)), M), 1e-3)
        stepping = tracemalloc.get_traced_memory()[1]
        assert len(after.cuts) == len(before.cuts) == M
        del before
        tracemalloc.reset_peak()
        pack_arrays({part.name: getattr(after, part.name) for part in fields(after)})
        saving = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(stepping, saving) <= settings.driver_bytes(D + 1)


@pytest.mark.parametrize(
    ("m", "width", "most"),
    [(200, 190, 200), (200, 210, 200), (200, 400, 200), (100, 9_000, 100), (204, 205, 210)],
)
def test_refining_the_master_problem_takes_what_is_planned(m: int, width: int, most: int) -> None:
    """The most: all cuts are on the face, and are factorised before that if there are more features than cuts.

    most: the number of cuts that is planned for, which may exceed the number of features.
    """
    cuts = np.random.default_rng(0).standard_normal((m, width))
    cuts /= np.linalg.norm(cuts, axis=1)[:, None]
    tracemalloc.start()
    try:
        solution, _ = refine_master(cuts, np.ones(m), np.full(m, 1 / m), 0.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.count_nonzero(solution.z) > m / 2
    assert peak <= master_bytes(width, most) + 8 * width * CutSettings.vectors


@pytest.mark.parametrize("with_queries", [False, True])
def test_a_ranking_holds_what_is_planned(with_queries: bool) -> None:
    """Pairs, scores, what counts them, and a checkpoint: by row, since there are few features, unless by query."""
    n, random = 200_000, np.random.default_rng(0)
    X = random.standard_normal((n, 3)).astype(np.float32)
    y = (X[:, 0] + random.standard_normal(n) > 0).astype(np.int32)
    qid = np.repeat(np.arange(n // 25), 25) if with_queries else None
    few = ArrayDataset(X[:500], y[:500], np.array([0, 1]), qid=None if qid is None else qid[:500])
    _make_steps(few)  # compiles
    tracemalloc.start()
    try:
        fit = _make_steps(ArrayDataset(X, y, np.array([0, 1]), qid=qid))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if with_queries:
        need = fit.memory(1)
        assert peak <= need.driver_bytes + need.totals_bytes
    else:
        assert 8 * 9 * n < peak <= 8 * ROW_VECTORS * n


def _make_steps(source: ArrayDataset) -> Solver:
    """Three steps, each with its checkpoint."""
    fit = set_up(source, TrainOptions(task="rank"))
    solver, engine, steps = fit.solve(fit.start()), SerialEngine(source), 0
    request = next(solver)
    while steps < 3:
        if isinstance(request, Step):
            steps += 1
            pack_arrays({part.name: getattr(request.state, part.name) for part in fields(request.state)})
            request = solver.send(None)
        else:
            request = solver.send(answer(engine, request))
    return fit


def test_keeping_a_dual_point_takes_what_is_planned() -> None:
    """As many cuts as are kept at once, each made at ends of its own; and a checkpoint of all that is known of them."""
    n_features, random = 20_000, np.random.default_rng(0)
    rows = ArrayDataset(np.ones((4, n_features), np.float32), np.arange(4, dtype=np.int32) % 2, np.arange(2))
    fit = set_up(rows, TrainOptions(options={"acceleration": "line-search", "max_cuts": str(M)}))
    keeping = KeepDual(fit)
    planned = keeping.memory(1).driver_bytes - fit.memory(1).driver_bytes
    cuts = random.standard_normal((M, n_features + 1))
    inner = replace(
        fit.start(),
        cuts=cuts,
        offsets=np.ones(M),
        sizes=np.ones(M),
        z=np.full(M, 1 / M),
        passes=1,
        magnitudes=np.ones(n_features + 1),
        largest=np.ones(n_features + 1),
        total_cost=1.0,
        terms=4.0,
    )
    tracemalloc.start()
    try:
        ends = random.standard_normal((M, 2, n_features + 1))
        made = [Origin(cut, 1.0, *pair, 0.5) for cut, pair in zip(cuts, ends, strict=True)]
        state = keeping.start()
        for bound in (1.0, 2.0):
            tracemalloc.reset_peak()
            state = note_cuts(state, inner, Progress(3.0, bound, 1), made)
        assert len(state.vectors) == 2 * M
        pack_arrays({part.name: getattr(state, part.name) for part in fields(state) if part.name != "inner"})
        assert tracemalloc.get_traced_memory()[1] <= planned
    finally:
        tracemalloc.stop()


def keep_most_shares() -> tuple[int, int]:
    """The most memory of a dual point of one read, and what is planned for it.

    As many rows have shares of their own as there is room for, and as many in dropped cuts behind the bound.
    """
    n_rows, random = 200_000, np.random.default_rng(0)
    labels = np.arange(n_rows, dtype=np.int32) % 2
    source = ArrayDataset(np.ones((n_rows, 2), np.float32), labels, np.arange(2))
    fit = set_up(source, TrainOptions(resident_rows=n_rows, options={"acceleration": "one-read"}))
    keeping = KeepDual(fit)
    planned = keeping.memory(1).driver_bytes - fit.memory(1).driver_bytes
    cuts, rows, shares = random.normal(size=(2 * MOST_OWN, 3)), np.arange(n_rows), random.random(n_rows)
    tracemalloc.start()
    try:
        state = keeping.start()
        for last in range(2 * MOST_OWN):
            inner, held = state.inner[0], slice(max(0, last + 1 - MOST_OWN), last + 1)
            m = len(cuts[held])
            first = replace(
                inner.states[0],
                cuts=cuts[held],
                offsets=np.ones(m),
                sizes=np.ones(m),
                z=np.zeros(m),
                proof=np.full(m, 1 / m),
                own_rows=rows,
                own_shares=shares,
                magnitudes=np.ones(3),
                largest=np.ones(3),
            )
            bound = float(min(last + 1, MOST_OWN))
            state = note_cuts(state, replace(inner, states=[first, inner.states[1]]), Progress(9.0, bound, 1), [])
        assert len(state.own_rows) == 2 * MOST_OWN * n_rows
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak, planned


def test_keeping_the_dual_point_of_one_read_takes_what_is_planned() -> None:
    """In a process of its own, where no threads of other tests allocate memory."""
    ended = run_python(
        "from tests.solvers.cutting_plane.test_driver_memory import keep_most_shares; print(*keep_most_shares())"
    )
    assert ended.returncode == 0, ended.stderr
    peak, planned = map(int, ended.stdout.split())
    assert planned / 2 < peak <= planned
