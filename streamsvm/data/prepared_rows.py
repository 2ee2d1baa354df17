"""Rows as ingest writes them: permuted, dense or sparse, scaled, with codes for labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.spill import SpilledRows, to_sparse
from streamsvm.data.survey import Survey
from streamsvm.data.writer import Shape
from streamsvm.errors import InputError
from streamsvm.numeric.narrow import load_widening, narrow, widen
from streamsvm.numeric.permute import permute_rows, permute_to_dense
from streamsvm.numeric.rows import CsrRows, Matrix, Rows
from streamsvm.numeric.scaling import Scaling


def prepare_rows(
    rows: SpilledRows, mine: npt.NDArray[np.int64], survey: Survey, shape: Shape, scaling: Scaling | None, name: str
) -> Rows:
    """Return some rows of a run as they are written: permuted, laid out, scaled and with codes for labels.

    Raises InputError, which begins with the name of the rows, for values that are not values of the stored type.
    """
    if scaling is not None and survey.anchor is not None:
        scaling = replace(scaling, offset=scaling.offset - survey.anchor)
    X = _scale(_lay_out(rows.X, mine, survey.n_features, shape.sparse), scaling)
    if shape.dtype != "float32":
        X = _narrow(X, shape.dtype, name)
    vectors = {name: values[mine] for name, values in rows.vectors.items()}
    if "label" in vectors:
        vectors["y"] = survey.codes(vectors.pop("label"))
    if "label_sets" in vectors:
        vectors["label_sets"] = vectors["label_sets"].to_bits(survey.classes())
    return Rows(0, X, **vectors)


def _lay_out(X: Matrix, mine: npt.NDArray[np.int64], n_features: int, sparse: bool) -> Matrix:
    """Return the rows with the given numbers, dense or sparse."""
    if isinstance(X, CsrRows) and not sparse:
        return permute_to_dense(X, mine, n_features)
    X = permute_rows(X, mine)
    if isinstance(X, CsrRows):
        return CsrRows(X.data, X.indices, X.indptr, n_features)
    return to_sparse(X) if sparse else X


def _scale(X: Matrix, scaling: Scaling | None) -> Matrix:
    if scaling is None:
        return X
    if isinstance(X, CsrRows):
        data = (X.data * scaling.factor[X.indices]).astype(np.float32)
        return CsrRows(data, X.indices, X.indptr, X.n_features)
    return ((X - scaling.offset) * scaling.factor).astype(np.float32)


def _narrow(X: Any, dtype: str, name: str) -> Any:
    """Return rows as they are stored. Raises InputError, which shows a value, unless all are values of the type."""
    load_widening(dtype)
    stored, wide = narrow(X, dtype), np.empty(X.shape, np.float32)
    widen(stored, wide)
    bad = wide != X
    if bad.any():
        i, j = divmod(int(np.argmax(bad)), X.shape[1])
        raise InputError(
            f"{name}: the value {X[i, j]!s} of feature {j + 1} is no {dtype}; ingest without --dtype, or round "
            "the values before"
        )
    return stored
