"""Clusters whose workers come and go during a training, for every solver. Prints a table of faults and solvers.

    python -m tests.faults.chaos [--times 5] [--seed 0] [--part 1] [--faults kill pause ...] [--only SOLVER ...]

A scheduler and two workers are processes of their own, and so is `streamsvm train --scheduler`. Every second or so

    kill        a worker is killed
    pause       a worker is stopped for two seconds (SIGSTOP)
    freeze      a worker is stopped for good; the scheduler gives it up after WORKER_TTL
    terminate   a worker is asked to end (SIGTERM), as before a preemption
    lifetime    workers end by themselves after two to six seconds, or less (`dask worker --lifetime`)
    join        a worker joins, until there are four; then two of them leave
    lose-all    all workers are killed, and others come a second later
    scheduler   the scheduler is killed: the run ends with a message, and goes on with --resume on another cluster

Where a worker has gone another one joins. Runs are repeated until each pair of fault and solver has met with so many
faults. After a run that ended before its fault came, the lives of workers and of the scheduler are shorter. It is wrong
if a pair takes more than MOST_RUNS runs for each fault. What comes out has to have the bits of an undisturbed run on
threads. A run that makes no step for HANG_SECONDS is counted as a hang. The exit status is 1 if anything was wrong.
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
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork

import dask
import distributed.cli.dask_scheduler
import distributed.cli.dask_worker

from streamsvm.data.rows import source
from streamsvm.engines.cluster import workers
from streamsvm.estimators import LinearSVC  # noqa: F401  (forks begin with everything imported)
from tests.faults.cases import CASES, Case, load_kernels, make_data
from tests.faults.forks import Forked, describe_run, fork, run
from tests.faults.instants import keep_every

HANG_SECONDS = 180.0
MOST_FAULTS = 4  # in a run: with a fault in every pass a run would take minutes
MOST_WRONG = 3  # runs of a fault and a solver that go wrong, until it is given up
MOST_RUNS = 25  # for each fault
WORKER_TTL = "4 s"
LISTEN = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
EMPTY_SECONDS = 1.0  # that a cluster is without workers
PAUSED_SECONDS = 2.0
LIFE_SECONDS, SHORTER = 4.0, 0.7  # how long a worker lives, give or take a half; the share after a run without a fault


def fork_command(main: Callable[..., object], arguments: Sequence[str], log: Path) -> int:
    """Run a command of Dask in a process of its own, and return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            for number in (1, 2):
                os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
            main(list(arguments))
        finally:
            os._exit(0)
    return pid


class Cluster:
    """A scheduler, and workers that come and go. more: arguments of each worker."""

    def __init__(self, work: Path, more: Sequence[str] = ()) -> None:
        self.file, self.log, self.more = work / "scheduler.json", work / "log", more
        self.file.unlink(missing_ok=True)
        main = distributed.cli.dask_scheduler.main
        self.scheduler = fork_command(main, (*LISTEN, "--port", "0", "--scheduler-file", str(self.file)), self.log)
        deadline = time.monotonic() + HANG_SECONDS
        while not self.file.exists() or not self.file.read_text().endswith("}"):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        self.address: str = json.loads(self.file.read_text())["address"]
        self.workers: list[int] = []
        self.keep(2)

    def join(self) -> None:
        """Begin another worker."""
        where = ("--scheduler-file", str(self.file), "--local-directory", str(self.file.parent / "workers"))
        size = ("--no-nanny", "--nthreads", "1", "--memory-limit", "1GB", "--preload", workers.__name__)
        main = distributed.cli.dask_worker.main
        self.workers.append(fork_command(main, (*LISTEN, *where, *size, *self.more), self.log))

    def keep(self, number: int) -> int:
        """Let workers join until there are so many; return how many had ended by themselves."""
        before = list(self.workers)
        self.workers = [pid for pid in before if not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)]
        ended = len(before) - len(self.workers)
        while len(self.workers) < number:
            self.join()
        return ended

    def strike(self, pid: int, number: signal.Signals) -> None:
        """Send a worker a signal, and forget it if it is to end."""
        os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.workers.remove(pid)

    def close(self) -> None:
        """Kill whatever is left."""
        for pid in (*self.workers, self.scheduler):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def strike(fault: str, cluster: Cluster, rng: random.Random) -> int:
    """Let a fault happen; return how many workers it has struck."""
    victim = rng.choice(cluster.workers)
    match fault:
        case "kill" | "terminate":
            cluster.strike(victim, signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        case "pause":
            cluster.strike(victim, signal.SIGSTOP)
            time.sleep(PAUSED_SECONDS)
            cluster.strike(victim, signal.SIGCONT)
        case "freeze":
            cluster.strike(victim, signal.SIGSTOP)
            cluster.join()
            time.sleep(2 * PAUSED_SECONDS)
            cluster.strike(victim, signal.SIGKILL)
        case "join":
            if len(cluster.workers) < 4:
                cluster.join()
            else:
                for pid in rng.sample(cluster.workers, 2):
                    cluster.strike(pid, signal.SIGKILL)
        case "lose-all":
            for pid in list(cluster.workers):
                cluster.strike(pid, signal.SIGKILL)
            time.sleep(EMPTY_SECONDS)
            cluster.keep(2)
            return 2
    cluster.keep(2)
    return 1


def watch(process: Forked, out: Path) -> Iterator[float]:
    """Yield the time again and again until a training ends. TimeoutError, and its end, if it makes no more steps."""
    size, since = -1, time.monotonic()
    while not process.has_ended():
        now, history = time.monotonic(), out / "history.jsonl"
        if history.exists() and (found := history.stat().st_size) != size:
            size, since = found, now
        if now - since > HANG_SECONDS:
            process.wait(0.0)
        yield now
        time.sleep(0.01)


def live_for(seconds: float) -> tuple[str, ...]:
    """Return the arguments of a worker that ends by itself after about so many seconds."""
    return "--lifetime", f"{seconds} s", "--lifetime-stagger", f"{seconds / 2} s"


def disturb(process: Forked, out: Path, fault: str, cluster: Cluster, rng: random.Random) -> int:
    """Let faults happen until the training ends; return how many. TimeoutError if it makes no more steps."""
    struck, next_strike, short = 0, float("inf"), cluster.more
    for now in watch(process, out):
        if next_strike == float("inf") and (out / "settings.json").exists():
            next_strike = now + rng.uniform(0.0, 1.0)
        if fault == "lifetime":
            struck += cluster.keep(2)
            cluster.more = short if struck < MOST_FAULTS else ()
        elif now >= next_strike and struck < MOST_FAULTS:
            struck, next_strike = struck + strike(fault, cluster, rng), now + rng.uniform(0.5, 1.5)
    return struck


def lose_scheduler(process: Forked, out: Path, cluster: Cluster, rng: random.Random, life: float) -> bool:
    """Kill the scheduler while the training is under way; return whether the training has ended by it, as it should."""
    while not (out / "settings.json").exists() and not process.has_ended():
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, life))
    os.kill(cluster.scheduler, signal.SIGKILL)
    for _ in watch(process, out):
        pass
    status, told = process.wait(), process.told.read_text()
    if status in (0, 3):  # it had ended before, or was about to
        return False
    said = f"streamsvm train: scheduler {cluster.address}: ", "--resume", status == 1, "Traceback" not in told
    if not all((told.splitlines()[-1].startswith(said[0]), said[1] in told.splitlines()[-1], *said[2:])):
        raise ValueError(f"status {status}, {told[-500:]}")
    return True


