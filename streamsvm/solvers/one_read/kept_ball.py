"""A ball kept after training, in which P of the training rows is known without reading them again.

A pass over n rows at a point w_0 gives the near rows, and the sums c and g over the far rows (one_read.solver). While
|w - w_0| is less than the radius r, no far row changes sides, so

    P(w) = 1/2 |w|^2 + c - g.w + sum_near C_i max(0, 1 - m_i) + the loss of rows added since

The ball keeps the near rows, c, g and r. If rows are added, a pass over the new rows at the same w_0, in the same norm,
gives their c, g and near rows. The two together equal the result of a pass over all rows, with the smaller of the two
radii. So P and a lower bound over all rows are proved as in one_read.solver: the lower bound always, and P if the new
optimum lies in the ball.

If rows are deleted, their terms are subtracted from c and g, and deleted near rows are dropped. A pass over the deleted
rows computes these terms. This pass finds a deleted far row on the same side of the margin at w_0 as before, despite
the rounding of its score, because its distance was rounded down. The side of a near row is stored with it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.row_norms import RowNorm, make_norm
from streamsvm.numeric.rows import F64, I64, Flags, Rows, draw_sample
from streamsvm.passes import All, Request, Requests, Scan, Step, Take
from streamsvm.solvers.cutting_plane import cuts, near_rows
from streamsvm.solvers.cutting_plane.cuts import Magnitudes, RowSums
from streamsvm.solvers.one_read.solver import prove
from streamsvm.solvers.one_read.state import GROUP_SHARE, OneRead, State, make_look, start_state


@dataclass(frozen=True)
class Ball:
    """The result of a pass over all rows at a centre.

    centre (width,): w_0. A (width, width): the matrix of the norm. sums: sums over the rows with m_i < 1 at the centre.
    near: the kept rows, with the radius. n_rows: the number of all rows. magnitudes: the magnitudes of all rows ever
    added to the sums or subtracted from them, which bound the rounding of the sums.
    """

    centre: F64
    A: F64
    sums: RowSums
    near: near_rows.Part
    n_rows: int
    magnitudes: Magnitudes

    def edit(self, added: RowSums, removed: RowSums, magnitudes: Magnitudes, near: near_rows.Part, n_rows: int) -> Ball:
        """Return the ball after rows were added and removed.

        added, removed: the sums over these rows. magnitudes: an upper bound on their magnitudes. near: the near rows of
        the new ball. n_rows: its number of rows.

        Only this method changes the sums of a ball, so the magnitudes account for every change.
        """
        both = self.magnitudes + magnitudes
        both = replace(both, additions=both.additions + 1)  # one addition, one subtraction
        sums = self.sums - removed + added
        return replace(self, sums=sums, near=near, n_rows=n_rows, magnitudes=both)


Finder = Generator[Request, Any, Ball]


def find_ball(settings: OneRead, n_rows: int, is_shuffled: bool, centre: F64) -> Finder:
    """Compute the ball at a point by a pass over all rows. The norm comes from a sample."""
    taken = yield Take(draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled))
    norm = make_norm(taken, settings.bias_feature)
    del taken
    look = make_look(settings, centre, norm, GROUP_SHARE * settings.resident_rows / n_rows)
    totals, magnitudes = yield _ask(look, near_rows.add_near)
    near, _ = near_rows.gather(totals, look)
    return Ball(centre, norm.A, totals.sums, near, n_rows, magnitudes)


def start_update(settings: OneRead, ball: Ball, n_new: int) -> State:
    """Return the state of an update before the new rows are read."""
    state = start_state(settings, ball.n_rows + n_new, len(ball.centre) - 1)
    return replace(state, centre=ball.centre, A=ball.A)


def count_new(ball: Ball, n_new: int, n_chunks: int) -> int:
    """Return the largest number of new rows that a pass can keep; each group of chunks keeps at least one row."""
    return min(n_new, int(find_share(ball) * n_new) + n_chunks)


def find_share(ball: Ball) -> float:
    """Return the largest share of a group's rows that a pass over new rows keeps."""
    return min(1.0, GROUP_SHARE * len(ball.near.numbers) / ball.n_rows)


