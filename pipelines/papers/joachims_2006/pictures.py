"""The pictures of joachims_2006: Figures 1, 2 and 4 to 9 as in the paper, with logarithmic axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.papers.joachims_2006.results import Results
from pipelines.papers.joachims_2006.runs import ALGORITHM_1, ALGORITHM_2, EPSILON, SEARCH_1, Method
from pipelines.story import load_pyplot, save_pictures

MARKERS = "os^DvP*"
Points = list[tuple[float, float]]


def draw_all(results: Results, folder: Path) -> None:
    """Write a PNG of every figure."""
    plt = load_pyplot()
    figures = {
        "figure_1": draw_times(plt, results),
        "figure_2": draw_iterations(plt, results),
        "figures_4_to_6": draw_epsilon(plt, results),
        "figure_7": draw_distances(plt, results),
        "figure_8": draw_costs(plt, results),
        "figure_9": draw_cost_times(plt, results),
    }
    save_pictures(plt, folder, figures)


def make_panels(plt: Any, titles: Iterable[str], sharey: bool = True) -> tuple[Any, list[Any]]:
    """Return a figure and its panels side by side."""
    titles = list(titles)
    figure, panels = plt.subplots(
        1, len(titles), figsize=(4.2 * len(titles), 5.0), sharey=sharey, squeeze=False, layout="constrained"
    )
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title, fontsize=10)
    return figure, list(panels[0])


def plot_lines(axes: Any, results: Results, lines: Mapping[str, Points], xlabel: str) -> None:
    """Draw a line for each problem, dashed for stand-ins, with logarithmic axes."""
    for (name, problem), marker in zip(results.problems.items(), MARKERS, strict=False):
        style = "-" if problem.files else "--"
        axes.plot(
            *zip(*lines[name], strict=True),
            style,
            marker=marker,
            ms=4,
            linewidth=1.2,
            label=problem.label,
            color=f"C{list(results.problems).index(name)}",
        )
    axes.set(xscale="log", yscale="log", xlabel=xlabel)
    axes.tick_params(axis="x", which="minor", labelbottom=False)


def add_slope(axes: Any, power: float, label: str) -> None:
    """Draw the line of the paper, which has this slope, through the middle of the panel's points."""
    (left, right), (bottom, top) = axes.dataLim.intervalx, axes.dataLim.intervaly
    middle = (left * right) ** 0.5, (bottom * top) ** 0.5
    ends = [left, right]
    axes.plot(ends, [middle[1] * (x / middle[0]) ** power for x in ends], color="black", linestyle=":", label=label)


def finish(figure: Any, axes: Any, title: str) -> Any:
    """Draw one legend below all panels, and label the published lines within the panels."""
    handles, labels = axes.get_legend_handles_labels()
    shown = [(h, text) for h, text in zip(handles, labels, strict=True) if not text.startswith("published")]
    figure.legend(*zip(*shown, strict=True), fontsize=8, ncols=4, loc="outside lower center")
    figure.suptitle(title)
    return figure


def tell_slope(axes: Any) -> None:
    """Label the published line of a panel."""
    handles, labels = axes.get_legend_handles_labels()
    shown = [(h, text) for h, text in zip(handles, labels, strict=True) if text.startswith("published")]
    if shown:
        axes.legend(*zip(*shown, strict=True), fontsize=8, loc="upper left")


def by_rows(results: Results, method: Method, what: str) -> dict[str, Points]:
    """Return points (n, seconds or iterations) by problem."""
    return {
        name: [(run.n_rows, getattr(run, what)) for run in methods[method]] for name, methods in results.sizes.items()
    }


def draw_times(plt: Any, results: Results) -> Any:
    """Draw Figure 1."""
    figure, panels = make_panels(
        plt,
        ("Algorithm 1", "LIBSVM, for SVMlight", "Algorithm 1, best C for each n", "Algorithm 2, ordinal regression"),
    )
    light: dict[str, Points] = {
        name: [(peer.n_rows, peer.seconds) for peer in peers] for name, peers in results.light.items()
    }
    chosen: dict[str, Points] = {
        name: [(one.run.n_rows, one.run.seconds) for one in lines] for name, lines in results.chosen.items()
    }
    one, two = (by_rows(results, method, "seconds") for method in (ALGORITHM_1, ALGORITHM_2))
    drawn = ((one, 0.8), (light, 1.7), (chosen, 1.0), (two, 0.8))
    for axes, (lines, power) in zip(panels, drawn, strict=True):
        plot_lines(axes, results, lines, "training rows")
        add_slope(axes, power, f"published: n^{power}")
        tell_slope(axes)
    panels[0].set_ylabel("CPU seconds")
    return finish(figure, panels[0], "Figure 1: training time against the number of rows")


