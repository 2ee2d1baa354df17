"""A solver needs neither engine nor data: totals made by plain NumPy will do, and any step is a place to go on from."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from streamsvm.losses.hinge import FINE_STEPS, fine_steps
from streamsvm.passes import All, Progress, Scan, Step
from streamsvm.solvers.cutting_plane.cuts import Magnitudes
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane, LineState, SegmentTotals, solve
from streamsvm.system.npz import pack_arrays, unpack_arrays
from tests.conftest import Problem, make_problem
from tests.linear_problems import F64, bracket_by_qp, drive, with_bias


@pytest.mark.parametrize(
    ("objective", "lower_bound", "gap"),
    [(2.0, 1.5, 0.25), (2.0, None, None), (2.0, 2.0, 0.0), (0.0, 0.0, 0.0)],
)
def test_relative_gap(objective: float, lower_bound: float | None, gap: float | None) -> None:
    """(P - D) / P."""
    assert Progress(objective, lower_bound, 1).relative_gap == gap


def test_requests_are_frozen() -> None:
    scan = Scan(list, list.append, list.__add__)
    assert (scan.shared, scan.by_row) == ((), ())
    with pytest.raises(FrozenInstanceError):
        scan.shared = (1,)  # type: ignore[misc]
    assert Step(None, Progress(1.0, None, 1)).status is None


def totals_by_numpy(problem: Problem, costs: F64, scan: Scan) -> SegmentTotals:
    """What totals mean, straight from the definition: losses at the fine steps, cuts at 0 and the cut steps."""
    ends, _, cut_steps, bias_feature = scan.shared
    Z = problem.y[:, None] * with_bias(problem, bias_feature)

    def margins(step: float) -> F64:
        found: F64 = Z @ ((1 - step) * ends[0] + step * ends[1])
        return found

    losses = np.array([costs @ np.maximum(0, 1 - margins(step)) for step in fine_steps(cut_steps)])
    active = np.array([margins(step) < 1 for step in (0.0, *cut_steps)])
    offsets, vectors = active @ costs, (active * costs) @ Z
    changes = partial(np.diff, axis=0)
    value = np.stack((losses, np.zeros(len(losses))), axis=1)
    return SegmentTotals(
        np.concatenate((value[:1], changes(value))),
        np.concatenate((offsets[:1], changes(offsets))),
        np.concatenate((vectors[:1], changes(vectors))),
    )


@pytest.mark.parametrize("accelerated", [True, False])
def test_a_solver_runs_on_totals_from_anywhere(accelerated: bool) -> None:
    problem = make_problem(1, n=100, d=4)
    settings = CuttingPlane((0.02, 0.05), accelerated=accelerated, bias_feature=2.0, tol=1e-4)
    costs = problem.costs(1.0, 0.02, 0.05)
    solver = solve(settings, LineState.at_zero(5))
    request, passes = next(solver), 0
    while True:
        assert isinstance(request, All)
        look, *others = request.requests
        assert isinstance(look, Scan)
        assert len(look.shared[2]) * FINE_STEPS + 1 == len(fine_steps(look.shared[2]))
        assert len(others) == (passes == 0)  # the magnitudes of all sums
        sizes = np.append(costs @ np.abs(problem.dense()), 2.0 * costs.sum())
        largest = np.append(np.abs(problem.dense()).max(axis=0), 2.0)
        magnitudes = [Magnitudes(sizes, largest, costs.sum(), 100)] * len(others)
        step = solver.send([totals_by_numpy(problem, costs, look), *magnitudes])
        assert isinstance(step, Step)
        passes += 1
        assert step.progress.passes == passes
        if step.status is not None:
            break
        request = solver.send(None)
    optimum = bracket_by_qp(problem, costs, 2.0)
    assert step.status == "converged"
    assert step.progress.lower_bound is not None
    assert step.progress.lower_bound <= optimum.high
    assert optimum.low <= step.progress.objective <= optimum.high * (1 + 1e-4)


@pytest.mark.parametrize("accelerated", [True, False])
def test_every_step_is_a_place_to_go_on_from(accelerated: bool, tmp_path: Path) -> None:
    """A state that was saved and loaded asks for the same passes, to the last bit, and ends in the same state."""
    problem = make_problem(2, n=80, d=5, weighted=True)
    settings = CuttingPlane((0.1, 0.1), accelerated=accelerated, tol=1e-3)
    whole = drive(problem, settings)
    assert len(whole) > 5
    for at in (0, 1, len(whole) // 2, len(whole) - 2):
        file = tmp_path / f"{at}.npz"
        file.write_bytes(pack_arrays({part.name: getattr(whole[at][1].state, part.name) for part in fields(LineState)}))
        saved = {name: value if value.ndim else value.item() for name, value in unpack_arrays(file).items()}
        rest = drive(problem, settings, state=LineState(**saved))
        assert len(rest) == len(whole) - at - 1
        for (asked, step), (expected, end) in zip(rest, whole[at + 1 :], strict=True):
            assert [np.asarray(v).tobytes() for v in asked.shared] == [np.asarray(v).tobytes() for v in expected.shared]
            assert step.progress == end.progress
            assert step.status == end.status
            assert step.state.best_w.tobytes() == end.state.best_w.tobytes()


@pytest.mark.parametrize("accelerated", [True, False])
def test_a_step_leaves_earlier_states_alone(accelerated: bool) -> None:
    """A driver may keep a state while the solver goes on: to write it later, or to go back to it."""
    problem, settings = make_problem(3, n=60), CuttingPlane((0.1, 0.1), accelerated=accelerated)
    frozen = []
    for _, step in drive(problem, settings):
        arrays = [value for value in vars(step.state).values() if isinstance(value, np.ndarray)]
        frozen.append([(array, array.tobytes()) for array in arrays])
    assert all(array.tobytes() == then for state in frozen for array, then in state)
