"""Training on mapped rows: passes find a feature map, and the training then maps the rows in every pass.

No features are written. The folder of the run contains `map.npz`, the state of the passes that find the map, from which
a resumed run makes the same map. BLAS runs on one thread, since the order of its sums changes the last bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.data.rows.views import Mapped
from streamsvm.engines.engine import Engine
from streamsvm.engines.open import Client, Opened, is_local, open_engine
from streamsvm.kernels.feature_maps import FeatureMap, Features
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.passes import Step, Take
from streamsvm.runs.folder import MAP_FILE, GridFolder, RunFolder
from streamsvm.runs.gamma_scale import needs_scale, resolve_gamma, stand_in_for_gamma
from streamsvm.runs.records import FeatureCheckpoint
from streamsvm.runs.results import NO_COST, PriorCost
from streamsvm.runs.train import drive, open_for, take_steps
from streamsvm.solvers.feature_map.setup import FeatureMapSolver
from streamsvm.solvers.options import FeatureOptions
from streamsvm.solvers.set_up import choose_solver, compile_all, set_up, settle_task
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.machine import default_threads

REMEDY = "use fewer --threads (n_jobs=... in Python), a lower --rank or a smaller --chunk-bytes"

Report = Callable[[int], None]


@contextmanager
def find_map(
    source: RowSource,
    options: FeatureOptions,
    settings: TrainOptions,
    kept: FeatureCheckpoint | None = None,
    resume: bool = False,
    client: Client | None = None,
    report: Report | None = None,
    saves_start: bool = False,
) -> Iterator[tuple[Engine, FeatureMap, PriorCost]]:
    """Find a feature map; yield the open engine, the map and its cost.

    kept: the checkpoint, from which the passes resume if `resume` is set. saves_start: whether to write it before the
    first pass, too. The caller must limit BLAS to one thread.
    """
    fit, began = FeatureMapSolver(source, options, stand_in_for_gamma(settings)), time.monotonic()
    with deadline.limit(settings.max_seconds), _open_for_map(fit, settings, client) as (engine, plan):
        engine.costs.report = report
        measures_gamma = options.map != "polynomial" and needs_scale(settings)
        if measures_gamma:
            fit = FeatureMapSolver(source, options, resolve_gamma(engine, settings))
        state = fit.start()
        if kept is not None:
            state = kept.begin(state, {"fingerprint": source.fingerprint, **fit.settings}, source.n_rows, resume)
            if saves_start:
                kept.save(state)

        def keep(step: Step) -> bool:
            nonlocal state
            if kept is not None and step.state.passes > state.passes:
                kept.save(step.state)
            state = step.state
            interrupts.check()
            return bool(step.status)

        drive(engine, [take_steps(fit.solve(state), keep)])
        found = fit.make_map(state, lambda rows: engine.take(Take(rows)))
        cost = engine.costs.read_bytes, time.monotonic() - began, plan.projected_bytes
        yield engine, found, PriorCost(state.passes + int(measures_gamma), *cost)


def _open_for_map(
    fit: FeatureMapSolver, settings: TrainOptions, client: Client | None
) -> AbstractContextManager[Opened]:
    """Compile the kernels of the map, and open an engine with room for it.

    At most one thread per group of chunks is started, since further threads would be idle.
    """
    source, load = fit.source, partial(compile_all, fit.compiled, fit.source.is_sparse)
    load()
    if is_local(settings, client):
        settings = replace(settings, threads=min(settings.threads or default_threads(), len(plan_groups(source))))
    return open_engine(source, settings, fit.memory, load, client, REMEDY)


@dataclass(frozen=True)
class LearnedRows:
    """The rows and settings of a training, and further arguments for `train`.

    spent: the cost of finding the feature map, if there is one.
    """

    source: RowSource
    options: TrainOptions
    arguments: dict[str, Any] = field(default_factory=dict)
    spent: PriorCost = NO_COST


def make_linear(features: FeatureOptions, options: TrainOptions, source: RowSource) -> TrainOptions:
    """Return the settings of a linear solver for the features. Raises InputError for an unsuitable solver or rank."""
    method = choose_solver(replace(options, kernel="linear"))
    if method.kernels != ("linear",):
        raise InputError(
            f"solver {method.name}: evaluates kernels itself; features (--map) need a solver for linear models"
        )
    if features.map != "polynomial" and features.rank > source.n_rows:
        n_rows = say_count(source.n_rows, "row")
        raise InputError(
            f"rank (n_components in Python) is {features.rank}; {source.name} has {n_rows}, and the rank cannot exceed "
            "this"
        )
    return replace(options, kernel="linear", gamma="scale")


@contextmanager
def open_rows(
    source: RowSource,
    features: FeatureOptions | None,
    options: TrainOptions,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    client: Client | None = None,
    keep_dual: bool = False,
    report: Report | None = None,
    for_grid: bool = False,
) -> Iterator[LearnedRows]:
    """Find a feature map, and yield the mapped rows for a linear model; without `features`, yield the rows as they are.

    Impossible settings, and a training that would exceed the memory, are refused before any row is read. With a map,
    the folder of the run is locked until the end of the block. Without a folder, the passes that find the map are not
    saved.

    Parameters
    ----------
    source : RowSource
        The raw rows.
    features : FeatureOptions or None
        The map, its rank and its seed. Options for writing a dataset have no effect.
    options : TrainOptions
        The settings of the training. The map approximates the kernel given by kernel, gamma, degree and coef0.
    report : callable, optional
        Called with the number of rows of each group of chunks after it is read for the map.
    for_grid : bool, default False
        Whether `out` is the folder of a grid, and the yielded arguments are for `tune`.
    out, resume, overwrite, client, keep_dual
        See `train`. Pass the yielded arguments to `train`, or to `tune` for a grid.

    Raises
    ------
    InputError, MemoryBudgetError, ConnectionError, KeyboardInterrupt
        As in `train` and `make_features`.
    """
    options = settle_task(source, options)
    if features is None:
        yield LearnedRows(source, options, {"resume": resume, "overwrite": overwrite})
        return
    linear = make_linear(features, options, source)
    features = replace(features, chunk_bytes=1)  # no chunks of features are written, so they need no memory
    folder: RunFolder | GridFolder | None = None
    if out is not None:
        folder = GridFolder(out, None, resume, overwrite) if for_grid else RunFolder(out, {}, resume, overwrite)
    with interrupts.caught(), one_blas_thread(), closing(folder) if folder else nullcontext():
        stand_in = FeatureMapSolver(source, features, stand_in_for_gamma(options))
        mapped = Mapped(source, Features(stand_in.stand_in(), source.scaling, source.feature_names))
        fit = set_up(mapped, linear, keep_dual)
        if is_local(linear, client):  # on a cluster, this check would start the workers twice
            with _open_for_map(stand_in, options, None):
                pass
            with open_for(mapped, linear, [[fit]], None):
                pass
        del mapped, fit  # they hold a placeholder map as large as the real one
        if folder:
            folder.acquire()
        kept = None if folder is None else FeatureCheckpoint(folder.path / MAP_FILE)
        with find_map(source, features, options, kept, resume, client, report, saves_start=True) as (_, found, spent):
            pass  # the engine is closed before the training opens its own
        mapped = Mapped(source, Features(found, source.scaling, source.feature_names))
        arguments = {"resume": True, "lock": folder.lock if folder else None, **({} if for_grid else {"spent": spent})}
        yield LearnedRows(mapped, linear, arguments, spent)
