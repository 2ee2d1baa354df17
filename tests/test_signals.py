"""The flag that Ctrl-C sets: who looks at it, when it is raised at once, and whose handlers stay as they are."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm.estimators import LinearSVC
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.system import interrupts
from tests.conftest import make_problem


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_is_raised_where_it_is_looked_for() -> None:
    reached: list[str] = []

    def work() -> None:
        with interrupts.caught():
            interrupts.check()
            press_ctrl_c()
            reached.append("computing")
            interrupts.check()
            reached.append("too far")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["computing"]


def test_a_signal_ends_a_wait_at_once() -> None:
    def work() -> None:
        with interrupts.caught(), interrupts.waiting():
            press_ctrl_c()
            pytest.fail("the wait went on")

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_signal_before_a_wait_is_not_slept_through() -> None:
    def work() -> None:
        with interrupts.caught():
            press_ctrl_c()
            with interrupts.waiting():
                pytest.fail("the wait began")

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_signal_after_the_last_look_is_not_lost() -> None:
    reached: list[str] = []

    def work() -> None:
        with interrupts.caught():
            press_ctrl_c()
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["the end"]
    interrupts.check()  # and it is not raised twice


def test_more_signals_change_nothing_once_the_first_is_accepted() -> None:
    with interrupts.caught():
        press_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.accept()
        press_ctrl_c()
        interrupts.check()
        with interrupts.waiting():
            press_ctrl_c()


def test_handlers_of_others_stay() -> None:
    heard: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, handler)
    with interrupts.caught():
        press_ctrl_c()
        interrupts.check()
    assert signal.getsignal(signal.SIGINT) is handler
    assert heard == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_are_left_alone() -> None:
    """A thread neither changes handlers nor ends because the main thread was interrupted."""
    seen: list[object] = []

    def work() -> None:
        with interrupts.caught(), interrupts.waiting():
            seen.append(signal.getsignal(signal.SIGINT))
        interrupts.check()
        seen.append("done")

    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    def run_while_interrupted() -> None:
        with interrupts.caught():
            seen.append(signal.getsignal(signal.SIGINT))
            press_ctrl_c()
            run()
            interrupts.check()

    run()
    with pytest.raises(KeyboardInterrupt):
        run_while_interrupted()
    theirs, done, ours, *rest = seen
    assert (theirs, done, rest) == (signal.default_int_handler, "done", [ours, "done"])


@pytest.mark.parametrize("solver", ["cutting-plane", "smo", "budgeted-sgd", "interior-point"])
def test_training_in_a_script_ends_after_the_step(solver: str) -> None:
    """The signal comes while the solver computes; nothing is raised there, and the next step is not begun."""
    rows, steps = make_problem(0).in_memory(), list[int]()

    def listen(event: Event) -> None:
        press_ctrl_c()
        steps.append(event.line["step"])

    with pytest.raises(KeyboardInterrupt):
        train(
            rows,
            TrainOptions(solver=solver, kernel="rbf" if solver in ("smo", "budgeted-sgd") else "linear"),
            listener=listen,
        )
    assert steps == [1]


def test_arrays_are_given_up_between_two_pieces(tmp_path: Path) -> None:
    told: list[int] = []

    def report(n_rows: int) -> None:
        press_ctrl_c()
        told.append(n_rows)

    with pytest.raises(KeyboardInterrupt):
        streamsvm.ingest(np.eye(2), tmp_path / "rows.zarr", np.arange(2), report=report)
    assert told == [2]
    assert list(tmp_path.iterdir()) == []


def test_scoring_in_a_script_ends_after_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_problem(0)
    model, scored = LinearSVC().fit(rows.X, rows.y), list[int]()
    make_scorer = type(model.model_).scorer

    def score_and_press(*arguments: Any) -> Any:
        scorer = make_scorer(*arguments)

        def score(X: Any) -> Any:
            press_ctrl_c()
            scored.append(X.shape[0])
            return scorer(X)

        return score

    monkeypatch.setattr(type(model.model_), "scorer", score_and_press)
    with pytest.raises(KeyboardInterrupt):
        model.decision_function(rows.X)
    assert scored == [300]


def test_a_clean_up_that_an_interrupt_breaks_is_the_interrupt() -> None:
    """Where a lock is just being acquired, the clean-up of a wait fails: RuntimeError, release unlocked lock."""
    lock = threading.Lock()

    def wait(interrupted: bool) -> None:
        with interrupts.caught(), interrupts.waiting():
            try:
                if interrupted:
                    signal.raise_signal(signal.SIGINT)
            finally:
                lock.release()

    with pytest.raises(KeyboardInterrupt):
        wait(interrupted=True)
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        wait(interrupted=False)
