"""The objective of a ranking, computed anew in twice the precision, and its lower bound from a dual point."""

from __future__ import annotations

import operator

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.models.model import LinearModel
from streamsvm.numeric.dual_points import Bound, DualPoint
from streamsvm.numeric.exact_losses import compute_exact_scores
from streamsvm.numeric.exact_pairs import measure_pairs_exactly
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows
from streamsvm.problems.ranking import find_pairs
from streamsvm.requests import Scan
from streamsvm.training import verify_dual


def evaluate(
    model: LinearModel, engine: Engine, pair_cost: float, points: list[DualPoint] | None
) -> tuple[float, float, Bound | None]:
    """Return P of a ranking, how far rounding can have moved it, and D of the first dual point if there is one."""
    pairs, _ = find_pairs(engine.source, str(model.info["task"]))
    tiles = engine.scan(Scan(list, _add_scores, operator.add, (np.atleast_2d(model.coef),)))
    scores = np.concatenate([part for _, part in sorted(tiles, key=lambda tile: tile[0])])
    loss, rounding = measure_pairs_exactly(scores, pairs, pair_cost)
    half = float(model.coef @ model.coef) / 2
    bound = None if points is None else verify_dual.bound_ranking(points[0], engine, pairs, pair_cost)
    return half + loss, rounding + bound_rounding(len(model.coef) + 8, 2 * half), bound


def _add_scores(tiles: list[tuple[int, F64]], rows: Rows, W: F64) -> None:
    tiles.append((rows.start, compute_exact_scores(rows.X, W)[0]))
