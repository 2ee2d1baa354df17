"""pipelines/scale/: the simulator against closed forms and brute force, and the script as its first lines say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from streamsvm.engines.group import tree_levels
from tests.pipelines.test_scripts import run

pytestmark = pytest.mark.once

NO_WAIT = {"bandwidth": 1e30, "latency": 0.0}


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    """The simulator as a module."""
    return importlib.import_module("pipelines.scale.simulate")


def make_costs(**given: float) -> object:
    """One second a task of one byte, and nothing else takes time unless given."""
    measured = importlib.import_module("pipelines.scale.measure")
    nothing = measured.Line(0.0, 0.0)
    costs = {
        "kept": 1.0,
        "streamed": 1.0,
        "sigma": 0.0,
        "combine": nothing,
        "message": nothing,
        "overhead": 0.0,
        "worker_overhead": 0.0,
        "link": 0.0,
        "driver": 0.0,
        "totals_bytes": 8,
        "shared_bytes": 8,
    }
    return measured.Costs(**{**costs, **given})


def seconds(scale: ModuleType, costs: object, n_workers: int, n_tasks: int = 64, **given: float) -> float:
    cluster = scale.Cluster(n_tasks, **{"task_bytes": 1.0, **NO_WAIT, **given})
    return float(scale.simulate(costs, cluster, n_workers, np.random.default_rng(0)))


def test_work_alone_is_divided_among_the_workers(scale: ModuleType) -> None:
    for n_workers, expected in ((1, 64.0), (2, 32.0), (16, 4.0), (48, 2.0), (64, 1.0), (1000, 1.0)):
        assert seconds(scale, make_costs(), n_workers) == expected


def test_a_slow_scheduler_bounds_a_pass(scale: ModuleType) -> None:
    """64 tasks and their sums take it 64 s; tasks that are 4 times larger, 16; one a worker, as many as workers."""
    costs = make_costs(overhead=1.0)
    assert seconds(scale, costs, 64) == pytest.approx(64.0, abs=1.5)
    assert seconds(scale, costs, 64, task_bytes=4.0) == pytest.approx(16.0, abs=5.0)
    assert seconds(scale, costs, 4, one_task=True) == 4 * 0.5 + 16.0
    assert seconds(scale, costs, 64, scheduler_speed=10.0) == pytest.approx(6.4, abs=1.5)


def test_tasks_given_out_in_turn_reach_all_workers_sooner(scale: ModuleType) -> None:
    costs = make_costs(overhead=0.1)
    after = 32 * 0.05 + 0.05  # the second of two workers waits for all tasks of the first
    assert seconds(scale, costs, 2) >= 32.0 + after
    assert seconds(scale, costs, 2, in_turn=True) < 32.0 + after


def test_a_sum_waits_for_the_network_once_a_level(scale: ModuleType) -> None:
    """Eight workers: three levels and the way to the driver; eight parts a sum: one level. w: log2 of nine, up."""
    assert seconds(scale, make_costs(), 8, 8, latency=1.0) == 1.0 + 4 + 3 + 1
    assert seconds(scale, make_costs(), 8, 8, latency=1.0, fan_in=8) == 1.0 + 4 + 1 + 1
    assert seconds(scale, make_costs(), 8, 8, latency=1.0, tree_broadcast=False) == 1.0 + 8 + 3 + 1
    assert seconds(scale, make_costs(link=1.0), 8, 8) == 1.0 + 1 + 3


def test_rows_that_memory_does_not_hold_are_streamed(scale: ModuleType) -> None:
    costs = make_costs(streamed=3.0)
    assert seconds(scale, costs, 2, memory_bytes=16.0) == 64.0  # half of it: 2 s a task
    assert seconds(scale, costs, 4, memory_bytes=16.0) == 16.0


def test_slow_workers_hold_all_up(scale: ModuleType) -> None:
    assert seconds(scale, make_costs(), 64, slow_share=0.5) == 2.0
    even, uneven = (seconds(scale, make_costs(sigma=sigma), 64) for sigma in (0.0, 0.3))
    assert uneven > 1.5 * even


def test_working_off_is_what_it_says(scale: ModuleType) -> None:
    rng = np.random.default_rng(1)
    owner, ready, took = np.sort(rng.integers(0, 5, 40)), rng.random(40) * 9, rng.random(40)
    owner = np.unique(owner, return_inverse=True)[1]
    free, expected = np.zeros(5), []
    for k, worker in enumerate(owner):
        free[worker] = max(free[worker], ready[k]) + took[k]
        expected.append(free[worker])
    np.testing.assert_allclose(scale.work_off(owner, ready, took), expected)


@pytest.mark.parametrize("fan_in", [2, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_every_part_is_added_once(scale: ModuleType, fan_in: int, n: int) -> None:
    sums = np.ones(n)
    for level in scale.levels(n, fan_in):
        for lefts, right in level:
            sums[lefts] += sums[right]
            sums[right] = 0
    assert sums[0] == n
    if fan_in == 2:
        pairs = [list(zip(*(part.tolist() for part in level[0]), strict=True)) for level in scale.levels(n, 2)]
        assert pairs == [list(level) for level in tree_levels(n)]


def test_the_end_is_where_twice_the_workers_save_little(scale: ModuleType) -> None:
    workers = [1, 2, 4, 8, 16, 32, 64]
    cluster = scale.Cluster(64, task_bytes=1.0, **NO_WAIT)
    end, there, found = scale.find_end(make_costs(overhead=0.1), cluster, workers, 0)
    assert found[0] == pytest.approx(64.0, rel=0.1)
    assert end == 16  # 7.05 s, and then 6.4: a task and its sum take the scheduler 0.1
    assert there == found[4] == pytest.approx(60 * 0.05 + 0.05 + 4.0, rel=0.02)
    assert found[5] == pytest.approx(6.4, rel=0.02)
    assert found[4] < 0.8 * found[3]


@pytest.mark.slow
def test_the_script_in_small(tmp_path: Path) -> None:
    done = run("scale.py", "--small", "--picture", str(tmp_path / "scale.png"))
    assert done.returncode == 0, done.stderr
    tables = [part for part in done.stdout.split("\n\n") if part.startswith("|")]
    costs, compared, sizes, changes = ([line.split(" | ") for line in part.splitlines()] for part in tables)
    assert len(costs) == 11
    assert [row[0] for row in compared[2:]] == ["| 1", "| 2"]
    ratios = [float(row[k].strip(" |")) for row in compared[2:] for k in (4, 7)]
    assert all(0 < ratio < np.inf for ratio in ratios), ratios
    assert len(sizes) == 13
    assert sum("**" in cell for row in sizes for cell in row) == 2
    assert len(changes) >= 15
    assert (tmp_path / "scale.png").stat().st_size > 10_000
