"""Training of several models that share reads of the data, and grid search by cross-validation.

In each round, one read answers the requests of all trainings (engines.merge). Each fit of a grid is set up as a single
fit with its part of the memory would be. Fits with warm starts run in two chains for each fold, one for small C and one
for large C, in which each fit starts from its predecessor. Other fits begin in the first read; if memory has no room
for the rows of all these fits, some of them wait for others. Held-out rows have weight 0; one more read scores them
with the models of all folds and settings. Finally, the best setting is trained on all rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.data.rows.views import HeldOut
from streamsvm.engines.open import Client, Opened
from streamsvm.kernels.names import has_gamma
from streamsvm.models.evaluate import WITH_PROBABILITIES, find_scoring
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions, check_numbers, make_kernel
from streamsvm.passes import Request
from streamsvm.problems.problem import Folds, Scoring
from streamsvm.problems.registry import find_entry, find_problem
from streamsvm.runs.calibrate import FoldFits, make_folds, require_folds, train_with_probabilities
from streamsvm.runs.folder import GridFolder, RunFolder
from streamsvm.runs.gamma_scale import needs_scale, resolve_gammas, stand_in_for_gamma
from streamsvm.runs.held_out import (
    draw_folds,
    keep,
    measure_folds,
    need_for_scores,
    require_defined,
    score_held_out,
)
from streamsvm.runs.results import Event, Listener, PriorCost, Result
from streamsvm.runs.train import LOGGER, Training, describe, drive, open_for
from streamsvm.solvers.set_up import choose_solver, hold_out, set_up, settle_task
from streamsvm.solvers.solver import Solver, share_memory
from streamsvm.system import deadline
from streamsvm.system.display import Shown
from streamsvm.system.errors import InputError, TimeLimitError
from streamsvm.system.files import Lock
from streamsvm.system.interrupts import caught

Job = tuple[TrainOptions, Solver]
OpenFolder = Callable[[int, int, dict[str, Any]], RunFolder | None]


def train_together(
    source: RowSource, many: Sequence[TrainOptions], client: Client | None = None, listener: Listener = lambda _: None
) -> list[Result]:
    """Train several models side by side. In each round, one read of the data serves all of them.

    Each model stops independently of the others. It is bit-identical to the model of `train` with an equal part of the
    memory for resident rows. Models of budgeted SGD share reads only if they have the same seed and number of replicas,
    and thus learn the rows in the same order.

    Parameters
    ----------
    source : RowSource
        The rows, in chunks.
    many : sequence of TrainOptions
        The settings of each model, such as a grid of C and gamma or several class weights. The first settings determine
        the threads, workers, scheduler, and the memory budget, which all solvers share.
    client : distributed.Client, optional
        A Dask cluster that carries out the passes. By default the first settings determine the engine.
    listener : callable, optional
        Called with an Event after each step of each model.

    Returns
    -------
    list of Result
        One result per model. Its read_bytes count the reads of all models until this model was finished.

    Raises
    ------
    InputError, MemoryBudgetError, ConnectionError, KeyboardInterrupt
        As in `train` without a folder: nothing is saved.
    """
    if not many:
        raise InputError("no settings to train with are given")
    many = [settle_task(source, replace(each, memory_bytes=many[0].memory_bytes)) for each in many]
    jobs = _set_up_each(source, many, [stand_in_for_gamma(each) for each in many])
    with caught(), one_blas_thread(), open_for(source, many[0], list_fits(jobs), client) as opened:
        settled = resolve_gammas(opened[0], many)
        if settled != list(many):
            jobs = _set_up_each(source, many, settled)
        results = run_chains(source, jobs, opened, lambda _chain, _place, event: listener(event))
        return [result for chain in results for result in chain]


def _set_up_each(source: RowSource, asked: Sequence[TrainOptions], known: Sequence[TrainOptions]) -> list[list[Job]]:
    """Return a chain of one fit for each of the settings; the fits share the memory.

    asked: the settings as given by the user; with gamma="scale", a training counts the read that computes gamma. known:
    the same settings, with a number for gamma.
    """
    shares = [share_memory(each, len(known), choose_solver(each).process_bytes) for each in known]
    return [[(each, set_up(source, mine, n_fits=len(asked)))] for each, mine in zip(asked, shares, strict=True)]


def run_chains(
    source: RowSource,
    chains: Sequence[Sequence[Job]],
    opened: Opened,
    listener: Callable[[int, int, Event], object],
    open_folder: OpenFolder = lambda *_: None,
) -> list[list[Result]]:
    """Run chains of fits side by side on an open engine, and return the results of each chain.

    Within a chain, a fit with a warm start starts from the last state of its predecessor. The listener is called with
    the number of the chain, the position of the fit in it, and the event. open_folder opens the folder of a fit, given
    chain, position and settings. A fit resumes from the checkpoint in its folder; after Ctrl-C, the last step of each
    fit is saved.
    """
    live: dict[int, Training] = {}

    def run_chain(k: int) -> Generator[Request, Any, list[Result]]:
        results = []
        for place, (options, fit) in enumerate(chains[k]):
            folder = open_folder(k, place, describe(source, options, fit))
            training = Training(source, options, fit, *opened, folder, partial(listener, k, place))
            if place and fit.starts_warm:
                training.state = fit.warm_start(live[k].state, options.C / live[k].options.C)
            training.begin()  # from its own checkpoint, if there is one
            live[k] = training
            if training.is_done():  # the fit is complete in its checkpoint, so no further step reports it
                training.listener(Event(training.history[-1], training.plan))
            else:
                yield from training.requests()
                training.save()
            results.append(training.make_result())
        return results

    try:
        with deadline.held(lambda: bool(live) and all(training.is_late() for training in live.values())):
            return drive(opened[0], list(map(run_chain, range(len(chains)))))
    except (KeyboardInterrupt, TimeLimitError):
        for training in live.values():
            training.save()
        raise


def list_fits(chains: Sequence[Sequence[Job]]) -> list[list[Solver]]:
    """Return the fits of each chain, so that an engine can reserve memory for them."""
    return [[fit for _, fit in chain] for chain in chains]


def make_chains(grid: Sequence[TrainOptions], views: Sequence[HeldOut]) -> list[list[Job]]:
    """Return the chains of fits: for each fold, a chain of fits for each chain of settings."""
    n_fits = len(grid) * len(views)
    by_loss = (list(same) for _, same in groupby(grid, key=lambda each: each.loss))
    return [chain for same in by_loss for chain in _make_for_solver(same, views, n_fits)]


def _make_for_solver(grid: Sequence[TrainOptions], views: Sequence[HeldOut], n_fits: int) -> list[list[Job]]:
    """Return the chains for the settings of one loss, and hence of one solver.

    Each fit is set up as a single fit with its part of the memory would be. Fits with warm starts form two chains for
    each fold, and other fits begin in the first read. n_fits: the number of all fits, which share the memory. If a fit
    notes that its part is too small, two chains or one for each fold are tried, since then fewer fits share the memory.
    """
    n_settings = len(grid)

    def hold_out_each(n_chains: int) -> list[list[Job]]:
        n_shares = -(-n_fits * n_chains // n_settings)
        return [[(each, hold_out(view, each, n_shares)) for view in views] for each in grid]

    by_setting = hold_out_each(n_settings)
    first = by_setting[0][0][1]
    parts = list(_split(by_setting)) if first.starts_warm else [[jobs] for jobs in by_setting]
    for n_chains in range(min(2, n_settings - 1), 0, -1) if first.note else ():
        longer, length = hold_out_each(n_chains), -(-n_settings // n_chains)
        if not any(fit.note or fit.starts_warm for jobs in longer for _, fit in jobs):
            parts = [longer[at : at + length] for at in range(0, n_settings, length)]
            break
    return [list(chain) for part in parts for chain in zip(*part, strict=True)]


def _split(by_setting: Sequence[list[Job]]) -> Iterator[list[list[Job]]]:
    """Split settings that differ only in C into two chains. Each fit starts from its predecessor and reuses its cuts.

    Measured on 30,000 rows of Covertype with six C: the fits of a fold make 105 passes in one chain, 117 in two chains
    (72 reads), 206 without warm starts (66 reads), and 237 side by side with shared cuts (92 reads).
    """
    for _, mine in groupby(by_setting, key=lambda jobs: replace(jobs[0][0], C=1.0)):
        whole = list(mine)
        middle = -(-len(whole) // 2)
        yield from filter(None, (whole[:middle], whole[middle:]))


IN_TUNING = ("status", "objective", "lower bound", "gap")  # facts about the training on all rows that a tuning shows


@dataclass(frozen=True)
class Trial:
    """A setting, its score on the held-out rows of each fold, and the passes of its longest fit.

    others: the other settings that vary in the grid, by name (loss, epsilon, nu, class_weight).
    """

    C: float
    gamma: float | None
    scores: tuple[float, ...]
    converged: bool
    passes: int
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name, as in scikit-learn's search classes."""
        return {"C": self.C, **({} if self.gamma is None else {"gamma": self.gamma}), **self.others}

    @property
    def mean(self) -> float:
        """Mean score of the folds."""
        return float(np.mean(self.scores))

    @property
    def std(self) -> float:
        """Standard deviation of the scores of the folds, with the divisor n as in scikit-learn's `std_test_score`."""
        return float(np.std(self.scores))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean score: s / sqrt(n), where s is the standard deviation with the divisor n - 1."""
        return float(np.std(self.scores, ddof=1) / np.sqrt(len(self.scores)))


@dataclass(frozen=True, repr=False)
class Tuning(Shown):
    """The trials of a grid, the best trial (the smallest C in a tie), and `result`, its training on all rows.

    scoring: the name of the measure of the scores. ideal_score: the best value that it can have.

    passes, read_bytes and seconds are the costs of training and scoring the trials, including the read for
    gamma="scale" but not the training on all rows. A resumed grid counts all its passes, but bytes and seconds only
    since it was resumed.
    """

    trials: tuple[Trial, ...]
    best: Trial
    result: Result
    passes: int
    read_bytes: int
    seconds: float
    scoring: str

    @property
    def ideal_score(self) -> float:
        """The best value of the measure: 0 for errors, whose names begin with neg_, and 1 otherwise."""
        return 0.0 if self.scoring.startswith("neg_") else 1.0

    def _list_facts(self) -> dict[str, str | None]:
        best = ", ".join(f"{name} {value}" for name, value in self.best.params.items())
        return {
            "best": f"{best}, mean {self.scoring} {self.best.mean:.4f}",
            "trials": f"{len(self.trials):,}",
            "passes": f"{self.passes:,}",
            **{name: value for name, value in self.result._list_facts().items() if name in IN_TUNING},
        }

    def to_frame(self) -> Any:
        """Return the trials as a pandas DataFrame: one row per setting, with the mean, spread and values of its scores.

        Raises ImportError without pandas.
        """
        rows = []
        for trial in self.trials:
            by_fold = {f"fold {k}": score for k, score in enumerate(trial.scores)}
            ended = {"converged": trial.converged, "passes": trial.passes}
            spread = {"std": trial.std, "standard error": trial.standard_error}
            rows.append({**trial.params, "mean": trial.mean, **spread, **by_fold, **ended})
        return import_module("pandas").DataFrame(rows)

    def as_json(self) -> dict[str, Any]:
        """Return the tuning without its model, as `tune --json` prints it."""
        derived = ("mean", "std", "standard_error")
        trials = [{**vars(x), **x.others, **{name: getattr(x, name) for name in derived}} for x in self.trials]
        for trial in trials:
            del trial["others"]
        grid = {name: getattr(self, name) for name in ("passes", "read_bytes", "seconds", "scoring", "ideal_score")}
        best = {"C": self.best.C, "gamma": self.best.gamma, **self.best.others}
        return {**self.result.as_json(), **best, "trials": trials, "grid": grid}


Progress = Callable[[tuple[int, int, Event]], None]  # called with (finished fits, all fits, event of a step)
Axes = Mapping[str, Sequence[Any]]
# settings that can vary in a grid, and the attribute of Problem that is true if the setting has an effect
AXES = {"loss": "loss", "epsilon": "has_epsilon", "nu": "has_nu", "class_weight": "has_class_costs"}


def tune(
    source: RowSource,
    options: TrainOptions,
    costs: Sequence[float],
    gammas: Sequence[float | str] = (),
    folds: int = 5,
    out: str | Path | None = None,
    client: Client | None = None,
    progress: Progress = lambda _: None,
    resume: bool = False,
    overwrite: bool = False,
    others: Axes | None = None,
    forward: bool = False,
    lock: Lock | None = None,
    probabilities: str | None = None,
    scoring: str | None = None,
) -> Tuning:
    """Cross-validate a grid of settings, and train the best one on all rows. Raises the errors of `train`.

    Parameters
    ----------
    costs, gammas : sequence of float
        Values of C and gamma to try; a gamma may be "scale" or "auto". By default, the gamma of the options is used.
    folds : int, default 5
        From 2 to 254; see `draw_folds`.
    others : mapping of str to sequence, optional
        Values of `loss`, `epsilon`, `nu` and `class_weight` to try.
    forward : bool, default False
        Whether each fold comes after all training rows of its fit, in the order of the groups.
    lock : Lock, optional
        The lock of a caller that already writes to `out`.
    probabilities : {"sigmoid", "isotonic", "temperature"}, optional
        How the scores of the best model become probabilities; see `make_folds`.
    scoring : str, optional
        The name of the measure that chooses the best setting (models.evaluate.find_scoring).
    source, options, out, client, progress, resume, overwrite
        See `train` and Progress. Ctrl-C saves all fits in `out`; a resumed grid gives the same bits as an uninterrupted
        one.
    """
    options = settle_task(source, options)
    require_folds(options, probabilities)
    axes = {name: list(values) for name, values in (others or {}).items() if values}
    measure, usual = (_find_measure(source, options, name) for name in (scoring, None))
    settings = {
        "data": source.name,
        "fingerprint": source.fingerprint,
        "solver": choose_solver(options).name,
        "task": options.task,
        **({} if options.loss is None else {"loss": options.loss}),
        **({} if options.penalty == "l2" else {"penalty": options.penalty}),
        **({} if options.multi_class is None else {"multi_class": options.multi_class}),
        "kernel": options.kernel,
        "C": sorted(set(costs)),
        "gamma": list(gammas) or [options.gamma],
        "folds": folds,
        "seed": options.seed,
        **({"axes": {name: list(map(_describe, values)) for name, values in axes.items()}} if axes else {}),
        **({"forward": True} if forward else {}),
        **({} if measure == usual else {"scoring": scoring}),
    }
    folder = None if out is None else GridFolder(out, settings, resume, overwrite, lock)
    _refuse(options, costs, gammas, axes)
    fold = draw_folds(source, options, folds, forward)
    if measure != usual:
        _refuse_measure(source, options, axes, fold, folds, measure)
    beside = make_folds(source, options, probabilities, None if forward else (folds, fold)) if probabilities else None
    grid = _make_grid(source, options, costs, gammas, axes)
    views = [HeldOut(source, keep(fold, k, forward)) for k in range(folds)]
    with closing(folder) if folder else nullcontext():
        return _carry_out(source, grid, axes, fold, views, measure, folder, client, progress, beside)


def _carry_out(
    source: RowSource,
    grid: list[TrainOptions],
    axes: Axes,
    fold: Folds,
    views: list[HeldOut],
    measure: Scoring,
    folder: GridFolder | None,
    client: Client | None,
    progress: Progress,
    beside: FoldFits | None,
) -> Tuning:
    """Run and score all fits on one engine, and train the best setting. grid: the result of `_make_grid`."""
    began, folds, n_measured = time.monotonic(), len(views), int(any(map(needs_scale, grid)))
    chains, done = make_chains([stand_in_for_gamma(each) for each in grid], views), set[tuple[int, int]]()

    def open_fit(chain: int, place: int, settings: dict[str, Any]) -> RunFolder | None:
        name = _name_fit(chains[chain][place][0], axes, chain % folds)
        return None if folder is None else folder.open_fit(name, settings, len(chains))

    def report(chain: int, place: int, event: Event) -> None:
        gap = event.line["relative_gap"]  # None without a lower bound
        if gap is not None and gap <= grid[0].tol:
            done.add((chain, place))
        progress((len(done), sum(map(len, chains)), event))

    for note in {fit.note: None for chain in chains for _, fit in chain if fit.note}:
        LOGGER.info("each fit of the grid: %s", note)
    scores_need = need_for_scores(source, len(grid), folds, measure)
    opening = open_for(source, grid[0], list_fits(chains), client, scores_need)
    with caught(), one_blas_thread(), opening as (engine, plan):
        if folder:
            folder.acquire()
        if n_measured:
            grid = _sort(resolve_gammas(engine, grid), axes)
            chains = make_chains(grid, views)
        found = run_chains(source, chains, (engine, plan), report, open_fit)
        blocks = [found[at : at + folds] for at in range(0, len(found), folds)]  # the scores of a setting, by fold
        results = [list(by_fold) for block in blocks for by_fold in zip(*block, strict=True)]
        models = [result.model for by_fold in results for result in by_fold]
        with deadline.limit(grid[0].max_seconds):
            scores = score_held_out(engine, source, models, fold, folds, measure).reshape(len(grid), folds)
    trials = tuple(map(partial(_describe_trial, axes), grid, scores, results))
    passes = n_measured + max(sum(result.passes for result in chain) for chain in found) + 1
    best, seconds = int(np.argmax([trial.mean for trial in trials])), time.monotonic() - began
    n_fits = sum(map(len, chains))
    given: dict[str, Any] = {"client": client, "listener": lambda event: progress((n_fits, n_fits, event))}
    given["spent"] = PriorCost(projected_bytes=plan.projected_bytes)  # the peak of the process includes the grid
    if folder is not None:
        given |= {"out": folder.root, "resume": True, "lock": folder.lock}
    result = train_with_probabilities(source, grid[best], beside, **given)
    return Tuning(trials, trials[best], result, passes, engine.costs.read_bytes, seconds, measure.names[0])


def _describe_trial(axes: Axes, options: TrainOptions, scores: F64, results: list[Result]) -> Trial:
    return Trial(
        C=float(options.C),
        gamma=float(options.gamma) if has_gamma(options.kernel) else None,
        scores=tuple(scores.tolist()),
        converged=all(result.status == "converged" for result in results),
        passes=max(result.passes for result in results),
        others={name: getattr(options, name) for name in axes},
    )


def _name_fit(options: TrainOptions, axes: Axes, fold: int) -> str:
    """Return the name of the folder of a fit."""
    name = f"fold{fold}-C{float(options.C)!r}"
    if has_gamma(options.kernel):
        name += f"-gamma{float(options.gamma)!r}"
    return name + "".join(f"-{axis}{values.index(getattr(options, axis))}" for axis, values in axes.items())


def _refuse(options: TrainOptions, costs: Sequence[float], gammas: Sequence[float | str], axes: Axes) -> None:
    """Raise InputError for an impossible grid, before any rows are read."""
    if not costs:
        raise InputError("no values of C to try: give some, such as --C 0.01,0.1,1,10 (C=[0.01, 0.1, 1, 10] in Python)")
    for C in costs:
        check_numbers(replace(options, C=C))
    for name in axes:
        if name not in AXES:
            raise InputError(f"tune: {name!r} cannot be searched; C, gamma, {', '.join(AXES)} can")
        if not getattr(find_problem(options.task), AXES[name], True):
            raise InputError(f"{name} has no effect with the task {options.task}: omit it")
    for loss in axes.get("loss", [options.loss]):
        method = choose_solver(replace(options, loss=loss))
        if not method.takes_numbered_rows:
            raise InputError(
                f"solver {method.name}: cannot be tuned, since folds need numbered rows, which it does not support"
            )
    if gammas and not has_gamma(options.kernel):
        raise InputError(f"gamma: the kernel {options.kernel} has no gamma; omit it")


def _find_measure(source: RowSource, options: TrainOptions, name: str | None) -> Scoring:
    return find_scoring(name, find_problem(options.task), 0 if source.classes is None else len(source.classes))


def _refuse_measure(
    source: RowSource, options: TrainOptions, axes: Axes, fold: Folds, folds: int, measure: Scoring
) -> None:
    """Raise InputError if a loss, or the rows of a fold, do not suit the measure."""
    losses = axes.get("loss", [options.loss or next(iter(find_entry(options.task).losses))])
    if measure.of_probabilities and not set(losses) <= set(WITH_PROBABILITIES):
        raise InputError(
            f"scoring {measure.names[0]!r} measures probabilities, which only some losses give: tune with --loss "
            "logistic (loss='logistic' in Python) or --multi-class multinomial (task='multinomial'), or choose another "
            "scoring"
        )
    if measure.add is None:
        problem = find_problem(options.task)
        require_defined(source, measure, measure_folds(source, problem, fold, folds, measure), folds)


def _make_grid(
    source: RowSource, options: TrainOptions, costs: Sequence[float], gammas: Sequence[float | str], axes: Axes
) -> list[TrainOptions]:
    """Return the settings in the order of `_sort`. A gamma "scale" that is not measured yet comes last."""
    kinds: set[float | str] = {1.0}
    if has_gamma(options.kernel):
        asked = [replace(options, gamma=gamma) for gamma in gammas or (options.gamma,)]
        kinds = {each.gamma if needs_scale(each) else make_kernel(source, each).gamma for each in asked}
    others = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    by_value = product(others, kinds, set(costs))
    return _sort([replace(options, C=C, gamma=gamma, **chosen) for chosen, gamma, C in by_value], axes)


def _sort(grid: list[TrainOptions], axes: Axes) -> list[TrainOptions]:
    """Sort settings by the axes, then by ascending gamma and C, and drop duplicates; gamma "scale" comes last."""
    by_value = {}
    for each in grid:
        places = tuple(values.index(getattr(each, name)) for name, values in axes.items())
        by_value[places, isinstance(each.gamma, str), each.gamma, each.C] = each
    return [by_value[key] for key in sorted(by_value)]


def _describe(value: Any) -> Any:
    """Return a value of an axis as JSON."""
    return {str(label): float(weight) for label, weight in value.items()} if isinstance(value, Mapping) else value
