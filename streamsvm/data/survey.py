"""What the first read of the rows finds out: their shape, their classes, and the ranges of the features."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.checks import check_targets
from streamsvm.data.label_lists import LabelLists
from streamsvm.data.rounding import round_features
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.spill import as_matrix
from streamsvm.data.values import parse_number, show_text
from streamsvm.errors import InputError, NeedsOptionError
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.nonzeros import count_nonzeros
from streamsvm.numeric.rows import F64, CsrRows, Matrix
from streamsvm.numeric.scaling import FeatureStatistics

LOGGER = logging.getLogger("streamsvm")
MANY_CLASSES, FEW_ROWS = 100, 10  # more classes, of fewer rows each, are rather numbers or names


@dataclass
class Survey:
    """What the first read finds out about the rows. n_items counts stored values, which are non-zeros in dense rows.

    regression: whether labels are numbers to be predicted, which are kept as they are, and not classes. anchor (d,):
    what is subtracted from the features (data.rounding), and so is missing in the statistics; None is 0.
    """

    most_classes: int
    statistics: FeatureStatistics | None
    regression: bool = False
    n_rows: int = 0
    n_features: int = 0
    n_items: int = 0
    longest_row: int = 0
    fields: set[str] = field(default_factory=set)
    labels: set[float] = field(default_factory=set)
    texts: dict[str, int] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    anchor: F64 | None = None

    def add(self, rows: SourceRows, name: str) -> tuple[Matrix, dict[str, Any]]:
        """Take note of rows, and return their features and vectors as they are to be set aside."""
        X, raw = round_features(as_matrix(rows.X), self.anchor), as_matrix(rows.X)
        vectors: dict[str, Any] = {
            n: v for n in ("sample_weight", "qid", "groups") if (v := getattr(rows, n)) is not None
        }
        if not self.regression:
            rows.require_classes()
        if isinstance(rows.labels, LabelLists):
            if self.regression:
                raise InputError(f"{name}: rows have lists of labels; a regression needs one number for each row")
            vectors["label_sets"] = rows.labels
            self.labels.update(np.unique(rows.labels.values).tolist(), map(float, rows.labels.known or ()))
        elif rows.labels is not None and self.regression:
            if rows.labels.dtype.kind != "f":
                i = next((i for i, label in enumerate(rows.labels) if parse_number(label) is None), 0)
                shown, at = show_text(rows.labels[i]), self.n_rows + i + 1
                raise InputError(f"{name}: the label {shown!r} of row {at:,} is a text; a target is a number")
            check_targets(rows.labels, name)
            vectors["target"] = rows.labels
        elif rows.labels is not None:
            vectors["label"] = self._number_labels(rows.labels)
        if self.n_rows:
            self._require_fields(set(vectors), name)
        self.fields = set(vectors)
        self.n_rows += rows.n_rows
        self.n_features = max(self.n_features, X.shape[1])
        self.feature_names, self.encoding = rows.feature_names, rows.encoding
        self._count_items(X, raw)
        self._check_labels(name)
        return X, vectors

    def merge(self, other: Survey, name: str) -> None:
        """Take note of rows that another survey has seen, but for the statistics of their features."""
        if not other.n_rows:
            return
        if self.n_rows:
            self._require_fields(other.fields, name)
        self.fields, self.feature_names, self.encoding = other.fields, other.feature_names, other.encoding
        self.n_rows, self.n_items = self.n_rows + other.n_rows, self.n_items + other.n_items
        self.n_features = max(self.n_features, other.n_features)
        self.longest_row = max(self.longest_row, other.longest_row)
        self.labels |= other.labels
        for text in other.texts:
            self.texts.setdefault(text, len(self.texts))
        self._check_labels(name)

    def _require_fields(self, fields: set[str], name: str) -> None:
        if fields != self.fields:
            raise InputError(f"{name}: some rows have {', '.join(sorted(fields ^ self.fields))}, others do not")

    def _check_labels(self, name: str) -> None:
        if self.labels and self.texts:
            raise InputError(f"{name}: some labels are numbers, others are not")
        if len(self.labels) > self.most_classes or len(self.texts) > self.most_classes:
            raise NeedsOptionError(
                f"{name}: more than {self.most_classes:,} different labels; a class or rank is expected (if the labels "
                "are numbers to be predicted: --regression, or regression=True)"
            )

    def _number_labels(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        if labels.dtype.kind == "f":
            self.labels.update(np.unique(labels).tolist())
            return labels
        values, codes = np.unique(labels, return_inverse=True)
        numbers = [self.texts.setdefault(text, len(self.texts)) for text in values.tolist()]
        return np.asarray(numbers, np.float64)[codes]

    def _count_items(self, X: Matrix, raw: Any) -> None:
        if isinstance(X, CsrRows):
            self.n_items += len(X.data)
            self.longest_row = max(self.longest_row, int(np.diff(X.indptr).max(initial=0)))
            if self.statistics:
                self.statistics.grow(self.n_features)
                self.statistics.add_values(X.indices, X.data.astype(np.float64))
            return
        stored = X if self.anchor is None else round_features(raw, None)
        n_items, longest = count_nonzeros(np.require(stored, requirements=("C", "W")))
        self.n_items += n_items
        self.longest_row = max(self.longest_row, longest)
        if self.statistics:
            self.statistics.grow(self.n_features)
            self.statistics.add_dense(X.astype(np.float64))

    def classes(self) -> npt.NDArray[Any] | None:
        """Return the labels that occur, sorted, or None without labels."""
        if not self.fields & {"label", "label_sets"}:
            return None
        if self.texts:
            return np.array(sorted(self.texts))
        values = np.array(sorted(self.labels))
        if not len(values):  # no row has any label
            return values
        return (
            values.astype(np.int64) if np.all(values == np.floor(values)) and np.abs(values).max() < 2**53 else values
        )

    def list_classes(self) -> npt.NDArray[Any]:
        """Return the labels that occur, sorted; none without labels."""
        classes = self.classes()
        return np.zeros(0) if classes is None else classes

    def codes(self, labels: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Return the codes of labels that were set aside: the places of the labels in `classes`."""
        if self.texts:
            rank = np.empty(len(self.texts), np.int32)
            rank[[self.texts[text] for text in sorted(self.texts)]] = np.arange(len(self.texts))
            return rank[labels.astype(np.int64)]
        return np.searchsorted(np.array(sorted(self.labels)), labels).astype(np.int32)


def check_survey(survey: Survey, name: str, regression: bool, needs_two_classes: bool) -> None:
    """Raise InputError for rows that are of no use, and warn of labels that seem to be numbers or names of rows."""
    classes = survey.classes()
    if "label_sets" in survey.fields:
        if classes is None or len(classes) < 2:
            raise InputError(f"{name}: at least two labels are needed, of which rows may have any number")
    elif needs_two_classes and classes is not None and len(classes) < 2:
        raise NeedsOptionError(
            f"{name}: one class only: every row has the label {classes[0]}; rows of one class, for --task "
            "one-class, are stored without labels (--drop the column, and --unlabelled)"
        )
    elif classes is not None and len(classes) > MANY_CLASSES and survey.n_rows < FEW_ROWS * len(classes):
        LOGGER.warning(
            f"{name}: {len(classes):,} classes in {survey.n_rows:,} rows: if the labels are numbers to be "
            "predicted, say --regression; if this is another column, name that of the labels by --label"
        )
    if regression and "target" not in survey.fields:
        raise InputError(f"{name}: a regression needs a label in each row, which is a number")
    if not survey.n_items:
        raise InputError(f"{name}: every feature of every row is zero")
