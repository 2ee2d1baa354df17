"""Probabilities of a classifier: a function of scores that its rows get from models which have not seen them.

The rows are split into folds. For each fold a model is trained on the rows of the others. All these models are trained
in the reads of the model of all rows, and one read more scores the rows of each fold by its model. What is fitted to
these scores (numeric.calibration) is put on the scores of the model of all rows, as in scikit-learn's
CalibratedClassifierCV(ensemble=False). Of more than MOST_SCORES scores a regular part of the rows is taken.
"""

from __future__ import annotations

import hashlib
import math
import operator
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.data.view import Kept
from streamsvm.engines.opening import Opened
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.files import write_atomically
from streamsvm.interrupts import caught
from streamsvm.locks import Lock
from streamsvm.methods.fit import ONE_TRAINING, Fit
from streamsvm.methods.held_out import hold_out
from streamsvm.methods.set_up import choose_method
from streamsvm.models.model import Model
from streamsvm.numeric.calibration import CALIBRATIONS
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rows import Rows, take_rows
from streamsvm.options import TrainOptions, require_classes
from streamsvm.problems.registry import find_problem
from streamsvm.requests import MemoryNeed, Scan
from streamsvm.training.folder_checks import FOLDS as FOLDER
from streamsvm.training.folder_checks import LOCK, compare_settings
from streamsvm.training.folds import Folds, draw_folds
from streamsvm.training.loop import Training, drive, save_all
from streamsvm.training.result import Event, Result
from streamsvm.training.run_folder import MODEL_FILE, RESULT_FILE, RunFolder, pack_result
from streamsvm.training.statistics import needs_scale, put_stand_in
from streamsvm.training.train import describe, open_for, set_up_group, train

if TYPE_CHECKING:
    from distributed import Client

