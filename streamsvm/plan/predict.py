"""The projection of a training: its engine is opened, a model is trained on a sample, and a few chunks are read.

The solver itself trains on a sample in memory, with C n / n_sample in place of C, so that the problem resembles the
problem of all rows. This gives the number of passes, the requests of a pass, and the time between two passes. Then the
engine carries out such passes over a few chunks, of which it pins the same fraction as in the training.

The number of passes hardly depends on the number of rows if the total cost sum C_i is the same: on Adult, Covertype,
ijcnn1 and Web, solvers of linear models made 0.6 to 1.6 times as many passes over all rows as over 8,000 rows (hence
LEAST and MOST). The more rows are resident, the fewer passes a solver with resident rows needs. So it runs twice on the
sample: with the same fraction and with the same number of resident rows as the training. The passes of the whole
training lay between the two counts. The passes of a decomposition (smo, irwls) are not estimated, because they depend
on how many rows become support vectors.

A training that maps rows to features in every pass is planned with a map of random rows, which costs as much as the
real one. Storing the features first may be faster. The costs are:

    mapping again     (passes - 1) * fraction not kept in memory * rows * CPU seconds per row / threads
    storing           4 bytes per feature and row, written once and read in every pass
"""

from __future__ import annotations

import math
import operator
import time
import timeit
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.rows.source import RowSource
from streamsvm.data.rows.views import ChunkRange, Mapped
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer_all
from streamsvm.engines.open import Client, MemoryPlan
from streamsvm.engines.tasks import plan_scratch
from streamsvm.kernels.feature_maps import FeatureMap, Features, KernelMap, PolynomialMap, make_nystrom_map, split_rows
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import I64, CsrRows, Rows, slice_rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan, Take, Walk
from streamsvm.plan.table import KEPT_SHARE, NO_FETCHES, Passes, Plan, RowFetches, find_cluster, show_seconds
from streamsvm.problems.registry import find_problem
from streamsvm.runs.calibrate import FoldFits, make_folds
from streamsvm.runs.gamma_scale import measure_gamma, needs_scale, resolve_gamma, stand_in_for_gamma
from streamsvm.runs.on_the_fly import make_linear
from streamsvm.runs.train import Training, drive, open_for, set_up_group
from streamsvm.solvers.feature_map.setup import FeatureMapSolver
from streamsvm.solvers.many.transformed import OnTransformed
from streamsvm.solvers.options import FeatureOptions
from streamsvm.solvers.set_up import choose_solver, read_own_options, set_up, settle_task
from streamsvm.solvers.solver import Solver
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.machine import default_budget_bytes, default_threads, format_bytes

T = TypeVar("T")

SAMPLE_ROWS = 8000
SAMPLE_BYTES = 16 << 20
SAMPLE_CHUNKS = 8  # the sample is drawn from this many chunks; each row costs a read of its whole chunk
SAMPLE_SECONDS = 5.0
MOST_CHUNKS = 64  # the maximum number of chunks of the sample; smaller chunks are not worth a step
PROBE_SECONDS = 0.3  # duration of a pass over a few chunks; at least four such passes are made
READ_BYTES_A_SECOND = 1e9  # assumed speed, which determines the number of chunks to read
WRITE_BYTES_A_SECOND = 4e8  # speed of writing features with checksums, measured by benchmarks/on_the_fly.py
TIMED_ROWS = 1024
NUMBER_BYTES = 8 + 8  # bytes per row for its number and its share of the headers of blocks
LEAST, MOST = 0.6, 1.6  # bounds of the passes over all rows, as multiples of those over the sample
# If the time between two passes grows with the rows, it is measured on the sample and on a sample repeated TIMES times,
# for FEW passes each.
TIMES, FEW = 5, 8

# The passes, their speed, the seconds between two passes (None: unknown), and the rows that are fetched by number.
Found = tuple[Passes, "Speed", float | None, RowFetches]


@dataclass(frozen=True)
class Speed:
    """Seconds per row in the first pass and in later passes, measured on n_chunks chunks.

    walks: the number of walks side by side that make up a pass; 0 if any number of tasks can share a pass.
    """

    first: float
    later: float
    n_chunks: int
    walks: int = 0


