"""Several trainings side by side, in the same reads of the data: each to its own end, or in chains of fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streamsvm.data.source import RowSource
from streamsvm.engines.opening import Opened
from streamsvm.errors import InputError
from streamsvm.interrupts import caught
from streamsvm.methods.fit import Fit, share_memory
from streamsvm.methods.set_up import choose_method, set_up, settle_task
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.training.drive import Requests, drive
from streamsvm.training.loop import Training
from streamsvm.training.result import Event, Listener, Result
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.statistics import put_stand_in, settle_gammas
from streamsvm.training.train import describe, open_for

if TYPE_CHECKING:
    from distributed import Client

Job = tuple[TrainOptions, Fit]
OpenFolder = Callable[[int, int, dict[str, Any]], RunFolder | None]


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
    listener: Callable[[int, int, Event], object],
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
    listener: Callable[..., object],
    open_folder: OpenFolder,
    live: dict[int, Training],
    chain: int,
    place: int,
) -> Training:
    """Begin a fit from its own checkpoint if there is one, otherwise from the end of the fit before in its chain."""
    options, fit = chains[chain][place]
    folder = open_folder(chain, place, describe(source, options, fit))
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
