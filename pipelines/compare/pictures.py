"""Pictures of the comparison: suboptimality against seconds and against bytes read, with a panel for each problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines.compare.outcomes import Outcome, Rung
from pipelines.story import load_pyplot, save_pictures

COLUMNS = 3
FLOOR = 1e-7  # below this, the proof of the optimum is not accurate enough
STYLES = (  # by trainer: lines of streamsvm are solid with filled markers, all others are dashed with hollow markers
    ("streamsvm", "o"),
    ("streamsvm, line search", "s"),
    ("streamsvm, interior point", "D"),
    ("streamsvm smo", "o"),
    ("streamsvm irwls", "s"),
    ("streamsvm budgeted SGD", "^"),
    ("scikit-learn LinearSVC", "v"),
    ("scikit-learn SVC", "v"),
    ("scikit-learn SGDClassifier", "P"),
    ("scikit-learn Nystroem + SGD", "P"),
    ("LIBLINEAR", "X"),
    ("LIBSVM", "X"),
    ("snapml", "*"),
    ("scikit-learn-intelex SVC", "*"),
    ("dask-ml Incremental", "<"),
    ("Vowpal Wabbit", ">"),
)
Measure = Callable[[Rung], float | None]


def draw_all(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write PNGs of seconds and CPU seconds for all problems, and one of bytes read for the linear problems."""
    plt = load_pyplot()
    linear = [outcome for outcome in outcomes if outcome.problem.kind == "linear"]
    for name, measured, shown, xlabel in (
        ("compare_seconds", lambda rung: rung.seconds, outcomes, "seconds to train"),
        ("compare_cpu_seconds", lambda rung: rung.cpu_seconds, outcomes, "CPU seconds to train"),
        ("compare_bytes", lambda rung: rung.run.read_bytes, linear, "bytes read"),
    ):
        if shown:
            figure = draw(plt, shown, measured, xlabel)
            save_pictures(plt, folder, {name: figure}, dpi=75)


def draw(plt: Any, outcomes: Sequence[Outcome], measure: Measure, xlabel: str) -> Any:
    """Draw a grid of log-log panels, with one legend below all of them."""
    columns = min(COLUMNS, len(outcomes))
    rows = -(-len(outcomes) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.6 * columns, 3.6 * rows + 1.2), squeeze=False, layout="constrained"
    )
    panels = list(grid.ravel())
    for outcome, axes in zip(outcomes, panels, strict=False):
        draw_panel(axes, outcome, measure)
        axes.set(xscale="log", yscale="log", xlabel=xlabel)
        name_ticks(axes.xaxis)
        axes.set_title(outcome.problem.title, fontsize=10)
        axes.grid(visible=True, color="0.92")
    for axes in panels[len(outcomes) :]:
        axes.axis("off")
    for axes in grid[:, 0]:
        axes.set_ylabel("(P - optimum) / optimum")
    named = [pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in named}
    order = [name for name, _ in STYLES if name in handles]
    figure.legend([handles[name] for name in order], order, fontsize=8, ncols=columns + 1, loc="outside lower center")
    return figure


def name_ticks(axis: Any) -> None:
    """Label only the powers of ten; if at most one power is visible, label also 2 and 5 times each power."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_minor_formatter(NullFormatter())
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")


def draw_panel(axes: Any, outcome: Outcome, measure: Measure) -> None:
    """Draw one panel, with a line for each trainer through its rungs."""
    trainers = outcome.trainers()
    for k, (name, marker) in enumerate(STYLES):
        if name not in trainers:
            continue
        points = [
            (x, max(rung.suboptimality, FLOOR)) for rung in outcome.ladder(name) if (x := measure(rung)) is not None
        ]
        if not points:
            continue
        ours = name.startswith("streamsvm")
        axes.plot(
            *zip(*points, strict=True),
            "-" if ours else "--",
            marker=marker,
            color=f"C{k % 10}",
            label=name,
            ms=6,
            linewidth=1.8 if ours else 1.0,
            markerfacecolor=None if ours else "white",
        )
    axes.axhline(1e-3, color="0.6", linewidth=0.8, linestyle=":")
