"""The master problem against another solver, closed forms and its own certificate, over all scales of C."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import piqp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg.lapack import dpotrf

from streamsvm.solvers.cutting_plane.master import MasterSolution, solve_master
from tests.conftest import choose_examples

F64 = npt.NDArray[np.float64]
EPS = np.finfo(np.float64).eps


def dual(gram: F64, offsets: F64, z: F64) -> float:
    return float(offsets @ z - z @ gram @ z / 2)


def primal(gram: F64, offsets: F64, z: F64) -> float:
    products = gram @ z
    return float(z @ products / 2 + max(0.0, np.max(offsets - products)))


def rounding_of_gap(gram: F64, offsets: F64, z: F64) -> float:
    """Return epsilon times the sums in M(z) - D(z), were all their terms of one sign."""
    norms = np.sqrt(np.diagonal(gram))
    size = np.abs(offsets) + norms * (norms @ z)
    return float(EPS * (size.max() + z @ size))


def clip_to_feasible(start: F64) -> F64:
    z = np.nan_to_num(np.maximum(start, 0.0), nan=0.0)
    return z / max(1.0, float(z.sum()))


def assert_certified(gram: F64, offsets: F64, solution: MasterSolution) -> None:
    """Feasible; value and gap are those of z."""
    z = solution.z
    assert z.shape == offsets.shape
    assert np.all(z >= 0)
    assert z.sum() <= 1 + 4 * EPS
    rounding = 8 * rounding_of_gap(gram, offsets, z)
    assert abs(solution.value - dual(gram, offsets, z)) <= rounding
    assert abs(solution.gap - (primal(gram, offsets, z) - dual(gram, offsets, z))) <= rounding
    assert solution.gap >= 0


def solve_with_piqp(gram: F64, offsets: F64) -> F64:
    m = len(offsets)
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    solver.setup(
        np.asfortranarray(gram),
        -offsets,
        G=np.ones((1, m), order="F"),
        h_l=np.array([-1e30]),
        h_u=np.ones(1),
        x_l=np.zeros(m),
        x_u=np.ones(m),
    )
    solver.solve()
    return clip_to_feasible(solver.result.x)


def make_cuts(seed: int, m: int, d: int, kind: str) -> tuple[F64, F64]:
    """Cuts (m, d) and offsets, of size 1."""
    rng = np.random.default_rng(seed)
    cuts, offsets = rng.normal(size=(m, d)), rng.normal(size=m)
    if kind == "whole numbers":  # ties, copies and zero cuts
        cuts, offsets = rng.integers(-1, 2, (m, d)).astype(float), rng.integers(-1, 3, m).astype(float)
    elif kind == "copies":
        cuts = cuts[rng.integers(0, 1 + m // 3, m)]
    elif kind == "nearly parallel":
        cuts = cuts[0] + 10.0 ** rng.uniform(-17, -3) * cuts
        offsets = np.abs(offsets[0]) + 1e-9 * offsets
    elif kind == "tangents":  # of a convex function, at points that approach its minimum
        cuts *= 10.0 ** np.linspace(0, -6, m)[:, None]
        offsets = 1 + cuts @ rng.normal(size=d) - np.linalg.norm(cuts, axis=1) ** 2 * rng.random(m)
    return cuts, offsets


KINDS = ("general", "whole numbers", "copies", "nearly parallel", "tangents")


@st.composite
def problems(draw: st.DrawFn, scaled: bool = True) -> tuple[F64, F64]:
    """(gram, offsets), mostly singular; with `scaled`, entries of gram from 1e-10 to 1e24."""
    m, d, kind = draw(st.integers(1, 30)), draw(st.integers(1, 12)), draw(st.sampled_from(KINDS))
    cuts, offsets = make_cuts(draw(st.integers(0, 2**32)), m, d, kind)
    if scaled:
        scale = 10.0 ** draw(st.integers(-5, 12))
        other_scale = 10.0 ** draw(st.integers(-5, 12))
        cuts, offsets = cuts * scale, offsets * draw(st.sampled_from((scale, other_scale)))
        if draw(st.booleans()):  # cuts of very different length in one problem
            lengths = 10.0 ** np.linspace(0, draw(st.integers(-12, 0)), len(offsets))
            cuts, offsets = cuts * lengths[:, None], offsets * lengths
    return cuts @ cuts.T, offsets


def starts(m: int) -> Iterator[F64]:
    """Nothing, the middle, a corner, and what no master left behind."""
    yield np.zeros(m)
    yield np.full(m, 1 / m)
    yield np.eye(m)[-1]
    yield np.linspace(-1.0, 3.0, m)
    yield np.where(np.arange(m) % 2, np.nan, 0.4)


@settings(deadline=None, max_examples=choose_examples(20, 500, 500))
@given(problems())
def test_gap_closes_to_rounding_from_any_start_at_any_scale(problem: tuple[F64, F64]) -> None:
    gram, offsets = problem
    for start in starts(len(offsets)):
        solution = solve_master(gram, offsets, start, 0.0)
        assert_certified(gram, offsets, solution)
        no_multiplier = EPS**2 * (gram.max() + np.abs(offsets).max())  # of a multiplier that is nothing beside 1
        assert solution.gap <= 16 * rounding_of_gap(gram, offsets, solution.z) + no_multiplier


@settings(deadline=None, max_examples=choose_examples(20, 150, 150))
@given(problems(), st.floats(0.0, 1.0))
def test_value_never_falls_below_that_of_the_start(problem: tuple[F64, F64], share: float) -> None:
    gram, offsets = problem
    for start in starts(len(offsets)):
        before = clip_to_feasible(start)
        gap = primal(gram, offsets, before) - dual(gram, offsets, before)
        solution = solve_master(gram, offsets, start, share * gap)  # stops half way
        assert_certified(gram, offsets, solution)
        rounding = 16 * rounding_of_gap(gram, offsets, before + solution.z)
        assert solution.value >= dual(gram, offsets, before) - rounding
        assert solution.gap <= share * gap + rounding


@settings(deadline=None, max_examples=choose_examples(20, 200, 200))
@given(problems(scaled=False))
def test_value_is_that_of_another_solver(problem: tuple[F64, F64]) -> None:
    gram, offsets = problem
    other = solve_with_piqp(gram, offsets)
    solution = solve_master(gram, offsets, np.zeros(len(offsets)), 1e-9)
    assert solution.value == pytest.approx(dual(gram, offsets, other), abs=1e-6)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(-4, 4), min_size=6, max_size=6))
def test_two_cuts_beat_every_point_of_a_grid(numbers: list[int]) -> None:
    cuts, offsets = np.array(numbers[:4], float).reshape(2, 2) / 2, np.array(numbers[4:], float)
    gram = cuts @ cuts.T
    solution = solve_master(gram, offsets, np.zeros(2), 1e-12)
    assert_certified(gram, offsets, solution)
    first, second = np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101))
    grid = np.stack((first, second), axis=-1)[first + second <= 1 + EPS]
    values = grid @ offsets - np.einsum("ij,ij->i", grid @ gram, grid) / 2
    steepest = float(np.abs(offsets).max() + np.abs(gram).sum())
    assert values.max() - 1e-12 <= solution.value <= values.max() + 0.01 * steepest


@pytest.mark.parametrize(
    ("square", "offset", "z"),
    [
        (4.0, 2.0, 0.5),
        (4.0, 8.0, 1.0),
        (4.0, -1.0, 0.0),
        (0.0, 3.0, 1.0),
        (0.0, 0.0, 0.0),
        (1e24, 1e12, 1e-12),
    ],
)
def test_one_cut_has_a_closed_form(square: float, offset: float, z: float) -> None:
    solution = solve_master(np.array([[square]]), np.array([offset]), np.zeros(1), 0.0)
    assert solution.z[0] == pytest.approx(z, rel=1e-14)
    assert solution.value == pytest.approx(offset * z - square * z * z / 2, rel=1e-14)
    assert solution.gap <= 1e-14 * abs(offset)


@pytest.mark.parametrize("start", [0.0, 0.2])
def test_offsets_that_are_not_positive_give_zero(start: float) -> None:
    cuts = np.random.default_rng(0).normal(size=(5, 3))
    solution = solve_master(cuts @ cuts.T, -np.arange(5.0), np.full(5, start), 0.0)
    assert solution.value == pytest.approx(0.0, abs=1e-30)
    assert np.all(solution.z[1:] == 0)


def test_zero_cut_takes_all_where_it_is_the_highest() -> None:
    cuts = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    solution = solve_master(cuts @ cuts.T, np.array([1.0, 5.0, 1.0]), np.zeros(3), 0.0)
    np.testing.assert_array_equal(solution.z, [0.0, 1.0, 0.0])
    assert (solution.value, solution.gap) == (5.0, 0.0)


def test_square_that_rounding_made_negative() -> None:
    solution = solve_master(np.array([[1.0, 0.0], [0.0, -1e-18]]), np.array([1.0, 0.5]), np.zeros(2), 1e-15)
    np.testing.assert_allclose(solution.z, [0.5, 0.5], rtol=1e-12)
    assert solution.value == pytest.approx(0.625, rel=1e-14)


def test_copies_of_a_cut_change_nothing() -> None:
    cuts, offsets = make_cuts(1, 8, 4, "general")
    alone = solve_master(cuts @ cuts.T, offsets, np.zeros(8), 0.0)
    cuts, offsets = np.tile(cuts, (5, 1)), np.tile(offsets, 5)
    copied = solve_master(cuts @ cuts.T, offsets, np.zeros(40), 0.0)
    assert copied.value == pytest.approx(alone.value, rel=1e-13)
    np.testing.assert_allclose(copied.z @ cuts, alone.z @ cuts[:8], atol=1e-13)


def test_optimum_with_a_harmless_new_cut_is_left_as_it_is() -> None:
    cuts, offsets = make_cuts(2, 30, 6, "general")
    cuts[-1], offsets[-1] = 0.0, -1.0
    solved = solve_master(cuts[:-1] @ cuts[:-1].T, offsets[:-1], np.zeros(29), 1e-6)
    again = solve_master(cuts @ cuts.T, offsets, np.append(solved.z, 0.0), 1e-6)
    np.testing.assert_array_equal(again.z, np.append(solved.z, 0.0))


def test_same_bits_again_and_from_a_view() -> None:
    cuts, offsets = make_cuts(3, 60, 20, "tangents")
    room = np.full((80, 90), np.nan)
    room[:60, :60] = cuts @ cuts.T
    first = solve_master(cuts @ cuts.T, offsets, np.zeros(60), 1e-12)
    for gram in (cuts @ cuts.T, room[:60, :60]):
        again = solve_master(gram, offsets, np.zeros(60), 1e-12)
        assert again.z.tobytes() == first.z.tobytes()
        assert (again.value, again.gap) == (first.value, first.gap)


class CountedFactorisations:
    """Stands in for LAPACK's Cholesky factorisation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr("streamsvm.numeric.equations.dpotrf", self)

    def __call__(self, matrix: F64, lower: int, overwrite_a: int) -> tuple[F64, int]:
        self.count += 1
        factor, failed_at = dpotrf(matrix, lower=lower, overwrite_a=overwrite_a)
        return factor, failed_at


