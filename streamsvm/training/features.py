"""Datasets of features: an engine carries out the passes that find a map, and the pass that writes the features.

Any linear solver can train on the features. The map is stored in the folder `features` of the new dataset, so a model
that is trained there carries the map and predicts from raw rows. BLAS runs on one thread here, since the order of its
sums changes the last bits. The features do not depend on threads and workers; with other chunks of the same rows their
last bits differ.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm import interrupts
from streamsvm.data.dataset import Dataset
from streamsvm.data.destination import check_destination, new_folder
from streamsvm.data.groups import plan_groups
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.source import RowSource
from streamsvm.engines.opening import Opened, open_engine
from streamsvm.engines.protocol import Engine
from streamsvm.files import refuse_inputs
from streamsvm.interrupts import caught
from streamsvm.machine import default_threads, peak_bytes
from streamsvm.methods.feature_map.options import FeatureOptions
from streamsvm.methods.fit import MapFit
from streamsvm.methods.set_up import set_up_map
from streamsvm.methods.warm_up import compile_all
from streamsvm.numeric.feature_maps import FeatureMap
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.requests import Step, Take
from streamsvm.training.drive import Requests, drive
from streamsvm.training.feature_checkpoint import FeatureCheckpoint, name_checkpoint
from streamsvm.training.feature_dataset import write_mapped
from streamsvm.training.statistics import needs_scale, put_stand_in, settle_gamma

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["FeatureOptions", "MadeFeatures", "find_feature_map", "make_features"]

REMEDY = "use fewer --threads, a lower --rank or a smaller --chunk-bytes"

Report = Callable[[int], None]
Keep = Callable[[Any], None]


@dataclass(frozen=True)
class MadeFeatures:
    """A dataset of features, and what it cost.

    Attributes
    ----------
    dataset : Dataset
        The features, opened.
    read_bytes : int
        Bytes read from storage.
    peak_memory_bytes, projected_memory_bytes : int
        Resident memory of the process that needed the most, as measured and as projected beforehand.
    """

    dataset: Dataset
    read_bytes: int
    peak_memory_bytes: int
    projected_memory_bytes: int


@dataclass(frozen=True)
class FoundMap:
    """A feature map, the passes that found it, the bytes that they read, and the memory that was projected for them."""

    map: FeatureMap
    passes: int
    read_bytes: int
    projected_bytes: int


def make_features(
    source: RowSource,
    destination: str | Path,
    options: FeatureOptions,
    settings: TrainOptions,
    report: Report | None = None,
    made_by: dict[str, Any] | None = None,
    resume: bool = False,
    client: Client | None = None,
) -> MadeFeatures:
    """Find a feature map, write the features of all rows as a dataset, and open it.

    One pass writes the features. The passes before it, which find the map, are one for "polynomial", none for
    "nystrom", ten for "cholesky" (fewer if a lower rank is exact) and eleven for "eigen". Gamma "scale" takes one more.

    Parameters
    ----------
    source : RowSource
        The rows to map.
    destination : str or Path
        Where the dataset of features is written. It appears there whole or not at all.
    options : FeatureOptions
        The map, its rank and seed, and how the dataset is written.
    settings : TrainOptions
        The kernel, and the limits: memory, threads, workers, scheduler. Other settings have no effect.
    report : callable, optional
        Called with the number of rows of each group of chunks that was read.
    made_by : dict, optional
        What the manifest shall tell of the making, as JSON.
    resume : bool, default False
        Whether to go on from the passes that an interrupted call has finished. Their results are in a hidden file
        beside the destination until the features are written. A resumed call writes the same bits as an uninterrupted
        one.
    client : distributed.Client, optional
        A Dask cluster that carries out the passes. By default `settings` says where they are carried out.

    Returns
    -------
    MadeFeatures
        The dataset, and what it cost.

    Raises
    ------
    InputError
        If the features cannot be made of these rows, if the destination cannot be written, or if the finished passes
        belong to other rows or settings.
    MemoryBudgetError
        If the projected memory exceeds the budget; no row is read then.
    """
    path = Path(destination)
    check_destination(path, options.overwrite)
    if source.on_disk:
        refuse_inputs(path, [source.name])
    source = source.read_groups() if isinstance(source, Dataset) else source
    fit = set_up_map(source, options, put_stand_in(settings))
    kept = FeatureCheckpoint(name_checkpoint(path))
    with (  # the engine is closed before the folder is removed: its tasks write there
        caught(),
        one_blas_thread(),
        new_folder(path, options.overwrite) as folder,
        open_for_map(source, fit, settings, client) as (engine, plan),
    ):
        engine.costs.report = report
        fit = _settle(engine, options, settings, fit)
        about = {"fingerprint": source.fingerprint, **fit.settings}
        state = kept.begin(fit.start(), about, source.n_rows, resume)
        found, passes = _find(engine, fit, state, kept.save)
        passes += 1 + int(_needs_gamma(options, settings))
        write_mapped(engine, found, folder, options.chunk_bytes, {"passes": passes, "made_by": made_by})
    kept.remove()
    costs = engine.costs
    peak = max([peak_bytes(), *costs.peaks.values()])
    return MadeFeatures(open_dataset(path), costs.read_bytes, peak, plan.projected_bytes)


def find_feature_map(source: RowSource, options: FeatureOptions, settings: TrainOptions) -> FeatureMap:
    """Return the feature map alone, and write nothing. The arguments and errors are those of `make_features`."""
    with caught(), one_blas_thread():
        return look_for_map(source, options, settings).map


def look_for_map(
    source: RowSource,
    options: FeatureOptions,
    settings: TrainOptions,
    kept: FeatureCheckpoint | None = None,
    resume: bool = False,
    client: Client | None = None,
    report: Report | None = None,
) -> FoundMap:
    """Return the feature map and what it cost, from what `kept` holds if `resume` is set. BLAS runs on one thread."""
    fit = set_up_map(source, options, put_stand_in(settings))
    with open_for_map(source, fit, settings, client) as (engine, plan):
        engine.costs.report = report
        fit = _settle(engine, options, settings, fit)
        state = fit.start()
        if kept is not None:
            state = kept.begin(state, {"fingerprint": source.fingerprint, **fit.settings}, source.n_rows, resume)
            kept.save(state)  # before any pass: its settings are those that a resumed run is compared with
        found, passes = _find(engine, fit, state, _forget if kept is None else kept.save)
        passes += int(_needs_gamma(options, settings))
        return FoundMap(found, passes, engine.costs.read_bytes, plan.projected_bytes)


def _forget(state: Any) -> None:
    """Keep nothing of a state."""


def open_for_map(
    source: RowSource, fit: MapFit, settings: TrainOptions, client: Client | None
) -> AbstractContextManager[Opened]:
    """Compile what the map needs, and open an engine with room for it.

    There are at most as many threads as groups of chunks, since further threads would be idle.
    """
    load = partial(compile_all, fit.compiled, source.is_sparse)
    load()
    threads = settings.threads
    if client is None and settings.workers is None and settings.scheduler is None:
        threads = min(threads or default_threads(), len(plan_groups(source)))
    return open_engine(
        source,
        load=load,
        memory=fit.memory,
        budget_bytes=settings.memory_bytes,
        threads=threads,
        workers=settings.workers,
        scheduler=settings.scheduler,
        client=client,
        remedy=REMEDY,
    )


def _settle(engine: Engine, options: FeatureOptions, settings: TrainOptions, fit: MapFit) -> MapFit:
    """Return the map set up with a number for gamma, measured in a pass if gamma is "scale"."""
    if not _needs_gamma(options, settings):
        return fit
    return set_up_map(engine.source, options, settle_gamma(engine, settings))


def _needs_gamma(options: FeatureOptions, settings: TrainOptions) -> bool:
    """Tell whether the rows have to be read for gamma."""
    return options.map != "polynomial" and needs_scale(settings)


def _find(engine: Engine, fit: MapFit, state: Any, keep: Keep) -> tuple[FeatureMap, int]:
    """Return the map, and the number of passes that found it. `keep` is called with the state after each pass."""
    states = [state]
    drive(engine, [_list_requests(fit, states, keep)])
    return fit.make_map(states[-1], lambda rows: engine.take(Take(rows))), states[-1].passes


def _list_requests(fit: MapFit, states: list[Any], keep: Keep) -> Requests:
    """Yield the requests of the solver, and append each of its states to `states`."""
    solver = fit.solve(states[-1])
    request = next(solver)
    while True:
        if not isinstance(request, Step):
            request = solver.send((yield request))
            continue
        if request.state.passes > states[-1].passes:
            keep(request.state)
        states.append(request.state)
        interrupts.check()
        if request.status:
            return
        request = solver.send(None)
