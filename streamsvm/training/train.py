"""Training: a source of rows, an engine, a fit and a run's folder become a model and a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from streamsvm.data.source import RowSource
from streamsvm.engines.opening import Opened, open_engine
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.interrupts import caught
from streamsvm.locks import Lock
from streamsvm.methods.dual_points import read_dual_points
from streamsvm.methods.fit import Fit, sum_memory
from streamsvm.methods.set_up import set_up
from streamsvm.methods.warm_up import compile_all
from streamsvm.options import TrainOptions
from streamsvm.training.dual_file import write_dual_points
from streamsvm.training.loop import Event, Listener, Requests, Result, Training, drive
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.statistics import needs_scale, put_stand_in, settle_gamma

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Event", "Listener", "Result", "TrainOptions", "train", "train_together"]

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
) -> Result:
    """Train on all rows of the source; with `out`, in a run's folder, from which a killed run is resumed.

    overwrite, lock: see RunFolder. keep_dual: keep the dual point that the lower bound rests on in the run's folder
    (training.dual_file), from which `verify` computes the bound anew.

    Ctrl-C ends the run after the step under way is given up: with status "interrupted" if there is a folder (the
    checkpoint is in it), by KeyboardInterrupt otherwise. Raises InputError for bad settings and data, MemoryBudgetError
    before anything runs, ConnectionError if the scheduler of a cluster is lost (the checkpoint is in the folder).
    """
    if keep_dual and out is None:
        raise InputError("the dual point is kept in the folder of the run: say where that is to be")
    with caught(), threadpool_limits(1):
        fit = set_up(source, put_stand_in(options), keep_dual)
        open_run = partial(_open_run, source, out, resume, overwrite, lock)
        if needs_scale(options):
            with open_for(source, options, [fit], client) as opened:
                options = settle_gamma(opened[0], options)
                fit = set_up(source, options, keep_dual)
                with open_run(options, fit) as run:
                    return _carry_out(Training(source, options, fit, *opened, run, listener), keep_dual)
        with open_run(options, fit) as run, open_for(source, options, [fit], client) as opened:
            return _carry_out(Training(source, options, fit, *opened, run, listener), keep_dual)


def _carry_out(training: Training, keep_dual: bool) -> Result:
    """Carry a training out, and write its dual point into the folder of the run if it is to be kept."""
    result = training.carry_out()
    if keep_dual and training.run:
        write_dual_points(training.run.path, read_dual_points(training.state), result.model, training.source)
    return result


def train_together(
    source: RowSource, many: Sequence[TrainOptions], client: Client | None = None, listener: Listener = lambda _: None
) -> list[Result]:
    """Train several models, each to its own end, in one read of the data a round, to the same bits as `train`.

    For a grid of C and gamma, or several class weights. Memory, threads, workers and scheduler are the first one's;
    the memory of all solvers is counted. Models of budgeted SGD share a read if they have one seed and as many
    replicas: they learn the rows in the same order. read_bytes of a result counts what all had read by then. Raises
    as `train` does; nothing is saved on the way.
    """
    if not many:
        raise InputError("no settings are given to train with")
    settled = settle_gammas(source, many, client)
    jobs = [(options, set_up(source, options)) for options in settled]
    with train_chains(source, [[job] for job in jobs], client, lambda _chain, _place, event: listener(event)) as (
        _,
        results,
    ):
        return [result for chain in results for result in chain]


@contextmanager
def train_chains(
    source: RowSource,
    chains: Sequence[Sequence[Job]],
    client: Client | None,
    listener: Callable[[int, int, Event], None],
    open_folder: OpenFolder = lambda *_: None,
) -> Iterator[tuple[Engine, list[list[Result]]]]:
    """Carry out chains of fits side by side; within a chain one after another, each from where the last has ended.

    listener is told chain and place of the fit. open_folder opens the folder of a fit, by chain, place and settings;
    fits go on from what is there, and after Ctrl-C each has a checkpoint of its last step. Gives the engine, still
    open, and the results by chain.
    """
    jobs = [job for chain in chains for job in chain]
    fits = [fit for _, fit in jobs]
    with caught(), threadpool_limits(1), open_for(source, jobs[0][0], fits, client) as opened:
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
        yield opened[0], results


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
    """Begin a fit where the last one of its chain has ended, or where it was itself when it was stopped."""
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
        if training.is_over():  # it was resumed
            training.listener(Event(training.history[-1], training.plan))
        else:
            yield from training.requests()
            training.save()
        results.append(training.make_result())


def open_for(
    source: RowSource, options: TrainOptions, fits: Sequence[Fit], client: Client | None
) -> AbstractContextManager[Opened]:
    """Compile what the fits need, and open an engine that has room for all of them."""
    load = partial(compile_all, sorted({group for fit in fits for group in fit.kernels}))
    load()
    return open_engine(
        source,
        load=load,
        memory=lambda threads: sum_memory([fit.memory(threads) for fit in fits]),
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
    """Open the folder of a run, if there is to be one; it is closed at the end of the block."""
    if out is None:
        return nullcontext()
    return closing(RunFolder(out, _describe(source, options, fit), resume, overwrite, lock))


def settle_gammas(source: RowSource, many: Sequence[TrainOptions], client: Client | None) -> list[TrainOptions]:
    """Return the settings with numbers for gamma; where any is "scale", the rows are read once, for all of them.

    InputError for settings that cannot be trained, MemoryBudgetError for those that need too much memory; both are
    raised before a row is read.
    """
    asking = [options for options in many if needs_scale(options)]
    if not asking:
        return list(many)
    fits = [set_up(source, put_stand_in(options)) for options in asking]
    with caught(), threadpool_limits(1), open_for(source, many[0], fits, client) as (engine, _):
        gamma = settle_gamma(engine, asking[0]).gamma
    return [replace(options, gamma=gamma) if needs_scale(options) else options for options in many]


def _describe(source: RowSource, options: TrainOptions, fit: Fit) -> dict[str, Any]:
    """Return what a resumed run must have in common with the run before."""
    data = {"data": source.name, "fingerprint": source.fingerprint}
    return {"solver": fit.method, "seed": options.seed, **data, **fit.settings}
