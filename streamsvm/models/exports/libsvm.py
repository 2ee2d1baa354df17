"""Models as model files of LIBSVM.

LIBSVM decides between pairs of classes: a score above 0 is for the first class of a pair, and row r of the coefficients
of a support vector belongs to the r-th of the other classes (numeric.pairs_of_classes). Models of all pairs are laid
out so already. For K scores f_k = sum_j c_kj k(x, z_j) + b_k, one for each class, the pair (k, l) gets the score

    f_k - f_l

so that the class with the highest score wins all its pairs: class k owns a copy of each z_j with c_kj not 0, whose
coefficients are c_kj in the pairs where k comes first, and -c_kj in the others. Linear models are sums over their own
weights: z_k = w_k, c_kk = 1, with the linear kernel.

Source: `svm_save_model` and `svm_predict_values` in LIBSVM's svm.cpp; Chang & Lin 2011, "LIBSVM: a library for support
vector machines", ACM Transactions on Intelligent Systems and Technology 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamsvm.models.exports.exported import (
    ONLY_SCORES,
    Exported,
    number_classes,
    require_finite,
    require_one_class_a_row,
)
from streamsvm.models.exports.raw_rows import to_raw
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric import known_values
from streamsvm.numeric.calibration import CALIBRATIONS, find_calibration
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.pairs_of_classes import list_pairs
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix

KERNELS = {
    "linear": "linear",
    "poly": "polynomial",
    "rbf": "rbf",
    "sigmoid": "sigmoid",
    known_values.NAME: "precomputed",
}
NO_FUNCTION = (
    "the probabilities are left out: LIBSVM has those of two classes by a sigmoid, and of more by sigmoids of pairs"
)
TIES = (
    "LIBSVM gives a row for which several classes have most votes to the first of them, streamsvm by the sums of scores"
)


@dataclass(frozen=True)
class Machine:
    """A model as LIBSVM has it.

    vectors: rows, of which `order` (m,) names the support vectors. coefs: (K - 1, m). bias: of each pair. n_support:
    how many support vectors are of each class, None if there are no classes.
    """

    kernel: Kernel
    vectors: Matrix
    order: I64
    coefs: F64
    bias: F64
    n_support: list[int] | None


def write_libsvm(model: Model) -> Exported:
    """Return a model as LIBSVM's text; InputError if it is of a kernel of scaled rows."""
    require_one_class_a_row(model)
    raw = to_raw(model)
    svm_type, labels, notes = _describe(raw)
    machine = _lay_out(raw, bool(labels))
    require_finite(machine.coefs, machine.bias, *_list_values(machine.vectors))
    sigmoid = _read_sigmoid(raw)
    if sigmoid is None and (find_calibration(raw.info) is not None or raw.info.get("loss") == "logistic"):
        notes = (*notes, NO_FUNCTION)
    return Exported(_write(machine, svm_type, labels, sigmoid, _name_vectors(raw, machine)), notes)


def _describe(model: Model) -> tuple[str, list[int], tuple[str, ...]]:
    """Return LIBSVM's type of the model, its labels in the order of LIBSVM, and notes."""
    if not model.problem.predicts_labels:
        return "nu_svr" if model.problem.has_nu else "epsilon_svr", [], (ONLY_SCORES,) if model.kind == "rank" else ()
    if model.problem.own_classes is not None:
        return "one_class", [], ()
    labels, notes = number_classes(model.classes)
    kind = "nu_svc" if model.problem.has_nu else "c_svc"
    if len(labels) == 2:
        return kind, labels[::-1], notes  # a score above 0 is for the second class
    is_of_pairs = isinstance(model, KernelModel) and model.n_support is not None
    return kind, labels, (*notes, TIES) if is_of_pairs else notes


def _lay_out(model: Model, has_labels: bool) -> Machine:
    """Return the support vectors of each class, and what they count in each pair."""
    if isinstance(model, KernelModel) and model.n_support is not None:
        order, sizes = np.arange(model.dual_coef.shape[1]), model.n_support.tolist()
        return Machine(model.kernel, model.support_vectors, order, model.dual_coef, np.asarray(model.intercept), sizes)
    kernel, vectors, coefs = _as_sums(model)
    bias = np.atleast_1d(np.asarray(model.intercept, np.float64))
    if len(coefs) > 1:
        return _pair_up(kernel, vectors, coefs, bias)
    order = np.argsort(coefs[0] < 0, kind="stable")  # those of the first label come first
    sizes = [int(np.sum(coefs >= 0)), int(np.sum(coefs < 0))] if has_labels else None
    return Machine(kernel, vectors, order, coefs[:, order], bias, sizes)


