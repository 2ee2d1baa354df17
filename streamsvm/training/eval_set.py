"""Rows that a training does not learn from, on which its model is measured after each step.

The measure is that by which `tune` compares models (problems.problem, `measure_scores`): the share of rows whose class
is right, or F1 of sets of labels, or minus the mean absolute error, or the share of pairs in the right order. More is
better. The rows of the training are not read for it, but for the support vectors of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError, say_count
from streamsvm.machine import default_threads
from streamsvm.methods.fit import Fit
from streamsvm.models.model import Model
from streamsvm.models.scores import score
from streamsvm.problems.problem import Labels, Problem, join_scored
from streamsvm.requests import MemoryNeed

ROW_BYTES = 12  # of a row: its label and, if it has one, its query id
SCORE_BYTES = 8
COPIES = 2  # while the chunks' scores are joined


@dataclass(frozen=True)
class EvalSet:
    """The rows, and the patience: after so many steps without a better measure the training stops; None for never."""

    source: RowSource
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience {self.patience}: a number of steps, from 1 on, is expected")

    def check(self, source: RowSource, problem: Problem) -> None:
        """Raise InputError unless these rows have the features of those that are learned from, and labels."""
        if None not in (source.encoding, self.source.encoding) and source.encoding != self.source.encoding:
            raise InputError(
                f"{self.source.name}: its table was encoded otherwise than that of the training; ingest it with --like "
                "and the dataset of the training (like=... in Python)"
            )
        if source.features is None and self.source.n_features != source.n_features:
            raise InputError(
                f"{self.source.name}: its rows have {self.source.n_features} features, and those of the training have "
                f"{source.n_features}"
            )
        if problem.needs_labels and self.source.classes is None and not self.source.has_targets:
            raise InputError(f"{self.source.name}: there are no labels to measure the model by")

    def measure(self, model: Model) -> float:
        """Return the measure of a model on the rows. Raises InputError if they do not suit the model."""
        found = join_scored(score(model, self.source, need_labels=model.problem.needs_labels))
        if found.truth is None:  # rows of one class need no labels to be trained on, but to be measured by
            raise InputError(f"{self.source.name}: there are no labels to measure the model by")
        return model.problem.measure_scores(found.scores, found.truth, found.qid)

    def add_memory(self, fit: Fit, problem: Problem, classes: Labels | None) -> Fit:
        """Return the fit, whose memory has room for the scores of the rows and the chunks that are read for them."""
        per_row = ROW_BYTES + SCORE_BYTES * problem.count_scores(0 if classes is None else len(classes))
        chunks = (default_threads() + 1) * max(map(self.source.chunk_bytes, range(self.source.n_chunks)))
        own = COPIES * self.source.n_rows * per_row + chunks

        def need(threads: int, memory: Callable[[int], MemoryNeed] = fit.memory) -> MemoryNeed:
            needed = memory(threads)
            return replace(needed, driver_bytes=needed.driver_bytes + own)

        return replace(fit, memory=need)

    def has_waited(self, measures: Sequence[float]) -> bool:
        """Tell whether the last steps, as many as the patience says, have brought no better measure."""
        if self.patience is None:
            return False
        best = max(range(len(measures)), key=lambda k: (measures[k], -k), default=0)
        return len(measures) - 1 - best >= self.patience

    def explain(self, measures: Sequence[float]) -> str:
        """Return why a training was stopped, as a sentence."""
        steps = say_count(self.patience or 0, "step")
        return f"the measure on the rows of --eval has not risen for {steps}: it was {max(measures):.6g} at best"
