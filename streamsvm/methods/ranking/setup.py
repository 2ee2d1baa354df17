"""The setup of ordinal regression and ROC area by cutting planes: settings, memory and model for a source's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Literal

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.methods.fit import DualWatch, Fit, TakeRows, report_progress
from streamsvm.methods.ranking import solver as ranking
from streamsvm.methods.ranking import streaming_solver
from streamsvm.methods.ranking.histogram_search import HistogramSearch
from streamsvm.methods.ranking.options import RankingOptions
from streamsvm.methods.ranking.pair_losses import Sample
from streamsvm.methods.ranking.query_search import QuerySearch
from streamsvm.methods.ranking.solver import Ranking, State
from streamsvm.methods.ranking.streaming_solver import NEARER
from streamsvm.models.model import RankModel
from streamsvm.numeric.exact_losses import compute_exact_scores
from streamsvm.numeric.exact_pairs import count_pairs_exactly, measure_pairs_exactly
from streamsvm.numeric.exact_sums import add_exact_sums, start_exact_sums
from streamsvm.numeric.histogram_losses import measure_histogram
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.row_products import add_rows
from streamsvm.numeric.rows import Rows
from streamsvm.numeric.score_histograms import MEASURE_BYTES, MOST_CELLS, add_scores, histogram_bytes, start_histogram
from streamsvm.options import TrainOptions
from streamsvm.problems.few_ranks import FewRanks, find_few_ranks, has_few_ranks
from streamsvm.problems.query_pairs import QueryPairs
from streamsvm.problems.ranking import find_pairs
from streamsvm.problems.small_queries import ROW_VECTORS, count_task_bytes, find_small_queries, query_bytes
from streamsvm.requests import MemoryNeed, Solver

HELD_VECTORS = 7  # the part of them that is held between steps: pairs, this state and the next, and scores under way
SAMPLE_ROW_BYTES = 8 * 28  # of a row of the sample beside its features: ranks, scores, and what sorts them


def set_up(source: RowSource, options: TrainOptions, own: RankingOptions) -> Fit:
    """Return the fit; raise InputError if the data have no pairs of rows to compare."""
    found = find_small_queries(source, options.task)
    if found is not None:
        return _set_up_queries(source, options, own, found)
    if has_few_ranks(source, options.task):
        return _set_up_few_ranks(source, options, own)
    pairs, weight = find_pairs(source, options.task)
    settings = _read_settings(options, own, weight / pairs.total)
    solve = partial(ranking.solve, settings, pairs)
    return _make_fit(source, options, settings, partial(_need_memory, settings, source), solve, "pairs")


def _set_up_queries(source: RowSource, options: TrainOptions, own: RankingOptions, found: QueryPairs) -> Fit:
    """Return the fit for rows in queries, none of which is so large that its rows are better not copied."""
    settings = _read_settings(options, own, found.weight / found.total)
    search = QuerySearch((int(source.chunk_starts[0]), int(source.chunk_starts[-1])))
    solve = partial(streaming_solver.solve, settings, search, found.total, _weigh_sample(settings, found.total, found))
    return _make_fit(source, options, settings, partial(_need_query_memory, settings, source, found), solve)


def _set_up_few_ranks(source: RowSource, options: TrainOptions, own: RankingOptions) -> Fit:
    """Return the fit for many rows of few ranks."""
    few = find_few_ranks(source, options.task)
    settings = _read_settings(options, own, few.totals.weight / few.totals.of_pairs)
    search = HistogramSearch(few.totals, source.n_rows)
    solve = partial(
        streaming_solver.solve, settings, search, few.totals.of_pairs, _weigh_sample(settings, few.totals.of_pairs, few)
    )
    memory = partial(_need_histogram_memory, settings, source, few)
    return _make_fit(source, options, settings, memory, solve, compiled=("ranking", "ranking-histograms"))


def _make_fit(
    source: RowSource,
    options: TrainOptions,
    settings: Ranking,
    memory: Callable[[int], MemoryNeed],
    solve: Callable[..., Solver],
    kind: Literal["pairs", "pairs at points"] = "pairs at points",
    compiled: tuple[str, ...] = ("ranking",),
) -> Fit:
    return Fit(
        method="cutting-plane",
        settings={"task": options.task, **asdict(settings)},
        memory=memory,
        start=partial(ranking.start_state, source.n_features),
        warm_start=partial(ranking.warm_state, settings),
        solve=solve,
        make_model=partial(_make_model, source),
        report=report_progress,
        compiled=compiled,
        dual=DualWatch(kind, source.n_features, settings.most_cuts(source.n_features)),
    )


def _weigh_sample(settings: Ranking, total: float, found: QueryPairs | FewRanks) -> Sample:
    """Return the sample with the cost by which its pairs weigh as much as all pairs, whose weights sum to `total`."""
    return Sample(found.sample, found.rows, settings.pair_cost * total / found.sample.total)


def _read_settings(options: TrainOptions, own: RankingOptions, weight_of_pairs: float) -> Ranking:
    """Return the settings. weight_of_pairs: the sum of the rows' weights, divided by that of the pairs'."""
    return Ranking(
        pair_cost=float(options.C) * weight_of_pairs,
        tol=float(options.tol),
        epsilon=own.epsilon,
        accelerated=own.acceleration == "line-search",
        max_cuts=own.max_cuts,
    )


def _need_memory(settings: Ranking, source: RowSource, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver that holds the scores of all rows.

    The totals of a task are sums of rows, or the scores of a group of chunks. Every task is sent a weight vector, and
    the entries of its own rows in the vectors with an entry a row.
    """
    d, n_groups = source.n_features, len(plan_groups(source))
    return MemoryNeed(
        driver_bytes=settings.driver_bytes(d) + 8 * ROW_VECTORS * source.n_rows,
        turn_bytes=settings.turn_bytes(d) + 8 * (ROW_VECTORS - HELD_VECTORS) * source.n_rows,
        totals_bytes=8 * (ranking.RETREATS + 1) * d + 16 * source.n_rows // n_groups,
        shared_bytes=8 * d,
        gathered_bytes=16 * source.n_rows,
        by_row_bytes=8 * (ranking.RETREATS + 1) * source.n_rows,
    )


