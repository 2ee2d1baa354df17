"""The picture of Table 3: our speed-up by random selection against the published speed-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pipelines.papers.perez_cruz_2000.problems import Problem
from pipelines.papers.perez_cruz_2000.training import Measured
from pipelines.story import load_pyplot, save_pictures

LABELLED_LEFT = ("Adult9", "Banana 400", "Web7", "Splice", "Gauss-M, C = 100", "Banana 4,900")  # others are close


def draw(problems: Iterable[Problem], measured: Mapping[str, tuple[Measured, Measured]], folder: Path) -> None:
    """Draw the ratios of the times of radit and light, with logarithmic axes."""
    plt = load_pyplot()
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    for problem in problems:
        if problem.name in measured:
            radit, light = measured[problem.name]
            place = problem.seconds[1] / problem.seconds[0], light.seconds / radit.seconds
            axes.loglog(*place, "o" if light.converged else "^", color="tab:blue" if light.converged else "tab:red")
            side = {"ha": "right", "xytext": (-6, 4)} if problem.name in LABELLED_LEFT else {"xytext": (6, 4)}
            axes.annotate(problem.name, place, textcoords="offset points", **side)
    axes.axline((1, 1), (10, 10), color="0.6", label="as published")
    axes.plot([], [], "^", color="tab:red", label="light did not end: the ratio is at least this")
    axes.axhline(1, color="0.8", linewidth=1)
    axes.axvline(1, color="0.8", linewidth=1)
    axes.set(
        xlabel="seconds of SVMlight / svcradit, published",
        ylabel="CPU seconds of QP, largest / IRWLS, random, ours",
        title="Pérez-Cruz et al., Table 3: how many times faster",
    )
    axes.margins(0.15)
    axes.legend()
    save_pictures(plt, folder, {"perez_cruz_2000": figure}, dpi=120)
