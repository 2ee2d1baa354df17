"""Requests of several solvers in one read: the answers are those of each alone, and each chunk is read once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamsvm.data.source import RowSource
from streamsvm.engines import one_read
from streamsvm.engines.dask import ThreadedEngine
from streamsvm.engines.one_read import answer, answer_all
from streamsvm.engines.protocol import Engine
from streamsvm.engines.serial import SerialEngine
from streamsvm.numeric.rows import Rows, compute_scores
from streamsvm.requests import All, Scan, Take, Walk
from tests.engines.scans import Trace, note_rows, trace_scan


@pytest.fixture(params=["serial", "threads"])
def engine(request: pytest.FixtureRequest, sources: dict[str, RowSource]) -> Iterator[Engine]:
    source = sources["dense"]
    made = SerialEngine(source) if request.param == "serial" else ThreadedEngine(source, 2)
    yield made
    made.close()


def make_requests(source: RowSource) -> list[Scan | Take | Walk]:
    by_row = np.arange(source.n_rows)
    order = [[3, 1], [0], [2]]
    return [
        trace_scan((np.ones(2),), (by_row, -by_row)),
        Take(np.array([7, 5, 900])),
        trace_scan(),
        Walk(note_rows, [["a"], ["b"]], [order, [[5]]]),
        trace_scan((np.zeros(3), np.arange(4)), (2.0 * by_row,)),
        Walk(partial(note_rows), [["c"], ["d"]], [order, [[5]]]),
        Walk(note_rows, [["e"]], [[[1], [3]]]),
    ]


def describe(found: Any) -> Any:
    if isinstance(found, Trace):
        return found.tree
    return found.X.tobytes() if isinstance(found, Rows) else found


def test_answers_are_those_of_each_request_alone(engine: Engine) -> None:
    requests = make_requests(engine.source)
    alone = [describe(answer(engine, request)) for request in requests]
    assert [describe(found) for found in answer_all(engine, requests)] == alone


def test_an_answer_to_several_has_their_shape(engine: Engine) -> None:
    """Several requests may hold several others; all passes are one."""
    one, two, three, *_ = make_requests(engine.source)
    alone = [describe(answer(engine, request)) for request in (one, two, three)]
    before = engine.costs.read_bytes
    first, (second, (third,)) = answer(engine, All([one, All([two, All([three])])]))
    assert [describe(found) for found in (first, second, third)] == alone
    assert isinstance(two, Take)
    assert engine.costs.read_bytes - before == engine.source.nbytes + engine.source.take_bytes(two.rows)
    assert answer(engine, All([])) == []


def test_passes_of_one_kind_read_once(engine: Engine) -> None:
    requests = make_requests(engine.source)
    scans = [request for request in requests if isinstance(request, Scan)]
    answer_all(engine, scans)
    assert engine.costs.read_bytes == engine.source.nbytes
    before = engine.costs.read_bytes
    walks = [request for request in requests if isinstance(request, Walk)][:2]
    answer_all(engine, walks)
    together = engine.costs.read_bytes - before
    answer(engine, walks[0])
    assert together == engine.costs.read_bytes - before - together


def note_scores(seen: list[Any], rows: Rows, weights: Any, name: str) -> None:
    """A pass that asks for scores gets its own, whoever else asks; one that does not gets none."""
    if name == "none":
        assert rows.scores is None
        return
    expected = compute_scores(rows.X, weights)
    given = expected if rows.scores is None else rows.scores
    np.testing.assert_array_equal(given, expected)
    seen.append((name, rows.scores is None))


def test_scores_of_several_passes_are_one_product(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of passes; of a width of their own where they have another number of weight vectors."""
    monkeypatch.setattr(one_read, "BLOCK_PASSES", 2)
    d, random = engine.source.n_features, np.random.default_rng(0)
    widths = {"a": 2, "b": 2, "none": 2, "c": 2, "d": 4, "e": 2}
    scans = [
        Scan(list, note_scores, list.__add__, (random.normal(size=(k, d + 1)), name), (), None if name == "none" else 0)
        for name, k in widths.items()
    ]
    for name, seen in zip(widths, answer_all(engine, scans), strict=True):
        assert set(seen) == (set() if name == "none" else {(name, False)})
    assert set(answer(engine, scans[0])) == {("a", True)}, "alone, a solver makes its product itself"
