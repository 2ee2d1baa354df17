"""A grid of settings by cross-validation, in shared reads of the data; the best setting is trained on all rows.

The fits of a fold are in chains (training.chains). One read a round answers the requests of all chains
(engines.one_read). Held-out rows have weight 0, and one more read scores them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.data.view import Kept
from streamsvm.errors import InputError
from streamsvm.interrupts import caught
from streamsvm.locks import Lock
from streamsvm.methods.set_up import choose_method, settle_task
from streamsvm.numeric.kernel_codes import has_gamma
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions, check_numbers, make_kernel
from streamsvm.problems.registry import find_problem
from streamsvm.training.calibrate import require_folds, train_with_probabilities
from streamsvm.training.chains import make_chains
from streamsvm.training.folds import Folds, draw_folds, keep
from streamsvm.training.grid_folder import GridFolder
from streamsvm.training.held_out_scores import score_held_out
from streamsvm.training.result import Event, Listener, Result
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.statistics import needs_scale, put_stand_in, settle_gammas
from streamsvm.training.together import Job, list_fits, run_chains
from streamsvm.training.train import open_for, train
from streamsvm.training.trials import Trial, Tuning

if TYPE_CHECKING:
    from distributed import Client

Progress = Callable[[tuple[int, int, Event]], None]  # the number of finished fits, that of all fits, and a fit's step
Axes = Mapping[str, Sequence[Any]]
AXES = {
    "loss": "loss",
    "epsilon": "has_epsilon",
    "nu": "has_nu",
    "class_weight": "has_class_costs",
}  # and what reads them


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
) -> Tuning:
    """Cross-validate a grid of settings, and train the best setting on all rows. The errors are those of `train`.

    Parameters
    ----------
    costs, gammas : sequence of float
        Values of C and gamma to try; a gamma may be "scale" or "auto". Without gammas, that of the options is taken.
    folds : int, default 5
        From 2 to 254; see `draw_folds`.
    others : mapping of str to sequence, optional
        Values of `loss`, `epsilon`, `nu` and `class_weight` to try.
    forward : bool, default False
        Whether each fold comes after all rows that its fit is trained on, in the order of the groups.
    lock : Lock, optional
        The lock of a caller who writes to `out` already.
    probabilities : {"sigmoid", "isotonic", "temperature"}, optional
        How the scores of the best model become probabilities; see `train_with_probabilities`.
    source, options, out, client, progress, resume, overwrite
        See `train` and Progress. Ctrl-C saves all fits in `out`; a resumed grid has the bits of one never stopped.
    """
    options = settle_task(source, options)
    if probabilities is not None:
        require_folds(options, probabilities)
    axes = {name: list(values) for name, values in (others or {}).items() if values}
    settings = {
        "data": source.name,
        "fingerprint": source.fingerprint,
        "solver": choose_method(options).name,
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
    }
    folder = None if out is None else GridFolder(out, settings, resume, overwrite, lock)
    _refuse(options, costs, gammas, axes)
    fold = draw_folds(source, options, folds, forward)
    grid = _make_grid(source, options, costs, gammas, axes)
    views = [Kept(source, keep(fold, k, forward)) for k in range(folds)]
    with closing(folder) if folder else nullcontext():
        return _carry_out(source, grid, axes, fold, views, folder, client, progress, probabilities)


def _carry_out(
    source: RowSource,
    grid: list[TrainOptions],
    axes: Axes,
    fold: Folds,
    views: list[Kept],
    folder: GridFolder | None,
    client: Client | None,
    progress: Progress,
    probabilities: str | None,
) -> Tuning:
    """Carry the fits out and score them in one engine, and train the best setting. grid: as `_make_grid` returns it."""
    began, folds, n_measured = time.monotonic(), len(views), int(any(map(needs_scale, grid)))
    chains = make_chains([put_stand_in(each) for each in grid], views)
    counter = _Counter(progress, grid[0].tol, len(grid) * folds)
    with caught(), one_blas_thread(), open_for(source, grid[0], list_fits(chains), client) as opened:
        if folder:
            folder.take_over()
        if n_measured:
            grid = _sort(settle_gammas(opened[0], grid), axes)
            chains = make_chains(grid, views)
            counter.n_fits = len(grid) * folds
        found = run_chains(source, chains, opened, counter.note, partial(_open_fit, folder, chains, folds, axes))
        results = _list_by_setting(found, folds)
        models = [result.model for by_fold in results for result in by_fold]
        problem = find_problem(grid[0].task)
        scores = score_held_out(opened[0], source, models, fold, folds, problem).reshape(len(grid), folds)
        read_bytes = opened[0].costs.read_bytes
    trials = tuple(map(partial(_describe_trial, axes), grid, scores, results))
    passes = n_measured + max(sum(result.passes for result in chain) for chain in found) + 1
    best, seconds = int(np.argmax([trial.mean for trial in trials])), time.monotonic() - began
    result = _train_best(source, grid[best], folder, client, counter.note_last, probabilities)
    return Tuning(trials, trials[best], result, passes, read_bytes, seconds)


def _train_best(
    source: RowSource,
    options: TrainOptions,
    folder: GridFolder | None,
    client: Client | None,
    listener: Listener,
    probabilities: str | None,
) -> Result:
    """Train the best setting on all rows, in the folder of the grid."""
    given: dict[str, Any] = {"client": client, "listener": listener}
    if folder is not None:
        given |= {"out": folder.out, "resume": True, "lock": folder.lock}
    if probabilities is not None:
        return train_with_probabilities(source, options, probabilities, **given)
    return train(source, options, **given)


def _list_by_setting(found: list[list[Result]], folds: int) -> list[list[Result]]:
    """Return the results of each setting, by fold, from the results of each chain."""
    return [
        [chain[place] for chain in found[at : at + folds]]
        for at in range(0, len(found), folds)
        for place in range(len(found[at]))
    ]


def _describe_trial(axes: Axes, options: TrainOptions, scores: F64, results: list[Result]) -> Trial:
    return Trial(
        C=float(options.C),
        gamma=float(options.gamma) if has_gamma(options.kernel) else None,
        scores=tuple(scores.tolist()),
        converged=all(result.status == "converged" for result in results),
        passes=max(result.passes for result in results),
        others={name: getattr(options, name) for name in axes},
    )


def _open_fit(
    folder: GridFolder | None,
    chains: Sequence[Sequence[Job]],
    folds: int,
    axes: Axes,
    chain: int,
    place: int,
    settings: dict[str, Any],
) -> RunFolder | None:
    """Open the folder of a fit."""
    if folder is None:
        return None
    options, _ = chains[chain][place]
    name = f"fold{chain % folds}-C{float(options.C)!r}"
    if has_gamma(options.kernel):
        name += f"-gamma{float(options.gamma)!r}"
    for axis, values in axes.items():
        name += f"-{axis}{values.index(getattr(options, axis))}"
    return folder.open_fit(name, settings, len(chains))


class _Counter:
    """Counts the fits that are done, and reports the number with each step."""

    def __init__(self, progress: Progress, tol: float, n_fits: int) -> None:
        self.progress, self.tol, self.n_fits = progress, tol, n_fits
        self._done: set[tuple[int, int]] = set()

    def note(self, chain: int, place: int, event: Event) -> None:
        """Take note of a step of the fit at this place of a chain, and report it."""
        gap = event.line["relative_gap"]  # None where nothing is proved
        if gap is not None and gap <= self.tol:
            self._done.add((chain, place))
        self.progress((len(self._done), self.n_fits, event))

    def note_last(self, event: Event) -> None:
        """Take note of a step of the training on all rows, when all fits are done, and report it."""
        self.progress((self.n_fits, self.n_fits, event))


def _refuse(options: TrainOptions, costs: Sequence[float], gammas: Sequence[float | str], axes: Axes) -> None:
    """InputError for a grid that there cannot be, before any rows are read."""
    if not costs:
        raise InputError("no C is given to try: write some, such as --C 0.01,0.1,1,10 (C=[0.01, 0.1, 1, 10] in Python)")
    for C in costs:
        check_numbers(replace(options, C=C))
    for name in axes:
        if name not in AXES:
            raise InputError(f"tune: {name!r} cannot be tried; C, gamma, {', '.join(AXES)} can")
        if not getattr(find_problem(options.task), AXES[name], True):
            raise InputError(f"{name} has no effect with the task {options.task}: leave it out")
    for loss in axes.get("loss", [options.loss]):
        method = choose_method(replace(options, loss=loss))
        if not method.takes_numbered_rows:
            raise InputError(
                f"solver {method.name}: it cannot be tuned; its rows come without numbers, and folds need them"
            )
    if gammas and not has_gamma(options.kernel):
        raise InputError(f"gamma: the kernel {options.kernel} has none; leave it out")


def _make_grid(
    source: RowSource, options: TrainOptions, costs: Sequence[float], gammas: Sequence[float | str], axes: Axes
) -> list[TrainOptions]:
    """Return the settings as `_sort` does. A gamma of "scale", which has yet to be measured, is the last."""
    kinds: set[float | str] = {1.0}
    if has_gamma(options.kernel):
        asked = [replace(options, gamma=gamma) for gamma in gammas or (options.gamma,)]
        kinds = {each.gamma if needs_scale(each) else make_kernel(source, each).gamma for each in asked}
    others = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    by_value = product(others, kinds, set(costs))
    return _sort([replace(options, C=C, gamma=gamma, **chosen) for chosen, gamma, C in by_value], axes)


def _sort(grid: list[TrainOptions], axes: Axes) -> list[TrainOptions]:
    """Return the settings in the order of the axes, then by ascending gamma and C, each once; "scale" is the last."""
    by_value = {}
    for each in grid:
        places = tuple(values.index(getattr(each, name)) for name, values in axes.items())
        by_value[places, isinstance(each.gamma, str), each.gamma, each.C] = each
    return [by_value[key] for key in sorted(by_value)]


def _describe(value: Any) -> Any:
    """Return a value of an axis as JSON has it."""
    return {str(label): float(weight) for label, weight in value.items()} if isinstance(value, Mapping) else value
