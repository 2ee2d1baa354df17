"""The picture of Figure 5.9, iteration by iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.papers.jung_oleary_tits_2008.toy import Snapshot, Toy, map_points

MOST_PANELS, COLUMNS = 12, 4
SIDES = ((-1.0, "tab:orange"), (1.0, "tab:blue"))


def draw_toy(plt: Any, toy: Toy) -> Any:
    """Draw panels of the rows in Q, the separating ellipse, and the boundaries of the classes (dashed)."""
    shown = choose_steps(len(toy.steps))
    n_lines = -(-len(shown) // COLUMNS)
    figure, panels = plt.subplots(
        n_lines,
        COLUMNS,
        figsize=(3.1 * COLUMNS, 3.35 * n_lines),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes in panels.ravel()[len(shown) :]:
        axes.axis("off")
    for axes, k in zip(panels.ravel(), shown, strict=False):
        draw_step(axes, toy, toy.steps[k])
        axes.set_title(
            f"iteration {k + 1}: {int(toy.steps[k].chosen.sum()):,} rows, mu {toy.steps[k].mu:.0e}", fontsize=9
        )
    last = panels.ravel()[len(shown) - 1]
    last.plot(
        *toy.points[toy.on_boundary].T, "o", ms=11, mfc="none", color="black", label="support vectors\non the boundary"
    )
    last.legend(fontsize=7, loc="lower right")
    figure.suptitle(
        f"Figure 5.9: {len(toy.y):,} points; coloured: used by the next iteration; dashed: boundaries of the classes"
    )
    return figure


def draw_step(axes: Any, toy: Toy, step: Snapshot) -> None:
    """Draw one panel."""
    few = step.chosen.sum() < 100
    axes.plot(*toy.points[~step.chosen].T, ".", color="0.85", ms=2, zorder=1)
    for side, colour in SIDES:
        axes.plot(*toy.points[step.chosen & (toy.y == side)].T, ".", color=colour, ms=6 if few else 2.5, zorder=2)
    line = np.linspace(-1, 1, 201)
    first, second = np.meshgrid(line, line)
    heights = map_points(np.stack([first.ravel(), second.ravel()], axis=1)) @ step.w + step.bias
    for level, style in ((-1.0, "--"), (0.0, "-"), (1.0, "--")):
        if heights.min() < level < heights.max():
            lines = axes.contour(line, line, heights.reshape(first.shape), [level], colors="black", linewidths=1)
            lines.set_linestyle(style)
    axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1), aspect="equal")


def choose_steps(n_steps: int) -> list[int]:
    """Return the first step, the last step, and evenly spaced steps between them."""
    return sorted({round(k) for k in np.linspace(0, n_steps - 1, min(n_steps, MOST_PANELS))})
