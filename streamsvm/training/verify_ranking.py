"""The objective of a ranking, computed anew in twice the precision, and its lower bound from a dual point.

Where pairs do not leave their queries, P and D are sums over queries, found in one read (numeric.whole_queries). Many
rows of few ranks are the matter of training.verify_few_ranks. The other rankings need the scores of all rows at once.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import partial

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.engines.one_read import answer
from streamsvm.engines.protocol import Engine
from streamsvm.models.model import LinearModel
from streamsvm.numeric.dual_points import (
    Bound,
    DualPoint,
    DualSums,
    bound_by_coefs,
    combine_dual_sums,
    limit_sum,
    start_dual_sums,
)
from streamsvm.numeric.exact_losses import compute_exact_scores
from streamsvm.numeric.exact_pairs import count_pairs_exactly, measure_pairs_exactly, round_sums
from streamsvm.numeric.query_losses import add_exact_losses, combine_exact_losses, pair_rows
from streamsvm.numeric.rounding import UNIT, add_pairs, bound_rounding
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.whole_queries import sum_queries
from streamsvm.numeric.writable import make_writable
from streamsvm.options import require_classes
from streamsvm.problems.few_ranks import has_few_ranks
from streamsvm.problems.ranking import find_pairs
from streamsvm.problems.small_queries import count_task_bytes, find_small_queries
from streamsvm.requests import All, Scan
from streamsvm.training import verify_dual, verify_few_ranks

ALL_BYTES = 48  # for each row, where the scores of all rows are in memory
Found = tuple[float, float, Bound | None]


@dataclass
class QueryDual:
    """Sums over queries of what the multipliers of pairs give.

    rows: of the rows with their coefs; total (2,): of the multipliers, as a sum of two numbers; sizes: of the sizes of
    the terms of all coefs.
    """

    rows: DualSums
    total: F64
    sizes: float = 0.0


def count_bytes(source: RowSource, task: str, points: list[DualPoint]) -> tuple[int, int]:
    """Return the bytes that the driver holds, and the bytes of the totals of one task."""
    if has_few_ranks(source, task):
        return verify_few_ranks.count_bytes(len(require_classes(source)), source.n_features, points)
    queries = find_small_queries(source, task)
    held, totals = (
        verify_dual.count_bytes(points, source.n_rows, source.n_features, queries is None) if points else (0, 0)
    )
    if queries is None:
        return held + ALL_BYTES * source.n_rows, totals
    return held, totals + count_task_bytes(source, queries)


def list_kernels(source: RowSource, task: str) -> tuple[str, ...]:
    """Return the groups of compiled functions that `evaluate` calls."""
    return ("ranking", "ranking-histograms") if has_few_ranks(source, task) else ("ranking",)


def evaluate(model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None) -> Found:
    """Return P of a ranking, how far rounding can have moved it, and D of the first dual point if there is one."""
    half = float(model.coef @ model.coef) / 2
    task, own = str(model.info["task"]), bound_rounding(len(model.coef) + 8, 2 * half)
    if has_few_ranks(engine.source, task):
        find = verify_few_ranks.evaluate
    else:
        find = _evaluate_all if find_small_queries(engine.source, task) is None else _evaluate_queries
    loss, rounding, bound = find(model, engine, pair_cost, points)
    return half + loss, rounding + own, bound


def _evaluate_all(model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None) -> Found:
    pairs, _ = find_pairs(engine.source, str(model.info["task"]))
    tiles = engine.scan(Scan(list, _add_scores, operator.add, (np.atleast_2d(model.coef),)))
    scores = np.concatenate([part for _, part in sorted(tiles, key=lambda tile: tile[0])])
    loss, rounding = measure_pairs_exactly(scores, pairs, pair_cost)
    bound = None if points is None else verify_dual.bound_ranking(points[0], engine, pairs, pair_cost)
    return loss, rounding, bound


def _add_scores(tiles: list[tuple[int, F64]], rows: Rows, W: F64) -> None:
    tiles.append((rows.start, compute_exact_scores(rows.X, W)[0]))


def _evaluate_queries(model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None) -> Found:
    n_rows, d = engine.source.n_rows, engine.source.n_features
    ends = int(engine.source.chunk_starts[0]), int(engine.source.chunk_starts[-1])
    measure = partial(add_exact_losses, np.atleast_2d(model.coef), np.ones(1))
    scans = [Scan(*sum_queries(ends, partial(np.zeros, (1, 4)), measure, combine_exact_losses))]
    for point in (points or [])[:1]:
        take = partial(_add_dual, point, limit_sum(pair_cost * point.multipliers, pair_cost))
        scans.append(Scan(*sum_queries(ends, partial(_start_dual, d), take, _combine_dual)))
    (exact, *found) = answer(engine, All(scans))
    loss, rest, size, _ = exact.sums[0].tolist()
    bound = _bound(found[0].sums, n_rows, len(points[0].multipliers)) if points else None
    return *round_sums(loss + rest, size, n_rows, pair_cost), bound


def _start_dual(n_features: int) -> QueryDual:
    return QueryDual(start_dual_sums(n_features), np.zeros(2))


def _add_dual(point: DualPoint, shares: F64, sums: QueryDual, rows: Rows, starts: I64) -> None:
    """Add the multipliers of the pairs of whole queries: those of each cut follow from the scores where it was made."""
    counts = verify_dual.PairCounts(np.zeros((rows.n_rows, 2)), np.zeros(rows.n_rows))
    pairs, vectors = pair_rows(rows, starts), make_writable(point.vectors)
    for share, ends, step in zip(shares.tolist(), point.ends, point.steps.tolist(), strict=True):
        start, end = compute_scores(rows.X, vectors[ends]).T
        counts.add(share, *count_pairs_exactly(start + step * (end - start), pairs))
    verify_dual.add_coefs(sums.rows, rows, counts.coefs[:, 0].copy(), counts.coefs[:, 1].copy(), counts.sizes)
    sums.total = _add_two(sums.total, np.array([math.fsum(counts.totals), 0.0]))
    sums.sizes += math.fsum(counts.sizes.tolist())


def _combine_dual(left: QueryDual, right: QueryDual) -> QueryDual:
    rows = combine_dual_sums(left.rows, right.rows)
    return QueryDual(rows, _add_two(left.total, right.total), left.sizes + right.sizes)


def _add_two(left: F64, right: F64) -> F64:
    total, rest = add_pairs(left[:1], left[1:], right[:1], right[1:])
    return np.concatenate((total, rest))


def _bound(sums: QueryDual, n_rows: int, n_cuts: int) -> Bound:
    """Return the lower bound. The parts of the total are rounded twice, and so is their sum."""
    error = bound_rounding(8.0 * (n_rows + n_cuts + 64.0), 1.0) * UNIT
    return bound_by_coefs(sums.rows, float(np.sum(sums.total)), 4 * UNIT * sums.sizes, error)
