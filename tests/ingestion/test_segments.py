"""Segments are put while rows are read, one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from streamsvm.ingestion import segments
from streamsvm.ingestion.segments import SegmentWriter

SECONDS = 60.0  # that a segment waits for what never comes if a test fails
ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


class Scratch:
    """Keeps what is put, once it is let go."""

    def __init__(self) -> None:
        self.let_go, self.begun, self.kept = Event(), Event(), dict[str, bytes]()

    def put(self, name: str, parts: Iterable[Any], n_bytes: int) -> None:
        self.begun.set()
        assert self.let_go.wait(SECONDS), "nothing goes on while a segment is put"
        self.kept[name] = b"".join(bytes(part) for part in parts)
        assert len(self.kept[name]) == n_bytes


def add(writer: SegmentWriter) -> None:
    writer.add(ROWS, {"label": np.zeros(3)}, np.array([1, 0, 1]))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rows that are added are a segment."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)


@pytest.mark.parametrize("way", ["refused", "cancelled"])
def test_a_segment_that_is_never_put_holds_up_no_other(way: str, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool refuses it, as it does when the interpreter ends, or gives it up before it begins."""
    scratch, future = Scratch(), Future[None]()
    writer: Any = SegmentWriter(scratch, "0-0", 2)  # type: ignore[arg-type]

    class Pool:
        def submit(self, *_: object) -> Future[None]:
            if way == "refused":
                raise RuntimeError("cannot schedule new futures after shutdown")
            return future

    with monkeypatch.context() as patch:
        patch.setattr(segments, "PUTTING", Pool())
        if way == "refused":
            with pytest.raises(RuntimeError, match="after shutdown"):
                add(writer)
        else:
            add(writer)
            future.cancel()
    assert segments.MAY_PUT.acquire(blocking=False)
    segments.MAY_PUT.release()


def test_rows_are_added_while_a_segment_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch()
    writer: Any = SegmentWriter(scratch, "0-0", 2)  # type: ignore[arg-type]
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2 * ROWS.nbytes)
    for _ in range(3):
        add(writer)
    assert scratch.begun.wait(SECONDS)
    assert not scratch.kept
    scratch.let_go.set()
    writer.flush()
    writer.wait()
    assert list(scratch.kept) == [segment.name for segment in writer.segments] == ["0-0-0", "0-0-1"]


def test_a_writer_waits_until_the_segment_of_another_is_put(small: None) -> None:
    """So the rows of two segments are in memory at most: those that are put, and those that wait."""
    first, second = Scratch(), Scratch()
    writers: list[Any] = [SegmentWriter(scratch, "0-0", 2) for scratch in (first, second)]  # type: ignore[arg-type]
    second.let_go.set()
    add(writers[0])
    thread = Thread(target=add, args=(writers[1],))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert not second.begun.is_set()
    first.let_go.set()
    thread.join()
    for writer in writers:
        writer.wait()
    assert first.kept == second.kept


def test_an_error_is_raised_by_who_waits_and_others_go_on(small: None) -> None:
    broken, whole = Scratch(), Scratch()
    broken.kept = whole.kept = None  # type: ignore[assignment]
    whole.kept = {}
    for each in (broken, whole):
        each.let_go.set()
    writer, other = (SegmentWriter(scratch, "0-0", 2) for scratch in (broken, whole))  # type: ignore[arg-type]
    add(writer)
    with pytest.raises(TypeError):
        writer.wait()
    add(other)
    other.wait()
    assert list(whole.kept) == ["0-0-0"]
