"""Held-out rows on which the model of a training is measured after each step.

The measure is that of `tune` (`measure_scores` in problems.problem): the fraction of correctly classified rows, F1 for
label sets, the negative mean absolute error, or the fraction of correctly ordered pairs. Greater is better. Measuring
reads no training rows, except the support vectors of a kernel model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamsvm.data.rows.source import RowSource
from streamsvm.models.model import Model
from streamsvm.models.score import score
from streamsvm.problems.problem import Labels, Problem, join_scored
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.machine import default_threads

ROW_BYTES = 12  # a row's label and its query id, if any
SCORE_BYTES = 8
COPIES = 2  # copies of the scores held at once while those of the chunks are joined


@dataclass(frozen=True)
class EvalSet:
    """The held-out rows, and the patience: training stops after this many steps without improvement (None: never)."""

    source: RowSource
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience is {self.patience}; it must be at least 1 step")

    def check(self, source: RowSource, problem: Problem) -> None:
        """Raise InputError unless the held-out rows have labels and the features of the training rows."""
        if None not in (source.encoding, self.source.encoding) and source.encoding != self.source.encoding:
            raise InputError(
                f"{self.source.name}: its columns are not encoded like those of the training rows; ingest it with "
                "--like and the training dataset (like=... in Python)"
            )
        if source.features is None and self.source.n_features != source.n_features:
            raise InputError(
                f"{self.source.name}: its rows have {self.source.n_features} features, but the training rows have "
                f"{source.n_features}"
            )
        if problem.needs_labels and self.source.classes is None and not self.source.has_targets:
            raise InputError(f"{self.source.name}: has no labels, which are needed to measure the model")

    def measure(self, model: Model) -> float:
        """Return the measure of a model on the rows. Raises InputError if the model cannot score them."""
        found = join_scored(score(model, self.source, need_labels=model.problem.needs_labels))
        if found.truth is None:  # training on one class needs no labels, but the measure does
            raise InputError(f"{self.source.name}: has no labels, which are needed to measure the model")
        return model.problem.measure_scores(found.scores, found.truth, found.qid)

    def count_bytes(self, problem: Problem, classes: Labels | None) -> int:
        """Return the bytes of memory for the scores of the rows and for the chunks read to compute them."""
        per_row = ROW_BYTES + SCORE_BYTES * problem.count_scores(0 if classes is None else len(classes))
        chunks = (default_threads() + 1) * max(map(self.source.chunk_bytes, range(self.source.n_chunks)))
        return COPIES * self.source.n_rows * per_row + chunks

    def has_waited(self, measures: Sequence[float]) -> bool:
        """Return whether the measure has not risen for `patience` steps."""
        if self.patience is None:
            return False
        best = max(range(len(measures)), key=lambda k: (measures[k], -k), default=0)
        return len(measures) - 1 - best >= self.patience

    def explain(self, measures: Sequence[float]) -> str:
        """Return why training was stopped."""
        steps = say_count(self.patience or 0, "step")
        return f"the measure on the rows of --eval has not risen for {steps}; the best was {max(measures):.6g}"
