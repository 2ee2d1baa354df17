"""The gap against the bytes read, for the solver one-read and other trainers, as a table and a picture.

    python -m pipelines.compare.reads --data FOLDER [--out FOLDER] [--work FOLDER] [--small]

The trainers are one-read; OCAS (Franc & Sonnenburg 2008), which is cutting planes with a line
search; the algorithm of SVMperf (Joachims 2006), which is plain cutting planes; LIBLINEAR's dual coordinate descent;
and averaged stochastic gradients (scikit-learn). All of them minimise the same objective on the same rows. curves.py
defines what counts as a read, and for which trainers the gap is proved. For the others, the distance from the optimum
that streamsvm has proved is shown.

The data folder holds a9a, a9a.t and covtype.csv, plain or as .xz; the third problem is generated. A problem whose files
are missing is left out. --out is the folder for the table (reads.md) and the picture (reads.png). The story takes some
minutes. With --small, it takes some seconds on a few thousand rows, which only checks that it runs.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.compare.curves import Curve, Descent, Proof, compute_curves, fit_liblinear, fit_sgd
from pipelines.compare.problems import BLOCK_ROWS, PROBLEMS, READERS, Part, Problem, Sizes, draw_block
from pipelines.data import DataFolder
from pipelines.report import Report
from pipelines.story import (
    add_data_argument,
    add_out_argument,
    add_work_argument,
    load_pyplot,
    make_out,
    open_work,
    run_story,
    save_pictures,
)

ROWS, FEATURES = 1_000_000, 30
SMALL = Sizes(most_rows=6000)
SMALL_ROWS, SMALL_READS, SMALL_PASSES = 20_000, 2, 8
GENERATED = Problem("generated", "rows of 30 features, generated, C = 0.01", 0.01)
PROOFS = (
    Proof("one-read, 30% resident", "one-read", "30%"),
    Proof("one-read, 10% resident", "one-read", "10%"),
    Proof("OCAS (line search)", "line-search"),
    Proof("SVMperf (plain cutting planes)", "none", most_passes=400),
)
DESCENTS = (
    Descent("LIBLINEAR", fit_liblinear, (1, 2, 5, 10, 20, 50, 100)),
    Descent("SGD (scikit-learn)", fit_sgd, (1, 2, 5, 10, 20, 50)),
)
TARGETS = (1e-2, 1e-3, 1e-4, 1e-6)
FLOOR = 1e-8
MARKERS = "os^DvXP"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.compare.reads", description="The gap against the bytes read."
    )
    add_data_argument(parser)
    add_out_argument(parser, "the table and the picture")
    add_work_argument(parser)
    parser.add_argument("--small", action="store_true", help="a few thousand rows and a few reads: some seconds")
    options = parser.parse_args()
    return run_story("reads.py", lambda: compare_reads(options))


def compare_reads(options: argparse.Namespace) -> int:
    """Compute the curves of all problems; print the table, and save it with the picture."""
    make_out(options.out)
    report, found = Report(), list[tuple[Problem, list[Curve]]]()
    proofs, descents = make_smaller() if options.small else (PROOFS, DESCENTS)
    report.begin_table(
        "",
        "data",
        "trainer",
        "proves",
        *(f"reads to {target:.0e}".replace("e-0", "e-") for target in TARGETS),
        "nearest",
    )
    with open_work(options.work) as work:
        for problem in (*PROBLEMS[:2], GENERATED):
            rows = read(problem, DataFolder(options.data), options.small)
            if rows is None:
                print(f"{problem.title} is left out: no {' or '.join(problem.files)} (--data).", file=sys.stderr)
                continue
            path = work / f"{problem.key}-reads{'-small' * options.small}.zarr"
            found.append((problem, compute_curves(problem, rows, path, proofs, descents)))
            for curve in found[-1][1]:
                report.add_row(problem.title, *describe(curve))
    if options.out is not None:
        (options.out / "reads.md").write_text(report.text)
        plt = load_pyplot()
        save_pictures(plt, options.out, {"reads": draw(plt, found)}, dpi=75)
    return 0


def make_smaller() -> tuple[tuple[Proof, ...], tuple[Descent, ...]]:
    """Return the trainers of --small, which make few passes and few reads."""
    proofs = tuple(replace(way, most_passes=SMALL_PASSES) for way in PROOFS)
    return proofs, tuple(replace(way, reads=way.reads[:SMALL_READS]) for way in DESCENTS)


def read(problem: Problem, data: DataFolder, small: bool) -> Part | None:
    """Return the training rows, or None if a file of the problem is missing."""
    if not problem.files:
        n = SMALL_ROWS if small else ROWS
        blocks = [
            draw_block(block, min(BLOCK_ROWS, n - at), FEATURES) for block, at in enumerate(range(0, n, BLOCK_ROWS), 1)
        ]
        return np.concatenate([X for X, _ in blocks]), np.concatenate([y for _, y in blocks])
    files = data.find_all(*problem.files)
    return None if files is None else READERS[problem.key](files, SMALL if small else Sizes())[0]


def describe(curve: Curve) -> list[str]:
    """Return the cells of the table for a curve."""
    reached = [curve.reach(target) for target in TARGETS]
    cells = ["" if reads is None else f"{reads:.3g}" for reads in reached]
    at = int(np.argmin(curve.gaps))
    nearest = f"{max(curve.gaps[at], 0.0):.0e}".replace("e-0", "e-")
    return [curve.name, "the gap" if curve.is_proved else "nothing", *cells, f"{nearest} in {curve.reads[at]:.3g}"]


def draw(plt: Any, found: list[tuple[Problem, list[Curve]]]) -> Any:
    """Draw a log-log panel for each problem.

    Proved gaps are solid with filled markers, distances dashed with hollow markers.
    """
    if not found:
        return None
    figure, panels = plt.subplots(
        1, len(found), figsize=(4.6 * len(found), 4.8), squeeze=False, layout="constrained", sharey=True
    )
    for axes, (problem, curves) in zip(panels[0], found, strict=True):
        for k, curve in enumerate(curves):
            axes.plot(
                curve.reads,
                np.clip(curve.gaps, FLOOR, 1.0),
                "-" if curve.is_proved else "--",
                marker=MARKERS[k],
                markevery=find_marks(curve.reads),
                color=f"C{k}",
                markerfacecolor=None if curve.is_proved else "white",
                label=f"{curve.name}: {'proved gap' if curve.is_proved else 'distance, not proved'}",
            )
        axes.axhline(1e-3, color="0.6", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="bytes read / bytes of the data")
        axes.set_title(problem.title, fontsize=10)
        axes.grid(visible=True, color="0.92")
    panels[0][0].set_ylabel("relative gap, or distance from the optimum")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=3, loc="outside lower center")
    return figure


def find_marks(reads: tuple[float, ...]) -> list[int]:
    """Return the indices of the points with a marker: the first ten reads, then one read per tenth of a decade."""
    marks, last = list[int](), 0.0
    for k, read in enumerate(reads):
        if read <= 10 or read >= 1.26 * last:
            marks.append(k)
            last = read
    return marks


if __name__ == "__main__":
    sys.exit(main())
