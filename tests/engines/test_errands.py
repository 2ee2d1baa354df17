"""Errands: calls of a function on workers, some of which are lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, Event

from streamsvm.engines.errands import carry_out, step_aside
from streamsvm.engines.patience import MOST_TRIES
from streamsvm.engines.workers import start_workers
from tests.conftest import WORKER_BYTES

pytestmark = pytest.mark.once
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
    return list(carry_out(client, "doubling", double_or_die, [(folder, number) for number in range(6)]))


def test_a_call_that_was_lost_too_often_is_made_again(two_workers: Client, tmp_path: Path) -> None:
    """Also one that only waited with the worker; the results are in order."""
    assert double_all(two_workers, tmp_path, {4: MOST_TRIES - 1}) == [0, 2, 4, 6, 8, 10]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_call_that_kills_every_worker_ends_the_work(two_workers: Client, tmp_path: Path) -> None:
    """As one does that needs more memory than the workers have."""
    with pytest.raises(ConnectionError, match="doubling: a task was lost with 1 worker, one after another"):
        double_all(two_workers, tmp_path, {2: 9})
    assert len(list(tmp_path.iterdir())) == 9 - MOST_TRIES
    assert list(carry_out(two_workers, "doubling", double_or_die, [(tmp_path, 7)])) == [14]


def await_all(folder: Path, number: int, count: int) -> int:
    """Step aside, and return a number once so many calls have begun."""
    (folder / str(number)).touch()
    step_aside()
    all_began = Event("all calls have begun")
    if len(list(folder.iterdir())) == count:
        all_began.set()
    assert all_began.wait(SECONDS), "the other calls do not begin"
    return number


def test_a_call_that_steps_aside_lets_others_begin(client: Client, tmp_path: Path) -> None:
    """Two workers of one thread each have six calls under way."""
    assert list(carry_out(client, "waiting", await_all, [(tmp_path, k, 6) for k in range(6)])) == list(range(6))