def train_disturbed(case: Case, fault: str, work: Path, rng: random.Random, life: float) -> int:
    """Train once on a cluster with faults; return how many there were. ValueError and TimeoutError if it goes wrong."""
    out, told, cluster = work / "run", work / "told", Cluster(work, live_for(life) if fault == "lifetime" else ())
    shutil.rmtree(out, ignore_errors=True)
    command = ["train", work / case.data, "--out", out, "--memory", "1GB", *case.arguments]
    try:
        process = fork([*command, "--scheduler", cluster.address], told)
        if fault == "scheduler":
            struck = int(lose_scheduler(process, out, cluster, rng, life))
            cluster.close()
            cluster = Cluster(work)
            process = fork([*command, "--resume", "--scheduler", cluster.address], told)
        else:
            struck = disturb(process, out, fault, cluster, rng)
        for _ in watch(process, out):
            pass
        if process.wait() not in (0, 3):
            raise ValueError(told.read_text()[-500:])
        if describe_run(out) != describe_run(work / f"whole-{case.name}"):
            raise ValueError("other bits")
        return struck
    finally:
        cluster.close()


def study(case: Case, fault: str, times: int, work: Path, seed: int) -> bool:
    """Train until so many faults have happened; print a row. Return whether all was well."""
    rng, struck, runs, wrong = random.Random(f"{seed} {case.name} {fault}"), 0, 0, list[str]()
    life = LIFE_SECONDS
    while struck < times and len(wrong) < MOST_WRONG and runs < MOST_RUNS * times:
        runs += 1
        try:
            now = train_disturbed(case, fault, work, rng, life)
            struck, life = struck + now, life if now else SHORTER * life
        except (ValueError, TimeoutError) as error:
            wrong.append(" ".join(str(error).split()) or "a hang")
    if struck < times and not wrong:
        wrong.append("too few faults")
    same = "yes" if not wrong else f"no: {'; '.join(wrong)}"
    print(f"| {fault} | {case.name} | {struck} | {runs} | {same} |", flush=True)
    return not wrong


FAULTS = ("kill", "pause", "freeze", "terminate", "lifetime", "join", "lose-all", "scheduler")


def main() -> int:
    parser = argparse.ArgumentParser(description="clusters whose workers come and go")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--only", nargs="+", default=[case.name for case in CASES])
    options = parser.parse_args()
    cases = [case for case in CASES if case.name in options.only]
    source.SMALLEST_GROUP_BYTES, source.GROUPS = 1, 16  # small data, too, have a group for each worker
    dask.config.set({"distributed.scheduler.worker-ttl": WORKER_TTL})
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        make_data(work, {case.data for case in cases}, options.part)
        load_kernels(cases)
        keep_every(1)
        print("| fault | solver | faults | runs | same bits |\n|---|---|---|---|---|", flush=True)
        held = True
        for case in cases:
            whole = ["train", work / case.data, "--out", work / f"whole-{case.name}", "--threads", "2"]
            assert run([*whole, *case.arguments], work / "told") in (0, 3), (work / "told").read_text()
            for fault in options.faults:
                held = study(case, fault, options.times, work, options.seed) and held
    print(json.dumps({"held": held}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
