"""One Newton step against the equations of the paper, (3.1)-(3.10), linearised and written out."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.numeric.equations import move
from streamsvm.numeric.rows import F64, Rows
from streamsvm.solvers.interior_point.equations import NormalEquations, Reduction, RightSide, find_keys
from streamsvm.solvers.interior_point.passes import Measures, add_measures
from streamsvm.solvers.interior_point.steps import (
    Course,
    Direction,
    Point,
    Targets,
    aim_at_center,
    aim_at_zero,
    find_direction,
    find_omega,
    find_products,
    find_ratios,
    find_residuals,
    find_right_side,
    find_scales,
    find_second_order,
    move_inside,
)

N, D = 40, 5
COURSE = Course(0.0, 0.0, 0.0, 0.0, 0.0)


class Example:
    """A point that is neither feasible nor central; every second weight another, one of them 0."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.X, self.y = random.normal(size=(N, D)), random.choice([-1.0, 1.0], N)
        self.costs = random.choice([0.5, 2.0], N)
        self.costs[3] = 0.0
        self.w, self.bias = random.normal(size=D), 0.3
        self.point = Point(self.X @ self.w, *random.uniform(0.1, 2.0, (4, N)))

    @property
    def numbers(self) -> F64:
        """What rows keep, without products."""
        return np.stack((*self.point, self.y, self.costs, *np.zeros((3, N))))

    @property
    def scales(self) -> F64:
        return find_scales(self.costs, self.costs[self.costs > 0].mean())

    @property
    def alpha(self) -> F64:
        return self.costs * self.point.t

    def sum_side(self, of_rows: F64) -> RightSide:
        """X'YW and y'W times a number of each row."""
        weighted = self.y * self.costs / find_omega(self.point) * of_rows
        return RightSide(self.X.T @ weighted, float(weighted.sum()))

    def step(self, targets: Targets) -> tuple[F64, float, Direction]:
        """The whole Newton step, unreduced."""
        W = self.costs / find_omega(self.point)
        gram, ybar = self.X.T @ (W[:, None] * self.X), self.X.T @ W
        r_w, r_b = self.w - self.X.T @ (self.y * self.alpha), float(self.y @ self.alpha)
        equations = NormalEquations(gram, ybar, float(W.sum()), ybar, float(W.sum()), r_w, r_b)
        dw, db = equations.solve(self.sum_side(find_right_side(self.point, self.y, self.bias, targets)), COURSE)
        return dw, db, find_direction(self.point, self.y, self.costs, self.bias, targets, self.X @ dw, db)