def run_cutting_planes(total_cost: float, steps: int) -> Iterator[tuple[F64, F64, float, MasterSolution, float]]:
    """Yield each master of Algorithm 1 (Joachims 2006): gram, offsets, tol, solution, objective of the step before."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 10)) * np.linspace(0.1, 3, 10)
    y = np.where(X @ rng.normal(size=10) + 2 * rng.normal(size=400) > 0, 1.0, -1.0)
    rows, cost = X * y[:, None], total_cost / 400
    cuts, offsets, z, w, lower = np.empty((0, 10)), np.empty(0), np.empty(0), np.zeros(10), 0.0
    for _ in range(steps):
        margins = rows @ w
        objective = float(w @ w / 2 + cost * np.maximum(0, 1 - margins).sum())
        cuts = np.vstack((cuts, cost * (margins < 1) @ rows))
        offsets, gram, start = np.append(offsets, cost * np.sum(margins < 1)), cuts @ cuts.T, np.append(z, 0.0)
        tol = max(1e-6 * lower, 16 * rounding_of_gap(gram, offsets, start))
        solution = solve_master(gram, offsets, start, tol)
        yield gram, offsets, tol, solution, objective
        lower, z, w = solution.value, solution.z, solution.z @ cuts


@pytest.mark.parametrize("total_cost", [1e-4, 1.0, 1e3, 1e6, 1e12])
def test_cutting_planes_on_generated_data(total_cost: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certified gaps, a rising lower bound below every objective, sparse multipliers, cheap warm starts."""
    lower, best, factorisations = 0.0, np.inf, CountedFactorisations(monkeypatch)
    for gram, offsets, tol, solution, objective in run_cutting_planes(total_cost, 120):
        assert_certified(gram, offsets, solution)
        assert solution.gap <= tol + 16 * rounding_of_gap(gram, offsets, solution.z)
        assert solution.value >= lower * (1 - 1e-12)
        assert np.count_nonzero(solution.z) <= 11  # features + 1
        lower, best = solution.value, min(best, objective)
    assert lower <= best * (1 + 1e-12)
    assert total_cost > 1e3 or lower >= 0.999 * best
    assert factorisations.count < 120 * 25


def test_cold_start_takes_few_factorisations(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, (gram, offsets, tol, solution, _) = run_cutting_planes(1e3, 200)
    factorisations = CountedFactorisations(monkeypatch)
    cold = solve_master(gram, offsets, np.zeros(200), tol)
    assert abs(cold.value - solution.value) <= 2 * tol
    assert factorisations.count < 100


def test_many_active_cuts_take_few_factorisations(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = np.random.default_rng(4).normal(size=(300, 600))
    factorisations = CountedFactorisations(monkeypatch)
    solution = solve_master(cuts @ cuts.T, np.full(300, 3.0), np.zeros(300), 1e-9)
    assert solution.gap <= 1e-9
    assert np.count_nonzero(solution.z) > 200
    assert factorisations.count < 60
