"""The export of models to files of other programs, and helpers that several writers share.

Other programs score raw rows x, while a model may have been trained on scaled rows, x' = (x - o) * s. The scaling is
therefore folded into the weights of a linear model (numeric.stored_types), or into the support vectors of a linear
kernel:

    sum_j c_j z_j.x' + b = sum_j c_j (s * z_j).x + b - sum_j c_j (s * z_j).o

Other kernels of scaled rows are not kernels of raw rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from streamsvm.data.store.destination import check_file, new_file
from streamsvm.kernels.kernel import combine_rows
from streamsvm.models.exports.formats import FORMATS
from streamsvm.models.model import Intercept, KernelModel, LinearModel, Model
from streamsvm.numeric.labels import sum_by_class
from streamsvm.numeric.rows import F64, CsrRows, compute_scores
from streamsvm.system.errors import InputError, require_known


def export(model: Model, out: str | Path, to: str, overwrite: bool = False) -> tuple[str, ...]:
    """Write a model to a file for another program, completely or not at all.

    The other program gives raw rows the same scores as the model: a scaling of the training rows is folded into the
    weights of linear models, x' = (x - o) * s:

        w.x' + b = (w * s).x + b - (w * s).o

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    out : path or URL of an object
    to : {"liblinear", "libsvm", "onnx", "csv", "json"}
        The format: a model file of LIBLINEAR or LIBSVM, a graph of ONNX, a table of the weights, or a description.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Returns
    -------
    tuple of str
        Sentences about information that the format cannot hold, such as class names.

    Raises
    ------
    InputError
        If the format cannot hold the model, or if the file cannot be written.
    """
    require_known("format", to, FORMATS)
    write: Callable[[Model], Exported] = resolve_name(FORMATS[to].writer)
    if model.features is not None:
        raise InputError(
            "no format of `export` can hold the feature map of this model: use `predict`, or train without --map"
        )
    check_file(out, overwrite)
    exported = write(model)
    with new_file(out, overwrite) as file:
        for part in exported.parts:
            file.write(part if isinstance(part, bytes) else part.encode())
    return exported.notes


BLOCK = 4096  # number of features that are formatted at a time
MOST_LISTED_CLASSES = 10
ONLY_SCORES = "the ranking is written as a regression, which predicts the score"
LABELS = np.iinfo(np.int32)  # LIBLINEAR and LIBSVM read labels as 32-bit integers


@dataclass(frozen=True)
class Exported:
    """The contents of the file of an exported model.

    parts: the contents as text or bytes, generated while they are written. notes: sentences about differences from the
    model and about omissions.
    """

    parts: Iterator[str] | Iterator[bytes]
    notes: tuple[str, ...] = ()


def write_lines(table: F64) -> Iterator[str]:
    """Yield a line for each row of numbers, (n, k); reading the numbers back gives the same bits."""
    for at in range(0, len(table), BLOCK):
        yield "".join(" ".join(map(repr, row)) + "\n" for row in table[at : at + BLOCK].tolist())


def number_classes(model: Model) -> tuple[list[int], tuple[str, ...]]:
    """Return the classes as the integer labels of LIBLINEAR and LIBSVM, and a note if the classes had to be numbered.

    Classes that are whole numbers within 32 bits are kept; otherwise the classes are numbered from 0 in their order.
    Raises InputError for sets of labels, since LIBLINEAR and LIBSVM predict one label per row.
    """
    if model.problem.has_label_sets:
        raise InputError(
            "the model predicts sets of labels, but this format holds one label for each row; choose --to onnx, "
            "--to csv or --to json"
        )
    classes = model.classes
    if classes.dtype.kind in "iufb":
        numbers = classes.astype(np.float64)
        if np.array_equal(numbers, np.round(numbers)) and LABELS.min <= numbers.min() <= numbers.max() <= LABELS.max:
            return [int(number) for number in numbers], ()
    listed = [f"{code} is {name}" for code, name in enumerate(classes.tolist()[:MOST_LISTED_CLASSES])]
    more = ", and so on" if len(classes) > MOST_LISTED_CLASSES else ""
    note = f"its labels are whole numbers, so the classes are numbered in their order: {', '.join(listed)}{more}"
    return list(range(len(classes))), (note,)


def require_finite(*parts: F64 | Intercept | Any) -> None:
    """Raise InputError if a weight is not finite; folding in the scaling can overflow finite weights."""
    if not all(np.isfinite(part).all() for part in parts):
        raise InputError("some weights for raw rows are too large for float64; ingest with another --scale, or without")


def to_raw(model: Model) -> Model:
    """Return a model that gives raw rows the scores that `model` gives scaled rows.

    Raises InputError if there is no such model.
    """
    scaling = model.scaling
    if scaling is None:
        return model
    if isinstance(model, LinearModel):
        coef, intercept = scaling.to_raw(model.coef, model.intercept)
        return replace(model, coef=coef, intercept=intercept, scaling=None)
    if model.kernel.name != "linear":
        raise InputError(
            f"the rows were scaled (--scale {scaling.kind}), and a kernel {model.kernel.name} of scaled rows is not a "
            "kernel of raw rows, but this format holds no scaling; choose --to onnx or --to json, which hold the "
            "scaling, or train on rows that were ingested without --scale"
        )
    vectors, factor = model.support_vectors, scaling.factor
    scaled: Any = (
        replace(vectors, data=vectors.data.astype(np.float64) * factor[vectors.indices])  # type: ignore[arg-type]
        if isinstance(vectors, CsrRows)
        else vectors.astype(np.float64) * factor
    )
    coefs, moved = model.dual_coef, compute_scores(scaled, scaling.offset[None, :])[:, 0]  # (s * z_j).o
    if model.n_support is None:
        sums = coefs @ moved
    else:
        sums = sum_by_class(model.n_support, 1, lambda block: (coefs[:, block] @ moved[block])[None, :])[0]
    return replace(model, support_vectors=scaled, intercept=model.intercept - sums, scaling=None)


def to_weights(model: Model) -> LinearModel:
    """Return weights and bias for raw rows. Raises InputError naming other formats if the model has none."""
    if isinstance(model, LinearModel):
        found = to_raw(model)
        assert isinstance(found, LinearModel)
        return found
    if model.kernel.name != "linear":
        raise InputError(
            f"a model with the kernel {model.kernel.name} has no weights; choose --to libsvm, --to onnx or --to json"
        )
    if model.n_support is not None:
        raise InputError(
            "a model of all pairs of classes has no weights for each class; choose --to libsvm, --to onnx or "
            "--to json, or train with --multi-class ovr"
        )
    raw = to_raw(model)
    assert isinstance(raw, KernelModel)
    rows = [combine_rows(raw.support_vectors, coef) for coef in np.atleast_2d(raw.dual_coef)]
    w = np.stack(rows) if raw.dual_coef.ndim > 1 else rows[0]
    return LinearModel(
        coef=w, intercept=raw.intercept, classes=raw.classes, feature_names=raw.feature_names, info=raw.info
    )
