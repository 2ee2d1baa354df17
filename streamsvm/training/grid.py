"""Many settings, one read of the data: a grid of C and gamma by cross-validation, and the best one trained on all rows.

Fits of all folds go on side by side, in each of them a chain of small C and one of large C, where a fit starts from the
last; in each round one read of the data answers all that they ask for (engines.one_read). Rows that a fold holds out
have weight 0. One more read counts how many of them each model gets right, or, of rankings, how many of their pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.methods.held_out import hold_out
from streamsvm.methods.set_up import choose_method, set_up
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64, I32, Rows, take_rows
from streamsvm.options import TrainOptions, check_numbers, make_kernel
from streamsvm.problems.problem import Problem
from streamsvm.problems.registry import find_problem
from streamsvm.requests import Scan
from streamsvm.training.grid_folder import GridFolder
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.train import Event, Job, Result, settle_gammas, train, train_chains

if TYPE_CHECKING:
    from distributed import Client

Progress = Callable[[tuple[int, int, Event]], None]  # fits that are done, of how many, and a step of one
Folds = npt.NDArray[np.uint8]
MOST_FOLDS = 255


@dataclass(frozen=True)
class Trial:
    """One setting. scores: by fold, share of held-out rows (or pairs) that are right; passes: of the longest fit."""

    C: float
    gamma: float | None
    scores: tuple[float, ...]
    converged: bool
    passes: int

    @property
    def mean(self) -> float:
        """Mean over the folds."""
        return float(np.mean(self.scores))


@dataclass(frozen=True)
class Tuning:
    """A grid's trials, the best of them (the smallest C where several are), and its model, trained on all rows.

    passes, read_bytes, seconds: of the grid, its evaluation included; those of the last training are in `result`. A
    grid that was resumed counts all passes, but only the bytes and seconds since.
    """

    trials: tuple[Trial, ...]
    best: Trial
    result: Result
    passes: int
    read_bytes: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return all but the model."""
        trials = [{**vars(trial), "mean": trial.mean} for trial in self.trials]
        grid = {"passes": self.passes, "read_bytes": self.read_bytes, "seconds": self.seconds}
        return {**self.result.as_json(), "C": self.best.C, "gamma": self.best.gamma, "trials": trials, "grid": grid}


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
) -> Tuning:
    """Try all C (and gamma), and train the best on all rows, in the folder `out` if there is one.

    Folds are drawn by the seed, of each class alike; of a ranking, whole queries. resume: every fit goes on from its
    last checkpoint in `out` (see grid_folder), to the bits of a grid that was never stopped. overwrite: a run or grid
    that is there is replaced. Raises as `train` does; KeyboardInterrupt, once the fits are saved.
    """
    settings = {
        "data": source.name,
        "fingerprint": source.fingerprint,
        "solver": options.solver,
        "task": options.task,
        "kernel": options.kernel,
        "C": sorted(set(costs)),
        "gamma": list(gammas) or [options.gamma],
        "folds": folds,
        "seed": options.seed,
    }
    folder = None if out is None else GridFolder(out, settings, resume, overwrite)
    _refuse(options, costs, gammas)
    fold = draw_folds(source, options, folds)
    grid = _make_grid(source, options, costs, gammas, client)
    with closing(folder) if folder else nullcontext():
        return _carry_out(source, grid, fold, folder, client, progress)


def _carry_out(
    source: RowSource,
    grid: list[TrainOptions],
    fold: Folds,
    folder: GridFolder | None,
    client: Client | None,
    progress: Progress,
) -> Tuning:
    began, folds, options = time.monotonic(), int(fold.max()) + 1, grid[0]
    kept = [fold != k for k in range(folds)]
    chains = [[(each, hold_out(source, each, rows)) for each in part] for part in _split(grid) for rows in kept]
    counter = _Counter(progress, options.tol, len(grid) * folds)
    open_fit = partial(_open_fit, folder, chains, folds)
    with train_chains(source, chains, client, counter.note, open_fit) as (engine, found):
        results = [
            [chain[place] for chain in found[at : at + folds]]
            for at in range(0, len(chains), folds)
            for place in range(len(chains[at]))
        ]
        models = [result.model for by_fold in results for result in by_fold]
        scores = _score(engine, source, models, fold, folds, find_problem(options.task)).reshape(len(grid), folds)
        read_bytes = engine.costs.read_bytes
    trials = [
        Trial(
            C=float(each.C),
            gamma=float(each.gamma) if each.kernel != "linear" else None,
            scores=tuple(by_fold.tolist()),
            converged=all(result.status == "converged" for result in own),
            passes=max(result.passes for result in own),
        )
        for each, by_fold, own in zip(grid, scores, results, strict=True)
    ]
    passes = 1 + max(sum(result.passes for result in chain) for chain in found)
    best = int(np.argmax([trial.mean for trial in trials]))
    seconds = time.monotonic() - began
    result = train(
        source,
        grid[best],
        folder.out if folder else None,
        resume=folder is not None,
        client=client,
        listener=lambda event: progress((counter.n_fits, counter.n_fits, event)),
        lock=folder.lock if folder else None,
    )
    return Tuning(tuple(trials), trials[best], result, passes, read_bytes, seconds)


def _open_fit(
    folder: GridFolder | None,
    chains: Sequence[Sequence[Job]],
    folds: int,
    chain: int,
    place: int,
    settings: dict[str, Any],
) -> RunFolder | None:
    """Open the folder of a fit, made with the grid's at the first one."""
    if folder is None:
        return None
    if folder.lock is None:
        folder.begin()
    options, _ = chains[chain][place]
    name = f"fold{chain % folds}-C{float(options.C)!r}"
    if options.kernel != "linear":
        name += f"-gamma{float(options.gamma)!r}"
    return folder.open_fit(name, settings, len(chains))


