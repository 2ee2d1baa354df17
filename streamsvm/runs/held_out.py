"""Held-out rows: the folds of a cross-validation, and rows on which a training is measured after each step.

If the rows of a dataset form groups (the cells of a donor, the clicks of a user), a fold consists of whole groups. If
the groups are ordered, for example by time, a fold can follow all rows on which its fit is trained.

An `EvalSet` uses the default measure of `tune` (`measure_scores` in problems.problem): the fraction of correctly
classified rows, F1 for label sets, the negative mean absolute error, or the fraction of correctly ordered pairs.
Greater is better. Measuring reads no training rows, except the support vectors of a kernel model.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heapreplace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import RowSource, plan_groups, read_codes
from streamsvm.data.tables.checks import LEAST_GROUP
from streamsvm.engines.engine import Engine
from streamsvm.models.evaluate import MEASURED_BYTES, find_probabilities
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, take_rows
from streamsvm.options import TrainOptions, require_classes
from streamsvm.passes import NOTHING, MemoryNeed, Scan
from streamsvm.problems.problem import NEVER, Folds, Labels, Problem, Scoring, join_scored, read_truth
from streamsvm.problems.registry import find_problem
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.machine import default_threads

MOST_FOLDS = 254


def draw_folds(source: RowSource, options: TrainOptions, folds: int, forward: bool = False) -> Folds:
    """Return the fold that holds out each row, (n,), drawn with the seed of the options.

    Each class is split evenly; rankings are split by whole queries, and grouped rows by whole groups, into folds of
    about equal size. forward: cut the ordered groups into folds + 1 parts; the first part is never held out (its rows
    are marked NEVER); see `keep`.

    Raises
    ------
    InputError
        If the rows cannot be split in this way, or if one fold would hold out all rows of a class.
    """
    if not 2 <= folds <= MOST_FOLDS:
        raise InputError(f"folds is {folds}; it must be from 2 to {MOST_FOLDS}")
    problem = find_problem(options.task)
    if source.classes is None and problem.has_classes and not problem.needs_labels:
        raise InputError(f"{source.name}: models are compared by the labels of held-out rows, and there are no labels")
    if problem.has_classes:
        require_classes(source)
    groups = source.column("groups")
    if groups is None:
        if forward:
            raise InputError(f"{source.name}: folds in order need groups, which define the order, and there are none")
        return problem.draw_folds(source, folds, np.random.default_rng(options.seed))
    if problem.reads_queries and source.column("qid") is not None:
        raise InputError(f"{source.name}: a ranking holds out whole queries instead of groups; omit the groups")
    fold = _cut_in_order(source.name, groups, folds) if forward else _share_out(source.name, groups, folds, options)
    if problem.has_classes and not problem.has_label_sets:  # a label may have no rows
        _require_every_class(source, fold, folds, forward)
    return fold


def keep(fold: Folds, k: int, forward: bool) -> npt.NDArray[np.bool_]:
    """Return the mask of the training rows of fit k: all other folds or, with `forward`, all earlier parts."""
    return np.asarray((fold == NEVER) | (fold < k) if forward else fold != k)


def _share_out(name: str, groups: I64, folds: int, options: TrainOptions) -> Folds:
    """Assign each group, largest first, to the fold with the fewest rows; the seed orders groups of equal size."""
    sizes, place = _count_groups(name, groups, folds)
    order = np.random.default_rng(options.seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    filled, chosen = [(0, k) for k in range(folds)], np.empty(len(sizes), np.uint8)
    heapify(filled)
    for group, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        n_rows, k = filled[0]
        chosen[group] = k
        heapreplace(filled, (n_rows + size, k))
    return chosen[place]


def _cut_in_order(name: str, groups: I64, folds: int) -> Folds:
    """Cut the ordered groups into folds + 1 parts with about equal numbers of rows."""
    if groups.min() < LEAST_GROUP:
        raise InputError(f"{name}: its groups are strings, which have no order; folds in order need numbers or times")
    sizes, place = _count_groups(name, groups, folds + 1)
    middles = np.cumsum(sizes) - sizes / 2
    part = (middles * (folds + 1) / len(groups)).astype(np.int64)
    if len(np.unique(part)) <= folds:
        raise InputError(f"{name}: its groups are too large to be cut into {folds + 1} parts of about equal size")
    return np.where(part == 0, NEVER, part - 1).astype(np.uint8)[place]


def _count_groups(name: str, groups: I64, parts: int) -> tuple[I64, npt.NDArray[np.intp]]:
    """Return the number of rows of each group, in the order of the groups, and the position of each row's group."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < parts:
        raise InputError(
            f"{name}: {say_count(len(sizes), 'group')} cannot be split into {parts} parts: choose fewer --folds"
        )
    return sizes.astype(np.int64), place


