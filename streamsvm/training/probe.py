"""The measurements behind a plan: a training on a sample of rows in memory, and passes over a few chunks of the data.

The solver itself trains on the sample, with C n / n_sample for C, so that the problem is like that of all rows. This
shows how many passes the solver makes, which requests it makes in a pass, and how long it computes between two passes.
The engine then carries out such passes over a few chunks, of which it pins the same share as in the training.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.chunk_range import ChunkRange
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.source import RowSource
from streamsvm.engines.memory import MemoryPlan
from streamsvm.engines.one_read import answer_all
from streamsvm.engines.protocol import Engine
from streamsvm.engines.serial import SerialEngine
from streamsvm.errors import InputError
from streamsvm.methods.altered_rows import AlteredAdd
from streamsvm.methods.set_up import set_up
from streamsvm.numeric.rows import I64, CsrRows, Rows
from streamsvm.options import TrainOptions
from streamsvm.requests import Scan, Take, Walk
from streamsvm.training.drive import drive
from streamsvm.training.loop import Training
from streamsvm.training.statistics import settle_gamma

T = TypeVar("T")

SAMPLE_ROWS = 8000
SAMPLE_BYTES = 16 << 20
SAMPLE_CHUNKS = 8  # the sample is taken from so few chunks, because a chunk is read whole for any of its rows
SAMPLE_SECONDS = 5.0
MOST_CHUNKS = 64  # of the sample: more of them are too small to be worth a step
PROBE_SECONDS = 0.3  # duration of a pass over a few chunks; at least four such passes are made
READ_BYTES_A_SECOND = 1e9  # an assumed speed, from which the number of chunks to read is chosen


@dataclass(frozen=True)
class Tried:
    """What a training on a sample of n_rows took. All times are CPU seconds on one thread.

    status is that of a result. scans has one pass of each kind, and the cost of all passes of the kind in units of that
    one; scan_seconds is the time of all of them. walk_seconds is the time of the sequential passes of the last epoch.
    between is the time that the solver computed per pass. taken has a number for each time that the solver took rows by
    number: how many they were.
    """

    n_rows: int
    status: str
    passes: int
    scans: list[tuple[Scan, float]]
    scan_seconds: float
    walk_seconds: float
    between: float
    taken: tuple[int, ...]


@dataclass(frozen=True)
class Speed:
    """Seconds per row in the first pass and in later passes, measured on n_chunks chunks."""

    first: float
    later: float
    n_chunks: int


class _Recorder(SerialEngine):
    """An engine that notes the requests, how long they take, and how long the solver computes between them."""

    def __init__(self, source: RowSource) -> None:
        super().__init__(source)
        self.kinds: dict[Any, tuple[Scan, int]] = {}
        self.seconds: defaultdict[Any, list[float]] = defaultdict(list)
        self.taken: list[int] = []
        self.thought, self.answered = 0.0, time.process_time()

    def scan(self, scan: Scan) -> Any:
        """Carry a pass out. Of each kind, keep the last whose number is a power of two, so one from amid the run.

        Rows that the pass has from the solver cost nothing: what they cost, it saves.
        """
        if scan.held is not None and self.taken:  # later passes may have the same rows
            self.taken.pop()
        kind = _find_kind(scan.add)
        kept, number = self.kinds.get(kind, (scan, 0))
        self.kinds[kind] = (scan if (number + 1).bit_count() == 1 else kept, number + 1)
        return self._note(kind, partial(super().scan, scan))

    def weigh(self) -> list[tuple[Scan, float]]:
        """Return one pass of each kind, and the cost of all passes of the kind in units of that one.

        The cost is not simply their number, since later passes may ask for fewer cuts and then cost less.
        """
        found = []
        for kind, (scan, number) in self.kinds.items():
            seconds = self.seconds[kind][1:] or self.seconds[kind]  # the first pass may be slower than the others
            mean = sum(seconds) / len(seconds)
            found.append((scan, number * mean / _time_best(partial(super().scan, scan), time.process_time)))
        return found

    def take(self, take: Take) -> Rows:
        """Take rows, count them, and note the time."""
        self.taken.append(len(take.rows))
        return self._note("take", partial(super().take, take))

    def walk(self, walk: Walk) -> Any:
        """Carry a sequential pass out, and note the time."""
        return self._note("walk", partial(super().walk, walk))

    def _note(self, what: Any, do: Callable[[], T]) -> T:
        """Carry a request out; note its CPU seconds, and those that the solver computed before it."""
        began = time.process_time()
        self.thought += began - self.answered
        found = do()
        self.answered = time.process_time()
        self.seconds[what].append(self.answered - began)
        return found


def _find_kind(add: Callable[..., None]) -> Callable[..., None]:
    """Return the function with which a pass adds rows, without its bound arguments: passes of one kind share it."""
    if isinstance(add, AlteredAdd):
        return _find_kind(add.add)
    return _find_kind(add.func) if isinstance(add, partial) else add


def draw_sample(source: RowSource, queries: bool, seed: int) -> ArrayDataset:
    """Return some thousand rows, drawn from a few chunks that are spread evenly; with `queries`, whole queries."""
    random, n_chunks = np.random.default_rng((seed, 1 << 33)), source.n_chunks
    most = max(64, min(SAMPLE_ROWS, SAMPLE_BYTES * source.n_rows // max(1, source.nbytes)))
    places = range(n_chunks) if n_chunks <= SAMPLE_CHUNKS else np.linspace(0, n_chunks - 1, SAMPLE_CHUNKS + 1)[1:]
    chunks = [source.chunk_starts[int(k) : int(k) + 2].tolist() for k in places]
    share = min(1.0, most / sum(stop - start for start, stop in chunks))
    qid = source.column("qid") if queries else None
    rows = np.concatenate([_draw(random, start, stop, round(share * (stop - start)), qid) for start, stop in chunks])
    taken = source.take(rows)
    held = _hold(taken, source, taken.qid)
    held.chunk_starts = _cut(source, held.n_rows)
    return held


def _cut(source: RowSource, n_rows: int) -> I64:
    """Return limits of as many chunks as the source has, up to MOST_CHUNKS: a walk goes from chunk to chunk."""
    starts = source.chunk_starts
    few = starts if source.n_chunks <= MOST_CHUNKS else np.linspace(0, source.n_rows, MOST_CHUNKS + 1)
    return np.unique(np.round(few * (n_rows / source.n_rows)).astype(np.int64))


def _draw(random: np.random.Generator, start: int, stop: int, wanted: int, qid: I64 | None) -> I64:
    """Return about as many rows as wanted of the chunk from `start` to `stop`, ascending; with qid, whole queries."""
    if qid is None:
        return start + np.sort(random.permutation(stop - start)[:wanted])
    firsts = np.flatnonzero(np.diff(qid[start:stop], prepend=qid[start] - 1))
    ends = np.append(firsts[1:], stop - start)
    order = random.permutation(len(firsts))
    n_queries = 1 + int(np.searchsorted(np.cumsum((ends - firsts)[order]), wanted))
    return start + np.concatenate([np.arange(firsts[k], ends[k]) for k in np.sort(order[:n_queries])])


def repeat(sample: ArrayDataset, times: int) -> ArrayDataset:
    """Return the rows repeated so many times, with queries of its own for each copy.

    With C divided by the number of copies, it is the same problem.
    """
    n, qid = sample.n_rows, sample.qid
    taken = sample.take(np.tile(np.arange(n), times))
    if qid is not None:
        qid = np.concatenate([qid + k * (int(np.max(qid) - np.min(qid)) + 1) for k in range(times)])
    return _hold(taken, sample, qid)


def _hold(taken: Rows, source: RowSource, qid: I64 | None) -> ArrayDataset:
    X = taken.X
    if isinstance(X, CsrRows):
        X = csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    name = f"{source.name}: a sample"
    held = ArrayDataset(X, taken.y, source.classes, taken.sample_weight, name, qid, taken.target, taken.label_sets)
    held.is_shuffled = source.is_shuffled
    return held


def try_sample(
    sample: ArrayDataset, source: RowSource, options: TrainOptions, plan: MemoryPlan, most_passes: int | None = None
) -> Tried:
    """Train on the sample, for SAMPLE_SECONDS at most. Raises InputError if it has no problem, as with one class."""
    if sample.y is not None and len(np.unique(sample.y)) < 2:
        raise InputError(f"{sample.n_rows:,} sampled rows are of one class")
    C = options.C * source.n_rows / sample.n_rows
    alike = replace(options, C=C, max_passes=most_passes, max_seconds=SAMPLE_SECONDS)
    engine = _Recorder(sample)
    alike = settle_gamma(SerialEngine(sample), alike)
    fit = set_up(sample, alike)
    training = Training(sample, alike, fit, engine, plan, None, lambda _: None)
    drive(engine, [training.requests()])
    thought, passes = engine.thought + time.process_time() - engine.answered, fit.report(training.state).passes
    walks = engine.seconds["walk"]
    return Tried(
        n_rows=sample.n_rows,
        status=training.status,
        passes=passes,
        scans=engine.weigh(),
        scan_seconds=sum(sum(engine.seconds[kind]) for kind in engine.kinds),
        walk_seconds=sum(walks[len(walks) - len(walks) // max(1, passes) :]),
        taken=tuple(engine.taken),
        between=thought / max(1, passes),
    )


def measure_reading(engine: Engine, n_tasks: int, plan: MemoryPlan) -> Speed:
    """Measure passes that read rows and do nothing with them."""
    return _measure(engine, n_tasks, plan, [(Scan(list, _read_only, _keep_left), 1.0)], 0.0)


def measure_passes(engine: Engine, n_tasks: int, plan: MemoryPlan, tried: Tried, n_fits: int) -> Speed:
    """Measure a pass of the solver: the sum over all kinds of passes, weighted with how often each was made.

    n_fits: how many fits share a read, each of which makes such passes.
    """
    row_seconds = tried.scan_seconds / (tried.n_rows * sum(count for _, count in tried.scans))
    kinds = [(scan, count / tried.passes) for scan, count in tried.scans]
    return _measure(engine, n_tasks, plan, kinds, n_fits * row_seconds, n_fits)


def _measure(
    engine: Engine,
    n_tasks: int,
    plan: MemoryPlan,
    kinds: list[tuple[Scan, float]],
    row_seconds: float,
    n_fits: int = 1,
) -> Speed:
    """Carry passes out over the first chunks, of which the engine pins the same share as in the training.

    kinds has a pass of each kind, and how often it is made in one pass of the solver; n_fits of a kind share a read.
    row_seconds is the time of a row on one thread. There are enough chunks to keep n_tasks threads busy for
    PROBE_SECONDS, and at least one for each thread. Afterwards the engine still has these chunks as its source.
    """
    source, per_chunk = engine.source, 1.0 / engine.source.n_chunks
    chunk_seconds = per_chunk * (source.n_rows * row_seconds + source.nbytes / READ_BYTES_A_SECOND)
    wanted = n_tasks * math.ceil(PROBE_SECONDS / chunk_seconds)
    part = ChunkRange(source, 0, min(wanted, source.n_chunks))
    pin_bytes = int(plan.pin_bytes * part.nbytes / max(1, source.nbytes))
    engine.source, engine.pin_bytes = part, pin_bytes
    scans = [
        replace(scan, by_row=tuple(np.resize(vector, (part.n_rows, *vector.shape[1:])) for vector in scan.by_row))
        for scan, _ in kinds
    ]
    often = np.array([count for _, count in kinds])
    passes = [partial(answer_all, engine, n_fits * [scan]) for scan in scans]
    cold, again = _time(passes[0]), np.array([_time_best(each) for each in passes])
    first = often @ np.array([cold, *again[1:]])
    return Speed(float(first) / part.n_rows, float(often @ again) / part.n_rows, part.n_chunks)


def _time_best(do: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    return min(_time(do, clock) for _ in range(3))


def _time(do: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    do()
    return clock() - began


def _read_only(totals: list[Any], rows: Rows) -> None:
    """Do nothing with rows that were read, so that the time is that of reading."""


def _keep_left(left: list[Any], right: list[Any]) -> list[Any]:  # noqa: ARG001
    return left
