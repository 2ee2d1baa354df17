"""Training on data several times larger than memory, under a limit set from outside, as a Markdown table.

    python pipelines/larger_than_memory.py [--memory 400MB] [--times 8] [--sparse] [--solver NAME] [--thorough]
        [--small] [--seed 0] [--work DIR]

Generates rows block by block (a noisy linear truth, a tenth of the labels flipped; --sparse: like text), then trains
on two threads, on two worker processes, and with a budget that is too small. --thorough: on one and four workers, too,
and a run that is stopped after some passes and gone on with; all models have to be the same, to the bit. interior-point
(1,200 features, gap 1e-6; it holds 290 bytes a row) takes --memory 900MB. The limit is a control group (cgroup v2,
memory.max without swap; one group for all processes of a run) where this user may make one, and otherwise
RLIMIT_DATA in every process. That one leaves out the libraries' file pages, about 100 MB, and counts what is reserved
and never touched, about 150 MB (BLAS buffers, stacks): so it is set 64 MB above the budget. Exit status: 0 if all of
this held: converged, peak <= projection <= budget, the same model, and the small budget refused before anything ran; 1
if not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamsvm.data.dataset import Dataset
from streamsvm.data.generated import Truth, write_generated
from streamsvm.errors import InputError
from streamsvm.machine import format_bytes, parse_bytes, peak_bytes

KINDS = {  # by solver, and whether rows are sparse; a cut is a dense vector
    ("cutting-plane", False): (Truth(n_features=64), "--C 0.001"),
    ("cutting-plane", True): (Truth(n_features=20_000, row_items=60), "--C 0.03 --option max_cuts=100"),
    ("interior-point", False): (Truth(n_features=1200), "--solver interior-point --C 0.001 --tol 1e-6"),
}
RUNS = {"2 threads": ("--threads 2", 1), "2 workers": ("--workers 2", 3)}  # options; processes of the run
MORE_RUNS = {"1 worker": ("--workers 1", 2), "4 workers": ("--workers 4", 5)}
STOPPED, STOPPED_AFTER = "stopped, gone on with", 7  # passes
RESERVED_BYTES = 64 * 10**6
SMALL_TIMES = 1.5
TOO_SMALL_BYTES = 100 * 10**6
COLUMNS = "run | model | status | certified gap | passes | seconds | peak memory | projected | budget | MB/s read"


@dataclass(frozen=True)
class Limit:
    """A memory limit from outside: a shell's prologue that puts a process under it, and its description."""

    prologue: str
    description: str


