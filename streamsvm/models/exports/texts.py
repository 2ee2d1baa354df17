"""Models as text: JSON (RFC 8259), which holds the whole model and its certificate, and CSV, a table of the weights.

The table has a line for each feature, and a last line for the bias. Cells are written so that spreadsheets do not read
them as formulas (data.tables.written).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from streamsvm.data.tables.written import write_cell
from streamsvm.kernels.names import PARAMETERS
from streamsvm.models.calibration import CALIBRATIONS, find_calibration
from streamsvm.models.exports.export import BLOCK, Exported, require_finite, to_weights
from streamsvm.models.model import KernelModel, LinearModel, Model, pack_scaling
from streamsvm.numeric.rows import CsrRows
from streamsvm.problems.registry import SOFTMAX
from streamsvm.system.errors import InputError

BIAS = "(bias)"
NO_FUNCTION = "the probabilities are omitted: the table holds only the weights"


def write_csv(model: Model) -> Exported:
    """Return the weights for raw rows as CSV. Raises InputError if the model has none."""
    linear = to_weights(model)
    require_finite(linear.coef, linear.intercept)
    return Exported(_write_table(linear), () if find_calibration(model.info) is None else (NO_FUNCTION,))


def _write_table(model: LinearModel) -> Iterator[str]:
    names = [f"weight {name}" for name in model.classes.tolist()] if model.score_shape else ["weight"]
    yield _write_line(["feature", *map(write_cell, names)])
    W = np.atleast_2d(model.coef).T
    for at in range(0, len(W), BLOCK):
        for j, weights in enumerate(W[at : at + BLOCK].tolist(), start=at):
            name = str(j + 1) if model.feature_names is None else write_cell(model.feature_names[j])
            yield _write_line([name, *map(repr, weights)])
    yield _write_line([BIAS, *map(repr, np.atleast_1d(model.intercept).tolist())])


def _write_line(cells: list[str]) -> str:
    return f"{','.join(cells)}\n"


FORMAT = "streamsvm model, version 1"
SCORES = {
    "linear": "f(x) = sum_j coef_j x'_j + intercept",
    "kernel": "f(x) = sum_i dual_coef_i k(x', z_i) + intercept, z_i = support_vectors_i",
}
KERNELS = {
    "linear": "k(x, z) = x.z",
    "poly": "k(x, z) = (gamma x.z + coef0)^degree",
    "rbf": "k(x, z) = exp(-gamma |x - z|^2)",
    "sigmoid": "k(x, z) = tanh(gamma x.z + coef0)",
    "precomputed": "k(x, z_i) = x_s, the value of the row at the place s = support_i, from 0",
}
CERTIFICATE = ("status", "objective", "lower_bound", "rounding_bound")


def write_json(model: Model) -> Exported:
    """Return the whole model as JSON, with the scaling separate from the weights."""
    facts = _describe(model).items()
    try:
        head = "".join(f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)},\n" for name, value in facts)
    except ValueError:
        raise InputError("the model has numbers that are not finite, and JSON cannot hold them") from None
    return Exported(_write(head, _list_arrays(model)))


def _write(head: str, arrays: dict[str, Any]) -> Iterator[str]:
    yield f"{{\n{head}"
    for k, (name, values) in enumerate(arrays.items()):
        yield f"{json.dumps(name)}: "
        yield from _write_rows(values) if isinstance(values, CsrRows) else _write_array(np.asarray(values))
        yield ",\n" if k + 1 < len(arrays) else "\n"
    yield "}\n"


def _describe(model: Model) -> dict[str, Any]:
    """Return the facts about the model and its training, without its arrays."""
    way = find_calibration(model.info)
    ways, kernel = {each.key for each in CALIBRATIONS.values()}, dict[str, Any]()
    if isinstance(model, KernelModel):
        name = model.kernel.name
        parameters = {each: value for each, value in asdict(model.kernel).items() if each in PARAMETERS[name]}
        kernel = {"kernel": {"name": name, "formula": KERNELS[name], **parameters}}
    return {
        "format": FORMAT,
        "kind": model.kind,
        "task": model.problem.name,
        "loss": model.loss,
        "score": SCORES["kernel" if isinstance(model, KernelModel) else "linear"],
        "decision": _explain(model),
        **kernel,
        "classes": model.classes.tolist(),
        "n_features": model.n_features,
        "feature_names": model.feature_names,
        "scaling": None if model.scaling is None else model.scaling.kind,
        "scaled": "x' = x" if model.scaling is None else "x'_j = (x_j - offset_j) factor_j",
        "probabilities": None if way is None else {"way": way, "of": model.info[CALIBRATIONS[way].key]},
        "certificate": {name: model.info.get(name) for name in CERTIFICATE},
        "training": {name: value for name, value in model.info.items() if name not in {*CERTIFICATE, *ways}},
    }


def _explain(model: Model) -> str:
    """Return a sentence about the meaning of the scores."""
    if not model.problem.predicts_labels:
        return "the score is the predicted number" if model.kind != "rank" else "higher ranks have higher scores"
    if model.problem.has_label_sets:
        return "a score for each label in classes; a row has the labels whose scores are above 0"
    if not model.score_shape:
        return "f(x) > 0 predicts classes[1]"
    if isinstance(model, KernelModel) and model.n_support is not None:
        return (
            "a score for each pair of classes (0, 1), (0, 2), ..., (1, 2), ...; f(x) > 0 is a vote for the first "
            "class. The first n_support[0] support vectors belong to class 0, and so on; dual_coef[r] of a support "
            "vector belongs to the pair of its class and the r-th of the other classes"
        )
    told = "; the probabilities of the classes are the softmax of the scores" * (model.loss == SOFTMAX)
    return f"a score for each class; the class with the highest score is predicted{told}"


def _list_arrays(model: Model) -> dict[str, Any]:
    """Return the arrays of the model by name. Each has up to two dimensions, or consists of sparse rows."""
    arrays = {**pack_scaling(model.scaling), "intercept": model.intercept}
    if not isinstance(model, KernelModel):
        return {**arrays, "coef": model.coef}
    vectors = None if model.is_of_known_values else model.support_vectors
    own = {"n_support": model.n_support, "support": model.support, "dual_coef": model.dual_coef}
    return arrays | {name: values for name, values in {**own, "support_vectors": vectors}.items() if values is not None}


def _write_array(values: np.ndarray) -> Iterator[str]:
    """Yield the JSON of an array: a number, a list of numbers, or a list of lists."""
    if values.ndim == 0:
        yield json.dumps(values.item(), allow_nan=False)
        return
    yield "["
    if values.ndim == 1:
        for at in range(0, len(values), BLOCK):
            yield ", " * (at > 0) + json.dumps(values[at : at + BLOCK].tolist(), allow_nan=False)[1:-1]
    else:
        for i, row in enumerate(values):
            yield ",\n" if i else "\n"
            yield from _write_array(row)
    yield "]"


def _write_rows(X: CsrRows) -> Iterator[str]:
    """Yield sparse rows as a list of objects, each with the indices of a row's features, from 0, and their values."""
    yield "["
    for i in range(X.shape[0]):
        items = slice(X.indptr[i], X.indptr[i + 1])
        row = {"indices": X.indices[items].tolist(), "values": X.data[items].tolist()}
        yield f"{',' * (i > 0)}\n{json.dumps(row, allow_nan=False)}"
    yield "]"