class _Counter:
    """Tells how many fits are done."""

    def __init__(self, progress: Progress, tol: float, n_fits: int) -> None:
        self.progress, self.tol, self.n_fits = progress, tol, n_fits
        self._done: set[tuple[int, int]] = set()

    def note(self, chain: int, place: int, event: Event) -> None:
        """Take note of a step of one fit."""
        gap = event.line["relative_gap"]  # None where nothing is proved
        if gap is not None and gap <= self.tol:
            self._done.add((chain, place))
        self.progress((len(self._done), self.n_fits, event))


def _split(grid: list[TrainOptions]) -> Iterator[list[TrainOptions]]:
    """Cut the C of each gamma in two: a fit starts from the last one of its half (cuts of one C are cuts of another).

    30,000 rows of Covertype, six C: in one chain the fits of a fold make 105 passes, one after another; in two 117, in
    72 reads; if each starts anew 206, in 66. (Side by side, and given each other's cuts as they come: 237, in 92.)
    """
    for _, mine in groupby(grid, key=lambda each: each.gamma):
        whole = list(mine)
        middle = -(-len(whole) // 2)
        yield from filter(None, (whole[:middle], whole[middle:]))


def _refuse(options: TrainOptions, costs: Sequence[float], gammas: Sequence[float | str]) -> None:
    """InputError for a grid that there cannot be, before any rows are read."""
    if not costs:
        raise InputError("no C is given to try")
    for C in costs:
        check_numbers(replace(options, C=C))
    method = choose_method(options)
    if not method.takes_numbered_rows:
        raise InputError(
            f"solver {method.name}: it cannot be tuned; its rows come without numbers, and folds need them"
        )
    if gammas and options.kernel == "linear":
        raise InputError("gamma: the kernel linear has none; leave it out")


def _make_grid(
    source: RowSource,
    options: TrainOptions,
    costs: Sequence[float],
    gammas: Sequence[float | str],
    client: Client | None = None,
) -> list[TrainOptions]:
    """Return the settings, the smallest C first; "scale" reads the rows once, for all."""
    if options.kernel != "linear":
        set_up(source, replace(options, gamma="auto"))  # refuses what cannot be trained, before rows are read
        asked = [replace(options, gamma=gamma) for gamma in gammas or (options.gamma,)]
        kinds = [make_kernel(source, each).gamma for each in settle_gammas(source, asked, client)]
    else:
        kinds = [1.0]
    if options.resident_rows is None:
        options = replace(options, options={**choose_method(options).side_by_side, **options.options})
    return [replace(options, C=C, gamma=gamma) for gamma, C in product(sorted(set(kinds)), sorted(set(costs)))]


def draw_folds(source: RowSource, options: TrainOptions, folds: int) -> Folds:
    """Return the fold of each row, (n,): drawn by the seed, each class (or whole queries) shared out evenly."""
    if not 2 <= folds <= MOST_FOLDS:
        raise InputError(f"folds is {folds}; from 2 to {MOST_FOLDS} are possible")
    if source.column("y") is None:
        raise InputError(f"{source.name}: no labels to learn from")
    return find_problem(options.task).draw_folds(source, folds, np.random.default_rng(options.seed))


def _score(engine: Engine, source: RowSource, models: list[Model], fold: Folds, folds: int, problem: Problem) -> F64:
    """Return how good the scores of held-out rows are, of each model: a pass."""
    if problem.count_right is not None:
        add = partial(_count_right, models, folds, source)
        right, rows = engine.scan(Scan(partial(np.zeros, (2, len(models))), add, np.add, by_row=(fold,)))
        return np.asarray(right / rows)
    tiles = engine.scan(Scan(list, partial(_note_scores, models, folds, source), _join, by_row=(fold,)))
    scores = np.concatenate([part for _, part in sorted(tiles, key=lambda tile: tile[0])])
    labels, qid = source.column("y"), source.column("qid") if problem.reads_queries else None
    assert labels is not None
    found = []
    for k in range(len(models)):
        mine = fold == k % folds
        found.append(problem.share_right(scores[mine, k // folds], labels[mine], None if qid is None else qid[mine]))
    return np.array(found)


def _score_held_out(models: list[Model], folds: int, source: RowSource, rows: Rows, fold: Folds) -> Any:
    """Scores of the rows of each fold by the models that have not learnt them: number of the model, rows, scores."""
    for k in range(folds):
        mine = np.flatnonzero(fold == k)
        if len(mine) == 0:
            continue
        X = take_rows(rows.X, mine)
        for at in range(k, len(models), folds):
            scorer = models[at].scorer(source.n_features, source.scaling, source.is_sparse, source.features)
            yield at, mine, scorer(X)


def _count_right(models: list[Model], folds: int, source: RowSource, totals: F64, rows: Rows, fold: Folds) -> None:
    y: I32 | None = rows.y
    count_right = models[0].problem.count_right
    assert y is not None
    assert count_right is not None
    for at, mine, scores in _score_held_out(models, folds, source, rows, fold):
        totals[0, at] += count_right(scores, y[mine])
        totals[1, at] += len(mine)


def _note_scores(models: list[Model], folds: int, source: RowSource, tiles: list[Any], rows: Rows, fold: Folds) -> None:
    scores = np.empty((rows.n_rows, len(models) // folds))
    for at, mine, found in _score_held_out(models, folds, source, rows, fold):
        scores[mine, at // folds] = found
    tiles.append((rows.start, scores))


def _join(left: list[Any], right: list[Any]) -> list[Any]:
    return left + right
