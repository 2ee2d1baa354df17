"""Model files of LIBLINEAR and of LIBSVM.

Each line of a LIBLINEAR file has the weights of one feature, one for each class if there are more than two. The last
line has the bias, which is the weight of a feature that is 1 in all rows. A score above 0 is for the first label.

LIBSVM decides between pairs of classes: a score above 0 is for the first class of a pair, and row r of the coefficients
of a support vector belongs to the r-th of the other classes (numeric.labels). Models of all pairs already have this
layout. For K scores f_k = sum_j c_kj k(x, z_j) + b_k, one for each class, the pair (k, l) gets the score

    f_k - f_l

so that the class with the highest score wins all its pairs: class k owns a copy of each z_j with c_kj not 0, whose
coefficients are c_kj in the pairs where k comes first, and -c_kj in the others. Linear models are sums over their own
weights: z_k = w_k, c_kk = 1, with the linear kernel.

Source: `svm_save_model` and `svm_predict_values` in LIBSVM's svm.cpp; Chang & Lin 2011, "LIBSVM: a library for support
vector machines", ACM Transactions on Intelligent Systems and Technology 2. `save_model` in LIBLINEAR's linear.cpp; Fan,
Chang, Hsieh, Wang & Lin 2008, "LIBLINEAR: a library for large linear classification", Journal of Machine Learning
Research 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvm.kernels.kernel import Kernel
from streamsvm.kernels.names import PARAMETERS
from streamsvm.models.calibration import CALIBRATIONS, find_calibration
from streamsvm.models.exports import export
from streamsvm.models.exports.export import ONLY_SCORES, Exported, number_classes, require_finite, to_raw
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.labels import list_pairs
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix

NO_FUNCTION = "the probabilities are omitted: LIBSVM has a sigmoid for two classes, and sigmoids of pairs for more"
TIES = (
    "if several classes have the most votes, LIBSVM predicts the first of them, and streamsvm decides by sums of scores"
)


@dataclass(frozen=True)
class Machine:
    """A model in LIBSVM's layout.

    vectors: rows; `order` (m,) has the row numbers of the support vectors. coefs: (K - 1, m). bias: one for each pair.
    n_support: the number of support vectors of each class, None if there are no classes.
    """

    kernel: Kernel
    vectors: Matrix
    order: I64
    coefs: F64
    bias: F64
    n_support: list[int] | None


def write_libsvm(model: Model) -> Exported:
    """Return a model in LIBSVM's format; InputError for a nonlinear kernel of scaled rows."""
    raw = to_raw(model)
    svm_type, labels, notes = _describe(raw)
    machine = _lay_out(raw, bool(labels))
    values = machine.vectors.data if isinstance(machine.vectors, CsrRows) else machine.vectors
    require_finite(machine.coefs, machine.bias, values)
    sigmoid = _read_sigmoid(raw)
    if sigmoid is None and (find_calibration(raw.info) is not None or raw.info.get("loss") == "logistic"):
        notes = (*notes, NO_FUNCTION)
    return Exported(_write(machine, svm_type, labels, sigmoid, _name_vectors(raw, machine)), notes)


def _describe(model: Model) -> tuple[str, list[int], tuple[str, ...]]:
    """Return LIBSVM's name for the type of the model, the labels in LIBSVM's order, and notes."""
    if not model.problem.predicts_labels:
        return "nu_svr" if model.problem.has_nu else "epsilon_svr", [], (ONLY_SCORES,) if model.kind == "rank" else ()
    if model.problem.own_classes is not None:
        return "one_class", [], ()
    labels, notes = number_classes(model)
    kind = "nu_svc" if model.problem.has_nu else "c_svc"
    if len(labels) == 2:
        return kind, labels[::-1], notes  # a score above 0 is for the second class
    is_of_pairs = isinstance(model, KernelModel) and model.n_support is not None
    return kind, labels, (*notes, TIES) if is_of_pairs else notes


def _lay_out(model: Model, has_labels: bool) -> Machine:
    """Return the model in LIBSVM's layout: support vectors by class, and their coefficients in each pair."""
    if isinstance(model, KernelModel) and model.n_support is not None:
        order, sizes = np.arange(model.dual_coef.shape[1]), model.n_support.tolist()
        return Machine(model.kernel, model.support_vectors, order, model.dual_coef, np.asarray(model.intercept), sizes)
    if isinstance(model, LinearModel):
        weights: Any = np.atleast_2d(model.coef)
        kernel, vectors, coefs = Kernel("linear"), weights, np.eye(len(weights))
    else:
        kernel, vectors, coefs = model.kernel, model.support_vectors, np.atleast_2d(model.dual_coef)
    bias = np.atleast_1d(np.asarray(model.intercept, np.float64))
    if len(coefs) > 1:
        return _pair_up(kernel, vectors, coefs, bias)
    order = np.argsort(coefs[0] < 0, kind="stable")  # support vectors of the first label come first
    sizes = [int(np.sum(coefs >= 0)), int(np.sum(coefs < 0))] if has_labels else None
    return Machine(kernel, vectors, order, coefs[:, order], bias, sizes)


