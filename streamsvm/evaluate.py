"""Evaluation: what a model's scores are worth on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.models import Model, RankModel
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rank_measures import mean_ndcg, mean_tau, swapped_pairs
from streamsvm.numeric.rows import F64, I64
from streamsvm.predict import choose, score

PLACES = (1, 5, 10)  # k of NDCG@k


def evaluate(
    model: Model, data: str | Path | RowSource, *, file_format: str | None = None, label: str | None = None,
    qid: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Accuracy, recall and precision by class, area under the ROC curve of labelled rows; see predict for `data`.

    Of a ranking: swapped pairs and Kendall's tau within queries, NDCG@k where there are queries (see
    numeric.rank_measures), and the area under the ROC curve for two ranks. qid: the column of a table with query ids.
    Holds 9 bytes a row, twice while they are joined; 24 for rankings. InputError without labels.
    """
    parts = list(score(model, data, True, file_format, label, qid))
    scores = np.concatenate([part.scores for part in parts])
    truth = np.concatenate([part.truth for part in parts if part.truth is not None])
    if isinstance(model, RankModel):
        ids = [part.qid for part in parts if part.qid is not None]
        return evaluate_ranking(scores, truth, np.concatenate(ids) if ids else None)
    return _evaluate_classes(model, scores, truth)


def _evaluate_classes(model: Model, scores: F64, truth: npt.NDArray[Any]) -> dict[str, Any]:
    predicted, known = choose(scores), truth >= 0
    per_class = {}
    for code, name in enumerate(model.classes.tolist()):
        right = int(np.count_nonzero((truth == code) & (predicted == code)))
        rows, chosen = int(np.count_nonzero(truth == code)), int(np.count_nonzero(predicted == code))
        recall, precision = right / rows if rows else None, right / chosen if chosen else None
        per_class[str(name)] = {"rows": rows, "recall": recall, "precision": precision}
    return {
        "n_rows": len(scores),
        "accuracy": float(np.mean(truth == predicted)),
        "roc_area": roc_area(scores[known], truth[known] == 1),
        "classes": per_class,
        "unknown_labels": int(np.count_nonzero(~known)),
    }


def evaluate_ranking(scores: F64, labels: F64, qid: I64 | None) -> dict[str, Any]:
    """Measure scores of rows with these ranks (NaN: unknown) and query ids; see `evaluate`."""
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
    """Share of (positive, negative) pairs in the right order, ties half; None unless both occur."""
    n_positive = int(np.count_nonzero(positive))
    n_negative = len(scores) - n_positive
    if not n_positive or not n_negative:
        return None
    swapped = swapped_pairs(scores, Pairs(positive.astype(np.int32), np.ones(len(scores)), np.array([0, len(scores)])))
    return None if swapped is None else 1.0 - swapped
