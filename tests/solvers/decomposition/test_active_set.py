"""The active set: D rises round by round, f stays true, the cache is bounded and changes nothing but rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.kernels import kernel as kernels
from streamsvm.kernels.kernel import Kernel, to_float64
from streamsvm.numeric.rows import F64, I64
from streamsvm.solvers.decomposition import active_set
from streamsvm.solvers.decomposition.active_set import ActiveSet, ColumnCache, Rounds, improve
from streamsvm.solvers.decomposition.inner_solvers import INNER_SOLVERS
from streamsvm.solvers.decomposition.working_set import RULES, find_conditions
from tests.conftest import Problem, make_problem
from tests.kernel_problems import KINDS, bracket_by_qp, matrix_of, measure

SETS = [rule for rule in RULES if rule != "platt"]
N = 160
DENSE = make_problem(1, n=N, weighted=True)
SPARSE = make_problem(2, n=N, d=25, density=0.3)
ROUNDING = 3e-6  # of kernel values in float32, over sums of |y a|


@dataclass
class Case:
    """An active set of all rows of a problem, and its matrix in float64."""

    active: ActiveSet
    K: F64
    rounds: Rounds

    def dual(self) -> float:
        return measure(self.K, self.active.y, self.active.costs, self.active.alpha, 0.0)[1]

    def error_of_f(self) -> float:
        truth = self.K @ (self.active.alpha * self.active.y)
        return float(np.max(np.abs(self.active.f - truth)) / (1 + np.abs(self.active.alpha).sum()))

    def violation(self) -> float:
        return find_conditions(self.active.y, self.active.costs, self.active.alpha, self.active.f).violation


def make_case(problem: Problem, kernel: Kernel, rule: str = "second-order", inner: str = "smo", size: int = 24) -> Case:
    taken = problem.in_memory().take(np.arange(len(problem.y)))
    n = taken.n_rows
    active = ActiveSet(
        taken.X, problem.y.astype(np.float64), problem.costs(3.0), np.zeros(n), np.zeros(n), np.arange(n)
    )
    rounds = Rounds(kernel, inner, rule, size, 1, 0)
    return Case(active, matrix_of(problem, kernel), rounds)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("inner", INNER_SOLVERS)
@pytest.mark.parametrize("rule", SETS)
def test_every_solver_and_rule_reaches_the_tolerance(rule: str, inner: str, name: str) -> None:
    """D by its definition rises in each round, f is what it says, multipliers stay feasible.

    The smallest errors of small sets take thousands of rounds ("too many iterations", Pérez-Cruz, section 3).
    """
    problem, tol = (DENSE, SPARSE)[name == "poly"], 1e-3
    case = make_case(problem, KINDS[name], rule, inner, size=N // 2 if rule == "smallest" else 24)
    cache = ColumnCache.of_size(N, 4 * N * 50)
    before, n_rounds = 0.0, 0
    while case.violation() > tol:
        improve(case.active, case.rounds, cache, tol, 1)
        n_rounds += 1
        assert n_rounds < 1500
        if n_rounds < 100 or n_rounds % 50 == 0:
            dual = case.dual()
            assert dual >= before - ROUNDING * case.active.alpha.sum()
            assert case.error_of_f() <= ROUNDING
            before = dual
    alpha, y = case.active.alpha, case.active.y
    assert np.all((alpha >= 0) & (alpha <= case.active.costs))
    assert abs(alpha @ y) <= 1e-10 * alpha.sum()
    if name != "sigmoid":
        assert case.dual() == pytest.approx(bracket_by_qp(case.K, y, case.active.costs).low, rel=1e-3)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("problem", [DENSE, SPARSE])
def test_platt_on_the_whole_active_set(problem: Problem, name: str) -> None:
    case = make_case(problem, KINDS[name], "platt")
    improve(case.active, case.rounds, ColumnCache.of_size(N, 4 * N * 50), 1e-3, 1)
    assert case.violation() <= 2.1e-3  # each row is within tol of its condition
    assert case.error_of_f() <= ROUNDING
    if name != "sigmoid":
        optimum = bracket_by_qp(case.K, case.active.y, case.active.costs).low
        assert case.dual() == pytest.approx(optimum, rel=1e-3)


@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_improving_what_is_improved_changes_nothing(name: str) -> None:
    for rule in RULES:
        case, cache = make_case(DENSE, KINDS[name], rule, size=N // 2), ColumnCache.of_size(N, 1 << 20)
        improve(case.active, case.rounds, cache, 1e-2, 1000)
        alpha, f = case.active.alpha.copy(), case.active.f.copy()
        improve(case.active, case.rounds, cache, 2.1e-2, 1000)
        np.testing.assert_array_equal(alpha, case.active.alpha)
        np.testing.assert_array_equal(f, case.active.f)


def test_rounds_are_limited() -> None:
    """So many, and no more; the next ones go on from there to the same bits."""
    cases = [make_case(DENSE, KINDS["rbf"], size=4) for _ in range(2)]
    caches = [ColumnCache.of_size(N, 1 << 20) for _ in range(2)]
    improve(cases[0].active, cases[0].rounds, caches[0], 1e-6, 7)
    assert cases[0].violation() > 1e-6
    assert len(caches[0].slot[caches[0].slot >= 0]) <= 7 * 4
    for limit in (3, 4):
        improve(cases[1].active, cases[1].rounds, caches[1], 1e-6, limit)
    np.testing.assert_array_equal(cases[0].active.f, cases[1].active.f)


@pytest.mark.parametrize("fit", [0, 1, 5, 23, 60, N, 3 * N])
def test_a_cache_of_any_size_gives_the_same_answer(fit: int) -> None:
    """Smaller than a working set, than what is needed, or larger: D to rounding; every column is that of its row."""
    case = make_case(DENSE, KINDS["rbf"])
    cache = ColumnCache.of_size(N, 4 * N * fit + 3)
    assert cache.columns.nbytes <= 4 * N * fit
    assert len(cache.owner) == min(fit, N)
    for _ in range(200):
        improve(case.active, case.rounds, cache, 1e-5, 1)
        check_cache(cache, case.K)
    assert case.violation() <= 1e-5
    optimum = bracket_by_qp(case.K, case.active.y, case.active.costs).low
    assert case.dual() == pytest.approx(optimum, rel=1e-5)


def check_cache(cache: ColumnCache, K: F64) -> None:
    """slot and owner are each other's inverse, and columns[slot] = K[row]."""
    rows = np.flatnonzero(cache.slot >= 0)
    np.testing.assert_array_equal(cache.owner[cache.slot[rows]], rows)
    assert np.count_nonzero(cache.owner >= 0) == len(rows)
    np.testing.assert_allclose(cache.columns[cache.slot[rows]], K[rows], atol=2e-6)


