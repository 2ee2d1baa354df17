"""The pictures of qaadan_glasmachers_2018: Figures 1 to 5 as in the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.papers.qaadan_glasmachers_2018.results import ByMerge, Results
from pipelines.story import load_pyplot, save_pictures

SHOWN = (2, 3, 4, 5)
MARKERS = "osD^vP"


def draw_all(results: Results, folder: Path) -> None:
    """Write a PNG of every figure that has results."""
    plt = load_pyplot()
    figures = {
        "figure_1": draw_shares(plt, results),
        "figures_2_3": draw_budgets(plt, results),
        "figure_4": draw_front(plt, results),
        "figure_5": draw_parameters(plt, results),
    }
    save_pictures(plt, folder, figures)


def draw_shares(plt: Any, results: Results) -> Any:
    """Draw Figure 1: bars of the share of the time that is spent on merging, against M."""
    if not results.figure_1:
        return None
    figure, panels = plt.subplots(
        1,
        len(results.figure_1),
        figsize=(3.6 * len(results.figure_1), 3.4),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, ((name, budget), runs) in zip(panels[0], results.figure_1.items(), strict=True):
        axes.bar([str(m) for m in runs], [100 * one.merging / one.seconds for one in runs.values()])
        axes.set(title=f"{name}, B = {budget}", xlabel="M")
    panels[0][0].set_ylabel("merging, % of the CPU time")
    figure.suptitle("Figure 1: share of the time spent merging")
    return figure


def draw_budgets(plt: Any, results: Results) -> Any:
    """Draw Figures 2 and 3: accuracy and time against the budget B."""
    n = len(results.figures_2_3)
    figure, panels = plt.subplots(n, 2, figsize=(10, 2.9 * n), squeeze=False, layout="constrained")
    for (left, right), (name, by_budget) in zip(panels, results.figures_2_3.items(), strict=True):
        draw_accuracy(left, by_budget, results.exact[name].accuracy)
        for m in next(iter(by_budget.values())):
            if m in SHOWN or results.small:
                right.semilogy(
                    list(by_budget), [runs[m].seconds for runs in by_budget.values()], "o-", ms=3, label=f"M = {m}"
                )
        left.set(title=name, ylabel="test accuracy, %", xlabel="B")
        right.set(title=name, ylabel="CPU seconds", xlabel="B")
        right.legend(fontsize=7)
    figure.suptitle("Figures 2 and 3: accuracy and time against the budget (dotted: exact SVM, ours)")
    return figure


def draw_accuracy(axes: Any, by_budget: dict[int, ByMerge], exact: float) -> None:
    """Draw accuracy against B, with the spread of the seeds, and the accuracy of the exact SVM."""
    for m in next(iter(by_budget.values())):
        if m in SHOWN:
            means = [runs[m].accuracy for runs in by_budget.values()]
            spreads = [runs[m].spread for runs in by_budget.values()]
            axes.errorbar(list(by_budget), means, spreads, fmt="o-", ms=3, capsize=2, label=f"M = {m}")
    axes.axhline(exact, color="black", linestyle=":")
    axes.legend(fontsize=7)


def draw_front(plt: Any, results: Results) -> Any:
    """Draw Figure 4: accuracy against time on adult, with the Pareto front of the runs."""
    if "adult" not in results.figures_2_3:
        return None
    figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
    by_budget = results.figures_2_3["adult"]
    points = [(one.seconds, one.accuracy) for runs in by_budget.values() for one in runs.values()]
    merges = list(next(iter(by_budget.values())))
    for marker, (budget, runs) in zip(MARKERS, by_budget.items(), strict=False):
        place = [one.seconds for one in runs.values()], [one.accuracy for one in runs.values()]
        axes.plot(*place, ":", color="0.7", linewidth=1)
        dots = axes.scatter(*place, c=merges, cmap="viridis", marker=marker, label=f"B = {budget:,}", zorder=3)
    twos = [runs[2] for runs in by_budget.values()]
    axes.plot([one.seconds for one in twos], [one.accuracy for one in twos], "k--", linewidth=1, label="M = 2")
    front = [p for p in sorted(points) if all(q[1] <= p[1] for q in points if q[0] <= p[0])]
    axes.plot(*zip(*front, strict=True), "k-", linewidth=1.5, label="Pareto front")
    axes.set(
        xscale="log", xlabel="CPU seconds", ylabel="test accuracy, %", title="Figure 4: adult, accuracy against time"
    )
    axes.set_ylim(max(axes.get_ylim()[0], max(a for _, a in points) - 8), None)
    figure.colorbar(dots, label="M")
    axes.legend(fontsize=8, loc="lower right")
    return figure


def draw_parameters(plt: Any, results: Results) -> Any:
    """Draw Figure 5: accuracy against B for each pair of C and gamma."""
    if not results.figure_5:
        return None
    figure, panels = plt.subplots(3, 3, figsize=(12, 9), layout="constrained")
    for axes, ((C, gamma), (exact, by_budget)) in zip(panels.ravel(), results.figure_5.items(), strict=True):
        draw_accuracy(axes, by_budget, exact.accuracy)
        axes.set(title=f"C = {C:g}, gamma = {gamma:g}: {exact.accuracy:.2f}%, {exact.n_support:,} vectors", xlabel="B")
        axes.title.set_fontsize(9)
    figure.suptitle("Figure 5: phishing, accuracy against the budget (dotted: exact SVM)")
    return figure
