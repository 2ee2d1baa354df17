"""The plan of a training before it runs: the expected passes, and their cost in bytes, seconds and memory.

    seconds = first pass + (passes - 1) * later pass + passes * time between two passes

The memory is projected as in `train`, which refuses a run that would exceed the budget.

On a cluster, the scheduler serves the workers of a pass one after another, for WORKER_SECONDS each, and the workers
read side by side:

    seconds of a pass on W workers = WORKER_SECONDS W + S / W        S: seconds of a pass for one worker

The minimum is at W = sqrt(S / WORKER_SECONDS), or at one worker per group of chunks if that is fewer. The probe of the
plan measures S on the current workers. More workers together keep more chunks in memory. The plan ignores this, so a
larger cluster may be faster than projected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.data.rows.views import View
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.engine import Engine
from streamsvm.engines.open import MemoryPlan
from streamsvm.options import TrainOptions
from streamsvm.solvers.set_up import choose_solver
from streamsvm.system.files import is_remote

WORKER_SECONDS = 0.0022  # seconds of the scheduler for each worker in a pass


@dataclass(frozen=True)
class Cluster:
    """The workers of a training, the threads of each, the most tasks of a pass, and the requests per pass to a store.

    most_tasks: the number of groups of chunks, or of the walks of a pass, since a walk cannot be divided. requests: 0
    for rows on a disk.
    """

    workers: int
    threads: int
    most_tasks: int
    requests: int

    def count_fastest(self, pass_seconds: float) -> int:
        """Return the number of workers that minimises the time of a pass, given its time on the current workers."""
        return max(1, min(self.most_tasks, round(math.sqrt(self._count_alone(pass_seconds) / WORKER_SECONDS))))

    def project_pass(self, pass_seconds: float, workers: int) -> float:
        """Return the seconds of a pass on `workers` workers, given its time on the current workers."""
        return WORKER_SECONDS * workers + self._count_alone(pass_seconds) / min(workers, self.most_tasks)

    def _count_alone(self, pass_seconds: float) -> float:
        """Return the seconds of the pass on a single worker."""
        busy = min(self.workers, self.most_tasks)
        return busy * max(0.0, pass_seconds - WORKER_SECONDS * self.workers)


def find_cluster(engine: Engine) -> Cluster | None:
    """Return the workers of an engine; None for an engine of threads."""
    if not isinstance(engine, DistributedEngine):
        return None
    slots = engine.list_slots()
    workers = max(1, len({address for address, _ in slots}))
    threads, most_tasks = max(1, len(slots) // workers), len(plan_groups(engine.source))
    return Cluster(workers, threads, most_tasks, count_requests(engine.source))


def count_requests(source: RowSource) -> int:
    """Return the number of requests to an object store per pass; 0 for rows on a disk.

    A sparse chunk of rows begins and ends within chunks of its arrays. So a pass also requests the ends of chunks and
    the checksums of their parts, about twice per array. For sparse rows, the number is accurate to about 15%.
    """
    while isinstance(source, View):
        source = source.source
    if not isinstance(source, Dataset) or not is_remote(source.path):
        return 0
    arrays = (*source.layout.arrays, *source.passed.values())
    ends = (source.n_chunks - 1) * (2 * len(arrays) + 1) if source.is_sparse else 0
    return sum(array.count_requests() for array in arrays) + ends


KEPT_SHARE = 100 / 105  # chunk bytes per byte of memory for chunks: the projection adds 5% to each chunk


@dataclass(frozen=True)
class Passes:
    """The least, likely and largest number of passes (None: unknown). how: the method of the estimate, in words."""

    least: int | None
    about: int | None
    most: int | None
    how: str

    def add(self, number: int, which: str) -> Passes:
        """Return the passes plus `number` passes. which: the purpose of the added passes."""
        if not number:
            return self
        least, about, most = (None if n is None else n + number for n in (self.least, self.about, self.most))
        return Passes(least, about, most, f"{self.how}, and {'one' if number == 1 else number} {which}")


@dataclass(frozen=True)
class RowFetches:
    """Bytes read to fetch rows by number, in addition to the passes: in each pass, and once before the first pass."""

    each_bytes: int
    once_bytes: int


NO_FETCHES = RowFetches(0, 0)


@dataclass(frozen=True)
class Plan:
    """The expected cost of a training.

    Attributes
    ----------
    source, options : RowSource, TrainOptions
        The rows, and the settings of the training.
    memory : MemoryPlan
        The projected memory of the process that needs the most.
    passes : Passes
        The expected passes.
    first_seconds, later_seconds : float
        Duration of the first pass, and of each later pass, with some chunks in memory.
    between_seconds : float or None
        Time of the solver between two passes. If it is None, the duration of the training is unknown, too.
    taken : RowFetches
        The rows that the solver fetches by number, in addition to the passes.
    probed_chunks : int
        Chunks that were read to measure the passes.
    reason : str
        Why the solver was chosen, and what was second.
    note : str
        A remark on the chosen solver, such as what more memory would save.
    scratch, scratch_bytes : str, int
        The folder for spooled rows, and the maximum number of bytes in it; "" and 0 if there is none.
    cluster : Cluster or None
        The workers; None for threads. With workers, `memory` is the memory of one worker, or of the driver if it needs
        more.
    """

    source: RowSource
    options: TrainOptions
    memory: MemoryPlan
    passes: Passes
    first_seconds: float
    later_seconds: float
    between_seconds: float | None
    taken: RowFetches
    probed_chunks: int
    reason: str = ""
    note: str = ""
    scratch: str = ""
    scratch_bytes: int = 0
    cluster: Cluster | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes of the chunks that stay in memory after the first pass."""
        pin_bytes = self.memory.pin_bytes * (self.cluster.workers if self.cluster else 1)
        kept = min(1.0, KEPT_SHARE * pin_bytes / max(1, self.source.nbytes))
        return int(kept * self.source.stored_bytes)

    def count_passes(self) -> tuple[int | None, int | None, int | None]:
        """Return the least, likely and largest number of passes, limited by `max_passes`; None if unknown."""
        passes, most = self.passes, self.options.max_passes or math.inf
        least, about, top = (n and int(min(n, most)) for n in (passes.least, passes.about, passes.most))
        return least, about, top

    def sum_seconds(self, n_passes: int | None) -> float | None:
        """Return the seconds of a training of `n_passes` passes, limited by `max_seconds`; None if unknown."""
        if n_passes is None or self.between_seconds is None:
            return None
        seconds = self.first_seconds + (n_passes - 1) * self.later_seconds + n_passes * self.between_seconds
        return min(seconds, self.options.max_seconds or math.inf)

    def sum_bytes(self, n_passes: int | None) -> int | None:
        """Return the bytes that a training of `n_passes` passes reads from storage; None if unknown."""
        if n_passes is None:
            return None
        streamed = n_passes * self.source.stored_bytes - (n_passes - 1) * self.kept_bytes
        return streamed + n_passes * self.taken.each_bytes + self.taken.once_bytes

    def sum_requests(self, n_passes: int | None) -> int | None:
        """Return the number of requests to an object store in `n_passes` passes; None if unknown."""
        if n_passes is None or self.cluster is None:
            return None
        kept = self.kept_bytes / max(1, self.source.stored_bytes)
        return round(self.cluster.requests * (1 + (n_passes - 1) * (1.0 - kept)))

    def list_minutes(self, n_passes: int | None) -> dict[int, float]:
        """Return the minutes of training on 1, 2, 4, ... workers, up to the number that minimises a later pass."""
        if n_passes is None or self.cluster is None or self.between_seconds is None:
            return {}
        fastest, minutes = self.cluster.count_fastest(self.later_seconds), dict[int, float]()
        for workers in sorted({fastest, *(2**k for k in range(fastest.bit_length()))}):
            first, later = (self.cluster.project_pass(s, workers) for s in (self.first_seconds, self.later_seconds))
            minutes[workers] = (first + (n_passes - 1) * later + n_passes * self.between_seconds) / 60
        return minutes

    def find_driver_share(self, n_passes: int | None) -> float | None:
        """Return the share of the seconds in which the solver computes and workers wait; None if it is unknown."""
        seconds = self.sum_seconds(n_passes)
        if n_passes is None or self.cluster is None or self.between_seconds is None or not seconds:
            return None
        return min(1.0, n_passes * self.between_seconds / seconds)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as `train --plan --json` prints it; unknown figures are None."""
        counts, cluster = self.count_passes(), self.cluster
        seconds = self.sum_seconds(counts[1])
        return {
            "status": "planned",
            "solver": choose_solver(self.options).name,
            "n_rows": self.source.n_rows,
            "n_features": self.source.n_features,
            "first_pass_bytes": self.source.stored_bytes,
            "later_pass_bytes": self.source.stored_bytes - self.kept_bytes,
            "taken_bytes": self.taken.each_bytes,
            "sample_bytes": self.taken.once_bytes,
            "first_pass_seconds": self.first_seconds,
            "later_pass_seconds": self.later_seconds,
            "between_passes_seconds": self.between_seconds,
            "probed_chunks": self.probed_chunks,
            "n_chunks": self.source.n_chunks,
            "passes": counts[1],
            "passes_range": [counts[0], counts[2]],
            "passes_from": self.passes.how,
            "seconds": seconds,
            "seconds_range": [self.sum_seconds(counts[0]), self.sum_seconds(counts[2])],
            "read_bytes": self.sum_bytes(counts[1]),
            "scratch_bytes": self.scratch_bytes,
            "projected_memory_bytes": self.memory.projected_bytes,
            "memory_budget_bytes": self.memory.budget_bytes,
            "workers": cluster and cluster.workers,
            "worker_minutes": None if cluster is None or seconds is None else cluster.workers * seconds / 60,
            "driver_share": self.find_driver_share(counts[1]),
            "tasks_of_a_pass": cluster and cluster.most_tasks,
            "fastest_workers": cluster and cluster.count_fastest(self.later_seconds),
            "minutes_by_workers": self.list_minutes(counts[1]),
            "requests": self.sum_requests(counts[1]),
            "reason": self.reason,
            "note": self.note,
        }


def show_seconds(seconds: float) -> str:
    """Return a duration with about two significant figures."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
