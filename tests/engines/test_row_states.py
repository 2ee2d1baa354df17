"""The numbers that rows keep: what is let go of, what is made anew, and rows that are altered on their way."""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from streamsvm.data.rows import source as sources
from streamsvm.data.rows.views import HeldOut
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.engines.row_states import TileStates
from streamsvm.numeric.rows import F64, Rows
from streamsvm.passes import All, Change, Requests, RowState, Scan, Step
from streamsvm.solvers.many.transformed import transform_rows
from tests.conftest import make_problem
from tests.engines.contract import join_numbers, list_scan
from tests.engines.interleaving import ToldLock
from tests.engines.scans import add_features, begin_numbers, list_numbers, square_numbers

ROWS = [Rows(start, np.ones((10, 3), np.float32)) for start in (0, 10, 20)]
BYTES = 2 * 10 * 8  # of a tile's numbers


def make_state(name: str, *more: Change) -> RowState:
    return RowState(name, [Change(begin_numbers, (0.0,)), *more])


def catch_up(kept: TileStates, state: RowState) -> None:
    kept.begin([state])
    for rows in ROWS:
        kept.catch_up(state, *kept.find([state], rows.start), rows, ())


def test_what_was_used_last_is_kept() -> None:
    """Where all have no room, those in use now stay; what has none of it is not kept at all."""
    kept = TileStates(6 * BYTES)
    for name in ("first", "second", "first", "third"):
        catch_up(kept, make_state(name))
    assert {name: sorted(tiles) for name, tiles in kept.tiles.items()} == {"first": [0, 10, 20], "third": [0, 10, 20]}
    assert kept.held_bytes == 6 * BYTES
    few = TileStates(2 * BYTES)
    catch_up(few, make_state("first"))
    assert (sorted(few.tiles["first"]), few.held_bytes) == ([0, 10], 2 * BYTES)
    assert few.find_tiles([make_state("first")], 0, 20) is not None
    assert few.find_tiles([make_state("first")], 0, 30) is None


def test_rows_of_others_are_let_go_of() -> None:
    kept = TileStates()
    catch_up(kept, make_state("first"))
    kept.retain([range(10), range(20, 30)])
    assert (sorted(kept.tiles["first"]), kept.held_bytes) == ([0, 20], 2 * BYTES)


def test_features_are_needed_by_changes_of_them_only() -> None:
    """And by whoever is behind one of them, or ahead of what is asked for."""
    kept, of_numbers, of_rows = TileStates(), Change(square_numbers, (), False), Change(add_features, (np.ones(1),))
    catch_up(kept, make_state("first", of_numbers))
    assert kept.find_tiles([make_state("first", of_numbers, of_numbers)], 0, 30) is not None
    assert kept.find_tiles([make_state("first", of_numbers, of_rows)], 0, 30) is None
    assert kept.find_tiles([make_state("first")], 0, 30) is None
    found = kept.catch_up(make_state("first"), *kept.find([make_state("first")], 10), ROWS[1], ())
    np.testing.assert_array_equal(found[0], np.arange(10.0, 20.0))


class SlowDict(dict[str, Any]):
    """Runs a function while a thread has popped an entry that it is about to insert again."""

    meanwhile: Callable[[], None]

    def pop(self, *key: Any) -> Any:
        found = super().pop(*key)
        self.meanwhile()
        return found


@pytest.mark.parametrize("of_tiles", [True, False])
def test_a_thread_that_begins_hides_no_numbers_from_others(of_tiles: bool) -> None:
    """Each thread moves the state to the end, as the one that was used last, while the others read its numbers."""
    kept, state, lock = TileStates(), make_state("first"), ToldLock()
    catch_up(kept, state)
    read = (lambda: kept.find_tiles([state], 0, 30)) if of_tiles else (lambda: kept.find([state], 10))
    expected, readers = read(), []

    def meanwhile() -> None:
        readers.append(lock.begin(pool, read))

    kept.lock, kept.tiles = lock, SlowDict(kept.tiles)  # type: ignore[assignment]
    kept.tiles.meanwhile = meanwhile  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as pool:
        kept.begin([state])
        assert expected is not None
        assert readers[0].result(60) == expected


@pytest.mark.usefixtures("many_groups")
def test_numbers_let_go_of_while_they_are_used_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of another pass, which nobody waits for any more, takes the room of a state between two of its tiles."""
    source = make_problem(3, n=200, d=4).in_memory()
    engine, state, let_go = SerialEngine(source), make_state("first"), list[bool]()
    monkeypatch.setattr(sources, "TILE_BYTES", 1)
    engine.row_states = kept = TileStates(2 * 200 * 8)
    numbers = join_numbers(engine.scan(list_scan(state)))

    def take_room(before: F64, rows: Rows) -> F64:
        catch_up(kept, make_state("second"))
        let_go.append("first" not in kept.tiles)
        return before

    later = RowState("first", [*state.changes, Change(take_room, of_features=False)])
    found = join_numbers(engine.scan(list_scan(later, of_states=True)))
    assert let_go[0]
    np.testing.assert_array_equal(found, numbers)


def solve_with(state: RowState) -> Requests:
    """A solver that makes a pass over rows and one over their numbers."""
    more = RowState(state.name, [*state.changes, Change(square_numbers, of_features=False)])
    yield Step([(yield list_scan(state)), (yield list_scan(more, of_states=True))], None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("limit_bytes", [None, 0])
def test_problems_share_a_read_and_each_has_its_own_numbers(limit_bytes: int | None) -> None:
    """Of rows altered by arrays by row; also where nothing is kept, and everything made anew in every pass."""
    source = make_problem(3, n=200, d=4).in_memory()
    engine, random = SerialEngine(source), np.random.default_rng(0)
    engine.row_states = TileStates(limit_bytes)
    held_out = [random.random(200) < 0.5 for _ in range(2)]
    states = [RowState(f"{k}", [Change(weigh_numbers, (np.array([k + 1.0]),))]) for k in range(2)]
    pairs = list(zip(states, held_out, strict=True))
    solvers = [transform_rows(solve_with(one), HeldOut(source, flags).transform) for one, flags in pairs]
    asked = [next(solver) for solver in solvers]
    for _ in range(2):
        found = answer(engine, All(asked))  # type: ignore[arg-type]
        asked = [solver.send(one) for solver, one in zip(solvers, found, strict=True)]
    X = source.take(np.arange(200)).X.astype(float)
    for k, (step, flags) in enumerate(zip(asked, held_out, strict=True)):
        assert isinstance(step, Step)
        expected = (k + 1) * X.sum(axis=1) * flags
        np.testing.assert_allclose(join_numbers(step.state[0])[0], expected, rtol=1e-12)
        np.testing.assert_allclose(join_numbers(step.state[1])[0], expected**2, rtol=1e-12)


def weigh_numbers(_: None, rows: Rows, factor: F64) -> F64:
    """The sum of the features times the weight of the row, and 0."""
    assert rows.sample_weight is not None
    return np.stack((factor[0] * rows.X.sum(axis=1, dtype=float) * rows.sample_weight, np.zeros(rows.n_rows)))


def test_a_pass_may_have_several_states() -> None:
    source = make_problem(3, n=50, d=4).in_memory()
    states = tuple(RowState(name, [Change(begin_numbers, (first,))]) for name, first in (("a", 0.0), ("b", 7.0)))
    ((_, _, a, b),) = SerialEngine(source).scan(Scan(list, list_numbers, operator.add, states=states))
    np.testing.assert_array_equal(b[0], a[0] + 7)
