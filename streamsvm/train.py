"""Training: a source of rows, an engine, a solver and a run's folder become a model and a result."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import __version__
from streamsvm.data.source import RowSource
from streamsvm.engines.dask import DistributedEngine, ThreadedEngine
from streamsvm.engines.group import plan_groups
from streamsvm.engines.memory import MemoryPlan, plan_memory
from streamsvm.engines.protocol import Engine, answer
from streamsvm.engines.workers import connect, prepare_worker, start_workers
from streamsvm.errors import InputError
from streamsvm.machine import default_budget_bytes, default_threads, file_page_bytes, peak_bytes, resident_bytes
from streamsvm.models import LinearModel
from streamsvm.numeric.warm_up import compile_kernels
from streamsvm.run import RunFolder
from streamsvm.solvers import cutting_plane
from streamsvm.solvers.cutting_plane import CUTS_A_PASS, CuttingPlane
from streamsvm.solvers.protocol import Solver, Step

if TYPE_CHECKING:
    from distributed import Client

SOLVERS = ("cutting-plane",)
OPTIONS = ("acceleration", "epsilon", "intercept_scaling", "max_cuts")
ClassWeight = Mapping[Any, float] | str | None


@dataclass(frozen=True)
class TrainOptions:
    """What to train and within which limits.

    C: cost a row, as in LIBSVM and scikit-learn; tol: relative duality gap. class_weight: factors by label, or
    "balanced" (n / (classes * count)). memory_bytes: for the whole resident memory of one process (None: half of the
    machine's); threads: in this process, or per worker; workers: processes on this machine; scheduler: address of a
    Dask cluster. options: the solver's own (acceleration="line-search"|"none", epsilon, intercept_scaling, max_cuts).
    """

    C: float = 1.0
    solver: str = "cutting-plane"
    class_weight: ClassWeight = None
    tol: float = 1e-3
    memory_bytes: int | None = None
    threads: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A trained model, its certificate, and what it cost. `as_json` is the object of INTERFACE."""

    model: LinearModel
    status: str
    solver: str
    objective: float
    lower_bound: float
    relative_gap: float
    passes: int
    steps: int
    seconds: float
    read_bytes: int
    peak_memory_bytes: int
    projected_memory_bytes: int
    file_page_bytes: int | None
    n_rows: int
    n_features: int
    model_sha256: str
    history: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Return the result without the model and the history."""
        shown = {name: value for name, value in vars(self).items() if name not in ("model", "history")}
        return {**shown, "n_support_vectors": None}


@dataclass
class Event:
    """What a listener is told after each step."""

    line: dict[str, Any]
    plan: MemoryPlan


Listener = Callable[[Event], None]


def train(
    source: RowSource, options: TrainOptions, out: str | Path | None = None, resume: bool = False,
    client: Client | None = None, listener: Listener = lambda _: None,
) -> Result:  # fmt: skip
    """Train on all rows of the source; with `out`, in a run's folder, from which a killed run is resumed.

    KeyboardInterrupt ends the run with status "interrupted" if there is a folder (the checkpoint is in it), and is
    raised otherwise. Raises InputError for bad settings and data, MemoryBudgetError before anything runs.
    """
    settings = make_solver(source, options)
    run = None if out is None else RunFolder(out, _describe(source, options, settings), resume)
    compile_kernels()
    with threadpool_limits(1), _open_engine(source, options, settings, client) as (engine, plan):
        return _Training(source, options, settings, engine, plan, run, listener).carry_out()


class _Training:
    """One run: drives the solver, step by step."""

    def __init__(
        self, source: RowSource, options: TrainOptions, settings: CuttingPlane, engine: Engine, plan: MemoryPlan,
        run: RunFolder | None, listener: Listener,
    ) -> None:  # fmt: skip
        self.source, self.options, self.settings, self.engine = source, options, settings, engine
        self.plan, self.run, self.listener = plan, run, listener
        self.history: list[dict[str, Any]] = []
        self.state, self.status = cutting_plane.start_state(source.n_features), ""
        self.seconds_before, self.read_before = 0.0, 0
        self.began = time.monotonic()

    def carry_out(self) -> Result:
        """Go on from the checkpoint, if there is one, to the end."""
        saved = self.run.begin(cutting_plane.State) if self.run else None
        if saved is not None:
            self.state, self.history = saved.state, saved.history
            self.status, self.seconds_before = saved.status, saved.seconds
            self.read_before = self.history[-1]["read_bytes"] if self.history else 0
        try:
            if self.status not in ("converged", "stalled"):
                self.status = ""
                self._drive(cutting_plane.solve(self.settings, self.source.n_features, self.state))
        except KeyboardInterrupt:
            if self.run is None or not self.history:
                raise
            self.status = self.status or "interrupted"  # it may have come just after the last step
        if self.run:
            self.run.save(self.state, len(self.history), self.status, self._seconds(), now=True)
        result = self._make_result()
        if self.run:
            self.run.finish(result.model.to_bytes(), result.as_json())
        return result

    def _drive(self, solver: Solver) -> None:
        self.status = self._limit(self.state.passes) if self.history else ""  # one pass at least: else no objective
        request = next(solver) if not self.status else None
        while request is not None:
            if isinstance(request, Step):
                self._note(request)
                if self.status:
                    return
                request = solver.send(None)
            else:
                request = solver.send(answer(self.engine, request))

    def _note(self, step: Step) -> None:
        progress = step.progress
        line = {
            "step": len(self.history) + 1,
            "passes": progress.passes,
            "objective": progress.objective,
            "lower_bound": progress.lower_bound,
            "relative_gap": progress.relative_gap,
            "seconds": round(self._seconds(), 4),
            "read_bytes": self.read_before + self.engine.costs.read_bytes,
            "memory_bytes": resident_bytes(),
        }
        if self.run:
            self.run.record(line)
        status = step.status or self._limit(progress.passes)
        self.state, self.history, self.status = step.state, [*self.history, line], status  # no Ctrl-C comes between
        if self.run:
            self.run.save(self.state, len(self.history), self.status, self._seconds())
        self.listener(Event(line, self.plan))

    def _limit(self, passes: int) -> str:
        if self.options.max_passes is not None and passes >= self.options.max_passes:
            return "pass_limit"
        if self.options.max_seconds is not None and self._seconds() >= self.options.max_seconds:
            return "time_limit"
        return ""

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def _make_result(self) -> Result:
        state = self.state
        gap = (state.objective - state.lower_bound) / state.objective if state.objective > 0 else 0.0
        certificate = {"status": self.status, "objective": state.objective, "lower_bound": state.lower_bound}
        info = {"solver": self.options.solver, "C": float(self.options.C), "version": __version__, **certificate}
        model = LinearModel(
            coef=state.best_w[:-1],
            intercept=float(state.best_w[-1] * self.settings.bias_feature),
            classes=np.asarray(self.source.classes),
            scaling=self.source.scaling,
            feature_names=self.source.feature_names,
            info=info,
        )
        return Result(
            model=model,
            status=self.status,
            objective=state.objective,
            lower_bound=state.lower_bound,
            solver=self.options.solver,
            relative_gap=gap,
            passes=state.passes,
            steps=len(self.history),
            seconds=self._seconds(),
            read_bytes=self.read_before + self.engine.costs.read_bytes,
            peak_memory_bytes=max(peak_bytes(), *self.engine.costs.peaks.values(), 0),
            projected_memory_bytes=self.plan.projected_bytes,
            file_page_bytes=file_page_bytes(),
            n_rows=self.source.n_rows,
            n_features=self.source.n_features,
            model_sha256=hashlib.sha256(model.to_bytes()).hexdigest(),
            history=self.history,
        )


def make_solver(source: RowSource, options: TrainOptions) -> CuttingPlane:
    """Return the solver's settings; InputError for what cannot be trained."""
    if options.solver not in SOLVERS:
        raise InputError(f"solver {options.solver!r}: choose from {', '.join(SOLVERS)}")
    for name, value in (("C", options.C), ("tol", options.tol)):
        if not (isinstance(value, Real) and np.isfinite(value) and value > 0):
            raise InputError(f"{name} is {value!r}; it must be positive and finite")
    unknown = sorted(set(options.options) - set(OPTIONS))
    if unknown:
        raise InputError(f"option {unknown[0]!r} is unknown to {options.solver}; there are {', '.join(OPTIONS)}")
    acceleration = options.options.get("acceleration", "line-search")
    if acceleration not in ("line-search", "none"):
        raise InputError(f"acceleration {acceleration!r}: choose from line-search, none")
    return CuttingPlane(
        class_costs=_class_costs(source, options),
        tol=float(options.tol),
        epsilon=_positive(options.options, "epsilon"),
        accelerated=acceleration == "line-search",
        bias_feature=_positive(options.options, "intercept_scaling") or 1.0,
        max_cuts=_max_cuts(options.options),
    )


def _positive(options: Mapping[str, str], name: str) -> float | None:
    if name not in options:
        return None
    try:
        value = float(options[name])
    except ValueError:
        value = float("nan")
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"option {name}={options[name]}: a positive number is expected")
    return value


