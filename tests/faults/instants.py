"""Runs that are stopped at one line of the code that keeps them, and gone on with. Run as a process of its own.

Everything is imported once; each run is then a fork of this process, which takes milliseconds. An instant is a number:
the how-manieth executed line of folder.py, files.py and train.py. Prints what happened as JSON, a line for each study.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import streamsvm.runs.train
import streamsvm.system.files
from streamsvm.data.open import open_dataset
from streamsvm.options import TrainOptions
from streamsvm.runs import folder as run_folder
from streamsvm.runs.folder import RunFolder
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import ALL_MODELS, compile_all

WATCHED = {str(module.__file__) for module in (run_folder, streamsvm.system.files, streamsvm.runs.train)}
ANY_COST = ("seconds", "pass_seconds", "solver_seconds", "memory_bytes", "read_bytes")


def watch(strikes: dict[int, int]) -> Callable[[], int]:
    """Send this process a signal as it comes to certain lines; return a function that tells the lines so far."""
    lines = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
            if lines in strikes:
                os.kill(os.getpid(), strikes[lines])
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename in WATCHED else None

    sys.settrace(on_call)
    return lambda: lines


def keep_every(checkpoint_steps: int) -> None:
    """Write a checkpoint every so many steps, however little time has gone by, and when a run ends."""

    def is_due(self: RunFolder) -> bool:
        n_steps = len(self._digests) - 1
        return n_steps % checkpoint_steps == 0

    RunFolder.is_due = is_due  # type: ignore[method-assign]


def in_fork(action: Callable[[], None]) -> int:
    """Carry an action out in a process of its own; return how that ended (a signal's number below zero)."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except KeyboardInterrupt:
            code = 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def carry_out(dataset: str, out: Path, options: TrainOptions, strikes: dict[int, int], count_to: Path | None) -> None:
    source = open_dataset(dataset)
    lines = watch(strikes)
    train(source, options, out=out, resume=True)
    sys.settrace(None)
    if count_to is not None:
        count_to.write_text(str(lines()))


def describe(out: Path) -> dict[str, Any]:
    """What must be the same: the model's bytes, the history but for what it cost, the status."""
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    read = [line["read_bytes"] for line in history]
    return {
        "model": hashlib.sha256((out / "model.npz").read_bytes()).hexdigest(),
        "history": [{name: value for name, value in line.items() if name not in ANY_COST} for line in history],
        "status": json.loads((out / "result.json").read_text())["status"],
        "read_bytes_rise": read == sorted(read),
        "left_over": sorted(path.name for path in out.iterdir() if path.name.startswith(".")),
    }


def main(dataset: str, folder: str, *studies: str) -> None:
    """studies: each a mode, the steps between checkpoints, and the number of instants, as "kill 3 15"."""
    os.fsync = lambda fd: None  # a process that dies takes nothing along that it has written
    compile_all(ALL_MODELS)
    for k, words in enumerate(studies):
        mode, checkpoint_steps, n_instants = words.split()
        (Path(folder) / str(k)).mkdir()
        sys.stdout.flush()
        assert in_fork(lambda: study(dataset, Path(folder) / str(k), mode, int(checkpoint_steps), int(n_instants))) == 0  # noqa: B023


def study(dataset: str, base: Path, mode: str, checkpoint_steps: int, n_instants: int) -> None:
    """mode: kill, interrupt, or twice (an impatient user)."""
    keep_every(checkpoint_steps)
    options = TrainOptions(tol=1e-3, threads=1, options={"acceleration": "line-search"})
    assert in_fork(lambda: carry_out(dataset, base / "whole", options, {}, base / "lines")) == 0
    whole, n_lines = describe(base / "whole"), int((base / "lines").read_text())
    chosen = random.Random(0).sample(range(1, n_lines), min(n_instants, n_lines - 1))
    differing, ends = [], []
    for instant in sorted(chosen):
        out = base / f"{mode}-{instant}"
        strikes = {instant: signal.SIGKILL if mode == "kill" else signal.SIGINT}
        if mode == "twice":
            strikes[instant + 1 + instant % 20] = signal.SIGINT
        ends.append(in_fork(lambda out=out, strikes=strikes: carry_out(dataset, out, options, strikes, None)))  # type: ignore[misc]
        resumed = in_fork(lambda out=out: carry_out(dataset, out, options, {}, None))  # type: ignore[misc]
        if resumed != 0 or describe(out) != whole:
            differing.append(instant)
    print(
        json.dumps(
            {"lines": n_lines, "steps": len(whole["history"]), "ends": ends, "differing": differing, "whole": whole}
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