class SampleRun(SerialEngine):
    """An engine for the training on a sample. It records requests, their durations, and the solver's time between them.

    All times are CPU seconds on one thread. kinds: for each kind, one pass and the number of passes.
    seconds: the times of all requests, by kind. taken: the number of rows of each request for rows by number. After the
    training, status and passes are as in a Result, and scans is the result of `weigh`.
    """

    status: str
    passes: int
    scans: list[tuple[Scan, float]]

    def __init__(self, source: RowSource) -> None:
        super().__init__(source)
        self.n_rows, self.taken = source.n_rows, list[int]()
        self.kinds: dict[Any, tuple[Scan, int]] = {}
        self.seconds: defaultdict[Any, list[float]] = defaultdict(list)
        self.solver_seconds, self.answered = 0.0, time.process_time()

    @property
    def between(self) -> float:
        """The time of the solver for each pass."""
        return self.solver_seconds / max(1, self.passes)

    def scan(self, scan: Scan) -> Any:
        """Carry out a pass, and record its time. For each kind of pass, the last pass whose number is a power of two is
        kept as an example from the middle of the run. Rows that the solver holds in memory cost nothing, since the pass
        does not read them again.
        """
        if scan.held is not None and self.taken:  # empty if an earlier pass held the same rows
            self.taken.pop()
        kind = _find_kind(scan.add)
        kept, number = self.kinds.get(kind, (scan, 0))
        self.kinds[kind] = (scan if (number + 1).bit_count() == 1 else kept, number + 1)
        return self._record(kind, partial(super().scan, scan))

    def weigh(self) -> list[tuple[Scan, float]]:
        """Return for each kind one pass, and the cost of all passes of this kind as a multiple of that pass.

        The cost is not just the number of passes, since later passes may request fewer cuts and then cost less.
        """
        found = []
        for kind, (scan, number) in self.kinds.items():
            seconds = self.seconds[kind][1:] or self.seconds[kind]  # the first pass may be slower than the others
            mean = sum(seconds) / len(seconds)
            found.append((scan, number * mean / _time_best(partial(super().scan, scan), time.process_time)))
        return found

    def take(self, take: Take) -> Rows:
        """Take rows by number, and record their count and the time."""
        self.taken.append(len(take.rows))
        return self._record("take", partial(super().take, take))

    def walk(self, walk: Walk) -> Any:
        """Carry out a sequential pass, and record the time."""
        return self._record("walk", partial(super().walk, walk))

    def _record(self, what: Any, do: Callable[[], T]) -> T:
        """Carry out a request; record its CPU seconds, and the CPU seconds of the solver since the previous request."""
        began = time.process_time()
        self.solver_seconds += began - self.answered
        found = do()
        self.answered = time.process_time()
        self.seconds[what].append(self.answered - began)
        return found


def _find_kind(add: Callable[..., None]) -> Callable[..., None]:
    """Return the function with which a pass adds rows, without bound arguments. It identifies the kind of pass."""
    if isinstance(add, OnTransformed):
        return _find_kind(add.function)
    return _find_kind(add.func) if isinstance(add, partial) else add


def draw_sample(source: RowSource, queries: bool, seed: int) -> ArrayDataset:
    """Return a few thousand rows, drawn from a few evenly spread chunks. queries: whether to draw whole queries."""
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
    """Return the limits of the sample's chunks: at most MOST_CHUNKS chunks, and no more than the source has.

    The number of chunks matters because a walk takes one chunk after another.
    """
    starts = source.chunk_starts
    few = starts if source.n_chunks <= MOST_CHUNKS else np.linspace(0, source.n_rows, MOST_CHUNKS + 1)
    return np.unique(np.round(few * (n_rows / source.n_rows)).astype(np.int64))


def _draw(random: np.random.Generator, start: int, stop: int, wanted: int, qid: I64 | None) -> I64:
    """Draw about `wanted` rows between `start` and `stop`, in ascending order. qid: if given, draw whole queries."""
    if qid is None:
        return start + np.sort(random.permutation(stop - start)[:wanted])
    firsts = np.flatnonzero(np.diff(qid[start:stop], prepend=qid[start] - 1))
    ends = np.append(firsts[1:], stop - start)
    order = random.permutation(len(firsts))
    n_queries = 1 + int(np.searchsorted(np.cumsum((ends - firsts)[order]), wanted))
    return start + np.concatenate([np.arange(firsts[k], ends[k]) for k in np.sort(order[:n_queries])])