def _max_cuts(options: Mapping[str, str]) -> int | None:
    value = _positive(options, "max_cuts")
    if value is not None and (value < CUTS_A_PASS or value != int(value)):
        raise InputError(f"option max_cuts={options['max_cuts']}: a whole number of at least {CUTS_A_PASS} is expected")
    return None if value is None else int(value)


def _class_costs(source: RowSource, options: TrainOptions) -> tuple[float, float]:
    if source.classes is None or source.class_counts is None:
        raise InputError(f"{source.name}: no labels to learn from")
    classes, weights = source.classes.tolist(), options.class_weight
    if len(classes) != 2:
        listed = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        raise InputError(f"{source.name}: {len(classes)} class{'es' * (len(classes) != 1)} ({listed}); two are needed")
    if weights == "balanced":
        costs = options.C * source.n_rows / (2.0 * source.class_counts)
    elif weights is None or isinstance(weights, Mapping):
        factors = np.ones(2)
        for label, weight in (weights or {}).items():
            codes = [code for code, known in enumerate(classes) if known == label or str(known) == str(label)]
            if not codes:
                raise InputError(f"class_weight names {label!r}; the classes are {classes[0]} and {classes[1]}")
            if not (np.isfinite(weight) and weight >= 0):
                raise InputError(f"class_weight of {label} is {weight}; it must be finite and not negative")
            factors[codes] = weight
        costs = options.C * factors
    else:
        raise InputError(f"class_weight {weights!r}: give weights by label, or 'balanced'")
    return float(costs[0]), float(costs[1])


