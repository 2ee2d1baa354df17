"""The outcome of a grid of settings: a table as text, and an HTML page with charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from streamsvm import __version__
from streamsvm.cli.chart import Series, draw_chart
from streamsvm.cli.report import STYLE
from streamsvm.errors import say_count
from streamsvm.training.trials import Trial, Tuning


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


def make_tuning_page(name: str, tuning: Tuning) -> str:
    """Return an HTML page: how wrong held-out rows are predicted, and the passes, against C."""
    problem, lines = tuning.result.model.problem, _split(tuning.trials)
    wrong = [_draw_series(name, line, lambda trial: problem.best_score - trial.mean) for name, line in lines.items()]
    passes = [_draw_series(name, line, lambda trial: float(trial.passes)) for name, line in lines.items()]
    charts = (
        draw_chart(problem.error, "log10 C", "share" if problem.best_score == 1.0 else "error", wrong),
        draw_chart("Passes of the longest fit", "log10 C", "passes", passes),
    )
    figures = "\n".join(f"<figure>{chart}</figure>" for chart in charts)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(name)}</title><style>{STYLE}</style>\n'
        f'<h1>{escape(name)}</h1>\n<div class="charts">{figures}</div>\n<pre>{escape(format_tuning(tuning))}</pre>\n'
        f'<p class="note">streamsvm {__version__}</p></html>\n'
    )


def show_setting(value: object) -> str:
    """Return a value of a setting as a user writes it."""
    if isinstance(value, Mapping):
        return ",".join(f"{label}={weight:.4g}" for label, weight in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _split(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Return the trials that differ in C alone, by what they share."""
    lines: dict[str, list[Trial]] = {}
    for trial in trials:
        shared = {**({} if trial.gamma is None else {"gamma": trial.gamma}), **trial.others}
        name = ", ".join(f"{key} {show_setting(value)}" for key, value in shared.items())
        lines.setdefault(name, []).append(trial)
    return lines


def _draw_series(name: str, trials: Sequence[Trial], measure: Callable[[Trial], float]) -> Series:
    """Return a line of a chart: the measure of trials against log10 C."""
    return Series(name, [math.log10(trial.C) for trial in trials], [measure(trial) for trial in trials])
