"""What every engine promises: tests for all of them, against the serial one and against plain NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import add
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.engines.merge import answer
from streamsvm.kernels.kernel import Kernel, add_kernel_sums, to_float64
from streamsvm.losses.hinge import add_to_totals
from streamsvm.numeric.rows import F64, CsrRows, to_dense
from streamsvm.passes import Change, RowState, Scan, Take, Walk
from streamsvm.solvers.cutting_plane.line_search import SegmentTotals, start_totals
from streamsvm.solvers.decomposition.state import add_sums, join_tiles, make_change
from streamsvm.system.errors import IntegrityError
from streamsvm.system.reading import shown
from tests.conftest import make_problem
from tests.engines.conftest import PROBLEMS
from tests.engines.scans import (
    Trace,
    add_features,
    add_unless_unlucky,
    add_writable_flags,
    begin_numbers,
    combine_traces,
    describe_chunks,
    describe_rows,
    join_lists,
    list_numbers,
    neighbours_combined,
    note_unless_unlucky,
    report_rows,
    square_numbers,
    start_flags,
    trace_scan,
)

Opener = Callable[..., Engine]


def solver_scan(source: RowSource) -> Scan:
    """The pass of cutting planes, at points of no significance."""
    ends = np.random.default_rng(0).normal(size=(2, source.n_features + 1)) / 4
    cut_steps = np.array([0.1, 0.3, 1.0])
    start = partial(start_totals, 3, source.n_features + 1)
    return Scan(start, add_to_totals, add, (ends, np.array([0.5, 2.0]), cut_steps, 1.0))


def assert_same_bits(left: SegmentTotals, right: SegmentTotals) -> None:
    for name in ("losses", "costs", "gradients"):
        assert getattr(left, name).tobytes() == getattr(right, name).tobytes(), name


def list_scan(state: RowState, of_states: bool = False) -> Scan:
    return Scan(list, list_numbers, operator.add, states=(state,), of_states=of_states)


def join_numbers(found: list[tuple[int, int, F64]]) -> F64:
    return np.concatenate([numbers for _, _, numbers in sorted(found, key=lambda part: part[0])], axis=1)


def trace_of(engine: Engine, scan: Scan) -> object:
    trace = engine.scan(scan)
    assert isinstance(trace, Trace)
    return trace.tree


class Contract:
    """Inherited by a class for each engine, which says how to open it and what it can read."""

    source_names: tuple[str, ...] = tuple(PROBLEMS)

    @pytest.fixture
    def make_engine(self) -> Opener:
        raise NotImplementedError

    @pytest.fixture
    def open_engine(self, make_engine: Opener) -> Iterator[Opener]:
        """Open an engine that is closed after the test."""
        opened: list[Engine] = []

        def open_it(source: RowSource, pin_bytes: int = 0) -> Engine:
            opened.append(make_engine(source, pin_bytes=pin_bytes))
            return opened[-1]

        yield open_it
        for engine in opened:
            engine.close()

    @pytest.fixture
    def source(self, source_name: str, sources: dict[str, RowSource]) -> RowSource:
        return sources[source_name]

    @pytest.fixture
    def settled_groups(self) -> None:
        """No group leaves the process that holds its chunks, however slow that is. There is only one here."""

    def pinned(self, engine: Engine) -> list[int]:
        """Chunks that are kept, by whatever process."""
        assert isinstance(engine, SerialEngine | ThreadedEngine)
        return sorted(index for pins in engine.caches.values() for index in pins.chunks)

    def test_totals_have_the_bits_of_the_serial_engine(self, open_engine: Opener, source: RowSource) -> None:
        """Streamed, while chunks are pinned, and from pinned chunks; all of them or a part."""
        scan = solver_scan(source)
        serial = SerialEngine(source)
        expected = serial.scan(scan)
        for pin_bytes in (0, source.nbytes // 2, 2 * source.nbytes):
            engine = open_engine(source, pin_bytes)
            for _ in range(3):
                assert_same_bits(engine.scan(scan), expected)
            engine.close()

    def test_totals_are_those_of_all_rows(self, open_engine: Opener, source: RowSource, source_name: str) -> None:
        """Loss, cost and gradient at w0 by plain NumPy: no row is left out or counted twice."""
        problem, scan = PROBLEMS[source_name], solver_scan(source)
        ends, costs = scan.shared[0], problem.costs(1.0, 0.5, 2.0)
        X = np.column_stack((problem.dense(), np.ones(len(problem.y))))
        active = problem.y * (X @ ends[0]) < 1
        totals = open_engine(source).scan(scan)
        np.testing.assert_allclose(totals.losses[0, 0], costs @ np.maximum(0, 1 - problem.y * (X @ ends[0])))
        np.testing.assert_allclose(totals.costs[0], costs @ active)
        np.testing.assert_allclose(totals.gradients[0], (costs * active * problem.y) @ X, atol=1e-9)

    def test_rows_order_and_tree_of_sums(self, open_engine: Opener, source: RowSource) -> None:
        """Each group adds its rows in order, and neighbours are combined level by level, whoever was first."""
        parts = [
            [(r.start, r.n_rows, describe_rows(r)) for index in group for r in source.tiles(index)]
            for group in plan_groups(source)
        ]
        assert len(parts) > 2
        expected = neighbours_combined(parts)
        engine = open_engine(source, source.nbytes // 2)
        for _ in range(2):
            assert trace_of(engine, trace_scan()) == expected

    def test_by_row_arrays_arrive_with_their_rows(self, open_engine: Opener, source: RowSource) -> None:
        """Beside the shared arrays, `add` gets the slices that belong to its rows."""
        number, square = np.arange(source.n_rows), np.arange(source.n_rows, dtype=np.float64)[:, None] ** 2
        shared = np.array([3.5])

        def label(start: int, n: int) -> tuple[bytes, bytes, bytes]:
            here = slice(start, start + n)
            return shared.tobytes(), number[here].tobytes(), square[here].tobytes()

        parts = [
            [(r.start, r.n_rows, describe_rows(r), *label(r.start, r.n_rows)) for k in group for r in source.tiles(k)]
            for group in plan_groups(source)
        ]
        found = trace_of(open_engine(source), trace_scan((shared,), (number, square)))
        assert found == neighbours_combined(parts)

    @pytest.mark.parametrize("kind", [np.float32, np.float64])
    def test_sums_of_kernels_have_the_bits_of_the_serial_engine(
        self, open_engine: Opener, source: RowSource, kind: type
    ) -> None:
        """Rows travel to the pass, dense or sparse, of either precision, and tiles come back in the rows' order."""
        columns = source.take(np.arange(0, source.n_rows, 50)).X
        columns = to_float64(columns) if kind is np.float64 else columns
        coef = np.random.default_rng(0).normal(size=columns.shape[0])
        change = make_change(Kernel("rbf", 0.1), columns, coef)
        scan = Scan(list, add_sums, operator.add, (True, 1, *change))
        with threadpool_limits(1):  # as `train` has it, and workers
            engines = SerialEngine(source), open_engine(source, source.nbytes // 2)
            expected, found = (join_tiles(engine.scan(scan)) for engine in engines)
        assert found.f.tobytes() == expected.f.tobytes()
        assert found.errors.tobytes() == expected.errors.tobytes()
        assert found.y.tobytes() == expected.y.tobytes()
        f = np.zeros(source.n_rows)
        everything = source.take(np.arange(source.n_rows))
        add_kernel_sums(Kernel("rbf", 0.1), everything.X, columns, coef, f)
        np.testing.assert_allclose(found.f, f, atol=1e-6 * np.sum(np.abs(coef)))  # squares of distances in float32
        np.testing.assert_array_equal(found.y, everything.y)

    def test_arrays_arrive_writable(self, open_engine: Opener, source: RowSource) -> None:
        """Compiled kernels are compiled for writable arrays, and would be compiled again for others."""
        shared = np.ones((2, 3))
        shared.flags.writeable = False
        flags = Scan(start_flags, add_writable_flags, join_lists, (shared,), (np.ones(source.n_rows),))
        assert all(open_engine(source).scan(flags))

    @pytest.mark.usefixtures("settled_groups")
    def test_later_passes_read_less_by_what_is_pinned(self, open_engine: Opener, source: RowSource) -> None:
        if not source.on_disk:
            engine = open_engine(source, source.nbytes)
            engine.scan(trace_scan())
            assert engine.costs.read_bytes == 0
            return
        rows = np.diff(source.chunk_starts)
        chunk_bytes = [source.nbytes * int(n) // source.n_rows for n in rows]
        for pin_bytes in (0, source.nbytes // 2, 2 * source.nbytes):
            engine = open_engine(source, pin_bytes)
            engine.scan(trace_scan())
            assert engine.costs.read_bytes == sum(chunk_bytes)
            pinned = self.pinned(engine)
            assert (len(pinned) == 0) == (pin_bytes == 0)
            assert (len(pinned) == source.n_chunks) == (pin_bytes > source.nbytes)
            before = engine.costs.read_bytes
            engine.scan(trace_scan())
            assert engine.costs.read_bytes - before == sum(chunk_bytes) - sum(chunk_bytes[k] for k in pinned)
            assert engine.costs.peaks
            engine.close()
            assert self.pinned(engine) == []

    def test_take_returns_rows_in_the_order_asked_for(
        self, open_engine: Opener, source: RowSource, source_name: str
    ) -> None:
        problem = PROBLEMS[source_name]
        wanted = np.array([5, 1, source.n_rows - 1, 5, source.n_rows // 2])
        engine = open_engine(source)
        rows = answer(engine, Take(wanted))
        assert engine.costs.read_bytes == source.take_bytes(wanted) >= (rows.nbytes if source.on_disk else 0)
        X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X
        np.testing.assert_array_equal(X, problem.dense()[wanted])
        np.testing.assert_array_equal(np.where(rows.y == 1, 1, -1), problem.y[wanted])

    def test_walk_goes_through_groups_of_chunks_in_the_given_orders(
        self, open_engine: Opener, source: RowSource
    ) -> None:
        """Side by side, each with a carry of its own; whole groups, in order; a pass may have nothing to do."""
        last = source.n_chunks - 1
        orders = [[[2, 0], [last]], [], [[1]], [[last, 2, 1], [0], [1]]]
        expected = [[name, *(describe_chunks(source, group) for group in order)] for name, order in enumerate(orders)]
        engine = open_engine(source, source.nbytes // 2)
        for _ in range(2):
            assert answer(engine, Walk(report_rows, [[name] for name in range(4)], orders)) == expected

    def test_walk_counts_what_it_costs(self, open_engine: Opener, source: RowSource) -> None:
        engine, orders = open_engine(source), [[[0, 1], [2]], [[0]]]
        engine.walk(Walk(report_rows, [[], []], orders))
        rows = np.diff(source.chunk_starts)
        read = [source.nbytes * int(rows[k]) // source.n_rows for k in (0, 1, 2, 0)]
        assert engine.costs.read_bytes == (sum(read) if source.on_disk else 0)
        assert all(peak > 1 << 20 for peak in engine.costs.peaks.values())
        assert engine.costs.peaks

    def test_the_rows_of_a_read_are_counted(
        self, open_engine: Opener, source: RowSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Part by part in this process; the whole in any engine."""
        monkeypatch.setattr("streamsvm.system.reading.REPORT_SECONDS", 0.0)
        engine, told, sizes = open_engine(source), list[int](), np.diff(source.chunk_starts)
        walk = Walk(report_rows, [[], []], [[[0, 1], [2]], [[0]]])
        for read, n_rows in (
            (lambda: engine.scan(solver_scan(source)), source.n_rows),
            (lambda: engine.walk(walk), int(sizes[[0, 1, 2, 0]].sum())),
        ):
            told.clear()
            with shown(lambda reading: told.append(reading.done_rows)):
                read()
            reading = engine.costs.reading
            assert reading is not None
            assert (reading.done_rows, reading.n_rows) == (n_rows, n_rows)
            assert told == sorted(told)
            assert all(0 < done < n_rows for done in told)
            assert told or not isinstance(engine, SerialEngine)
        part = replace(walk, before=[[[1]], []], after=[[[0]], [[1], [2]]])
        engine.walk(part)
        done, later = int(sizes[1]), int(sizes[[0, 1, 2]].sum())
        assert (reading := engine.costs.reading) is not None
        assert (reading.before, reading.done_rows, reading.n_rows) == (done, done + n_rows, done + n_rows + later)

    def test_a_failing_walk_reaches_the_caller_and_the_engine_works_on(
        self, open_engine: Opener, source: RowSource
    ) -> None:
        engine, orders = open_engine(source), [[[0], [1]], [[1], [2]]]
        for unlucky in (0, int(source.chunk_starts[2])):
            step = partial(note_unless_unlucky, unlucky)
            with pytest.raises(ArithmeticError, match="unlucky"):
                engine.walk(Walk(step, [[], []], orders))
            found = engine.walk(Walk(report_rows, [[], []], orders))
            assert found == [[describe_chunks(source, group) for group in order] for order in orders]

    def test_an_exception_reaches_the_caller_and_the_engine_works_on(
        self, open_engine: Opener, source: RowSource
    ) -> None:
        engine = open_engine(source, source.nbytes)
        expected = trace_of(engine, trace_scan())
        for unlucky in (0, source.n_rows // 2, source.n_rows - 1):
            bad = Scan(Trace, add_unless_unlucky, combine_traces, (unlucky,))
            with pytest.raises(ArithmeticError, match=f"row {unlucky} is unlucky"):
                engine.scan(bad)
            assert trace_of(engine, trace_scan()) == expected

    @pytest.mark.usefixtures("settled_groups")
    def test_numbers_of_rows_stay_and_follow_from_their_changes(
        self, open_engine: Opener, sources: dict[str, RowSource]
    ) -> None:
        """A pass over them alone reads nothing, and whoever has none makes all changes anew, with the same bits."""
        source = sources["dense"]
        engine, X = open_engine(source), source.take(np.arange(source.n_rows)).X
        changes = [Change(begin_numbers, (0.5,)), Change(add_features, (np.array([2.0]),))]
        assert {width for _, width, _ in engine.scan(list_scan(RowState("one", changes)))} == {source.n_features}
        read = engine.costs.read_bytes
        changes.append(Change(square_numbers, of_features=False))
        found = engine.scan(list_scan(RowState("one", changes), of_states=True))
        assert ({width for _, width, _ in found}, engine.costs.read_bytes) == ({0}, read)
        size = X.sum(axis=1, dtype=float)
        expected = np.stack(((np.arange(source.n_rows) + 0.5 + 2.0 * size) ** 2, size))
        assert join_numbers(found).tobytes() == expected.tobytes()
        changes.append(Change(add_features, (np.array([1.0]),)))
        here = engine.scan(list_scan(RowState("one", changes), of_states=True))
        late = engine.scan(list_scan(RowState("another", changes), of_states=True))
        assert engine.costs.read_bytes > read
        assert join_numbers(here).tobytes() == join_numbers(late).tobytes()

    @pytest.mark.parametrize("codec", ["crc32c", "lz4"])
    def test_a_damaged_chunk_is_named_by_a_walk(self, open_engine: Opener, codec: str, tmp_path: Path) -> None:
        dataset = make_problem(4).store(tmp_path / "rows", layout="dense", chunk_bytes=500, codec=codec)
        chunk = _chunk_file(dataset, 7)
        chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
        with pytest.raises(IntegrityError, match=r"c/7"):
            open_engine(dataset).walk(Walk(report_rows, [[], []], [[[0, 1], [6, 7]], [[2]]]))

    @pytest.mark.usefixtures("settled_groups")
    @pytest.mark.parametrize("codec", ["crc32c", "lz4"])
    def test_a_damaged_chunk_is_named_and_the_engine_works_on(
        self, open_engine: Opener, codec: str, tmp_path: Path
    ) -> None:
        """Once the chunk is whole again all of the data can be pinned: the failure has not used up room."""
        dataset = make_problem(4).store(tmp_path / "rows", layout="dense", chunk_bytes=500, codec=codec)
        engine = open_engine(dataset, int(1.06 * dataset.nbytes))
        chunk = _chunk_file(dataset, 7)
        whole = chunk.read_bytes()
        for _ in range(3):
            chunk.write_bytes(whole[:5] + bytes([whole[5] ^ 1]) + whole[6:])
            with pytest.raises(IntegrityError, match=r"c/7"):
                engine.scan(trace_scan())
        chunk.write_bytes(whole)
        expected = SerialEngine(dataset).scan(trace_scan()).tree
        for _ in range(2):
            assert trace_of(engine, trace_scan()) == expected
        pinned = self.pinned(engine)
        assert pinned == list(range(dataset.n_chunks)), f"{pinned} of {dataset.n_chunks}"


def _chunk_file(dataset: Dataset, index: int) -> Path:
    return Path(dataset.path) / "X" / "c" / str(index) / "0"