FOLDS = 5
ENOUGH = 10.0  # times tol: a fold ends at such a gap. Brier scores and log losses change by less than 1e-4 of them.
MOST_SCORES = 1_000_000  # of the rows, which are enough for two numbers a class
SCORE_BYTES = 2 * 8  # of a score, which is held twice while scores are joined
ROW_BYTES = 2 * (8 + 4) + 12 * 8  # of a row's weight and code, and of the vectors from which a function is fitted


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
        n_scores, n_rows = (
            find_problem(options.task).count_scores(len(require_classes(self.source))),
            self.source.n_rows,
        )
        need = partial(_need_memory, fits[0], n_rows // _find_step(n_rows, n_scores), n_scores)
        return [replace(fits[0], memory=need), *fits[1:]]

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
        calibration, passes = self.fit_way(training.engine, beside)
        result = training.make_result()
        return _put(result, calibration, max(result.passes + 1, passes))

    def fit_way(self, engine: Engine, runs: Sequence[Training]) -> tuple[dict[str, Any], int]:
        """Return what is fitted to the scores of the rows by the models of their folds, and the reads for them all."""
        results = [run.make_result() for run in runs]
        models = [result.model for result in results]
        step = _find_step(self.source.n_rows, math.prod(models[0].score_shape))
        add = partial(_add_scores, models, self.source, step)
        tiles = engine.scan(Scan(list, add, operator.add, by_row=(self.fold,)))
        parts = [part for _, part in sorted(tiles, key=lambda tile: tile[0])]
        scores, codes, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
        way = CALIBRATIONS[self.way]
        try:
            return {way.key: way.fit(scores, codes, weight)}, max(result.passes for result in results) + 1
        except ValueError as error:
            raise InputError(f"probabilities: {error}, with positive weights") from None


def make_folds(source: RowSource, options: TrainOptions, way: str) -> FoldFits:
    """Return the fits beside a training that give its model probabilities; the seed draws the folds, each class evenly.

    InputError if there cannot be probabilities, or if a class has fewer rows than there are folds.
    """
    require_folds(options)
    return FoldFits(source, way, draw_folds(source, options, FOLDS))


def train_with_probabilities(
    source: RowSource,
    options: TrainOptions,
    way: str,
    out: str | Path | None = None,
    resume: bool = False,
    client: Client | None = None,
    keep_dual: bool = False,
    start_from: Model | None = None,
    **named: Any,
) -> Result:
    """Train a model as `train` does, with probabilities.

    Parameters
    ----------
    way : {"sigmoid", "isotonic", "temperature"}
        How scores become probabilities (numeric.calibration).
    source, options, out, resume, client, keep_dual, start_from, **named
        See `train`. A run that was begun without probabilities is gone on with; its folds are trained after it.

    Raises
    ------
    InputError
        As `train` and `make_folds`.
    """
    folds = make_folds(source, options, way)
    given = {"keep_dual": keep_dual, "start_from": start_from, **named}
    if resume and out is not None and _began_alone(source, options, Path(out), folds, keep_dual, start_from):
        result, lock = train(source, options, out, resume, client, **given), named.get("lock")
        return result if result.status == "interrupted" else calibrate(source, options, way, result, out, client, lock)
    return train(source, options, out, resume, client, beside=folds, **given)


def calibrate(
    source: RowSource,
    options: TrainOptions,
    way: str,
    trained: Result,
    out: str | Path | None = None,
    client: Client | None = None,
    lock: Lock | None = None,
) -> Result:
    """Return the result of a training with probabilities, and with the reads of the folds, which follow it here.

    Parameters
    ----------
    source, options, way, out, client
        As in `train_with_probabilities`. With `out`, the model and the result there are replaced.
    trained : Result
        What `train` returned for them.
    lock : Lock, optional
        The lock of a caller who writes to `out` already.
    """
    folds, began = make_folds(source, options, way), time.monotonic()
    if needs_scale(options):
        options = replace(options, gamma=trained.model.kernel.gamma)  # type: ignore[union-attr]
    fits, folder = folds.set_up(options, FOLDS), None if out is None else Path(out)
    own_lock = nullcontext(lock) if folder is None or lock is not None else Lock(folder, folder / LOCK)
    chains = [[fit] for fit in fits]
    with caught(), one_blas_thread(), own_lock as held, open_for(source, options, chains, client) as opened:
        runs = folds.open(fits, options, opened, folder, held)
        try:
            drive(opened[0], [run.go_on() for run in runs])
        finally:
            save_all(runs)
        calibration, passes = folds.fit_way(opened[0], runs)
        last = runs[0].make_result()
        result = replace(
            _put(trained, calibration, trained.passes + passes),
            seconds=trained.seconds + time.monotonic() - began,
            read_bytes=trained.read_bytes + last.read_bytes,
            peak_memory_bytes=max(trained.peak_memory_bytes, last.peak_memory_bytes),
            projected_memory_bytes=max(trained.projected_memory_bytes, last.projected_memory_bytes),
        )
        if folder is not None:
            write_atomically(folder / MODEL_FILE, result.model.to_bytes())
            write_atomically(folder / RESULT_FILE, pack_result(result.as_json()))
    return result


def require_folds(options: TrainOptions) -> None:
    """Raise InputError unless these options train a classifier by a method that can be trained on folds."""
    if not (find_problem(options.task).has_classes and find_problem(options.task).predicts_labels):
        raise InputError(f"probabilities are for classes, and the task is {options.task}: leave them out")
    method = choose_method(options)
    if "scratch" in options.options:
        raise InputError(f"probabilities: {ONE_TRAINING}")
    if not method.takes_numbered_rows:
        raise InputError(f"probabilities: {method.name} cannot be trained on folds of the rows; leave them out")


def _began_alone(
    source: RowSource, options: TrainOptions, out: Path, folds: FoldFits, keep_dual: bool, start_from: Model | None
) -> bool:
    """Return whether a folder holds a run that was begun without folds, and so has all of the memory."""
    if not (out / "checkpoint.npz").exists():
        return False
    given = source, put_stand_in(options), keep_dual, start_from
    together, alone = (set_up_group(*given, beside)[0] for beside in (folds, None))
    return _has_settings(out, options, describe(source, options, alone)) and not _has_settings(
        out, options, describe(source, options, together)
    )


def _has_settings(out: Path, options: TrainOptions, settings: dict[str, Any]) -> bool:
    try:
        compare_settings(out, settings, not needs_scale(options))
    except InputError:
        return False
    return True


def _find_step(n_rows: int, n_scores: int) -> int:
    """Return which regular part of the rows is scored: every step-th row."""
    return -(-n_rows * n_scores // MOST_SCORES)


def _need_memory(fit: Fit, n_rows: int, n_scores: int, threads: int) -> MemoryNeed:
    """Return the memory of a fit and of the scores of so many rows, which follow the fits."""
    need = fit.memory(threads)
    return replace(need, driver_bytes=need.driver_bytes + n_rows * (ROW_BYTES + SCORE_BYTES * n_scores))


def _stay_silent(event: Event) -> None:
    """Report no step of a fold."""


def _add_scores(models: list[Model], source: RowSource, step: int, tiles: list[Any], rows: Rows, fold: Folds) -> None:
    """Add the scores (m, K), codes and weights of every step-th row, by the model that was trained without it."""
    chosen = np.flatnonzero((rows.start + np.arange(rows.n_rows)) % step == 0)
    scores = np.empty((len(chosen), math.prod(models[0].score_shape)))
    for k, model in enumerate(models):
        mine = np.flatnonzero(fold[chosen] == k)
        if len(mine):
            scorer = model.scorer(source.n_features, source.scaling, source.is_sparse, source.features)
            scores[mine] = scorer(take_rows(rows.X, chosen[mine])).reshape(len(mine), -1)
    assert rows.y is not None
    weight = np.ones(len(chosen)) if rows.sample_weight is None else rows.sample_weight[chosen].copy()
    tiles.append((rows.start, (scores, rows.y[chosen].copy(), weight)))


def _put(trained: Result, calibration: dict[str, Any], passes: int) -> Result:
    """Return the result with what gives its model probabilities, in place of what it had, and this number of passes."""
    known = {way.key for way in CALIBRATIONS.values()}
    info = {name: value for name, value in trained.model.info.items() if name not in known}
    model = replace(trained.model, info={**info, **calibration})
    return replace(trained, model=model, passes=passes, model_sha256=hashlib.sha256(model.to_bytes()).hexdigest())
