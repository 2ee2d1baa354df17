"""Calls of a function on workers, some of which are lost or no longer needed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, Event

from streamsvm.data.sources.dask_collections import thread_given_up
from streamsvm.engines.cluster.engine import map_on_workers
from streamsvm.engines.cluster.watch import MOST_TRIES
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.system import deadline
from tests.conftest import WORKER_BYTES

pytestmark = pytest.mark.slow("starts workers and kills them")

SECONDS = 60.0  # that a call waits for what never comes if the test fails


@pytest.fixture
def two_workers(workers_import_tests: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Two workers that may be killed. Dask gives a call up whose fourth worker is lost; here the first."""
    with start_workers(2, 1, WORKER_BYTES) as client:
        monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
        yield client


def double_or_die(folder: Path, number: int) -> int:
    """Return twice a number; but as long as there are files of its name, remove one and kill this process."""
    for file in folder.glob(f"{number}-*"):
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def double_all(client: Client, folder: Path, deaths: dict[int, int]) -> list[int]:
    """Double numbers on workers; the calls of some numbers kill so many workers."""
    for number, count in deaths.items():
        for k in range(count):
            (folder / f"{number}-{k}").touch()
    return list(map_on_workers(client, "doubling", double_or_die, [(folder, number) for number in range(6)]))


def test_a_call_that_was_lost_too_often_is_made_again(two_workers: Client, tmp_path: Path) -> None:
    """Also one that only waited with the worker; the results are in order."""
    assert double_all(two_workers, tmp_path, {4: MOST_TRIES - 1}) == [0, 2, 4, 6, 8, 10]
    assert not list(tmp_path.iterdir())


def test_a_call_that_kills_every_worker_ends_the_work(two_workers: Client, tmp_path: Path) -> None:
    """As one does that needs more memory than the workers have."""
    with pytest.raises(ConnectionError, match="doubling: a task was lost with 1 worker, one after another"):
        double_all(two_workers, tmp_path, {2: 9})
    assert len(list(tmp_path.iterdir())) == 9 - MOST_TRIES
    assert list(map_on_workers(two_workers, "doubling", double_or_die, [(tmp_path, 7)])) == [14]


def await_all(folder: Path, number: int, count: int) -> int:
    """Give the thread up, and return a number once so many calls have begun."""
    (folder / str(number)).touch()
    all_began = Event("all calls have begun")
    if len(list(folder.iterdir())) == count:
        all_began.set()
    with thread_given_up():
        assert all_began.wait(SECONDS), "the other calls do not begin"
    return number


def test_a_call_that_gives_its_thread_up_lets_others_begin(client: Client, tmp_path: Path) -> None:
    """Two workers of one thread each have six calls under way."""
    assert list(map_on_workers(client, "waiting", await_all, [(tmp_path, k, 6) for k in range(6)])) == list(range(6))


def wait_until_unwanted(number: int) -> int:
    """Return 0 at once; wait as a read from a silent object store does with any other number."""
    if number:
        Event("the call waits").set()
        while not deadline.is_over():
            Event("never").wait(0.05)
        Event("the wait has ended").set()
    return number


def test_a_call_whose_result_nobody_awaits_ends_its_wait(client: Client) -> None:
    """After Ctrl-C the worker's thread is free for the work that comes next."""
    calls = map_on_workers(client, "waiting", wait_until_unwanted, [(0,), (1,)])
    assert next(calls) == 0
    assert Event("the call waits", client=client).wait(SECONDS)
    calls.close()
    assert Event("the wait has ended", client=client).wait(SECONDS)
