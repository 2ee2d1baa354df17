"""Evaluation: measures of a model's scores on labelled rows, and of its probabilities.

    Brier score = mean of sum_k (p_k - [y = k])^2,  halved for two classes;    log loss = - mean of log p_y

The reliability curve sorts rows into BINS bins by the probability of classes[1] or, for more than two classes, of the
most probable class. In each bin, it compares the mean of this probability with the share of rows that are of the class.
With sets of labels, each label of each row counts as a row of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from streamsvm.data.tables.columns import Columns
from streamsvm.models.calibration import CALIBRATIONS, find_calibration, share_out
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64
from streamsvm.problems.problem import Problem, Scored, Scoring
from streamsvm.problems.registry import SOFTMAX
from streamsvm.system.errors import InputError, MemoryBudgetError, require_known
from streamsvm.system.machine import format_bytes, resident_bytes

if TYPE_CHECKING:
    from streamsvm.models.score import Data


WITH_PROBABILITIES = ("logistic", SOFTMAX)  # the losses whose scores are logarithms of odds or probabilities


def has_probabilities(model: Model) -> bool:
    """Return whether the scores of the model can be turned into probabilities."""
    return find_calibration(model.info) is not None or model.loss in WITH_PROBABILITIES


def require_probabilities(model: Model) -> None:
    """Raise InputError unless the scores of the model can be turned into probabilities."""
    if not has_probabilities(model):
        ways = "|".join(CALIBRATIONS)
        raise InputError(
            f"the model has no probabilities: train with --probabilities {ways}, with --loss logistic, or with "
            "--multi-class multinomial"
        )


def find_probabilities(model: Model, scores: F64) -> F64:
    """Return the probability of each class or label, (n, K), from scores (n,) for two classes, or (n, K).

    Raises InputError for a model that has neither a calibration nor a loss that determines probabilities.
    """
    name = find_calibration(model.info)
    if name is not None:
        way = CALIBRATIONS[name]
        return way.apply(model.info[way.key], scores, model.problem.has_label_sets)
    require_probabilities(model)
    if model.loss == SOFTMAX:
        return np.asarray(softmax(scores, axis=1), np.float64)
    if model.problem.has_label_sets:
        return np.asarray(expit(scores), np.float64)
    if scores.ndim == 1:
        return np.column_stack((expit(-scores), expit(scores)))
    return share_out(expit(scores))


BY_NAME = Columns()  # labels and query ids are in the columns with these names
MEASURED_BYTES = 160  # of each row: its score and label, concatenated, and what areas and curves take
BINS = 10  # bins of equal width
LEAST = float(np.finfo(np.float64).eps)  # a probability of 0 has no logarithm


@dataclass
class Reliability:
    """Sums over the rows with a label that the model knows.

    bins (3, BINS): for each bin, the number of its rows, the sum of their probabilities, and the number of its rows
    that are of the class.
    """

    n_rows: int = 0
    brier: float = 0.0
    log_loss: float = 0.0
    bins: F64 = field(default_factory=lambda: np.zeros((3, BINS)))

    def watch(self, model: Model, parts: Iterator[Scored]) -> Iterator[Scored]:
        """Yield the parts unchanged, and add each of them to the sums."""
        for part in parts:
            if part.labels.ndim == 2:
                self.add_sets(find_probabilities(model, part.scores), part.labels)
            else:
                known = np.flatnonzero(part.labels >= 0)
                self.add(find_probabilities(model, part.scores[known]), part.labels[known])
            yield part

    def add_sets(self, found: F64, has: npt.NDArray[np.bool_]) -> None:
        """Add rows, given the probabilities of labels (n, L), and whether the rows have them (n, L)."""
        for p, own in zip(found.T, has.T, strict=True):
            self.add(np.column_stack((1.0 - p, p)), own.astype(np.int32))

    def add(self, found: F64, codes: npt.NDArray[Any]) -> None:
        """Add rows, given their probabilities (n, K) and the codes of their classes (n,)."""
        truth = np.zeros_like(found)
        truth[np.arange(len(codes)), codes] = 1.0
        n_classes = found.shape[1]
        self.n_rows += len(codes)
        self.brier += float(np.sum((found - truth) ** 2)) / (2.0 if n_classes == 2 else 1.0)
        self.log_loss -= float(np.sum(np.log(np.maximum(found[np.arange(len(codes)), codes], LEAST))))
        told = np.ones(len(codes), np.intp) if n_classes == 2 else np.argmax(found, axis=1)
        p = found[np.arange(len(codes)), told]
        place = np.minimum((p * BINS).astype(np.intp), BINS - 1)
        weights = np.ones(len(codes)), p, (codes == told).astype(np.float64)
        self.bins += [np.bincount(place, each, BINS) for each in weights]

    def as_json(self) -> dict[str, Any]:
        """Return the measures by name; empty bins are left out."""
        curve = [
            {"rows": int(rows), "predicted": float(p / rows), "true": float(true / rows)}
            for rows, p, true in self.bins.T
            if rows
        ]
        n = max(1, self.n_rows)
        return {"brier_score": self.brier / n, "log_loss": self.log_loss / n, "reliability": curve}


def add_probabilities(found: F64, truth: npt.NDArray[Any]) -> F64:
    """Return the number of rows and the sums of their log losses and Brier scores, from probabilities and codes."""
    sums = Reliability()
    sums.add(found, truth)
    return np.array([sums.n_rows, sums.log_loss, sums.brier])


def measure_probabilities(sums: F64) -> dict[str, float | None]:
    """Return the measures of probabilities from the sums of `add_probabilities`."""
    n_rows, log_loss, brier = sums.tolist()
    return {"neg_log_loss": -log_loss / max(1.0, n_rows), "neg_brier_score": -brier / max(1.0, n_rows)}


OF_PROBABILITIES = Scoring(
    ("neg_log_loss", "neg_brier_score"), measure_probabilities, add_probabilities, of_probabilities=True
)


def find_scoring(name: str | None, problem: Problem, n_classes: int) -> Scoring:
    """Return the scoring whose only measure has this name; None: the default measure of the problem.

    Raises InputError, with the names of all measures of the problem, for an unknown name.
    """
    able = problem.list_scorings(n_classes)
    if problem.predicts_labels and problem.has_classes and not problem.has_label_sets:
        able = (*able, OF_PROBABILITIES)
    by_name = {each: scoring for scoring in able for each in scoring.names}
    name = next(iter(by_name)) if name is None else name
    require_known("scoring", name, by_name)
    return replace(by_name[name], names=(name,))


def evaluate(
    model: Model,
    data: Data,
    read_as: Columns = BY_NAME,
    file_format: str | None = None,
    unknown_features: str = "error",
    memory_bytes: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Measure a model on labelled rows, which are read chunk by chunk. Every row counts once, whatever its weight.

    The scores take 12 bytes per row for two classes, and 24 bytes for a ranking; they take twice as much while they are
    concatenated. Computing the areas and curves of two classes takes about 110 bytes per row.

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    data : path or dataset
        A dataset, its path, or a file that `ingest` reads.
    read_as : Columns, optional
        How to read a file: the columns of a table that hold the labels and the query ids (by default, the columns named
        in training, if any), and the syntax of CSV.
    file_format : str, optional
        The format of a file; by default its name decides.
    unknown_features : {"error", "ignore"}
        See `predict`.
    memory_bytes : int, optional
        See `predict`. The measures of a dataset are projected before it is read. The rows of a file are not counted
        beforehand, so the evaluation of a large file may end in the middle, once its measures would take too much.
    scheduler : str, optional
        See `predict`.

    Returns
    -------
    dict
        For classes: n_rows, accuracy, roc_area and average_precision (for two classes, else None), classes (rows,
        recall, precision and f1 of each class), confusion (K rows of the true class, K columns of the predicted class,
        in the order of `classes`), unknown_labels (rows whose label the model does not know; they are not part of
        confusion), and curves (points of the ROC and precision-recall curves of two classes, else None; see
        problems.problem).
        If the model has probabilities, also brier_score, log_loss and reliability (see models.evaluate).
        For sets of labels: n_rows, n_labels, f1_micro, f1_macro, hamming_loss, subset_accuracy, precision_at (k labels)
        and labels (rows, recall, precision and f1 of each); if the model has probabilities, also brier_score, log_loss
        and reliability of all decisions. See problems.classification.
        For one class, whose rows need no labels: n_rows, novel_rate, false_alarm_rate, detection_rate, roc_area and
        unknown_labels (see problems.nu).
        For a ranking: n_rows, n_queries, swapped_pairs and kendall_tau within queries, ndcg (by k, if there are
        queries), roc_area (for two ranks, else None), and unknown_labels. See losses.pairs.

    Raises
    ------
    InputError
        If the rows have no labels or only labels that the model does not know, or if the rows do not suit the model.
    """
    from streamsvm.models.score import (  # loads Zarr, which probabilities do without
        memory_kept_for,
        recall_column,
        score,
    )

    label = read_as.label or recall_column(model, "label", data, file_format)
    read_as = replace(read_as, label=label, qid=read_as.qid or recall_column(model, "qid", data, file_format))
    how = file_format, read_as, unknown_features, scheduler, memory_bytes
    parts = score(model, data, model.problem.needs_labels, *how)
    problem, reliability = model.problem, None
    if problem.predicts_labels and has_probabilities(model):
        reliability = Reliability()
        parts = reliability.watch(model, parts)
    row_bytes = 0 if len(model.classes) > 2 and problem.predicts_labels else MEASURED_BYTES
    with memory_kept_for(model, data, file_format, memory_bytes, row_bytes):
        measured = problem.evaluate(_watch_memory(parts, memory_bytes, row_bytes), model.classes)
    if reliability is not None:
        measured = {**measured, **reliability.as_json()}
    if problem.needs_labels and 0 < measured["n_rows"] == measured.get("unknown_labels"):
        name = data if isinstance(data, str | Path) else data.name
        known = ", ".join(map(str, model.classes[:5].tolist())) + (", ..." if len(model.classes) > 5 else "")
        raise InputError(
            f"{name}: no row has one of the labels that the model knows ({known}): is this the label column (--label), "
            "and are these rows of the same kind as the training rows?"
        )
    return measured


