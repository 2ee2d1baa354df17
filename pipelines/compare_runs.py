"""Runs of compare.py: a process for every training, under limits, rung by rung, trainers in turn."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from compare_objectives import Worth, evaluate
from compare_problems import Part, Problem, count_bytes, open_problem, read_rows

from streamsvm.errors import InputError

CHILD = Path(__file__).with_name("compare_child.py")
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
SPENT = ("bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory")  # what is printed at the end of memory
TARGETS = (1e-2, 1e-3, 1e-4)  # relative suboptimality
REPEATED_SECONDS = 10.0  # what takes longer is run once
REFERENCE_SECONDS, REFERENCE_TOL = 600, 1e-6


@dataclass(frozen=True)
class Trainer:
    """function of module, in compare_child.py's process; rungs: tolerances, epochs or sizes, from rough to fine."""

    name: str
    module: str
    function: str
    rungs: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """How a training ended, and if it did: what it took, and its model's worth. seconds: with reading, if on disk."""

    trainer: str
    rung: str
    status: str
    why: str = ""
    seconds: float | None = None
    cpu_seconds: float | None = None
    passes: int | None = None
    read_bytes: int | None = None
    peak_bytes: int | None = None
    objective: float | None = None
    accuracy: float | None = None
    lower_bound: float | None = None


CUTTING_PLANES = ("1e-1", "1e-2", "1e-3", "1e-4")
DUAL_DESCENT = ("1", "1e-1", "1e-2", "1e-3", "1e-4")
EPOCHS = ("1", "5", "20", "80")
TRAINERS = {
    "linear": (
        Trainer("streamsvm", "compare_linear", "fit_default", CUTTING_PLANES),
        Trainer("streamsvm, line search", "compare_linear", "fit_line_search", CUTTING_PLANES),
        Trainer("streamsvm, interior point", "compare_linear", "fit_interior_point", ("1e-2", "1e-4")),
        Trainer("scikit-learn LinearSVC", "compare_linear", "fit_linear_svc", DUAL_DESCENT),
        Trainer("scikit-learn SGDClassifier", "compare_linear", "fit_sgd", EPOCHS),
        Trainer("LIBLINEAR", "compare_linear", "fit_liblinear", DUAL_DESCENT),
        Trainer("snapml", "compare_linear", "fit_snapml", ("1e-2", "1e-3", "1e-4", "1e-5")),
        Trainer("dask-ml Incremental", "compare_linear", "fit_incremental", EPOCHS),
        Trainer("Vowpal Wabbit", "compare_linear", "fit_vowpal_wabbit", EPOCHS),
    ),
    "kernel": (
        Trainer("streamsvm smo", "compare_kernels", "fit_smo", CUTTING_PLANES),
        Trainer("streamsvm irwls", "compare_kernels", "fit_irwls", CUTTING_PLANES),
        Trainer("streamsvm budgeted SGD", "compare_kernels", "fit_budgeted", ("200", "1000")),
        Trainer("scikit-learn SVC", "compare_kernels", "fit_svc", DUAL_DESCENT[1:-1]),
        Trainer("scikit-learn Nystroem + SGD", "compare_kernels", "fit_nystroem", ("300", "1000")),
        Trainer("LIBSVM", "compare_kernels", "fit_libsvm", DUAL_DESCENT[1:-1]),
        Trainer("scikit-learn-intelex SVC", "compare_kernels", "fit_intelex", DUAL_DESCENT[1:-1]),
    ),
}
REFERENCES = {
    "linear": Trainer("reference", "compare_linear", "fit_reference", (str(REFERENCE_TOL),)),
    "kernel": Trainer("reference", "compare_kernels", "fit_smo", (str(REFERENCE_TOL),)),
}


