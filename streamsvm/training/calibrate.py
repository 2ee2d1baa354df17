"""Probabilities of a classifier: a function of scores that its rows get from models which have not seen them.

The rows are split into folds. For each fold a model is trained on the rows of the others (training.fold_fits). All
these models are trained in the reads of the model of all rows, and one read more scores the rows of each fold by its
model. What is fitted to these scores (numeric.calibration) is put on the scores of the model of all rows, as in
scikit-learn's CalibratedClassifierCV(ensemble=False).
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.files import write_atomically
from streamsvm.interrupts import caught
from streamsvm.locks import Lock
from streamsvm.methods.fit import ONE_TRAINING
from streamsvm.methods.set_up import choose_method, settle_task
from streamsvm.models.model import Model
from streamsvm.numeric.calibration import CALIBRATIONS
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.training.drive import drive
from streamsvm.training.fold_fits import FOLDS, FoldFits, put_calibration
from streamsvm.training.folder_checks import LOCK, compare_settings
from streamsvm.training.folds import draw_folds
from streamsvm.training.loop import save_all
from streamsvm.training.result import Result
from streamsvm.training.run_folder import MODEL_FILE, RESULT_FILE, pack_result
from streamsvm.training.statistics import needs_scale, put_stand_in
from streamsvm.training.train import describe, open_for, set_up_group, train

if TYPE_CHECKING:
    from distributed import Client


def make_folds(source: RowSource, options: TrainOptions, way: str) -> FoldFits:
    """Return the fits beside a training that give its model probabilities; the seed draws the folds, each class evenly.

    InputError if there cannot be probabilities, or if a class has fewer rows than there are folds, or none to fit
    probabilities to.
    """
    options = settle_task(source, options)
    require_folds(options, way)
    folds = FoldFits(source, way, draw_folds(source, options, FOLDS))
    folds.require_rows(options)
    return folds


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
    options, began = settle_task(source, options), time.monotonic()
    folds = make_folds(source, options, way)
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
        found, passes = folds.fit_way(opened[0], runs)
        last = runs[0].make_result()
        result = replace(
            put_calibration(trained, found, trained.passes + passes),
            seconds=trained.seconds + time.monotonic() - began,
            read_bytes=trained.read_bytes + last.read_bytes,
            peak_memory_bytes=max(trained.peak_memory_bytes, last.peak_memory_bytes),
            projected_memory_bytes=max(trained.projected_memory_bytes, last.projected_memory_bytes),
        )
        if folder is not None:
            write_atomically(folder / MODEL_FILE, result.model.to_bytes())
            write_atomically(folder / RESULT_FILE, pack_result(result.as_json()))
    return result


def require_folds(options: TrainOptions, way: str) -> None:
    """Raise InputError unless these options train a classifier by a method that can be trained on folds."""
    problem = find_problem(options.task)
    predicts_class = problem.has_classes and problem.predicts_labels and problem.needs_labels
    if not predicts_class:
        raise InputError(f"probabilities are for classes, and the task is {options.task}: leave them out")
    if problem.has_label_sets and CALIBRATIONS[way].apply_each is None:
        raise InputError(f"probabilities by {way} are for one label a row; take sigmoid or isotonic for sets of labels")
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
