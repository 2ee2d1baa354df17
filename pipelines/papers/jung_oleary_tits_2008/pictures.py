"""The pictures of jung_oleary_tits_2008: Figures 5.1 to 5.8 as in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.papers.jung_oleary_tits_2008.results import UNREDUCED, Results, Run, Trained, Variant, find_exponent
from pipelines.papers.jung_oleary_tits_2008.toy import Toy
from pipelines.papers.jung_oleary_tits_2008.toy_picture import draw_toy
from pipelines.story import load_pyplot, save_pictures

COLOURS = {
    ("none", "omega"): "0.3",
    ("adaptive-balanced", "omega"): "tab:blue",
    ("adaptive-balanced", "distance"): "tab:cyan",
    ("adaptive", "omega"): "tab:green",
    ("adaptive", "distance"): "yellowgreen",
    ("fixed", "omega"): "tab:red",
    ("fixed", "distance"): "salmon",
}
MARKERS = "os^Dv"


def draw_all(results: Results, toy: Toy, folder: Path) -> None:
    """Write a PNG of every figure that has results."""
    plt = load_pyplot()
    drawn = {"figure_5_9": draw_toy(plt, toy)}
    if results.runs:
        drawn |= {"figure_5_1": draw_variants(plt, results), "figures_5_2_to_5_4": draw_sweeps(plt, results)}
        drawn["figure_5_5"] = draw_iterations(plt, results)
    if results.linear:
        drawn |= {"figure_5_6": draw_linear(plt, results), "figure_5_7": draw_approximations(plt, results)}
        drawn["figure_5_8"] = draw_gaussian(plt, results)
    save_pictures(plt, folder, drawn)


def tell(variant: Variant) -> str:
    """Return the name of a variant for a legend."""
    return "unreduced" if variant == UNREDUCED else f"{variant[0]}, {variant[1]}"


def draw_variants(plt: Any, results: Results) -> Any:
    """Draw Figure 5.1: bars of time and iterations, by problem."""
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    names = list(results.runs)
    variants = [variant for variant in results.compared if all(variant in runs for runs in results.runs.values())]
    width = 0.85 / len(variants)
    for k, variant in enumerate(variants):
        runs = [results.runs[name][variant] for name in names]
        places = [at + (k - (len(variants) - 1) / 2) * width for at in range(len(names))]
        for axes, heights in zip(panels, ([one.seconds for one in runs], [one.steps for one in runs]), strict=True):
            label = tell(variant) + (f", q_U = {variant[2]:.0%}" if variant[2] < 1 else "")
            axes.bar(places, heights, width, color=COLOURS[variant[:2]], label=label)
    for axes, title in zip(panels, ("CPU seconds", "iterations"), strict=True):
        axes.set(title=title, xticks=range(len(names)), xticklabels=names)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=4, loc="outside lower center")
    figure.suptitle("Figure 5.1: variants beside the unreduced method")
    return figure


def draw_sweeps(plt: Any, results: Results) -> Any:
    """Draw Figures 5.2 to 5.4: time and iterations against q_U."""
    figure, panels = plt.subplots(
        2, len(results.runs), figsize=(3.6 * len(results.runs), 6.4), sharex=True, squeeze=False, layout="constrained"
    )
    for (top, bottom), (name, runs) in zip(panels.T, results.runs.items(), strict=True):
        draw_sweep(top, runs, "seconds")
        draw_sweep(bottom, runs, "steps")
        top.set_title(name)
        bottom.set_xlabel("q_U, % of the rows")
    panels[0, 0].set_ylabel("CPU seconds")
    panels[1, 0].set_ylabel("iterations")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=4, loc="outside lower center")
    figure.suptitle(
        "Figures 5.2 to 5.4: balanced or not, adaptive or fixed, omega or distance, against q_U (x: no convergence)"
    )
    return figure


def draw_sweep(axes: Any, runs: dict[Variant, Run], measure: str) -> None:
    """Draw one panel: a line for each variant."""
    for rules in dict.fromkeys(variant[:2] for variant in runs if variant != UNREDUCED):
        shares = sorted(variant[2] for variant in runs if variant[:2] == rules)
        points = [(100 * share, getattr(runs[*rules, share], measure)) for share in shares]
        width = 3.5 if rules == ("adaptive-balanced", "omega") else 1.3
        marker, style = ("s", "--") if rules[1] == "distance" else ("o", "-")
        axes.plot(
            *zip(*points, strict=True),
            marker=marker,
            linestyle=style,
            linewidth=width,
            ms=4,
            color=COLOURS[rules],
            label=", ".join(rules),
        )
        lost = [point for point, share in zip(points, shares, strict=True) if not runs[*rules, share].converged]
        axes.plot([x for x, _ in lost], [y for _, y in lost], "kx", ms=9)
    axes.axhline(getattr(runs[UNREDUCED], measure), color="0.3", linestyle=":", label="unreduced")
    start_at_zero(axes)
    axes.set_xscale("log")
    label_places(axes, [100 * share for share in shares], [f"{100 * share:g}" for share in shares])


def draw_iterations(plt: Any, results: Results) -> Any:
    """Draw Figure 5.5: the number of rows in Q, and mu, by iteration."""
    figure, panels = plt.subplots(
        2, len(results.runs), figsize=(3.6 * len(results.runs), 6.4), sharex="col", squeeze=False, layout="constrained"
    )
    for (top, bottom), (name, runs) in zip(panels.T, results.runs.items(), strict=True):
        shares = sorted(variant[2] for variant in runs if variant[:2] == ("adaptive-balanced", "omega"))
        shades = plt.get_cmap("viridis")([0.9 * k / max(1, len(shares) - 1) for k in range(len(shares))])
        lines = [
            (runs["adaptive-balanced", "omega", share], colour, f"q_U = {share:.0%}", "-")
            for share, colour in zip(shares, shades, strict=True)
        ]
        for run, colour, label, line in [(runs[UNREDUCED], "0.3", "unreduced", ":"), *lines]:
            numbers = range(1, run.steps + 1)
            top.plot(numbers, run.chosen, color=colour, linestyle=line, label=label)
            bottom.semilogy(numbers, run.mu, color=colour, linestyle=line)
        top.set_title(name)
        start_at_zero(top)
        bottom.set_xlabel("iteration")
        bottom.xaxis.get_major_locator().set_params(integer=True)
    panels[0, 0].set_ylabel("rows used")
    panels[1, 0].set_ylabel("mu")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=6, loc="outside lower center")
    figure.suptitle("Figure 5.5: rows used and mu by iteration (adaptive-balanced, omega)")
    return figure


def plot_times(axes: Any, lines: list[Trained], label: str, marker: str) -> None:
    """Draw CPU seconds against the number of rows."""
    axes.loglog([one.n_rows for one in lines], [one.seconds for one in lines], marker=marker, ms=4, label=label)


def start_at_zero(axes: Any) -> None:
    """Let the axis begin at 0, with room above the largest value."""
    axes.set_ylim(0, 1.08 * axes.dataLim.y1)


def show_rows(axes: Any, lines: list[Trained]) -> None:
    """Set ticks at the numbers of rows."""
    label_places(axes, [one.n_rows for one in lines], [f"{one.n_rows:,}" for one in lines])
    axes.tick_params(axis="x", rotation=40, labelsize=8)
    axes.set_xlabel("rows")


def label_places(axes: Any, places: Sequence[float], labels: list[str]) -> None:
    """Set ticks on a logarithmic axis at these places and nowhere else."""
    axes.set_xticks(places, labels)
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


def draw_linear(plt: Any, results: Results) -> Any:
    """Draw Figure 5.6: time against the number of rows."""
    figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
    for (name, lines), marker in zip(results.linear.items(), MARKERS, strict=False):
        plot_times(axes, lines, f"{name}: n^{find_exponent(lines)}", marker)
    show_rows(axes, results.linear["CRSVM"])
    axes.set(ylabel="CPU seconds", title="Figure 5.6: Adult, linear")
    axes.legend()
    return figure


def draw_approximations(plt: Any, results: Results) -> Any:
    """Draw Figure 5.7: error and time of the approximations, by rank and by rows."""
    figure, ((a, b), (c, d)) = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for (name, ranked), marker in zip(results.ranks.items(), MARKERS, strict=False):
        ranks = [one.rank for one in ranked]
        a.loglog(ranks, [one.error for one in ranked], marker=marker, ms=4, label=name)
        c.loglog(ranks, [one.seconds for one in ranked], marker=marker, ms=4, label=name)
    made = {method: lines for method, lines in results.gaussian.items() if "+" in method}
    for (method, lines), marker in zip(made.items(), MARKERS, strict=False):
        rows = [one.n_rows for one in lines]
        b.plot(rows, [one.error for one in lines], marker=marker, ms=4, label=method.removeprefix("CRSVM + "))
        d.loglog(rows, [one.making for one in lines], marker=marker, ms=4, label=method.removeprefix("CRSVM + "))
    for axes, title in zip((a, c), ("a: error", "c: CPU seconds"), strict=True):
        axes.set(xlabel="rank", title=f"{title}, {results.ranked_rows:,} rows")
        label_places(axes, ranks, [str(rank) for rank in ranks])
    for axes, title in zip((b, d), ("b: error", "d: CPU seconds"), strict=True):
        axes.set(title=title)
    b.set_xlabel("rows")
    start_at_zero(b)
    show_rows(d, next(iter(made.values())))
    for axes in (a, b, c, d):
        axes.legend(fontsize=8)
    figure.suptitle("Figure 5.7: approximations of Adult's Gaussian kernel")
    return figure


def draw_gaussian(plt: Any, results: Results) -> Any:
    """Draw Figure 5.8: the time of all methods, and for ours the time of both parts (features and training)."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for (name, lines), marker in zip(results.gaussian.items(), MARKERS, strict=False):
        plot_times(left, lines, f"{name}: n^{find_exponent(lines)}", marker)
        if name != "LIBSVM":
            rows, colour = [one.n_rows for one in lines], left.lines[-1].get_color()
            right.loglog(
                rows,
                [one.making for one in lines],
                "--",
                marker=marker,
                ms=4,
                color=colour,
                label=f"{name.removeprefix('CRSVM + ')}, features",
            )
            right.loglog(
                rows,
                [one.training for one in lines],
                marker=marker,
                ms=4,
                color=colour,
                label=f"{name.removeprefix('CRSVM + ')}, training",
            )
    for axes, title in ((left, "a: all of it"), (right, "b: features and training")):
        show_rows(axes, results.gaussian["LIBSVM"])
        axes.set(ylabel="CPU seconds", title=title)
        axes.legend(fontsize=8)
    figure.suptitle("Figure 5.8: Adult, Gaussian kernel")
    return figure
