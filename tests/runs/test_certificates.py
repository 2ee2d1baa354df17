"""Certificates of linear models and rankings hold in exact arithmetic: saved models, evaluated in long double.

Scales of C and of the features from 1e-8 to 1e8, weights with zeros and ratios of 1e6, repeated rows, constants,
separable classes, dense and sparse rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm import CuttingPlane, LinearSVC, RankSVM
from streamsvm.options import TrainOptions
from streamsvm.passes import Progress, TriedBounds, find_status, has_progressed
from streamsvm.runs.results import STATUSES, describe_status
from streamsvm.solvers.solver import Report
from streamsvm.system.errors import CertificateError
from tests.conftest import ROOT, choose_examples

Long = npt.NDArray[np.longdouble]
KINDS = ("normal", "separable", "copies", "constant", "offset", "mixed", "lattice")


@dataclass(frozen=True)
class Hostile:
    """Rows (float32), codes 0 and 1, weights or None, and C."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64] | None
    C: float

    @property
    def costs(self) -> Long:
        own = np.ones(len(self.y)) if self.weight is None else self.weight
        return np.longdouble(self.C) * own.astype(np.longdouble)


@st.composite
def hostile_problems(draw: st.DrawFn, most_rows: int = 60) -> Hostile:
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, d, kind = draw(st.integers(2, most_rows)), draw(st.sampled_from([1, 2, 3, 8, 30])), draw(st.sampled_from(KINDS))
    X, y = random.normal(size=(n, d)), random.integers(0, 2, n)
    y[[0, -1]] = 0, 1
    if kind == "separable":
        X[:, 0] += 10.0 * (2 * y - 1)
    elif kind == "copies":
        X = X[random.integers(0, max(1, n // 3), n)]
    elif kind == "constant":
        X[:, 1:] = 1.0
    elif kind == "offset":
        X += 1e4
    elif kind == "mixed":
        X *= 10.0 ** random.uniform(-4, 4, d)
    elif kind == "lattice":
        X = random.integers(-2, 3, (n, d)).astype(float)
    weight = None
    match draw(st.sampled_from(["none", "zeros", "ratios"])):
        case "zeros":
            weight = (random.random(n) < 0.7).astype(float)
            weight[[0, -1]] = 1.0
        case "ratios":
            weight = 10.0 ** random.uniform(-3, 3, n)
    scale, C = 10.0 ** draw(st.floats(-8, 8)), 10.0 ** draw(st.floats(-8, 8))
    return Hostile((X * scale).astype(np.float32), y, weight, C)


def check(told: Any, objective: np.longdouble, feasible: np.longdouble, tol: float) -> None:
    """P is that of the saved model, D is below every P, and what is called converged is."""
    assert abs(np.longdouble(told.objective_) - objective) <= told.rounding_bound_
    assert told.lower_bound_ <= feasible
    if told.status_ == "converged":
        assert objective - told.lower_bound_ <= tol * objective * (1 + np.longdouble(1e-12))
    if told.status_ == "stalled":
        assert told.objective_ - told.lower_bound_ <= 10 * told.rounding_bound_


def hinge(costs: Long, y: npt.NDArray[np.int64], scores: Long) -> np.longdouble:
    return np.longdouble(np.sum(costs * np.maximum(0, 1 - np.where(y == 1, 1, -1) * scores)))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a fit that stalls is judged, too
@settings(max_examples=choose_examples(20, 60, 60))
@given(
    problem=hostile_problems(),
    sparse=st.booleans(),
    tol=st.sampled_from([1e-3, 1e-6]),
    acceleration=st.sampled_from(["auto", "block-ascent", "line-search", "none"]),
    intercept_scaling=st.sampled_from([1.0, 0.1, 100.0]),
)
def test_linear_models(problem: Hostile, sparse: bool, tol: float, acceleration: str, intercept_scaling: float) -> None:
    model = LinearSVC(
        C=problem.C,
        tol=tol,
        intercept_scaling=intercept_scaling,
        max_passes=300,
        n_jobs=1,
        solver=CuttingPlane(acceleration=acceleration),
    )
    model.fit(csr_array(problem.X) if sparse else problem.X, problem.y, sample_weight=problem.weight)
    w, b = model.coef_[0].astype(np.longdouble), np.longdouble(model.intercept_[0])
    scores = problem.X.astype(np.longdouble) @ w + b
    objective = (w @ w + (b / np.longdouble(intercept_scaling)) ** 2) / 2 + hinge(problem.costs, problem.y, scores)
    zero = hinge(problem.costs, problem.y, 0 * scores)
    check(model, objective, min(objective, zero), tol)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a fit that stalls is judged, too
@settings(max_examples=choose_examples(15, 40, 40))
@given(
    problem=hostile_problems(40),
    sparse=st.booleans(),
    tol=st.sampled_from([1e-3, 1e-6]),
    acceleration=st.sampled_from(["line-search", "none"]),
)
def test_rankings(problem: Hostile, sparse: bool, tol: float, acceleration: str) -> None:
    model = RankSVM(C=problem.C, tol=tol, max_passes=600, n_jobs=1, solver=CuttingPlane(acceleration=acceleration))
    model.fit(csr_array(problem.X) if sparse else problem.X, problem.y, sample_weight=problem.weight)
    check_ranking(model, problem, tol)


def check_ranking(model: RankSVM, problem: Hostile, tol: float) -> None:
    v = problem.costs / np.longdouble(problem.C)
    pairs = np.where(problem.y[:, None] > problem.y[None], v[:, None] * v[None], 0)
    cost = np.longdouble(problem.C) * v.sum() / pairs.sum()
    w = model.coef_[0].astype(np.longdouble)
    scores = problem.X.astype(np.longdouble) @ w
    loss = cost * np.sum(pairs * np.maximum(0, 1 - (scores[:, None] - scores[None])))
    objective = w @ w / 2 + loss
    check(model, objective, min(objective, cost * pairs.sum()), tol)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", [11, 15, 63, 151])
def test_pairs_of_high_cost_do_not_hide_pairs_of_low_cost(seed: int, sparse: bool) -> None:
    """Weights from 1e-6 to 1e6: the plain algorithm found the same cut again and again, and stalled at gaps of 100%."""
    random = np.random.default_rng(seed)
    X, y = (5e4 * random.integers(-2, 3, size=(10, 8))).astype(np.float32), random.integers(0, 3, 10)
    y[:2] = 0, 1
    problem = Hostile(X, y, 10.0 ** random.uniform(-6, 6, 10), 5e7)
    model = RankSVM(C=5e7, tol=1e-6, n_jobs=1, solver=CuttingPlane(acceleration="none"))
    model.fit(csr_array(X) if sparse else X, y, sample_weight=problem.weight)
    assert model.status_ == "converged"
    check_ranking(model, problem, 1e-6)


def test_many_features() -> None:
    """From 2,000 features on multipliers guide: C and scales at which rounding counts."""
    random = np.random.default_rng(0)
    X = (random.normal(size=(40, 2100)) * 1e5).astype(np.float32)
    problem = Hostile(X, random.integers(0, 2, 40), None, 1e4)
    model = LinearSVC(C=1e4, tol=1e-6, n_jobs=1, max_passes=300).fit(X, problem.y)
    w, b = model.coef_[0].astype(np.longdouble), np.longdouble(model.intercept_[0])
    objective = (w @ w + b**2) / 2 + hinge(problem.costs, problem.y, X.astype(np.longdouble) @ w + b)
    assert model.status_ == "converged"
    check(model, objective, objective, 1e-6)


def test_products_of_cuts_that_mislead_are_not_trusted_for_long() -> None:
    """Their multipliers are good, but the w that these make of the cuts leaves a loss of twice the optimum."""
    rows = [
        [24499.297, 399760.0, -292019900.0],
        [29297.078, 374359.75, -64146424.0],
        [28591.463, -482238.4, 314840860.0],
        [-38908.383, -91261.95, 89176184.0],
        [-14632.07, 21691.367, 301672500.0],
    ]
    X, y = np.array(rows, np.float32), np.array([0, 1, 1, 0, 1])
    model = LinearSVC(
        C=1.0, tol=1e-3, intercept_scaling=0.1, n_jobs=1, solver=CuttingPlane(acceleration="line-search")
    ).fit(X, y)
    assert model.status_ == "converged"
    assert model.n_passes_ <= 30
    w, b = model.coef_[0].astype(np.longdouble), np.longdouble(model.intercept_[0])
    objective = (w @ w + (b / np.longdouble(0.1)) ** 2) / 2 + hinge(
        np.ones(5, np.longdouble), y, X.astype(np.longdouble) @ w + b
    )
    check(model, objective, objective, 1e-3)


def test_a_gap_that_rounding_hides_is_not_called_converged() -> None:
    """C = 1e6 and features of 1e3: the rounding bound counts."""
    assert not Progress(1.0, 1.0 - 1e-15, 1, rounding_bound=0.016).is_proved(1e-3)
    assert Progress(1.0, 1.0 - 1e-15, 1, rounding_bound=1e-4).is_proved(1e-3)


def test_what_was_taken_off_the_lower_bound_is_charged_once() -> None:
    """P of 1 and D of 0.9996 were computed, each off by 3e-4 at most: the gap is proved to 1e-3, and to no less."""
    told = Progress(1.0, 0.9996 - 3e-4, 1, rounding_bound=3e-4 + 3e-4, taken_off=3e-4)
    assert told.is_proved(1.0001e-3)
    assert not told.is_proved(0.9999e-3)
    assert not replace(told, taken_off=0.0).is_proved(1.0001e-3)  # a solver that does not know it proves less


@pytest.mark.parametrize(("P", "D"), [(1e-300, 0.0), (1.0, 0.9995), (1e300, 0.9e300)])
@pytest.mark.parametrize("tol", [0.5, 1e-3])
def test_what_is_proved_holds_for_every_objective_that_rounding_allows(P: float, D: float, tol: float) -> None:
    """In fractions, at both ends of what the true P can be."""
    for share in (0.0, 1e-9, 4e-4, 0.3):
        off = share * P
        told = Progress(P, D, 1, rounding_bound=off + 0.01 * P, taken_off=0.01 * P)
        ends = [Fraction(P) + Fraction(off), max(Fraction(P) - Fraction(off), Fraction(D))]
        gaps = [(true - Fraction(D)) / true for true in ends]
        assert not told.is_proved(tol) or max(gaps) <= Fraction(tol) * (1 + Fraction(2) ** -40)


@pytest.mark.parametrize("share", [0.0, 9e-4, 1.1e-3, 5.0])
@pytest.mark.parametrize("tried", [False, True])
def test_rounding_is_the_reason_only_where_its_bound_is_more_than_tol(share: float, tried: bool) -> None:
    """Whatever the gap is: a gap of ten rounding bounds is not explained by rounding."""
    bounds = {"tried_bound" if tried else "rounding_bound": 3.0 * share}
    told = describe_status("stalled", Report(3.0, 2.9, 7, **bounds), TrainOptions(tol=1e-3))
    assert ("more than tol allows" in told) == (share > 1e-3)
    assert ("the solver has stopped short" in told) == (share <= 1e-3)
    assert f"{f'{share:.1e}' if share < 1 else 'all'} of the objective" in told


@pytest.mark.parametrize("task", ["one-class", "nu-classify", "nu-regress"])
@pytest.mark.parametrize("D", [0.0, 1e-15])
def test_an_optimum_of_0_is_named_only_where_the_lower_bound_leaves_it_open(task: str, D: float) -> None:
    """P within its rounding bound is no proof, and a D above 0 is a proof of the contrary."""
    told = describe_status("stalled", Report(1e-14, D, 7, 1e-12), TrainOptions(task=task))
    assert ("the optimum is 0 if" in told) == (D == 0.0 and task != "nu-regress")


def test_an_objective_of_0_has_no_share_that_rounding_could_move() -> None:
    told = describe_status("stalled", Report(0.0, 0.0, 7, 1e-25), TrainOptions(task="regress"))
    assert told == "the proved lower bound is 0, and rounding can move the objective, 0.0e+00, by 1.0e-25"
    told = describe_status("stalled", Report(0.0, 0.0, 7), TrainOptions(task="regress"))
    assert told == "the objective is 0, as it is with very small sample weights, too"


def test_rounding_beyond_the_objective_is_all_of_it() -> None:
    told = describe_status("stalled", Report(1e-300, 0.0, 7, 1.0), TrainOptions())
    assert "rounding can account for all of the objective, more than tol allows" in told


def test_stalled_is_said_of_rounding_only() -> None:
    rounded, open_gap = Progress(1.0, 0.9, 1, 0.011), Progress(1.0, 0.9, 1, 0.0099)
    assert find_status(rounded, 1e-3, 30, 30) == "stalled"
    assert find_status(open_gap, 1e-3, 30, 30) is None
    assert find_status(open_gap, 1e-3, 300, 30) == "stalled"  # an end there must be
    assert find_status(rounded, 1e-3, 29, 30) is None


def test_steps_that_hardly_lower_an_objective_whose_gap_rounding_hides_are_no_progress() -> None:
    before = TriedBounds(objective=1.0)
    for fall, tried, moved in ((1e-9, 2.0, False), (1e-7, 2.0, True), (1e-9, 0.5, True), (1e-13, 0.5, False)):
        assert has_progressed(TriedBounds(objective=1.0 - fall, tried_rounding=tried), before) == moved
    half = TriedBounds(objective=1.0, lower_bound=0.5)
    assert has_progressed(TriedBounds(objective=1.0 - 1e-9, lower_bound=0.5, tried_rounding=2.0), half)


def test_a_lower_bound_above_the_objective_is_an_error() -> None:
    Progress(1.0, 1.0 + 1e-12, 1, 1e-11).check()
    with pytest.raises(CertificateError, match="lower bound"):
        Progress(1.0, 1.0 + 1e-12, 1, 1e-13).check()


def test_the_page_lists_every_status() -> None:
    lines = Path(ROOT, "docs", "statuses.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    expected = [
        [f"`{name}`", str(status.exit_code), "yes" if status.is_final else "no", status.meaning]
        for name, status in STATUSES.items()
    ]
    assert rows == expected
