"""The number of resident rows needed for a proof in one read, and of reads with a fixed share of the rows, against n.

    python -m benchmarks.law [--largest 1e8] [--seed 0] [--picture FILE]

The rows are generated when they are read and never stored (benchmarks/made_rows.py). n is 1e5, 3e5, 1e6, ..., and C =
20,000 / n. C n, the weight of the mean loss relative to 1/2 |w|^2, is constant, so all n sample the same problem. For
each n, two numbers of resident rows are determined: the smallest number that suffices for a proof of 1e-3 in one read,
and the smallest number for which the minimiser lies in the ball (the gap is then at most 1e-5). The search changes the
number by factors of 2^(1/4), and begins at the number that the law n^(2/3) predicts from the previous n. A power of n
is fitted to both numbers.

The second table has runs to 1e-3 with 5% of the rows resident. Reads are the bytes read (including the sample), divided
by the bytes of all rows. Each run is a separate process with two threads, and the tables have its peak memory. 1e8 rows
would take 12 GB on the disk; the largest process for them takes 5 GB of memory. All runs together take about half an
hour on two idle cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.made_rows import FEATURES, MadeRows
from pipelines.exponents import fit_exponent
from pipelines.report import format_head, format_row
from pipelines.story import load_pyplot, save_pictures
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.machine import format_bytes

SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
COST = 20_000  # C n
TOL = 1e-3
SHARE = 0.05
STEP = 2**0.25
GOALS = ("one read to 1e-3", "in the ball")


@dataclass(frozen=True)
class Run:
    """The outcome of a training: n, resident rows, reads of the data, the proved gap, peak memory and seconds.

    enough: for each of GOALS, whether the first read reached the goal.
    """

    n: int
    resident: int
    reads: float
    gap: float
    enough: tuple[bool, bool]
    peak_bytes: int
    seconds: float


Needed = dict[str, list[Run]]  # by goal, one of GOALS


def compute_law(n: int) -> float:
    """Return (n d)^(2/3)."""
    return float(n * FEATURES) ** (2 / 3)


def predict(found: list[Run], n: int) -> int:
    """Return the number of resident rows that the law predicts.

    It is scaled from the largest n so far, if there is one.
    """
    if not found:
        return round(compute_law(n))
    last = found[-1]
    return round(last.resident * compute_law(n) / compute_law(last.n))


def fit(found: list[Run]) -> float:
    """Fit resident ~ n^p, and return p."""
    return fit_exponent((run.n, run.resident) for run in found)


def measure(n: int, resident: int, seed: int, max_passes: int | None = None) -> Run:
    """Train in a separate process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(train_here, n, min(n, resident), seed, max_passes).result()


def train_here(n: int, resident: int, seed: int, max_passes: int | None) -> Run:
    """Train with only the resident rows in memory."""
    opening.ThreadedEngine = lambda source, threads, *_: ThreadedEngine(source, threads)  # type: ignore[misc, assignment]
    source = MadeRows(n, seed)
    own = {"acceleration": "one-read"}
    options = TrainOptions(
        C=COST / n, tol=TOL, threads=2, resident_rows=resident, max_passes=max_passes, seed=seed, options=own
    )
    result = train(source, options)
    first, gap = result.history[0], result.relative_gap
    assert gap is not None
    enough = (first["relative_gap"] <= TOL, first["moved"] <= first["radius"])
    reads = result.read_bytes / source.nbytes
    return Run(n, resident, reads, gap, enough, result.peak_memory_bytes, result.seconds)


def find_smallest(start: int, is_enough: Callable[[int], bool]) -> int:
    """Return the smallest number for which `is_enough` is true, searching in steps up or down from `start`."""
    number = start
    if is_enough(number):
        while is_enough(round(number / STEP)):
            number = round(number / STEP)
        return number
    while not is_enough(number):
        number = round(number * STEP)
    return number


