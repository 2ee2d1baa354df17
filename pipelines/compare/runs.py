"""The runs of the comparison. Each training is a process with limits, and the trainers take turns, rung by rung."""

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

from pipelines.compare.objectives import Worth, evaluate
from pipelines.compare.problems import Part, Problem, count_bytes, open_problem, read_rows
from pipelines.limits import limit_data
from streamsvm.system.errors import InputError

CHECKOUT = Path(__file__).parents[2]
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
SPENT = (
    "bad_alloc",
    "MemoryError",
    "Cannot allocate memory",
    "out of memory",
)  # messages printed when memory has run out
TARGETS = (1e-2, 1e-3, 1e-4)  # targets for the relative suboptimality
REPEATED_SECONDS = 10.0  # a training that takes longer is run only once
REFERENCE_SECONDS, REFERENCE_TOL = 600, 1e-6


@dataclass(frozen=True)
class Trainer:
    """A function that trains, given by its module and name.

    rungs: the tolerances, epochs or sizes to try, from coarse to fine.
    """

    name: str
    module: str
    function: str
    rungs: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """The outcome of a training and, if there is a model, the cost of the training and the quality of the model.

    The seconds include reading if the rows are on the disk.
    """

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


LINEAR, KERNEL = "pipelines.compare.linear_trainers", "pipelines.compare.kernel_trainers"
CUTTING_PLANES = ("1e-1", "1e-2", "1e-3", "1e-4")
DUAL_DESCENT = ("1", "1e-1", "1e-2", "1e-3", "1e-4")
EPOCHS = ("1", "5", "20", "80")
TRAINERS = {
    "linear": (
        Trainer("streamsvm", LINEAR, "fit_default", CUTTING_PLANES),
        Trainer("streamsvm, line search", LINEAR, "fit_line_search", CUTTING_PLANES),
        Trainer("streamsvm, interior point", LINEAR, "fit_interior_point", ("1e-2", "1e-4")),
        Trainer("scikit-learn LinearSVC", LINEAR, "fit_linear_svc", DUAL_DESCENT),
        Trainer("scikit-learn SGDClassifier", LINEAR, "fit_sgd", EPOCHS),
        Trainer("LIBLINEAR", LINEAR, "fit_liblinear", DUAL_DESCENT),
        Trainer("snapml", LINEAR, "fit_snapml", ("1e-2", "1e-3", "1e-4", "1e-5")),
        Trainer("dask-ml Incremental", LINEAR, "fit_incremental", EPOCHS),
        Trainer("Vowpal Wabbit", LINEAR, "fit_vowpal_wabbit", EPOCHS),
    ),
    "kernel": (
        Trainer("streamsvm smo", KERNEL, "fit_smo", CUTTING_PLANES),
        Trainer("streamsvm irwls", KERNEL, "fit_irwls", CUTTING_PLANES),
        Trainer("streamsvm budgeted SGD", KERNEL, "fit_budgeted", ("200", "1000")),
        Trainer("scikit-learn SVC", KERNEL, "fit_svc", DUAL_DESCENT[1:-1]),
        Trainer("scikit-learn Nystroem + SGD", KERNEL, "fit_nystroem", ("300", "1000")),
        Trainer("LIBSVM", KERNEL, "fit_libsvm", DUAL_DESCENT[1:-1]),
        Trainer("scikit-learn-intelex SVC", KERNEL, "fit_intelex", DUAL_DESCENT[1:-1]),
    ),
}
REFERENCES = {
    "linear": Trainer("reference", LINEAR, "fit_reference", (str(REFERENCE_TOL),)),
    "kernel": Trainer("reference", KERNEL, "fit_smo", (str(REFERENCE_TOL),)),
}


@dataclass(frozen=True)
class Bench:
    """The folder of a problem, and the time limit of a training in seconds. It carries out the trainings."""

    folder: Path
    limit: int
    known: dict[str, Worth] = field(default_factory=dict)

    @cached_property
    def problem(self) -> Problem:
        """The problem whose folder this is."""
        return open_problem(self.folder)

    @cached_property
    def rows(self) -> Part:
        """The training rows; dense rows stay on the disk until they are accessed."""
        return read_rows(self.folder / "train", mapped=True)

    @cached_property
    def test(self) -> Part:
        """The test rows, or the training rows if there are no test rows."""
        folder = self.folder / "test"
        return read_rows(folder) if folder.exists() else self.rows

    def run(self, trainer: Trainer, rung: str, limited: bool = True) -> Run:
        """Train in a separate process, and evaluate the model that it saves."""
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
        return Run(
            trainer.name,
            rung,
            status,
            "",
            seconds,
            cpu,
            passes,
            read_bytes,
            told["peak_bytes"],
            *worth,
            told.get("lower_bound"),
        )

    def prove(self) -> Run:
        """Return the run that proves the optimum. The run is stored in the folder."""
        file = self.folder / "reference.json"
        if file.exists():
            return Run(**json.loads(file.read_text()))
        trainer = REFERENCES[self.problem.kind]
        run = self.run(trainer, trainer.rungs[0], limited=False)
        if run.lower_bound is None:
            raise InputError(f"{self.problem.title}: the optimum could not be proved: {run.status} {run.why}")
        file.write_text(json.dumps(asdict(run)))
        return run

    def evaluate(self, file: Path) -> Worth:
        """Return the objective and the accuracy of a saved model. Files with equal contents are evaluated only once."""
        name = hashlib.sha256(file.read_bytes()).hexdigest()
        if name not in self.known:
            with np.load(file) as model:
                self.known[name] = evaluate(self.problem, model, *self.rows, self.test)
        return self.known[name]

    def start(self, trainer: Trainer, rung: str, out: Path, limited: bool) -> subprocess.CompletedProcess[str]:
        """Run the process of a training.

        If the rows are on the disk, drop them from the page cache first, and limit the memory.
        """
        limit = self.limit if limited else REFERENCE_SECONDS
        arguments = (str(self.folder), trainer.module, trainer.function, rung, str(limit), str(out))
        command = [sys.executable, "-m", "pipelines.compare.child", *arguments]
        path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
        if self.problem.memory is not None:
            forget(self.folder)
            if limited:
                command = ["sh", "-c", f'{limit_data(self.problem.memory)} && exec "$@"', "sh", *command]
        return subprocess.run(
            command, env={**os.environ, **THREADS, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )


def forget(folder: Path) -> None:
    """Let the operating system drop the files of a folder from its page cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)  # pages that are not yet written would stay in the cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def tell_end(
    ended: subprocess.CompletedProcess[str], out: Path, limit: int, memory_limited: bool
) -> tuple[str, str, dict[str, Any]]:
    """Return the status of a process that has ended, the reason, and its result."""
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
    trainers: Sequence[Trainer],
    rounds: int,
    run: Callable[[Trainer, str], Run],
    suboptimality: Callable[[Run], float],
    note: Callable[[Run], None],
) -> None:
    """Run the rungs of all trainers in turn.

    A trainer stops when it reaches the last target or fails. Then repeat short runs.
    """
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
