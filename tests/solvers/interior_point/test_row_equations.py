"""The equations of a step with the rows themselves: against fractions, and in runs that normal equations cannot end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array

from streamsvm import LinearSVC
from streamsvm.numeric.rows import F32, F64, CsrRows, Matrix, Rows
from streamsvm.solvers.interior_point.equations import NormalEquations, RightSide, RowEquations
from streamsvm.solvers.interior_point.steps import (
    Course,
    Point,
    Targets,
    Y,
    aim_at_zero,
    find_omega,
    find_right_side,
    find_scales,
    find_targets,
    point_of,
    predict,
)
from tests.numeric.test_row_qr import solve_squares
from tests.solvers.interior_point.test_interior_certificates import check

COURSE = Course(0.0, 0.0, 0.0, 0.0, 0.0)


def draw_weighted(seed: int, n: int, distinct: int, scale: float) -> tuple[F32, npt.NDArray[np.int64], F64]:
    """Rows of 30 features, drawn from so many distinct rows, labels, and weights of ratios up to 1e12."""
    random = np.random.default_rng(seed)
    X = scale * random.normal(size=(distinct, 30))
    if n > distinct:
        X = X[random.integers(0, distinct, n)]
    y = random.integers(0, 2, n)
    y[:2] = 0, 1
    return X.astype(np.float32), y, 10.0 ** random.uniform(-6, 6, n)


@pytest.mark.parametrize("seed", [12, 20, 48, 62, 100, 207])
def test_heavy_rows_do_not_hide_light_rows(seed: int) -> None:
    """Ten distinct rows, costs from 10 to 1e13: steps by a jittered factor stalled at gaps of 0.8% to 99.98%."""
    X, y, weight = draw_weighted(seed, 30, 10, 1e4)
    models = [
        LinearSVC(C=1e7, solver="interior-point", n_jobs=1).fit(rows, y, sample_weight=weight)
        for rows in (X, csr_array(X))
    ]
    for model in models:
        assert model.status_ == "converged"
        check(model, X, y, 1e7 * weight)


@pytest.mark.parametrize("seed", [16, 589])
def test_steps_do_not_go_round_in_a_cycle(seed: int) -> None:
    """Five rows: four steps came round again and again, at gaps of 64% and 47%, until the run was given up."""
    X, y, weight = draw_weighted(seed, 5, 5, 1.0)
    model = LinearSVC(C=1e5, solver="interior-point", tol=1e-6, n_jobs=1).fit(X, y, sample_weight=weight)
    assert model.status_ == "converged"
    check(model, X, y, 1e5 * weight)


def solve_exactly(X: F32, y: F64, weight: F64, side: F64, w: F64) -> F64:
    """The minimiser (dw, db) of 1/2 |w + dw|^2 + 1/2 sum W_i (y_i (x_i.dw + db) + side_i)^2, in fractions."""
    roots = np.sqrt(weight)
    rows = np.vstack((roots[:, None] * np.column_stack((X, np.ones(len(X)))), np.eye(len(w), len(w) + 1)))
    return solve_squares(rows, -np.concatenate((roots * y * side, w)))


def make_equations(X: F32, costs: F64, w: F64, sparse: bool) -> tuple[NormalEquations, RowEquations, F64, F64]:
    """Both kinds of equations at some point inside, r_Omega - t omega of the predictor, and what the rows keep."""
    random, n, bias = np.random.default_rng(1), len(X), 0.25
    y = np.where(random.random(n) < 0.5, -1.0, 1.0)
    point = Point(X @ w, *random.uniform(0.5, 2.0, (4, n)))
    weight, alpha = costs / find_omega(point), costs * point.t
    gram, ybar, total = np.triu(X.T.astype(float) @ (weight[:, None] * X)), weight @ X, float(weight.sum())
    normal = NormalEquations(gram, ybar, total, ybar, total, w - (y * alpha) @ X, float(y @ alpha))
    counted = np.flatnonzero(costs)
    csr = csr_array(X[counted])
    taken: Matrix = CsrRows(csr.data, csr.indices, csr.indptr, X.shape[1]) if sparse else X[counted]
    side = find_right_side(point, y, bias, aim_at_zero(point)) - point.t * find_omega(point)
    numbers = np.stack((*point, y, costs, *np.zeros((3, n))))
    return normal, RowEquations(normal, Rows(0, taken), numbers[:, counted].copy(), w, bias), side, numbers


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("heavy", [1.0, 1e9, 1e18, 1e30])
def test_the_solution_is_that_of_fractions(heavy: float, sparse: bool) -> None:
    """Two rows are as many times heavier than the others, one of which costs nothing."""
    random = np.random.default_rng(0)
    X, w, costs = random.normal(size=(8, 3)).astype(np.float32), random.normal(size=3), np.ones(8)
    costs[[3, 7]], costs[5] = heavy, 0.0
    _, rows, side, numbers = make_equations(X, costs, w, sparse)
    none, point, y = RightSide(np.empty(0), 0.0), point_of(numbers), numbers[Y]
    (dw, db), (centre, centre_bias) = rows.predict(none, none, 2.0)
    weight = costs / find_omega(point)
    exact = solve_exactly(X, y, weight, side, w)
    np.testing.assert_allclose([*dw, db], exact, rtol=1e-12)
    apart = find_scales(costs, 2.0) * (1.0 / point.r - 1.0 / point.t)
    exact = solve_exactly(X, y, weight, apart, np.zeros(3))
    np.testing.assert_allclose([*centre, centre_bias], exact, rtol=1e-12)


def test_the_solution_is_that_of_the_normal_equations() -> None:
    """Where the costs are alike, both are the same to rounding."""
    random = np.random.default_rng(0)
    X, w = random.normal(size=(8, 3)).astype(np.float32), random.normal(size=3)
    normal, rows, _, numbers = make_equations(X, np.ones(8), w, sparse=False)
    point, y, none = point_of(numbers), numbers[Y], RightSide(np.empty(0), 0.0)

    def sum_side(targets: Targets) -> RightSide:
        weighted = y / find_omega(point) * find_right_side(point, y, 0.25, targets)
        return RightSide(weighted @ X, float(weighted.sum()))

    predictor, centering = rows.predict(none, none, 1.0)
    np.testing.assert_allclose(predictor[0], normal.solve(sum_side(aim_at_zero(point)), COURSE)[0], rtol=1e-12)
    course = Course(0.25, predictor[1], 0.8, 0.1, 1.0)
    own_numbers = predict(numbers, Rows(0, X), np.stack((predictor[0], centering[0])))
    side = sum_side(find_targets(own_numbers, course))
    (dw, db), (own, own_bias) = normal.solve(side, course), rows.solve(none, course)
    np.testing.assert_allclose([*own, own_bias], [*dw, db], rtol=1e-12)
