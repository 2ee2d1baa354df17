"""A ball that outlives its training: P of the rows that it was made of is known in it, without reading them again.

A pass over n rows at a point w_0 gives the sums c and g over the far rows, and the near rows (cutting_plane.one_read).
While |w - w_0| is less than the radius r, no far row changes sides, so

    P(w) = 1/2 |w|^2 + c - g.w + sum_near C_i max(0, 1 - m_i) + the loss of rows that were added since

The near rows, c, g and r are kept. When rows are added, a pass over these alone, at the same w_0 and with the same
norm, gives their own c, g and near rows. Both together are what a pass over all rows would have given, with a radius
that is the smaller one of both. So P and a lower bound of all rows are proved as by one read
(cutting_plane.ball_proof): the bound in any case, and P if the new optimum lies in the ball.

When rows are deleted, c and g lose what these rows have added, and the near rows those that are deleted. A pass over
the deleted rows alone finds it: a far row lies on the side of the margin at w_0 where it lay, however its score is
rounded, since its distance was rounded downwards. The side of a near row is the one that was kept with it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.methods.cutting_plane.ball_proof import gather, prove
from streamsvm.methods.cutting_plane.cuts import RowSums, count_pass, find_status
from streamsvm.methods.cutting_plane.exact_points import (
    Magnitudes,
    add_magnitudes,
    combine_magnitudes,
    start_magnitudes,
    take_magnitudes,
)
from streamsvm.methods.cutting_plane.near_rows import (
    Look,
    NearTotals,
    Part,
    add_known,
    add_near,
    choose_part,
    choose_rows,
    combine_near,
    find_margins,
    start_near,
)
from streamsvm.methods.cutting_plane.one_read_state import ALLOWANCE, GROUP_SHARE, OneRead, State, start_state
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.row_norms import RowNorm, make_norm
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.samples import draw_sample
from streamsvm.requests import All, Question, Scan, Solver, Step, Take

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Ball:
    """What a pass at a centre has found of all rows.

    centre (width,); A (width, width): of the norm; sums: over the rows with m_i < 1 at the centre; near: the rows that
    were kept, with the radius; n_rows: all rows; magnitudes: of all rows that were ever added to the sums or subtracted
    again, from which the rounding of the sums is bounded.
    """

    centre: F64
    A: F64
    sums: RowSums
    near: Part
    n_rows: int
    magnitudes: Magnitudes

    def edit(self, added: RowSums, removed: RowSums, magnitudes: Magnitudes, near: Part, n_rows: int) -> Ball:
        """Return the ball with other sums and rows. magnitudes: of all rows in `added` and `removed`, at least.

        Only here do the sums of a ball change, so that the magnitudes count every change.
        """
        both = combine_magnitudes(self.magnitudes, magnitudes)
        both = replace(both, additions=both.additions + 1)  # one to subtract, and one to add
        sums = self.sums - removed + added
        return replace(self, sums=sums, near=near, n_rows=n_rows, magnitudes=both)


Finder = Generator[Question, Any, Ball]


def find_ball(settings: OneRead, n_rows: int, is_shuffled: bool, centre: F64) -> Finder:
    """Return the ball at a point, after a read of all rows. The norm is that of a sample."""
    taken = yield Take(draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled))
    norm = make_norm(taken, settings.bias_feature)
    del taken
    look = _make_look(settings, centre, norm, min(1.0, GROUP_SHARE * settings.resident_rows / n_rows))
    totals, magnitudes = yield All(_look(settings, look))
    near, _ = gather(totals, look)
    return Ball(centre, norm.A, totals.sums, near, n_rows, magnitudes)


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


@dataclass(frozen=True)
class Changed:
    """Which rows of a pass are new, and which are copies of rows that were deleted.

    n_new, n_gone: how many rows are new, and how many rows of the ball are gone; first_copy: the number of the first
    copy of a deleted row; left_out: copies that do not count, since their rows were near ones, or are no rows of the
    ball; their numbers ascend.
    """

    n_new: int
    n_gone: int
    first_copy: int
    left_out: I64


@dataclass
class ChangedTotals:
    """Sums over the new rows, with the new rows that are kept, and sums over the far rows that are gone."""

    new: NearTotals
    gone: NearTotals


def leave_out(settings: OneRead, ball: Ball, left: Flags, numbers: I64, n_rows: int) -> Ball:
    """Return a ball of n_rows rows without some near rows: left (n,) tells which stay, and `numbers` are theirs now.

    The sums lose what near rows have added that are gone. Those over the far rows that are gone are found by `update`.
    """
    near, gone = choose_part(ball.near, np.flatnonzero(left)), choose_part(ball.near, np.flatnonzero(~left))
    look, totals = _make_look(settings, ball.centre, RowNorm(ball.A), 1.0), start_near(len(ball.centre))
    if len(gone.numbers):
        add_known(totals, gone.rows, look, gone.margins)
    magnitudes = start_magnitudes(len(ball.centre))
    add_magnitudes(magnitudes, gone.rows, look.class_costs, look.bias_feature)
    none = RowSums(np.zeros(len(ball.centre)))
    return ball.edit(none, totals.sums, magnitudes, replace(near, numbers=numbers), n_rows)


def update(settings: OneRead, ball: Ball, changed: Changed, found: list[Ball], state: State) -> Solver:
    """Prove what a pass over the changed rows and the ball prove together; `found` gets the ball of all rows.

    The pass is over the changed rows alone, and `passes` counts reads of all rows, so it is not counted.
    """
    look = _make_look(settings, ball.centre, RowNorm(ball.A), find_share(ball))
    totals, magnitudes = yield All(_look_for_changes(settings, look, changed))
    old = start_near(len(ball.centre))
    old.n_rows, old.radius, old.parts = ball.n_rows, ball.near.radius, [ball.near]
    whole = combine_near(look.share, old, totals.new)
    near, weight = gather(whole, look)
    after = ball.edit(totals.new.sums, totals.gone.sums, magnitudes, near, whole.n_rows)
    found.append(after)
    before, state = state, take_magnitudes(state, [after.magnitudes])
    state, figures = prove(settings, state, after.sums, near, weight)
    state = count_pass(state, before, 0)
    figures = {**figures, "new_rows": float(changed.n_new), "deleted_rows": float(changed.n_gone)}
    yield Step(state, state.progress, find_status(state, settings.tol) or "stalled", figures)


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
    near = Scan(partial(start_near, len(look.w)), add_near, partial(combine_near, look.share), (look,))
    return [near, _look_for_magnitudes(settings, look)]


def _look_for_changes(settings: OneRead, look: Look, changed: Changed) -> list[Scan]:
    start, combine = partial(_start_changes, len(look.w)), partial(_combine_changes, look.share)
    return [Scan(start, _add_changes, combine, (look, changed)), _look_for_magnitudes(settings, look)]


def _look_for_magnitudes(settings: OneRead, look: Look) -> Scan:
    shared = np.array(settings.class_costs), settings.bias_feature
    return Scan(partial(start_magnitudes, len(look.w)), add_magnitudes, combine_magnitudes, shared)


def _start_changes(width: int) -> ChangedTotals:
    return ChangedTotals(start_near(width), start_near(width))


def _add_changes(totals: ChangedTotals, rows: Rows, look: Look, changed: Changed) -> None:
    """Add a tile, all of whose rows are new, or are copies of rows that are gone."""
    if rows.start < changed.first_copy:
        add_near(totals.new, rows, look)
        return
    a, b = np.searchsorted(changed.left_out, (rows.start, rows.start + rows.n_rows))
    gone = choose_rows(rows, np.delete(np.arange(rows.n_rows), changed.left_out[a:b] - rows.start))
    add_known(totals.gone, gone, look, find_margins(look, gone, read_labels(look.class_costs, gone.y, None)[0]))


def _combine_changes(share: float, left: ChangedTotals, right: ChangedTotals) -> ChangedTotals:
    new, gone = combine_near(share, left.new, right.new), combine_near(share, left.gone, right.gone)
    return ChangedTotals(new, gone)
