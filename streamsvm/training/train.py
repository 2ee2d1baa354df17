"""Training: an engine carries a fit out over the rows of a source, in a run's folder, and the result is a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from streamsvm.training.dual_file import write_dual_points
from streamsvm.training.loop import Event, Listener, Requests, Result, Training, drive
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.spent import NOTHING, Spent
from streamsvm.training.statistics import needs_scale, put_stand_in, settle_gamma, settle_gammas

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Event", "Listener", "Result", "TrainOptions", "train", "train_together"]

LOGGER = logging.getLogger("streamsvm")
Job = tuple[TrainOptions, Fit]
OpenFolder = Callable[[int, int, dict[str, Any]], RunFolder | None]


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
    if keep_dual and out is None:
        raise InputError("the dual point is kept in the folder of the run: say where that is to be")
    if keep_dual and start_from is not None:
        raise InputError("start_from (--start-from) and the dual point (--keep-dual) do not go together")
    options = settle_task(source, options)
    with caught(), one_blas_thread():
        fit = set_up(source, put_stand_in(options), keep_dual)
        if start_from is not None:
            fit = start_fit(fit, start_from, source)
        folder = _open_run(source, out, resume, overwrite, lock, options, fit)
        owner = "" if out is None else str(Path(out).resolve())
        with folder as run, _make_scratch(fit, owner) as scratch, open_for(source, options, [[fit]], client) as opened:
            opened[0].scratch = scratch
            if needs_scale(options):
                if run:
                    run.take_over()  # before the read
                fit = set_up(source, settle_gamma(opened[0], options), keep_dual)
                if run:
                    run.settle(_describe(source, options, fit))
            return _carry_out(Training(source, options, fit, *opened, run, listener, spent), keep_dual)


@contextmanager
def _make_scratch(fit: Fit, owner: str) -> Iterator[str | None]:
    """Make the folder for rows that the fit sets aside, if it does, and remove it at the end."""
    if fit.scratch is None:
        yield None
        return
    with make_scratch_folder(fit.scratch, owner) as folder:
        yield str(folder)


def _carry_out(training: Training, keep_dual: bool) -> Result:
    """Carry a training out, and write its dual point into the run's folder if it is to be kept."""
    if training.fit.note:
        LOGGER.info(training.fit.note)
    result = training.carry_out()
    if keep_dual and training.run:
        write_dual_points(training.run.path, read_dual_points(training.state), result.model, training.source)
    return result


def train_together(
    source: RowSource, many: Sequence[TrainOptions], client: Client | None = None, listener: Listener = lambda _: None
) -> list[Result]:
    """Train several models side by side, where one read of the data in each round serves all of them.

    Each model is trained to its own end, and has the same bits as if `train` had made it with an equal part of the
    memory for the rows that it holds. Models of budgeted SGD share their reads only if their seeds and numbers of
    replicas are equal, since only then they learn the rows in one order.

    Parameters
    ----------
    source : RowSource
        The rows, in chunks.
    many : sequence of TrainOptions
        The settings of each model, such as a grid of C and gamma or several class weights. The budget of memory, the
        threads, workers and scheduler are those of the first; the memory of all solvers is counted.
    client : distributed.Client, optional
        A Dask cluster that carries out the passes. By default the first settings say where they are carried out.
    listener : callable, optional
        Called with an Event after each step of each model.

    Returns
    -------
    list of Result
        One result for each of the settings. Its read_bytes are what all models had read until it was finished.

    Raises
    ------
    InputError, MemoryBudgetError, ConnectionError, KeyboardInterrupt
        As `train` without a folder: nothing is saved.
    """
    if not many:
        raise InputError("no settings are given to train with")
    many = [settle_task(source, replace(each, memory_bytes=many[0].memory_bytes)) for each in many]
    jobs = _set_up_each(source, many, [put_stand_in(each) for each in many])
    with caught(), one_blas_thread(), open_for(source, many[0], list_fits(jobs), client) as opened:
        settled = settle_gammas(opened[0], many)
        if settled != list(many):
            jobs = _set_up_each(source, many, settled)
        results = run_chains(source, jobs, opened, lambda _chain, _place, event: listener(event))
        return [result for chain in results for result in chain]


def _set_up_each(source: RowSource, asked: Sequence[TrainOptions], known: Sequence[TrainOptions]) -> list[list[Job]]:
    """Return a chain of one fit for each of the settings, where a number is known for gamma; the fits share the memory.

    asked: the settings as they were given, from which a training sees that a read for gamma precedes it.
    """
    shares = [share_memory(each, len(known), choose_method(each).process_bytes) for each in known]
    return [[(each, set_up(source, mine, n_fits=len(asked)))] for each, mine in zip(asked, shares, strict=True)]


def run_chains(
    source: RowSource,
    chains: Sequence[Sequence[Job]],
    opened: Opened,
    listener: Callable[[int, int, Event], None],
    open_folder: OpenFolder = lambda *_: None,
) -> list[list[Result]]:
    """Carry chains of fits out side by side with an engine that is open, and return the results of each chain.

    Within a chain, each fit starts from the last state of the fit before. The listener is called with the chain and
    place of the fit, and with the event. open_folder opens the folder of a fit, by chain, place and settings. A fit
    goes on from the checkpoint that is in its folder, and after Ctrl-C each fit has a checkpoint of its last step.
    """
    results: list[list[Result]] = [[] for _ in chains]
    live: dict[int, Training] = {}
    begin = partial(_begin_fit, source, chains, opened, listener, open_folder, live)
    runs = [_run_chain(len(chain), partial(begin, k), results[k]) for k, chain in enumerate(chains)]
    try:
        drive(opened[0], runs)
    except KeyboardInterrupt:
        for training in live.values():
            training.save()
        raise
    return results


def list_fits(chains: Sequence[Sequence[Job]]) -> list[list[Fit]]:
    """Return the fits of each chain, for which an engine is to have room."""
    return [[fit for _, fit in chain] for chain in chains]


def _begin_fit(
    source: RowSource,
    chains: Sequence[Sequence[Job]],
    opened: Opened,
    listener: Callable[..., None],
    open_folder: OpenFolder,
    live: dict[int, Training],
    chain: int,
    place: int,
) -> Training:
    """Begin a fit from its own checkpoint if there is one, otherwise from the end of the fit before in its chain."""
    options, fit = chains[chain][place]
    folder = open_folder(chain, place, _describe(source, options, fit))
    training = Training(source, options, fit, *opened, folder, partial(listener, chain, place))
    if place:
        before = live[chain]
        training.state = fit.start_after(before.state, options.C / before.options.C)
    training.begin()
    live[chain] = training
    return training


def _run_chain(n_fits: int, begin: Callable[[int], Training], results: list[Result]) -> Requests:
    for place in range(n_fits):
        training = begin(place)
        if training.is_over():  # its checkpoint is that of its end
            training.listener(Event(training.history[-1], training.plan))
        else:
            yield from training.requests()
            training.save()
        results.append(training.make_result())


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
) -> AbstractContextManager[RunFolder | None]:
    """Return a context of the run's folder, which is closed at the end of the block; None in it without `out`."""
    if out is None:
        return nullcontext()
    settings, is_settled = _describe(source, options, fit), not needs_scale(options)
    return closing(RunFolder(out, settings, resume, overwrite, lock, is_settled=is_settled))


def _describe(source: RowSource, options: TrainOptions, fit: Fit) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the run before, as JSON."""
    data = {"data": source.name, "fingerprint": source.fingerprint}
    return {"solver": fit.method, "seed": options.seed, **data, **fit.settings}