def _describe(source: RowSource, options: TrainOptions, settings: CuttingPlane) -> dict[str, Any]:
    """Return what a resumed run must have in common with the run before."""
    settings_json = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(settings).items()}
    return {
        "solver": options.solver,
        "seed": options.seed,
        "data": source.name,
        "fingerprint": source.fingerprint,
        **settings_json,
    }


@contextmanager
def _open_engine(
    source: RowSource, options: TrainOptions, settings: CuttingPlane, client: Client | None
) -> Iterator[tuple[Engine, MemoryPlan]]:
    """Project memory, refuse what does not fit, and open the engine that was asked for."""
    budget = default_budget_bytes() if options.memory_bytes is None else options.memory_bytes
    threads = options.threads or default_threads()
    totals, solver = settings.totals_bytes(source.n_features), settings.driver_bytes(source.n_features)
    waiting = (len(plan_groups(source)) - 1).bit_length() * totals  # sums of the tree, for their other halves
    on_disk_bytes = source.nbytes if source.on_disk else 0
    if client is None and options.workers is None and options.scheduler is None:
        held = solver + waiting
        plan = plan_memory(budget, resident_bytes(), threads, source.stream_bytes(), totals, held, on_disk_bytes)
        engine = ThreadedEngine(source, threads, plan.pin_bytes)
        try:
            yield engine, plan
        finally:
            engine.close()
        return
    driver = plan_memory(budget, resident_bytes(), 1, 0, 2 * totals, solver, 0)
    cluster: Any = nullcontext(client)
    if client is None and options.scheduler is not None:
        cluster = connect(options.scheduler)
    elif client is None:
        cluster = start_workers(options.workers or default_threads(), options.threads or 1, budget)
    with cluster as opened:
        ready = opened.run(prepare_worker)
        if not ready:
            raise InputError(f"scheduler {opened.scheduler.address}: no workers are connected to it; start some first")
        base = max(worker.resident_bytes for worker in ready.values())
        threads = max(worker.threads for worker in ready.values())
        limit = min([budget, *(w.limit_bytes for w in ready.values() if w.limit_bytes)])
        plan = plan_memory(limit, base, threads, source.stream_bytes(), totals, 4 * totals + waiting, source.nbytes)
        distributed = DistributedEngine(source, opened, plan.pin_bytes)
        try:
            yield distributed, max(plan, driver, key=lambda each: each.projected_bytes)
        finally:
            distributed.close()
