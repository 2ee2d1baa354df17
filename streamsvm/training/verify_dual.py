"""The lower bound D, computed anew from the dual points that a run has kept (numeric.dual_points).

The solver that made the points is not trusted. The multipliers of the rows are formed as the rows are read, either from
shares or from the cuts; with cuts no vector of all rows is needed. Corrections of the multipliers of some rows are
limited to what the costs allow, and are added in twice the precision. The cuts of a ranking count pairs:

    coefs_i = K sum_t lambda_t (up_i - down_i),   v = sum_i coefs_i x_i,   D = K sum_t lambda_t sum_i up_i - 1/2 |v|^2

Here K is the cost of a pair, and up_i and down_i are the counts of numeric.exact_pairs at the scores of cut t. They
need the scores of all rows, so the rows are read once for each batch of cuts whose scores fit into memory together,
unless pairs do not leave their queries (training.verify_ranking).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from streamsvm.data import label_view, view
from streamsvm.engines.protocol import Engine
from streamsvm.numeric.dual_points import (
    Bound,
    DualPoint,
    DualSums,
    add_dual_sums,
    bound_by_coefs,
    bound_by_shares,
    combine_dual_sums,
    find_active,
    limit_corrections,
    limit_sum,
    start_dual_sums,
)
from streamsvm.numeric.exact_pairs import count_pairs_exactly
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.own_shares import put_own_shares
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rounding import UNIT, add_pairs, bound_rounding, multiply_two
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I64, Rows, take_rows
from streamsvm.requests import Scan

SLICE_ROWS = 1024  # rows whose scores by all weight vectors are held at once
SCORE_BYTES = 64 << 20  # memory for a ranking's scores of all rows; two weight vectors are scored at once in any case
# Vectors of 8 bytes a row that counting pairs takes: ranks, weights, two scores, order, up, down, coefs, sizes.
ROW_VECTORS = 24


@dataclass(frozen=True)
class Problem:
    """A two-class problem: its place among the problems of one class against the rest, and its dual point.

    class_costs (2,) are the costs of the rest and of the class. bias_feature is the value of the constant feature, or
    None for a free bias.
    """

    place: int
    n_problems: int
    point: DualPoint
    class_costs: F64
    bias_feature: float | None


def count_bytes(points: Sequence[DualPoint], n_rows: int, n_features: int, is_ranking: bool) -> tuple[int, int]:
    """Return the bytes that the points take in the driver, and the bytes of the totals of one task."""
    held = 3 * sum(point.nbytes for point in points)
    sums = 8 * 6 * (n_features + 1) * len(points)
    sums += 8 * n_features * min(SLICE_ROWS, max((len(point.rows) for point in points), default=0))
    if is_ranking:
        return held + 8 * ROW_VECTORS * n_rows + 3 * max(SCORE_BYTES, 16 * n_rows), sums
    cuts = max((len(point.steps) + len(point.vectors) for point in points), default=0)
    return held, sums + 8 * 6 * SLICE_ROWS * (cuts + 1)


def make_scan(problems: Sequence[Problem], n_features: int) -> Scan:
    """Return the pass that sums up the dual points of all problems."""
    by_row = [problem.point.share for problem in problems if len(problem.point.share)]
    bare = [replace(problem, point=replace(problem.point, share=problem.point.share[:0])) for problem in problems]
    given = [bool(len(problem.point.share)) for problem in problems]
    add = partial(_add_problems, bare, given)
    return Scan(partial(_start, len(problems), n_features), add, _combine, (), tuple(by_row))


def sum_bounds(problems: Sequence[Problem], totals: Sequence[DualSums]) -> Bound:
    """Return the lower bound of the sum of the problems' objectives, which is the sum of their lower bounds."""
    found = [
        bound_by_shares(sums, one.bias_feature, one.point.most_multiple)
        for one, sums in zip(problems, totals, strict=True)
    ]
    return Bound(sum(one.value for one in found), sum(one.rounding for one in found))


def _start(n_problems: int, n_features: int) -> list[DualSums]:
    return [start_dual_sums(n_features) for _ in range(n_problems)]


def _combine(left: list[DualSums], right: list[DualSums]) -> list[DualSums]:
    return [combine_dual_sums(a, b) for a, b in zip(left, right, strict=True)]


def _add_problems(
    problems: Sequence[Problem], given: Sequence[bool], totals: list[DualSums], rows: Rows, *shares: F64
) -> None:
    columns = iter(shares)
    for problem, total, is_given in zip(problems, totals, given, strict=True):
        own = single_out(rows, problem.place, problem.n_problems)
        share = next(columns) if is_given else None
        for at in range(0, rows.n_rows, SLICE_ROWS):
            part = slice(at, min(at + SLICE_ROWS, rows.n_rows))
            tile = own.slice(part)
            y, costs = read_labels(problem.class_costs, tile.y, tile.sample_weight)
            found = _find_shares(problem, tile, y) if share is None else share[part]
            add_dual_sums(total, tile, costs * found, costs * found)
            _add_corrections(total, problem.point, tile, costs, costs * found)


