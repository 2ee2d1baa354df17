"""Training: a source of rows, an engine, an algorithm and a run's folder become a model and a result."""

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
from streamsvm.methods.registry import Algorithm, count_driver_bytes, make_algorithm
from streamsvm.methods.warm_up import compile_all
from streamsvm.options import TrainOptions
from streamsvm.training.loop import Event, Listener, Requests, Result, Training, drive
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.statistics import needs_scale, put_stand_in, settle_gamma

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Event", "Listener", "Result", "TrainOptions", "train", "train_together"]

Fit = tuple[TrainOptions, Algorithm]
OpenFolder = Callable[[int, int, dict[str, Any]], RunFolder | None]


def train(
    source: RowSource, options: TrainOptions, out: str | Path | None = None, resume: bool = False,
    client: Client | None = None, listener: Listener = lambda _: None, overwrite: bool = False,
    lock: Lock | None = None,
) -> Result:  # fmt: skip
    """Train on all rows of the source; with `out`, in a run's folder, from which a killed run is resumed.

    overwrite, lock: see RunFolder.

    Ctrl-C ends the run after the step under way is given up: with status "interrupted" if there is a folder (the
    checkpoint is in it), by KeyboardInterrupt otherwise. Raises InputError for bad settings and data, MemoryBudgetError
    before anything runs, ConnectionError if the scheduler of a cluster is lost (the checkpoint is in the folder).
    """
    with caught(), threadpool_limits(1):
        algorithm = make_algorithm(source, put_stand_in(options))
        open_run = partial(_open_run, source, out, resume, overwrite, lock)
        if needs_scale(options):
            with open_for(source, options, [algorithm], client) as (engine, plan):
                options = settle_gamma(engine, options)
                algorithm = make_algorithm(source, options)
                with open_run(options, algorithm) as run:
                    return Training(source, options, algorithm, engine, plan, run, listener).carry_out()
        with open_run(options, algorithm) as run, open_for(source, options, [algorithm], client) as (engine, plan):
            return Training(source, options, algorithm, engine, plan, run, listener).carry_out()


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
    fits = [(options, make_algorithm(source, options)) for options in settle_gammas(source, many, client)]
    with train_chains(source, [[fit] for fit in fits], client, lambda _chain, _place, event: listener(event)) as (
        _,
        results,
    ):
        return [result for chain in results for result in chain]


@contextmanager
def train_chains(
    source: RowSource, chains: Sequence[Sequence[Fit]], client: Client | None,
    listener: Callable[[int, int, Event], None], open_folder: OpenFolder = lambda *_: None,
) -> Iterator[tuple[Engine, list[list[Result]]]]:  # fmt: skip
    """Carry out chains of fits side by side; within a chain one after another, each from where the last has ended.

    listener is told chain and place of the fit. open_folder opens the folder of a fit, by chain, place and settings;
    fits go on from what is there, and after Ctrl-C each has a checkpoint of its last step. Gives the engine, still
    open, and the results by chain.
    """
    fits = [fit for chain in chains for fit in chain]
    algorithms = [algorithm for _, algorithm in fits]
    with caught(), threadpool_limits(1), open_for(source, fits[0][0], algorithms, client) as opened:
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
    source: RowSource, chains: Sequence[Sequence[Fit]], opened: Opened, listener: Callable[..., None],
    open_folder: OpenFolder, live: dict[int, Training], chain: int, place: int,
) -> Training:  # fmt: skip
    """Begin a fit where the last one of its chain has ended, or where it was itself when it was stopped."""
    options, algorithm = chains[chain][place]
    folder = open_folder(chain, place, _describe(source, options, algorithm))
    training = Training(source, options, algorithm, *opened, folder, partial(listener, chain, place))
    if place:
        before = live[chain]
        training.state = algorithm.warm_state(source, before.state, options.C / before.options.C)
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
    source: RowSource, options: TrainOptions, algorithms: Sequence[Algorithm], client: Client | None
) -> AbstractContextManager[Opened]:
    """Compile what the solvers need, and open an engine that has room for all of them."""
    platt = {"platt"} if options.options.get("selection") == "platt" else set()
    load = partial(compile_all, sorted({algorithm.name for algorithm in algorithms} | platt))
    load()
    return open_engine(
        source,
        load=load,
        totals_bytes=sum(algorithm.totals_bytes(source) for algorithm in algorithms),
        solver_bytes=count_driver_bytes(algorithms, source),
        shared_bytes=sum(algorithm.shared_bytes(source) for algorithm in algorithms),
        fold_bytes=lambda threads: sum(algorithm.fold_bytes(source, threads) for algorithm in algorithms),
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
    algorithm: Algorithm,
) -> AbstractContextManager[RunFolder | None]:
    """Open the folder of a run, if there is to be one; it is closed at the end of the block."""
    if out is None:
        return nullcontext()
    return closing(RunFolder(out, _describe(source, options, algorithm), resume, overwrite, lock))


def settle_gammas(source: RowSource, many: Sequence[TrainOptions], client: Client | None) -> list[TrainOptions]:
    """Return the settings with numbers for gamma; where any is "scale", the rows are read once, for all of them.

    InputError for settings that cannot be trained, MemoryBudgetError for those that need too much memory; both are
    raised before a row is read.
    """
    asking = [options for options in many if needs_scale(options)]
    if not asking:
        return list(many)
    algorithms = [make_algorithm(source, put_stand_in(options)) for options in asking]
    with caught(), threadpool_limits(1), open_for(source, many[0], algorithms, client) as (engine, _):
        gamma = settle_gamma(engine, asking[0]).gamma
    return [replace(options, gamma=gamma) if needs_scale(options) else options for options in many]


def _describe(source: RowSource, options: TrainOptions, algorithm: Algorithm) -> dict[str, Any]:
    """Return what a resumed run must have in common with the run before."""
    data = {"data": source.name, "fingerprint": source.fingerprint}
    return {"solver": algorithm.name, "seed": options.seed, **data, **algorithm.describe()}
