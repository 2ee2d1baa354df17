"""Many single rows on workers: the parts in which they are taken, and what comes of a part that is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines.cluster import engine as cluster
from streamsvm.engines.cluster import engine as takes
from streamsvm.engines.cluster import watch
from streamsvm.engines.cluster.engine import DistributedEngine, cut_take, join_taken
from streamsvm.engines.cluster.watch import ClusterWatch
from streamsvm.numeric.rows import I64, CsrRows, Rows, to_dense
from streamsvm.passes import Take
from tests.conftest import Problem
from tests.engines.conftest import PROBLEMS


@pytest.fixture(autouse=True)
def sixteen_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamsvm.data.rows import source as groups

    monkeypatch.setattr(groups, "SMALLEST_GROUP_BYTES", 1)
    monkeypatch.setattr(groups, "GROUPS", 16)
    monkeypatch.setattr(takes, "ROWS_A_PART", 10)


def list_groups(source: RowSource, rows: I64) -> set[int]:
    """Return the groups of some rows, by brute force."""
    limits = [(source.chunk_starts[group[0]], source.chunk_starts[group[-1] + 1]) for group in plan_groups(source)]
    return {k for k, (start, stop) in enumerate(limits) if np.any((rows >= start) & (rows < stop))}


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("threads", [0, 1, 2, 50])
def test_parts_have_groups_of_their_own(sources: dict[str, RowSource], step: int, threads: int) -> None:
    source = sources["dense"]
    rows = np.arange(3, source.n_rows, step)
    parts = cut_take(source, plan_groups(source), rows, threads)
    np.testing.assert_array_equal(np.concatenate(parts), rows)
    groups = [list_groups(source, part) for part in parts]
    assert sum(map(len, groups)) == len(set().union(*groups))
    most = min(takes.PARTS_A_THREAD * threads, len(set().union(*groups)), len(rows) // takes.ROWS_A_PART)
    assert len(parts) == max(1, most)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_few_rows_and_rows_in_another_order_are_one_part(sources: dict[str, RowSource]) -> None:
    source = sources["dense"]
    for rows in (np.empty(0, np.int64), np.arange(0, 1000, 60), np.arange(1000)[::-1]):
        (part,) = cut_take(source, plan_groups(source), rows, 2)
        np.testing.assert_array_equal(part, rows)


def check_rows(rows: Rows, problem: Problem, wanted: I64) -> None:
    X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X
    np.testing.assert_array_equal(X, problem.dense()[wanted])
    np.testing.assert_array_equal(np.where(rows.y == 1, 1, -1), problem.y[wanted])
    assert rows.sample_weight is None or len(rows.sample_weight) == len(wanted)


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_parts_are_put_together(sources: dict[str, RowSource], name: str) -> None:
    source, wanted = sources[name], np.arange(1, sources[name].n_rows, 3)
    whole = source.take(wanted)
    joined = join_taken(source.take(part) for part in np.array_split(wanted, 5))
    check_rows(joined, PROBLEMS[name], wanted)
    assert joined.vectors.keys() == whole.vectors.keys()
    for key, values in whole.vectors.items():
        np.testing.assert_array_equal(joined.vectors[key], values)


def test_the_workers_share_a_take(
    sources: dict[str, RowSource], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker is preferred for half of the parts."""
    source, preferred, submit = sources["dense"], list[str](), DistributedEngine._submit_on_data

    def note(engine: DistributedEngine, *arguments: Any, workers: list[str], **named: Any) -> Any:
        preferred.extend(workers)
        return submit(engine, *arguments, workers=workers, **named)

    monkeypatch.setattr(DistributedEngine, "_submit_on_data", note)
    wanted = np.arange(source.n_rows)
    check_rows(DistributedEngine(source, client).take(Take(wanted)), PROBLEMS["dense"], wanted)
    first, second = sorted(client.scheduler_info()["workers"])
    assert preferred == [first] * 4 + [second] * 4


def take_and_note(folder: Path, data: tuple[RowSource, Any], rows: I64) -> Rows:
    (folder / f"{rows[0]}").touch()
    return data[0].take(rows)


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_many_rows_are_taken_by_several_tasks(
    client: Client, sources: dict[str, RowSource], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, wanted = sources[name], np.arange(1, sources[name].n_rows, 3)
    engine, submit = DistributedEngine(source, client), client.submit

    def submit_and_note(function: Any, *arguments: Any, **named: Any) -> Any:
        given = (take_and_note, tmp_path) if function is cluster.task.take_rows else (function,)
        return submit(*given, *arguments, **named)

    monkeypatch.setattr(client, "submit", submit_and_note)
    rows = engine.take(Take(wanted))
    engine.close()
    check_rows(rows, PROBLEMS[name], wanted)
    assert len(list(tmp_path.iterdir())) == takes.PARTS_A_THREAD * 2, "two workers of one thread"
    assert engine.costs.read_bytes == source.take_bytes(wanted)


@pytest.mark.parametrize("n_lost", [0, 1, watch.MOST_TRIES])
def test_a_task_that_is_lost_is_submitted_anew(client: Client, n_lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it may be; no task that is lost in another way, and no result twice."""
    waits, submitted = ClusterWatch(client, "reading single rows"), list[int]()

    def submit(k: int) -> Any:
        submitted.append(k)
        is_lost = k == 1 and submitted.count(1) <= n_lost
        return client.submit(lose if is_lost else str, k, pure=False)

    monkeypatch.setattr(waits, "was_lost", lambda future: future.status == "error")
    results = waits.results([lambda k=k: submit(k) for k in range(3)])
    if n_lost < watch.MOST_TRIES:
        assert list(results) == ["0", "1", "2"]
    else:
        with pytest.raises(ConnectionError):
            list(results)
    assert submitted == [0, 1, 2, *[1] * min(n_lost, watch.MOST_TRIES - 1)]


class LostError(RuntimeError):
    """Stands in for Dask's error for a task that was lost with all its workers."""

    allowed_failures = 3


def lose(k: int) -> str:
    raise LostError(k)
