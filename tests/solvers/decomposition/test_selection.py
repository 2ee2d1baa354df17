"""What each rule promises of a working set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamsvm.numeric.rows import F64, I64
from streamsvm.solvers.decomposition.working_set import (
    PREVIOUS_SET_DIVISOR,
    RULES,
    Conditions,
    choose_candidates,
    choose_working_set,
    draw_active_rows,
    find_conditions,
)

SETS = [rule for rule in RULES if rule != "platt"]
TOL = 0.1


@dataclass(frozen=True)
class Drawn:
    """Rows at, between and beside their bounds; some without a cost."""

    y: F64
    costs: F64
    alpha: F64
    f: F64
    before: I64
    seed: int

    @property
    def conditions(self) -> Conditions:
        return find_conditions(self.y, self.costs, self.alpha, self.f)

    @property
    def free(self) -> np.ndarray:
        return (self.alpha > 0) & (self.alpha < self.costs)

    def choose(self, rule: str, size: int) -> I64:
        rng = np.random.default_rng(self.seed)
        return choose_working_set(rule, self.conditions, self.before, size, TOL, rng)


@st.composite
def drawn_rows(draw: st.DrawFn, most: int = 60) -> Drawn:
    seed, n = draw(st.integers(0, 2**32)), draw(st.integers(2, most))
    rng = np.random.default_rng(seed)
    y, costs = rng.choice((-1.0, 1.0), n), rng.choice((0.0, 1.0, 2.0), n, p=(0.1, 0.6, 0.3))
    alpha = costs * rng.choice((0.0, 0.5, 1.0), n, p=draw(st.sampled_from(((0.8, 0.1, 0.1), (0.3, 0.4, 0.3)))))
    f = rng.normal(size=n) * draw(st.sampled_from((0.05, 1.0, 5.0)))
    if draw(st.booleans()):
        f = np.round(f)  # ties
    return Drawn(y, costs, alpha, f, rng.permutation(n)[: draw(st.integers(0, n))], seed)


@given(drawn_rows())
def test_conditions_by_their_definition(rows: Drawn) -> None:
    up, down = [], []
    for s, cost, a, f in zip(rows.y, rows.costs, rows.alpha, rows.f, strict=True):
        if cost > 0 and (a < cost if s > 0 else a > 0):
            up.append(s - f)
        if cost > 0 and (a > 0 if s > 0 else a < cost):
            down.append(s - f)
    found = rows.conditions
    assert (found.up.sum(), found.down.sum()) == (len(up), len(down))
    assert found.violation == (max(0.0, max(up) - min(down)) if up and down else 0.0)
    np.testing.assert_allclose(found.errors, rows.y - rows.f - found.bias)
    if up and down:
        assert found.bias == pytest.approx((max(up) + min(down)) / 2)
    assert np.isfinite(found.bias)


@given(drawn_rows(), st.sampled_from(SETS), st.integers(2, 70))
def test_each_row_once_and_no_more_than_asked_for(rows: Drawn, rule: str, size: int) -> None:
    chosen = rows.choose(rule, size)
    most = size + rows.free.sum() if rule == "chunking" else size
    assert len(set(chosen.tolist())) == len(chosen) <= most
    assert set(chosen) <= set(range(len(rows.y)))
    assert np.all(rows.costs[np.setdiff1d(chosen, rows.before)] > 0), "a row without a cost can do nothing"


@given(drawn_rows(), st.sampled_from(SETS), st.integers(2, 70))
def test_a_pair_that_violates_is_there(rows: Drawn, rule: str, size: int) -> None:
    """Else no step is possible and the search goes on for ever. (By second order a round later, if size is 2.)"""
    conditions = rows.conditions
    assume(conditions.violation > 2 * TOL)
    assume(rule != "second-order" or size > 2)
    chosen = rows.choose(rule, size)
    up, down = chosen[conditions.up[chosen]], chosen[conditions.down[chosen]]
    assert conditions.errors[up].max(initial=-np.inf) > conditions.errors[down].min(initial=np.inf)


@given(drawn_rows(), st.integers(2, 70))
def test_largest_takes_the_worst_of_both_sides_in_turn(rows: Drawn, size: int) -> None:
    conditions = rows.conditions
    assume(conditions.up.any() and conditions.down.any())
    chosen = rows.choose("largest", size)
    e = conditions.errors
    assert e[chosen[0]] == e[conditions.up].max()
    assert len(chosen) == min(size, np.count_nonzero(conditions.up | conditions.down))
    left = np.setdiff1d(np.arange(len(e)), chosen)
    for side, sign in ((conditions.up, 1), (conditions.down, -1)):
        inside, outside = (sign * e)[chosen[side[chosen]]], (sign * e)[left[side[left]]]
        worst = np.sort((sign * e)[side])[::-1][: size // 2]
        assert len(worst) <= len(inside)
        assert outside.max(initial=-np.inf) <= worst.min(initial=np.inf)


@given(drawn_rows(), st.integers(3, 70))
def test_second_order_keeps_half_of_the_last_set(rows: Drawn, size: int) -> None:
    """Free multipliers first, of those the ones that joined last; the worst of both sides join."""
    chosen, before = rows.choose("second-order", size), rows.before
    wanted = [i for part in (rows.free, ~rows.free) for i in before[::-1] if part[i]][: size // PREVIOUS_SET_DIVISOR]
    assert set(chosen[: len(wanted)]) == set(wanted)
    conditions = rows.conditions
    if conditions.violation > 0:
        assert conditions.errors[chosen[conditions.up[chosen]]].max() == conditions.errors[conditions.up].max()
        assert conditions.errors[chosen[conditions.down[chosen]]].min() == conditions.errors[conditions.down].min()


@given(drawn_rows(), st.integers(2, 20))
def test_chunking_holds_all_that_are_free_and_the_worst(rows: Drawn, size: int) -> None:
    chosen = rows.choose("chunking", size)
    assert set(np.flatnonzero(rows.free)) <= set(chosen)
    assert set(rows.choose("largest", size)) <= set(chosen)


def sides(rows: Drawn) -> list[np.ndarray]:
    """Pérez-Cruz' four kinds of violators: error too high or too low, multiplier free or at a bound."""
    conditions = rows.conditions
    high, low = conditions.up & (conditions.errors > TOL), conditions.down & (conditions.errors < -TOL)
    return [high & rows.free, high & ~rows.free, low & rows.free, low & ~rows.free]


