"""`streamsvm.tune`: a grid of settings on anything that estimators take, and the best one as a fitted estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.errors import InputError
from streamsvm.estimators.inputs import open_source
from streamsvm.estimators.linear import LinearSVC
from streamsvm.estimators.loading import make_estimator
from streamsvm.estimators.ranking import RankSVM
from streamsvm.machine import parse_bytes
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.training.grid import Tuning
from streamsvm.training.grid import tune as tune_source

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Tuned(Tuning):
    """A grid's trials, the best of them, and what is fitted to all rows with it."""

    estimator: Any


def tune(
    X: Any, y: Any = None, *, C: Sequence[float], gamma: Sequence[float | str] = (), folds: int = 5,
    sample_weight: Any = None, qid: Any = None, memory: str | int | None = None, out: str | Path | None = None,
    client: Client | None = None, resume: bool = False, overwrite: bool = False, **settings: Any,
) -> Tuned:  # fmt: skip
    """Cross-validate a grid of C (and gamma) in one read of the data a round, and fit the best setting to all rows.

    X, y, sample_weight, qid: as `fit` of LinearSVC, SVC and RankSVM takes them. settings: fields of
    streamsvm.training.train.TrainOptions (solver, kernel, task, tol, class_weight, seed, ...). out: folder of the
    last run, and of the grid, which a stopped `tune` goes on with by `resume`; `overwrite` replaces what is there.
    Fold k of a row does not depend on C: fits are compared on the same rows. InputError (ValueError) for bad input.
    """
    try:
        options = TrainOptions(memory_bytes=None if memory is None else parse_bytes(memory), **settings)
    except TypeError as error:
        raise InputError(f"tune: {error}") from None
    kind: Any = LinearSVC if find_problem(options.task).predicts_labels else RankSVM
    like = kind(client=client, checkpoint=out)
    with open_source(like, X, y, sample_weight, qid) as source:
        found = tune_source(source, options, C, gamma, folds, out, client, resume=resume, overwrite=overwrite)
    return Tuned(**vars(found), estimator=make_estimator(found.result.model))
