"""A ball that outlives its training: P of the rows that it was made of is known in it, without reading them again.

A pass over n rows at a point w_0 gives the sums c and g over the far rows, and the near rows (cutting_plane.one_read).
While |w - w_0| is less than the radius r, no far row changes sides, so

    P(w) = 1/2 |w|^2 + c - g.w + sum_near C_i max(0, 1 - m_i) + the loss of rows that were added since

The near rows, c, g and r are kept. When rows are added, a pass over these alone, at the same w_0 and with the same
norm, gives their own c, g and near rows. Both together are what a pass over all rows would have given, with a radius
that is the smaller one of both. So P and a lower bound of all rows are proved as by one read
(cutting_plane.ball_proof): the bound in any case, and P if the new optimum lies in the ball.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.methods.cutting_plane.ball_proof import gather, prove
from streamsvm.methods.cutting_plane.cuts import count_pass, find_status
from streamsvm.methods.cutting_plane.exact_points import (
    Magnitudes,
    add_magnitudes,
    combine_magnitudes,
    start_magnitudes,
    take_magnitudes,
)
from streamsvm.methods.cutting_plane.near_rows import Look, NearTotals, Part, add_near, combine_near, start_near
from streamsvm.methods.cutting_plane.one_read_state import ALLOWANCE, GROUP_SHARE, OneRead, State, start_state
from streamsvm.numeric.row_norms import RowNorm, make_norm
from streamsvm.numeric.rows import F64
from streamsvm.numeric.samples import draw_sample
from streamsvm.requests import All, Question, Scan, Solver, Step, Take


@dataclass(frozen=True)
class Ball:
    """What a pass at a centre has found of all rows.

    centre (width,); A (width, width): of the norm; gradient (width,), cost: sum C_i y_i x_i and sum C_i over the rows
    with m_i < 1 at the centre; near: the rows that were kept, with the radius; n_rows: all rows; magnitudes: of all
    rows, which bound the rounding of sums.
    """

    centre: F64
    A: F64
    gradient: F64
    cost: float
    near: Part
    n_rows: int
    magnitudes: Magnitudes


Finder = Generator[Question, Any, Ball]


def find_ball(settings: OneRead, n_rows: int, is_shuffled: bool, centre: F64) -> Finder:
    """Return the ball at a point, after a read of all rows. The norm is that of a sample."""
    taken = yield Take(draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled))
    norm = make_norm(taken, settings.bias_feature)
    del taken
    look = _make_look(settings, centre, norm, min(1.0, GROUP_SHARE * settings.resident_rows / n_rows))
    totals, magnitudes = yield All(_look(settings, look))
    near, _ = gather(totals, look)
    return Ball(centre, norm.A, totals.gradient, totals.cost, near, n_rows, magnitudes)


def start_update(settings: OneRead, ball: Ball, n_new: int) -> State:
    """Return the state before the new rows are read."""
    state = start_state(settings, ball.n_rows + n_new, len(ball.centre) - 1)
    return replace(state, centre=ball.centre, A=ball.A)


def count_new(ball: Ball, n_new: int, n_chunks: int) -> int:
    """Return how many of the new rows the pass over them keeps at most; each group of chunks keeps one row or more."""
    return min(n_new, int(find_share(ball) * n_new) + n_chunks)


def find_share(ball: Ball) -> float:
    """Return the share of the rows of a group that a pass over new rows keeps at most."""
    return min(1.0, GROUP_SHARE * len(ball.near.numbers) / ball.n_rows)


def update(settings: OneRead, ball: Ball, n_new: int, found: list[Ball], state: State) -> Solver:
    """Prove what a pass over the new rows and the ball prove together; `found` gets the ball of all rows.

    The pass is over the new rows alone, and `passes` counts reads of all rows, so it is not counted.
    """
    look = _make_look(settings, ball.centre, RowNorm(ball.A), find_share(ball))
    new, magnitudes = yield All(_look(settings, look))
    old = NearTotals(ball.gradient, np.zeros_like(ball.gradient), ball.cost, n_rows=ball.n_rows)
    old.radius, old.parts = ball.near.radius, [ball.near]
    totals = combine_near(look.share, old, new)
    both = combine_magnitudes(ball.magnitudes, magnitudes)
    before, state = state, take_magnitudes(state, [both])
    near, weight = gather(totals, look)
    found.append(Ball(ball.centre, ball.A, totals.gradient, totals.cost, near, totals.n_rows, both))
    state, figures = prove(settings, state, totals, near, weight)
    state = count_pass(state, before, 0)
    yield Step(
        state, state.progress, find_status(state, settings.tol) or "stalled", {**figures, "new_rows": float(n_new)}
    )


def _make_look(settings: OneRead, centre: F64, norm: RowNorm, share: float) -> Look:
    """Return what a pass looks for that keeps up to this share of the rows of a group, and the resident rows in all."""
    return Look(
        w=centre,
        norm=norm,
        squares=norm.bound_by_squares(),
        draws=False,
        share=share,
        most=settings.resident_rows,
        left=ALLOWANCE * float(np.linalg.norm(centre)),
        class_costs=np.array(settings.class_costs),
        bias_feature=settings.bias_feature,
        seed=settings.seed,
    )


def _look(settings: OneRead, look: Look) -> list[Scan]:
    width, costs = len(look.w), np.array(settings.class_costs)
    near = Scan(partial(start_near, width), add_near, partial(combine_near, look.share), (look,))
    sums = Scan(partial(start_magnitudes, width), add_magnitudes, combine_magnitudes, (costs, settings.bias_feature))
    return [near, sums]