def main() -> int:
    options = parse_arguments()
    try:
        if options.work is not None:
            options.work.mkdir(parents=True, exist_ok=True)
        with nullcontext(options.work) if options.work else TemporaryDirectory() as work:
            return run_all(Path(work), options)
    except InputError as error:
        print(f"larger_than_memory.py: {error}", file=sys.stderr)
        return 2


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="training on data several times larger than memory")
    parser.add_argument("--memory", default="400MB", help="budget of one process (default: 400MB)")
    parser.add_argument("--times", type=float, default=8.0, help="size of the data, in budgets (default: 8)")
    parser.add_argument("--sparse", action="store_true", help="rows like text: 20,000 features, 60 not zero")
    parser.add_argument("--solver", choices=("cutting-plane", "interior-point"), default="cutting-plane")
    parser.add_argument("--thorough", action="store_true", help="more numbers of workers, and a run that is stopped")
    parser.add_argument("--small", action="store_true", help="1.5 budgets of data: under a minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="keep dataset and runs in this folder (default: a passing one)")
    return parser.parse_args()


def run_all(work: Path, options: argparse.Namespace) -> int:
    """Generate, train, print; return the exit status."""
    budget_bytes = parse_bytes(options.memory)
    if (options.solver, options.sparse) not in KINDS:
        raise InputError(f"{options.solver} is not for sparse rows of 20,000 features")
    truth, settings = KINDS[options.solver, options.sparse]
    truth = Truth(truth.n_features, truth.row_items, truth.noise, options.seed)
    data = generate(work, truth, (SMALL_TIMES if options.small else options.times) * budget_bytes)
    print(
        f"\n{data.n_rows:,} rows of {data.n_features:,} features, {'sparse' if data.is_sparse else 'dense'}, "
        f"{format_bytes(data.nbytes)}: {data.nbytes / budget_bytes:.1f} times the budget\n"
    )
    print(f"| {COLUMNS} | limit from outside |\n{'|---' * (COLUMNS.count('|') + 2)}|")
    held, models = True, set()
    settings_here = f"{settings} --memory {budget_bytes}"
    for name, (how, processes) in (RUNS | MORE_RUNS if options.thorough else RUNS).items():
        with limit_memory(budget_bytes, processes) as limit:
            done = train(data, work / name.replace(" ", "-"), f"{settings_here} {how}", limit)
        held = print_row(name, done, budget_bytes, limit) and held
        models.add(name_model(done))
    if options.thorough:
        with limit_memory(budget_bytes, 1) as limit:
            train(data, work / "stopped", f"{settings_here} --threads 2 --max-passes {STOPPED_AFTER}", limit)
            done = train(data, work / "stopped", f"{settings_here} --threads 2 --resume", limit)
        held = print_row(STOPPED, done, budget_bytes, limit) and held
        models.add(name_model(done))
    same = len(models) == 1 and "" not in models
    print(f"\nModels: {'the same' if same else 'not the same (!)'}")
    return 0 if show_refusal(data, work / "refused", settings) and held and same else 1


def generate(work: Path, truth: Truth, wanted_bytes: float) -> Dataset:
    """Write the dataset, and say what it cost; InputError where the disk has no room for it."""
    free_bytes = shutil.disk_usage(work).free
    if wanted_bytes > 0.9 * free_bytes:
        raise InputError(f"{work}: {format_bytes(wanted_bytes)} are to be written, {format_bytes(free_bytes)} are free")
    began = time.monotonic()
    data = write_generated(work / "generated.zarr", max(2, int(wanted_bytes / truth.row_bytes)), truth)
    seconds, peak = time.monotonic() - began, format_bytes(peak_bytes())
    print(f"generated in {seconds:.0f} s, peak memory of the generating process {peak}", flush=True)
    return data


def train(data: Dataset, run: Path, settings: str, limit: Limit) -> subprocess.CompletedProcess[str]:
    """Run `streamsvm train` under a limit."""
    shell = ["sh", "-c", f'{limit.prologue} && exec "$@"', "sh"]
    arguments = ["train", data.path, "--out", str(run), *settings.split(), "--json"]
    command = [*shell, sys.executable, "-m", "streamsvm", *arguments]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # buffers of idle BLAS threads are reserved memory
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def limit_memory(budget_bytes: int, processes: int) -> Iterator[Limit]:
    """Make a control group for so many processes, or settle for RLIMIT_DATA in each."""
    group = make_control_group(budget_bytes * processes)
    if group is None:
        limit_bytes = budget_bytes + RESERVED_BYTES
        prologue = f"ulimit -s 2048 && ulimit -d {limit_bytes // 1024}"  # in KiB; smaller stacks reserve less
        yield Limit(prologue, f"RLIMIT_DATA {format_bytes(limit_bytes)} a process")
        return
    size = format_bytes(budget_bytes * processes)
    try:
        yield Limit(f"echo $$ > '{group}/cgroup.procs'", f"cgroup memory.max {size}, no swap")
    finally:
        group.rmdir()


def make_control_group(limit_bytes: int, mount: Path = Path("/sys/fs/cgroup")) -> Path | None:
    """Make a control group beside or below this process's own; None where that is not allowed (or not version 2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = mount / next(line[3:] for line in lines if line.startswith("0::")).strip("/")
    except (OSError, StopIteration):
        return None
    for parent in (own.parent, own):
        group = parent / f"streamsvm-{os.getpid()}"
        if not (parent / "cgroup.controllers").exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, value in (("memory.max", limit_bytes), ("memory.swap.max", 0)):
                with (group / name).open("r+") as file:
                    file.write(str(value))
            return group
        except OSError:
            group.rmdir()
    return None


def print_row(name: str, done: subprocess.CompletedProcess[str], budget_bytes: int, limit: Limit) -> bool:
    """Print a run; return whether it converged within the budget."""
    if done.returncode not in (0, 3):
        empty = " |" * COLUMNS.count("|")
        print(f"| {name} | failed: {last_line(done.stderr)}{empty} {limit.description} |", flush=True)
        return False
    result: dict[str, Any] = json.loads(last_line(done.stdout))
    peak, projected = result["peak_memory_bytes"], result["projected_memory_bytes"]
    speed = result["read_bytes"] / 1e6 / max(result["seconds"], 1e-9)
    sizes = " | ".join(format_bytes(size) for size in (peak, projected, budget_bytes))
    print(
        f"| {name} | {name_model(done)} | {result['status']} | {result['relative_gap']:.2e} | {result['passes']} "
        f"| {result['seconds']:.0f} | {sizes} | {speed:,.0f} | {limit.description} |",
        flush=True,
    )
    return bool(result["status"] == "converged" and peak <= projected <= budget_bytes)


def name_model(done: subprocess.CompletedProcess[str]) -> str:
    """First digits of the SHA-256 of the model; empty if there is none."""
    return str(json.loads(last_line(done.stdout))["model_sha256"])[:8] if done.returncode in (0, 3) else ""


def show_refusal(data: Dataset, run: Path, settings: str) -> bool:
    """Train with too small a budget; return whether that was refused before the first pass."""
    done = train(data, run, f"{settings} --memory {TOO_SMALL_BYTES}", Limit("true", "none"))
    ran = (run / "history.jsonl").exists() and (run / "history.jsonl").read_text() != ""
    budget, what = format_bytes(TOO_SMALL_BYTES), "ran" if ran else "nothing ran"
    print(f"\nA budget of {budget}: exit status {done.returncode}, {what}:\n\n> {last_line(done.stderr)}")
    return done.returncode == 2 and not ran


def last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


if __name__ == "__main__":
    sys.exit(main())
