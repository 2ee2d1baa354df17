"""pipelines/scale/: the simulator against closed forms and brute force, and the script as its first lines say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.pipelines.test_scripts import run

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

NO_WAIT = {"bandwidth": 1e30, "latency": 0.0}


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    """The simulator as a module."""
    return importlib.import_module("pipelines.scale.simulate")


def make_costs(**given: object) -> object:
    """One second a group of one byte, and nothing else takes time unless given; a number is a slope."""
    measured = importlib.import_module("pipelines.scale.measure")
    lines = ("combine", "message", "sends", "ends", "gives", "hears", "frees")
    costs = {**dict.fromkeys(("kept", "streamed"), 1.0), **dict.fromkeys(("sigma", "worker", "link", "driver"), 0.0)}
    costs |= {**dict.fromkeys(lines, 0.0), "totals_bytes": 8, "shared_bytes": 8, **given}
    return measured.Costs(**{name: measured.Line(0.0, x) if name in lines else x for name, x in costs.items()})


def seconds(scale: ModuleType, costs: object, n_workers: int, n_groups: int = 64, **given: float) -> float:
    cluster = scale.Cluster(n_groups, **{"group_bytes": 1.0, **NO_WAIT, **given})
    return float(scale.simulate(costs, cluster, n_workers, np.random.default_rng(0)).total)


def test_work_alone_is_divided_among_the_workers(scale: ModuleType) -> None:
    for n_workers, expected in ((1, 64.0), (2, 32.0), (16, 4.0), (64, 1.0), (1000, 1.0)):
        assert seconds(scale, make_costs(), n_workers) == expected


def test_each_phase_takes_its_time_for_each_worker(scale: ModuleType) -> None:
    """The last of 8 workers begins after 8 tasks were sent and given. The scheduler hears of those before meanwhile."""
    assert seconds(scale, make_costs(sends=1.0), 8) == 8 + 8.0
    assert seconds(scale, make_costs(gives=1.0), 8, help=False) == 8 + 8.0
    assert seconds(scale, make_costs(hears=1.0), 8) == 8 + 8.0
    assert seconds(scale, make_costs(ends=1.0), 8) == 8 + 8.0
    assert seconds(scale, make_costs(gives=1.0, hears=1.0), 8, help=False) == 8 + 8 + 1.0
    assert seconds(scale, make_costs(frees=1.0), 8) == seconds(scale, make_costs(frees=1.0, sends=0.5), 8) == 8 + 8.0
    assert seconds(scale, make_costs(hears=1.0), 8, scheduler_speed=10.0) == pytest.approx(8 + 0.8)
    assert seconds(scale, make_costs(hears=1.0), 8, cores=4) == 8 + 2.0
    assert seconds(scale, make_costs(worker=1.0, driver=2.0), 8) == 8 + 3.0


def test_a_join_waits_for_each_of_its_parts_and_once_a_level(scale: ModuleType) -> None:
    """64 workers: two levels of 16 parts, six of two; then the way to the driver."""
    assert seconds(scale, make_costs(), 64, latency=1.0) == 1 + 2 * 16 + 1
    assert seconds(scale, make_costs(), 64, latency=1.0, fan_in=2) == 1 + 6 * 2 + 1
    assert seconds(scale, make_costs(link=1.0), 64) == 1 + 2
    assert seconds(scale, make_costs(link=1.0), 1) == 64


def test_a_large_w_is_passed_on_by_the_workers(scale: ModuleType) -> None:
    """7 workers have it after three steps; a small one travels with the tasks."""
    costs = make_costs(shared_bytes=1 << 20, link=1.0)
    assert seconds(scale, costs, 7, 7) - seconds(scale, make_costs(link=1.0), 7, 7) == 3


def test_rows_that_memory_does_not_hold_are_streamed(scale: ModuleType) -> None:
    costs = make_costs(streamed=3.0)
    assert seconds(scale, costs, 2, memory_bytes=16.0) == 64.0  # half of it: 2 s a group
    assert seconds(scale, costs, 4, memory_bytes=16.0) == 16.0


def test_slow_workers_hold_all_up_unless_others_help(scale: ModuleType) -> None:
    slow = {"slow_share": 0.5, "group_bytes": 1.0}
    assert seconds(scale, make_costs(), 64, 6400, help=False, **slow) == 200.0
    assert 130 < seconds(scale, make_costs(), 64, 6400, **slow) < 170
    even, uneven = (seconds(scale, make_costs(sigma=sigma), 64, help=False) for sigma in (0.0, 0.3))
    assert uneven > 1.5 * even


def test_serving_is_what_it_says(scale: ModuleType) -> None:
    ready, free, expected = np.sort(np.random.default_rng(1).random(40)) * 9, 0.0, []
    for each in ready:
        free = max(free, each) + 0.3
        expected.append(free)
    np.testing.assert_allclose(scale.serve(ready, 0.3), expected)


def test_the_end_is_where_twice_the_workers_save_little(scale: ModuleType) -> None:
    """64 / n + n seconds, of which 8 workers save exactly a fifth."""
    cluster = scale.Cluster(64, group_bytes=1.0, **NO_WAIT)
    end, there, found = scale.find_end(make_costs(sends=1.0), cluster, [1, 2, 4, 8, 16, 32, 64], 0)
    assert found == [65.0, 34.0, 20.0, 16.0, 20.0, 34.0, 65.0]
    assert (end, there) == (4, 20.0)


def test_the_script_in_small(tmp_path: Path) -> None:
    done = run("scale.py", "--small", "--picture", str(tmp_path / "scale.png"))
    assert done.returncode == 0, done.stderr
    tables = [part for part in done.stdout.split("\n\n") if part.startswith("|")]
    costs, phases, beyond, sizes, changes = ([line.split(" | ") for line in part.splitlines()] for part in tables)
    assert len(costs) == 10
    assert [row[0] for row in phases[2:]] == ["| 1", "| 3", "| a worker more"]
    found = [float(cell.strip(" |")) for row in (*phases[2:], *beyond[2:]) for cell in row[1:]]
    assert all(0 <= number < np.inf for number in found), found
    assert len(sizes) == 13
    assert sum("**" in cell for row in sizes for cell in row) == 2
    assert len(changes) >= 12
    assert (tmp_path / "scale.png").stat().st_size > 10_000
