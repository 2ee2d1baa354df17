"""Up to how many workers a pass over the data becomes faster: 10 to 10,240 workers, simulated from measurements.

    python pipelines/scale.py [--small] [--seed 0] [--work FOLDER] [--picture FILE.png]

The parts of one pass of the cutting-plane solver over dense rows are measured on this machine: a task with its rows in
memory, a task that streams its rows from files, sums of totals, messages, the scheduler's time for a task, and the
master problem. simulate.py builds a pass on many workers from these parts. The simulation is compared with measured
passes on one and two workers of this machine. Then it is asked for data of 100 GB to 100 TB, and for the changes that
would move the end of scaling: the number of workers from which twice as many save less than a fifth of the time. The
network (10 Gb/s, 0.2 ms) and a worker's memory for rows (4 GB) are assumed; a worker is a core with files of its own.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from pipelines.report import Report
from pipelines.scale.measure import Costs, Line, generate, measure, time_passes
from pipelines.scale.simulate import Cluster, End, find_end, mean_seconds, scale_totals
from pipelines.story import add_work_argument, open_work, run_story
from streamsvm.data.dataset import Dataset
from streamsvm.machine import default_threads

FEATURES = 64
DATA_BYTES, SMALL_BYTES = 512 << 20, 48 << 20
TASKS, SMALL_TASKS = 256, 64  # These tasks have next to no rows; they measure the scheduler.
WORKERS = [10 * 2**k for k in range(11)]
SIZES = {"100 GB": 1e11, "1 TB": 1e12, "10 TB": 1e13, "100 TB": 1e14}
SMALL_SIZES = {"100 GB": 1e11, "1 TB": 1e12}
CUTS = (16, 64, 256)  # Tasks of the passes that are measured and simulated.
GROUP_BYTES = 256 * 2**20
AS_IT_IS = Cluster(0.0)
HERE = replace(AS_IT_IS, bandwidth=2e9, latency=5e-5, memory_bytes=1e12)  # Sockets within one machine.
CHANGES = {
    "as it is": AS_IT_IS,
    "tasks of 1 GiB": replace(AS_IT_IS, task_bytes=4 * GROUP_BYTES),
    "tasks of 4 GiB": replace(AS_IT_IS, task_bytes=16 * GROUP_BYTES),
    "tasks of 64 MiB": replace(AS_IT_IS, task_bytes=GROUP_BYTES / 4),
    "tasks given out to all workers in turn": replace(AS_IT_IS, in_turn=True),
    "a worker adds its own groups up: one task each": replace(AS_IT_IS, one_task=True),
    "sums of eight parts": replace(AS_IT_IS, fan_in=8),
    "the driver adds all totals": replace(AS_IT_IS, fan_in=0),
    "w sent to one worker after another": replace(AS_IT_IS, tree_broadcast=False),
    "100 Gb/s, 0.05 ms": replace(AS_IT_IS, bandwidth=1.25e10, latency=5e-5),
    "1 Gb/s, 0.5 ms": replace(AS_IT_IS, bandwidth=1.25e8, latency=5e-4),
    "one worker in a hundred half as fast": replace(AS_IT_IS, slow_share=0.01),
    "no row stays in memory": replace(AS_IT_IS, memory_bytes=0.0),
    "a scheduler ten times as fast": replace(AS_IT_IS, scheduler_speed=10.0),
}
BOTH = "one task a worker, a scheduler ten times as fast"
CHANGES[BOTH] = replace(AS_IT_IS, one_task=True, scheduler_speed=10.0)
WIDE = "100 times the features in a row, as many bytes"
CHANGES[WIDE] = AS_IT_IS


def main() -> int:
    options = parse_arguments()
    return run_story("scale.py", lambda: tell(options))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scale.py", description="Up to how many workers a pass over the data becomes faster."
    )
    parser.add_argument("--small", action="store_true", help="use less data and fewer sizes: under a minute")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation (default: %(default)s)")
    add_work_argument(parser)
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw the simulated seconds into this file")
    return parser.parse_args()


def tell(options: argparse.Namespace) -> int:
    """Measure, compare, simulate and print."""
    small, report = options.small, Report()
    sizes = SMALL_SIZES if small else SIZES
    with open_work(options.work) as work:
        data = generate(work, SMALL_BYTES if small else DATA_BYTES, FEATURES)
        costs = measure(work, data, SMALL_TASKS if small else TASKS)
        report_costs(costs, report)
        report_comparison(data, costs, CUTS[:1] if small else CUTS, options.seed, report)
    ends = report_sizes(costs, sizes, options.seed, report)
    report_changes(costs, 1e12 if small else 1e13, options.seed, report)
    if options.picture is not None:
        from pipelines.scale.picture import draw

        changed = {
            name: find_end(costs, replace(CHANGES[BOTH], data_bytes=nbytes), WORKERS, options.seed)
            for name, nbytes in sizes.items()
        }
        draw(options.picture, WORKERS, {"as it is": ends, BOTH: changed})
    return 0


def report_costs(costs: Costs, report: Report) -> None:
    """Write the table of what was measured."""
    rows = {
        f"a task of 256 MiB, {FEATURES} features, rows in memory": f"{costs.kept * GROUP_BYTES * 1e3:.0f} ms",
        "the same, rows streamed from files in the system's cache": f"{costs.streamed * GROUP_BYTES * 1e3:.0f} ms",
        "deviation of the logarithm of a task's time": f"{costs.sigma:.3f}",
        f"totals of a task: {costs.totals_bytes / 1e3:.0f} kB; adding two": format_line(costs.combine, costs),
        "packing and unpacking them": format_line(costs.message, costs),
        "a group more, its task and its sum: scheduler and driver": f"{costs.overhead * 1e3:.2f} ms",
        "the same: its worker": f"{costs.worker_overhead * 1e3:.2f} ms",
        "a task that waits for one before it": f"{costs.link * 1e3:.1f} ms",
        "driver: master problem, a step": f"{costs.driver * 1e3:.1f} ms",
    }
    report.begin_table("", "measured here", "")
    for name, value in rows.items():
        report.add_row(name, value)


def format_line(line: Line, costs: Costs) -> str:
    """Return the time for the totals of a task, and the speed for large totals."""
    return f"{line.at(costs.totals_bytes) * 1e3:.3f} ms ({1 / line.slope / 1e9:.1f} GB/s)"


def report_comparison(data: Dataset, costs: Costs, cuts: tuple[int, ...], seed: int, report: Report) -> None:
    """Write the table of simulated and measured passes; here driver, scheduler and workers share the cores."""
    cores = default_threads()
    report.begin_table(
        f"{data.nbytes / 1e6:.0f} MB in memory, on this machine of {cores} cores (measured: the fastest of 8)",
        *("workers", "tasks", "simulated, s", "measured", "ratio", "CPU simulated, s", "measured", "ratio"),
    )
    for n_workers in (1, 2):
        for cut in cuts:
            real = time_passes(data, n_workers, cut)
            cluster = replace(HERE, data_bytes=data.nbytes, task_bytes=data.nbytes / real.n_tasks)
            work = data.nbytes * costs.kept + real.n_tasks * (costs.overhead + costs.worker_overhead)
            simulated = max(mean_seconds(costs, cluster, n_workers, seed), work / cores)
            pairs = ((simulated, real.fastest), (work, real.driver + real.workers))
            cells = (f"{x:.{digits}f}" for a, b in pairs for x, digits in ((a, 3), (b, 3), (a / b, 2)))
            report.add_row(str(n_workers), str(real.n_tasks), *cells)


def report_sizes(costs: Costs, sizes: dict[str, float], seed: int, report: Report) -> dict[str, End]:
    """Write the seconds of a pass by workers; return them, and where they stop falling."""
    report.begin_table("Seconds a pass; bold: twice the workers save less than a fifth", "workers", *sizes)
    found = {name: find_end(costs, Cluster(nbytes), WORKERS, seed) for name, nbytes in sizes.items()}
    for k, n_workers in enumerate(WORKERS):
        cells = [f"**{s[k]:.3g}**" if end == n_workers else f"{s[k]:.3g}" for end, _, s in found.values()]
        report.add_row(f"{n_workers:,}", *cells)
    return found


def report_changes(costs: Costs, data_bytes: float, seed: int, report: Report) -> None:
    """Write where scaling would end after each change."""
    report.begin_table(
        f"{data_bytes / 1e12:g} TB: what would move the point",
        *("change", "it ends at", "s a pass there", "fastest, s", "at 100 workers, s"),
    )
    for name, change in CHANGES.items():
        given = scale_totals(costs, 100) if name == WIDE else costs
        cluster = replace(change, data_bytes=data_bytes)
        end, there, seconds = find_end(given, cluster, WORKERS, seed)
        at_100 = mean_seconds(given, cluster, 100, seed)
        report.add_row(name, f"{end:,}", *(f"{x:.3g}" for x in (there, min(seconds), at_100)))


if __name__ == "__main__":
    sys.exit(main())
