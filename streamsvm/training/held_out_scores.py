"""Scores the rows that cross-validation holds out: one pass measures the models of all folds and settings."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.engines.protocol import Engine
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64, Rows, take_rows
from streamsvm.problems.problem import Problem, read_truth
from streamsvm.requests import Scan
from streamsvm.training.folds import Folds


def score_held_out(
    engine: Engine, source: RowSource, models: list[Model], fold: Folds, folds: int, problem: Problem
) -> F64:
    """Return the measure of each model on the rows that it has not seen, (n_models,), in one pass."""
    if problem.measure_tile is not None:
        add = partial(_measure_tile, models, folds, source)
        sums, sizes = engine.scan(Scan(partial(np.zeros, (2, len(models))), add, np.add, by_row=(fold,)))
        measures: F64 = np.divide(sums, sizes, out=np.zeros(len(models)), where=sizes > 0)
        return measures
    tiles = engine.scan(Scan(list, partial(_note_scores, models, folds, source), operator.add, by_row=(fold,)))
    scores = np.concatenate([part for _, part in sorted(tiles, key=lambda tile: tile[0])])
    labels, qid = source.column("y"), source.column("qid") if problem.reads_queries else None
    assert labels is not None
    found = []
    for k in range(len(models)):
        mine = fold == k % folds
        found.append(problem.measure_scores(scores[mine, k // folds], labels[mine], None if qid is None else qid[mine]))
    return np.array(found)


def _list_scores(models: list[Model], folds: int, source: RowSource, rows: Rows, fold: Folds) -> Any:
    """Yield the number of each model, the places of its held-out rows in the tile, and its scores of them."""
    for k in range(folds):
        mine = np.flatnonzero(fold == k)
        if len(mine) == 0:
            continue
        X = take_rows(rows.X, mine)
        for at in range(k, len(models), folds):
            scorer = models[at].scorer(source.n_features, source.scaling, source.is_sparse, source.features)
            yield at, mine, scorer(X)


def _measure_tile(models: list[Model], folds: int, source: RowSource, totals: F64, rows: Rows, fold: Folds) -> None:
    measure_tile = models[0].problem.measure_tile
    assert measure_tile is not None
    numbers = np.empty(0) if source.classes is None else models[0].problem.code_labels(source.classes, source.classes)
    truth = read_truth(rows, numbers)
    for at, mine, scores in _list_scores(models, folds, source, rows, fold):
        totals[:, at] += measure_tile(scores, truth[mine])


def _note_scores(models: list[Model], folds: int, source: RowSource, tiles: list[Any], rows: Rows, fold: Folds) -> None:
    scores = np.empty((rows.n_rows, len(models) // folds))
    for at, mine, found in _list_scores(models, folds, source, rows, fold):
        scores[mine, at // folds] = found
    tiles.append((rows.start, scores))