def search(needed: Needed, n: int, seed: int) -> Iterator[tuple[str, Run]]:
    """Yield for each goal the run that reaches it with the smallest number of resident rows."""
    runs: dict[int, Run] = {}

    def run(resident: int) -> Run:
        if resident not in runs:
            runs[resident] = measure(n, resident, seed, max_passes=1)
        return runs[resident]

    for place, goal in enumerate(GOALS):
        start = predict(needed[goal], n)
        yield goal, run(find_smallest(start, lambda number, place=place: run(number).enough[place]))


def show(sizes: list[int], seed: int) -> Needed:
    """Print the table of the sufficient numbers of resident rows, row by row, and the fitted powers."""
    needed: Needed = {goal: [] for goal in GOALS}
    print(format_head("rows", "goal", "resident", "of (n d)^(2/3)", "share", "reads", "gap", "peak memory", "s"))
    for n in sizes:
        for goal, run in search(needed, n, seed):
            resident, *more = describe(run)
            print(format_row(f"{n:,}", goal, resident, f"{run.resident / compute_law(n):.2f}", *more), flush=True)
            needed[goal].append(run)
    for goal in GOALS:
        print(f"\n{goal}: resident rows ~ n^{fit(needed[goal]):.2f}, their share ~ n^{fit(needed[goal]) - 1:.2f}")
    return needed


def describe(run: Run) -> list[str]:
    """Return the cells of a run."""
    share, reads, gap = f"{run.resident / run.n:.1%}", f"{run.reads:.2f}", f"{run.gap:.0e}"
    return [f"{run.resident:,}", share, reads, gap, format_bytes(run.peak_bytes), f"{run.seconds:.1f}"]


def show_share(sizes: list[int], seed: int) -> list[Run]:
    """Print the table of runs with a fixed share of the rows resident."""
    print("\n" + format_head("rows", "resident", "share", "reads", "gap", "peak memory", "s"))
    runs = []
    for n in sizes:
        runs.append(measure(n, round(SHARE * n), seed))
        print(format_row(f"{n:,}", *describe(runs[-1])), flush=True)
    return runs


def draw(needed: Needed, shares: list[Run], file: Path) -> None:
    """Draw the numbers of resident rows, their shares of all rows, and the reads, against n."""
    plt = load_pyplot()
    figure, panels = plt.subplots(1, 3, figsize=(12.6, 3.9), layout="constrained")
    n = np.array([run.n for run in shares], float)
    panels[0].plot(n, n, ":", color="0.6", label="all rows")
    for k, goal in enumerate(GOALS):
        resident = np.array([run.resident for run in needed[goal]], float)
        law = resident[-1] * (n / n[-1]) ** (2 / 3)
        fitted = f"{goal}: $n^{{{fit(needed[goal]):.2f}}}$"
        for scale, axes in ((1, panels[0]), (n, panels[1])):
            axes.plot(n, resident / scale, "os"[k], color=f"C{k}", label=fitted)
            axes.plot(n, law / scale, "-", color=f"C{k}", linewidth=1, label="$n^{2/3}$ through the last")
    panels[2].plot(n, [run.reads for run in shares], "D-", color="C2")
    panels[0].set(yscale="log", title="resident rows for one read")
    panels[1].set(yscale="log", title="their share of all rows")
    panels[2].set(ylim=(0, 3.5), title=f"reads to 1e-3, {SHARE:.0%} of the rows resident")
    for axes in panels:
        axes.set(xscale="log", xlabel="rows, n")
        axes.grid(visible=True, color="0.92")
    panels[0].legend(fontsize=8)
    save_pictures(plt, file.parent, {file.stem: figure}, dpi=75)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=SIZES[-1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="a file .png")
    own = parser.parse_args()
    sizes = [n for n in SIZES if n <= own.largest]
    needed = show(sizes, own.seed)
    shares = show_share(sizes, own.seed)
    if own.picture is not None:
        draw(needed, shares, own.picture)


if __name__ == "__main__":
    main()
