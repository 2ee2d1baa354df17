"""Merging support vectors, against minimisation by brute force."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.optimize import minimize_scalar

from streamsvm.solvers.budgeted_sgd import maintenance
from streamsvm.solvers.budgeted_sgd.maintenance import build_table
from tests.conftest import choose_examples
from tests.solvers.budgeted_sgd.golden_section import search_share

compute_loss, rate_partners = njit(maintenance.compute_loss), njit(maintenance.rate_partners)
merge_in_turn, merge_by_ascent = njit(maintenance.merge_in_turn), njit(maintenance.merge_by_ascent)
solve_share, weigh_share = njit(maintenance.solve_share), njit(maintenance.weigh_share)
RATIOS = st.floats(-1.0, 1.0)
SEPARATIONS = st.floats(1e-4, 12.0)


def degrade(h, ratio, separation):
    """|Delta|^2 as the papers write it, z = h x_larger + (1 - h) x_smaller."""
    kappa = np.exp(-separation)
    merged = kappa ** ((1 - h) ** 2) + ratio * kappa ** (h**2)
    return 1 + ratio**2 + 2 * ratio * kappa - merged**2


def minimise(ratio, separation):
    """Return the least degradation over a line far longer than any range that we claim."""
    reach = 3.0 / np.sqrt(separation)
    grid = np.concatenate([np.linspace(-1 - reach, 2 + reach, 3001), np.linspace(-0.1, 1.1, 1001)])
    grid = np.unique(grid.round(9))  # no two nodes a rounding apart: the minimum may lie beyond both
    k = int(np.argmin(degrade(grid, ratio, separation)))
    span = (grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)])
    found = minimize_scalar(degrade, bounds=span, args=(ratio, separation), method="bounded", options={"xatol": 1e-12})
    return min(found.fun, degrade(grid[k], ratio, separation))


@settings(deadline=None, max_examples=choose_examples(20, 300, 300))
@given(RATIOS, SEPARATIONS)
@example(1.0, 2.0)
@example(1.0, 5.0)
@example(-1.0, 1e-4)
@example(-1.0, 3.0)
@example(0.999999, 2.0)
@example(0.9999, 1.0)
@example(0.998046875, 0.25)
def test_two_terms_merge_as_well_as_by_brute_force(ratio, separation):
    best = minimise(ratio, separation)
    f, loss = weigh_share(ratio, separation, solve_share(ratio, separation))
    rounding = 1e-14  # of 1 + r^2, from which brute force subtracts
    assert abs(loss - best) <= 1e-6 * best + rounding
    assert loss <= ratio**2 * -np.expm1(-2 * separation) + rounding
    assert f >= 0
    assert f * f == pytest.approx(1 + ratio**2 + 2 * ratio * np.exp(-separation) - loss, abs=1e-9)


@settings(deadline=None, max_examples=choose_examples(20, 300, 300))
@given(RATIOS, SEPARATIONS)
@example(1.0, 2.0)
def test_best_place_is_in_the_range_of_its_signs(ratio, separation):
    u = solve_share(ratio, separation)
    if ratio >= 0:
        assert 0 <= u <= 0.5 + 1e-12
    else:
        assert -1 / np.sqrt(2 * separation) - 1e-9 <= u <= 0


@settings(deadline=None, max_examples=choose_examples(20, 300, 300))
@given(RATIOS, SEPARATIONS)
def test_golden_section_and_closed_form_agree(ratio, separation):
    by_search = weigh_share(ratio, separation, search_share(ratio, separation))[1]
    by_root = weigh_share(ratio, separation, solve_share(ratio, separation))[1]
    assert abs(by_search - by_root) <= 1e-9 * ratio**2 + 1e-15


def test_close_vectors_keep_their_digits():
    """Series: |Delta|^2 = 2 L^2 (r / (1 + r))^2 (1 + O(L))."""
    for ratio in (1.0, 0.3, -0.3):
        separation = 1e-6
        loss = weigh_share(ratio, separation, solve_share(ratio, separation))[1]
        assert loss == pytest.approx(2 * (separation * ratio / (1 + ratio)) ** 2, rel=1e-4)


def test_neighbours_of_opposite_sign_cost_what_is_said():
    loss = weigh_share(-1.0, 1e-6, solve_share(-1.0, 1e-6))[1]
    assert loss == pytest.approx(2 * (1 - np.exp(-1)) * 1e-6, rel=1e-3)


def test_a_term_and_its_negative_cancel():
    shares, merged, loss = merge_in_turn(np.array([2.0, -2.0]), np.zeros((2, 2)))
    assert merged == 0
    assert loss == 0
    assert np.all(np.isfinite(shares))
    assert merge_in_turn(np.zeros(3), np.ones((3, 3)))[1:] == (0.0, 0.0)


@pytest.mark.parametrize("near", ["everywhere", "fork", "opposite"])
def test_table_agrees_with_golden_section(near):
    rng = np.random.default_rng(0)
    n = 20_000
    ratio, separation = rng.uniform(-1, 1, n), rng.uniform(0, 3.5, n) ** 2
    if near == "fork":
        ratio, separation = 1 - 10 ** rng.uniform(-9, 0, n), np.abs(2 + rng.normal(0, 0.1, n))
    elif near == "opposite":
        ratio, separation = -1 + 10 ** rng.uniform(-9, 0, n), 10 ** rng.uniform(-9, 0, n)
    larger = rng.choice([-1.0, 1.0], n) * 10 ** rng.uniform(-3, 3, n)
    separation = separation.astype(np.float32).astype(np.float64)
    smaller, read, swapped = ratio * larger, np.empty(n), np.empty(n)
    for k in range(n):
        one, apart = slice(k, k + 1), separation[k : k + 1].astype(np.float32)
        rate_partners(build_table(), smaller[k], larger[one], apart, read[one])
        rate_partners(build_table(), larger[k], smaller[one], apart, swapped[one])
    np.testing.assert_array_equal(read, swapped)
    for k in range(n):
        searched = weigh_share(ratio[k], separation[k], search_share(ratio[k], separation[k]))[1] * larger[k] ** 2
        assert abs(read[k] - searched) <= 1e-6 * (abs(smaller[k]) + abs(larger[k])) ** 2
        assert abs(read[k] - compute_loss(ratio[k], separation[k]) * smaller[k] ** 2) <= 4.5e-6 * smaller[k] ** 2


def groups(signs):
    """Return coefficients and points (M, 2) of a few terms."""

    @st.composite
    def draw_group(draw):
        m = draw(st.integers(2, 6))
        alpha = np.array(draw(st.lists(st.floats(0.1, 3.0), min_size=m, max_size=m)))
        if signs == "unlike":
            alpha *= np.array(draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=m, max_size=m)))
        points = np.array(draw(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=m, max_size=m)))
        return alpha, points

    return draw_group()


def separate(points):
    return ((points[:, None] - points[None]) ** 2).sum(axis=2)


def measure(alpha, points, z, merged):
    """|sum alpha_i phi(x_i) - merged phi(z)|^2 from the kernel matrix of the terms and z, gamma = 1."""
    K = np.exp(-separate(np.vstack([points, z])))
    coef = np.append(alpha, -merged)
    return coef @ K @ coef


@pytest.mark.slow("compares many groups")
@settings(deadline=None, max_examples=choose_examples(20, 200, 200))
@given(st.one_of(groups("equal"), groups("unlike")), st.sampled_from([merge_in_turn, merge_by_ascent]))
def test_degradation_of_a_group_is_that_of_its_kernel_matrix(group, merge):
    alpha, points = group
    shares, merged, loss = merge(alpha, separate(points))
    assert shares.sum() == pytest.approx(1.0, abs=1e-7 * max(1.0, np.abs(shares).max()))
    near = np.abs(shares).max() < 1e3  # else the kernel matrix of the test itself is rounded
    if near:
        assert loss == pytest.approx(measure(alpha, points, shares @ points, merged), abs=1e-7)


@settings(deadline=None, max_examples=choose_examples(20, 200, 200))
@given(groups("equal"))
def test_ascent_starts_at_the_mean_and_ends_where_the_gradient_is_flat(group):
    alpha, points = group
    shares, merged, loss = merge_by_ascent(alpha, separate(points), 1e-13)
    mean = alpha @ points / alpha.sum()
    at_mean = alpha @ np.exp(-((points - mean) ** 2).sum(axis=1))
    assert loss <= measure(alpha, points, mean, at_mean) + 1e-9
    z = shares @ points
    gradient = (alpha * np.exp(-((points - z) ** 2).sum(axis=1))) @ (points - z)
    assert np.abs(gradient).max() <= 1e-3 * merged


def test_ascent_falls_back_where_there_is_no_weighted_mean():
    alpha, points = np.array([1.0, -1.0, 0.2]), np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.4]])
    by_ascent, in_turn = merge_by_ascent(alpha, separate(points)), merge_in_turn(alpha, separate(points))
    np.testing.assert_array_equal(by_ascent[0], in_turn[0])
    assert by_ascent[1:] == in_turn[1:]
