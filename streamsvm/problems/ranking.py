"""Ranking: minimise the sum of the hinge losses of pairs of rows (Joachims 2006, Algorithm 2).

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j)),      i of the higher rank

K is the cost of a pair of weight 1, and v_i is a weight of row i. "rank" compares the rows of each query, or all rows
if there are no queries; "roc-area" compares the rows of two classes. A row has one score, which is higher for higher
ranks. There is no bias, because it cancels in every pair.

Pairs are formed within queries, or between any two rows of different ranks. `find_pairs` holds the labels of all rows.
Two other routes read labels one chunk at a time, and hold nothing for every row: `find_query_pairs` for pairs within
small queries, and `find_few_ranks` for many rows of few ranks, whose pairs follow from the total weight of each rank. A
pair within a query has the weight that all rows of the query share, so v_i is its square root (losses.pairs multiplies
v_i v_j).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import TILE_ITEMS, RowSource, count_tile_rows, read_codes
from streamsvm.losses.histograms import RankTotals
from streamsvm.losses.pairs import Pairs, count_pairs, mean_ndcg, mean_tau, swapped_pairs
from streamsvm.numeric.rows import F64, I64
from streamsvm.options import require_classes
from streamsvm.problems import problem
from streamsvm.problems.classification import measure_areas, share_out
from streamsvm.problems.problem import Scoring
from streamsvm.system.errors import InputError

PLACES = (1, 5, 10)  # the values of k in NDCG@k


def find_starts(qid: I64) -> I64:
    """Return the first row of each query, and the number of rows at the end; the rows of a query are consecutive."""
    return np.concatenate(([0], np.flatnonzero(np.diff(qid)) + 1, [len(qid)]))


def evaluate_ranking(scores: F64, labels: F64, qid: I64 | None) -> dict[str, Any]:
    """Return measures of ranking, given the rows' scores, their ranks (NaN if unknown), and their query ids.

    The measures are swapped pairs and Kendall's tau within queries, NDCG@k if there are queries (losses.pairs), and the
    area under the ROC curve if there are two ranks.
    """
    known = np.isfinite(labels)
    scores, labels = scores[known], labels[known]
    starts = np.array([0, len(labels)])
    if qid is not None:
        order = np.argsort(qid[known], kind="stable")
        scores, labels, starts = scores[order], labels[order], find_starts(qid[known][order])
    ranks, codes = np.unique(labels, return_inverse=True)
    pairs = Pairs(codes.astype(np.int32), np.ones(len(codes)), starts)
    places = PLACES if qid is not None else ()
    ndcg = mean_ndcg(scores, labels - np.min(labels, initial=np.inf), starts, places)
    return {
        "n_rows": len(known),
        "n_queries": None if qid is None else len(starts) - 1,
        "swapped_pairs": swapped_pairs(scores, pairs),
        "roc_area": problem.roc_area(scores, codes == 1) if len(ranks) == 2 else None,
        "ndcg": {str(k): value for k, value in ndcg.items()},
        "kendall_tau": mean_tau(scores, labels, starts),
        "unknown_labels": int(np.count_nonzero(~known)),
    }


def measure_pairs(name: str, scores: F64, truth: npt.NDArray[Any], qid: I64 | None) -> dict[str, float | None]:
    """Return the share of pairs in the right order; a tie counts half, and the share is 1 without pairs.

    Pairs are formed within queries; the rows of a query are consecutive.
    """
    starts = np.array([0, len(truth)]) if qid is None else find_starts(qid)
    codes = np.unique(truth, return_inverse=True)[1]
    swapped = swapped_pairs(scores, Pairs(codes.astype(np.int32), np.ones(len(codes)), starts))
    return {name: 1.0 if swapped is None else 1.0 - swapped}


def measure_ranking(scores: F64, truth: npt.NDArray[Any], qid: I64 | None) -> dict[str, float | None]:
    """Return the other measures of a ranking (see `evaluate_ranking`); None if the rows do not define a measure."""
    found = evaluate_ranking(scores, truth, qid)
    ndcg = {f"ndcg@{k}": value for k, value in found["ndcg"].items()}
    return {"kendall_tau": found["kendall_tau"], "roc_auc": found["roc_area"], **ndcg}


class RocArea(problem.Problem):
    """Ranking of the rows of two classes, which maximises the area under the ROC curve."""

    name, models, predicts_labels = "roc-area", ("rank",), False
    scorings: tuple[Scoring, ...] = (
        Scoring(("roc_auc",), partial(measure_pairs, "roc_auc")),
        Scoring(("average_precision",), measure_areas),
    )

    def code_labels(self, labels: Any, classes: problem.Labels) -> npt.NDArray[Any]:
        """Return the labels as numbers; if the classes are strings, their places among the classes (NaN if unknown).

        Raises InputError if a label is a string although the classes are numbers.
        """
        if classes.dtype.kind in "biuf":
            return problem.read_as_numbers(labels, "ranks")
        codes = problem.code_as_classes(labels, classes)
        return np.where(codes < 0, np.nan, codes)

    def evaluate(self, parts: Iterable[problem.Scored], classes: problem.Labels) -> dict[str, Any]:  # noqa: ARG002
        """Return the measures of `evaluate_ranking` for the scores of all parts together."""
        scored = problem.join_scored(parts)
        return evaluate_ranking(scored.scores, scored.labels, scored.qid)

    def draw_folds(self, source: RowSource, folds: int, rng: np.random.Generator) -> problem.Folds:
        """Return the fold of each row; each rank is distributed evenly."""
        return share_out(read_codes(source), folds, rng)


class Rank(RocArea):
    """Ranking of the rows of each query, or of all rows."""

    name, reads_queries = "rank", True
    scorings = (
        Scoring(("ordered_pairs",), partial(measure_pairs, "ordered_pairs")),
        Scoring(("kendall_tau", "roc_auc", *(f"ndcg@{k}" for k in PLACES)), measure_ranking),
    )

    def draw_folds(self, source: RowSource, folds: int, rng: np.random.Generator) -> problem.Folds:
        """Return the fold of each row; queries are drawn whole. Without queries, each rank is distributed evenly."""
        qid = source.column("qid")
        if qid is None:
            return super().draw_folds(source, folds, rng)
        _, query = np.unique(qid, return_inverse=True)
        return np.asarray(rng.permutation(int(query.max()) + 1)[query] % folds, np.uint8)


RANK, ROC_AREA = Rank(), RocArea()


NO_PAIRS = (
    "there are no two rows to compare: all rows (of each query) are of one class, or sample weights are so small that "
    "the weights of all pairs, which are their products, are 0; add rows with other labels, or raise the weights"
)
QUERIES_AT_ONCE = 1 << 20  # queries that are compared at once, to find a query that occurs in two places
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 (golden ratio - 1); the high bits of its multiples are spread evenly


@dataclass(frozen=True)
class FoundPairs:
    """The total weight of all pairs, and a sample of the pairs.

    total: the sum of the weights of all pairs. weight: the sum of the weights of all rows. sample: the pairs of some
    queries or of some rows. rows: the numbers of the rows in the sample. is_whole: whether the sample has all pairs.
    """

    total: float
    weight: float
    sample: Pairs
    rows: I64
    is_whole: bool


@dataclass(frozen=True)
class QueryPairs(FoundPairs):
    """Pairs within queries, whose sample has whole queries. largest: the number of rows in the largest query."""

    largest: int


Labelled = npt.NDArray[np.void]  # consecutive rows: row numbers, ranks, queries and weights, without features
LABELLED = np.dtype([("row", np.int64), ("qid", np.int64), ("rank", np.int32), ("weight", np.float64)], align=True)


def find_query_pairs(source: RowSource, sample_rows: int) -> QueryPairs:
    """Return the pairs of a source with queries; only labels, weights and query ids are read.

    The sample consists of every k-th query among the queries with pairs, which gives about `sample_rows` rows plus at
    most one query.

    Raises InputError for ranks that are not numbers, for a query that occurs in two places or has two weights, and if
    there are no pairs.
    """
    require_comparable(source, RANK.name)
    stride, n_queries, n_paired, largest = -(-source.n_rows // sample_rows), 0, 0, 0
    total, weight = 0.0, 0.0
    chosen: list[Labelled] = []
    for rows, starts in _read_queries(source):
        _check_weights(source.name, int(rows["row"][0]), rows["qid"], rows["weight"])
        up, _ = count_pairs(np.zeros(len(rows)), Pairs(rows["rank"], np.sqrt(rows["weight"]), starts), 1.0)
        of_query = np.add.reduceat(up, starts[:-1])
        paired = np.flatnonzero(of_query > 0.0)
        drawn = paired[(np.arange(len(paired)) + n_paired) % stride == 0]
        chosen += [rows[slice(*starts[k : k + 2].tolist())].copy() for k in drawn]
        n_queries, n_paired = n_queries + len(of_query), n_paired + len(paired)
        largest = max(largest, int(np.max(np.diff(starts))))
        total, weight = total + float(np.sum(of_query)), weight + float(np.sum(rows["weight"]))
    _check_places(source, n_queries)
    if not total > 0.0:
        raise InputError(f"{source.name}: {NO_PAIRS}")
    whole, starts = np.concatenate(chosen), np.cumsum([0, *map(len, chosen)])
    sample = Pairs(whole["rank"].copy(), np.sqrt(whole["weight"]), starts)
    return QueryPairs(total, weight, sample, whole["row"].copy(), stride == 1, largest)


def find_pairs(source: RowSource, task: str) -> tuple[Pairs, float]:
    """Return the pairs and the sum of the rows' weights; only labels, weights and query ids are read.

    With queries, the task "rank" pairs the rows of each query. A pair has the weight that all rows of the query share,
    so v_i is its square root (losses.pairs multiplies v_i v_j). In all other cases any two rows may be a pair, with
    weight v_i v_j, where v_i is the sample weight; a row of weight 2 thus counts as two rows.

    Raises InputError for ranks that are not numbers, for "roc-area" without exactly two classes, for a query that
    occurs in two places or has two weights, and if there are no pairs.
    """
    require_comparable(source, task)
    ranks, weight = read_codes(source), source.column("sample_weight")
    weight = np.ones(source.n_rows) if weight is None else weight
    qid = source.column("qid") if task == "rank" else None
    starts, roots = np.array([0, source.n_rows]), weight
    if qid is not None:
        starts, roots = find_starts(qid), np.sqrt(weight)
        _check_places(source, len(starts) - 1)
        _check_weights(source.name, 0, qid, weight)
    pairs = Pairs(ranks, roots, starts)
    if not pairs.total > 0.0:
        raise InputError(f"{source.name}: {NO_PAIRS}")
    return pairs, float(np.sum(weight))


def require_comparable(source: RowSource, task: str) -> problem.Labels:
    """Return the classes of a source.

    Raises InputError unless they are numbers for "rank", or two classes for "roc-area".
    """
    classes = require_classes(source)
    if task == "roc-area" and len(classes) != 2:
        raise InputError(
            f"{source.name}: the area under the ROC curve needs two classes, not {len(classes):,}; for "
            "more than two, choose the task rank"
        )
    if task == RANK.name and classes.dtype.kind not in "biuf":
        raise InputError(f"{source.name}: labels are {str(classes[0])!r}, ..., but ranks have to be numbers")
    return classes


def _read_queries(source: RowSource) -> Iterator[tuple[Labelled, I64]]:
    """For each chunk, yield the joined rows of the queries that end in it, and the start of each query among them."""
    pieces: list[Labelled] = []
    for index, rows in enumerate(_read_chunks(source)):
        qid = rows["qid"]
        limits = np.flatnonzero(np.diff(qid, prepend=pieces[-1]["qid"][-1:] if pieces else qid[:1]))
        last = len(rows) if index == source.n_chunks - 1 else int(limits[-1]) if len(limits) else 0
        if last or (len(limits) and pieces):
            whole = np.concatenate([*pieces, rows[:last]])
            yield whole, find_starts(whole["qid"])
            pieces = []
        pieces.append(rows[last:].copy())  # a copy, so that the memory of the other rows can be freed


def _read_chunks(source: RowSource) -> Iterator[Labelled]:
    """Yield the rows of each chunk. Without queries, each row has the query 0; without weights, it has the weight 1."""
    for index in range(source.n_chunks):
        ranks, qid = read_codes(source, index), source.column("qid", index)
        weight = source.column("sample_weight", index)
        rows = np.empty(len(ranks), LABELLED)
        rows["row"], rows["rank"] = source.chunk_starts[index] + np.arange(len(ranks)), ranks
        rows["qid"], rows["weight"] = 0 if qid is None else qid, 1.0 if weight is None else weight
        yield rows


def _check_weights(name: str, start: int, qid: I64, weight: F64) -> None:
    """Raise InputError if rows of one query differ in weight. start: the number of the first of these rows."""
    uneven = np.flatnonzero((np.diff(qid) == 0) & (np.diff(weight) != 0))
    if len(uneven):
        row, query = start + uneven[0] + 2, qid[uneven[0]]
        raise InputError(
            f"{name}: row {row}: its weight differs from that of the other rows of query {query}: give all of them the "
            "same weight"
        )


def _check_places(source: RowSource, n_queries: int) -> None:
    """Raise InputError for the first query that occurs in two places.

    To save memory, the queries are split into shares, which are checked one after another.
    """
    shares = max(1, -(-n_queries // QUERIES_AT_ONCE))
    again: list[tuple[int, int]] = []
    for share in range(shares):
        qid, row = _list_starts(source, share, shares)
        order = np.argsort(qid, kind="stable")
        first = np.sort(order[1:][np.diff(qid[order]) == 0])[:1]  # row numbers ascend with the index
        again += zip(row[first].tolist(), qid[first].tolist(), strict=True)
    if again:
        number, query = min(again)
        raise InputError(
            f"{source.name}: row {number + 1}: query {query} occurs again after other queries, but the rows of a query "
            "have to be consecutive: sort the rows by query"
        )


def _list_starts(source: RowSource, share: int, shares: int) -> tuple[I64, I64]:
    """Return the ids of the queries in share number `share` of `shares`, and the first row of each of these queries."""
    found: list[tuple[I64, I64]] = []
    before: I64 = np.empty(0, np.int64)
    for index in range(source.n_chunks):
        qid = source.column("qid", index)
        assert qid is not None
        starts = np.flatnonzero(np.diff(qid, prepend=before) if len(before) else np.append(1, np.diff(qid)))
        spread = (qid[starts].view(np.uint64) * SPREAD) >> np.uint64(32)
        own = starts[spread % np.uint64(shares) == share]
        found.append((qid[own], own + source.chunk_starts[index]))
        before = qid[-1:]
    queries, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    return queries, rows


ROW_VECTORS = 33  # vectors of 8 bytes per row: scores, also in twice the precision, and pair counts
LARGEST_QUERY_BYTES = 16 << 20  # With a larger query, the driver holds the scores of all rows.
# Copies of the largest query in a task: one at each end of the task's rows, one where two tasks meet, and one while its
# pieces are joined.
EDGES = 4
TASK_BYTES = 320  # per row of a tile: scores, also in twice the precision, their sort order, and pair counts


def has_queries(source: RowSource, task: str) -> bool:
    """Return whether pairs are formed within queries."""
    return task == RANK.name and source.column("qid", 0) is not None


def find_small_queries(source: RowSource, task: str, sample_rows: int) -> QueryPairs | None:
    """Return the pairs within queries; None if pairs are not formed within queries, or if a query is too large.

    sample_rows, and the errors that are raised: see `find_query_pairs`.
    """
    if not has_queries(source, task):
        return None
    found = find_query_pairs(source, sample_rows)
    return found if query_bytes(source, found.largest) <= LARGEST_QUERY_BYTES else None


def count_task_bytes(source: RowSource, found: QueryPairs) -> int:
    """Return the bytes of the queries at both ends of a task, and of the work arrays for a tile or a query."""
    tile_rows = min(source.n_rows, TILE_ITEMS if source.is_sparse else count_tile_rows(source.n_features))
    return EDGES * query_bytes(source, found.largest) + TASK_BYTES * max(found.largest, tile_rows)


def query_bytes(source: RowSource, n_rows: int) -> int:
    """Return the bytes of n_rows rows with their ROW_VECTORS."""
    return n_rows * (source.nbytes // source.n_rows + 8 * ROW_VECTORS)


HELD_ROWS = 1 << 20  # Up to this many rows, the driver holds the scores and counts pairs exactly.
MOST_RANKS = 16  # With more ranks, the buckets of a histogram would be too wide.


@dataclass(frozen=True)
class FewRanks(FoundPairs):
    """Pairs of rows of few ranks. The sample has some rows of each rank, with the weight of all rows of the rank.

    totals: the total weight of each rank.
    """

    totals: RankTotals


def has_few_ranks(source: RowSource, task: str) -> bool:
    """Return whether any two rows may be a pair, and the source has many rows and few ranks."""
    if has_queries(source, task):
        return False
    return source.n_rows > HELD_ROWS and len(require_classes(source)) <= MOST_RANKS


def find_few_ranks(source: RowSource, task: str, sample_rows: int) -> FewRanks:
    """Return the totals, and a sample of about `sample_rows` rows.

    Raises InputError if there are no pairs to compare.
    """
    classes = require_comparable(source, task)
    of_rank, n_rows = np.zeros(len(classes)), np.zeros(len(classes), np.int64)
    for rows in _read_chunks(source):
        of_rank += np.bincount(rows["rank"], rows["weight"], len(classes))
        n_rows += np.bincount(rows["rank"][rows["weight"] > 0.0], minlength=len(classes))
    if np.count_nonzero(of_rank) < 2:
        raise InputError(f"{source.name}: {NO_PAIRS}")
    quota = max(1, sample_rows // int(np.count_nonzero(n_rows)))
    totals, drawn = RankTotals(of_rank), _draw_sample(source, n_rows, np.maximum(1, -(-n_rows // quota)))
    return FewRanks(totals.of_pairs, float(np.sum(of_rank)), *drawn, False, totals)


def _draw_sample(source: RowSource, n_rows: I64, strides: I64) -> tuple[Pairs, I64]:
    """Return every k-th row of positive weight of each rank, with k times its weight. strides: k for each rank.

    If the rows are shuffled, return as many rows from the start of the source, which can be read without the others.
    n_rows: the number of rows of positive weight of each rank.
    """
    seen, quotas = np.zeros(len(strides), np.int64), -(-n_rows // strides)
    chosen: list[Labelled] = []
    for every in _read_chunks(source):
        rows = every[every["weight"] > 0.0]
        order, counts = np.argsort(rows["rank"], kind="stable"), np.bincount(rows["rank"], minlength=len(strides))
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(seen, counts)
        is_first, is_kth = within < np.repeat(quotas, counts), within % np.repeat(strides, counts) == 0
        drawn = rows[np.sort(order[is_first if source.is_shuffled else is_kth])]
        drawn["weight"] *= strides[drawn["rank"]]
        chosen.append(drawn)
        seen += counts
    whole = np.concatenate(chosen)
    starts = np.array([0, len(whole)])
    return Pairs(whole["rank"].copy(), whole["weight"].copy(), starts), whole["row"].copy()
