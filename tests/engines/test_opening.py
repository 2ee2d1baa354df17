"""How many threads run if nobody has said it: as many as there are cores, or fewer if memory is short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client

from streamsvm.data.rows.source import plan_groups
from streamsvm.engines import open as opening
from streamsvm.engines.cluster import open as opening_clusters
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.cluster.task import load_nothing
from streamsvm.engines.open import SLACK_BYTES, open_engine
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import resident_bytes
from tests.conftest import make_problem

TOTALS_BYTES = 100 << 20


def need_memory(threads: int) -> MemoryNeed:
    return MemoryNeed(driver_bytes=0, turn_bytes=0, totals_bytes=TOTALS_BYTES, shared_bytes=0)


@pytest.mark.parametrize(("cores", "fit", "expected"), [(16, 4, 4), (3, 4, 3), (16, 1, 1)])
def test_as_many_as_fit_into_memory(cores: int, fit: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes three totals. The projection of the run is within the budget."""
    monkeypatch.setattr(opening, "default_threads", lambda: cores)
    source = make_problem(1).in_memory()
    beside = 48 << 20  # slack
    budget = resident_bytes() + beside + fit * (3 * TOTALS_BYTES + source.stream_bytes()) + TOTALS_BYTES
    limits, given = TrainOptions(memory_bytes=budget), (need_memory, load_nothing)
    with open_engine(source, limits, *given) as (_, plan):
        parts = [name for name in plan.parts if name.startswith("streaming")]
        assert parts == [f"streaming on {expected} thread{'s' * (expected > 1)}"]
        assert plan.projected_bytes <= budget
    more = replace(limits, threads=16)
    with pytest.raises(MemoryBudgetError, match="use fewer --threads"), open_engine(source, more, *given):
        pass


def test_one_thread_is_refused_if_it_does_not_fit() -> None:
    limits, given = TrainOptions(memory_bytes=100 << 20), (need_memory, load_nothing)
    source = make_problem(1).in_memory()
    with pytest.raises(MemoryBudgetError, match="on 1 thread "), open_engine(source, limits, *given):
        pass


@pytest.mark.parametrize(
    ("what", "driver_bytes", "times"),
    [
        ("gathered_bytes", 1 << 30, 1.0),
        ("gathered_bytes", 0, 2.0),
        ("by_row_bytes", 1 << 30, 1.0),
        ("by_row_bytes", 0, 1.5),
    ],
)
def test_what_is_sent_between_driver_and_workers(
    what: str, driver_bytes: int, times: float, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver holds what a pass gathers beside its own, a worker that adds up twice. The larger plan is told.

    The driver packs all arrays by row; each of two workers holds its half twice, and that of a lost worker.
    """
    monkeypatch.setattr(opening, "resident_bytes", lambda: 0)  # not what other tests have left in this process
    found = []
    for nbytes in (0, 50 << 20):
        need = replace(MemoryNeed(driver_bytes, 0, TOTALS_BYTES, 0), **{what: nbytes})
        source, limits = make_problem(1).in_memory(), TrainOptions(memory_bytes=4 << 30)
        with open_engine(source, limits, lambda _, need=need: need, load_nothing, client) as (_, plan):
            found.append(plan.parts["solver"])
    assert found[1] - found[0] == times * (50 << 20)


@pytest.mark.usefixtures("many_groups")
def test_totals_are_handed_over_where_the_driver_has_room(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that would be enough without is enough, and what the driver holds is in its plan."""
    monkeypatch.setattr(opening, "resident_bytes", lambda: 0)
    source = make_problem(1).store(tmp_path / "rows", chunk_bytes=1000)
    n_groups, need = len(plan_groups(source)), MemoryNeed(1 << 30, 0, 1 << 20, 0)
    found = []
    for room_bytes in (0, 500 << 20):
        budget = need.driver_bytes + 3 * 2 * need.totals_bytes + SLACK_BYTES + room_bytes
        limits, given = TrainOptions(memory_bytes=budget), (lambda _: need, load_nothing)
        with open_engine(source, limits, *given, client) as (engine, plan):
            assert isinstance(engine, DistributedEngine)
            found.append((engine.most_handed, plan.parts["solver"]))
            assert plan.projected_bytes <= budget
    assert n_groups > 1
    assert found == [(0, need.driver_bytes), (n_groups, need.driver_bytes + n_groups * need.totals_bytes)]


@pytest.mark.parametrize(("what", "times"), [("driver_bytes", 1), ("shared_bytes", 3)])
def test_before_workers_start_the_larger_need_is_told(what: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is that of the driver, or of a worker, so that a budget is not refused a second time."""
    base = 200 << 20
    for module in (opening, opening_clusters):
        monkeypatch.setattr(module, "resident_bytes", lambda: base)
    monkeypatch.setattr(opening_clusters, "start_workers", lambda *_: pytest.fail("workers were started"))
    need = replace(MemoryNeed(0, 0, TOTALS_BYTES, 0), **{what: 2 << 30})
    limits, given = TrainOptions(memory_bytes=100 << 20), (lambda _: need, load_nothing)
    source = make_problem(1).in_memory()
    with pytest.raises(MemoryBudgetError) as told, open_engine(source, replace(limits, workers=2), *given):
        pass
    enough = told.value.needed_bytes
    assert times << 31 < enough < (times + 1) << 31
    planner = opening.Planner(source, lambda _: need, enough, "")
    worker = planner.plan_worker(2, base + opening_clusters.UNKNOWN_BYTES, 1, "a worker")
    assert worker.projected_bytes <= enough