@dataclass(frozen=True)
class Changed:
    """The changed rows that a pass reads: new rows, then copies of deleted rows.

    n_new, n_gone: the number of new rows, and of rows of the ball that were deleted. first_copy: the number of the
    first copy of a deleted row. left_out: ascending numbers of copies to skip, because their rows were near rows or did
    not belong to the ball.
    """

    n_new: int
    n_gone: int
    first_copy: int
    left_out: I64


def leave_out(settings: OneRead, ball: Ball, left: Flags, numbers: I64, n_rows: int) -> Ball:
    """Return a ball of n_rows rows without some near rows.

    left (n,): whether each near row stays. numbers: the new numbers of the near rows that stay. The terms of the
    deleted near rows are subtracted from the sums. `update` computes the terms of deleted far rows.
    """
    near, gone = (near_rows.choose_part(ball.near, np.flatnonzero(which)) for which in (left, ~left))
    width = len(ball.centre)
    look, removed = make_look(settings, ball.centre, RowNorm(ball.A), 1.0), RowSums(np.zeros(width))
    if len(gone.numbers):
        near_rows.add_known(removed, gone.rows, look, gone.margins)
    magnitudes = cuts.start_magnitudes(width)
    cuts.add_magnitudes(magnitudes, gone.rows, look.class_costs, look.bias_feature)
    return ball.edit(RowSums(np.zeros(width)), removed, magnitudes, replace(near, numbers=numbers), n_rows)


def update(settings: OneRead, ball: Ball, changed: Changed, found: list[Ball], state: State) -> Requests:
    """Prove P and D from the ball and a pass over the changed rows; append the ball of all rows to `found`.

    The pass reads only the changed rows. It is not counted in `passes`, which counts reads of all rows.
    """
    look = make_look(settings, ball.centre, RowNorm(ball.A), find_share(ball))
    totals, magnitudes = yield _ask(look, _add_changes, changed)
    old = near_rows.start_near(len(ball.centre))
    old.n_rows, old.radius, old.parts = ball.n_rows, ball.near.radius, [ball.near]
    whole = near_rows.combine_near(look.share, old, totals)
    near, weight = near_rows.gather(whole, look)
    after = ball.edit(totals.sums, totals.others, magnitudes, near, whole.n_rows)
    found.append(after)
    before, state = state, cuts.take_magnitudes(state, [after.magnitudes])
    state, figures = prove(settings, state, after.sums, near, weight)
    state = cuts.count_pass(state, before, 0)
    figures = {**figures, "new_rows": float(changed.n_new), "deleted_rows": float(changed.n_gone)}
    yield Step(state, state.progress, cuts.find_status(state, settings.tol) or "stalled", figures)


def _ask(look: near_rows.Look, add: Callable[..., None], *others: Any) -> All:
    """Return the scans for the near rows and sums, accumulated by `add`, and for the magnitudes of the same rows."""
    start, costs = partial(cuts.start_magnitudes, len(look.w)), (look.class_costs, look.bias_feature)
    magnitudes = Scan(start, cuts.add_magnitudes, operator.add, costs)
    return All([near_rows.scan_near(look, add, others), magnitudes])


def _add_changes(totals: near_rows.NearTotals, rows: Rows, look: near_rows.Look, changed: Changed) -> None:
    """Add a tile whose rows are either all new, or all copies of deleted rows."""
    if rows.start < changed.first_copy:
        near_rows.add_near(totals, rows, look)
        return
    a, b = np.searchsorted(changed.left_out, (rows.start, rows.start + rows.n_rows))
    gone = near_rows.choose_rows(rows, np.delete(np.arange(rows.n_rows), changed.left_out[a:b] - rows.start))
    margins = near_rows.find_margins(look, gone, read_labels(look.class_costs, gone.y, None)[0])
    near_rows.add_known(totals.others, gone, look, margins)
