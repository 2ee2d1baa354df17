"""Probabilities of a trained classifier: sigmoids of scores that its rows get from models which have not seen them.

The rows are split into folds. For each fold a model is trained on the rows of the others, all of them in the same
reads, and one more read scores the rows of each fold by its model. The sigmoids fitted to these scores
(numeric.calibration) are put on the scores of the model that was trained on all rows, as in scikit-learn's
CalibratedClassifierCV(ensemble=False). Of more than MOST_SCORES scores a regular part
of the rows is taken.
"""

from __future__ import annotations

import hashlib
import math
import operator
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.data.view import Kept
from streamsvm.errors import InputError
from streamsvm.files import write_atomically
from streamsvm.interrupts import caught
from streamsvm.locks import Lock
from streamsvm.machine import peak_bytes
from streamsvm.methods.fit import ONE_TRAINING, Fit
from streamsvm.methods.set_up import choose_method
from streamsvm.models.model import Model
from streamsvm.numeric.calibration import fit_sigmoid
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rows import F64, I32, Rows, take_rows
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.requests import MemoryNeed, Scan
from streamsvm.training.chains import make_chains
from streamsvm.training.folder_checks import LOCK
from streamsvm.training.folds import Folds, draw_folds
from streamsvm.training.run_folder import MODEL_FILE, RESULT_FILE, pack_result
from streamsvm.training.statistics import needs_scale
from streamsvm.training.train import Event, Job, Result, list_fits, open_for, run_chains

if TYPE_CHECKING:
    from distributed import Client

FOLDS = 5
MOST_SCORES = 1_000_000  # of the rows, which are enough for two numbers a class
SCORE_BYTES = 2 * (8 + 8 + 4)  # of a row's score, weight and code, which are held twice while they are joined


def calibrate(source: RowSource, options: TrainOptions, trained: Result, client: Client | None = None) -> Result:
    """Return the result of a training with a sigmoid for each score of its model, and with the reads for them.

    Parameters
    ----------
    source, options, client
        As in `train`; the seed of the options draws the folds, each class evenly.
    trained : Result
        What `train` returned for them.

    Raises
    ------
    InputError
        If the method cannot be trained on folds, or a class has fewer rows than there are folds.
    """
    require_folds(options)
    model, began = trained.model, time.monotonic()
    if needs_scale(options):
        options = replace(options, gamma=model.kernel.gamma)  # type: ignore[union-attr]
    fold = draw_folds(source, options, FOLDS)
    views = [Kept(source, fold != k) for k in range(FOLDS)]
    n_scores = source.n_rows * math.prod(model.score_shape)
    chains = [_count_scores(chain, min(n_scores, MOST_SCORES)) for chain in make_chains([options], views)]
    step = -(-n_scores // MOST_SCORES)
    with caught(), one_blas_thread(), open_for(source, options, list_fits(chains), client) as opened:
        found = run_chains(source, chains, opened, _stay_silent)
        models = [result.model for chain in found for result in chain]
        add = partial(_add_scores, models, source, step)
        tiles = opened[0].scan(Scan(list, add, operator.add, by_row=(fold,)))
        read_bytes, projected = opened[0].costs.read_bytes, opened[1].projected_bytes
        peak = max(peak_bytes(), *opened[0].costs.peaks.values(), 0)
    parts = [part for _, part in sorted(tiles, key=lambda tile: tile[0])]
    scores, codes, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
    passes = max(result.passes for chain in found for result in chain) + 1
    model = _put_sigmoids(model, scores, codes, weight)
    return replace(
        trained,
        model=model,
        passes=trained.passes + passes,
        seconds=trained.seconds + time.monotonic() - began,
        read_bytes=trained.read_bytes + read_bytes,
        peak_memory_bytes=max(trained.peak_memory_bytes, peak),
        projected_memory_bytes=max(trained.projected_memory_bytes, projected),
        model_sha256=hashlib.sha256(model.to_bytes()).hexdigest(),
    )


def require_folds(options: TrainOptions) -> None:
    """Raise InputError unless these options train a classifier by a method that can be trained on folds."""
    problem = find_problem(options.task)
    if problem.has_label_sets or not (problem.has_classes and problem.predicts_labels):
        raise InputError(f"probabilities are for classes, and the task is {options.task}: leave them out")
    method = choose_method(options)
    if "scratch" in options.options:
        raise InputError(f"probabilities: {ONE_TRAINING}")
    if not method.takes_numbered_rows:
        raise InputError(f"probabilities: {method.name} cannot be trained on folds of the rows; leave them out")


def calibrate_run(source: RowSource, options: TrainOptions, trained: Result, out: Path) -> Result:
    """Return the result as `calibrate` does, and write it and its model into the folder of the run.

    Nothing is written while the folds are trained: a run that is interrupted then has its model without sigmoids.
    """
    found = calibrate(source, options, trained)
    with Lock(out, out / LOCK):
        write_atomically(out / MODEL_FILE, found.model.to_bytes())
        write_atomically(out / RESULT_FILE, pack_result(found.as_json()))
    return found


def _count_scores(chain: list[Job], n_scores: int) -> list[Job]:
    """Return the fits of a fold with its part of the memory for the scores, which follow them."""
    return [(options, replace(fit, memory=partial(_need_memory, fit, n_scores))) for options, fit in chain]


def _need_memory(fit: Fit, n_scores: int, threads: int) -> MemoryNeed:
    need = fit.memory(threads)
    return replace(need, driver_bytes=need.driver_bytes + SCORE_BYTES * n_scores // FOLDS)


def _stay_silent(chain: int, place: int, event: Event) -> None:
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


def _put_sigmoids(model: Model, scores: F64, codes: I32, weight: F64) -> Model:
    """Return the model with the sigmoids in its `info`."""
    of_class = [codes == 1] if scores.shape[1] == 1 else [codes == k for k in range(scores.shape[1])]
    try:
        found = [fit_sigmoid(scores[:, k], own, weight) for k, own in enumerate(of_class)]
    except ValueError as error:
        raise InputError(f"probabilities: {error}, with positive weights") from None
    A, B = (list(each) for each in zip(*found, strict=True))
    return replace(model, info={**model.info, "sigmoids": {"A": A, "B": B}})
