"""Multi-label classification: each row has any number of L labels, and each label is a problem of its own.

    P_k(w, b) = 1/2 |w|^2 + sum_i C_ik l(y_ik (w.x_i + b)),      C_ik = C * class_weight[y_ik] * sample_weight_i

y_ik is +1 if row i has label k, and -1 otherwise. A row is given the labels whose scores are above 0. P, D and the
rounding are sums over the labels; every label has its own gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.label_lists import LabelLists
from streamsvm.data.source import RowSource
from streamsvm.numeric.rows import F64, I64
from streamsvm.problems.classification import CLASSIFY, choose_labels
from streamsvm.problems.problem import Labels, Scored
from streamsvm.problems.regression import draw_folds

PRECISION_AT = (1, 3, 5)


def count_problems(source: RowSource) -> int:
    """Return the number of labels."""
    return 0 if source.classes is None else len(source.classes)


def count_scores(n_labels: int) -> int:
    """Return the number of scores of a row: one for each label."""
    return n_labels


def code_labels(labels: Any, classes: Labels) -> npt.NDArray[Any]:
    """Return which of the labels `classes` rows have, (n, L); of the labels of a source, the place of each class.

    The place of a label that the source does not have is -1.
    """
    if isinstance(labels, LabelLists):
        return labels.to_flags(classes)
    known = {label: place for place, label in enumerate(np.asarray(labels).tolist())}
    return np.array([known.get(label, -1) for label in classes.tolist()], np.int64)


def evaluate(parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:
    """Return F1 (of all decisions, and the labels' mean), Hamming loss, accuracy of whole sets, and precision at k.

    Precision at k is the share of the k labels with the highest scores that a row has, as a mean over the rows.
    """
    L = len(classes)
    right, chosen, true = np.zeros((3, L), np.int64)
    n_rows, whole, at = 0, 0, {k: 0 for k in PRECISION_AT if k <= L}
    for part in parts:
        assert part.truth is not None
        truth, given = part.truth, choose_labels(part.scores)
        right, chosen, true = right + (truth & given).sum(0), chosen + given.sum(0), true + truth.sum(0)
        n_rows, whole = n_rows + len(truth), whole + int(np.count_nonzero((truth == given).all(axis=1)))
        most = max(at)
        best = np.argpartition(-part.scores, most - 1, axis=1)[:, :most] if most < L else np.argsort(-part.scores)
        order = np.take_along_axis(best, np.argsort(-np.take_along_axis(part.scores, best, 1), 1, "stable"), 1)
        hits = np.take_along_axis(truth, order, 1)
        at = {k: n + int(hits[:, :k].sum()) for k, n in at.items()}
    sizes, wrong = true + chosen, int((true + chosen - 2 * right).sum())
    f1 = np.divide(2 * right, sizes, out=np.zeros(L), where=sizes > 0)
    described = zip(classes.tolist(), true.tolist(), right.tolist(), chosen.tolist(), f1.tolist(), strict=True)
    return {
        "n_rows": n_rows,
        "n_labels": L,
        "f1_micro": float(2 * right.sum() / sizes.sum()) if sizes.sum() else 0.0,
        "f1_macro": float(f1.mean()),
        "hamming_loss": wrong / (n_rows * L),
        "subset_accuracy": whole / n_rows,
        "precision_at": {str(k): n / (k * n_rows) for k, n in at.items()},
        "labels": {str(name): _describe_label(*counts) for name, *counts in described},
    }


def _describe_label(rows: int, right: int, chosen: int, f1: float) -> dict[str, Any]:
    """Return the rows, recall, precision and F1 of a label; a ratio is None where its divisor is zero."""
    recall, precision = (right / rows if rows else None), (right / chosen if chosen else None)
    return {"rows": rows, "recall": recall, "precision": precision, "f1": f1}


def measure_tile(scores: F64, truth: npt.NDArray[Any]) -> tuple[float, float]:
    """Return twice the number of labels that are given rightly, and the labels that are given and that there are."""
    given = choose_labels(scores)
    return 2.0 * np.count_nonzero(given & truth), float(np.count_nonzero(given) + np.count_nonzero(truth))


def measure_scores(scores: F64, truth: npt.NDArray[Any], qid: I64 | None) -> float:  # noqa: ARG001
    """Return F1 over all decisions (scikit-learn's "f1_micro"); 0 where no label is given and there is none."""
    right, sizes = measure_tile(scores, truth)
    return right / sizes if sizes else 0.0


MULTI_LABEL = replace(
    CLASSIFY,
    name="multi-label",
    models=("linear",),
    has_label_sets=True,
    count_problems=count_problems,
    count_scores=count_scores,
    code_labels=code_labels,
    evaluate=evaluate,
    draw_folds=draw_folds,
    measure_scores=measure_scores,
    measure_tile=measure_tile,
    measure="F1 of held-out rows",
    error="1 - F1 of held-out rows",
)
