"""Where does a pass stop scaling? 10 to 10,000 workers, simulated from what is measured here, as Markdown tables.

    python pipelines/scale.py [--small] [--seed 0] [--work DIR] [--picture FILE.png]

A pass of the cutting-plane solver over dense rows is measured: its tasks (rows in memory, and streamed from files),
sums of totals, messages, the scheduler's time for a task, the master problem. `scale_simulate.py` makes a pass on many
workers of these. It is compared with passes on one and two workers on this machine, and then asked for data of
100 GB to 100 TB, and for what would move the point from which on twice the workers save less than a fifth of the time.
Network (10 Gb/s, 0.2 ms) and a worker's memory for rows (4 GB) are assumed; a worker is a core with files of its own.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from scale_measure import Costs, generate, measure, time_passes
from scale_simulate import Cluster, End, find_end, mean_seconds, scale_totals

from streamsvm.data.dataset import Dataset
from streamsvm.machine import default_threads

FEATURES = 64
DATA_BYTES, SMALL_BYTES = 512 << 20, 48 << 20
TASKS, SMALL_TASKS = 256, 64  # of next to no rows, for the scheduler
WORKERS = [10 * 2**k for k in range(11)]
SIZES = {"100 GB": 1e11, "1 TB": 1e12, "10 TB": 1e13, "100 TB": 1e14}
SMALL_SIZES = {"100 GB": 1e11, "1 TB": 1e12}
CUTS = (16, 64, 256)  # tasks of a pass that is compared
HERE = {"bandwidth": 2e9, "latency": 5e-5, "memory_bytes": 1e12}  # sockets of one machine
GROUP = 256 * 2**20
CHANGES = {
    "as it is": {},
    "tasks of 1 GiB": {"task_bytes": 4 * GROUP},
    "tasks of 4 GiB": {"task_bytes": 16 * GROUP},
    "tasks of 64 MiB": {"task_bytes": GROUP / 4},
    "tasks given out to all workers in turn": {"in_turn": True},
    "a worker adds its own groups up: one task each": {"one_task": True},
    "sums of eight parts": {"fan_in": 8},
    "the driver adds all totals": {"fan_in": 0},
    "w sent to one worker after another": {"tree_broadcast": False},
    "100 Gb/s, 0.05 ms": {"bandwidth": 1.25e10, "latency": 5e-5},
    "1 Gb/s, 0.5 ms": {"bandwidth": 1.25e8, "latency": 5e-4},
    "one worker in a hundred half as fast": {"slow_share": 0.01},
    "no row stays in memory": {"memory_bytes": 0.0},
    "a scheduler ten times as fast": {"scheduler_speed": 10.0},
}
ALL_OF = {"one_task": True, "scheduler_speed": 10.0}
ALL_NAME = "one task a worker, a scheduler ten times as fast"
CHANGES[ALL_NAME] = ALL_OF


def main() -> None:
    """Measure, compare, simulate, print."""
    parser = argparse.ArgumentParser(description="where a pass stops scaling")
    parser.add_argument("--small", action="store_true", help="less data, fewer sizes: under a minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="keep the dataset in this folder (default: a passing one)")
    parser.add_argument("--picture", type=Path, metavar="FILE.png")
    options = parser.parse_args()
    small = options.small
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    with nullcontext(options.work) if options.work else TemporaryDirectory() as folder:
        work = Path(folder)
        data = generate(work, SMALL_BYTES if small else DATA_BYTES, FEATURES)
        costs = measure(work, data, SMALL_TASKS if small else TASKS)
        print_costs(costs)
        print_comparison(data, costs, CUTS[:1] if small else CUTS, options.seed)
    ends = print_sizes(costs, SMALL_SIZES if small else SIZES, options.seed)
    print_changes(costs, 1e12 if small else 1e13, options.seed)
    if options.picture is not None:
        from scale_picture import draw

        sizes = SMALL_SIZES if small else SIZES
        changed = {
            name: find_end(costs, Cluster(nbytes, **ALL_OF), WORKERS, options.seed) for name, nbytes in sizes.items()
        }
        draw(options.picture, WORKERS, {"as it is": ends, ALL_NAME: changed})


def print_costs(costs: Costs) -> None:
    """Print what was measured."""
    rows = {
        f"a task of 256 MiB, {FEATURES} features, rows in memory": f"{costs.kept * GROUP * 1e3:.0f} ms",
        "the same, rows streamed from files in the system's cache": f"{costs.streamed * GROUP * 1e3:.0f} ms",
        "deviation of the logarithm of a task's time": f"{costs.sigma:.3f}",
        f"totals of a task: {costs.totals_bytes / 1e3:.0f} kB; adding two": f"{show(costs.combine, costs)}",
        "packing and unpacking them": f"{show(costs.message, costs)}",
        "a group more, its task and its sum: scheduler and driver": f"{costs.overhead * 1e3:.2f} ms",
        "the same: its worker": f"{costs.worker_overhead * 1e3:.2f} ms",
        "a task that waits for one before it": f"{costs.link * 1e3:.1f} ms",
        "driver: master problem, a step": f"{costs.driver * 1e3:.1f} ms",
    }
    print("| measured here | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def show(line: object, costs: Costs) -> str:
    """Return the time for the totals, and its slope."""
    return f"{line.at(costs.totals_bytes) * 1e3:.3f} ms ({1 / line.slope / 1e9:.1f} GB/s)"  # type: ignore[attr-defined]


def print_comparison(data: Dataset, costs: Costs, cuts: tuple[int, ...], seed: int) -> None:
    """Print simulated and measured passes; here driver, scheduler and workers share the cores."""
    cores = default_threads()
    print(f"\n{data.nbytes / 1e6:.0f} MB in memory, on this machine of {cores} cores (measured: the fastest of 8)\n")
    print("| workers | tasks | simulated, s | measured | ratio | CPU simulated, s | measured | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for n_workers in (1, 2):
        for cut in cuts:
            real = time_passes(data, n_workers, cut)
            cluster = Cluster(data.nbytes, data.nbytes / real.n_tasks, **HERE)
            work = data.nbytes * costs.kept + real.n_tasks * (costs.overhead + costs.worker_overhead)
            simulated = max(mean_seconds(costs, cluster, n_workers, seed), work / cores)
            pairs = ((simulated, real.fastest), (work, real.driver + real.workers))
            cells = [f"{ours:.3f} | {theirs:.3f} | {ours / theirs:.2f}" for ours, theirs in pairs]
            print(f"| {n_workers} | {real.n_tasks} | {' | '.join(cells)} |")


def print_sizes(costs: Costs, sizes: dict[str, float], seed: int) -> dict[str, End]:
    """Print seconds a pass by workers; return them, and where they end to fall."""
    print("\nSeconds a pass; bold: twice the workers save less than a fifth\n")
    print(f"| workers | {' | '.join(sizes)} |\n|---{'|---' * len(sizes)}|")
    found = {name: find_end(costs, Cluster(nbytes), WORKERS, seed) for name, nbytes in sizes.items()}
    for k, n_workers in enumerate(WORKERS):
        cells = [f"**{s[k]:.3g}**" if end == n_workers else f"{s[k]:.3g}" for end, _, s in found.values()]
        print(f"| {n_workers:,} | {' | '.join(cells)} |")
    return found


def print_changes(costs: Costs, data_bytes: float, seed: int) -> None:
    """Print what would move the end."""
    print(f"\n{data_bytes / 1e12:g} TB: what would move the point\n")
    print("| change | it ends at | s a pass there | fastest, s | at 100 workers, s |\n|---|---|---|---|---|")
    wide = "100 times the features in a row, as many bytes"
    changes = CHANGES | {wide: {}}
    for name, change in changes.items():
        given = scale_totals(costs, 100) if name == wide else costs
        cluster = replace(Cluster(data_bytes), **change)
        end, there, seconds = find_end(given, cluster, WORKERS, seed)
        at_100 = mean_seconds(given, cluster, 100, seed)
        print(f"| {name} | {end:,} | {there:.3g} | {min(seconds):.3g} | {at_100:.3g} |")


if __name__ == "__main__":
    main()
