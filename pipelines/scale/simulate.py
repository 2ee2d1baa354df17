"""The simulation of a pass on many workers: one task per worker, and then a tree of workers that joins the totals.

    driver sends, scheduler gives  ->  workers read their ranges  ->  scheduler hears  ->  workers join  ->  driver

The scheduler is a single server. It assigns the tasks one after another, and processes the ends of tasks one after
another. A group takes the median time for its bytes, times exp(sigma z) with a normal z. Idle workers take groups from
slow workers, so no worker ends later than the mean of all workers plus the time of a group. Joins begin when all tasks
have ended. Each join fetches up to `fan_in` parts, one after another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipelines.scale.measure import Costs
from streamsvm.engines.cluster.task import SMALL_BYTES
from streamsvm.engines.cluster.tree import FAN_IN, count_levels, find_fan_in

F64 = npt.NDArray[np.float64]
GAIN = 0.8  # twice as many workers pay if they reduce the time to less than this share


@dataclass(frozen=True)
class Cluster:
    """The assumptions about a cluster.

    Attributes
    ----------
    data_bytes, group_bytes, memory_bytes : float
        The bytes of the data, of a group of chunks, and of the memory of a worker for rows.
    bandwidth, latency : float
        Bytes per second, and seconds of latency, of the network.
    fan_in : int
        The maximum number of parts that one task joins.
    cores : int
        The number of workers that share a task, as the cores of one machine could do.
    help : bool
        Whether idle workers take groups from slow ones.
    slow_share : float
        The share of the workers that are half as fast.
    scheduler_speed : float
        The speed of the scheduler relative to the measured one.
    """

    data_bytes: float
    group_bytes: float = 256 * 2**20
    memory_bytes: float = 4e9
    bandwidth: float = 1.25e9
    latency: float = 2e-4
    fan_in: int = FAN_IN
    cores: int = 1
    help: bool = True
    slow_share: float = 0.0
    scheduler_speed: float = 1.0


@dataclass(frozen=True)
class Times:
    """The simulated times of a pass, in seconds since its start.

    begins: the time at which the last worker begins. heard: the time at which the scheduler knows that all tasks have
    ended. total: the time at which the driver has the sum. reading: the mean time in which workers read their ranges (a
    duration).
    """

    begins: float
    heard: float
    total: float
    reading: float

    @property
    def beyond(self) -> float:
        """The seconds of a pass during which an average worker does not read."""
        return self.total - self.reading


def simulate(costs: Costs, cluster: Cluster, n_workers: int, rng: np.random.Generator) -> Times:
    """Return the times of one pass, including the driver's work between two passes."""
    n_groups = max(1, round(cluster.data_bytes / cluster.group_bytes))
    n_workers = min(n_workers, n_groups)
    n_tasks = -(-n_workers // cluster.cores)
    seconds = draw_ranges(costs, cluster, n_groups, n_workers, rng)
    speed = cluster.scheduler_speed
    before = max(costs.driver + costs.sends.at(n_tasks), costs.frees.at(n_tasks) / speed)
    task = np.arange(n_workers) // cluster.cores
    given = before + (costs.gives.fixed + costs.gives.slope * (task + 1)) / speed
    begins = np.maximum(given, before + arrive(costs, cluster, n_workers))
    done = begins + seconds + costs.worker
    if cluster.help:
        done = np.minimum(done, done.mean() + seconds.sum() / n_groups)
    ends = np.sort(np.maximum.reduceat(done, np.arange(0, n_workers, cluster.cores)))
    heard = float(serve(ends, costs.hears.slope / speed)[-1]) + costs.hears.fixed / speed
    total = heard + costs.ends.at(n_tasks) + join(costs, cluster, n_groups, n_tasks)
    return Times(float(begins[-1]), heard, total, float(seconds.mean()))


def draw_ranges(costs: Costs, cluster: Cluster, n_groups: int, n_workers: int, rng: np.random.Generator) -> F64:
    """Return the seconds of each worker for its range. Rows that do not fit into memory are streamed from files."""
    owner = np.arange(n_groups) * n_workers // n_groups
    kept = min(1.0, cluster.memory_bytes * n_workers / cluster.data_bytes)
    middle = cluster.group_bytes * (kept * costs.kept + (1 - kept) * costs.streamed)
    slow = np.where(rng.random(n_workers) < cluster.slow_share, 2.0, 1.0)
    times: F64 = slow * np.bincount(owner, middle * np.exp(costs.sigma * rng.standard_normal(n_groups)))
    return times


def arrive(costs: Costs, cluster: Cluster, n_workers: int) -> float:
    """Return the time at which all workers have w.

    A small w is sent with the tasks, and a large w is fetched from a worker.
    """
    if costs.shared_bytes <= SMALL_BYTES:
        return 0.0
    hop = cluster.latency + costs.message.at(costs.shared_bytes) + costs.shared_bytes / cluster.bandwidth
    return math.ceil(math.log2(n_workers + 1)) * (costs.link + hop)


def serve(ready: F64, each: float) -> F64:
    """Return the times at which a server finishes jobs that become ready in order and take `each` seconds.

    done_j is the maximum over i <= j of ready_i + (j - i + 1) each.
    """
    number = np.arange(len(ready))
    done: F64 = np.maximum.accumulate(ready - each * number) + each * (number + 1)
    return done


def join(costs: Costs, cluster: Cluster, n_groups: int, n_tasks: int) -> float:
    """Return the seconds from the end of all tasks until the driver has the sum, after log(tasks) joins in a row."""
    fan_in = min(cluster.fan_in, find_fan_in(n_groups, costs.totals_bytes))
    part = 2 * max(1, count_levels(max(1, n_groups // n_tasks))) * costs.totals_bytes
    fetch = cluster.latency + part / cluster.bandwidth + costs.message.at(part) + costs.combine.at(part)
    n_joins = math.ceil(math.log(n_tasks, fan_in) - 1e-9) if n_tasks > 1 else 0
    return n_joins * (costs.link + fan_in * fetch) + cluster.latency + costs.totals_bytes / cluster.bandwidth


def mean_seconds(costs: Costs, cluster: Cluster, n_workers: int, seed: int, times: int = 3) -> float:
    """Simulate several passes, and return the mean of their seconds."""
    rngs = [np.random.default_rng((seed, n_workers, k)) for k in range(times)]
    return float(np.mean([simulate(costs, cluster, n_workers, rng).total for rng in rngs]))


End = tuple[int, float, list[float]]


def find_end(costs: Costs, cluster: Cluster, workers: list[int], seed: int) -> End:
    """Return the number of workers from which doubling no longer pays, the seconds for it, and all seconds."""
    seconds = [mean_seconds(costs, cluster, n, seed) for n in workers]
    pays = [after < GAIN * before for before, after in pairwise(seconds)]
    end = pays.index(False) if False in pays else len(pays)
    return workers[end], seconds[end], seconds


def scale_totals(costs: Costs, factor: float) -> Costs:
    """Return the costs for rows that have `factor` times as many features."""
    wider = int(costs.totals_bytes * factor), int(costs.shared_bytes * factor)
    return replace(costs, totals_bytes=wider[0], shared_bytes=wider[1], driver=costs.driver * factor)
