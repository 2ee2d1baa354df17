"""One training of perez_cruz_2000: its CPU seconds in total and in the inner solver, and its support vectors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.decomposition import inner_solvers
from streamsvm.solvers.decomposition.working_set import WorkingSet

CACHE_BYTES = 64 << 20
TOL = 1e-4


@dataclass
class Measured:
    """CPU seconds in total and in the inner solver, the number of calls of the inner solver, and the result."""

    seconds: float
    inner_seconds: float
    n_rounds: int
    n_support: int
    converged: bool

    def format_seconds(self) -> str:
        """Return the CPU seconds as text; they are a lower bound if a limit ended the run."""
        return f"{'' if self.converged else '> '}{self.seconds:.2f}"


@contextmanager
def time_inner(name: str, watch: list[float]) -> Iterator[None]:
    """Within the block, append the CPU seconds of each call of an inner solver to `watch`."""
    solver = inner_solvers.INNER_SOLVERS[name]

    def timed(problem: WorkingSet, tol: float, most_pairs: int) -> tuple[F64, int]:
        start = time.process_time()
        found = solver(problem, tol, most_pairs)
        watch.append(time.process_time() - start)
        return found

    inner_solvers.INNER_SOLVERS[name] = timed
    try:
        yield
    finally:
        inner_solvers.INNER_SOLVERS[name] = solver


def solve(rows: ArrayDataset, C: float, width: float, solver: str, rule: str, q: int, limit: float | None) -> Measured:
    """Train with k = exp(-d^2 / width), working sets of q rows chosen by a rule, and a limit in seconds."""
    options = TrainOptions(
        C=C,
        solver="irwls",
        kernel="rbf",
        gamma=1 / width,
        tol=TOL,
        threads=1,
        max_seconds=limit,
        resident_rows="100%",
        options={"inner": solver, "selection": rule, "working_rows": str(q), "cache_bytes": str(CACHE_BYTES)},
    )
    watch: list[float] = []
    with time_inner(solver, watch):
        start = time.process_time()
        result = train(rows, options)
        seconds = time.process_time() - start
    return Measured(seconds, sum(watch), len(watch), result.n_support_vectors or 0, result.status == "converged")


def format_ratio(one: Measured, other: Measured) -> str:
    """Return the ratio of the CPU seconds as text.

    It is a bound if a limit ended one run, and "" if limits ended both.
    """
    if not (one.converged or other.converged):
        return ""
    bound = "" if one.converged and other.converged else "< " if one.converged else "> "
    return f"{bound}{one.seconds / other.seconds:.2f}"
