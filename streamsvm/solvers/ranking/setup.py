"""The setup of ordinal regression and ROC area by cutting planes: settings, memory and model for a source's rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.certificates import double_double
from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.losses import histograms
from streamsvm.losses.pairs import Pairs, count_pairs
from streamsvm.models.model import RankModel
from streamsvm.numeric.rounding import add_row_magnitudes
from streamsvm.numeric.rows import Rows, add_rows
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems import ranking
from streamsvm.solvers.cutting_plane.line_search import Search, solve_any_loss
from streamsvm.solvers.cutting_plane.line_search_setup import count_sample_bytes, count_sample_rows
from streamsvm.solvers.cutting_plane.master import scale_costs
from streamsvm.solvers.cutting_plane.score_model import FEW_POINTS, MOST_POINTS, count_model_bytes
from streamsvm.solvers.options import RankingOptions
from streamsvm.solvers.ranking import solver
from streamsvm.solvers.ranking.solver import LONGER, PairSample, Ranking, State, draw_sample
from streamsvm.solvers.solver import Budget, DualWatch, Solver, TakeRows, describe_parameters, make_linear_model

HELD_VECTORS = 7  # how many of ROW_VECTORS are held between steps: pairs, two states, scores in transit


class RankingSolver(Solver):
    """Cutting planes for pairs of rows, with the scores of all rows in the driver. search: what computes P and cuts."""

    name = "cutting-plane"
    compiled: tuple[str, ...] = ("ranking",)

    def __init__(
        self, source: RowSource, options: TrainOptions, own: RankingOptions, found: ranking.FoundPairs, search: Search
    ) -> None:
        self.source, self.found, self.search, d = source, found, search, source.n_features
        pair_cost, accelerated = float(options.C) * (found.weight / found.total), own.acceleration == "line-search"
        self.parameters = Ranking(pair_cost, own.epsilon, accelerated, tol=float(options.tol), max_cuts=own.max_cuts)
        self.settings = {"task": options.task, **describe_parameters(self.parameters)}
        self.dual = DualWatch("cuts", d, self.parameters.most_cuts(d))
        cost = pair_cost * found.total / max(found.sample.total, float(np.finfo(float).tiny))
        self.drawn = PairSample(cost, found.rows, is_whole=found.is_whole, pairs=found.sample)

    def start(self) -> State:
        """Return the state at w = 0."""
        return State.at_zero(self.source.n_features)

    def warm_start(self, before: State, factor: float) -> State:
        """Return the initial state for costs `factor` times larger, with the cuts of the state `before`."""
        return scale_costs(before, factor, self.parameters.tol)

    def solve(self, state: State) -> Requests:
        """Yield the passes of the solver, step by step."""
        return solve_any_loss(self.parameters, self.search, self.drawn, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory.

        The totals of a task are sums of rows, or the scores of a group of chunks. Each task receives a weight vector,
        and its own rows' entries of the vectors that have one entry per row.
        """
        n, d = self.source.n_rows, self.source.n_features
        points, exact = 1 + self.drawn.most_points, 4 * len(LONGER)  # exact scores are pairs of numbers
        scores = max(points, exact)
        totals_bytes = 8 * (points * d + scores * n // len(plan_groups(self.source)))
        more_bytes = 8 * HELD_VECTORS * n + count_sample_bytes(self.source, len(self.drawn.rows))
        step_bytes = 8 * (ranking.ROW_VECTORS - HELD_VECTORS) * n + count_model_bytes(d)
        need = self.parameters.need_memory(d, totals_bytes, 8 * points * d, more_bytes, step_bytes)
        return replace(need, gathered_bytes=8 * scores * n, by_row_bytes=8 * points * n)

    def make_model(self, state: State, take: TakeRows) -> RankModel:  # noqa: ARG002
        """Return the model with the best weights."""
        return RankModel(**vars(make_linear_model(self.source, state.best_w, 0.0)))


class QueryRankingSolver(RankingSolver):
    """Cutting planes for pairs of rows in queries, if every query is small enough to copy its rows."""

    found: ranking.QueryPairs

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory. The totals of a task are cuts and the data of its queries; the driver holds the sample."""
        source, d, points = self.source, self.source.n_features, MOST_POINTS + 2 * len(LONGER)
        totals_bytes = 8 * (2 * points + 2) * d + ranking.count_task_bytes(source, self.found)
        sample_bytes = 2 * ranking.query_bytes(source, len(self.found.rows))
        return self.parameters.need_memory(d, totals_bytes, 8 * points * d, sample_bytes, count_model_bytes(d))


class FewRanksSolver(RankingSolver):
    """Cutting planes for many rows with few ranks, with pairs counted in histograms of the scores."""

    compiled = ("ranking", "ranking-histograms")
    found: ranking.FewRanks

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory.

        The totals of a task are histograms of the scores at some points, or the cuts there; for cuts, the task receives
        their tables. The driver holds the rows of the sample, and evaluates the histograms.
        """
        d, points = self.source.n_features, 1 + FEW_POINTS
        sample_bytes = count_sample_bytes(self.source, len(self.found.rows))
        totals = points * max(histograms.histogram_bytes(self.found.totals.n_ranks), 8 * 4 * d)
        tables = 8 * (1 + points) * histograms.MOST_CELLS
        shared, measured = 8 * points * d + tables, histograms.MEASURE_BYTES + tables
        return self.parameters.need_memory(d, totals, shared, sample_bytes, measured + count_model_bytes(d))


def set_up(source: RowSource, options: TrainOptions, own: RankingOptions, _: Budget) -> RankingSolver:
    """Return the solver. Raise InputError if the data have no pairs of rows to compare."""
    sample_rows = count_sample_rows(source)
    queries = ranking.find_small_queries(source, options.task, sample_rows)
    if queries is not None:
        search = solver.QuerySearch((int(source.chunk_starts[0]), int(source.chunk_starts[-1])))
        return QueryRankingSolver(source, options, own, queries, search)
    if ranking.has_few_ranks(source, options.task):
        few = ranking.find_few_ranks(source, options.task, sample_rows)
        return FewRanksSolver(source, options, own, few, solver.HistogramSearch(few.totals, source.n_rows))
    pairs, weight = ranking.find_pairs(source, options.task)
    drawn = draw_sample(pairs, 1.0, sample_rows, source.is_shuffled)
    found = ranking.FoundPairs(pairs.total, weight, drawn.pairs, drawn.rows, drawn.is_whole)
    return RankingSolver(source, options, own, found, solver.PairSearch(pairs))


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions of one group: "ranking-histograms", or those that evaluate pairs.

    Pairs are evaluated with one query and with two queries. The second group also calls the functions that sum rows.
    """
    if group == "ranking-histograms":
        histogram = histograms.start_histogram(2)
        histograms.add_scores(histogram, np.zeros(2), np.arange(2, dtype=np.int32), np.ones(2))
        cut = histograms.measure_histogram(histogram, 2, 1.0).cut
        cut.find_coefs(np.zeros(2), np.arange(2, dtype=np.int32), np.ones(2), np.zeros_like(cut.coefs))
        return
    scores = double_double.compute_exact_scores(rows.X, np.zeros((1, 2)))
    for starts in ([0, 2], [0, 1, 2]):
        two = Pairs(np.arange(2, dtype=np.int32), np.ones(2), np.array(starts))
        count_pairs(np.zeros(2), two, 1.0)
        double_double.measure_losses_exactly(scores, two, np.ones(1))
        double_double.count_pairs_exactly(np.zeros(2), two)
    double_double.add_exact_sums(double_double.start_exact_sums(2), rows, np.ones(2))
    add_rows(np.zeros((1, 2)), rows.X, np.arange(2), np.zeros(2, np.int64), np.ones(2))
    add_row_magnitudes(np.zeros(2), np.zeros(2), rows.X, np.ones(2))