@dataclass(frozen=True)
class Bench:
    """A problem's folder, and how long a training may take."""

    folder: Path
    limit: int
    known: dict[str, Worth] = field(default_factory=dict)

    @cached_property
    def problem(self) -> Problem:
        """Of the folder."""
        return open_problem(self.folder)

    @cached_property
    def rows(self) -> Part:
        """To train on; dense ones stay on the disk until they are looked at."""
        return read_rows(self.folder / "train", mapped=True)

    @cached_property
    def test(self) -> Part:
        """Rows to test on; where none were kept, those trained on."""
        folder = self.folder / "test"
        return read_rows(folder) if folder.exists() else self.rows

    def run(self, trainer: Trainer, rung: str, limited: bool = True) -> Run:
        """Train in a process of its own, and evaluate what it leaves behind."""
        with TemporaryDirectory() as out:
            ended = self.start(trainer, rung, Path(out), limited)
            status, why, told = tell_end(ended, Path(out), self.limit, limited and self.problem.memory is not None)
            if status != "done":
                return Run(trainer.name, rung, status, why, peak_bytes=told.get("peak_bytes"))
            worth = self.evaluate(Path(out) / "model.npz")
        counted = re.findall(r"#iter = (\d+)", ended.stdout)
        passes = told.get("passes", int(counted[-1]) if counted and self.problem.kind == "linear" else None)
        read_bytes = told.get("read_bytes", None if passes is None else passes * count_bytes(self.rows[0]))
        timed = ("read", "fit") if self.problem.memory is not None else ("fit",)
        seconds, cpu = (sum(told[name].get(what, 0.0) for what in timed) for name in ("seconds", "cpu_seconds"))
        return Run(trainer.name, rung, status, "", seconds, cpu, passes, read_bytes, told["peak_bytes"], *worth,
                   told.get("lower_bound"))  # fmt: skip

    def prove(self) -> Run:
        """Return the run that proves the optimum, kept in the folder."""
        file = self.folder / "reference.json"
        if file.exists():
            return Run(**json.loads(file.read_text()))
        trainer = REFERENCES[self.problem.kind]
        run = self.run(trainer, trainer.rungs[0], limited=False)
        if run.lower_bound is None:
            raise InputError(f"{self.problem.title}: no proved optimum: {run.status} {run.why}")
        file.write_text(json.dumps(asdict(run)))
        return run

    def evaluate(self, file: Path) -> Worth:
        """Return what a model is worth; the same file is evaluated once."""
        name = hashlib.sha256(file.read_bytes()).hexdigest()
        if name not in self.known:
            with np.load(file) as model:
                self.known[name] = evaluate(self.problem, model, *self.rows, self.test)
        return self.known[name]

    def start(self, trainer: Trainer, rung: str, out: Path, limited: bool) -> subprocess.CompletedProcess[str]:
        """Run the process, under a memory limit and without the files in the page cache if the rows are on disk."""
        limit = self.limit if limited else REFERENCE_SECONDS
        command = [sys.executable, str(CHILD), str(self.folder), trainer.module, trainer.function, rung, str(limit)]
        if self.problem.memory is not None:
            forget(self.folder)
            if limited:
                limits = f"ulimit -s 2048 && ulimit -d {self.problem.memory // 1024}"  # in KiB
                command = ["sh", "-c", f'{limits} && exec "$@"', "sh", *command]
        return subprocess.run(
            [*command, str(out)], env={**os.environ, **THREADS}, capture_output=True, text=True, check=False
        )


def forget(folder: Path) -> None:
    """Have the kernel drop the files from its page cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)  # what is not written yet would stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def tell_end(
    ended: subprocess.CompletedProcess[str], out: Path, limit: int, memory_limited: bool
) -> tuple[str, str, dict[str, Any]]:
    """Status, reason and result of a process."""
    if (out / "result.json").exists() and ended.returncode == 0:
        told = json.loads((out / "result.json").read_text())
        return told["status"], told.get("why", ""), told
    if ended.returncode == -signal.SIGALRM:
        return f"over {limit} s", "", {}
    last = (ended.stderr.strip().splitlines() or [""])[-1]
    ending = f"{signal.Signals(-ended.returncode).name} {last}".strip() if ended.returncode < 0 else last
    if any(word in ended.stderr for word in SPENT) or (memory_limited and ended.returncode < 0):
        return "out of memory", ending, {}
    return "failed", ending, {}


def run_all(
    trainers: Sequence[Trainer], rounds: int, run: Callable[[Trainer, str], Run],
    suboptimality: Callable[[Run], float], note: Callable[[Run], None],
) -> None:  # fmt: skip
    """Climb each trainer's ladder until it is near enough or fails, all in turn; then repeat what is short enough."""
    again: list[tuple[Trainer, str]] = []
    climbing = list(trainers)
    for rung in range(max(len(trainer.rungs) for trainer in trainers)):
        for trainer in list(climbing):
            done = run(trainer, trainer.rungs[rung])
            note(done)
            if done.status != "done" or suboptimality(done) <= TARGETS[-1] or rung + 1 == len(trainer.rungs):
                climbing.remove(trainer)
            if done.seconds is not None and done.seconds <= REPEATED_SECONDS:
                again.append((trainer, trainer.rungs[rung]))
    for _ in range(rounds - 1):
        for trainer, name in again:
            note(run(trainer, name))
