"""Charts of the steps of runs: the gap, what was read, the time and the memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamsvm.cli.pages.bars import draw_bars
from streamsvm.cli.pages.chart import Frame, Series, draw_chart
from streamsvm.cli.pages.run_files import Run

MB = 1e6
# Of the charts of the gap: a unit, the column of the history, and what the column is divided by. Bytes are left out
# where all rows stay in memory, so that every step has read the same.
X_AXES = (("passes", "passes", 1.0), ("seconds", "seconds", 1.0), ("MB read", "read_bytes", MB))


def draw_progress(runs: Sequence[Run]) -> list[str]:
    """Return SVG charts with a line for each run. Those of the gap are left out if no solver proves one.

    There are none of runs of one step, which are no curves.
    """
    charts: list[str] = []
    if all(len(run.history) == 1 for run in runs):
        return charts
    if any(line.get("relative_gap") is not None for run in runs for line in run.history):
        for unit, column, scale in X_AXES:
            if column != "read_bytes" or any(len(set(run.column(column))) > 1 for run in runs):
                lines = _draw_lines(runs, column, "relative_gap", scale)
                charts.append(draw_chart(f"Gap against {unit}", unit, "relative gap", lines, log=True))
        charts.append(draw_chart("Objective and lower bound", "passes", "P and D", _draw_bounds(runs), log=True))
    else:
        lines = _draw_lines(runs, "seconds", "objective")
        charts.append(draw_chart("Objective (estimated)", "seconds", "P", lines, log=True))
    if watched := [run for run in runs if any("eval_score" in line for line in run.history)]:
        lines = _draw_lines(watched, "passes", "eval_score")
        frame = Frame("passes", "measure", from_zero=False)
        charts.append(draw_chart("Measure of held-out rows", "", "", lines, frame=frame))
    return charts


def draw_costs(runs: Sequence[Run]) -> list[str]:
    """Return SVG charts of where the time went, what was read, and memory beside its projection."""
    charts = [_draw_time(run, len(runs) > 1) for run in runs if run.history and "solver_seconds" in run.history[-1]]
    if all(len(run.history) == 1 for run in runs):
        return charts
    read = _draw_lines(runs, "seconds", "read_bytes", 1.0, MB)
    charts.append(draw_chart("Read from storage", "seconds", "MB", read))
    return [*charts, draw_chart("Resident memory of this process", "seconds", "MB", _draw_memory(runs))]


def _draw_lines(runs: Sequence[Run], x: str, y: str, x_scale: float = 1.0, y_scale: float = 1.0) -> list[Series]:
    """Return a line for each run: one column of its history against another."""
    told = [run.name if len(runs) > 1 else "" for run in runs]
    return [
        Series(name, [v / x_scale for v in run.column(x)], [v / y_scale for v in run.column(y)])
        for name, run in zip(told, runs, strict=True)
    ]


def _draw_bounds(runs: Sequence[Run]) -> list[Series]:
    """Return two lines for each run, of one colour: P, and the lower bound with dashes."""
    lines = []
    for k, run in enumerate(runs):
        own = f"{run.name}: " if len(runs) > 1 else ""
        passes, color = run.column("passes"), k if len(runs) > 1 else None
        lines.append(Series(f"{own}objective", passes, run.column("objective"), color=color))
        lines.append(Series(f"{own}lower bound", passes, run.column("lower_bound"), dashed=True, color=color))
    return lines


def _draw_time(run: Run, named: bool) -> str:
    """Return bars of the seconds of a run: in passes over the data, and in the solver between them.

    The time of the passes is divided as that of their tasks was, if the run has ended and tells it.
    """
    title = "Where the time went" + (f" ({run.name})" if named else "")
    last: dict[str, Any] = run.history[-1]
    whole = float((run.result or last)["seconds"])
    tasks = (run.result or {}).get("task_seconds", {})
    parts = {"passes over the data": last["pass_seconds"]}
    if all_tasks := sum(tasks.values()):
        names = {"read": "passes: reading", "verify": "passes: verifying", "compute": "passes: computing"}
        parts = {names[name]: last["pass_seconds"] * value / all_tasks for name, value in tasks.items()}
    parts["solver between them"] = last["solver_seconds"]
    parts["all else"] = max(0.0, whole - sum(parts.values()))
    share = 100 / max(whole, 1e-9)
    return draw_bars(title, [(name, value, f"{value:.3g} s, {value * share:.0f}%") for name, value in parts.items()])


def _draw_memory(runs: Sequence[Run]) -> list[Series]:
    """Return the memory of each run as it was measured, and with dashes the projection."""
    lines = []
    for k, run in enumerate(runs):
        own, color = f"{run.name}: " if len(runs) > 1 else "", k if len(runs) > 1 else None
        seconds = run.column("seconds")
        lines.append(Series(f"{own}measured", seconds, [v / MB for v in run.column("memory_bytes")], color=color))
        if run.result and seconds:
            projected = run.result["projected_memory_bytes"] / MB
            ends = [0.0, max(seconds)]
            lines.append(Series(f"{own}projected", ends, [projected, projected], dashed=True, color=color))
    return lines