def _pair_up(kernel: Kernel, vectors: Matrix, coefs: F64, bias: F64) -> Machine:
    """Return the machine whose score of a pair is the score of the first class minus that of the second."""
    K = len(coefs)
    kept = [np.flatnonzero(own) for own in coefs]
    blocks = [np.where(np.arange(K - 1) >= k, 1.0, -1.0)[:, None] * coefs[k, kept[k]] for k in range(K)]
    differences = np.array([bias[first] - bias[second] for first, second in list_pairs(K)])
    return Machine(kernel, vectors, np.concatenate(kept), np.hstack(blocks), differences, [len(own) for own in kept])


def _read_sigmoid(model: Model) -> tuple[float, float] | None:
    """Return A and B of P(first label | f) = 1 / (1 + exp(A f + B)); None if the probabilities have another form.

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


def _name_vectors(model: Model, machine: Machine) -> Iterator[str]:
    """Yield the items of each support vector; for a precomputed kernel, its row number in the kernel matrix."""
    for i in machine.order.tolist():
        if isinstance(model, KernelModel) and model.is_of_known_values:
            assert model.support is not None
            yield f"0:{model.support[i] + 1}"
            continue
        values, indices = _list_items(machine.vectors, i)
        yield " ".join(f"{j + 1}:{value!r}" for j, value in zip(indices.tolist(), values.tolist(), strict=True))


def _list_items(X: Matrix, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nonzero values of a row, in float64, and their feature indices."""
    if isinstance(X, CsrRows):
        items = slice(X.indptr[i], X.indptr[i + 1])
        return X.data[items].astype(np.float64), X.indices[items]
    found = np.flatnonzero(X[i])
    return X[i, found].astype(np.float64), found


def _write(
    machine: Machine, svm_type: str, labels: list[int], sigmoid: tuple[float, float] | None, vectors: Iterator[str]
) -> Iterator[str]:
    kernel = machine.kernel
    yield f"svm_type {svm_type}\nkernel_type {'polynomial' if kernel.name == 'poly' else kernel.name}\n"
    values = {"degree": kernel.degree, "gamma": float(kernel.gamma), "coef0": float(kernel.coef0)}
    yield from (f"{name} {value!r}\n" for name, value in values.items() if name in PARAMETERS[kernel.name])
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


SOLVERS = {
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "squared_hinge": "L2R_L2LOSS_SVC",
    "logistic": "L2R_LR",
    "crammer_singer": "MCSVM_CS",
    "epsilon_insensitive": "L2R_L1LOSS_SVR_DUAL",
    "squared_epsilon_insensitive": "L2R_L2LOSS_SVR",
    "one_class": "ONECLASS_SVM",
}
SPARSE_SOLVERS = {"squared_hinge": "L1R_L2LOSS_SVC", "logistic": "L1R_LR"}  # the solvers with the penalty l1
NUMBERS = "L2R_L1LOSS_SVR_DUAL"  # a model of this solver predicts its score
ONLY_LOGISTIC = "the probabilities are omitted: LIBLINEAR has them for the logistic loss only"


def write_liblinear(model: Model) -> Exported:
    """Return a model in LIBLINEAR's format; InputError if it has no weights of raw rows."""
    linear = export.to_weights(model)
    require_finite(linear.coef, linear.intercept)
    has_labels = linear.problem.predicts_labels and linear.problem.own_classes is None  # which the file then names
    labels, notes = number_classes(linear) if has_labels else ([], ())
    if linear.kind == "rank":
        notes = (ONLY_SCORES, *notes)
    if find_calibration(model.info) is not None:
        notes = (*notes, ONLY_LOGISTIC)
    return Exported(_write_weights(linear, labels), notes)


def _write_weights(model: LinearModel, labels: list[int]) -> Iterator[str]:
    loss, several = export.name_loss(model), bool(model.score_shape)
    has_l1 = model.info.get("problem", {}).get("penalty") == "l1"
    solver = SPARSE_SOLVERS.get(loss, SOLVERS[loss]) if has_l1 else SOLVERS[loss]
    if model.kind == "rank":
        solver = NUMBERS
    if solver == "MCSVM_CS" and not several:
        solver = SOLVERS["hinge"]  # two classes have one score, where LIBLINEAR's own joint problem has two
    yield f"solver_type {solver}\nnr_class {len(labels) or 2}\n"
    if labels:
        yield f"label {' '.join(map(str, labels if several else labels[::-1]))}\n"
    yield f"nr_feature {model.n_trained}\n"
    if solver == SOLVERS["one_class"]:
        yield f"bias -1\nrho {-float(model.intercept)!r}\nw\n"
        yield from export.write_lines(model.coef[:, None])
        return
    yield "bias 1\nw\n"
    yield from export.write_lines(np.atleast_2d(model.coef).T)
    yield from export.write_lines(np.atleast_2d(model.intercept))
