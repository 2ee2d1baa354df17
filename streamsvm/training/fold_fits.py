"""The fits of folds beside a training, and what is fitted to the scores of the rows that they have not seen.

For each fold a model is trained on the rows of all others. One more read scores the rows of each fold by its model. Of
more than MOST_SCORES scores a regular part of the rows is taken.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.data.view import Kept
from streamsvm.engines.opening import Opened
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.locks import Lock
from streamsvm.methods.fit import Fit
from streamsvm.methods.held_out import hold_out
from streamsvm.models.model import Model
from streamsvm.models.reliability import Reliability
from streamsvm.numeric.calibration import CALIBRATIONS, Calibration, Truth
from streamsvm.numeric.label_sets import unpack_sets
from streamsvm.numeric.rows import F64, Rows, take_rows
from streamsvm.options import TrainOptions, require_classes
from streamsvm.problems.registry import find_problem
from streamsvm.requests import MemoryNeed, Scan
from streamsvm.training.folder_checks import FOLDS as FOLDER
from streamsvm.training.folds import Folds
from streamsvm.training.loop import Training
from streamsvm.training.result import Event, Result
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.train import describe

FOLDS = 5
ENOUGH = 10.0  # times tol: a fold ends at such a gap. Brier scores and log losses change by less than 0.1%.
MOST_SCORES = 1_000_000  # of all rows and classes, which are enough to fit any of the functions
LEAST_SCORED = 10_000  # rows that have sets of labels, since few rows have a rare label
SCORE_BYTES = 2 * 8  # of a score, which is held twice while scores are joined, and then while functions are fitted
LABEL_BYTES = 3 * (8 + 1)  # of a score and a label of sets of labels, of which there are more: with a fold's parts
ROW_BYTES = 2 * (8 + 4) + 12 * 8  # of a row's weight and code, and of the vectors from which a function is fitted


class Calibrated(NamedTuple):
    """What a model stores to have probabilities, and how true these are of rows that were held out."""

    stored: dict[str, Any]
    measured: dict[str, Any]


@dataclass(frozen=True)
class HeldOut:
    """Rows with the scores (n, K), or (n, 1) of two classes, of models that have not seen them.

    truth: their classes (n,), or which labels they have (n, K). weight, fold (n,): their weights, and the folds that
    held them out.
    """

    scores: F64
    truth: Truth
    weight: F64
    fold: Folds

    def calibrate(self, way: Calibration, name: str) -> Calibrated:
        """Return what is fitted to all rows, and measured where each fold has what is fitted to the others.

        ValueError if the rows do not suffice.
        """
        measured, has_sets = Reliability(), self.truth.ndim == 2
        apply, add = way.choose_apply(has_sets), measured.add_sets if has_sets else measured.add
        for k in np.unique(self.fold):
            mine = self.fold == k
            stored = way.fit(self.scores[~mine], self.truth[~mine], self.weight[~mine])
            add(apply(stored, self._take_scores(mine)), self.truth[mine])
        stored = way.fit(self.scores, self.truth, self.weight)
        return Calibrated({way.key: stored}, {"method": name, **measured.as_json()})

    def _take_scores(self, mine: npt.NDArray[np.bool_]) -> F64:
        """Return the scores of some rows as a model gives them."""
        return self.scores[mine, 0] if self.scores.shape[1] == 1 else self.scores[mine]


@dataclass(frozen=True)
class FoldFits:
    """Fits on the rows of all folds but one, which share the reads of the model of all rows (training.train.Beside).

    way: a name of CALIBRATIONS. fold (n,): the fold that holds each row out.
    """

    source: RowSource
    way: str
    fold: Folds
    n_fits: int = FOLDS

    def set_up(self, options: TrainOptions, n_fits: int) -> list[Fit]:
        """Return the fits for the settings of the training; `n_fits` fits share the memory."""
        fits = [hold_out(Kept(self.source, self.fold != k), options, n_fits) for k in range(FOLDS)]
        n_scores = find_problem(options.task).count_scores(len(require_classes(self.source)))
        row_bytes = ROW_BYTES + n_scores * (LABEL_BYTES if self.source.has_label_sets else SCORE_BYTES)
        need = partial(_need_memory, fits[0], self.source.n_rows // _find_step(self.source, n_scores) * row_bytes)
        return [replace(fits[0], memory=need), *fits[1:]]

    def require_rows(self, options: TrainOptions) -> None:
        """Raise InputError unless the rows outside of each fold suffice: those that are scored and have a weight."""
        if self.source.has_label_sets:  # a label may be that of no row
            return
        classes, codes, weight = (require_classes(self.source), *map(self.source.column, ("y", "sample_weight")))
        assert codes is not None
        step = _find_step(self.source, find_problem(options.task).count_scores(len(classes)))
        scored = np.arange(0, len(codes), step)
        scored = scored if weight is None else scored[weight[scored] > 0.0]
        counts = np.zeros((FOLDS, len(classes)), np.int64)
        np.add.at(counts, (self.fold[scored], codes[scored]), 1)
        outside = counts.sum(axis=0) - counts
        if not CALIBRATIONS[self.way].needs_every_class:
            outside = outside.sum(axis=1, keepdims=True)
        if len(missing := np.argwhere(outside == 0)):
            k, label = missing[0]
            of_class = f" of the class {classes[label]}" if outside.shape[1] > 1 else ""
            why = f"; one row in {step} is scored" if step > 1 else ""
            raise InputError(
                f"{self.source.name}: probabilities by {self.way} need rows{of_class} with a weight above 0 outside of "
                f"each fold, and outside of fold {k + 1} there are none{why}"
            )

    def begin(self, training: Training, fits: Sequence[Fit]) -> list[Training]:
        """Return the runs of the fits on the engine of a training that has begun, from their checkpoints if any."""
        run = training.run
        path, lock = (None, None) if run is None else (run.path, run.lock)
        return self.open(fits, training.options, (training.engine, training.plan), path, lock)

    def open(
        self, fits: Sequence[Fit], options: TrainOptions, opened: Opened, out: Path | None, lock: Lock | None
    ) -> list[Training]:
        """Return the runs of the fits, which have begun, in folders within `out`, of which the caller has the lock."""
        runs = []
        for k, fit in enumerate(fits):
            folder = None
            if out is not None:
                settings = describe(self.source, options, fit)
                folder = RunFolder(out / FOLDER / f"fold{k}", settings, resume=True, lock=lock, n_beside=FOLDS + 1)
            enough = ENOUGH * options.tol
            runs.append(Training(self.source, options, fit, *opened, folder, _stay_silent, enough=enough))
            runs[-1].begin()
        return runs

    def complete(self, training: Training, beside: Sequence[Training]) -> Result:
        """Return the result of the training, whose model has probabilities by the scores of the folds' models."""
        found, passes = self.fit_way(training.engine, beside)
        result = training.make_result()
        return put_calibration(result, found, max(result.passes + 1, passes))

    def fit_way(self, engine: Engine, runs: Sequence[Training]) -> tuple[Calibrated, int]:
        """Return what is fitted to the scores of the rows by the models of their folds, and the reads for them all."""
        results = [run.make_result() for run in runs]
        models = [result.model for result in results]
        step = _find_step(self.source, math.prod(models[0].score_shape))
        add = partial(_add_scores, models, self.source, step)
        tiles = engine.scan(Scan(list, add, operator.add, by_row=(self.fold,)))
        parts = [part for _, part in sorted(tiles, key=lambda tile: tile[0])]
        held_out = HeldOut(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        tiles.clear()
        parts.clear()
        try:
            return held_out.calibrate(CALIBRATIONS[self.way], self.way), max(result.passes for result in results) + 1
        except ValueError as error:
            raise InputError(f"probabilities: {error}, with positive weights") from None


def put_calibration(trained: Result, found: Calibrated, passes: int) -> Result:
    """Return the result with what gives its model probabilities, in place of what it had, and this number of passes."""
    known = {way.key for way in CALIBRATIONS.values()}
    info = {name: value for name, value in trained.model.info.items() if name not in known}
    model = replace(trained.model, info={**info, **found.stored})
    return replace(trained, model=model, passes=passes, calibration=found.measured)


def _find_step(source: RowSource, n_scores: int) -> int:
    """Return which regular part of the rows is scored: every step-th row."""
    step = -(-source.n_rows * n_scores // MOST_SCORES)
    return min(step, max(1, source.n_rows // LEAST_SCORED)) if source.has_label_sets else step


def _need_memory(fit: Fit, scored_bytes: int, threads: int) -> MemoryNeed:
    """Return the memory of a fit and of the rows that are scored, which follow the fits."""
    need = fit.memory(threads)
    return replace(need, driver_bytes=need.driver_bytes + scored_bytes)


def _stay_silent(event: Event) -> None:
    """Report no step of a fold."""


def _add_scores(models: list[Model], source: RowSource, step: int, tiles: list[Any], rows: Rows, fold: Folds) -> None:
    """Add scores (m, K) of every step-th row by the model that was trained without it, truth, weights and folds."""
    chosen = np.flatnonzero((rows.start + np.arange(rows.n_rows)) % step == 0)
    scores = np.empty((len(chosen), math.prod(models[0].score_shape)))
    for k, model in enumerate(models):
        mine = np.flatnonzero(fold[chosen] == k)
        if len(mine):
            scorer = model.scorer(source.n_features, source.scaling, source.is_sparse, source.features)
            scores[mine] = scorer(take_rows(rows.X, chosen[mine])).reshape(len(mine), -1)
    weight = np.ones(len(chosen)) if rows.sample_weight is None else rows.sample_weight[chosen].copy()
    truth: Truth
    if rows.label_sets is not None:
        truth = unpack_sets(rows.label_sets[chosen], scores.shape[1])
    else:
        assert rows.y is not None
        truth = rows.y[chosen].copy()
    tiles.append((rows.start, (scores, truth, weight, fold[chosen].copy())))
