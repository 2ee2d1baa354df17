"""Models as graphs of ONNX, which onnxruntime and others carry out.

The graph takes rows, (n, d) float32, and returns scores (n, 1) or (n, K), float64, and for classifiers the labels. All
sums are in float64. The scaling is a part of the graph:

    x' = (x - offset) * factor
    linear    F = x' W' + b
    kernel    F = k(x', Z) A' + b,    |x' - z|^2 = |x'|^2 + |z|^2 - 2 x'.z

The scores of all pairs of classes are turned into votes as numeric.pairs_of_classes does it, and are an output as well.
Probabilities of sigmoids, of a temperature and of the logistic loss are another output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.errors import InputError
from streamsvm.models.exports.exported import Exported
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.calibration import CALIBRATIONS, find_calibration
from streamsvm.numeric.pairs_of_classes import LARGEST_CONFIDENCE, count_pairs, expand, list_pairs
from streamsvm.numeric.rows import F64, CsrRows, to_dense

OPSET, IR_VERSION = 17, 8  # of 2022, which runtimes of today know
MOST_BYTES = 1 << 31  # of a file of ONNX
NO_FUNCTION = "the probabilities are left out: those of isotonic functions have no operator of ONNX"


@dataclass
class Graph:
    """A graph that is being made: its nodes, and its constants by name."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def hold(self, values: Any) -> str:
        """Return the name of a new constant."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(values)
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Return the name of what an operator makes of its inputs."""
        from onnx import helper

        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name