@given(drawn_rows(), st.sampled_from(("random", "smallest")), st.integers(4, 70))
def test_one_of_each_class_and_condition_then_candidates_then_the_nearest(rows: Drawn, rule: str, size: int) -> None:
    """Section 3 of Pérez-Cruz: violators and free rows; where they are too few, rows of least |e|."""
    chosen, kinds = rows.choose(rule, size), sides(rows)
    candidate = rows.free | np.any(kinds, axis=0)
    for kind in kinds:
        assert kind[chosen].any() == kind.any()
    if candidate.sum() > size:
        assert len(chosen) == size
        assert candidate[chosen].all()
        return
    assert candidate[chosen].sum() == candidate.sum()
    others = np.flatnonzero(~candidate & (rows.costs > 0))
    added = chosen[~candidate[chosen]]
    assert len(added) == min(size - candidate.sum(), len(others))
    distances = np.sort(np.abs(rows.conditions.errors[others]))
    np.testing.assert_array_equal(np.sort(np.abs(rows.conditions.errors[added])), distances[: len(added)])


@given(drawn_rows(), st.integers(4, 20))
def test_smallest_takes_candidates_of_least_error(rows: Drawn, size: int) -> None:
    kinds, e = sides(rows), np.abs(rows.conditions.errors)
    candidates = np.flatnonzero(rows.free | np.any(kinds, axis=0))
    assume(len(candidates) > size)
    chosen = rows.choose("smallest", size)
    firsts = {min(np.flatnonzero(kind), key=lambda i: e[i]) for kind in kinds if kind.any()}
    assert firsts <= set(chosen)
    rest = np.sort(e[chosen])[: size - len(firsts)]
    np.testing.assert_array_equal(rest, np.sort(e[candidates])[: size - len(firsts)])


def test_random_depends_on_the_seed_alone_and_reaches_every_candidate() -> None:
    n = 40
    y, costs, alpha = np.tile([1.0, -1.0], n // 2), np.ones(n), np.zeros(n)
    conditions = find_conditions(y, costs, alpha, np.linspace(-0.5, 0.5, n))
    draws = [choose_candidates("random", conditions, 6, TOL, np.random.default_rng(seed)) for seed in range(60)]
    again = choose_candidates("random", conditions, 6, TOL, np.random.default_rng(0))
    np.testing.assert_array_equal(draws[0], again)
    counts = np.bincount(np.concatenate(draws), minlength=n)
    assert counts.min() >= 1
    assert counts.max() <= 30


def test_active_rows_are_drawn_by_how_far_they_violate() -> None:
    """Of two kinds of violators on each side, 1 and 9, the second is drawn nine times as often at first; both are."""
    n, rng = 4000, np.random.default_rng(0)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    f = -y * np.where(np.arange(n) % 4 < 2, 0.0, 8.0)  # errors y - f of 1 and 9, and a bias of 0
    conditions = find_conditions(y, np.ones(n), np.zeros(n), f)
    drawn = draw_active_rows(conditions, 200, 0.1, rng)
    far = np.count_nonzero(np.arange(n)[drawn] % 4 >= 2)
    assert len(np.unique(drawn)) == 200
    assert np.count_nonzero(y[drawn] > 0) == 100
    assert 160 <= far <= 196
