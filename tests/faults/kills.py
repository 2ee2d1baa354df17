"""Kills at random moments: of training processes, which are resumed, and of workers, whose run goes on.

    python tests/faults/kills.py [--drivers 100] [--workers 100] [--seed 0] [--part 1]

Drivers are processes of their own for every solver, which write a checkpoint after every second step. Each is killed
at a moment drawn by the seed, gone on with, killed again, and gone on with to the end. Workers: two processes train one
problem after another, and one of them is killed at a moment drawn by the seed. What comes out has to have the bits of
an undisturbed run. Prints Markdown tables; exit status 1 if anything was wrong. With `--part 10` the
datasets have a tenth of their rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork

from distributed import Client

from streamsvm.data.open import open_dataset
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.estimators import LinearSVC  # noqa: F401  (forks begin with everything imported)
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.faults.cases import CASES, Case, load_kernels, make_data
from tests.faults.forks import describe_run, fork, run
from tests.faults.instants import keep_every

WORKER_BYTES = 2 << 30
REPLACED_SECONDS = 15.0  # after which a worker is taken for lost
LATEST = 0.8  # share of the time of an undisturbed run after which nothing is killed


def kill_driver(case: Case, work: Path, seconds: float, rng: random.Random) -> tuple[int, bool]:
    """Kill a training again and again, until it ends by itself; return how often, and whether all is the same."""
    out, told, kills = work / "run", work / "told", 0
    shutil.rmtree(out, ignore_errors=True)
    command = ["train", work / case.data, "--out", out, "--threads", "2", *case.arguments]
    for _ in range(2):
        command_now = [*command, "--resume"] if kills else command
        process, deadline = fork(command_now, told), time.monotonic() + rng.uniform(0, LATEST) * seconds
        while time.monotonic() < deadline and not process.has_ended():
            time.sleep(0.001)
        if not process.has_ended():
            os.kill(process.pid, signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    ended = run([*command, "--resume"], told)
    return kills, ended in (0, 3) and describe_run(out) == describe_run(work / f"whole-{case.name}")


def study_drivers(work: Path, number: int, seed: int) -> bool:
    """Kill so many drivers, solver by solver; print a row for each."""
    print("| solver | drivers killed | runs | not the same |\n|---|---|---|---|")
    all_kills, held = 0, True
    for k, case in enumerate(CASES[:number]):
        rng, told, wanted = random.Random(f"{seed} {case.name}"), work / "told", number // len(CASES)
        wanted += k < number % len(CASES)
        began = time.monotonic()
        whole = ["train", work / case.data, "--out", work / f"whole-{case.name}", "--threads", "2", *case.arguments]
        assert run(whole, told) in (0, 3), told.read_text()
        seconds, kills, runs, wrong = time.monotonic() - began, 0, 0, 0
        while kills < wanted:
            more, same = kill_driver(case, work, seconds, rng)
            kills, runs, wrong = kills + more, runs + 1, wrong + (not same)
        print(f"| {case.name} | {kills} | {runs} | {wrong} |", flush=True)
        all_kills, held = all_kills + kills, held and not wrong
    print(f"| all | {all_kills} | | {'none' if held else 'some'} |\n", flush=True)
    return held


def kill_one_later(workers: list[int], seconds: float, rng: random.Random) -> tuple[threading.Timer, list[int]]:
    """Kill one of the workers after so many seconds, if it is still there."""
    killed: list[int] = []

    def kill(pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        except ProcessLookupError:
            return

    timer = threading.Timer(seconds, kill, [rng.choice(workers)])
    timer.start()
    return timer, killed


def find_two(client: Client) -> list[int]:
    """Return the process numbers of both workers if they are there, or come back soon; none otherwise."""
    try:
        client.wait_for_workers(2, timeout=REPLACED_SECONDS)
        return list(client.run(os.getpid).values())
    except (TimeoutError, OSError):  # the latter where one is just going
        return []


def study_workers(work: Path, number: int, seed: int) -> bool:
    """Kill so many workers during runs of a line search and of an interior point; print a row for each."""
    fits = {
        "line search": TrainOptions(C=1, tol=1e-4, options={"acceleration": "line-search"}),
        "interior-point": TrainOptions(C=10, tol=1e-6, solver="interior-point"),
    }
    data, held = open_dataset(str(work / "long")), True
    print("| run on two workers | workers killed | runs | not the same |\n|---|---|---|---|")
    for k, (name, options) in enumerate(fits.items()):
        rng, kills, runs, wrong = random.Random(f"{seed} {name}"), 0, 0, 0
        wanted = number // len(fits) + (k < number % len(fits))
        while kills < wanted:  # Dask does not always replace a worker: then another two are started
            with start_workers(2, 1, WORKER_BYTES) as client:
                train(data, options, client=client)  # so that kernels are loaded
                began = time.monotonic()
                whole = train(data, options, client=client)
                seconds = time.monotonic() - began
                while kills < wanted and (pids := find_two(client)):
                    timer, killed = kill_one_later(pids, rng.uniform(0, 1) * seconds, rng)
                    result = train(data, options, client=client)
                    timer.cancel()
                    timer.join()
                    same = (result.model_sha256, result.status) == (whole.model_sha256, whole.status)
                    kills, runs, wrong = kills + len(killed), runs + 1, wrong + (not same)
        print(f"| {name} | {kills} | {runs} | {wrong} |", flush=True)
        held = held and not wrong
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description="kills at random moments")
    parser.add_argument("--drivers", type=int, default=100)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        driven = CASES[: options.drivers]  # with few, the first cases have one each
        make_data(work, {case.data for case in driven} | {"long"}, options.part)
        load_kernels(driven)
        held = True
        if options.drivers:
            keep_every(2)
            held = study_drivers(work, options.drivers, options.seed)
        if options.workers:
            held = study_workers(work, options.workers, options.seed) and held
    print(json.dumps({"held": held}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