def _watch_memory(parts: Iterator[Scored], memory_bytes: int | None, row_bytes: int) -> Iterator[Scored]:
    """Yield the parts unchanged. Raises MemoryBudgetError once measures of the rows so far would take too much."""
    held, n_rows = resident_bytes(), 0
    for part in parts:
        n_rows += len(part.scores)
        if memory_bytes is not None and held + row_bytes * n_rows > memory_bytes:
            needed = format_bytes(held + row_bytes * n_rows)
            raise MemoryBudgetError(
                f"with the measures of the first {n_rows:,} rows, the process needs {needed}, but the limit is "
                f"{format_bytes(memory_bytes)}: raise --memory, or measure the model on fewer rows",
                held + row_bytes * n_rows,
            )
        yield part


def judge_weighted_rows(model: Model, data: Data, judge: Callable[[Scored], Any]) -> tuple[Any, F64] | None:
    """Apply `judge` to all rows of a dataset. Return its results and the sample weights, or None without weights.

    judge: maps the scores and labels of some rows to an array, (rows, ...); for classes, it flags the rows that are
    classified correctly. Raises InputError as `evaluate` does, and if all weights are zero.
    """
    from streamsvm.data.open import open_dataset  # loads Zarr, as does `score`
    from streamsvm.models.score import is_file_of_rows, recall_column, score

    if isinstance(data, str | Path) and is_file_of_rows(data, None):
        return None
    source = open_dataset(data, recall_column(model, "label", data, None)) if isinstance(data, str | Path) else data
    weight = source.column("sample_weight")
    if weight is None:
        return None
    if not weight.any():
        raise InputError(f"{source.name}: the sample weights of all rows are zero, so no row counts")
    found = np.concatenate([judge(part) for part in score(model, source, model.problem.needs_labels)])
    if model.problem.has_classes and not found.any():
        evaluate(model, source)  # raises InputError if all labels are unknown
    return found, weight
