"""What a training costs on the workers of a cluster, and with how many of them a pass is shortest.

One scheduler serves the workers of a pass one after another, WORKER_SECONDS each, and the workers read side by side:

    seconds of a pass on W workers = WORKER_SECONDS W + S / W        S: seconds of a pass for one worker

This is least for W = sqrt(S / WORKER_SECONDS). Each worker needs a group of chunks to read. S is measured by the probe
of the plan, on the workers that are there. More workers keep more chunks in memory together; this is left out, so that
a larger cluster may take less time than is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamsvm.data.dataset import Dataset
from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.data.view import View
from streamsvm.engines.cluster import DistributedEngine
from streamsvm.engines.protocol import Engine
from streamsvm.urls import is_remote

WORKER_SECONDS = 0.0022  # of the scheduler, for a worker more in a pass (tests/benchmarks/passes.py)


@dataclass(frozen=True)
class Cluster:
    """The workers of a training: their number and their threads, groups of chunks, and requests of a pass to a store.

    requests is 0 for rows on a disk.
    """

    workers: int
    threads: int
    n_groups: int
    requests: int

    def count_fastest(self, pass_seconds: float) -> int:
        """Return the number of workers with which a pass is shortest that takes so long on those that are there."""
        alone = self.workers * max(0.0, pass_seconds - WORKER_SECONDS * self.workers)
        return max(1, min(self.n_groups, round(math.sqrt(alone / WORKER_SECONDS))))

    def project_pass(self, pass_seconds: float, workers: int) -> float:
        """Return the seconds on so many workers of a pass that takes `pass_seconds` on those that are there."""
        alone = self.workers * max(0.0, pass_seconds - WORKER_SECONDS * self.workers)
        return WORKER_SECONDS * workers + alone / min(workers, self.n_groups)


def find_cluster(engine: Engine) -> Cluster | None:
    """Return the workers of an engine; None if it has threads."""
    if not isinstance(engine, DistributedEngine):
        return None
    slots = engine.list_slots()
    workers = max(1, len({address for address, _ in slots}))
    threads, n_groups = max(1, len(slots) // workers), len(plan_groups(engine.source))
    return Cluster(workers, threads, n_groups, count_requests(engine.source))


def count_requests(source: RowSource) -> int:
    """Return how often a pass asks an object store for a range of its chunks; 0 for rows on a disk.

    The rows of a sparse chunk begin and end within chunks of its arrays. So a pass asks for the ends of chunks and for
    checksums of their parts as well, about twice for each array: this number is right to some 15% for sparse rows.
    """
    while isinstance(source, View):
        source = source.source
    if not isinstance(source, Dataset) or not is_remote(source.path):
        return 0
    arrays = (*source.layout.arrays, *source.passed.values())
    ends = (source.n_chunks - 1) * (2 * len(arrays) + 1) if source.is_sparse else 0
    return sum(array.count_requests() for array in arrays) + ends