def _require_every_class(source: RowSource, fold: Folds, folds: int, forward: bool) -> None:
    """Raise InputError if a fit would be trained without one of the classes."""
    y, classes = read_codes(source), require_classes(source)
    for k in range(folds):
        missing = np.flatnonzero(np.bincount(y[keep(fold, k, forward)], minlength=len(classes)) == 0)
        if len(missing):
            label = classes[missing[0]]
            raise InputError(
                f"{source.name}: fold {k + 1} would be trained without a row of the class {label}, since too few "
                "groups contain it; choose another number of folds, or folds without groups"
            )


def score_held_out(
    engine: Engine, source: RowSource, models: Sequence[Model], fold: Folds, folds: int, scoring: Scoring
) -> F64:
    """Return the measure of each model on its held-out rows, (n_models,), in one pass.

    Raises InputError if the measure is undefined for the held-out rows of a fold.
    """
    if scoring.add is not None:
        start, add = partial(_start_sums, len(models)), partial(_add_sums, models, folds, source, scoring)
        sums = engine.scan(Scan(start, add, partial(_combine_sums, scoring), by_row=(fold,)))
        found = [scoring.finish(each).get(scoring.names[0]) for each in sums]
    else:
        tiles = engine.scan(Scan(list, partial(_add_scores, models, folds, source), operator.add, by_row=(fold,)))
        (scores,) = join_tiles(tiles)
        found = [
            each
            for column in scores.T
            for each in measure_folds(source, models[0].problem, fold, folds, scoring, column)
        ]
    require_defined(source, scoring, found, folds)
    return np.array(found, np.float64)


def measure_folds(
    source: RowSource, problem: Problem, fold: Folds, folds: int, scoring: Scoring, scores: F64 | None = None
) -> list[float | None]:
    """Return the measure of the scores of each fold's rows, (n,); by default, the scores are the labels themselves."""
    codes, qid = source.column("y"), source.column("qid") if problem.reads_queries else None
    assert codes is not None
    assert source.classes is not None
    truth, found = problem.code_labels(source.classes, source.classes)[codes], []
    for k in range(folds):
        mine = fold == k
        own = (truth if scores is None else scores)[mine].astype(np.float64)
        found.append(scoring.measure(own, truth[mine], None if qid is None else qid[mine]))
    return found


