"""Training: an engine carries a fit out over the rows of a source, in a run's folder, and the result is a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamsvm.data.scratch import make_scratch_folder
from streamsvm.data.source import RowSource
from streamsvm.engines.opening import Opened, open_engine
from streamsvm.errors import InputError
from streamsvm.interrupts import caught
from streamsvm.locks import Lock
from streamsvm.methods.balls import start_fit
from streamsvm.methods.dual_points import read_dual_points
from streamsvm.methods.fit import ONE_TRAINING, Fit, need_in_turn, share_memory, sum_memory
from streamsvm.methods.set_up import choose_method, set_up, settle_task
from streamsvm.methods.warm_up import compile_all
from streamsvm.models.model import Model
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.training.dual_file import write_dual_points
from streamsvm.training.eval_set import EvalSet
from streamsvm.training.loop import Training
from streamsvm.training.remote_run import open_remote_run
from streamsvm.training.result import Event, Listener, Result
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.spent import NOTHING, Spent
from streamsvm.training.statistics import needs_scale, put_stand_in, settle_gamma
from streamsvm.urls import hide_secrets, is_remote

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Event", "Listener", "Result", "TrainOptions", "train"]

LOGGER = logging.getLogger("streamsvm")
KeepBeside = Callable[[Path, Result], Result]


class Beside(Protocol):
    """Fits that are trained in the reads of a training, and complete its result."""

    @property
    def n_fits(self) -> int:
        """The number of the fits."""

    def set_up(self, options: TrainOptions, n_fits: int) -> list[Fit]:
        """Return the fits for the settings of the training; `n_fits` fits share the memory."""

    def begin(self, training: Training, fits: Sequence[Fit]) -> list[Training]:
        """Return the runs of the fits, on the engine of a training that has begun."""

    def complete(self, training: Training, beside: Sequence[Training]) -> Result:
        """Return the result of the training, which these runs complete; all are at their ends."""


def train(
    source: RowSource,
    options: TrainOptions,
    out: str | Path | None = None,
    resume: bool = False,
    client: Client | None = None,
    listener: Listener = lambda _: None,
    overwrite: bool = False,
    lock: Lock | None = None,
    keep_dual: bool = False,
    spent: Spent = NOTHING,
    start_from: Model | None = None,
    keep_beside: KeepBeside | None = None,
    beside: Beside | None = None,
    on_written: Callable[[Sequence[str]], None] = lambda _: None,
    eval_set: EvalSet | None = None,
) -> Result:
    """Train a model on all rows of a source.

    Parameters
    ----------
    source : RowSource
        The rows, in chunks.
    options : TrainOptions
        The method, its settings, and the limits of memory, passes and time.
    out : str or Path, optional
        The run's folder, in which checkpoints, the model and the result are written. By default nothing is written.
        It may be the URL of an object store.
    resume : bool, default False
        Whether to go on from the checkpoint in `out`. The resumed run ends with the bits of an uninterrupted one.
    client : distributed.Client, optional
        A Dask cluster that carries out the passes. By default `options` says where they are carried out.
    listener : callable, optional
        Called with an Event after each step.
    overwrite : bool, default False
        Whether to replace a run that is in `out`.
    lock : Lock, optional
        The lock of a caller who writes to `out` already.
    keep_dual : bool, default False
        Whether to keep the dual point behind the lower bound in `out`, from which `verify` computes the bound anew.
    spent : Spent, optional
        What has been spent on the rows before, such as the passes that found their feature map; it is counted.
    start_from : Model, optional
        A linear model of the same two classes and features, from whose weights the training starts. It is a starting
        point only: nothing is proved by it.
    keep_beside : callable, optional
        Called with the run's folder and the result before the model is written; it writes what is kept beside the
        model, and returns the result with what that took.
    beside : Beside, optional
        Fits that are trained in the same reads, and complete the result.
    on_written : callable, optional
        Called when a checkpoint is complete, with the names of the files in `out` that were written.
    eval_set : EvalSet, optional
        Rows that are not learned from, on which the model is measured after each step. With a patience, the training
        stops with the status "early_stop" when the measure has not risen for so many steps. Its model is the last one.

    Returns
    -------
    Result
        The model, its certificate, and what it cost. After Ctrl-C its status is "interrupted", if there is a folder.

    Raises
    ------
    InputError
        If the settings or the data cannot be trained with.
    MemoryBudgetError
        If the projected memory exceeds the budget; nothing runs then.
    ConnectionError
        If the scheduler of a cluster is lost. The checkpoint of the last step is in `out`.
    KeyboardInterrupt
        After Ctrl-C, if there is no folder or no step is finished.
    """
    if out is not None and is_remote(out):
        if keep_beside is not None or beside is not None:
            place = hide_secrets(out)
            raise InputError(
                f"{place}: probabilities and a ball that is kept (--keep-ball) need a run in a local folder"
            )
        with open_remote_run(str(out), overwrite) as remote:
            given: Any = {"keep_dual": keep_dual, "spent": spent, "start_from": start_from, "on_written": remote.put}
            given["eval_set"] = eval_set
            return train(source, options, remote.folder, resume, client, listener, overwrite, lock, **given)
    if keep_dual and out is None:
        raise InputError("the dual point is kept in the folder of the run: say where that is to be")
    if keep_dual and start_from is not None:
        raise InputError("start_from (--start-from) and the dual point (--keep-dual) do not go together")
    options = settle_task(source, options)
    with caught(), one_blas_thread():
        fits = set_up_group(source, put_stand_in(options), keep_dual, start_from, beside)
        if eval_set is not None:
            eval_set.check(source, find_problem(options.task))
            fits[0] = eval_set.add_memory(fits[0], find_problem(options.task), source.classes)
        folder = _open_run(source, out, resume, overwrite, lock, options, fits[0], on_written)
        owner, chains = "" if out is None else str(Path(out).resolve()), [[fit] for fit in fits]
        with folder as run:
            with _make_scratch(fits[0], owner) as scratch, open_for(source, options, chains, client) as opened:
                opened[0].scratch = scratch
                if needs_scale(options):
                    if run:
                        run.take_over()  # before the read
                    settled = settle_gamma(opened[0], options)
                    fits = set_up_group(source, settled, keep_dual, start_from, beside)
                    if run:
                        run.settle(describe(source, options, fits[0]))
                training = Training(source, options, fits[0], *opened, run, listener, spent, eval_set=eval_set)
                result = _carry_out(training, fits[1:], beside)
            return _finish(training, result, keep_beside, keep_dual)


def set_up_group(
    source: RowSource,
    options: TrainOptions,
    keep_dual: bool = False,
    start_from: Model | None = None,
    beside: Beside | None = None,
) -> list[Fit]:
    """Return the fit of a training, and the fits beside it, which share the memory."""
    n_fits = 1 if beside is None else 1 + beside.n_fits
    shared = options if beside is None else share_memory(options, n_fits, choose_method(options).process_bytes)
    fit = set_up(source, shared, keep_dual, n_fits)
    if start_from is not None:
        fit = start_fit(fit, start_from, source)
    return [fit, *(() if beside is None else beside.set_up(options, n_fits))]


@contextmanager
def _make_scratch(fit: Fit, owner: str) -> Iterator[str | None]:
    """Make the folder for rows that the fit sets aside, if it does, and remove it at the end."""
    if fit.scratch is None:
        yield None
        return
    with make_scratch_folder(fit.scratch, owner) as folder:
        yield str(folder)


def _carry_out(training: Training, others: Sequence[Fit], beside: Beside | None) -> Result:
    """Carry a training out."""
    if training.fit.note:
        LOGGER.info(training.fit.note)
    if beside is None:
        return training.carry_out()
    return training.carry_out(partial(beside.begin, fits=others), beside.complete)


def _finish(training: Training, result: Result, keep_beside: KeepBeside | None, keep_dual: bool) -> Result:
    """Write what is kept, and then the model and the result, with which the run in a folder is complete."""
    run = training.run
    if run is None:
        return result
    if keep_beside is not None and result.status != "interrupted":
        result = keep_beside(run.path, result)
    packed = result.model.to_bytes()  # once: the other files tell its SHA-256
    if keep_dual:
        write_dual_points(run.path, read_dual_points(training.state), result.model, training.source)
    run.finish(packed, result.as_json())
    return result


def open_for(
    source: RowSource, options: TrainOptions, chains: Sequence[Sequence[Fit]], client: Client | None
) -> AbstractContextManager[Opened]:
    """Compile what the fits need, and open an engine that has room for all chains; the fits of one follow each other.

    Gamma changes nothing of their memory, so that fits with another gamma have room as well.
    """
    if sum(map(len, chains)) > 1 and any(fit.scratch for chain in chains for fit in chain):
        raise InputError(ONE_TRAINING)
    groups = sorted({group for chain in chains for fit in chain for group in fit.compiled})
    load = partial(compile_all, groups, source.is_sparse)
    load()
    return open_engine(
        source,
        load=load,
        memory=lambda threads: sum_memory([need_in_turn(chain, threads) for chain in chains]),
        budget_bytes=options.memory_bytes,
        threads=options.threads,
        workers=options.workers,
        scheduler=options.scheduler,
        client=client,
    )


def _open_run(
    source: RowSource,
    out: str | Path | None,
    resume: bool,
    overwrite: bool,
    lock: Lock | None,
    options: TrainOptions,
    fit: Fit,
    on_written: Callable[[Sequence[str]], None],
) -> AbstractContextManager[RunFolder | None]:
    """Return a context of the run's folder, which is closed at the end of the block; None in it without `out`."""
    if out is None:
        return nullcontext()
    settings, is_settled = describe(source, options, fit), not needs_scale(options)
    return closing(RunFolder(out, settings, resume, overwrite, lock, is_settled=is_settled, on_written=on_written))


def describe(source: RowSource, options: TrainOptions, fit: Fit) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the run before, as JSON."""
    data = {"data": source.name, "fingerprint": source.fingerprint}
    return {"solver": fit.method, "seed": options.seed, **data, **fit.settings}