def _add_corrections(sums: DualSums, point: DualPoint, rows: Rows, costs: F64, alpha: F64) -> None:
    """Add the corrections of the multipliers alpha (n,) of these rows, as far as the costs allow them."""
    start, stop = np.searchsorted(point.rows, [rows.start, rows.start + rows.n_rows])
    if start == stop:
        return
    assert rows.y is not None
    at = point.rows[start:stop] - rows.start
    corrected = Rows(rows.start, take_rows(rows.X, at), rows.y[at])
    for change in limit_corrections(alpha[at], point.most * costs[at], point.corrections[start:stop]):
        add_dual_sums(sums, corrected, change, np.abs(change))


def single_out(rows: Rows, code: int, n_problems: int) -> Rows:
    """Return the rows with label 1 for the class of this code and 0 for the rest; unchanged if there is one problem."""
    if rows.label_sets is not None:
        return label_view.single_out_label(rows, code=code)
    return rows if n_problems == 1 else view.single_out(rows, code=code)


def _find_shares(problem: Problem, rows: Rows, y: F64) -> F64:
    """Return the shares c_i (n,) of rows, which follow from the cuts. None is above 1, however its sum is rounded."""
    point = problem.point
    if not len(point.steps):
        return np.zeros(rows.n_rows)
    scores, biases = compute_scores(rows.X, point.vectors), point.vectors[:, -1] * (problem.bias_feature or 0.0)
    active = find_active(scores, biases, y, point.ends, point.steps)
    share: F64 = put_own_shares(active, rows.start, point.own) @ point.multipliers
    return np.minimum(share, 1.0, out=share)


def bound_ranking(point: DualPoint, engine: Engine, pairs: Pairs, pair_cost: float) -> Bound:
    """Return the lower bound that the cuts of a ranking prove; pair_cost is K."""
    n_rows, shares = engine.source.n_rows, limit_sum(pair_cost * point.multipliers, pair_cost)
    counts = PairCounts(np.zeros((n_rows, 2)), np.zeros(n_rows))
    for cuts in _split_cuts(point.ends, n_rows):
        places, ends = np.unique(point.ends[cuts], return_inverse=True)
        scores = _score_rows(engine, point.vectors[places])
        for cut, (start, end) in zip(cuts.tolist(), ends.reshape(-1, 2).tolist(), strict=True):
            at_cut = scores[start] + point.steps[cut] * (scores[end] - scores[start])
            counts.add(shares[cut], *count_pairs_exactly(at_cut, pairs))
    start_sums = partial(start_dual_sums, engine.source.n_features)
    by_row = (counts.coefs[:, 0].copy(), counts.coefs[:, 1].copy(), counts.sizes)
    sums = engine.scan(Scan(start_sums, add_coefs, combine_dual_sums, (), by_row))
    error = bound_rounding(8.0 * (n_rows + len(shares) + 64.0), 1.0) * UNIT
    return bound_by_coefs(sums, math.fsum(counts.totals), 2 * UNIT * math.fsum(counts.sizes.tolist()), error)


@dataclass
class PairCounts:
    """Sums over the cuts of a ranking.

    coefs (n, 2) are the coefs_i as unevaluated sums of two numbers, sizes (n,) the sums of their terms' magnitudes, and
    totals the parts of K sum_t lambda_t sum_i up_i.
    """

    coefs: F64
    sizes: F64
    totals: list[float] = field(default_factory=list)

    def add(self, share: float, up: F64, down: F64) -> None:
        """Add `share` times the counts of a cut; up and down are (n, 2), sums of two numbers for each row."""
        for counts, sign in ((up, 1.0), (down, -1.0)):
            product, lost = multiply_two(counts[:, 0], sign * share)
            added = product, lost + counts[:, 1] * (sign * share)
            self.coefs = np.stack(add_pairs(self.coefs[:, 0], self.coefs[:, 1], *added), axis=1)
            self.sizes += np.abs(product)
            if sign > 0.0:
                self.totals += [math.fsum(part.tolist()) for part in added]


def add_coefs(sums: DualSums, rows: Rows, coefs: F64, rests: F64, sizes: F64) -> None:
    """Add both numbers of each coefficient. The second is small, but counts where the sums of the first cancel."""
    alike = replace(rows, y=np.zeros(rows.n_rows, np.int32))
    add_dual_sums(sums, alike, coefs, sizes)
    add_dual_sums(sums, alike, rests, np.abs(rests))


def _split_cuts(ends: I64, n_rows: int) -> list[I64]:
    """Return the cuts in batches; the scores of all rows at the cuts of a batch fit into SCORE_BYTES together."""
    most, batches = max(1, SCORE_BYTES // (16 * n_rows)), np.arange(len(ends))
    return [batches[at : at + most] for at in range(0, len(ends), most)]


def _score_rows(engine: Engine, W: F64) -> F64:
    """Return the scores W X' of all rows, (k, n), in one pass."""
    scores = np.empty((len(W), engine.source.n_rows))
    for start, part in engine.scan(Scan(list, _add_scores, operator.add, (W,))):
        scores[:, start : start + part.shape[1]] = part
    return scores


def _add_scores(tiles: list[tuple[int, F64]], rows: Rows, W: F64) -> None:
    tiles.append((rows.start, np.ascontiguousarray(compute_scores(rows.X, W).T)))
