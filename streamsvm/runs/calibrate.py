"""Class probabilities, from a function that is fitted to the scores of held-out rows.

The rows are split into folds. For each fold, a model is trained on the rows of all other folds. These models share the
reads of the training on all rows, and one more read scores the rows of each fold with its model. A function from scores
to probabilities is fitted to these scores (models.calibration). It is applied to the scores of the model trained on all
rows, as in scikit-learn's CalibratedClassifierCV(ensemble=False). If there would be more than MOST_SCORES scores, only
every n-th row is scored.
"""

from __future__ import annotations

import logging
import math
import operator
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.rows import views
from streamsvm.data.rows.source import RowSource, read_codes
from streamsvm.engines.engine import Engine
from streamsvm.engines.open import Client, Opened
from streamsvm.models.calibration import CALIBRATIONS, Truth
from streamsvm.models.evaluate import Reliability
from streamsvm.models.model import Model
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.labels import unpack_sets
from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import TrainOptions, require_classes
from streamsvm.passes import Scan
from streamsvm.problems.problem import NEVER, Folds
from streamsvm.problems.registry import find_problem
from streamsvm.runs.folder import FOLDS as FOLDER
from streamsvm.runs.folder import LOCK, RunFolder, compare_settings, write_result
from streamsvm.runs.gamma_scale import needs_scale, stand_in_for_gamma
from streamsvm.runs.held_out import draw_folds, join_tiles, list_scores
from streamsvm.runs.results import Event, Result
from streamsvm.runs.train import Training, describe, drive, open_for, save_all, set_up_group, train
from streamsvm.solvers.set_up import choose_solver, hold_out, settle_task
from streamsvm.solvers.solver import ONE_TRAINING, Solver, Wrapper
from streamsvm.system import deadline
from streamsvm.system.errors import InputError
from streamsvm.system.files import Lock, to_local_path
from streamsvm.system.interrupts import caught

LOGGER = logging.getLogger("streamsvm")
FOLDS = 5
ENOUGH = 10.0  # a fit on folds ends at this multiple of tol, which changes Brier scores and log losses by under 0.1%
MOST_SCORES = 1_000_000  # enough to fit any of the functions
LEAST_SCORED = 10_000  # minimum number of rows to score if rows have label sets, since rare labels have few rows
SCORE_BYTES = 2 * 8  # a score is held twice while scores are joined or functions fitted
LABEL_BYTES = 3 * (8 + 1)  # for label sets: a score and a label, each held three times
ROW_BYTES = 2 * (8 + 4) + 12 * 8  # per row: its weight and class code, and the vectors of the fit


# The stored form of a function from scores to probabilities, and its reliability on held-out rows
Calibrated = tuple[dict[str, Any], dict[str, Any]]


def calibrate_scores(way: str, scores: F64, truth: Truth, weight: F64, fold: Folds) -> Calibrated:
    """Fit a function to the scores of all rows, and measure each fold with a function fitted to the other folds.

    way: a name in CALIBRATIONS. scores: the scores of the rows by models that have not seen them, (n, K), or (n, 1) for
    two classes. truth: the classes (n,), or label indicators (n, K). weight, fold (n,): the weight of each row, and the
    fold that held it out; rows that none held out are not measured. Raises ValueError if there are too few rows.
    """
    method, measured, has_sets = CALIBRATIONS[way], Reliability(), truth.ndim == 2
    add = measured.add_sets if has_sets else measured.add
    for k in np.unique(fold[fold != NEVER]):
        mine = fold == k
        stored = method.fit(scores[~mine], truth[~mine], weight[~mine])
        own = scores[mine, 0] if scores.shape[1] == 1 else scores[mine]  # in the shape in which a model returns scores
        add(method.apply(stored, own, has_sets), truth[mine])
    return {method.key: method.fit(scores, truth, weight)}, {"method": way, **measured.as_json()}


