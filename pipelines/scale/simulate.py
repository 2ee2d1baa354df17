"""A pass on many workers, simulated: when each task is given out, done and added up.

A group of chunks is a task. The scheduler is one server, which gives out first the tasks and then the sums, one after
another. A worker carries out its tasks in order, once it has w; a task takes the median time for its bytes, times
exp(sigma z) with normal z. A sum of the fixed tree waits for both of its parts, for its turn at the scheduler, and for
the network if a part is on another worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipelines.scale.measure import Costs
from streamsvm.engines.group import tree_levels

F64 = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
GAIN = 0.8  # Doubling the workers pays as long as it brings the time below this share.


@dataclass(frozen=True)
class Cluster:
    """What is assumed of a cluster.

    Attributes
    ----------
    data_bytes, task_bytes, memory_bytes : float
        Bytes of the data, of a task's rows, and of a worker's memory for rows.
    bandwidth, latency : float
        Bytes a second and seconds of the network.
    fan_in : int
        Parts that one sum adds; 0 lets the driver add all of them.
    tree_broadcast : bool
        Workers pass w on to each other.
    one_task : bool
        A worker adds its own groups up, and is one task.
    in_turn : bool
        Tasks are given out to all workers in turn, and not to one worker after another.
    slow_share : float
        Share of the workers that are half as fast.
    scheduler_speed : float
        How many times as fast as measured the scheduler is.
    """

    data_bytes: float
    task_bytes: float = 256 * 2**20
    memory_bytes: float = 4e9
    bandwidth: float = 1.25e9
    latency: float = 2e-4
    fan_in: int = 2
    tree_broadcast: bool = True
    one_task: bool = False
    in_turn: bool = False
    slow_share: float = 0.0
    scheduler_speed: float = 1.0


def simulate(costs: Costs, cluster: Cluster, n_workers: int, rng: np.random.Generator) -> float:
    """Return the seconds of one pass, including the driver's."""
    n_groups = max(1, round(cluster.data_bytes / cluster.task_bytes))
    n_workers = min(n_workers, n_groups)
    owner = np.arange(n_groups) * n_workers // n_groups
    seconds = draw_tasks(costs, cluster, owner, n_workers, rng)
    if cluster.one_task:
        seconds, owner = np.bincount(owner, seconds).astype(np.float64), np.arange(n_workers)
    seconds = seconds + costs.worker_overhead
    n = len(owner)
    order = np.argsort(place_in_worker(owner), kind="stable") if cluster.in_turn else np.arange(n)
    given = np.empty(n)
    turn = costs.overhead / 2 / cluster.scheduler_speed  # The other half is for the sums.
    given[order] = turn * np.arange(1, n + 1)
    done = work_off(owner, np.maximum(given, arrive(costs, cluster, n_workers)), seconds)
    return costs.driver + add_up(costs, cluster, owner, done)


def draw_tasks(costs: Costs, cluster: Cluster, owner: Places, n_workers: int, rng: np.random.Generator) -> F64:
    """Return the seconds of each task; rows that do not fit into memory are streamed from the worker's files."""
    kept = min(1.0, cluster.memory_bytes * n_workers / cluster.data_bytes)
    middle = cluster.task_bytes * (kept * costs.kept + (1 - kept) * costs.streamed)
    slow = np.where(rng.random(n_workers) < cluster.slow_share, 2.0, 1.0)
    times: F64 = slow[owner] * middle * np.exp(costs.sigma * rng.standard_normal(len(owner)))
    return times


def place_in_worker(owner: Places) -> Places:
    """Return the number of each task among its worker's tasks; `owner` must ascend."""
    starts = np.searchsorted(owner, np.arange(owner[-1] + 1))
    places: Places = np.arange(len(owner)) - starts[owner]
    return places