def need_for_scores(source: RowSource, n_settings: int, folds: int, scoring: Scoring) -> MemoryNeed:
    """Return the memory of `score_held_out`: with sums nothing to speak of, else a score for each row and setting."""
    if scoring.add is not None:
        return NOTHING
    scores, largest = SCORE_BYTES * n_settings, max(map(len, plan_groups(source)))
    of_group = scores * int(np.max(source.chunk_starts[largest:] - source.chunk_starts[:-largest]))
    driver = source.n_rows * (COPIES * scores + ROW_BYTES + MEASURED_BYTES // folds)
    return MemoryNeed(driver, 0, of_group, 0, gathered_bytes=source.n_rows * scores)


def require_defined(source: RowSource, scoring: Scoring, found: Sequence[float | None], folds: int) -> None:
    """Raise InputError if a measure of held-out rows is undefined."""
    if None in found:
        raise InputError(
            f"{source.name}: scoring {scoring.names[0]!r} is undefined for the rows that fold "
            f"{found.index(None) % folds + 1} holds out, for example because their labels are all equal: choose other "
            "folds, or another scoring"
        )


def list_scores(
    models: Sequence[Model], folds: int, source: RowSource, X: Matrix, fold: Folds
) -> Iterator[tuple[int, npt.NDArray[np.intp], F64]]:
    """Yield for each model its number, the positions of its held-out rows in X, and the scores of these rows.

    models: the models of the first setting on each fold, then the models of the second setting, and so on.
    """
    for k in range(folds):
        mine = np.flatnonzero(fold == k)
        if len(mine) == 0:
            continue
        rows = take_rows(X, mine)
        for at in range(k, len(models), folds):
            scorer = models[at].scorer(source.n_features, source.scaling, source.is_sparse, source.features)
            yield at, mine, scorer(rows)


def join_tiles(tiles: Iterable[tuple[int, tuple[np.ndarray, ...]]]) -> list[np.ndarray]:
    """Concatenate the arrays of tiles in row order. tiles: pairs of a tile's first row and its arrays."""
    parts = [part for _, part in sorted(tiles, key=lambda tile: tile[0])]
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def _start_sums(n_models: int) -> list[Any]:
    return [None] * n_models


def _add_sums(
    models: Sequence[Model],
    folds: int,
    source: RowSource,
    scoring: Scoring,
    totals: list[Any],
    rows: Rows,
    fold: Folds,
) -> None:
    assert scoring.add is not None
    numbers = np.empty(0) if source.classes is None else models[0].problem.code_labels(source.classes, source.classes)
    truth = read_truth(rows, numbers)
    for at, mine, scores in list_scores(models, folds, source, rows.X, fold):
        found = find_probabilities(models[at], scores) if scoring.of_probabilities else scores
        totals[at] = _join(scoring, totals[at], scoring.add(found, truth[mine]))


def _combine_sums(scoring: Scoring, left: list[Any], right: list[Any]) -> list[Any]:
    return [_join(scoring, *pair) for pair in zip(left, right, strict=True)]


def _join(scoring: Scoring, left: Any, right: Any) -> Any:
    """Return the sum of two sums, each of which is None if it has no rows."""
    return right if left is None else left if right is None else scoring.combine(left, right)


def _add_scores(
    models: Sequence[Model], folds: int, source: RowSource, tiles: list[Any], rows: Rows, fold: Folds
) -> None:
    scores = np.empty((rows.n_rows, len(models) // folds))
    for at, mine, found in list_scores(models, folds, source, rows.X, fold):
        scores[mine, at // folds] = found
    tiles.append((rows.start, (scores,)))


ROW_BYTES = 12  # the label of a row, and its query id if any
SCORE_BYTES = 8
COPIES = 2  # copies of the scores held at once while the scores of the chunks are joined


@dataclass(frozen=True)
class EvalSet:
    """The held-out rows, and the patience: training stops after this many steps without improvement (None: never).

    given_name: the name of the rows in messages, if it is not that of the source.
    """

    source: RowSource
    patience: int | None = None
    given_name: str | None = None

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience is {self.patience}; it must be at least 1 step")

    def check(self, source: RowSource, problem: Problem) -> None:
        """Raise InputError unless the held-out rows have labels and the features of the training rows."""
        name = self.given_name or self.source.name
        if None not in (source.encoding, self.source.encoding) and source.encoding != self.source.encoding:
            raise InputError(
                f"{name}: its columns are not encoded like those of the training rows; ingest it with "
                "--like and the training dataset (like=... in Python)"
            )
        if source.features is None and self.source.n_features != source.n_features:
            raise InputError(
                f"{name}: its rows have {self.source.n_features} features, but the training rows have "
                f"{source.n_features}"
            )
        if problem.needs_labels and self.source.classes is None and not self.source.has_targets:
            raise InputError(f"{name}: has no labels, which are needed to measure the model")

    def measure(self, model: Model) -> float:
        """Return the measure of a model on the rows. Raises InputError if the model cannot score them."""
        from streamsvm.models.score import score  # loads Zarr and the readers of files

        found = join_scored(score(model, self.source, need_labels=model.problem.needs_labels))
        if found.truth is None:  # training on one class needs no labels, but the measure does
            raise InputError(f"{self.source.name}: has no labels, which are needed to measure the model")
        return model.problem.measure_scores(found.scores, found.truth, found.qid)

    def count_bytes(self, problem: Problem, classes: Labels | None) -> int:
        """Return the bytes of memory for the scores of the rows and for the chunks read to compute them."""
        per_row = ROW_BYTES + SCORE_BYTES * problem.count_scores(0 if classes is None else len(classes))
        chunks = (default_threads() + 1) * max(map(self.source.chunk_bytes, range(self.source.n_chunks)))
        return COPIES * self.source.n_rows * per_row + chunks

    def has_waited(self, measures: Sequence[float]) -> bool:
        """Return whether the measure has not risen for `patience` steps."""
        if self.patience is None:
            return False
        best = max(range(len(measures)), key=lambda k: (measures[k], -k), default=0)
        return len(measures) - 1 - best >= self.patience

    def explain(self, measures: Sequence[float]) -> str:
        """Return why training was stopped."""
        steps = say_count(self.patience or 0, "step")
        return f"the measure on the rows of --eval has not risen for {steps}; the best was {max(measures):.6g}"