def check_newton(example: Example, targets: Targets, dw: F64, db: float, direction: Direction) -> None:
    """Every equation, in alpha and u."""
    e, p, costs = example, example.point, example.costs
    d_alpha, du, kept = costs * direction.t, costs * direction.r, costs > 0
    u = costs * p.r
    np.testing.assert_allclose(dw - e.X.T @ (e.y * d_alpha), -(e.w - e.X.T @ (e.y * e.alpha)), atol=1e-9)
    np.testing.assert_allclose(e.y @ d_alpha, -(e.y @ e.alpha), atol=1e-9)
    np.testing.assert_allclose(-d_alpha - du, -(costs - e.alpha - u), atol=1e-9)
    primal = e.y * (e.X @ dw + db) + direction.xi - direction.s
    np.testing.assert_allclose(primal[kept], -(e.y * (e.X @ e.w + e.bias) + p.xi - 1 - p.s)[kept], atol=1e-9)
    np.testing.assert_allclose(e.alpha * direction.s + p.s * d_alpha, -costs * targets.sv * kept, atol=1e-9)
    np.testing.assert_allclose(u * direction.xi + p.xi * du, -costs * targets.xu * kept, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_predictor_and_corrector_are_newton_steps(seed: int) -> None:
    example = Example(seed)
    zero = aim_at_zero(example.point)
    dw, db, predicted = example.step(zero)
    check_newton(example, zero, dw, db, predicted)
    targets = aim_at_center(example.point, predicted, 1e9, 0.07, example.scales)
    p, d, center = example.point, predicted, 0.07 * example.costs[example.costs > 0].mean()
    kept, costs = example.costs > 0, example.costs
    np.testing.assert_allclose((costs * targets.sv)[kept], (costs * (p.s * p.t + d.s * d.t) - center)[kept])  # (3.9)
    np.testing.assert_allclose((costs * targets.xu)[kept], (costs * (p.xi * p.r + d.xi * d.r) - center)[kept])  # (3.10)
    check_newton(example, targets, *example.step(targets))


def test_sigma_enters_the_right_side_linearly() -> None:
    """What two passes rest on: r_Omega of the corrector from that of the predictor, in parts."""
    example = Example()
    p, zero = example.point, aim_at_zero(example.point)
    _, _, predicted = example.step(zero)
    corrected = find_right_side(p, example.y, example.bias, aim_at_center(p, predicted, 0.1, 0.4, example.scales))
    parts = find_right_side(p, example.y, example.bias, zero) + 0.4 * example.scales * (1 / p.r - 1 / p.t)
    parts = parts + find_second_order(p, predicted, 0.1, example.scales)
    np.testing.assert_allclose(corrected, parts, rtol=1e-12, atol=1e-12)


def test_predictor_and_center_solve_separately() -> None:
    """dw is linear in sigma mu, too."""
    example = Example()
    e = example.scales
    p, W = example.point, example.costs / find_omega(example.point)
    ybar = example.X.T @ W
    r_w, r_b = example.w - example.X.T @ (example.y * example.alpha), float(example.y @ example.alpha)
    gram = example.X.T @ (W[:, None] * example.X)
    equations = NormalEquations(gram, ybar, float(W.sum()), ybar, float(W.sum()), r_w, r_b)
    h = example.sum_side
    side = find_right_side(p, example.y, example.bias, aim_at_zero(p))
    (dw, db), (dw_center, db_center) = equations.predict(h(side), h(e * (1 / p.r - 1 / p.t)), 0.0)
    targets = Targets(p.s * p.t - 0.2 * e, p.xi * p.r - 0.2 * e)
    together = equations.solve(h(find_right_side(p, example.y, example.bias, targets)), COURSE)
    np.testing.assert_allclose(dw + 0.2 * dw_center, together[0], rtol=1e-10)
    assert db + 0.2 * db_center == pytest.approx(together[1])


def test_chosen_rows_stand_for_all_rows() -> None:
    """If each row is there twice, the matrix of one of the two is that of all rows."""
    e = Example()
    W = e.costs / find_omega(e.point)
    gram, ybar = e.X.T @ (W[:, None] * e.X), e.X.T @ W
    rows = (2 * ybar, 2 * float(W.sum()), e.w, 0.0)
    chosen = NormalEquations(gram, ybar, float(W.sum()), *rows)
    every = NormalEquations(2 * gram, 2 * ybar, 2 * float(W.sum()), *rows)
    np.testing.assert_allclose(chosen.U, every.U, rtol=1e-12)


def test_ratios_and_moves() -> None:
    """The step at which the first variable of a row is 0; f is no variable, and rows without a cost bound nothing."""
    example = Example()
    _, _, d = example.step(aim_at_zero(example.point))
    ratios = find_ratios(example.point, d)
    assert np.isinf(ratios[3])
    for i in np.flatnonzero(np.isfinite(ratios)):
        inside, outside = (np.array([v[i] for v in move(example.point, d, ratios[i] * k)[1:]]) for k in (0.999, 1.001))
        assert inside.min() > 0 > outside.min()
    np.testing.assert_allclose(move(example.point, d, 0.5).f, example.point.f + 0.5 * d.f)


def test_rows_that_would_leave_stop_early() -> None:
    """At 0.995 of their own way; all others, and f, go the whole step."""
    example = Example()
    p = example.point
    _, _, d = example.step(aim_at_zero(p))
    ratios = find_ratios(p, d)
    step = float(np.sort(ratios)[5]) * 1.01
    whole, inside = move(p, d, step), move_inside(p, d, step)
    np.testing.assert_array_equal(inside.f, whole.f)
    for i in range(N):
        expected = whole if step < ratios[i] else move(p, d, 0.995 * ratios[i])
        np.testing.assert_allclose([v[i] for v in inside[1:]], [v[i] for v in expected[1:]], rtol=1e-12)
    assert (ratios <= step).sum() == 6
    assert min(float(v.min()) for v in inside[1:]) > 0


def test_products_are_cut_off() -> None:
    example = Example()
    p = example.point
    _, _, d = example.step(aim_at_zero(p))
    products, most = find_products(d, 0.01, example.scales), 0.03 * example.scales
    assert (np.abs(d.s * d.t) > most).any()
    np.testing.assert_allclose(products.sv, np.clip(d.s * d.t, -most, most))
    np.testing.assert_allclose(products.xu, np.clip(d.xi * d.r, -most, most))


def test_measures() -> None:
    example = Example()
    p, costs = example.point, example.costs
    u = costs * p.r
    found, slack = Measures(), 1 - example.y * (p.f + 0.1)
    add_measures(found, Rows(0, np.empty((N, 0), np.float32)), example.bias, 0.1, 0.5, example.numbers)
    assert found.complementarity == pytest.approx(p.s @ example.alpha + p.xi @ u)
    assert found.losses == pytest.approx(costs @ np.maximum(0, slack))
    assert found.losing == pytest.approx(costs[slack > -0.5].sum())
    assert (found.most, found.is_finite) == (p.t.max(), True)
    r_s, r_u = find_residuals(p, example.y, example.bias)
    of_rows = max(np.abs(r_s[costs > 0]).max(), np.abs(costs * r_u).max())
    assert found.residual == of_rows
    broken = example.numbers
    broken[0, 5] = np.inf
    add_measures(found, Rows(0, np.empty((N, 0), np.float32)), example.bias, 0.1, 0.5, broken)
    assert not found.is_finite


def choose(reduction: Reduction, mu: float, growth: float = 1.0, n_features: int = 1) -> tuple[F64, F64, F64]:
    """Flags of Q, keys and y of 400 rows, 100 of them positive, two thirds of the weights in 20 rows."""
    random = np.random.default_rng(0)
    y = np.where(np.arange(400) < 100, 1.0, -1.0)
    s, xi = random.uniform(1, 2, (2, 400))
    s[::20], xi[::20] = random.uniform(0.02, 0.04, (2, 20))
    point, ones = Point(np.zeros(400), s, np.ones(400), xi, np.ones(400)), np.ones(400)
    limits = reduction.find_limits(point, y, ones, 0.1, mu, growth, n_features)
    keys = find_keys(reduction.rule, point, y, 0.1)
    return keys <= np.where(y > 0, limits[1], limits[0]), keys, y


def test_keys() -> None:
    example = Example()
    p = example.point
    np.testing.assert_allclose(find_keys("omega", p, example.y, 0.3), p.s / p.t + p.xi / p.r)
    np.testing.assert_allclose(find_keys("distance", p, example.y, 0.3), example.y * (p.f + 0.3) + p.xi - 1)


@pytest.mark.parametrize("rule", ["omega", "distance"])
@pytest.mark.parametrize("name", ["adaptive", "adaptive-balanced", "fixed", "none"])
def test_q_holds_the_smallest_keys(name: str, rule: str) -> None:
    """Of each class where balanced; (3.18) with rho = mu^(1/4)."""
    chosen, keys, y = choose(Reduction(name, rule, most_rows=300, theta=1e9), mu=0.3**4)
    for side in (y > 0, y < 0) if name != "adaptive" else (y != 0,):
        assert chosen[side].any()
        assert keys[side & chosen].max() <= keys[side & ~chosen].min(initial=np.inf)
    sizes = int((chosen & (y > 0)).sum()), int((chosen & (y < 0)).sum())
    if name == "none":
        assert sizes == (100, 300)
    if name == "fixed":
        assert sizes == (100, 200)  # the rest of the 150 + 150 that one class has not
    if rule == "omega" and name.startswith("adaptive"):
        assert sum(sizes) >= 120
    if name == "adaptive-balanced" and rule == "omega":
        assert sizes[0] >= 60


def test_size_of_q() -> None:
    """q_U bounds it, q_L and the sum of the weights do from below, growth makes it larger."""
    plain = Reduction("adaptive", theta=1e9)
    assert choose(plain, 1.0)[0].all()
    small = choose(plain, 1e-12)[0]
    omega = choose(plain, 1e-12)[1]
    assert (1 / omega)[small].sum() >= 0.9 * (1 / omega).sum()
    assert choose(Reduction("adaptive", most_rows=390, theta=1e9), 1.0)[0].sum() == 390
    assert choose(plain, 1e-12, n_features=780)[0].sum() == 390
    assert choose(plain, 0.99**4)[0].sum() == 396
    assert choose(plain, 0.33**4, growth=3.0)[0].sum() == 396
    assert choose(Reduction("fixed", most_rows=20), 1.0)[0].sum() == 20
    assert choose(Reduction("fixed", most_rows=20), 1.0, growth=2.0)[0].sum() == 40
    assert choose(Reduction("adaptive", theta=1e-9), 1e-12)[0].all()  # q_L