def arrive(costs: Costs, cluster: Cluster, n_workers: int) -> float:
    """Return when all workers have w, which is sent by rounds of a tree, or as one copy after another."""
    hop = cluster.latency + costs.message.at(costs.shared_bytes) + costs.shared_bytes / cluster.bandwidth
    return costs.link + hop * (np.ceil(np.log2(n_workers + 1)) if cluster.tree_broadcast else n_workers)


def work_off(owner: Places, ready: F64, seconds: F64) -> F64:
    """Return when each task is done.

    A worker takes its tasks in order, so that task j is done at the maximum over i <= j of ready_i plus the seconds of
    the tasks i to j.
    """
    place, n_workers = place_in_worker(owner), owner[-1] + 1
    table = np.full((n_workers, place.max() + 1), 0.0)
    begin = np.full(table.shape, -np.inf)
    table[owner, place], begin[owner, place] = seconds, ready
    total = np.cumsum(table, axis=1)
    done: F64 = np.maximum.accumulate(begin - total + table, axis=1) + total
    found: F64 = done[owner, place]
    return found


def add_up(costs: Costs, cluster: Cluster, owner: Places, done: F64) -> float:
    """Return when the driver has the sum of all totals."""
    n, nbytes = len(owner), costs.totals_bytes
    send = cluster.latency + costs.message.at(nbytes) + nbytes / cluster.bandwidth
    turn = costs.overhead / 2 / cluster.scheduler_speed
    if cluster.fan_in == 0:  # The driver adds them one after another, as they come.
        each = max(turn, costs.message.at(nbytes) / 2 + nbytes / cluster.bandwidth + costs.combine.at(nbytes))
        return float(np.max(np.sort(done) + each * np.arange(n, 0, -1)) + cluster.latency)
    at, number = done.copy(), 0
    given = n * turn
    for level in levels(n, cluster.fan_in):
        firsts = level[0][0]
        at[firsts] = np.maximum(at[firsts], given + turn * (number + np.arange(1, len(firsts) + 1))) + costs.link
        number += len(firsts)
        for lefts, right in level:
            apart = owner[lefts] != owner[right]
            at[lefts] = np.maximum(at[lefts], at[right] + apart * send) + costs.combine.at(nbytes)
    return float(at[0] + send)


def levels(n: int, fan_in: int) -> list[list[tuple[Places, Places]]]:
    """Return, level by level, the positions to which other positions are added; the sum ends up at position 0."""
    if fan_in == 2:
        pairs = [np.array(list(level)) for level in tree_levels(n)]
        return [[(level[:, 0], level[:, 1])] for level in pairs]
    found, gap = [], 1
    while gap < n:
        firsts = np.arange(0, n, gap * fan_in)
        parts = [(firsts[firsts + k * gap < n], firsts[firsts + k * gap < n] + k * gap) for k in range(1, fan_in)]
        found.append([part for part in parts if len(part[0])])
        gap *= fan_in
    return found


def mean_seconds(costs: Costs, cluster: Cluster, n_workers: int, seed: int, times: int = 3) -> float:
    """Return the mean seconds of some passes."""
    rngs = [np.random.default_rng((seed, n_workers, k)) for k in range(times)]
    return float(np.mean([simulate(costs, cluster, n_workers, rng) for rng in rngs]))


End = tuple[int, float, list[float]]


def find_end(costs: Costs, cluster: Cluster, workers: list[int], seed: int) -> End:
    """Return from how many workers on doubling no longer pays, the seconds there, and all seconds."""
    seconds = [mean_seconds(costs, cluster, n, seed) for n in workers]
    pays = [after < GAIN * before for before, after in pairwise(seconds)]
    end = pays.index(False) if False in pays else len(pays)
    return workers[end], seconds[end], seconds


def scale_totals(costs: Costs, factor: float) -> Costs:
    """Return the costs of rows that have so many times the features."""
    wider = int(costs.totals_bytes * factor), int(costs.shared_bytes * factor)
    return replace(costs, totals_bytes=wider[0], shared_bytes=wider[1], driver=costs.driver * factor)
