"""Training on data several times larger than memory, under an external memory limit, as a Markdown table.

    python pipelines/larger_than_memory.py [--memory SIZE] [--times 8] [--sparse] [--solver NAME] [--thorough]
        [--small] [--seed 0] [--work FOLDER]

The story generates rows block by block: the labels are a linear function of the rows, with a tenth of them flipped;
with --sparse, the rows resemble text. It then trains on two threads, on two worker processes, and with a budget that is
too small. With --thorough, it also trains on one and on four workers, and it stops a training after some passes and
resumes it. All models must be identical to the last bit. The interior-point method (1,200 features, gap 1e-6) holds 290
bytes for each row and takes 900 MB. pipelines/limits.py imposes the memory limit. The exit status is 0 if every run
converged, if peak <= projection <= budget held in each, if the models were identical, and if the small budget was
refused before anything ran; otherwise it is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.limits import Limit, limit_memory
from pipelines.report import Report
from pipelines.sparse_rows import SparseTruth
from pipelines.story import add_work_argument, open_work, run_story
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.generated import Truth, write_generated
from streamsvm.system.errors import InputError
from streamsvm.system.machine import format_bytes, parse_bytes, peak_bytes

# By solver and whether rows are sparse: the rows, the settings, and a budget. The budget includes up to 60 MB that the
# libraries of a fresh installation take in addition. Cuts are dense vectors, so sparse runs keep fewer cuts.
KINDS = {
    ("cutting-plane", False): (Truth(n_features=64), "--C 0.001", "400MB"),
    ("cutting-plane", True): (SparseTruth(n_features=20_000, row_items=60), "--C 0.03 --option max_cuts=50", "450MB"),
    ("interior-point", False): (Truth(n_features=1200), "--solver interior-point --C 0.001 --tol 1e-6", "900MB"),
}
RUNS = {"2 threads": ("--threads 2", 1), "2 workers": ("--workers 2", 3)}  # options, number of processes
MORE_RUNS = {"1 worker": ("--workers 1", 2), "4 workers": ("--workers 4", 5)}
STOPPED, STOPPED_AFTER_PASSES = "stopped and resumed", 7
SMALL_TIMES = 1.5
TOO_SMALL_BYTES = 100 * 10**6
COLUMNS = (
    "run",
    "model",
    "status",
    "certified gap",
    "passes",
    "seconds",
    "peak memory",
    "projected",
    "budget",
    "MB/s read",
    "limit from outside",
)


def main() -> int:
    options = parse_arguments()

    def tell() -> int:
        with open_work(options.work) as work:
            return run_all(work, options)

    return run_story("larger_than_memory.py", tell)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="larger_than_memory.py", description="Training on data several times larger than memory."
    )
    parser.add_argument("--memory", help="memory budget of a process (default: 400MB to 900MB, by the kind of rows)")
    parser.add_argument("--times", type=float, default=8.0, help="size of the data in budgets (default: %(default)s)")
    parser.add_argument("--sparse", action="store_true", help="rows like text: 20,000 features, 60 of them not zero")
    parser.add_argument("--solver", choices=("cutting-plane", "interior-point"), default="cutting-plane")
    parser.add_argument("--thorough", action="store_true", help="train on more numbers of workers, and resume")
    parser.add_argument("--small", action="store_true", help="generate 1.5 budgets of data: under a minute")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated rows (default: %(default)s)")
    add_work_argument(parser)
    return parser.parse_args()


def run_all(work: Path, options: argparse.Namespace) -> int:
    """Generate the data, train, print the table, and return the exit status."""
    if (options.solver, options.sparse) not in KINDS:
        raise InputError(f"{options.solver} cannot be used with sparse rows of 20,000 features")
    truth, settings, enough = KINDS[options.solver, options.sparse]
    budget_bytes = parse_bytes(options.memory or enough)
    truth = replace(truth, seed=options.seed)
    report = Report()
    data = generate(work, truth, (SMALL_TIMES if options.small else options.times) * budget_bytes, report)
    kind = "sparse" if data.is_sparse else "dense"
    report.begin_table(
        f"{data.n_rows:,} rows of {data.n_features:,} features, {kind}, {format_bytes(data.nbytes)}: "
        f"{data.nbytes / budget_bytes:.1f} times the budget",
        *COLUMNS,
    )
    held, models = train_all(data, work, settings, budget_bytes, options.thorough, report)
    same = len(models) == 1 and "" not in models
    report.write(f"\nModels: {'the same' if same else 'not the same (!)'}")
    return 0 if show_refusal(data, work / "refused", settings) and held and same else 1


def train_all(
    data: Dataset, work: Path, settings: str, budget_bytes: int, thorough: bool, report: Report
) -> tuple[bool, set[str]]:
    """Train in every way; return whether all runs met the conditions, and the SHA-256 digits of all models."""
    settings_here = f"{settings} --memory {budget_bytes}"
    held, models = True, set()
    for name, (how, processes) in (RUNS | MORE_RUNS if thorough else RUNS).items():
        with limit_memory(budget_bytes, processes) as limit:
            done = train(data, work / name.replace(" ", "-"), f"{settings_here} {how}", limit)
        held = add_run(report, name, done, budget_bytes, limit) and held
        models.add(name_model(done))
    if thorough:
        with limit_memory(budget_bytes, 1) as limit:
            stop = f"--max-passes {STOPPED_AFTER_PASSES}"
            train(data, work / "stopped", f"{settings_here} --threads 2 {stop}", limit)
            done = train(data, work / "stopped", f"{settings_here} --threads 2 --resume", limit)
        held = add_run(report, STOPPED, done, budget_bytes, limit) and held
        models.add(name_model(done))
    return held, models


def generate(work: Path, truth: Truth, wanted_bytes: float, report: Report) -> Dataset:
    """Write the dataset, and report its cost. Raises InputError if the disk has no room for it."""
    free_bytes = shutil.disk_usage(work).free
    if wanted_bytes > 0.9 * free_bytes:
        wanted, free = format_bytes(wanted_bytes), format_bytes(free_bytes)
        raise InputError(
            f"{work}: the dataset takes {wanted}, and the disk has {free} free; choose another folder with --work, or "
            f"a smaller --times"
        )
    began = time.monotonic()
    data = write_generated(work / "generated.zarr", max(2, int(wanted_bytes / truth.row_bytes)), truth)
    seconds, peak = time.monotonic() - began, format_bytes(peak_bytes())
    report.write(f"The data were generated in {seconds:.0f} s; the generating process took {peak} at its peak.")
    return data


def train(data: Dataset, run: Path, settings: str, limit: Limit) -> subprocess.CompletedProcess[str]:
    """Run `streamsvm train` under a limit."""
    shell = ["sh", "-c", f'{limit.prologue} && exec "$@"', "sh"]
    arguments = ["train", data.path, "--out", str(run), *settings.split(), "--json"]
    command = [*shell, sys.executable, "-m", "streamsvm", *arguments]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # idle BLAS threads would reserve buffers
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def add_run(report: Report, name: str, done: subprocess.CompletedProcess[str], budget_bytes: int, limit: Limit) -> bool:
    """Write the row of a run. Return whether the run converged within the budget."""
    if done.returncode not in (0, 3):
        report.add_row(name, f"failed: {last_line(done.stderr)}", *[""] * (len(COLUMNS) - 3), limit.description)
        return False
    result: dict[str, Any] = json.loads(last_line(done.stdout))
    peak, projected = result["peak_memory_bytes"], result["projected_memory_bytes"]
    report.add_row(
        name,
        name_model(done),
        result["status"],
        f"{result['relative_gap']:.2e}",
        str(result["passes"]),
        f"{result['seconds']:.0f}",
        *map(format_bytes, (peak, projected, budget_bytes)),
        f"{result['read_bytes'] / 1e6 / max(result['seconds'], 1e-9):,.0f}",
        limit.description,
    )
    return bool(result["status"] == "converged" and peak <= projected <= budget_bytes)


def name_model(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first digits of the SHA-256 of the model; "" if there is no model."""
    return str(json.loads(last_line(done.stdout))["model_sha256"])[:8] if done.returncode in (0, 3) else ""


def show_refusal(data: Dataset, run: Path, settings: str) -> bool:
    """Train with too small a budget; return whether it was refused before the first pass."""
    done = train(data, run, f"{settings} --memory {TOO_SMALL_BYTES}", Limit("true", "none"))
    ran = (run / "history.jsonl").exists() and (run / "history.jsonl").read_text() != ""
    budget, what = format_bytes(TOO_SMALL_BYTES), "ran" if ran else "nothing ran"
    print(f"\nA budget of {budget}: exit status {done.returncode}, {what}:\n\n> {last_line(done.stderr)}")
    return done.returncode == 2 and not ran


def last_line(text: str) -> str:
    """Return the last line of a text; "" if there is none."""
    return (text.strip().splitlines() or [""])[-1]


if __name__ == "__main__":
    sys.exit(main())