@dataclass(frozen=True)
class FoldFits:
    """One fit per fold, on the rows of all other folds. The fits share the reads of the training on all rows.

    way: a name in CALIBRATIONS. fold (n,): the fold that holds out each row. The only row of a class, which is never
    held out, is scored by the model of the first fold, although that model has learned it.
    """

    source: RowSource
    way: str
    fold: Folds
    n_fits: int = FOLDS

    def set_up(self, options: TrainOptions, n_fits: int) -> list[Solver]:
        """Return the fits on folds, with the settings of the training. `n_fits` fits share the memory."""
        fits = [hold_out(views.HeldOut(self.source, self.fold != k), options, n_fits) for k in range(self.n_fits)]
        n_scores = find_problem(options.task).count_scores(len(require_classes(self.source)))
        row_bytes = ROW_BYTES + n_scores * (LABEL_BYTES if self.source.has_label_sets else SCORE_BYTES)
        n_scored = self.source.n_rows // _find_step(self.source, n_scores)
        return [Wrapper(fits[0], driver_bytes=n_scored * row_bytes), *fits[1:]]

    def require_rows(self, options: TrainOptions) -> None:
        """Raise InputError unless enough scored rows outside each fold have a positive weight.

        Sigmoid and isotonic calibration need such a row of each class; temperature scaling needs any such row.
        """
        if self.source.has_label_sets:  # a label may have no rows
            return
        classes, codes, weight = (require_classes(self.source), *map(self.source.column, ("y", "sample_weight")))
        assert codes is not None
        step = _find_step(self.source, find_problem(options.task).count_scores(len(classes)))
        scored = np.arange(0, len(codes), step)
        scored = scored if weight is None else scored[weight[scored] > 0.0]
        counts = np.zeros((FOLDS + 1, len(classes)), np.int64)  # the last entries are of rows that are never held out
        np.add.at(counts, (np.minimum(self.fold[scored], FOLDS), codes[scored]), 1)
        outside = counts.sum(axis=0) - counts[:FOLDS]
        if not CALIBRATIONS[self.way].by_score:
            outside = outside.sum(axis=1, keepdims=True)
        if len(missing := np.argwhere(outside == 0)):
            k, label = missing[0]
            of_class = f" of the class {classes[label]}" if outside.shape[1] > 1 else ""
            why = f" (only one row in {step} is scored)" if step > 1 else ""
            raise InputError(
                f"{self.source.name}: probabilities by {self.way} need, for every fold, a row{of_class} with a weight "
                f"above 0 in the other folds; for fold {k + 1} there is none{why}: add rows, or omit the probabilities"
            )

    def open(
        self, fits: Sequence[Solver], options: TrainOptions, opened: Opened, out: Path | None, lock: Lock | None
    ) -> list[Training]:
        """Start or resume the runs of the fits, in folders within `out`, which the caller has locked."""
        runs = []
        for k, fit in enumerate(fits):
            folder = None
            if out is not None:
                settings = describe(self.source, options, fit)
                folder = RunFolder(
                    out / FOLDER / f"fold{k}", settings, resume=True, lock=lock, n_beside=self.n_fits + 1
                )
            given = fit, *opened, folder, _stay_silent
            runs.append(Training(self.source, options, *given, enough=ENOUGH * options.tol))
            runs[-1].begin()
        return runs

    def complete(self, training: Training, beside: Sequence[Training]) -> Result:
        """Return the result of `training`, with probabilities.

        beside: the runs of the folds. All of these runs must have ended.
        """
        found, passes = self.fit_way(training.engine, beside)
        result = training.make_result()
        return put_calibration(result, found, max(result.passes + 1, passes))

    def fit_way(self, engine: Engine, runs: Sequence[Training]) -> tuple[Calibrated, int]:
        """Score the rows with the models of their folds; return the fitted function and the number of reads."""
        results = [run.make_result() for run in runs]
        models = [result.model for result in results]
        step = _find_step(self.source, math.prod(models[0].score_shape))
        add = partial(_add_scores, models, self.source, step)
        held_out = join_tiles(engine.scan(Scan(list, add, operator.add, by_row=(self.fold,))))
        try:
            return calibrate_scores(self.way, *held_out), max(result.passes for result in results) + 1
        except ValueError as error:
            raise InputError(f"probabilities: {error}, with positive weights") from None


def put_calibration(trained: Result, found: Calibrated, passes: int) -> Result:
    """Return the result with the calibration stored in its model, and with this number of passes."""
    known = {way.key for way in CALIBRATIONS.values()}
    info = {name: value for name, value in trained.model.info.items() if name not in known}
    stored, measured = found
    return replace(trained, model=replace(trained.model, info=info | stored), passes=passes, calibration=measured)


