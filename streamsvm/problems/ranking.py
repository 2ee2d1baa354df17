"""Rankings: the sum of hinge losses of pairs of rows is minimised (Joachims 2006, Algorithm 2).

    P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j)),      i of the higher rank

K is the cost of a pair of weight 1, and v_i is a weight of row i. "rank" compares the rows of each query, or all rows
where there are no queries; "roc-area" compares the rows of two classes. A row has one score, which is higher for
higher ranks. There is no bias, because it cancels in every pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rank_measures import mean_ndcg, mean_tau, swapped_pairs
from streamsvm.numeric.rows import F64, I64
from streamsvm.options import require_classes
from streamsvm.problems.classification import share_out
from streamsvm.problems.labels import code_as_classes
from streamsvm.problems.measures import roc_area
from streamsvm.problems.problem import Labels, Problem, Scored, join_scored
from streamsvm.problems.query_pairs import NO_PAIRS, require_ranks

PLACES = (1, 5, 10)  # values of k in NDCG@k


def find_pairs(source: RowSource, task: str) -> tuple[Pairs, float]:
    """Return the pairs and the sum of the rows' weights; labels, weights and query ids are read, but no features.

    With queries, the task "rank" pairs the rows of each query. A pair has the weight that all rows of the query have,
    so v_i is its square root (numeric.pair_counts multiplies v_i v_j). In all other cases any two rows may be a pair,
    of weight v_i v_j with v_i the sample weight, so that a row of weight 2 counts as two rows.

    InputError is raised for ranks that are not numbers, for "roc-area" without exactly two classes, for a query that
    occurs in two places or has two weights, and if there are no pairs.
    """
    require_comparable(source, task)
    ranks, weight = source.column("y"), source.column("sample_weight")
    assert ranks is not None
    weight = np.ones(source.n_rows) if weight is None else weight
    qid = source.column("qid") if task == "rank" else None
    starts, roots = np.array([0, source.n_rows]), weight
    if qid is not None:
        starts, roots = _find_queries(source.name, qid, weight), np.sqrt(weight)
    pairs = Pairs(ranks, roots, starts)
    if not pairs.total > 0.0:
        raise InputError(f"{source.name}: {NO_PAIRS}")
    return pairs, float(np.sum(weight))


def require_comparable(source: RowSource, task: str) -> Labels:
    """Return the classes of a source; raise InputError unless they are ranks, or two classes for "roc-area"."""
    classes = require_classes(source)
    if task == "roc-area" and len(classes) != 2:
        raise InputError(f"{source.name}: {say_count(len(classes), 'class')}; the area under the ROC curve is for two")
    if task == "rank":
        require_ranks(source)
    return classes


def _find_queries(name: str, qid: I64, weight: F64) -> I64:
    """Return the first row of each query, and the number of rows at the end."""
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(qid)) + 1))
    _, counts = np.unique(qid[firsts], return_counts=True)
    if np.any(counts > 1):
        again = np.sort(np.unique(qid[firsts], return_index=True)[1])
        row = int(firsts[np.setdiff1d(np.arange(len(firsts)), again)[0]])
        raise InputError(
            f"{name}: row {row + 1}: query {qid[row]} again, after others: its rows have to be together; sort the rows "
            "by their query"
        )
    uneven = np.flatnonzero((np.diff(qid) == 0) & (np.diff(weight) != 0))
    if len(uneven):
        raise InputError(f"{name}: row {uneven[0] + 2}: another weight than the rest of query {qid[uneven[0]]}")
    return np.append(firsts, len(qid))


def count_one(_: Any) -> int:
    """Return 1: there is one problem and one score for each row, however many ranks there are."""
    return 1


def code_labels(labels: Labels, classes: Labels) -> F64:
    """Return the labels as numbers; if the classes are texts, places among the classes, and NaN for unknown labels.

    InputError is raised if a label is a text where the classes are numbers.
    """
    if classes.dtype.kind in "biuf":
        try:
            return labels.astype(np.float64)
        except ValueError:
            raise InputError(f"a label is {str(labels[0])!r}, but ranks have to be numbers") from None
    codes = code_as_classes(labels, classes)
    return np.where(codes < 0, np.nan, codes)


def evaluate(parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:  # noqa: ARG001
    """Return the measures of `evaluate_ranking` for the scores of all parts together."""
    scored = join_scored(parts)
    assert scored.truth is not None
    return evaluate_ranking(scored.scores, scored.truth, scored.qid)


def evaluate_ranking(scores: F64, labels: F64, qid: I64 | None) -> dict[str, Any]:
    """Return measures of the scores of rows with these ranks (NaN is an unknown rank) and query ids.

    These are swapped pairs and Kendall's tau within queries, NDCG@k if there are queries (numeric.rank_measures), and
    the area under the ROC curve if there are two ranks.
    """
    known = np.isfinite(labels)
    scores, labels = scores[known], labels[known]
    starts = [0, len(labels)]
    if qid is not None:
        qid = qid[known]
        order = np.argsort(qid, kind="stable")
        scores, labels, qid = scores[order], labels[order], qid[order]
        starts = [0, *(np.flatnonzero(np.diff(qid)) + 1).tolist(), len(labels)]
    ranks, codes = np.unique(labels, return_inverse=True)
    pairs = Pairs(codes.astype(np.int32), np.ones(len(codes)), np.array(starts))
    places = PLACES if qid is not None else ()
    ndcg = mean_ndcg(scores, labels - np.min(labels, initial=np.inf), starts, places)
    return {
        "n_rows": len(known),
        "n_queries": None if qid is None else len(starts) - 1,
        "swapped_pairs": swapped_pairs(scores, pairs),
        "roc_area": roc_area(scores, codes == 1) if len(ranks) == 2 else None,
        "ndcg": {str(k): value for k, value in ndcg.items()},
        "kendall_tau": mean_tau(scores, labels, starts),
        "unknown_labels": int(np.count_nonzero(~known)),
    }


def measure_scores(scores: F64, ranks: npt.NDArray[Any], qid: I64 | None) -> float:
    """Return the share of pairs in the right order; a tie counts one half, and the share is 1 without any pair.

    Pairs are within queries, and the rows of a query follow one another.
    """
    starts = [0, len(ranks)] if qid is None else [0, *(np.flatnonzero(np.diff(qid)) + 1).tolist(), len(ranks)]
    swapped = swapped_pairs(scores, Pairs(ranks.astype(np.int32), np.ones(len(ranks)), np.array(starts)))
    return 1.0 if swapped is None else 1.0 - swapped


def draw_folds(source: RowSource, folds: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return the fold of each row: queries are drawn whole; without queries, each rank is spread evenly."""
    qid = source.column("qid")
    if qid is None:
        return _draw_without_queries(source, folds, rng)
    _, query = np.unique(qid, return_inverse=True)
    return np.asarray(rng.permutation(int(query.max()) + 1)[query] % folds, np.uint8)


def _draw_without_queries(source: RowSource, folds: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    y = source.column("y")
    assert y is not None
    return share_out(y, folds, rng)


RANK = Problem(
    name="rank",
    models=("rank",),
    predicts_labels=False,
    has_class_costs=False,
    reads_queries=True,
    count_problems=count_one,
    count_scores=count_one,
    code_labels=code_labels,
    evaluate=evaluate,
    draw_folds=draw_folds,
    measure_scores=measure_scores,
)
ROC_AREA = replace(RANK, name="roc-area", reads_queries=False, draw_folds=_draw_without_queries)