def draw_iterations(plt: Any, results: Results) -> Any:
    """Draw Figure 2."""
    figure, panels = make_panels(plt, ("Algorithm 1", "Algorithm 2", "line search, classification"))
    for axes, method in zip(panels, (ALGORITHM_1, ALGORITHM_2, SEARCH_1), strict=True):
        plot_lines(axes, results, by_rows(results, method, "iterations"), "training rows")
    panels[0].set_ylabel("iterations")
    return finish(figure, panels[0], "Figure 2: iterations against the number of rows")


def draw_epsilon(plt: Any, results: Results) -> Any:
    """Draw Figures 4, 5 and 6."""
    figure, panels = make_panels(
        plt, ("Figure 4: test performance", "Figure 5: iterations", "Figure 6: CPU seconds"), sharey=False
    )
    runs = {name: methods[ALGORITHM_1] for name, methods in results.epsilons.items()}
    apart = {
        name: [(e, run.performance - by[EPSILON].performance) for e, run in by.items()] for name, by in runs.items()
    }
    plot_lines(panels[0], results, apart, "epsilon")
    panels[0].set(yscale="linear", ylabel="points more than at 0.001")
    for axes, what, power in zip(panels[1:], ("iterations", "seconds"), (-0.3, -0.4), strict=True):
        lines = {name: [(e, getattr(run, what)) for e, run in by.items()] for name, by in runs.items()}
        plot_lines(axes, results, lines, "epsilon")
        add_slope(axes, power, f"published: 1 / epsilon^{-power}")
        axes.legend(*[part[-1:] for part in axes.get_legend_handles_labels()], fontsize=8, loc="upper right")
    return finish(figure, panels[0], "Algorithm 1 against epsilon")


def draw_distances(plt: Any, results: Results) -> Any:
    """Draw Figure 7."""
    figure, panels = make_panels(plt, ("epsilon = 0.001", "C as in Table 1"))
    least = 1e-6  # the optimum is known to a relative error of 1e-5
    by_C = {
        name: [(C, max(results.distance(name, run, C), least)) for C, run in methods[ALGORITHM_1].items()]
        for name, methods in results.costs.items()
    }
    by_epsilon = {
        name: [(e, max(results.distance(name, run), least)) for e, run in methods[ALGORITHM_1].items()]
        for name, methods in results.epsilons.items()
    }
    for axes, lines, xlabel in zip(panels, (by_C, by_epsilon), ("C", "epsilon"), strict=True):
        plot_lines(axes, results, lines, xlabel)
        axes.axhspan(1e-3, 1e-2, color="0.9", zorder=0)
    panels[0].set_ylabel("(optimum - objective) / optimum")
    return finish(figure, panels[0], "Figure 7: distance to the optimum (grey: published at epsilon = 0.001)")


def by_cost(results: Results, method: Method, what: str) -> dict[str, Points]:
    """Return points (C, seconds or iterations) by problem."""
    return {
        name: [(C, getattr(run, what)) for C, run in methods[method].items()] for name, methods in results.costs.items()
    }


def draw_costs(plt: Any, results: Results) -> Any:
    """Draw Figure 8."""
    figure, panels = make_panels(plt, ("Algorithm 1", "Algorithm 2", "line search, classification"))
    for axes, method in zip(panels, (ALGORITHM_1, ALGORITHM_2, SEARCH_1), strict=True):
        plot_lines(axes, results, by_cost(results, method, "iterations"), "C")
        if method != SEARCH_1:
            add_slope(axes, 0.5, "published: C^0.5")
            tell_slope(axes)
    panels[0].set_ylabel("iterations")
    return finish(figure, panels[0], "Figure 8: iterations against C")


def draw_cost_times(plt: Any, results: Results) -> Any:
    """Draw Figure 9."""
    n = max(run.n_rows for methods in results.costs.values() for run in methods[ALGORITHM_1].values())
    few = max(peer.n_rows for lines in results.light_costs.values() for peer, _ in lines.values())
    figure, panels = make_panels(
        plt, (f"Algorithm 1, at most {n:,} rows", f"Algorithm 1, {few:,} rows", f"LIBSVM, for SVMlight, {few:,} rows")
    )
    own = {name: [(C, run.seconds) for C, (_, run) in lines.items()] for name, lines in results.light_costs.items()}
    light = {name: [(C, peer.seconds) for C, (peer, _) in lines.items()] for name, lines in results.light_costs.items()}
    for axes, lines in zip(panels, (by_cost(results, ALGORITHM_1, "seconds"), own, light), strict=True):
        plot_lines(axes, results, lines, "C")
    add_slope(panels[0], 1.0, "published: less than C^1.0")
    tell_slope(panels[0])
    panels[0].set_ylabel("CPU seconds")
    return finish(figure, panels[0], "Figure 9: training time against C")
