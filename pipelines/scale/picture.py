"""The picture of seconds per pass against workers for each size of the data. Marks show the end of scaling."""

from __future__ import annotations

from pathlib import Path

from pipelines.scale.simulate import End
from pipelines.story import load_pyplot

COLOURS = ("#3b6fb6", "#d1792c", "#3f8f5b", "#9a4f96")


def draw(file: Path, workers: list[int], panels: dict[str, dict[str, End]]) -> None:
    """Write a picture to a file, with one panel for each setting."""
    plt = load_pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(10, 4.4), sharey=True, constrained_layout=True)
    for axis, (title, ends) in zip(axes, panels.items(), strict=True):
        for colour, (name, (end, there, seconds)) in zip(COLOURS, ends.items(), strict=False):
            axis.loglog(workers, seconds, color=colour, label=name, linewidth=1.8)
            ideal = [seconds[0] * workers[0] / n for n in workers]
            axis.loglog(workers, ideal, color=colour, linewidth=0.8, linestyle=":")
            axis.plot(end, there, "o", color=colour, markersize=7)
            last = end == workers[-1]
            text, place, side = ("or more", (8, -3), "left") if last else (f"{end:,}", (0, 8), "center")
            axis.annotate(text, (end, there), place, textcoords="offset points", color=colour, ha=side)
        axis.set_title(title, fontsize=11)
        axis.set_xlabel("workers")
        axis.set_xlim(8, 60_000)
        axis.set_xticks([10, 100, 1000, 10_000], ["10", "100", "1,000", "10,000"])
        axis.grid(visible=True, which="major", linewidth=0.4, alpha=0.6)
    axes[0].set_ylabel("seconds a pass (simulated)")
    axes[0].set_ylim(bottom=0.1, top=3e4)
    axes[-1].legend(title="data", frameon=False, loc="upper right")
    figure.suptitle("dotted: as many times faster as there are workers; mark: twice as many save less than a fifth")
    figure.savefig(file, dpi=100)
    plt.close(figure)
