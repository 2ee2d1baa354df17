"""How true probabilities are: Brier score, log loss and a reliability curve, added up while rows are scored.

    Brier score = mean of sum_k (p_k - [y = k])^2,  halved for two classes;    log loss = - mean of log p_y

The curve puts rows into BINS by the probability of classes[1], or, of more than two classes, of the likeliest one, and
compares the mean of that probability with the share of the rows of which it is true.

Of sets of labels every label of every row counts as a row of two classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.models.model import Model
from streamsvm.models.probabilities import find_probabilities
from streamsvm.numeric.rows import F64
from streamsvm.problems.problem import Scored

BINS = 10  # of equal width
LEAST = float(np.finfo(np.float64).eps)  # a probability of 0 has no logarithm


@dataclass
class Reliability:
    """Sums over the rows whose label the model knows.

    bins: (3, BINS), the number of rows in each bin, the sum of their probabilities, and how many of these are true.
    """

    n_rows: int = 0
    brier: float = 0.0
    log_loss: float = 0.0
    bins: F64 = field(default_factory=lambda: np.zeros((3, BINS)))

    def watch(self, model: Model, parts: Iterator[Scored]) -> Iterator[Scored]:
        """Yield the parts, and add each of them."""
        for part in parts:
            assert part.truth is not None
            if part.truth.ndim == 2:
                self.add_sets(find_probabilities(model, part.scores), part.truth)
            else:
                known = np.flatnonzero(part.truth >= 0)
                self.add(find_probabilities(model, part.scores[known]), part.truth[known])
            yield part

    def add_sets(self, found: F64, has: npt.NDArray[np.bool_]) -> None:
        """Add rows by the probabilities of their labels (n, L), and by which of them they have (n, L)."""
        for p, own in zip(found.T, has.T, strict=True):
            self.add(np.column_stack((1.0 - p, p)), own.astype(np.int32))

    def add(self, found: F64, codes: npt.NDArray[Any]) -> None:
        """Add rows by their probabilities (n, K) and the codes of their classes (n,)."""
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