@given(st.lists(st.integers(1, 5), max_size=30), st.integers(1, 8), st.integers(0, 2**31))
@settings(max_examples=60)
def test_the_oldest_column_is_given_up_first(sizes: list[int], fit: int, seed: int) -> None:
    n, random = 12, np.random.default_rng(seed)
    cache, held = ColumnCache.of_size(n, 4 * n * fit), list[int]()
    for size in sizes:
        without = np.setdiff1d(np.arange(n), held)
        rows: I64 = random.permutation(without)[: min(size, fit)]
        slots = cache.assign(rows) if len(rows) else rows
        assert len(set(slots.tolist())) == len(rows)
        held = [*held, *rows.tolist()][-fit:]
        assert sorted(np.flatnonzero(cache.slot >= 0)) == sorted(held)
        np.testing.assert_array_equal(cache.owner[cache.slot[held]], held)


def test_kept_columns_are_not_formed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for all, no row's column is formed twice; without any, each change forms them."""
    formed: list[int] = []
    add_kernel_sums = kernels.add_kernel_sums

    def count(kernel: Kernel, X: F64, columns: F64, *more: object) -> None:
        formed.append(len(columns))
        add_kernel_sums(kernel, X, columns, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(active_set, "add_kernel_sums", count)
    totals = []
    for limit_bytes in (4 * N * N, 0):
        case = make_case(DENSE, KINDS["rbf"])
        improve(case.active, case.rounds, ColumnCache.of_size(N, limit_bytes), 1e-4, 1000)
        totals.append(sum(formed))
        formed.clear()
    assert totals[0] <= N
    assert totals[1] > 2 * totals[0]


@pytest.mark.parametrize("problem", [DENSE, SPARSE])
def test_rows_in_float64_are_solved_to_its_rounding(problem: Problem) -> None:
    """f from columns that are not kept is exact, dense and sparse."""
    case = make_case(problem, KINDS["rbf"], size=N)
    case.active.X = to_float64(case.active.X)
    improve(case.active, case.rounds, ColumnCache.of_size(N, 0), 1e-9, 1000)
    assert case.error_of_f() <= 1e-12
    assert case.violation() <= 1e-9
    optimum = bracket_by_qp(case.K, case.active.y, case.active.costs)
    assert case.dual() == pytest.approx(optimum.low, rel=1e-9)


@pytest.mark.parametrize("rule", SETS)
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_give_the_same_bits(rule: str, threads: int) -> None:
    problem = make_problem(3, n=1300)
    ends = []
    for number in (1, threads):
        case = make_case(problem, KINDS["rbf"], rule, size=600)
        case.rounds.threads = number
        improve(case.active, case.rounds, ColumnCache.of_size(1300, 1 << 22), 1e-2, 4)
        ends.append(case.active.alpha.tobytes() + case.active.f.tobytes())
    assert ends[0] == ends[1]


def test_nothing_to_do_where_nothing_can_move() -> None:
    """One class alone, or rows without a cost."""
    for y, cost in ((np.ones(5), 1.0), (np.array([1.0, -1, 1, -1, 1]), 0.0)):
        X = np.eye(5, dtype=np.float32)
        active = ActiveSet(X, y, np.full(5, cost), np.zeros(5), np.zeros(5), np.arange(5))
        for rule in RULES:
            rounds = Rounds(KINDS["rbf"], "smo", rule, 3, 1, 0)
            improve(active, rounds, ColumnCache.of_size(5, 1000), 1e-3, 10)
            np.testing.assert_array_equal(active.alpha, 0.0)
