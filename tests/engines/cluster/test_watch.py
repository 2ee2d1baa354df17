"""Waiting for tasks of a cluster: those that take longer than a look, that fail, and that end as they are looked at."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Scheduler
from distributed.comm import CommClosedError

from streamsvm.cli.progress import log_to_stderr
from streamsvm.engines.cluster import watch, workers
from streamsvm.engines.cluster.task import load_nothing
from streamsvm.engines.cluster.watch import IS_REACHED, ClusterWatch
from streamsvm.engines.cluster.workers import prepare_workers


def fail() -> None:
    raise TimeoutError("of the task")


def answer(seconds: float) -> bytes:
    time.sleep(seconds)
    return b"x" * 1_000_000


@pytest.fixture(autouse=True)
def looks_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.05)


def test_tasks_that_take_longer_than_a_look(client: Client) -> None:
    """Whether a task ends before, at, or after a look, its result comes."""
    waits = ClusterWatch(client, "a test")
    for k in range(12):
        assert len(waits.result(client.submit(answer, 0.01 * k, pure=False))) == 1_000_000
    assert len(waits.describe_workers()) == 2


def test_the_error_of_a_task_is_its_own(client: Client) -> None:
    """Also if it is one that a look may raise."""
    with pytest.raises(TimeoutError, match="of the task"):
        ClusterWatch(client, "a test").result(client.submit(fail, pure=False))


def test_a_cluster_without_workers_is_waited_for_unless_it_is_our_own(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others may come, to a cluster that grows on demand; nobody replaces our own when Dask has not."""
    monkeypatch.setattr(watch, "GIVEN_UP_SECONDS", 0.0)
    waits = ClusterWatch(client, "read 3 of the data")
    monkeypatch.setattr(waits, "ask", lambda *_, **__: {"workers": {}})
    with log_to_stderr(), pytest.raises(ConnectionError, match=r"all workers are lost; .*--resume"):
        waits.look()
    waits.client = SimpleNamespace(cluster=None, scheduler=client.scheduler)  # type: ignore[assignment]
    assert waits.look() == {}
    address = client.scheduler.address
    assert capsys.readouterr().err == f"read 3 of the data waits for workers: scheduler {address} has none\n"


def test_a_scheduler_that_is_lost_while_it_sends_a_result_is_named(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the task itself raises such an error, the error is that of the task."""
    waits = ClusterWatch(client, "a test")
    future = client.submit(answer, 0.0, pure=False)
    waits.wait([future], 20.0)
    address = client.scheduler.address
    with monkeypatch.context() as patch:
        patch.setattr(client, "gather", lambda *_, **__: cut_off())
        with pytest.raises(ConnectionError, match=rf"scheduler {address}: the connection is lost; .*--resume"):
            waits.result(future)
    with pytest.raises(CommClosedError):
        waits.result(client.submit(cut_off, pure=False))


def test_a_scheduler_that_the_client_has_given_up_is_named(client: Client) -> None:
    """The client does so while the solver computes for long, and has no scheduler from then on."""
    address = client.scheduler.address
    given_up: Any = SimpleNamespace(scheduler=None, cluster=None)
    with pytest.raises(ConnectionError, match=rf"scheduler {address}: the connection is lost; .*--resume"):
        ClusterWatch(given_up, "a test", None, address).describe_workers()
    waits = ClusterWatch(client, "a test")
    waits.client = given_up
    with pytest.raises(ConnectionError, match="the connection is lost"):
        waits.ask(raise_attribute_error)
    with pytest.raises(AttributeError):
        ClusterWatch(client, "a test").ask(raise_attribute_error, seconds=60.0)


async def raise_attribute_error() -> None:
    raise AttributeError


def cut_off(timeout: float | None = None) -> None:
    raise CommClosedError("Stream is closed")


def test_a_worker_that_is_gone_is_named_once(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"tcp://10.0.0.1:1", *client.scheduler_info()["workers"]}
    with log_to_stderr():
        for k in range(2):
            assert len(ClusterWatch(client, f"read {k} of the data", known).describe_workers()) == 2
    told = "worker tcp://10.0.0.1:1 is lost; its groups of chunks move to other workers\n"
    assert capsys.readouterr().err == told
    assert len(known) == 2


def test_results_come_from_the_workers_if_these_can_be_reached(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the scheduler they come otherwise, with the same bytes."""
    prepare_workers(client, load_nothing)
    assert IS_REACHED[client]
    waits, asked, scheduler_gathers = ClusterWatch(client, "a test"), list[str](), Scheduler.gather
    handlers = client.cluster.scheduler.handlers

    async def count(*arguments: Any, **named: Any) -> Any:
        asked.append("gather")
        return await scheduler_gathers(client.cluster.scheduler, *arguments, **named)

    monkeypatch.setitem(handlers, "gather", count)
    directly = waits.result(client.submit(answer, 0.0, pure=False))
    assert not asked
    monkeypatch.setattr(workers, "REACH_SECONDS", 0.2)
    unreachable = {"tls://127.0.0.1:9": {"host": "127.0.0.1"}}
    monkeypatch.setattr(ClusterWatch, "describe_workers", lambda _: unreachable)
    monkeypatch.setitem(IS_REACHED, client, workers._can_reach(waits))
    assert waits.result(client.submit(answer, 0.0, pure=False)) == directly
    assert asked == ["gather"]


def test_a_worker_that_cannot_be_reached_is_waited_for_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have joined after the preparation, from a host that this process cannot reach."""
    waits, asked, gather = ClusterWatch(client, "a test"), list[bool](), client.gather
    future = client.submit(answer, 0.0, pure=False)
    waits.wait([future], 20.0)

    async def reach_the_scheduler_only(futures: Any, errors: str, direct: bool) -> Any:
        asked.append(direct)
        return await (asyncio.sleep(60.0) if direct else gather(futures, errors, direct=False))

    monkeypatch.setattr(client, "gather", reach_the_scheduler_only)
    monkeypatch.setattr(watch, "DIRECT_SECONDS", 0.1)
    monkeypatch.setitem(IS_REACHED, client, True)
    assert waits.result(future) == waits.result(future) == answer(0.0)
    assert asked == [True, False, False]


@pytest.mark.parametrize(("is_reached", "seconds"), [(True, 2), (False, 1)])
def test_a_result_that_nobody_sends_ends_the_run_with_the_time_waited(
    client: Client, monkeypatch: pytest.MonkeyPatch, is_reached: bool, seconds: int
) -> None:
    waits, future = ClusterWatch(client, "a test"), client.submit(answer, 0.0, pure=False)
    waits.wait([future], 20.0)
    for name in ("DIRECT_SECONDS", "LOST_SECONDS"):
        monkeypatch.setattr(watch, name, 1.0)
    monkeypatch.setitem(IS_REACHED, client, is_reached)
    monkeypatch.setattr(client, "gather", lambda *_, **__: asyncio.sleep(60.0))
    with pytest.raises(ConnectionError, match=f"no answer for {seconds} s"):
        waits.result(future)


def test_connections_to_workers_are_closed_if_one_fails(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[str]()

    async def connect(address: str, *_: object, **__: object) -> Any:
        if address == "tls://gone":
            await asyncio.sleep(0.1)
            raise OSError
        return SimpleNamespace(abort=lambda: closed.append(address))

    monkeypatch.setattr(workers, "open_comm", connect)
    about = {address: {"host": address} for address in ("tls://gone", "tls://here")}
    monkeypatch.setattr(ClusterWatch, "describe_workers", lambda _: about)
    assert not workers._can_reach(ClusterWatch(client, "a test"))
    assert closed == ["tls://here"]