def repeat(sample: ArrayDataset, times: int) -> ArrayDataset:
    """Return copies of the rows, each with its own queries.

    With C divided by the number of copies, the problem is the same.
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
) -> SampleRun:
    """Train on the sample for at most SAMPLE_SECONDS.

    Raises InputError if this is impossible (for example, with one class).
    """
    if sample.y is not None and len(np.unique(sample.y)) < 2:
        raise InputError(f"all {sample.n_rows:,} sampled rows belong to one class")
    C = options.C * source.n_rows / sample.n_rows
    alike = replace(options, C=C, max_passes=most_passes, max_seconds=SAMPLE_SECONDS)
    run = SampleRun(sample)
    alike = resolve_gamma(SerialEngine(sample), alike)
    fit = set_up(sample, alike)
    training = Training(sample, alike, fit, run, plan, None, lambda _: None)
    drive(run, [training.requests()])
    run.solver_seconds += time.process_time() - run.answered
    run.status, run.passes, run.scans = training.status, fit.report(training.state).passes, run.weigh()
    return run


def _time_best(do: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    return min(timeit.repeat(do, timer=clock, repeat=3, number=1))


def _read_only(totals: list[Any], rows: Rows) -> None:
    """Ignore the rows, so that only the time for reading is measured."""


@dataclass(frozen=True)
class Probe:
    """A training to be projected: its fits, which share the reads, and the engine that was opened for them.

    n_tasks: the number of tasks that run at once.
    """

    fits: Sequence[Solver]
    options: TrainOptions
    engine: Engine
    memory: MemoryPlan
    n_tasks: int

    def project(self, kind: str) -> Found:
        """Return the projection.

        kind: the method by which the passes of the solver are predicted (solvers.registry).
        """
        if kind == "epochs":
            return self._project_epochs()
        return self._project_sampled() if kind == "sampled" else self._project_unknown()

    def _read_only(self, passes: Passes) -> Found:
        """Return the projection of passes for which only the time for reading is known."""
        return passes, self.measure_reading(), None, NO_FETCHES

    def _project_unknown(self) -> Found:
        """Project one pass if all rows are active at once; otherwise at least two passes, without an estimate."""
        fit = self.fits[0]
        if int(np.min(fit.settings.get("resident_rows", 0))) >= self.engine.source.n_rows:
            return self._read_only(Passes(1, 1, 1, "all rows are active at once"))
        why = f"not estimated: the passes of {fit.name} depend on the support vectors"
        return self._read_only(Passes(2, None, None, why))

    def _project_epochs(self) -> Found:
        """Project budgeted SGD, whose passes are the requested epochs.

        Each replica learns its rows one after another. The second epoch on the sample is timed, since the budget of
        support vectors is full by then.
        """
        source, own = self.engine.source, read_own_options(self.options)
        passes = Passes(own.epochs, own.epochs, own.epochs, "the requested epochs")
        twice = replace(self.options, options={**self.options.options, "epochs": "2"})
        try:
            tried = try_sample(draw_sample(source, False, twice.seed), source, twice, self.memory)
        except InputError:
            return self._read_only(passes)
        return passes, self._measure_walks(tried, own.replicas), tried.between, NO_FETCHES

    def _project_sampled(self) -> Found:
        """Project a solver whose passes are estimated from its passes over a sample.

        If several fits share the reads, their solvers compute one after another.
        """
        source, memory, fit = self.engine.source, self.memory, self.fits[0]
        sample = draw_sample(source, find_problem(self.options.task).reads_queries, self.options.seed)
        resident = int(np.max(fit.settings.get("resident_rows", 0)))  # 0: the solver keeps no rows
        own = {name: value for name, value in self.options.options.items() if name != "scratch"}
        options = replace(self.options, options=own)  # rows in memory are not spooled
        try:
            if not resident:
                tries = [try_sample(sample, source, options, memory)]
            else:
                share = max(2, round(resident * sample.n_rows / source.n_rows))
                counts = share, min(resident, sample.n_rows)
                tries = [try_sample(sample, source, replace(options, resident_rows=n), memory) for n in counts]
        except InputError as error:
            return self._read_only(Passes(None, None, None, f"not estimated: {error}"))
        between = tries[-1].between
        if resident:
            between *= max(1.0, resident / sample.n_rows)
        elif any(scan.by_row for scan, _ in tries[0].scans):
            short, long = (try_sample(rows, source, options, memory, FEW) for rows in (sample, repeat(sample, TIMES)))
            slope = (long.between - short.between) / (long.n_rows - short.n_rows)
            between += max(0.0, slope) * (source.n_rows - sample.n_rows)
        taken = self._measure_taken(tries[0])  # before the probe changes the source
        # The first run has the same fraction of resident rows as the training, so the probe needs no more memory.
        # With so few rows, it may walk through blocks although the training does not; the second run is then the model.
        walks = fit.memory(1).walk_bytes > 0 and not fit.memory(1).totals_bytes  # else these are the bytes of tasks
        tried = next((one for one in tries if bool(one.scans) != walks), tries[0])
        speed = self.measure_passes(tried) if tried.scans else self._measure_walks(tried, 1)
        speed = replace(speed, walks=int(walks))
        return _expect(tries, source.n_rows), speed, len(self.fits) * between, taken

    def _measure_taken(self, tried: SampleRun) -> RowFetches:
        """Return the bytes read to fetch rows by number: in each pass, and once for the sample of the solver."""
        source, first = self.engine.source, self.fits[0].sample
        if first is None:
            found = sum(_count_bytes(source, number * source.n_rows // tried.n_rows) for number in tried.taken)
            return RowFetches(found // max(1, tried.passes), 0)
        if not source.is_shuffled:
            return RowFetches(0, _count_bytes(source, first.rows))
        start = 0
        if first.is_held and isinstance(self.engine, SerialEngine):
            # in the first pass, threads do not read chunks again that lie within the held first rows
            start = source.chunk_starts[np.searchsorted(source.chunk_starts, first.rows, side="right") - 1]
        return RowFetches(0, source.take_bytes(np.arange(start, first.rows)))

    def measure_reading(self) -> Speed:
        """Measure the speed of passes that only read rows."""
        return self._measure([(Scan(list, _read_only, operator.add), 1.0)], 0.0)

    def _measure_walks(self, tried: SampleRun, side_by_side: int) -> Speed:
        """Return the speed of `side_by_side` walks through all rows, which is limited by reading or by learning."""
        read = self.measure_reading()
        walks = tried.seconds["walk"]
        last_epoch = walks[len(walks) - len(walks) // max(1, tried.passes) :]
        learned = sum(last_epoch) / tried.n_rows / min(side_by_side, self.n_tasks)
        return Speed(max(read.first, learned), max(read.later, learned), read.n_chunks, side_by_side)

    def measure_passes(self, tried: SampleRun) -> Speed:
        """Measure the speed of a pass of the fits: the sum over all kinds of passes, weighted by their frequency."""
        scan_seconds = sum(sum(tried.seconds[kind]) for kind in tried.kinds)
        row_seconds = scan_seconds / (tried.n_rows * sum(count for _, count in tried.scans))
        kinds, n_fits = [(scan, count / tried.passes) for scan, count in tried.scans], len(self.fits)
        return self._measure(kinds, n_fits * row_seconds, n_fits)

    def _measure(self, kinds: list[tuple[Scan, float]], row_seconds: float, n_fits: int = 1) -> Speed:
        """Carry out passes over the first chunks, of which the engine pins the same fraction as in the training.

        kinds: for each kind, one pass, and the number of passes of the kind for each pass of the solver. n_fits: the
        number of passes of a kind that share a read. row_seconds: the time per row on one thread. There are enough
        chunks to keep n_tasks threads busy for PROBE_SECONDS, and at least one chunk per thread. Afterwards, these
        chunks remain the source of the engine.
        """
        engine, source = self.engine, self.engine.source
        chunk_seconds = 1.0 / source.n_chunks * (source.n_rows * row_seconds + source.nbytes / READ_BYTES_A_SECOND)
        wanted = self.n_tasks * math.ceil(PROBE_SECONDS / chunk_seconds)
        part = ChunkRange(source, 0, min(wanted, source.n_chunks))
        engine.source, engine.pin_bytes = part, int(self.memory.pin_bytes * part.nbytes / max(1, source.nbytes))
        scans = [
            replace(scan, by_row=tuple(np.resize(vector, (part.n_rows, *vector.shape[1:])) for vector in scan.by_row))
            for scan, _ in kinds
        ]
        often = np.array([count for _, count in kinds])
        passes = [partial(answer_all, engine, n_fits * [scan]) for scan in scans]
        cold, again = timeit.timeit(passes[0], number=1), np.array([_time_best(each) for each in passes])
        first = often @ np.array([cold, *again[1:]])
        return Speed(float(first) / part.n_rows, float(often @ again) / part.n_rows, part.n_chunks)


def plan_training(
    source: RowSource,
    options: TrainOptions,
    client: Client | None = None,
    keep_dual: bool = False,
    folds: FoldFits | None = None,
) -> Plan:
    """Project the passes, seconds, bytes and memory of a training. This takes some seconds, and no full pass.

    A model is trained on a sample of the rows, and a few chunks are read as in the training.

    Parameters
    ----------
    source : RowSource
        The rows to train on.
    options : TrainOptions
        The settings and limits of the training.
    client : distributed.Client, optional
        A Dask cluster that would carry out the passes. By default `options` determines the engine.
    keep_dual : bool, default False
        Whether the training would store its dual point, which takes memory.
    folds : FoldFits, optional
        The side fits that would calibrate the probabilities of the model (calibrate.make_folds).

    Returns
    -------
    Plan
        The projection. Passes and times that cannot be estimated are None.

    Raises
    ------
    InputError
        If no model can be trained with these settings or on these data, as in `train`.
    MemoryBudgetError
        If the training would exceed its memory budget, as in `train`.
    """
    options = settle_task(source, options)
    asked = stand_in_for_gamma(options)
    fits = set_up_group(source, asked, keep_dual, None, folds)
    fit = fits[0]
    with one_blas_thread(), open_for(source, asked, [[each] for each in fits], client) as (engine, memory):
        cluster = find_cluster(engine)
        n_tasks = cluster.workers * cluster.threads if cluster else options.threads or default_threads()
        probe = Probe(fits, options, engine, memory, n_tasks)
        passes, speed, between, taken = probe.project(choose_solver(options).passes)
        if cluster and speed.walks:
            cluster = replace(cluster, most_tasks=speed.walks)
    if needs_scale(options):
        passes = passes.add(1, "for gamma")
    if folds is not None:
        passes = passes.add(1, "that scores the held-out rows")
    speed = _slow_down(source, memory.pin_bytes * (cluster.workers if cluster else 1), speed)
    first, later = speed.first * source.n_rows, speed.later * source.n_rows
    scratch = plan_scratch(fit.scratch, source, memory.pin_bytes)
    row_bytes = source.nbytes + NUMBER_BYTES * source.n_rows  # each spooled row is stored with its number
    most_bytes = 0 if scratch is None else round(scratch.most_share * row_bytes)
    own = between, taken, speed.n_chunks, fit.reason, fit.note, fit.scratch or "", most_bytes
    return Plan(source, options, memory, passes, first, later, *own, cluster=cluster)


def _count_bytes(source: RowSource, number: int) -> int:
    """Return the bytes read to fetch `number` evenly spread rows."""
    return source.take_bytes(np.linspace(0, source.n_rows - 1, number).astype(np.int64)) if number else 0


def _expect(tries: list[SampleRun], n_rows: int) -> Passes:
    """Return the expected passes, given one or two runs on the sample."""
    counts = [tried.passes for tried in tries]
    if any(tried.status == "time_limit" for tried in tries):
        how = f"{say_count(tries[0].n_rows, 'row')} took more than {SAMPLE_SECONDS:g} s"
        return Passes(min(counts), None, None, how)
    how = f"the same settings on {say_count(tries[0].n_rows, 'row')}"
    if tries[0].n_rows == n_rows:
        return Passes(counts[0], counts[0], counts[0], "measured on all rows, which are few")
    if min(counts) < max(counts):
        more = 0 if tries[0].scans else 1  # a walk through blocks in another order may need one more pass
        return Passes(min(counts), round(math.sqrt(counts[0] * counts[-1])), max(counts) + more, how)
    return Passes(max(1, math.floor(LEAST * counts[0])), counts[0], math.ceil(MOST * counts[0]), how)


def _slow_down(source: RowSource, pin_bytes: int, speed: Speed) -> Speed:
    """Slow down later passes if the file cache of the system cannot hold the chunks that are not pinned.

    These chunks are read from disk in every pass, whereas the few chunks of the probe stay in the cache. pin_bytes: the
    memory for chunks in all processes together.
    """
    streamed = max(0.0, 1.0 - KEPT_SHARE * pin_bytes / max(1, source.nbytes))
    if streamed * source.nbytes <= 2 * default_budget_bytes():
        return speed
    return replace(speed, later=max(speed.later, streamed * speed.first))


def plan_rows(
    source: RowSource,
    features: FeatureOptions | None,
    options: TrainOptions,
    client: Client | None = None,
    keep_dual: bool = False,
    probabilities: str | None = None,
) -> Plan:
    """Project a training on mapped features. The note reports whether storing the features first would be faster.

    Without `features`, this is the plan of a training on the rows themselves. probabilities: the method by which side
    fits on folds would calibrate the probabilities of the model. The other arguments and errors are those of
    `plan_training` and `open_rows`.
    """
    folds = None if probabilities is None else make_folds(source, options, probabilities)
    if features is None:
        return plan_training(source, options, client, keep_dual, folds)
    linear = make_linear(features, options, source)
    fit = FeatureMapSolver(source, features, stand_in_for_gamma(options))
    stand_in = fit.stand_in()
    sample = draw_sample(source, False, options.seed)
    with one_blas_thread():
        found = _make_like(stand_in, sample, options)
        seconds = _time_row(found, sample)
        mapped = Mapped(source, Features(found))
        own = None if folds is None else replace(folds, source=mapped)
        plan = plan_training(mapped, linear, client, keep_dual, own)
    more = fit.passes + int(isinstance(found, KernelMap) and needs_scale(options))
    note = " ".join(filter(None, (plan.note, _compare(plan, seconds))))
    return replace(plan, passes=plan.passes.add(more, "that find the map"), note=note)


def _make_like(stand_in: FeatureMap, sample: ArrayDataset, options: TrainOptions) -> FeatureMap:
    """Return a map of the size of `stand_in`, made from random rows, with at most one pivot per sampled row."""
    if isinstance(stand_in, PolynomialMap):
        plain = replace(stand_in, largest=1.0)
        return replace(plain, largest=float(np.max(np.abs(plain.apply(sample.take(np.arange(1)).X)))))
    kernel, (number, width) = stand_in.kernel, stand_in.matrix.shape
    if needs_scale(options):
        kernel = replace(kernel, gamma=measure_gamma(SerialEngine(sample)))
    found = make_nystrom_map(kernel, sample.take(np.arange(min(number, sample.n_rows))).X)
    return KernelMap(kernel, found.rows, found.matrix[:, -width:])


def _time_row(found: FeatureMap, sample: ArrayDataset) -> float:
    """Return the CPU seconds for mapping one row on one thread."""
    X = sample.take(np.arange(TIMED_ROWS) % sample.n_rows).X

    def map_rows() -> None:
        for part in split_rows(found, TIMED_ROWS):
            found.apply(slice_rows(X, part))

    return _time_best(map_rows, time.process_time) / TIMED_ROWS


def _compare(plan: Plan, row_seconds: float) -> str:
    """Describe the cost of mapping in each pass, and whether storing the features once would be faster."""
    source, options = plan.source, plan.options
    tasks = (options.workers or 1) * (options.threads or (1 if options.workers else default_threads()))
    once = source.n_rows * row_seconds / tasks
    said = f"Mapping a row takes {1e6 * row_seconds:.2g} us of CPU; mapping all rows takes {show_seconds(once)}."
    passes = plan.count_passes()[1]
    if passes is None:
        return said
    streamed = max(0.0, 1.0 - KEPT_SHARE * plan.memory.pin_bytes / source.nbytes)
    again = (passes - 1) * streamed
    stored_bytes = 4 * source.n_rows * source.n_features
    storing = stored_bytes / WRITE_BYTES_A_SECOND + (1 + again) * stored_bytes / READ_BYTES_A_SECOND
    verdict = "this would be faster" if storing < again * once else "mapping in each pass is faster"
    return (
        f"{said} {streamed:.0%} of them are mapped again in each later pass, which takes {show_seconds(again * once)}. "
        f"Storing the features once (`streamsvm features`) would write {format_bytes(stored_bytes)} and take about "
        f"{show_seconds(storing)} of writing and reading: {verdict}."
    )
