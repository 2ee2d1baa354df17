"""Tables 1 and 2 of Platt 1998: the published support vectors, relative times and scaling exponents, compared with
ours.

    python -m pipelines.papers.platt_1998 --data FOLDER [--out FOLDER] [--small]

The data folder holds a7a (or a6a, which has exactly the paper's rows) and w8a of the LIBSVM site, and MNIST's
train-images-idx3-ubyte and train-labels-idx1-ubyte. Experiments without data are left out. The story prints Markdown;
--out saves it, with a log-log picture of seconds against rows (the extra `plots` installs matplotlib). --small uses at
most 2,000 rows of each data set. The exit status is 0 if all runs converged, 1 if not, and 2 without data.

The solver is that of the paper (two loops, one pair per step, shrinking, tol 1e-3), on one thread. Times are CPU
seconds, as in the paper. The subsets for the exponents are the first rows of a shuffled dataset; they are therefore
random, and each contains the smaller ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.data import DataFolder
from pipelines.exponents import fit_exponent
from pipelines.papers.platt_1998.experiments import EXPERIMENTS, OTHER_READING, Data, Experiment
from pipelines.report import Report
from pipelines.story import (
    load_pyplot,
    make_out,
    make_paper_parser,
    open_work,
    run_story,
    save_pictures,
)
from streamsvm.kernels.kernel import Kernel
from streamsvm.solvers.decomposition.platt import PlattResult, solve_by_platt

NAME = "platt_1998"
SMALL_ROWS = 2000
CACHE_BYTES = 40 * 10**6
HEADS = (
    *("experiment", "C", "inputs", "cache", "rows", "support vectors, his", "ours (at C + free)"),
    *("time / AdultLin, his", "ours", "CPU seconds", "exponent, his", "ours", "kernel evaluations"),
)


@dataclass(frozen=True)
class Measured:
    """The measurements of an experiment: numbers of rows, the CPU seconds for each, and the solution for all rows."""

    sizes: list[int]
    seconds: list[float]
    result: PlattResult
    C: float

    def fit_exponent(self) -> float | None:
        """Fit seconds ~ rows^p, and return p; None if there is only one number of rows."""
        return fit_exponent(zip(self.sizes, self.seconds, strict=True)) if len(self.sizes) > 1 else None

    def count_support(self) -> tuple[int, int]:
        """Return the number of support vectors at C, and the number of free support vectors."""
        at_bound = np.count_nonzero(self.result.alpha == self.C)
        return int(at_bound), int(np.count_nonzero(self.result.alpha)) - int(at_bound)


def main() -> int:
    options = make_paper_parser(
        NAME, "Tables 1 and 2 of Platt 1998.", f"use at most {SMALL_ROWS:,} rows of each data set"
    ).parse_args()
    return run_story(NAME, lambda: tell(options))


def tell(options: argparse.Namespace) -> int:
    """Run every experiment for which there are data, and return the exit status."""
    make_out(options.out)
    report = Report()
    with open_work(None) as work:
        data = Data(DataFolder(options.data), work, SMALL_ROWS if options.small else None)
        measured = run_all(data, report)
    if options.out is not None:
        (options.out / f"{NAME}.md").write_text(report.text)
        draw(measured, options.out)
    failed = [name for name, one in measured.items() if not one.result.converged]
    if failed:
        print(f"{NAME}: these experiments did not converge: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_all(data: Data, report: Report) -> dict[str, Measured]:
    """Run every experiment for which there are data, and write the tables."""
    measured: dict[str, Measured] = {}
    if data.most_rows:
        report.write(f"These are at most {data.most_rows:,} rows; his figures are for all rows.\n")
    report.begin_table("", *HEADS)
    for experiment in EXPERIMENTS:
        if experiment.data in data.files:
            measured[experiment.name] = measure(experiment, data)
            report.add_row(*format_cells(experiment, measured[experiment.name], measured["AdultLin"].seconds[-1]))
    heads = ("data", "2 sigma^2", "support vectors, his", "ours", "difference")
    report.begin_table("What 'variance of 10' means", *heads)
    for experiment in EXPERIMENTS:
        if experiment.name in ("AdultGaussK", "WebGaussK") and experiment.name in measured:
            other = solve(experiment, data, data.limit(experiment.n_rows), OTHER_READING)[0]
            for result, variance in ((measured[experiment.name].result, 20), (other, 10)):
                count, his = np.count_nonzero(result.alpha), experiment.n_support
                cells = (str(variance), f"{his:,}", f"{count:,}", f"{count / his - 1:+.1%}")
                report.add_row(experiment.data, *cells)
    return measured


def measure(experiment: Experiment, data: Data) -> Measured:
    """Solve for an eighth, a quarter, half and all of the rows.

    If the paper gives no exponent, solve only for all rows.
    """
    n_rows = min(data.limit(experiment.n_rows), data.open(experiment.data, experiment.layout).n_rows)
    sizes = [n_rows // part for part in (8, 4, 2, 1)] if experiment.exponent else [n_rows]
    solve(experiment, data, 20, experiment.kernel)  # the first call compiles
    runs = [solve(experiment, data, size, experiment.kernel) for size in sizes]
    return Measured(sizes, [seconds for _, seconds in runs], runs[-1][0], experiment.C)


def solve(experiment: Experiment, data: Data, n_rows: int, kernel: Kernel) -> tuple[PlattResult, float]:
    """Return the solution on the first rows, and its CPU seconds."""
    rows = data.take(experiment.data, experiment.layout, n_rows)
    y, costs = np.where(rows.y == 1, 1.0, -1.0), np.full(rows.n_rows, float(experiment.C))
    start = time.thread_time()
    result = solve_by_platt(rows.X, y, costs, kernel, cache_bytes=CACHE_BYTES if experiment.cached else 0)
    return result, time.thread_time() - start


def format_cells(experiment: Experiment, measured: Measured, first_seconds: float) -> list[str]:
    """Return the cells of the row for an experiment."""
    at_bound, free = measured.count_support()
    his, ours = experiment.exponent, measured.fit_exponent()
    return [
        experiment.name,
        f"{experiment.C:g}",
        experiment.layout,
        "40 MB" if experiment.cached else "",
        f"{measured.sizes[-1]:,}",
        f"{experiment.n_support:,}",
        f"{at_bound + free:,} ({at_bound:,} + {free:,})",
        f"{experiment.seconds / EXPERIMENTS[0].seconds:.1f}",
        f"{measured.seconds[-1] / first_seconds:.1f}",
        f"{measured.seconds[-1]:.2f}",
        "" if his is None else f"{his:.1f}",
        "" if ours is None else f"{ours:.1f}",
        f"{measured.result.n_kernel_evaluations:,}",
    ]


def draw(measured: dict[str, Measured], folder: Path) -> None:
    """Draw seconds against rows, with logarithmic axes, and with the exponents in the legend."""
    plt: Any = load_pyplot()
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    colors: dict[str, str] = {}
    for name, one in measured.items():
        exponent = one.fit_exponent()
        label = name if exponent is None else f"{name}: {exponent:.1f}"
        color = colors.setdefault(name.removesuffix("D"), f"C{len(colors)}")  # dense rows have dashed lines
        axes.loglog(one.sizes, one.seconds, "o--" if name.endswith("D") else "o-", color=color, label=label)
    axes.set(xlabel="rows", ylabel="CPU seconds", title="Platt's SMO: time against rows, and exponents")
    axes.legend()
    save_pictures(plt, folder, {NAME: figure}, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
