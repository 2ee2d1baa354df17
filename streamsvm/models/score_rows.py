"""Scores of the rows of a source, chunk by chunk and in order.

Before rows are read, the functions that score rows and measure scores are loaded from the cache. On a machine that has
never trained, a child process compiles missing functions and the user is informed, as in training (solvers.set_up).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources.text import unjoined_pool, work_ahead
from streamsvm.kernels.feature_maps import KernelMap
from streamsvm.kernels.kernel import Kernel, add_kernel_sums, compute_kernel_sums, to_float64
from streamsvm.losses.pairs import Pairs, count_pairs
from streamsvm.models.model import KernelModel, Model
from streamsvm.numeric.compilation import load_or_compile, one_blas_thread
from streamsvm.numeric.rows import CsrRows, Matrix, Rows, compute_scores
from streamsvm.problems.problem import Scored, join_scored, read_truth
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError
from streamsvm.system.machine import default_threads
from streamsvm.system.reading import Reading

T = TypeVar("T")
DENSE, SPARSE, PAIRS = "scores/dense", "scores/sparse", "pairs"


def compile_scores(model: Model, is_sparse: bool, with_measures: bool = False) -> None:
    """Load the compiled functions with which a model scores rows, and on request the functions that measure scores.

    is_sparse: whether the rows are sparse.
    """
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
    load_or_compile(tuple(names), run_scores)


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
    """Yield the scores of every chunk, in order. Each thread works on one chunk in memory.

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
    scorer = model.scorer(source.n_features, source.scaling, source.is_sparse, source.features)
    compile_scores(model, source.is_sparse)
    is_like = source.has_label_sets == model.problem.has_label_sets  # ignore labels of another kind
    classes = source.classes if is_like else None
    table = None if classes is None else model.problem.code_labels(classes, model.classes)

    def score_tile(rows: Rows) -> Scored:
        truth = None
        if rows.target is not None or table is not None:
            truth = read_truth(rows, np.empty(0) if table is None else table).copy()
        return Scored(scorer(rows.X), truth, None if rows.qid is None else rows.qid.copy())

    def score_chunk(index: int) -> Scored:
        return join_scored(map(score_tile, source.tiles(index)))

    yield from score_ahead(iter(range(source.n_chunks)), score_chunk, threads or default_threads(), source.n_rows)


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
