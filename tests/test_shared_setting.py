"""A setting of the process that several threads hold: who makes it, and who restores what was before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, Thread
from typing import Any

import dask.config
import pytest

from streamsvm.engines.cluster.engine import models_may_travel
from streamsvm.engines.cluster.workers import _set_configuration
from streamsvm.system.shared import SharedSetting


class Dial:
    """A setting that is made and restored as BLAS' number of threads is: to what it was before."""

    def __init__(self) -> None:
        self.value, self.turns = 8, 0

    @contextmanager
    def turn_down(self) -> Iterator[None]:
        before, self.value, self.turns = self.value, 1, self.turns + 1
        try:
            yield
        finally:
            self.value = before


def run_in_thread(work: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(60)


def test_the_first_makes_it_and_the_last_restores() -> None:
    """Whichever thread that is, and whether it is an error that ends a block."""
    dial = Dial()
    setting = SharedSetting(dial.turn_down)
    first, second = setting.held(), setting.held()
    first.__enter__()
    run_in_thread(second.__enter__)
    error = ZeroDivisionError()
    assert not first.__exit__(type(error), error, None)
    assert dial.value == 1
    with setting.held(), setting.held():
        pass
    assert dial.value == 1
    second.__exit__(None, None, None)
    assert (dial.value, dial.turns) == (8, 1)


def test_one_that_cannot_be_made_is_made_by_the_next() -> None:
    dial, errors = Dial(), [OSError("no such dial")]

    @contextmanager
    def make() -> Iterator[None]:
        for error in errors:
            raise error
        with dial.turn_down():
            yield

    setting = SharedSetting(make)
    with pytest.raises(OSError, match="no such dial"), setting.held():
        pass
    errors.clear()
    with setting.held():
        assert dial.value == 1
    assert dial.value == 8


def test_ctrl_c_while_it_is_released_leaves_nothing_behind() -> None:
    dial = Dial()
    setting = SharedSetting(dial.turn_down)
    release, interrupted = setting._release, list[object]()

    def interrupt(holder: object) -> None:
        if not interrupted:
            interrupted.append(holder)
            raise KeyboardInterrupt
        release(holder)

    setting._release = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), setting.held():
        assert dial.value == 1
    assert dial.value == 8


def test_ctrl_c_in_the_middle_of_restoring_leaves_nothing_behind() -> None:
    dial, exits = Dial(), list[int]()

    class Turned(AbstractContextManager[Any]):
        def __init__(self) -> None:
            dial.value = 1

        def __exit__(self, *_: object) -> None:
            exits.append(dial.value)
            if len(exits) == 1:
                raise KeyboardInterrupt
            dial.value = 8

    setting = SharedSetting(Turned)
    with pytest.raises(KeyboardInterrupt), setting.held():
        assert dial.value == 1
    assert (dial.value, exits) == (8, [1, 1])
    with setting.held():
        assert dial.value == 1


def test_a_generator_that_is_collected_releases_it() -> None:
    """Also in another thread than began to hold it, and while that thread is just making the setting."""
    dial, suspended = Dial(), list[Iterator[None]]()

    @contextmanager
    def collect_and_turn() -> Iterator[None]:
        suspended.clear()
        with dial.turn_down():
            yield

    setting = SharedSetting(collect_and_turn)

    def hold() -> Iterator[None]:
        with setting.held():
            yield

    generator: Any = hold()
    run_in_thread(generator.__next__)
    assert dial.value == 1
    del generator
    assert dial.value == 8
    suspended.append(release_at_end(setting))
    next(suspended[0])
    with setting.held():
        assert dial.value == 1
    assert dial.value == 8


def release_at_end(setting: SharedSetting) -> Iterator[None]:
    """As a generator that holds the setting does when the collector closes it."""
    try:
        yield
    finally:
        setting._release(None)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("here", [True, False])
def test_a_forked_process_has_what_its_own_thread_holds(here: bool) -> None:
    """A lock that another thread has at the time does not lock the forked process."""
    dial, began, ended = Dial(), Event(), Event()
    setting = SharedSetting(dial.turn_down)
    own = setting.held() if here else nullcontext()

    def hold() -> None:
        with setting.held(), setting._lock:
            began.set()
            ended.wait(60)

    thread = Thread(target=hold)
    with own:
        thread.start()
        assert began.wait(60)
        child = os.fork()
        if not child:
            values = [dial.value]
            own.__exit__(None, None, None)
            values.append(dial.value)
            os._exit(0 if values == [1 if here else 8, 8] else 1)
        _, status = os.waitpid(child, 0)
        ended.set()
        thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert dial.value == 8


@pytest.mark.parametrize(
    ("held", "key"),
    [
        (models_may_travel, "distributed.admin.large-graph-warning-threshold"),
        (SharedSetting(_set_configuration).held, "distributed.worker.memory.spill"),
    ],
)
def test_the_configuration_of_dask_is_restored(held: Callable[[], SharedSetting], key: str) -> None:
    """Of clusters that two threads start, the first that is closed leaves nothing of its settings behind."""
    with dask.config.set({key: "before"}):  # tests that ran before may have a cluster of ours
        before = dask.config.get(key)
        first, second = held(), held()
        first.__enter__()  # type: ignore[attr-defined]
        changed = dask.config.get(key)
        second.__enter__()  # type: ignore[attr-defined]
        first.__exit__(None, None, None)  # type: ignore[attr-defined]
        assert dask.config.get(key) == changed != before
        second.__exit__(None, None, None)  # type: ignore[attr-defined]
        assert dask.config.get(key) == before
