"""Interrupts at random moments of real processes: how each ended, what it left, and whether it can go on.

    python tests/faults/interrupts.py [--number 200] [--seed 0] [--part 1] [--only NAME ...]

Every solver trains as a process of its own. At a moment drawn by the seed all its threads are stopped, it is noted
which of them are within compiled code (tests/faults/native_state.py), SIGINT is sent, and the threads go on. Every
second interrupt is aimed: the process has one thread, and is looked at until that is within compiled code.
Then the run is resumed and compared with one that nothing has happened to: the model's bytes and the history. tune,
ingest and predict are interrupted, too, and have to leave nothing behind. Prints a Markdown table; exit status 1 if
anything was wrong. With `--part 10` the datasets have a tenth of their rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork

from streamsvm import __main__  # noqa: F401  (forks begin with everything imported)
from streamsvm.estimators import LinearSVC  # noqa: F401
from tests.faults.cases import CASES, Case, load_kernels, make_data
from tests.faults.forks import Forked, describe_folder, describe_run, fork, run
from tests.faults.native_state import interrupt

AIM = 400  # looks at a process until one of its threads, the main one if it can be, is within compiled code
COMMANDS = ("ingest", "predict", "tune")
LATEST = 0.9  # share of a run after which it is not interrupted
COUNTS = ("main thread in compiled code", "any thread", "with a checkpoint", "before the first step", "had finished")


@dataclass
class Found:
    """What came of the interrupts of one case."""

    number: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)


def interrupt_at(command: Forked, begun: str, seconds: float, aim: int, found: Found) -> int | None:
    """Send SIGINT so many seconds after a file of this pattern was there; return how the process ended."""
    while not glob(begun, include_hidden=True) and not command.has_ended():
        time.sleep(0.001)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not command.has_ended():
        time.sleep(0.001)
    if command.has_ended():
        command.wait()
        return None
    inside, anywhere = interrupt(command.pid, aim)
    sent = time.monotonic()
    code = command.wait()
    found.slowest = max(found.slowest, time.monotonic() - sent)
    found.number += 1
    found.counts["main thread in compiled code"] += inside
    found.counts["any thread"] += anywhere
    return code


def try_training(case: Case, work: Path, seconds: float, aim: int, whole: dict[str, Any], found: Found) -> None:
    """Interrupt one training, and go on with it."""
    out, told = work / "run", work / "told"
    shutil.rmtree(out, ignore_errors=True)
    command = ["train", work / case.data, "--out", out, "--threads", "2" if aim == 1 else "1", *case.arguments]
    code = interrupt_at(fork(command, told), str(out / "history.jsonl"), seconds, aim, found)
    if code is None:
        return
    steps = len((out / "history.jsonl").read_text().splitlines())
    status = json.loads((out / "result.json").read_text())["status"] if (out / "result.json").exists() else ""
    interrupted = code == 1 and "Traceback" not in told.read_text()
    if interrupted and steps and status == "interrupted" and (out / "checkpoint.npz").exists():
        found.counts["with a checkpoint"] += 1
    elif interrupted and not steps and not status:
        found.counts["before the first step"] += 1
    elif code in (0, 3) and status == whole["status"]:
        found.counts["had finished"] += 1
    else:
        found.wrong.append(f"ended with {code}, {steps} steps, status {status!r}: {told.read_text()[-300:]}")
    if run([*command, "--resume"], told) not in (0, 3) or describe_run(out) != whole:
        found.wrong.append(f"resumed after {steps} steps: not the same")


def study_training(case: Case, work: Path, number: int, rng: random.Random) -> Found:
    """Interrupt a training so many times."""
    whole_out, told, found = work / f"whole-{case.name}", work / "told", Found()
    command = ["train", work / case.data, "--out", whole_out, "--threads", "2", *case.arguments]
    assert run(command, told) in (0, 3), told.read_text()
    seconds = json.loads((whole_out / "result.json").read_text())["seconds"]
    whole = describe_run(whole_out)
    while found.number < number:
        aim = AIM if found.number % 2 else 1
        try_training(case, work, rng.uniform(0, LATEST) * seconds, aim, whole, found)
    return found


def study_command(name: str, work: Path, number: int, rng: random.Random) -> Found:
    """Interrupt ingest, predict or tune so many times: nothing may be left, and the next one makes the same."""
    commands: dict[str, tuple[list[object], Path, str]] = {
        "ingest": (["ingest", work / "rows.svm", work / "made.zarr"], work / "made.zarr", ".made.zarr.*partial"),
        "predict": (
            ["predict", work / "model", work / "rows.svm", "--out", work / "p.csv"],
            work / "p.csv",
            ".p.csv.*partial",
        ),
        "tune": (
            ["tune", work / "short", "--out", work / "best", "--C", "0.1,1", "--folds", "2"],
            work / "best",
            "told",
        ),
    }
    command, made, name_begun = commands[name]
    begun = str(work / name_begun)
    told, found = work / "told", Found()
    if not (work / "model").exists():
        assert run(["train", work / "long", "--out", work / "model", "--max-passes", "2"], told) in (0, 3)
    began = time.monotonic()
    assert run(command, told) == 0, told.read_text()
    seconds, whole = time.monotonic() - began, describe_made(made)
    while found.number < number:
        remove(made)
        told.unlink(missing_ok=True)
        aim = AIM if found.number % 2 else 1
        code = interrupt_at(fork(command, told), begun, rng.uniform(0, LATEST) * seconds, aim, found)
        if code is None:
            continue
        left = made.exists() or (name != "tune" and bool(glob(begun, include_hidden=True)))
        if code == 0 and describe_made(made) == whole:
            found.counts["had finished"] += 1
        elif code != 1 or "Traceback" in told.read_text() or (left and name != "tune"):
            found.wrong.append(f"ended with {code}, left {left}: {told.read_text()[-300:]}")
        remove(made)
        if run(command, told) != 0 or describe_made(made) != whole:
            found.wrong.append("the next one made something else")
    return found


def describe_made(made: Path) -> str:
    """What must be the same: all bytes, or of a training the model's."""
    model = made / "model.npz"
    return describe_folder(model if model.exists() else made)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(work: Path) -> None:
    """Write rows as svmlight text, for ingest and predict."""
    rng = random.Random(0)
    with (work / "rows.svm").open("w") as file:
        for k in range(60_000):
            items = " ".join(f"{j}:{rng.random():.5f}" for j in range(1, 41))
            file.write(f"{k % 2 * 2 - 1} {items}\n")


