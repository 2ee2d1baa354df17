"""Evaluation: measures of a model's scores on labelled rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.models.model import Model, RankModel
from streamsvm.models.predict import Scored, choose, score
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rank_measures import mean_ndcg, mean_tau, swapped_pairs
from streamsvm.numeric.rows import F64, I64

PLACES = (1, 5, 10)  # k of NDCG@k


def evaluate(
    model: Model,
    data: str | Path | RowSource,
    *,
    file_format: str | None = None,
    label: str | None = None,
    qid: str | None = None,
    header: str = "auto",
) -> dict[str, Any]:
    """Measure a model on labelled rows, which are read chunk by chunk.

    The scores of two classes are held, 12 bytes a row, and those of a ranking, 24 bytes a row; both are held twice
    while they are joined.

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    data : path or dataset
        A dataset, its path, or a file that `ingest` reads.
    file_format : str, optional
        The format of a file; by default its name tells the format.
    label, qid : str, optional
        The columns of a table that hold the labels and the query ids.
    header : {"auto", "yes", "no"}
        Whether the first row of CSV names the columns. "auto" decides by its cells.

    Returns
    -------
    dict
        For classes: n_rows, accuracy, roc_area (of two classes, else None), classes (rows, recall and precision of each
        class), confusion (K rows of the true class, K columns of the predicted class, in the order of `classes`), and
        unknown_labels (rows whose label the model does not know; they are in no row of the confusion).
        For a ranking: n_rows, n_queries, swapped_pairs and kendall_tau within queries, ndcg (by k, if there are
        queries), roc_area (of two ranks, else None), and unknown_labels. See numeric.rank_measures.

    Raises
    ------
    InputError
        If there are no labels, or if the rows do not suit the model.
    """
    parts = score(model, data, True, file_format, label, qid, header)
    if isinstance(model, RankModel):
        scores, truth, ids = _join(parts)
        return evaluate_ranking(scores, truth, ids)
    return _evaluate_classes(model, parts)


def _join(parts: Iterable[Scored]) -> tuple[F64, Any, I64 | None]:
    """Return the scores, the labels and the query ids (or None) of all rows."""
    kept = list(parts)
    ids = [part.qid for part in kept if part.qid is not None]
    truth = np.concatenate([part.truth for part in kept if part.truth is not None])
    return np.concatenate([part.scores for part in kept]), truth, np.concatenate(ids) if ids else None


def _evaluate_classes(model: Model, parts: Iterable[Scored]) -> dict[str, Any]:
    """Return the measures of a classifier. The last row of the counts is for labels that the model does not know."""
    K, known = len(model.classes), list[Scored]()
    counts = np.zeros((K + 1) * K, np.int64)
    for part in parts:
        assert part.truth is not None
        truth = part.truth.astype(np.int64)
        counts += np.bincount(np.where(truth < 0, K, truth) * K + choose(part.scores), minlength=len(counts))
        if K == 2:
            known.append(Scored(part.scores[truth >= 0], part.truth[truth >= 0]))
    table = counts.reshape(K + 1, K)
    confusion, n_rows = table[:K], int(counts.sum())
    scores, codes, _ = _join(known) if known else (np.empty(0), np.empty(0), None)
    return {
        "n_rows": n_rows,
        "accuracy": int(np.trace(confusion)) / n_rows,
        "roc_area": roc_area(scores, codes == 1),
        "classes": {str(name): _describe_class(table, code) for code, name in enumerate(model.classes.tolist())},
        "confusion": confusion.tolist(),
        "unknown_labels": int(counts[K * K :].sum()),
    }


def _describe_class(table: I64, code: int) -> dict[str, Any]:
    """Return the rows, the recall and the precision of a class; a share of no rows is None."""
    right, rows, chosen = (int(n) for n in (table[code, code], table[code].sum(), table[:, code].sum()))
    return {"rows": rows, "recall": right / rows if rows else None, "precision": right / chosen if chosen else None}


def evaluate_ranking(scores: F64, labels: F64, qid: I64 | None) -> dict[str, Any]:
    """Return the measures of a ranking (see `evaluate`) for rows with these ranks, NaN if unknown, and query ids."""
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


def roc_area(scores: F64, positive: npt.NDArray[np.bool_]) -> float | None:
    """Return the share of (positive, negative) pairs in the right order, ties counted half; None without pairs."""
    n_positive = int(np.count_nonzero(positive))
    n_negative = len(scores) - n_positive
    if not n_positive or not n_negative:
        return None
    swapped = swapped_pairs(scores, Pairs(positive.astype(np.int32), np.ones(len(scores)), np.array([0, len(scores)])))
    return None if swapped is None else 1.0 - swapped
