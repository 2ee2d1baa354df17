"""Several runs driven side by side: each round, one read of the data answers the requests of all of them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from streamsvm.engines.one_read import answer_all
from streamsvm.engines.protocol import Engine
from streamsvm.requests import Question, only_takes

Requests = Generator[Question, Any, None]


def drive(engine: Engine, runs: Sequence[Requests]) -> None:
    """Drive several runs to their ends. In each round one read of the data answers the requests of all of them.

    Rows by their numbers are taken first, while passes wait, so that the passes of all runs come together.
    """
    waiting = {k: request for k, run in enumerate(runs) if (request := next(run, None)) is not None}
    while waiting:
        takes = [k for k, request in waiting.items() if only_takes(request)]
        asked = {k: waiting[k] for k in takes or list(waiting)}
        answers = answer_all(engine, list(asked.values()))
        for k, one in zip(asked, answers, strict=True):
            request = _send(runs[k], one)
            waiting.pop(k) if request is None else waiting.update({k: request})


def _send(run: Requests, found: Any) -> Question | None:
    """Send a run its answer, and return its next request, or None if the run has ended."""
    try:
        return run.send(found)
    except StopIteration:
        return None
