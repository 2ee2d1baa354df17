"""Evaluation: what a model's scores are worth on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamsvm.data.source import RowSource
from streamsvm.models.model import Model
from streamsvm.models.predict import score


def evaluate(
    model: Model, data: str | Path | RowSource, *, file_format: str | None = None, label: str | None = None,
    qid: str | None = None, header: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """Accuracy, recall and precision by class, their confusion and, of two classes, the area under the ROC curve.

    Of labelled rows; see predict for `data` and `header`. confusion: rows by class, a line for each true class, a
    column for each predicted one, in the order of `classes`; rows of other labels are in none.
    Of a ranking: swapped pairs and Kendall's tau within queries, NDCG@k where there are queries (see
    numeric.rank_measures), and the area under the ROC curve for two ranks. qid: the column of a table with query ids.
    Holds 12 bytes a row, twice while they are joined; 24 for rankings; none for K > 2 classes. InputError without
    labels.
    """
    parts = score(model, data, True, file_format, label, qid, header)
    return model.problem.evaluate(parts, model.classes)
