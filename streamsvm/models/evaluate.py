"""Evaluation: measures of a model's scores on labelled rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.source import RowSource
from streamsvm.data.tables import Columns
from streamsvm.errors import InputError
from streamsvm.models.model import Model
from streamsvm.models.probabilities import has_probabilities
from streamsvm.models.reliability import Reliability
from streamsvm.models.scores import is_file_of_rows, recall_label, recall_queries, score
from streamsvm.numeric.rows import F64
from streamsvm.problems.problem import Scored


def evaluate(
    model: Model,
    data: str | Path | RowSource,
    *,
    file_format: str | None = None,
    label: str | None = None,
    qid: str | None = None,
    header: str = "auto",
    sep: str | None = None,
    decimal: str | None = None,
) -> dict[str, Any]:
    """Measure a model on labelled rows, which are read chunk by chunk. Every row counts once, whatever its weight.

    The scores of two classes are held, 12 bytes a row, and those of a ranking, 24 bytes a row; both are held twice
    while they are joined. While the areas and curves of two classes are found, about 110 bytes a row are needed.

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    data : path or dataset
        A dataset, its path, or a file that `ingest` reads.
    file_format : str, optional
        The format of a file; by default its name tells the format.
    label, qid : str, optional
        The columns of a table that hold the labels and the query ids. By default they are in the columns that held
        those of the training, if they were named there.
    header : {"auto", "yes", "no"}
        Whether the first row of CSV names the columns. "auto" decides by its cells.
    sep : str, optional
        The character that separates the columns of CSV. By default it is found out.
    decimal : {",", "."}, optional
        The decimal mark of numbers in CSV; by default the point.

    Returns
    -------
    dict
        For classes: n_rows, accuracy, roc_area and average_precision (of two classes, else None), classes (rows,
        recall, precision and f1 of each class), confusion (K rows of the true class, K columns of the predicted class,
        in the order of `classes`), unknown_labels (rows whose label the model does not know; they are in no row of the
        confusion), and curves (points of the ROC and precision-recall curves of two classes, else None; see
        problems.measures).
        If the model has probabilities, also brier_score, log_loss and reliability (see models.reliability).
        For sets of labels: n_rows, n_labels, f1_micro, f1_macro, hamming_loss, subset_accuracy, precision_at (k labels)
        and labels (rows, recall, precision and f1 of each), and of a model with probabilities brier_score, log_loss and
        reliability of all decisions; see problems.multi_label.
        For one class, whose rows need no labels: n_rows, novel_rate, false_alarm_rate, detection_rate, roc_area and
        unknown_labels (see problems.one_class).
        For a ranking: n_rows, n_queries, swapped_pairs and kendall_tau within queries, ndcg (by k, if there are
        queries), roc_area (of two ranks, else None), and unknown_labels. See numeric.rank_measures.

    Raises
    ------
    InputError
        If there are no labels, or none that the model knows, or if the rows do not suit the model.
    """
    label = label or recall_label(model, data, file_format)
    qid = qid or recall_queries(model, data, file_format)
    read_as = Columns(label=label, qid=qid, header=header, sep=sep, decimal=decimal)
    parts = score(model, data, model.problem.needs_labels, file_format, read_as)
    problem = model.problem
    if not (problem.predicts_labels and has_probabilities(model)):
        measured = problem.evaluate(parts, model.classes)
    else:
        reliability = Reliability()
        measured = problem.evaluate(reliability.watch(model, parts), model.classes)
        measured = {**measured, **reliability.as_json()}
    if problem.needs_labels and 0 < measured["n_rows"] == measured.get("unknown_labels"):
        name = data if isinstance(data, str | Path) else data.name
        known = ", ".join(map(str, model.classes[:5].tolist())) + (", ..." if len(model.classes) > 5 else "")
        raise InputError(
            f"{name}: no row has one of the labels that the model knows ({known}): is this the column of the "
            "labels (--label), and are these rows of the same kind?"
        )
    return measured


def judge_weighted_rows(
    model: Model, data: str | Path | RowSource, judge: Callable[[Scored], Any]
) -> tuple[Any, F64] | None:
    """Apply `judge` to all rows of a dataset. Return its results and the sample weights, or None without weights.

    judge: returns an array, (rows, ...), of the scores and labels of some rows; for classes whether a row is right.
    Raises InputError as `evaluate` does, and if all weights are zero.
    """
    if isinstance(data, str | Path) and is_file_of_rows(data, None):
        return None
    source = open_dataset(data, recall_label(model, data, None)) if isinstance(data, str | Path) else data
    weight = source.column("sample_weight")
    if weight is None:
        return None
    if not weight.any():
        raise InputError(f"{source.name}: the sample weights of all rows are zero, so that no row counts")
    found = np.concatenate([judge(part) for part in score(model, source, model.problem.needs_labels)])
    if model.problem.has_classes and not found.any():
        evaluate(model, source)  # raises the error of labels that are all unknown
    return found, weight
