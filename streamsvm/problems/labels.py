"""Codes of labels by the classes of a model: rows that it scores may write the same labels in another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.csv_cells import strip_guard

Codes = npt.NDArray[np.int32]


def code_as_classes(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Codes:
    """Return the place of each label among the classes, or -1 if none is equal to it as a value or as a text."""
    different, inverse = np.unique(labels, return_inverse=True)
    codes = np.full(len(different), -1, np.int32)
    for code, known in enumerate(classes.tolist()):
        codes[[_is_same_label(label, known) for label in different.tolist()]] = code
    return codes[inverse]


def _is_same_label(label: Any, known: Any) -> bool:
    """Compare labels as values or as texts; a text may have the guard that `predict` writes before cells of a table."""
    return bool(label == known) or _to_text(known) in (_to_text(label), strip_guard(_to_text(label)))


def _to_text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