def write_onnx(model: Model) -> Exported:
    """Return a model as the bytes of an ONNX file; InputError if its kernel is not known, or if it is too large."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise InputError("--to onnx needs the package onnx: pip install 'streamsvm[onnx]'") from None
    if isinstance(model, KernelModel) and model.is_of_known_values:
        raise InputError("rows of a kernel matrix that was given are no features; choose --to libsvm or --to json")
    if _count_bytes(model) > MOST_BYTES:
        raise InputError("the weights or support vectors are too large for a file of ONNX; choose another format")
    number = onnx.TensorProto.DOUBLE
    graph, outputs = Graph(), {"scores": (number, ["n", math.prod(model.score_shape)])}
    if isinstance(model, KernelModel) and model.n_support is not None:
        outputs["pairs"] = (number, ["n", count_pairs(len(model.classes))])
    _add_scores(graph, model)
    if model.problem.predicts_labels and not model.problem.has_label_sets:
        outputs["label"] = (_add_labels(graph, model.classes, bool(model.score_shape)), ["n"])
    way = find_calibration(model.info)
    if way in ("sigmoid", "temperature") or (way is None and model.info.get("loss") == "logistic"):
        _add_probabilities(graph, model)
        outputs["probabilities"] = (number, ["n", len(model.classes)])
    content = _make_file(graph, model.n_trained, outputs)
    return Exported(iter([content]), (NO_FUNCTION,) if way == "isotonic" else ())


def _count_bytes(model: Model) -> int:
    """Return the bytes of the constants: rows that are sparse are written out."""
    return 8 * (model.coef.size if isinstance(model, LinearModel) else model.support_vectors.shape[0] * model.n_trained)


def _add_scores(graph: Graph, model: Model) -> None:
    rows = graph.add("Cast", "rows", to=11)  # to float64
    if model.scaling is not None:
        moved = graph.add("Sub", rows, graph.hold(model.scaling.offset))
        rows = graph.add("Mul", moved, graph.hold(model.scaling.factor))
    intercept = graph.hold(np.atleast_1d(np.asarray(model.intercept, np.float64)))
    if isinstance(model, LinearModel):
        sums = graph.add("MatMul", rows, graph.hold(np.atleast_2d(model.coef).T))
        graph.add("Add", sums, intercept, output="scores")
        return
    vectors = model.support_vectors
    Z = (to_dense(vectors) if isinstance(vectors, CsrRows) else vectors).astype(np.float64)
    kernel = KERNELS[model.kernel.name](graph, model, rows, Z)
    of_pairs = model.n_support is not None
    coefs = np.stack(list(expand(model.dual_coef, model.n_support))) if of_pairs else np.atleast_2d(model.dual_coef)  # type: ignore[arg-type]
    sums = graph.add("MatMul", kernel, graph.hold(coefs.T))
    graph.add("Add", sums, intercept, output="pairs" if of_pairs else "scores")
    if of_pairs:
        _add_votes(graph, len(model.classes))


def _add_linear(graph: Graph, model: KernelModel, rows: str, Z: F64) -> str:  # noqa: ARG001
    return graph.add("MatMul", rows, graph.hold(Z.T))


def _add_inner(graph: Graph, model: KernelModel, rows: str, Z: F64) -> str:
    """Add gamma x.z + coef0."""
    products = graph.add("MatMul", rows, graph.hold(model.kernel.gamma * Z.T))
    return graph.add("Add", products, graph.hold(np.float64(model.kernel.coef0)))


def _add_poly(graph: Graph, model: KernelModel, rows: str, Z: F64) -> str:
    return graph.add("Pow", _add_inner(graph, model, rows, Z), graph.hold(np.float64(model.kernel.degree)))


def _add_sigmoid(graph: Graph, model: KernelModel, rows: str, Z: F64) -> str:
    return graph.add("Tanh", _add_inner(graph, model, rows, Z))


def _add_rbf(graph: Graph, model: KernelModel, rows: str, Z: F64) -> str:
    squares = graph.add("ReduceSumSquare", rows, axes=[1], keepdims=1)
    products = graph.add("MatMul", rows, graph.hold(-2.0 * Z.T))
    distances = graph.add("Add", graph.add("Add", products, squares), graph.hold(np.sum(Z**2, axis=1)))
    return graph.add("Exp", graph.add("Mul", distances, graph.hold(np.float64(-model.kernel.gamma))))


KERNELS: dict[str, Callable[[Graph, KernelModel, str, F64], str]] = {
    "linear": _add_linear,
    "poly": _add_poly,
    "rbf": _add_rbf,
    "sigmoid": _add_sigmoid,
}


def _add_votes(graph: Graph, n_classes: int) -> None:
    """Add the votes for each class and, to decide among equal ones, s / (3 (|s| + 1)) for the sums s of its scores."""
    first, second = (np.eye(n_classes)[[pair[side] for pair in list_pairs(n_classes)]] for side in (0, 1))
    is_first = graph.add("Cast", graph.add("GreaterOrEqual", "pairs", graph.hold(np.float64(0.0))), to=11)
    votes = graph.add("Add", graph.add("MatMul", is_first, graph.hold(first - second)), graph.hold(second.sum(axis=0)))
    sums = graph.add("MatMul", "pairs", graph.hold(first - second))
    most = graph.add("Add", graph.add("Abs", sums), graph.hold(np.float64(1.0)))
    share = graph.add("Div", sums, graph.add("Mul", most, graph.hold(np.float64(LARGEST_CONFIDENCE))))
    graph.add("Add", votes, share, output="scores")


def _add_labels(graph: Graph, classes: np.ndarray, several: bool) -> int:
    """Add the label of each row, and return its type."""
    from onnx import TensorProto

    if several:
        codes = graph.add("ArgMax", "scores", axis=1, keepdims=0)
    else:
        is_second = graph.add("Greater", "scores", graph.hold(np.float64(0.0)))
        codes = graph.add("Reshape", graph.add("Cast", is_second, to=7), graph.hold(np.array([-1])))
    kind, dtype = {"U": (TensorProto.STRING, object), "f": (TensorProto.DOUBLE, np.float64)}.get(
        classes.dtype.kind, (TensorProto.INT64, np.int64)
    )
    graph.add("Gather", graph.hold(classes.astype(dtype)), codes, output="label")
    return int(kind)


def _add_probabilities(graph: Graph, model: Model) -> None:
    """Add the probability of each class as models.probabilities does it, by sigmoids or by a temperature."""
    if find_calibration(model.info) == "temperature":
        beta = float(model.info[CALIBRATIONS["temperature"].key]["beta"])
        sides = (
            graph.hold(np.array([[-beta, beta]]))
            if not model.score_shape
            else graph.hold(beta * np.eye(len(model.classes)))
        )
        graph.add("Softmax", graph.add("MatMul", "scores", sides), axis=1, output="probabilities")
        return
    found = model.info.get(CALIBRATIONS["sigmoid"].key, {"A": [-1.0], "B": [0.0]})
    A, B = (graph.hold(-np.array(found[name])) for name in ("A", "B"))
    each = graph.add("Sigmoid", graph.add("Add", graph.add("Mul", "scores", A), B))
    if model.problem.has_label_sets:
        graph.add("Identity", each, output="probabilities")
        return
    if not model.score_shape:
        rest = graph.add("Sub", graph.hold(np.float64(1.0)), each)
        graph.add("Concat", rest, each, axis=1, output="probabilities")
        return
    sums = graph.add("MatMul", each, graph.hold(np.ones((len(model.classes), 1))))
    is_known = graph.add("Greater", sums, graph.hold(np.float64(0.0)))
    shares = graph.add("Div", each, graph.add("Where", is_known, sums, graph.hold(np.float64(1.0))))
    graph.add("Where", is_known, shares, graph.hold(np.float64(1.0 / len(model.classes))), output="probabilities")


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