def _find_step(source: RowSource, n_scores: int) -> int:
    """Return n such that every n-th row is scored."""
    step = -(-source.n_rows * n_scores // MOST_SCORES)
    return min(step, max(1, source.n_rows // LEAST_SCORED)) if source.has_label_sets else step


def _stay_silent(event: Event) -> None:
    """Ignore the steps of a fold."""


def _add_scores(models: list[Model], source: RowSource, step: int, tiles: list[Any], rows: Rows, fold: Folds) -> None:
    """Append a tile: for every step-th row, the scores (m, K) by the model of its fold, the truth, weight and fold."""
    chosen = np.flatnonzero((rows.start + np.arange(rows.n_rows)) % step == 0)
    picked, fold, scores = rows.pick(chosen), fold[chosen], np.empty((len(chosen), math.prod(models[0].score_shape)))
    for _, mine, found in list_scores(models, len(models), source, picked.X, np.where(fold == NEVER, 0, fold)):
        scores[mine] = found.reshape(len(mine), -1)
    weight = np.ones(len(chosen)) if picked.sample_weight is None else picked.sample_weight
    truth = picked.y if picked.label_sets is None else unpack_sets(picked.label_sets, scores.shape[1])
    tiles.append((rows.start, (scores, truth, weight, fold)))


def make_folds(source: RowSource, options: TrainOptions, way: str, drawn: tuple[int, Folds] | None = None) -> FoldFits:
    """Return the fits on folds that calibrate a model. The folds are drawn with the seed, stratified by class.

    If no class has a row for each of the folds, there are as many folds as the largest class has rows, with a warning.
    way: a name in CALIBRATIONS. drawn: folds of these rows that `draw_folds` has already returned, after their number;
    as many folds are not drawn again. Raises InputError if the task has no probabilities, or a class has too few rows.
    """
    options = settle_task(source, options)
    require_folds(options, way)
    number = FOLDS
    if not source.has_label_sets and source.column("groups") is None:
        number = max(2, min(FOLDS, int(np.max(np.bincount(read_codes(source)), initial=0))))
    if number < FOLDS:
        LOGGER.warning(f"{source.name}: no class has {FOLDS} rows, so the probabilities come from {number} folds")
    fold = drawn[1] if drawn and drawn[0] == number else draw_folds(source, options, number)
    folds = FoldFits(source, way, fold, number)
    folds.require_rows(options)
    return folds


def train_with_probabilities(
    source: RowSource,
    options: TrainOptions,
    folds: FoldFits | None,
    out: str | Path | None = None,
    resume: bool = False,
    client: Client | None = None,
    **named: Any,
) -> Result:
    """Train a model as `train` does, and calibrate its probabilities.

    Parameters
    ----------
    folds : FoldFits or None
        The result of `make_folds` for these rows; None for a model without probabilities.
    source, options, out, resume, client, **named
        See `train`. A run that was started without probabilities is resumed first; then its folds are trained.

    Raises
    ------
    InputError
        As in `train`.
    """
    if folds is None:
        return train(source, options, out, resume, client, **named)
    given = named.get("keep_dual", False), named.get("start_from")
    if resume and out is not None and _began_alone(source, options, Path(out), folds, *given):
        result, lock = train(source, options, out, resume, client, **named), named.get("lock")
        return (
            result if result.status == "interrupted" else calibrate(source, options, folds, result, out, client, lock)
        )
    return train(source, options, out, resume, client, beside=folds, **named)


def calibrate(
    source: RowSource,
    options: TrainOptions,
    folds: FoldFits,
    trained: Result,
    out: str | Path | None = None,
    client: Client | None = None,
    lock: Lock | None = None,
) -> Result:
    """Train the folds after a training, and return its result with probabilities and the cost of the folds.

    Parameters
    ----------
    source, options, folds, out, client
        As in `train_with_probabilities`. With `out`, the model and the result there are replaced.
    trained : Result
        The result of `train` for these arguments.
    lock : Lock, optional
        The lock of a caller that already writes to `out`.
    """
    options, began = settle_task(source, options), time.monotonic()
    if needs_scale(options):
        options = replace(options, gamma=trained.model.kernel.gamma)  # type: ignore[union-attr]
    fits, folder = folds.set_up(options, folds.n_fits), None if out is None else to_local_path(out)
    own_lock = nullcontext(lock) if folder is None or lock is not None else Lock(folder, folder / LOCK)
    chains = [[fit] for fit in fits]
    with caught(), one_blas_thread(), own_lock as held, open_for(source, options, chains, client) as opened:
        runs = folds.open(fits, options, opened, folder, held)
        try:
            with deadline.held(lambda: all(run.is_late() for run in runs)):
                drive(opened[0], [run.requests() for run in runs])
        finally:
            save_all(runs)
        with deadline.limit(options.max_seconds):
            found, passes = folds.fit_way(opened[0], runs)
        last = runs[0].make_result()
        cost = last.read_bytes, last.peak_memory_bytes, last.projected_memory_bytes
        whole = trained.add_cost(time.monotonic() - began, *cost)
        result = put_calibration(whole, found, trained.passes + passes)
        if folder is not None:
            write_result(folder, result.model.to_bytes(), result.as_json())
    return result


def require_folds(options: TrainOptions, way: str | None) -> None:
    """Raise InputError unless these options train a classifier with a solver that supports folds.

    way: the method of the probabilities; without one (None), nothing is required.
    """
    if way is None:
        return
    problem = find_problem(options.task)
    if not (problem.has_classes and problem.predicts_labels and problem.needs_labels):
        raise InputError(f"probabilities need classes, but the task {options.task} has none: omit them")
    if problem.has_label_sets and not CALIBRATIONS[way].by_score:
        raise InputError(
            f"probabilities by {way} need one label per row; choose sigmoid or isotonic for sets of labels"
        )
    method = choose_solver(options)
    if "scratch" in options.options:
        raise InputError(f"probabilities: {ONE_TRAINING}")
    if not method.takes_numbered_rows:
        raise InputError(f"probabilities: the solver {method.name} cannot be trained on folds of rows; omit them")


def _began_alone(
    source: RowSource, options: TrainOptions, out: Path, folds: FoldFits, keep_dual: bool, start_from: Model | None
) -> bool:
    """Return whether a folder holds a run that was started without folds, and so uses the whole memory budget."""

    def has_settings(side: FoldFits | None) -> bool:
        fit = set_up_group(source, stand_in_for_gamma(options), keep_dual, start_from, side)[0]
        try:
            compare_settings(out, describe(source, options, fit), not needs_scale(options))
        except InputError:
            return False
        return True

    return (out / "checkpoint.npz").exists() and has_settings(None) and not has_settings(folds)