def _need_query_memory(settings: Ranking, source: RowSource, found: QueryPairs, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver for rows in queries.

    The totals of a task are cuts, and what its queries take. The driver holds the rows of the sample.
    """
    d, points = source.n_features, 2 * len(ranking.LONGER)
    return MemoryNeed(
        driver_bytes=settings.driver_bytes(d) + 2 * query_bytes(source, len(found.rows)),
        turn_bytes=settings.turn_bytes(d),
        totals_bytes=8 * (2 * points + 2) * d + count_task_bytes(source, found),
        shared_bytes=8 * points * d,
    )


def _need_histogram_memory(settings: Ranking, source: RowSource, few: FewRanks, threads: int) -> MemoryNeed:  # noqa: ARG001
    """Return the memory of the solver for many rows of few ranks.

    The totals of a task are histograms of the scores at some points, or two cuts, whose tables it is sent. The driver
    holds the rows of the sample, and measures the histograms.
    """
    d, points = source.n_features, 2 + len(NEARER)
    row_bytes = source.nbytes // source.n_rows + SAMPLE_ROW_BYTES
    return MemoryNeed(
        driver_bytes=settings.driver_bytes(d) + 2 * row_bytes * len(few.rows) + MEASURE_BYTES,
        turn_bytes=settings.turn_bytes(d) + MEASURE_BYTES,
        totals_bytes=points * max(histogram_bytes(few.totals.n_ranks), 8 * 4 * d),
        shared_bytes=8 * points * d + 2 * 8 * MOST_CELLS,
    )


def _make_model(source: RowSource, state: State, take: TakeRows) -> RankModel:  # noqa: ARG001
    return RankModel(
        coef=state.best_w,
        intercept=0.0,
        classes=np.asarray(source.classes),
        scaling=source.scaling,
        feature_names=source.feature_names,
    )


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions of histograms, or those that count and measure pairs, with one query and with two.

    The second group adds rows up, too.
    """
    if group == "ranking-histograms":
        histogram = start_histogram(2)
        add_scores(histogram, np.zeros(2), np.arange(2, dtype=np.int32), np.ones(2))
        cut = measure_histogram(histogram, 2, 1.0).cut
        cut.find_coefs(np.zeros(2), np.arange(2, dtype=np.int32), np.ones(2), np.zeros_like(cut.coefs))
        return
    scores = compute_exact_scores(rows.X, np.zeros((1, 2)))[0]
    for starts in ([0, 2], [0, 1, 2]):
        pairs = Pairs(np.arange(2, dtype=np.int32), np.ones(2), np.array(starts))
        count_pairs(np.zeros(2), pairs, 1.0)
        measure_pairs_exactly(scores, pairs, 1.0)
        count_pairs_exactly(np.zeros(2), pairs)
    add_exact_sums(start_exact_sums(2), rows, np.ones(2))
    add_rows(np.zeros((1, 2)), rows.X, np.arange(2), np.zeros(2, np.int64), np.ones(2))
    add_row_magnitudes(np.zeros(2), np.zeros(2), rows.X, np.ones(2))
