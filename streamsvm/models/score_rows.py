"""Scores of the rows of a source, chunk by chunk and in order.

Before rows are read, the functions that score rows and measure scores are loaded from the cache. On a machine that has
never trained, a child process compiles missing functions and the user is informed, as in training (solvers.set_up).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.kernels.feature_maps import KernelMap
from streamsvm.kernels.kernel import Kernel, add_kernel_sums, compute_kernel_sums, to_float64
from streamsvm.losses.pairs import Pairs, count_pairs
from streamsvm.models.model import KernelModel, Model
from streamsvm.numeric.compilation import load_or_compile, one_blas_thread
from streamsvm.numeric.rows import CsrRows, Matrix, Rows, compute_scores
from streamsvm.problems.problem import Scored, join_scored, read_truth
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError, naming
from streamsvm.system.machine import default_threads
from streamsvm.system.reading import Reading
from streamsvm.system.threads import unjoined_pool, work_ahead

T = TypeVar("T")
DENSE, SPARSE, PAIRS = "scores/dense", "scores/sparse", "pairs"


def compile_scores(model: Model, is_sparse: bool, with_measures: bool = False) -> None:
    """Load the compiled functions with which a model scores rows, and on request the functions that measure scores.

    is_sparse: whether the rows are sparse.
    """
    load_or_compile(_name_functions(model, is_sparse, with_measures), run_scores)


def _name_functions(model: Model, is_sparse: bool, with_measures: bool = False) -> tuple[str, ...]:
    if isinstance(model, KernelModel):
        names = [_name_sums(model.kernel, model.support_vectors)]
    elif model.features is None:
        names = [SPARSE if is_sparse else DENSE]
    else:
        names = [DENSE]
        if isinstance(model.features.map, KernelMap):
            names.append(_name_sums(model.features.map.kernel, model.features.map.rows))
    if with_measures and (len(model.classes) == 2 or not model.problem.predicts_labels):
        names.append(PAIRS)
    return tuple(names)


def compile_all_scores() -> None:
    """Load the compiled functions for all models and layouts of rows, and the functions that measure scores."""
    sums = [f"{kind}-kernel-scores/{layout}" for kind in ("linear", "rbf") for layout in ("dense", "sparse")]
    load_or_compile((DENSE, SPARSE, PAIRS, *sums), run_scores)


def run_scores(name: str) -> None:
    """Call the functions with this name on two rows, which compiles them."""
    X: Matrix = np.eye(2, dtype=np.float32)
    if name.endswith("sparse"):
        X = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
    if name == PAIRS:
        for starts in ([0, 2], [0, 1, 2]):  # without queries, and with queries
            count_pairs(np.zeros(2), Pairs(np.arange(2, dtype=np.int32), np.ones(2), np.array(starts)), 1.0)
    elif name in (DENSE, SPARSE):
        compute_scores(X, np.zeros((1, 2)))
    else:
        kernel = Kernel(name.partition("-")[0])
        add_kernel_sums(kernel, to_float64(X), X, np.ones(2), np.zeros(2))
        compute_kernel_sums(kernel, to_float64(X), X, np.ones((3, 2)))


def _name_sums(kernel: Kernel, rows: Matrix) -> str:
    """Return the name of the functions for kernel sums over these rows; all nonlinear kernels share one name."""
    kind = "linear" if kernel.name == "linear" else "rbf"
    return f"{kind}-kernel-scores/{'sparse' if isinstance(rows, CsrRows) else 'dense'}"


def score_chunks(model: Model, source: RowSource, threads: int | None = None) -> Iterator[Scored]:
    """Yield the scores of every chunk, in order. Each thread works on one chunk in memory. See `make_chunk_scorer`."""
    score_chunk = make_chunk_scorer(model, source)
    if source.n_chunks == 1 and not source.on_disk:  # starting a thread would take longer than scoring a few rows
        with one_blas_thread():
            yield score_chunk(0)
        return
    yield from score_ahead(iter(range(source.n_chunks)), score_chunk, threads or default_threads(), source.n_rows)


CHUNKS_A_THREAD = 4  # whose scores workers hold until they are taken


def score_on_workers(
    model: Model, source: RowSource, scheduler: str, work_bytes: tuple[int, int], memory_bytes: int | None
) -> Iterator[Scored]:
    """Yield the scores of every chunk, in order, while the workers of a cluster score later chunks.

    work_bytes: the bytes that a thread needs to score a chunk, and the bytes of the chunk's scores. memory_bytes: the
    limit of each process. Raises MemoryBudgetError if a worker lacks memory.
    """
    from streamsvm.engines.cluster.engine import map_on_workers, share  # loads distributed, as does open_workers
    from streamsvm.engines.cluster.open import open_workers

    make_chunk_scorer(model, source)  # refuses unsuitable rows
    load = partial(load_or_compile, _name_functions(model, source.is_sparse), run_scores)
    model_bytes = len(pickle.dumps(model, pickle.HIGHEST_PROTOCOL))
    need_bytes = model_bytes + work_bytes[0] + (CHUNKS_A_THREAD + 1) * work_bytes[1]
    with open_workers(
        load=load,
        need_bytes=need_bytes,
        budget_bytes=memory_bytes,
        workers=None,
        scheduler=scheduler,
        client=None,
        remedy="give the workers more memory",
    ) as client:
        shared, at = share(client, (model, source)), 0
        while at < source.n_chunks:
            some = range(at, min(source.n_chunks, at + CHUNKS_A_THREAD * max(1, sum(client.nthreads().values()))))
            yield from map_on_workers(client, "scoring rows", score_part, [(shared, index) for index in some])
            at = some.stop


def score_part(shared: tuple[Model, RowSource], index: int) -> Scored:
    """Return the scores of a chunk. shared: the model, and the source of the chunk."""
    with one_blas_thread():
        return make_chunk_scorer(*shared)(index)


def make_chunk_scorer(model: Model, source: RowSource) -> Callable[[int], Scored]:
    """Return a function that scores the chunk with a number.

    If the model was trained on features of a map, raw rows are mapped first, and rows that this map produced are scored
    directly. Raises InputError for rows that do not suit the model.
    """
    if None not in (model.feature_names, source.feature_names) and model.feature_names != source.feature_names:
        raise InputError(f"{source.name}: its features differ from those of the training")
    if None not in (model.encoding, source.encoding) and model.encoding != source.encoding:
        raise InputError(
            f"{source.name}: its table was encoded differently from that of the training; give the model "
            "the table itself, or ingest it with --like and the dataset of the training"
        )
    with naming(source.name):
        scorer = model.scorer(source.n_features, source.scaling, source.is_sparse, source.features)
    compile_scores(model, source.is_sparse)
    is_like = source.has_label_sets == model.problem.has_label_sets  # ignore labels of another kind
    classes = source.classes if is_like else None
    table = None if classes is None else model.problem.code_labels(classes, model.classes)

    def score_tile(rows: Rows) -> Scored:
        interrupts.check()
        truth = None
        if rows.target is not None or table is not None:
            truth = read_truth(rows, np.empty(0) if table is None else table).copy()
        with naming(source.name):
            scores = scorer(rows.X)
        return Scored(scores, truth, None if rows.qid is None else rows.qid.copy())

    return lambda index: join_scored(map(score_tile, source.tiles(index)))


def score_ahead(
    items: Iterator[T], work: Callable[[T], Scored], threads: int, n_rows: int | None = None
) -> Iterator[Scored]:
    """Yield work(item) for each item, in order, while threads compute the next results.

    n_rows: the number of rows, for the progress (None: unknown).
    """
    reading = Reading(n_rows)
    with one_blas_thread(), unjoined_pool(threads, "score") as pool:  # the bits of BLAS depend on its number of threads
        for _, scored in work_ahead(items, work, pool, threads + 1):
            yield scored
            reading.add(len(scored.scores))
            interrupts.check()
