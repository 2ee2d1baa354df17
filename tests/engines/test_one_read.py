"""Requests of several solvers in one read: the answers are those of each alone, and each chunk is read once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamsvm.data.rows.source import RowSource
from streamsvm.engines import merge
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.engines.merge import answer, answer_all
from streamsvm.numeric.rows import Rows, compute_scores
from streamsvm.passes import All, Scan, Take, Walk
from tests.engines.scans import Trace, report_rows, trace_scan


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
        Walk(report_rows, [["a"], ["b"]], [order, [[5]]]),
        trace_scan((np.zeros(3), np.arange(4)), (2.0 * by_row,)),
        Walk(partial(report_rows), [["c"], ["d"]], [order, [[5]]]),
        Walk(report_rows, [["e"]], [[[1], [3]]]),
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
    """In blocks, whose passes have any number of weight vectors."""
    monkeypatch.setattr(merge, "BLOCK_SCORES", 5)
    d, random = engine.source.n_features, np.random.default_rng(0)
    widths = {"a": 2, "b": 2, "none": 2, "c": 2, "d": 4, "e": 2}
    weights = {name: random.normal(size=(k, d + 1)) for name, k in widths.items()}
    weights["b"][1] = weights["a"][0]  # equal vectors are one
    scans = [
        Scan(list, note_scores, list.__add__, (W, name), (), None if name == "none" else W)
        for name, W in weights.items()
    ]
    for name, seen in zip(widths, answer_all(engine, scans), strict=True):
        assert set(seen) == (set() if name == "none" else {(name, False)})
    assert set(answer(engine, scans[0])) == {("a", True)}, "alone, a solver makes its product itself"


def sum_labels(totals: list[float], rows: Rows, factor: float, share: Any) -> None:
    """Add up whole numbers, which no order of the sum changes."""
    assert rows.y is not None
    totals[0] += factor * float(rows.y @ share)
    totals[1] = max(totals[1], rows.n_rows)


def add_lists(left: list[float], right: list[float]) -> list[float]:
    return [left[0] + right[0], max(left[1], right[1])]


def test_a_walk_carries_passes_along(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk is read once; the passes see the rows in tiles, with their entries of arrays by row."""
    monkeypatch.setattr(merge, "TILE_ROWS", 7)
    source, chunks = engine.source, np.arange(engine.source.n_chunks)
    order = [group.tolist() for group in np.array_split(chunks, 3)]
    walk, take = Walk(report_rows, [["a"]], [[order[2], order[0], order[1]]]), Take(np.array([7, 5]))
    scans = [
        Scan(partial(list, [0.0, 0]), sum_labels, add_lists, (k,), (np.arange(source.n_rows),)) for k in (1.0, 3.0)
    ]
    alone = [answer(engine, one) for one in (scans[0], walk, scans[1])]
    before = engine.costs.read_bytes
    first, (taken, carried), (second,) = answer(
        engine, All([scans[0], All([take, walk]), All([scans[1]])], in_walk=True)
    )
    assert engine.costs.read_bytes - before == source.nbytes + source.take_bytes(take.rows)
    assert carried == alone[1]
    assert describe(taken) == describe(answer(engine, take))
    assert (first[0], second[0]) == (alone[0][0], alone[2][0])
    assert first[1] == second[1] == 7


def test_passes_beside_a_walk_that_does_not_carry_them_have_the_order_of_passes(engine: Engine) -> None:
    requests = make_requests(engine.source)
    walk, scan = requests[-1], requests[2]
    found = answer(engine, All([walk, scan]))
    assert describe(found[1]) == describe(answer(engine, scan))
