"""The scaling of a pass over the data with the number of workers, simulated from measurements for 10 to 10,240 workers.

    python pipelines/scale.py [--small] [--seed 0] [--work FOLDER] [--picture FILE.png]

In a pass, each worker gets one task, which adds up the worker's groups of chunks; workers then join the totals in a
tree. Measurements on this machine, with 2 to 32 small workers, give the costs of a pass for the driver and the
scheduler, and the costs of reading, sums, messages and the master problem. From these costs, simulate.py computes the
time of a pass on many workers, for data of 100 GB to 100 TB. The end of scaling is the number of workers beyond which
twice as many workers save less than a fifth of the time. The story also simulates changes that would move the end of
scaling. The network (10 Gb/s, 0.2 ms) and the memory of a worker for rows (4 GB) are assumptions; a worker is a core
with its own files.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines.report import Report
from pipelines.scale.measure import Costs, Line, generate, measure
from pipelines.scale.passes import Phases
from pipelines.scale.simulate import Cluster, End, arrive, find_end, join, mean_seconds, scale_totals, simulate
from pipelines.story import add_work_argument, open_work, run_story

FEATURES = 64
DATA_BYTES, SMALL_BYTES = 512 << 20, 48 << 20
MEASURED, SMALL_MEASURED = (2, 8, 16, 32), (1, 3)  # the numbers of workers in the measurements on this machine
WORKERS = [10 * 2**k for k in range(11)]
SHOWN = (10, 100, 320, 1000, 3200, 10_000)
GROUPS_A_WORKER = 16  # the numbers of workers in the table of a pass's costs beyond reading
SIZES = {"100 GB": 1e11, "1 TB": 1e12, "10 TB": 1e13, "100 TB": 1e14}
SMALL_SIZES = {"100 GB": 1e11, "1 TB": 1e12}
GROUP_BYTES = 256 * 2**20
AS_IT_IS = Cluster(0.0)
CHANGES = {
    "as it is": AS_IT_IS,
    "groups of 64 MiB": replace(AS_IT_IS, group_bytes=GROUP_BYTES / 4),
    "groups of 1 GiB": replace(AS_IT_IS, group_bytes=4 * GROUP_BYTES),
    "16 cores of a machine are one task": replace(AS_IT_IS, cores=16),
    "a scheduler ten times as fast": replace(AS_IT_IS, scheduler_speed=10.0),
    "sums of two parts": replace(AS_IT_IS, fan_in=2),
    "nobody helps slow workers": replace(AS_IT_IS, help=False),
    "one worker in a hundred half as fast": replace(AS_IT_IS, slow_share=0.01),
    "100 Gb/s, 0.05 ms": replace(AS_IT_IS, bandwidth=1.25e10, latency=5e-5),
    "1 Gb/s, 0.5 ms": replace(AS_IT_IS, bandwidth=1.25e8, latency=5e-4),
    "no row stays in memory": replace(AS_IT_IS, memory_bytes=0.0),
}
BOTH = "16 cores are one task, a scheduler ten times as fast"
CHANGES[BOTH] = replace(AS_IT_IS, cores=16, scheduler_speed=10.0)
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
    """Measure, simulate and print."""
    small, report = options.small, Report()
    sizes = SMALL_SIZES if small else SIZES
    with open_work(options.work) as work:
        data = generate(work, SMALL_BYTES if small else DATA_BYTES, FEATURES)
        costs, phases = measure(work, data, SMALL_MEASURED if small else MEASURED)
    report_costs(costs, report)
    report_phases(costs, phases, report)
    report_beyond(costs, options.seed, report)
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
    """Write the table of the measurements that do not depend on workers."""
    rows = {
        f"a group of 256 MiB, {FEATURES} features, rows in memory": f"{costs.kept * GROUP_BYTES * 1e3:.0f} ms",
        "the same, rows streamed from files in the system's cache": f"{costs.streamed * GROUP_BYTES * 1e3:.0f} ms",
        "deviation of the logarithm of a group's time": f"{costs.sigma:.3f}",
        f"totals of a group: {costs.totals_bytes / 1e3:.0f} kB; adding two": format_line(costs.combine, costs),
        "packing and unpacking them": format_line(costs.message, costs),
        "a worker: its task, and its share of the joins": f"{costs.worker * 1e3:.1f} ms",
        "a task that waits for one before it": f"{costs.link * 1e3:.1f} ms",
        "driver: master problem, a step": f"{costs.driver * 1e3:.1f} ms",
    }
    report.begin_table("", "measured here", "")
    for name, value in rows.items():
        report.add_row(name, value)


def format_line(line: Line, costs: Costs) -> str:
    """Return a text with the time for the totals of a group, and with the speed for large totals."""
    return f"{line.at(costs.totals_bytes) * 1e3:.3f} ms ({1 / line.slope / 1e9:.1f} GB/s)"


def report_phases(costs: Costs, phases: dict[int, Phases], report: Report) -> None:
    """Write the table of a pass's costs for driver and scheduler by the number of workers, with the fitted lines."""
    names = {
        "sends": "driver: sends",
        "ends": "ends",
        "gives": "scheduler: gives",
        "hears": "hears",
        "frees": "frees",
    }
    report.begin_table("CPU ms of a pass over next to no rows, each the least of 8", "workers", *names.values(), "all")
    for n_workers, found in phases.items():
        cells = [1e3 * getattr(found, name) for name in names]
        report.add_row(str(n_workers), *(f"{cell:.1f}" for cell in (*cells, sum(cells))))
    slopes = [1e3 * getattr(costs, name).slope for name in names]
    report.add_row("a worker more", *(f"{cell:.2f}" for cell in (*slopes, sum(slopes))))


def report_beyond(costs: Costs, seed: int, report: Report) -> None:
    """Write the costs of a pass beyond reading, by the number of workers."""
    report.begin_table(
        f"Seconds of a pass beyond the reading of an average worker, {GROUPS_A_WORKER} groups each (simulated)",
        *("workers", "driver sends", "scheduler gives", "hears", "frees", "w", "joins", "beyond reading"),
    )
    for n in SHOWN:
        cluster = replace(AS_IT_IS, data_bytes=GROUP_BYTES * GROUPS_A_WORKER * n, memory_bytes=1e12)
        beyond = [simulate(costs, cluster, n, np.random.default_rng((seed, n, k))).beyond for k in range(3)]
        parts = [getattr(costs, name).at(n) for name in ("sends", "gives", "hears", "frees")]
        joins = join(costs, cluster, GROUPS_A_WORKER * n, n)
        cells = (*parts, arrive(costs, cluster, n), joins)
        report.add_row(f"{n:,}", *(f"{cell:.3f}" for cell in cells), f"{np.mean(beyond):.2f}")


def report_sizes(costs: Costs, sizes: dict[str, float], seed: int, report: Report) -> dict[str, End]:
    """Write the seconds of a pass by the number of workers. Return these seconds, and the ends of scaling."""
    report.begin_table("Seconds a pass; bold: twice the workers save less than a fifth", "workers", *sizes)
    found = {name: find_end(costs, Cluster(nbytes), WORKERS, seed) for name, nbytes in sizes.items()}
    for k, n_workers in enumerate(WORKERS):
        cells = [f"**{s[k]:.3g}**" if end == n_workers else f"{s[k]:.3g}" for end, _, s in found.values()]
        report.add_row(f"{n_workers:,}", *cells)
    return found


def report_changes(costs: Costs, data_bytes: float, seed: int, report: Report) -> None:
    """Write the end of scaling after each change."""
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
