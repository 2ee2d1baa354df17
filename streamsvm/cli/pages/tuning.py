"""The outcome of a grid of settings: a table as text, and a section of a page with charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from streamsvm.cli.pages.axes import Axis, mark_values
from streamsvm.cli.pages.chart import Frame, Series, draw_chart
from streamsvm.cli.pages.page import Section, Table
from streamsvm.errors import say_count
from streamsvm.training.trials import Tuning

OF_A_TRIAL = ("C", "scores", "converged", "passes", "mean")  # what is no other setting
MOST_LINES = 12  # of a chart
FAR_APART = 10.0  # ratio of errors from which an axis is logarithmic


def format_tuning(tuning: Tuning) -> str:
    """Return a table with a line for each setting, in which the best one is marked."""
    problem = tuning.result.model.problem
    axes = list(tuning.best.others)
    named = "".join(f"{name:>24}" for name in axes)
    lines = [f"        C     gamma{named}   {problem.measure:<22}   passes"]
    form = ".4f" if problem.best_score == 1.0 else ".5g"  # shares, or errors of any size
    for trial in tuning.trials:
        gamma = "" if trial.gamma is None else f"{trial.gamma:.4g}"
        spread = (max(trial.scores) - min(trial.scores)) / 2
        note = ("  <- best" if trial is tuning.best else "") + ("" if trial.converged else "  (not converged)")
        shown = f"{trial.mean:{form}} +- {spread:{form}}"
        others = "".join(f"{show_setting(trial.others[name]):>24}" for name in axes)
        lines.append(f"{trial.C:>9.4g} {gamma:>9}{others}   {shown:<22}   {trial.passes:>6}{note}")
    folds = len(tuning.best.scores)
    n_fits = f"{say_count(len(tuning.trials) * folds, 'fit')} ({say_count(folds, 'fold')})"
    lines.append(f"{n_fits} in {say_count(tuning.passes, 'read')} of the data, {tuning.seconds:.1f} s")
    return "\n".join(lines)


def show_setting(value: object) -> str:
    """Return a value of a setting as a user writes it."""
    if isinstance(value, Mapping):
        return ",".join(f"{label}={weight:.4g}" for label, weight in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show_tuning(told: Mapping[str, Any]) -> Section:
    """Return charts of the error of held-out rows and of the passes against C, and a table of all settings.

    told: the object that `tune --json` prints. Error bars go from the best fold of a setting to its worst.
    """
    grid, trials = told["grid"], told["trials"]
    best, error = grid.get("best_score", 1.0), grid.get("error", "Wrong on held-out rows")
    lines = _split(trials)
    x_axis, costs = mark_values([trial["C"] for trial in trials]), len({trial["C"] for trial in trials})
    unit = "share" if best == 1.0 else "error"
    wrong = [_draw_series(name, line, best) for name, line in list(lines.items())[:MOST_LINES]]
    errors = [value for line in wrong for value in line.y]
    far = min(errors) > 0 and max(errors) / min(errors) >= FAR_APART
    charts = [draw_chart(error, "", "", wrong, frame=_frame(unit, x_axis, far))]
    passes = [
        Series(name, [trial["C"] for trial in line], [float(trial["passes"]) for trial in line])
        for name, line in list(lines.items())[:MOST_LINES]
    ]
    if len({trial["passes"] for trial in trials}) > 1:
        charts.append(draw_chart("Passes of the longest fit", "", "", passes, frame=_frame("passes", x_axis, True)))
    notes = [
        f"{say_count(len(trials), 'setting')}, {say_count(costs, 'cost')} C, in {say_count(grid['passes'], 'read')} of "
        f"the data and {grid['seconds']:.1f} s. The best setting is trained on all rows. Points are means of the "
        "folds, and bars go from the best fold to the worst."
    ]
    if len(lines) > MOST_LINES:
        notes.append(f"The charts show the first {MOST_LINES} of {len(lines):,} lines; the table has all settings.")
    return Section("Grid", notes, charts, [_list_trials(told, grid.get("measure", "right on held-out rows"))])


def _frame(unit: str, x_axis: Axis, log: bool) -> Frame:
    return Frame("C (cost of a row)", unit, log=log, log_x=True, from_zero=False, x_axis=x_axis)


def _split(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the trials that differ in C alone, in the order of C, by what they share."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for trial in trials:
        name = ", ".join(f"{key} {show_setting(value)}" for key, value in _list_others(trial).items())
        lines.setdefault(name, []).append(trial)
    return {name: sorted(line, key=lambda trial: trial["C"]) for name, line in lines.items()}


def _list_others(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial other than C, by name."""
    return {key: value for key, value in trial.items() if key not in OF_A_TRIAL and value is not None}


def _draw_series(name: str, trials: Sequence[Mapping[str, Any]], best: float) -> Series:
    """Return how far the scores of trials are from the best one, with bars over the folds."""
    spread = [(best - max(trial["scores"]), best - min(trial["scores"])) for trial in trials]
    return Series(name, [trial["C"] for trial in trials], [best - trial["mean"] for trial in trials], spread=spread)


def _list_trials(told: Mapping[str, Any], measure: str) -> Table:
    """Return a table with a row for each setting, the best mean first."""
    others = list(_list_others(told["trials"][0]))
    rows = []
    for trial in sorted(told["trials"], key=lambda trial: -trial["mean"]):
        n_folds = len(trial["scores"])
        error = math.sqrt(
            sum((score - trial["mean"]) ** 2 for score in trial["scores"]) / max(1, n_folds - 1) / n_folds
        )
        is_best = all(trial[key] == told.get(key) for key in ("C", *others))
        note = " (best)" if is_best else ""
        proved = "yes" if trial["converged"] else "no"
        named = [show_setting(trial[key]) for key in others]
        rows.append(
            [f"{trial['C']:.4g}{note}", *named, f"{trial['mean']:.6g}", f"{error:.2g}", proved, f"{trial['passes']:,}"]
        )
    return Table(rows, ["C", *others, measure, "standard error", "converged", "passes"])
