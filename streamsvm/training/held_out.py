"""Any solver on some of the rows: those that are held out have weight 0, and are read all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.methods.altered import alter_rows, weigh
from streamsvm.methods.method import Algorithm, Report, TakeRows
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.requests import Solver

Flags = npt.NDArray[np.bool_]


class Kept:
    """The same rows, those that are not kept with weight 0. All else is theirs, but for what counts rows by class."""

    def __init__(self, source: RowSource, kept: Flags) -> None:
        self.source, self.kept = source, kept
        weight = source.column("sample_weight")
        self._weight: F64 = kept.astype(np.float64) if weight is None else weight * kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    @property
    def class_counts(self) -> I64 | None:
        """Rows of each class that are kept."""
        sums = self._sum(self.kept.astype(np.float64))
        return None if sums is None else sums.astype(np.int64)

    def sum_weights(self) -> F64 | None:
        """Sum of the sample weights of each class."""
        return self._sum(self._weight)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self._weight if name == "sample_weight" else self.source.column(name)

    def read(self, index: int) -> Rows:
        """See RowSource."""
        first, end = self.source.chunk_starts[index : index + 2]
        return weigh(self.source.read(index), self.kept[first:end])

    def take(self, rows: I64) -> Rows:
        """See RowSource."""
        return weigh(self.source.take(rows), self.kept[rows])

    def _sum(self, weight: F64) -> F64 | None:
        y, classes = self.source.column("y"), self.source.classes
        if y is None or classes is None:
            return None
        sums: F64 = np.bincount(y, weight, len(classes)).astype(np.float64)
        return sums


@dataclass(frozen=True)
class HeldOut:
    """See Algorithm; inner: a solver, made for the rows of `view`."""

    inner: Algorithm
    view: RowSource
    kept: Flags

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def name(self) -> str:
        """See Algorithm."""
        return self.inner.name

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm: a flag a row more."""
        return self.inner.shared_bytes(source) + source.n_rows

    def start_state(self, source: RowSource) -> Any:  # noqa: ARG002
        """See Algorithm."""
        return self.inner.start_state(self.view)

    def warm_state(self, source: RowSource, before: Any, factor: float) -> Any:  # noqa: ARG002
        """See Algorithm."""
        return self.inner.warm_state(self.view, before, factor)

    def solve(self, source: RowSource, state: Any) -> Solver:  # noqa: ARG002
        """See Algorithm."""
        return alter_rows(self.inner.solve(self.view, state), weigh, (self.kept,))

    def make_model(self, source: RowSource, state: Any, take: TakeRows) -> Model:
        """See Algorithm."""
        return self.inner.make_model(source, state, take)

    def report(self, state: Any) -> Report:
        """See Algorithm."""
        return self.inner.report(state)
