"""A campaign of mutated inputs: python -m tests.faults.mutated_inputs --count 20000 --seed 1

Valid files of every kind are spoiled (see `mutations`) and read. Each must be refused by an InputError that names the
file, or be read as an independent reader reads it: no traceback, no warning, no crash, no hang, no memory beyond a
bound, no row lost. Child processes read many inputs each, so that one that dies is known, and the next goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = ("svmlight", "csv", "npy", "npz", "parquet", "model")
OUTCOMES = ("refused", "accepted", "differs", "traceback", "memory", "crash", "hang")
SOUND = ("refused", "accepted")
HANG_SECONDS, START_SECONDS = 10.0, 120.0
MOST_BYTES = 300 << 20  # that one input may take
ADDRESS_BYTES = 8 << 30  # of a child, in all: beyond, allocations fail
BLOCKS = (1, 2, 3, 7, 16, 64, 1000, 8 << 20)


@dataclass
class Counts:
    """How often each kind of input came to each end; faults: what was wrong, with what makes it again."""

    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, kind: str, seed: int, index: int, outcome: str, said: str) -> None:
        """Count one."""
        self.by_kind[kind, outcome] += 1
        if outcome not in SOUND:
            self.faults.append(f"{kind} seed {seed} index {index}: {outcome}: {said}")

    def __str__(self) -> str:
        """A table, a line a kind."""
        lines = [f"{'':10}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES)]
        for kind in sorted({kind for kind, _ in self.by_kind}):
            lines += [f"{kind:10}" + "".join(f"{self.by_kind[kind, outcome]:11,}" for outcome in OUTCOMES)]
        totals = [sum(n for (_, found), n in self.by_kind.items() if found == outcome) for outcome in OUTCOMES]
        return "\n".join([*lines, f"{'in all':10}" + "".join(f"{total:11,}" for total in totals)])


def run_campaign(count: int, seed: int, kinds: Sequence[str], keep: Path | None = None) -> Counts:
    """Read `count` inputs, as many of each kind."""
    counts, todo = Counts(), [(kind, index) for index in range(-(-count // len(kinds))) for kind in kinds][:count]
    todo.sort()
    while todo:
        done = 0
        for kind, index, outcome, said in read_in_child(todo, seed, keep):
            counts.add(kind, seed, index, outcome, said)
            done += 1
        todo = todo[done:]
    return counts


def read_in_child(todo: list[tuple[str, int]], seed: int, keep: Path | None) -> Iterator[tuple[str, int, str, str]]:
    """Read inputs in a process of its own -> kind, index, outcome and what was said, up to the one that it dies of."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-W", "error", "-m", "tests.faults.mutated_inputs", "--child", str(keep or folder)]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            _write_all(child, json.dumps([seed, todo]))
            for n_done, (kind, index) in enumerate(todo):
                ready, _, _ = select.select([child.stdout], [], [], HANG_SECONDS if n_done else START_SECONDS)
                line = child.stdout.readline() if ready else b""  # unbuffered: `select` would not see a buffer
                if not line:
                    child.kill()
                    status = child.wait()
                    errors.seek(0)
                    said = errors.read().decode(errors="replace").strip()[-1500:]
                    yield kind, index, "crash" if ready else "hang", f"exit status {status} {said}"
                    return
                outcome, said = json.loads(line)
                yield kind, index, outcome, said
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


def _write_all(child: subprocess.Popen[bytes], text: str) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(text.encode())
        child.stdin.close()
    except BrokenPipeError:
        pass  # it has died: nothing comes from it, which is found next


def read_all(folder: Path) -> None:
    """Be the child: read the inputs that are listed on standard input, and print a line for each."""
    from streamsvm.solvers.set_up import ALL_MODELS, compile_all
    from tests.faults.mutations import make_input

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    compile_all(ALL_MODELS)
    seed, todo = json.load(sys.stdin)
    for kind in sorted({kind for kind, _ in todo}):  # load and compile all that is needed, before time is measured
        judge(kind, write_valid(kind, folder), 8 << 20)
    for kind, index in todo:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content, ending, rng = make_input(kind, seed, index)
        path = folder / f"{kind}-{seed}-{index}{ending}"
        path.write_bytes(content)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome, said = judge(kind, path, rng.choice(BLOCKS))
        taken = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        if outcome in SOUND and taken > MOST_BYTES:
            outcome, said = "memory", f"{taken >> 20} MiB, {said}"
        if outcome in SOUND:
            path.unlink()
        print(json.dumps([outcome, said]), flush=True)


def write_valid(kind: str, folder: Path) -> Path:
    """Write a file that is as it should be."""
    from tests.faults.valid_inputs import MAKERS

    make, ending = MAKERS[kind]
    path = folder / f"valid{ending}"
    path.write_bytes(make(random.Random(0)))
    return path


def judge(kind: str, path: Path, block_bytes: int) -> tuple[str, str]:
    """Read a file -> its outcome, and what was said."""
    from streamsvm.system.errors import InputError
    from tests.faults.independent_readers import JUDGES

    try:
        fault = JUDGES[kind](path, block_bytes)
    except InputError as error:
        named = str(error).startswith(str(path)) and "\n" not in str(error).rstrip("\n")
        return ("refused" if named else "differs"), str(error)[:300]
    except BaseException:
        return "traceback", traceback.format_exc()[-1500:]
    return ("differs" if fault else "accepted"), fault


def main() -> int:
    """Run a campaign, and print its counts and its faults; exit status 1 if there are any."""
    parser = argparse.ArgumentParser(description=str(__doc__))
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas between them")
    parser.add_argument("--keep", type=Path, help="folder for the files that were not dealt with as they should be")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        read_all(options.child)
        return 0
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    counts = run_campaign(options.count, options.seed, options.kinds.split(","), options.keep)
    print(f"{counts}\nseed {options.seed}, {time.monotonic() - began:.0f} s")
    for fault in counts.faults:
        print(f"\n{fault}")
    return 1 if counts.faults else 0


if __name__ == "__main__":
    sys.exit(main())