def study(work: Path, number: int, seed: int, only: Sequence[str], part: int) -> dict[str, Found]:
    """Interrupt every case equally often, `number` times in all; print a row of the table after each."""
    names = [name for name in (*(case.name for case in CASES), *COMMANDS) if name in only or not only]
    cases, found = {case.name: case for case in CASES if case.name in names}, dict[str, Found]()
    with_commands = len(cases) < len(names)
    load_kernels(CASES if with_commands else cases.values())
    make_data(work, {case.data for case in cases.values()} | ({"long", "short"} if with_commands else set()), part)
    if with_commands:
        write_text(work)
    print(f"| run | interrupts | {' | '.join(COUNTS)} | longest wait (s) | wrong |\n|{'---|' * (len(COUNTS) + 4)}")
    for k, name in enumerate(names):
        rng, mine = random.Random(f"{seed} {name}"), number // len(names) + (k < number % len(names))
        one = study_training(cases[name], work, mine, rng) if name in cases else study_command(name, work, mine, rng)
        found[name] = one
        print_row(name, one)
    print_row("all", sum_up(list(found.values())))
    return found


def sum_up(found: Sequence[Found]) -> Found:
    counts = sum((one.counts for one in found), Counter[str]())
    wrong = [what for one in found for what in one.wrong]
    return Found(sum(one.number for one in found), counts, max(one.slowest for one in found), wrong)


def print_row(name: str, found: Found) -> None:
    counts = " | ".join(str(found.counts[what]) for what in COUNTS)
    print(f"| {name} | {found.number} | {counts} | {found.slowest:.2f} | {len(found.wrong)} |", flush=True)
    for what in found.wrong if name != "all" else ():
        print(f"  {name}: {what}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="interrupts at random moments of real processes")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = study(Path(work), options.number, options.seed, options.only, options.part)
    return 1 if any(one.wrong for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
