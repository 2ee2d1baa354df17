"""One training of the comparison, in a separate process.

    python -m pipelines.compare.child PROBLEM_FOLDER MODULE FUNCTION RUNG SECONDS OUT_FOLDER

The process writes result.json (the outcome, seconds and memory of the training) to the output folder and, if there is a
model, model.npz. The parent process reads standard output, to which trainers print.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from pipelines.compare.problems import Part, Problem, open_problem, read_chunk, read_rows
from streamsvm.system.errors import InputError
from streamsvm.system.machine import peak_bytes


@dataclass
class Task:
    """The request to a trainer, and its report: times, and the passes and bytes read if the trainer counts them."""

    problem: Problem
    folder: Path
    rung: str
    limit: int
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def on_disk(self) -> bool:
        """Whether the rows are on the disk. If so, the time for reading counts, and memory is limited."""
        return self.problem.memory is not None

    def read(self) -> Part:
        """Return all rows to train on, in memory."""
        return read_rows(self.folder / "train")

    def read_chunk(self, at: int, n: int) -> Part:
        """Return n rows on the disk, from row `at` on."""
        return read_chunk(self.folder / "train", at, n)

    @property
    def n_rows(self) -> int:
        """The number of rows to train on."""
        return len(np.load(self.folder / "train" / "y.npy", mmap_mode="r"))

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Measure the time of the block.

        what: the name of the time, "read" or "fit". At the time limit, the operating system ends the process.
        """
        signal.alarm(self.limit)
        began, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds[what] = time.perf_counter() - began
        self.cpu_seconds[what] = time.process_time() - cpu
        signal.alarm(0)


def main() -> None:
    folder, module, function, rung, limit, out = sys.argv[1:]
    task = Task(open_problem(Path(folder)), Path(folder), rung, int(limit))
    result: dict[str, Any] = {"status": "done"}
    warnings.simplefilter("ignore")  # The objective is compared anyway, so warnings about convergence are not needed.
    try:
        model = getattr(importlib.import_module(module), function)(task)
        np.savez(Path(out) / "model.npz", **model)
    except ModuleNotFoundError as error:
        result = {"status": "not installed", "why": str(error)}
    except MemoryError as error:
        result = {"status": "out of memory", "why": str(error)}
    except InputError as error:
        result = {"status": "refused", "why": str(error)}
    result |= {"seconds": task.seconds, "cpu_seconds": task.cpu_seconds, "peak_bytes": peak_bytes(), **task.told}
    (Path(out) / "result.json").write_text(json.dumps(result))


def pack_kernel(vectors: Any, beta: Any, b: Any) -> dict[str, Any]:
    """Return a sum of kernels, f(x) + b with coefficients beta, as the arrays that objectives.evaluate reads."""
    rows = csr_array(vectors)
    arrays = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "width": rows.shape[1]}
    return {**arrays, "beta": np.asarray(beta, np.float64).ravel(), "b": np.asarray(b, np.float64).ravel()[0]}


if __name__ == "__main__":
    main()