def _as_sums(model: Model) -> tuple[Kernel, Matrix, F64]:
    """Return kernel, vectors and coefficients of the scores, (1, m) or (K, m)."""
    if isinstance(model, LinearModel):
        weights: Matrix = np.atleast_2d(model.coef)  # type: ignore[assignment]
        return Kernel("linear"), weights, np.eye(weights.shape[0])
    return model.kernel, model.support_vectors, np.atleast_2d(model.dual_coef)


def _pair_up(kernel: Kernel, vectors: Matrix, coefs: F64, bias: F64) -> Machine:
    """Return the machine whose score of a pair is the score of its first class less that of its second."""
    K = len(coefs)
    kept = [np.flatnonzero(own) for own in coefs]
    blocks = [np.where(np.arange(K - 1) >= k, 1.0, -1.0)[:, None] * coefs[k, kept[k]] for k in range(K)]
    differences = np.array([bias[first] - bias[second] for first, second in list_pairs(K)])
    return Machine(kernel, vectors, np.concatenate(kept), np.hstack(blocks), differences, [len(own) for own in kept])


def _read_sigmoid(model: Model) -> tuple[float, float] | None:
    """Return A and B of P(first label | f) = 1 / (1 + exp(A f + B)); None if the probabilities are of another form.

    The logistic loss has A = -1, and a temperature of two classes, whose scores are -f and f, has A = -2 beta.
    """
    if model.score_shape or not model.problem.predicts_labels:
        return None
    match find_calibration(model.info):
        case "sigmoid":
            found = model.info[CALIBRATIONS["sigmoid"].key]
            return float(found["A"][0]), float(found["B"][0])
        case "temperature":
            return -2.0 * float(model.info[CALIBRATIONS["temperature"].key]["beta"]), 0.0
        case None if model.info.get("loss") == "logistic":
            return -1.0, 0.0
    return None


def _list_values(vectors: Matrix) -> list[F64]:
    return [vectors.data if isinstance(vectors, CsrRows) else vectors]  # type: ignore[list-item]


def _name_vectors(model: Model, machine: Machine) -> Iterator[str]:
    """Yield the items of each support vector; of a kernel matrix that was given, its number in it."""
    for i in machine.order.tolist():
        if isinstance(model, KernelModel) and model.is_of_known_values:
            assert model.support is not None
            yield f"0:{model.support[i] + 1}"
            continue
        values, indices = _list_items(machine.vectors, i)
        yield " ".join(f"{j + 1}:{value!r}" for j, value in zip(indices.tolist(), values.tolist(), strict=True))


def _list_items(X: Matrix, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a row that are not 0, in float64, and their features."""
    if isinstance(X, CsrRows):
        items = slice(X.indptr[i], X.indptr[i + 1])
        return X.data[items].astype(np.float64), X.indices[items]
    found = np.flatnonzero(X[i])
    return X[i, found].astype(np.float64), found


def _write(
    machine: Machine, svm_type: str, labels: list[int], sigmoid: tuple[float, float] | None, vectors: Iterator[str]
) -> Iterator[str]:
    kernel = machine.kernel
    yield f"svm_type {svm_type}\nkernel_type {KERNELS[kernel.name]}\n"
    if kernel.name == "poly":
        yield f"degree {kernel.degree}\n"
    if kernel.name in ("poly", "rbf", "sigmoid"):
        yield f"gamma {float(kernel.gamma)!r}\n"
    if kernel.name in ("poly", "sigmoid"):
        yield f"coef0 {float(kernel.coef0)!r}\n"
    yield f"nr_class {len(labels) or 2}\ntotal_sv {len(machine.order)}\n"
    yield f"rho {_join(-machine.bias)}\n"
    if labels:
        yield f"label {' '.join(map(str, labels))}\n"
    if sigmoid is not None:
        yield f"probA {sigmoid[0]!r}\nprobB {sigmoid[1]!r}\n"
    if machine.n_support is not None:
        yield f"nr_sv {' '.join(map(str, machine.n_support))}\n"
    yield "SV\n"
    for coefs, items in zip(machine.coefs.T, vectors, strict=True):
        yield f"{_join(coefs)} {items}\n"


def _join(numbers: F64) -> str:
    return " ".join(map(repr, numbers.tolist()))
