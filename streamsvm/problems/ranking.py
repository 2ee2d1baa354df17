"""Rankings: the pairs of rows that a model is to put in order."""

from __future__ import annotations

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rows import F64, I64


def find_pairs(source: RowSource, task: str) -> tuple[Pairs, float]:
    """Return the pairs and the sum of the rows' weights; reads labels, weights and query ids, no features.

    "rank": pairs of a query; a query weighs as much as each of its rows (the root is in numeric.pair_counts, where
    weights are multiplied). "roc-area", and rows without queries: all pairs, of weight v_i v_j, so that a row of
    weight 2 is worth two. InputError for labels that are no numbers, other than two classes for "roc-area", a query
    in two places or of two weights, and where there are no pairs.
    """
    ranks, weight = source.column("y"), source.column("sample_weight")
    if ranks is None or source.classes is None:
        raise InputError(f"{source.name}: no labels to learn from")
    if task == "roc-area" and len(source.classes) != 2:
        raise InputError(f"{source.name}: {len(source.classes)} classes; the area under the ROC curve is for two")
    if task == "rank" and np.asarray(source.classes).dtype.kind not in "biuf":
        raise InputError(f"{source.name}: labels are {str(source.classes[0])!r}, ..; ranks have to be numbers")
    weight = np.ones(source.n_rows) if weight is None else weight
    qid = source.column("qid") if task == "rank" else None
    starts, roots = np.array([0, source.n_rows]), weight
    if qid is not None:
        starts, roots = _find_queries(source.name, qid, weight), np.sqrt(weight)
    pairs = Pairs(ranks, roots, starts)
    if not pairs.total > 0.0:
        raise InputError(f"{source.name}: no two rows to compare: one class only, in each query or at all")
    return pairs, float(np.sum(weight))


def _find_queries(name: str, qid: I64, weight: F64) -> I64:
    """Return where each query starts, and the number of rows."""
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(qid)) + 1))
    _, counts = np.unique(qid[firsts], return_counts=True)
    if np.any(counts > 1):
        again = np.sort(np.unique(qid[firsts], return_index=True)[1])
        row = int(firsts[np.setdiff1d(np.arange(len(firsts)), again)[0]])
        raise InputError(f"{name}: row {row + 1}: query {qid[row]} again, after others: its rows have to be together")
    uneven = np.flatnonzero((np.diff(qid) == 0) & (np.diff(weight) != 0))
    if len(uneven):
        raise InputError(f"{name}: row {uneven[0] + 2}: another weight than the rest of query {qid[uneven[0]]}")
    return np.append(firsts, len(qid))
