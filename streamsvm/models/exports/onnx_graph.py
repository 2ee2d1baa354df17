"""Models as ONNX graphs, which onnxruntime and other runtimes execute.

The graph takes rows, (n, d) float32, and returns scores (n, 1) or (n, K), float64, and for classifiers the labels. All
sums are in float64. The scaling is a part of the graph:

    x' = (x - offset) * factor
    linear    F = x' W' + b
    kernel    F = k(x', Z) A' + b,    |x' - z|^2 = |x'|^2 + |z|^2 - 2 x'.z

The scores of all pairs of classes are turned into votes as in numeric.labels, and are also an output. Probabilities by
sigmoids, by a temperature, by the logistic loss or by softmax are another output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.kernels.kernel import Kernel
from streamsvm.models.calibration import CALIBRATIONS, find_calibration
from streamsvm.models.evaluate import has_probabilities
from streamsvm.models.exports.export import Exported
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.labels import LARGEST_CONFIDENCE, count_pairs, list_pairs
from streamsvm.numeric.rows import F64, to_dense
from streamsvm.problems.registry import SOFTMAX
from streamsvm.system.errors import InputError

OPSET, IR_VERSION = 17, 8  # from 2022; current runtimes support them
MOST_BYTES = 1 << 31  # the largest ONNX file
NO_FUNCTION = "the probabilities are omitted: ONNX has no operator for isotonic functions"


@dataclass
class Graph:
    """A graph under construction: its nodes, and its constants by name."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def hold(self, values: Any) -> str:
        """Add a constant, and return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(values)
        return name

    def add(self, operator: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """Add an operator, and return the name of its output.

        inputs: the names of inputs, or the values of new constants.
        """
        from onnx import helper

        names = [each if isinstance(each, str) else self.hold(each) for each in inputs]
        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name


def write_onnx(model: Model) -> Exported:
    """Return a model as the bytes of an ONNX file.

    Raises InputError for precomputed kernels and models that are too large.
    """
    try:
        import onnx
    except ModuleNotFoundError:
        raise InputError("--to onnx needs the package onnx: pip install 'streamsvm[onnx]'") from None
    if isinstance(model, KernelModel) and model.is_of_known_values:
        raise InputError("an ONNX file cannot hold a model with a precomputed kernel; choose --to libsvm or --to json")
    if _count_bytes(model) > MOST_BYTES:
        raise InputError("the weights or support vectors are too large for an ONNX file; choose another format")
    number = onnx.TensorProto.DOUBLE
    graph, outputs = Graph(), {"scores": (number, ["n", math.prod(model.score_shape)])}
    if isinstance(model, KernelModel) and model.n_support is not None:
        outputs["pairs"] = (number, ["n", count_pairs(len(model.classes))])
    _add_scores(graph, model)
    if model.problem.predicts_labels and not model.problem.has_label_sets:
        outputs["label"] = (_add_labels(graph, model.classes, bool(model.score_shape)), ["n"])
    way = find_calibration(model.info)
    if way in ("sigmoid", "temperature") or (way is None and has_probabilities(model)):
        _add_probabilities(graph, model)
        outputs["probabilities"] = (number, ["n", len(model.classes)])
    content = _make_file(graph, model.n_trained, outputs)
    return Exported(iter([content]), (NO_FUNCTION,) if way == "isotonic" else ())


def _count_bytes(model: Model) -> int:
    """Return the size of the constants in bytes; sparse support vectors are stored densely."""
    return 8 * (model.coef.size if isinstance(model, LinearModel) else model.support_vectors.shape[0] * model.n_trained)


def _add_scores(graph: Graph, model: Model) -> None:
    rows = graph.add("Cast", "rows", to=11)  # to float64
    if model.scaling is not None:
        rows = graph.add("Mul", graph.add("Sub", rows, model.scaling.offset), model.scaling.factor)
    intercept = graph.hold(np.atleast_1d(np.asarray(model.intercept, np.float64)))
    if isinstance(model, LinearModel):
        sums = graph.add("MatMul", rows, np.atleast_2d(model.coef).T)
        graph.add("Add", sums, intercept, output="scores")
        return
    vectors = model.support_vectors
    Z = to_dense(vectors).astype(np.float64)
    of_pairs = model.n_support is not None
    coefs = np.atleast_2d(model.list_pairs().dual_coef)
    sums = graph.add("MatMul", _add_kernel(graph, model.kernel, rows, Z), coefs.T)
    graph.add("Add", sums, intercept, output="pairs" if of_pairs else "scores")
    if of_pairs:
        _add_votes(graph, len(model.classes))


def _add_kernel(graph: Graph, kernel: Kernel, rows: str, Z: F64) -> str:
    """Add nodes that compute the kernel values of the rows and of Z; return the name of their output."""
    if kernel.name == "linear":
        return graph.add("MatMul", rows, Z.T)
    if kernel.name == "rbf":
        squares = graph.add("ReduceSumSquare", rows, axes=[1], keepdims=1)
        sums = graph.add("Add", graph.add("MatMul", rows, -2.0 * Z.T), squares)
        return graph.add("Exp", graph.add("Mul", graph.add("Add", sums, np.sum(Z**2, axis=1)), -float(kernel.gamma)))
    inner = graph.add("Add", graph.add("MatMul", rows, kernel.gamma * Z.T), float(kernel.coef0))
    return graph.add("Tanh", inner) if kernel.name == "sigmoid" else graph.add("Pow", inner, float(kernel.degree))


def _add_votes(graph: Graph, n_classes: int) -> None:
    """Add the votes for each class.

    To break ties, s / (3 (|s| + 1)) is added, where s is the sum of the class's scores.
    """
    first, second = (np.eye(n_classes)[[pair[side] for pair in list_pairs(n_classes)]] for side in (0, 1))
    is_first = graph.add("Cast", graph.add("GreaterOrEqual", "pairs", 0.0), to=11)
    votes = graph.add("Add", graph.add("MatMul", is_first, first - second), second.sum(axis=0))
    sums = graph.add("MatMul", "pairs", first - second)
    most = graph.add("Add", graph.add("Abs", sums), 1.0)
    share = graph.add("Div", sums, graph.add("Mul", most, float(LARGEST_CONFIDENCE)))
    graph.add("Add", votes, share, output="scores")


def _add_labels(graph: Graph, classes: np.ndarray, several: bool) -> int:
    """Add the label of each row, and return its type."""
    from onnx import TensorProto

    if several:
        codes = graph.add("ArgMax", "scores", axis=1, keepdims=0)
    else:
        codes = graph.add("Reshape", graph.add("Cast", graph.add("Greater", "scores", 0.0), to=7), np.array([-1]))
    kind, dtype = {"U": (TensorProto.STRING, object), "f": (TensorProto.DOUBLE, np.float64)}.get(
        classes.dtype.kind, (TensorProto.INT64, np.int64)
    )
    graph.add("Gather", classes.astype(dtype), codes, output="label")
    return int(kind)


def _add_probabilities(graph: Graph, model: Model) -> None:
    """Add the probability of each class, by sigmoids, a temperature or softmax, as in models.evaluate."""
    several = bool(model.score_shape)
    way, key = find_calibration(model.info), CALIBRATIONS["temperature"].key
    if way == "temperature" or (way is None and model.loss == SOFTMAX):
        beta = float(model.info[key]["beta"]) if way else 1.0
        sides = beta * np.eye(len(model.classes)) if several else np.array([[-beta, beta]])
        graph.add("Softmax", graph.add("MatMul", "scores", sides), axis=1, output="probabilities")
        return
    found = model.info.get(CALIBRATIONS["sigmoid"].key, {"A": [-1.0], "B": [0.0]})
    A, B = (-np.array(found[name]) for name in ("A", "B"))
    each = graph.add("Sigmoid", graph.add("Add", graph.add("Mul", "scores", A), B))
    if model.problem.has_label_sets:
        graph.add("Identity", each, output="probabilities")
    elif several:
        sums = graph.add("MatMul", each, np.ones((len(model.classes), 1)))
        is_known = graph.add("Greater", sums, 0.0)
        shares = graph.add("Div", each, graph.add("Where", is_known, sums, 1.0))
        graph.add("Where", is_known, shares, 1.0 / len(model.classes), output="probabilities")
    else:
        graph.add("Concat", graph.add("Sub", 1.0, each), each, axis=1, output="probabilities")


def _make_file(graph: Graph, n_features: int, outputs: dict[str, tuple[int, list[Any]]]) -> bytes:
    import onnx
    from onnx import helper, numpy_helper

    rows = helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["n", n_features])
    told = [helper.make_tensor_value_info(name, *about) for name, about in outputs.items()]
    constants = [numpy_helper.from_array(values, name) for name, values in graph.constants.items()]
    made = helper.make_graph(graph.nodes, "streamsvm", [rows], told, constants)
    file = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    file.producer_name = "streamsvm"
    content: bytes = file.SerializeToString(deterministic=True)
    return content
