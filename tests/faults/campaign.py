"""Damage every file of datasets, runs and models in every way, and see what commands make of it. Prints a table.

    python -m tests.faults.campaign [--seed 0] [--rounds 1] [--subjects dense sparse features run model] [--timeout 60]

Each case copies a subject, damages one file (or two, that are exchanged), or forges it so that every checksum is right,
and runs a command on the copy. What it comes to is one of

    refused      exit status 2, and the message names the damaged copy
    harmless     the same bits as of the undamaged subject
    unnamed      refused by a message that names no file of it
    SILENT       another result, and no error
    TRACEBACK, CRASH, HANG

Commands run in a child process that is started again when it crashes or hangs. The exit status is 1 if a case is none
of the first two. The same seed damages the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.subjects import SUBJECTS, Subject, make_subjects

ROOT = Path(__file__).parents[2]
GOOD = ("refused", "harmless")
OUTCOMES = (*GOOD, "unnamed", "SILENT", "TRACEBACK", "CRASH", "HANG")
DAMAGES = ("flip", "truncate", "extend", "delete", "empty", "swap")


@dataclass(frozen=True)
class Case:
    """A subject, the damage done to one of its files (by path in the subject), and the command that is then run."""

    subject: str
    damage: str
    file: str
    other: str
    action: str
    seed: int

    def __str__(self) -> str:
        files = f"{self.file} and {self.other}" if self.damage == "swap" else self.file
        return f"{self.subject}: {self.damage} {files}, {self.action} (seed {self.seed})"


class Child:
    """A process that runs commands, one after another; a new one after a crash or a hang."""

    def __init__(self, timeout: float) -> None:
        self.timeout, self._process = timeout, self._start()

    def run(self, command: list[str]) -> dict[str, Any]:
        """Return what a command came to: its status, messages, and a digest of its result; or how it ended."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        pipe_in.write(json.dumps(command) + "\n")
        pipe_in.flush()
        ready, _, _ = select.select([pipe_out], [], [], self.timeout)
        line = pipe_out.readline() if ready else ""
        if line:
            return dict(json.loads(line))
        if ready:
            found = {"ended": "CRASH", "message": f"exit status {self._process.wait()}"}
        else:
            found = {"ended": "HANG", "message": f"nothing for {self.timeout:.0f} s"}
        self.close()
        self._process = self._start()
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.faults.serve_commands"]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, text=True, cwd=ROOT, env=environment)


def list_cases(subjects: dict[str, Subject], rounds: int, seed: int) -> Iterator[Case]:
    """Every file and damage once a round, with one of the subject's commands in turn; and every forgery."""
    for number in range(rounds):
        for name, subject in subjects.items():
            chosen = random.Random(f"{seed} {number} {name}")
            actions = list(subject.actions)
            files = sorted(str(file.relative_to(subject.path)) for file in subject.path.rglob("*") if file.is_file())
            turn = chosen.randrange(len(actions))
            for file in files:
                for damage in DAMAGES:
                    other = chosen.choice([one for one in files if one != file] or [file])
                    yield Case(name, damage, file, other, actions[turn % len(actions)], chosen.getrandbits(32))
                    turn += 1
            for forgery in subject.forgeries:
                yield Case(name, "forge", forgery, "", actions[turn % len(actions)], chosen.getrandbits(32))
                turn += 1


def damage(case: Case, subject: Subject, copy: Path) -> bool:
    """Damage a copy; False if it is still the same."""
    if case.damage == "forge":
        subject.forgeries[case.file](copy)
        return True
    file, chosen = copy / case.file, random.Random(case.seed)
    content = file.read_bytes()
    changed: bytes | None = content
    if case.damage == "flip" and content:
        at = chosen.randrange(len(content))
        changed = content[:at] + bytes([content[at] ^ 1 << chosen.randrange(8)]) + content[at + 1 :]
    elif case.damage == "truncate":
        changed = content[: chosen.randrange(len(content))] if content else content
    elif case.damage == "extend":
        changed = content + chosen.randbytes(chosen.randrange(1, 100))
    elif case.damage in ("delete", "empty"):
        changed = None if case.damage == "delete" else b""
    elif case.damage == "swap":
        changed = (copy / case.other).read_bytes()
        (copy / case.other).write_bytes(content)
    file.unlink()
    if changed is not None:
        file.write_bytes(changed)
    return changed != content


def try_case(case: Case, subject: Subject, child: Child, folder: Path, expected: dict[str, Any]) -> tuple[str, str]:
    """Return what a case came to, one of OUTCOMES, and the message."""
    work = folder / "case"
    shutil.rmtree(work, ignore_errors=True)
    copy = work / subject.path.name
    shutil.copytree(subject.path, copy)
    if not damage(case, subject, copy):
        return "harmless", "nothing is damaged"
    found = child.run(subject.actions[case.action](copy, work))
    message = str(found.get("message", ""))
    if "ended" in found:
        return str(found["ended"]), message
    if found["status"] == 2:
        return ("refused" if str(copy) in message else "unnamed"), message
    same = found["status"] == expected["status"] and found["digest"] == expected["digest"]
    return ("harmless" if same else "SILENT"), message


def run_cases(
    cases: list[Case], subjects: dict[str, Subject], folder: Path, timeout: float, report: Callable[[str], None]
) -> list[tuple[Case, str, str]]:
    """Return every case with its outcome and message; report is told each that is not good."""
    child, expected, found = Child(timeout), {}, []
    try:
        for name, action in dict.fromkeys((case.subject, case.action) for case in cases):
            work = folder / "undamaged"
            shutil.rmtree(work, ignore_errors=True)
            copy = work / subjects[name].path.name
            shutil.copytree(subjects[name].path, copy)
            expected[name, action] = child.run(subjects[name].actions[action](copy, work))
            assert expected[name, action].get("status") in (0, 3), (name, action, expected[name, action])
        for case in cases:
            outcome, message = try_case(
                case, subjects[case.subject], child, folder, expected[case.subject, case.action]
            )
            found.append((case, outcome, message))
            if outcome not in GOOD:
                report(f"{outcome}: {case}: {message.strip()[-300:]}")
    finally:
        child.close()
    return found


def print_table(found: list[tuple[Case, str, str]]) -> None:
    """Print how many cases of each subject and damage came to what."""
    counts = Counter((case.subject, case.damage, outcome) for case, outcome, _ in found)
    print("\n| subject | damage | cases |", " | ".join(OUTCOMES), "|\n|---|---|---|" + "---|" * len(OUTCOMES))
    for subject, kind in dict.fromkeys((case.subject, case.damage) for case, _, _ in found):
        row = [counts[subject, kind, outcome] for outcome in OUTCOMES]
        print(f"| {subject} | {kind} | {sum(row)} |", " | ".join(map(str, row)), "|")
    totals = [sum(outcome == one for _, outcome, _ in found) for one in OUTCOMES]
    print(f"| all | | {len(found)} |", " | ".join(map(str, totals)), "|")


def main() -> int:
    """Print the tables; return 1 if a case is bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        subjects = make_subjects(Path(name) / "subjects", options.subjects)
        cases = list(list_cases(subjects, options.rounds, options.seed))
        print(f"{len(cases)} cases", flush=True)
        found = run_cases(cases, subjects, Path(name), options.timeout, lambda line: print(line, flush=True))
    print_table(found)
    return int(any(outcome not in GOOD for _, outcome, _ in found))


if __name__ == "__main__":
    sys.exit(main())
