"""Model files of LIBLINEAR and of LIBSVM, written and read.

LIBLINEAR: the lines before `w` name the solver, the labels and the numbers of classes and features. Each line after `w`
has the weights of one feature: one weight, or one for each class if there are more than two. If `bias` is at least 0,
one more line has the weights of a feature that has this value in all rows; `export` writes the value 1. A score above 0
is for the first label.

LIBSVM: the lines before `SV` name the type, the kernel, the labels and rho. Each line after `SV` has the coefficients
and the items of a support vector. LIBSVM decides between pairs of classes: a score above 0 is for the first class of a
pair, and row r of the coefficients of a support vector belongs to the r-th of the other classes (numeric.labels).
Models of all pairs already have this layout. For K scores f_k = sum_j c_kj k(x, z_j) + b_k, one for each class, the
pair (k, l) gets the score

    f_k - f_l

so that the class with the highest score wins all its pairs: class k owns a copy of each z_j with c_kj not 0, whose
coefficients are c_kj in the pairs where k comes first, and -c_kj in the others. Linear models are sums over their own
weights: z_k = w_k, c_kk = 1, with the linear kernel.

Files of LIBLINEAR, and files of LIBSVM with the linear kernel and one score, f(x) = sum_j c_j z_j.x - rho = w.x + b,
are read as linear models, and training can start from them. The other files of LIBSVM are read as sums of kernels. A
model that was read can predict. It has no certificate, because its training rows are not known.

Source: `svm_save_model`, `svm_load_model` and `svm_predict_values` in LIBSVM's svm.cpp; Chang & Lin 2011, "LIBSVM: a
library for support vector machines", ACM Transactions on Intelligent Systems and Technology 2. `save_model` and
`load_model` in LIBLINEAR's linear.cpp; Fan, Chang, Hsieh, Wang & Lin 2008, "LIBLINEAR: a library for large linear
classification", Journal of Machine Learning Research 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from streamsvm.kernels.kernel import Kernel, combine_rows
from streamsvm.kernels.names import PARAMETERS
from streamsvm.kernels.stored_parts import MOST_FEATURES, read_kernel
from streamsvm.models.calibration import CALIBRATIONS, find_calibration
from streamsvm.models.evaluate import has_probabilities
from streamsvm.models.exports import export
from streamsvm.models.exports.export import ONLY_SCORES, Exported, number_classes, require_finite, to_raw
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.labels import list_pairs
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, make_canonical_rows, take_rows
from streamsvm.problems.registry import PROBLEMS, SOFTMAX, find_problem
from streamsvm.system.errors import InputError, say_count

NO_FUNCTION = "the probabilities are omitted: LIBSVM has a sigmoid for two classes, and sigmoids of pairs for more"
TIES = (
    "if several classes have the most votes, LIBSVM predicts the first of them, and streamsvm decides by sums of scores"
)


@dataclass(frozen=True)
class Machine:
    """A model in LIBSVM's layout.

    vectors, order: the rows, and an order such that row order[j] of `vectors` is the support vector j of m. coefs (K -
    1, m): the coefficients of the support vectors. bias: the bias of each pair of classes. n_support: the number of
    support vectors of each class; None if there are no classes.
    """

    kernel: Kernel
    vectors: Matrix
    order: I64
    coefs: F64
    bias: F64
    n_support: list[int] | None


def write_libsvm(model: Model) -> Exported:
    """Return a model in LIBSVM's format. Raises InputError for a nonlinear kernel of scaled rows."""
    raw = to_raw(model)
    svm_type, labels, notes = _describe(raw)
    machine = _lay_out(raw, bool(labels))
    values = machine.vectors.data if isinstance(machine.vectors, CsrRows) else machine.vectors
    require_finite(machine.coefs, machine.bias, values)
    if has_probabilities(raw) and _read_sigmoid(raw) is None:
        notes = (*notes, NO_FUNCTION)
    return Exported(_write(raw, machine, svm_type, labels), notes)


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
    """Return the machine in which the score of a pair is the score of the first class minus the score of the second."""
    K = len(coefs)
    kept = [np.flatnonzero(own) for own in coefs]
    blocks = [np.where(np.arange(K - 1) >= k, 1.0, -1.0)[:, None] * coefs[k, kept[k]] for k in range(K)]
    differences = np.array([bias[first] - bias[second] for first, second in list_pairs(K)])
    return Machine(kernel, vectors, np.concatenate(kept), np.hstack(blocks), differences, [len(own) for own in kept])


def _read_sigmoid(model: Model) -> tuple[float, float] | None:
    """Return A and B of P(first label | f) = 1 / (1 + exp(A f + B)); None if the probabilities have another form.

    For the logistic loss, A = -1. For a temperature of two classes, which have the scores -f and f, A = -2 beta.
    """
    if model.score_shape or not model.problem.predicts_labels:
        return None
    match find_calibration(model.info):
        case "sigmoid":
            found = model.info[CALIBRATIONS["sigmoid"].key]
            return float(found["A"][0]), float(found["B"][0])
        case "temperature":
            return -2.0 * float(model.info[CALIBRATIONS["temperature"].key]["beta"]), 0.0
        case None if model.loss == "logistic":
            return -1.0, 0.0
    return None


def _name_vectors(model: Model, machine: Machine) -> Iterator[str]:
    """Yield the items of each support vector or, for a precomputed kernel, its row number in the kernel matrix."""
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


def _write(model: Model, machine: Machine, svm_type: str, labels: list[int]) -> Iterator[str]:
    kernel, sigmoid = machine.kernel, _read_sigmoid(model)
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
    for coefs, items in zip(machine.coefs.T, _name_vectors(model, machine), strict=True):
        yield f"{_join(coefs)} {items}\n"


def _join(numbers: F64) -> str:
    return " ".join(map(repr, numbers.tolist()))


SOLVERS = {
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "squared_hinge": "L2R_L2LOSS_SVC",
    "logistic": "L2R_LR",
    "crammer_singer": "MCSVM_CS",
    SOFTMAX: "MCSVM_CS",  # LIBLINEAR lacks this loss; the solver has the same layout, and predicts the same classes
    "epsilon_insensitive": "L2R_L1LOSS_SVR_DUAL",
    "squared_epsilon_insensitive": "L2R_L2LOSS_SVR",
    "one_class": "ONECLASS_SVM",
}
SPARSE_SOLVERS = {"squared_hinge": "L1R_L2LOSS_SVC", "logistic": "L1R_LR"}  # the solvers with the penalty l1
NUMBERS = "L2R_L1LOSS_SVR_DUAL"  # a model of this solver predicts the score itself
ONLY_LOGISTIC = "the probabilities are omitted: LIBLINEAR has them for the logistic loss only"
LIKE_CRAMMER_SINGER = "LIBLINEAR has no multinomial models, so the file names the solver MCSVM_CS, which predicts alike"


def write_liblinear(model: Model) -> Exported:
    """Return a model in LIBLINEAR's format. Raises InputError if it has no weights of raw rows."""
    linear = export.to_weights(model)
    require_finite(linear.coef, linear.intercept)
    has_labels = linear.problem.predicts_labels and linear.problem.own_classes is None  # whether the file has labels
    labels, notes = number_classes(linear) if has_labels else ([], ())
    if linear.kind == "rank":
        notes = (ONLY_SCORES, *notes)
    if model.loss == SOFTMAX:
        notes = (*notes, LIKE_CRAMMER_SINGER)
    if find_calibration(model.info) is not None or model.loss == SOFTMAX:
        notes = (*notes, ONLY_LOGISTIC)
    return Exported(_write_weights(linear, labels), notes)


def _write_weights(model: LinearModel, labels: list[int]) -> Iterator[str]:
    loss, several = model.loss, bool(model.score_shape)
    has_l1 = model.info.get("problem", {}).get("penalty") == "l1"
    solver = SPARSE_SOLVERS.get(loss, SOLVERS[loss]) if has_l1 else SOLVERS[loss]
    if model.kind == "rank":
        solver = NUMBERS
    if solver == "MCSVM_CS" and not several:
        solver = SOLVERS["hinge"]  # with two classes, the model has one score, but LIBLINEAR's joint problem has two
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


LOSSES = {solver: loss for table in (SOLVERS, SPARSE_SOLVERS) for loss, solver in table.items()}
LOSSES |= {"L2R_L2LOSS_SVC_DUAL": "squared_hinge", "L2R_LR_DUAL": "logistic"}
LOSSES |= {"L2R_L2LOSS_SVR_DUAL": "squared_epsilon_insensitive", "MCSVM_CS": "crammer_singer"}
LIBLINEAR_NAMES = ("solver_type", "nr_class", "nr_feature", "bias")
MOST_LINE = 1 << 24  # maximum length of a line, which has a number for each class
MOST_CLASSES = 1 << 20
TYPES = {"c_svc": "hinge", "nu_svc": "hinge", "epsilon_svr": "epsilon_insensitive", "nu_svr": "epsilon_insensitive"}
TYPES |= {"one_class": "one_class"}  # the losses of LIBSVM's types
LIBSVM_KERNELS = {"linear": "linear", "polynomial": "poly", "rbf": "rbf", "sigmoid": "sigmoid"}
LIBSVM_NAMES = ("label", "gamma", "degree", "coef0", "probA", "probB", "prob_density_marks", "total_sv", "nr_sv")
NEEDED = ("svm_type", "kernel_type", "nr_class", "rho")
LISTS = ("label", "rho", "probA", "probB", "prob_density_marks", "nr_sv")  # the names with several values
FIRST = b"svm_type"  # the first word of a model file of LIBSVM


def read_model_file(path: str | Path) -> Model:
    """Return the model in a model file of LIBLINEAR or LIBSVM, for raw rows. Probabilities are omitted.

    Raises
    ------
    InputError
        If the file is not such a model file, or if its kernel is precomputed.
    """
    read: Callable[[TextIO], Model]
    program, read = "LIBLINEAR", _read_liblinear
    try:
        with Path(path).open("rb") as file, TextIOWrapper(file, encoding="ascii") as text:
            if file.read(len(FIRST)) == FIRST:
                program, read = "LIBSVM", _read_libsvm
            file.seek(0)
            return read(text)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a model file of {program}: it is not text") from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: not a model file of {program} that can be read ({error})") from error


def _read_head(file: TextIO, end: str, needed: Sequence[str], known: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of the lines before the line `end`, by name. Raises ValueError for unknown or missing names."""
    head: dict[str, list[str]] = {}
    while (words := file.readline(MOST_LINE).split()) != [end]:
        if len(words) < 2 or words[0] not in (*known, *needed) or words[0] in head:
            raise ValueError(f"{' '.join(words)[:40]!r} where one of {', '.join(needed)} and its value are expected")
        if len(words) > 2 and words[0] not in LISTS:
            raise ValueError(f"{' '.join(words)[:40]!r} where {words[0]} and one value are expected")
        head[words[0]] = words[1:]
    if missing := [name for name in needed if name not in head]:
        raise ValueError(f"{missing[0]} is missing")
    return head


def _describe_model(head: dict[str, list[str]], solver: str, loss: str) -> tuple[dict[str, str], list[int]]:
    """Return a model's `info`, and the labels in the order of the file, or none. Raises ValueError for bad labels."""
    info = {"solver": solver, "task": next(name for name, entry in PROBLEMS.items() if loss in entry.losses)}
    info["loss"], problem = loss, find_problem(info["task"])
    if not problem.has_classes or problem.own_classes is not None:
        return info, []
    if "label" not in head:
        raise ValueError("label is missing")
    labels = [int(label) for label in head["label"]]
    if len(labels) != int(head["nr_class"][0]) or not 2 <= len(set(labels)) == len(labels) <= MOST_CLASSES:
        raise ValueError("label does not list nr_class different labels, two or more")
    return info, labels


def _read_liblinear(file: TextIO) -> LinearModel:
    """Return the model in a file. Raises ValueError for an unsuitable part."""
    head = _read_head(file, "w", LIBLINEAR_NAMES, ("label", "rho"))
    solver = head["solver_type"][0]
    if solver not in LOSSES:
        raise ValueError(f"solver_type is {solver[:40]!r}; the supported ones are {', '.join(LOSSES)}")
    info, labels = _describe_model(head, f"liblinear {solver}", LOSSES[solver])
    d, bias = int(head["nr_feature"][0]), float(head["bias"][0])
    if not 1 <= d <= MOST_FEATURES or not math.isfinite(bias):
        raise ValueError("nr_feature or bias has an impossible value")
    n_scores = len(labels) if len(labels) > 2 or solver == "MCSVM_CS" else 1
    w = _read_weights(file, d + (bias >= 0), n_scores)
    b = bias * w[:, d] if bias >= 0 else np.zeros(n_scores)
    if "rho" not in head and LOSSES[solver] == "one_class":
        raise ValueError("rho is missing")
    b = b - float(" ".join(head.get("rho", ["0"])))
    if not np.isfinite(b).all():
        raise ValueError("rho is not finite")
    if not labels:
        classes = np.array(find_problem(info["task"]).own_classes or (), np.int64)
        return LinearModel(coef=w[0, :d], intercept=float(b[0]), classes=classes, info=info)
    order, classes = np.argsort(labels), np.array(sorted(labels), np.int64)
    w, b = (w[order, :d], b[order]) if n_scores > 1 else (w[:, :d], b)
    if len(labels) == 2:  # one score: in LIBLINEAR, a score above 0 is for the first label, here for the larger
        sign = 1.0 if order[0] else -1.0
        w, b = (np.diff(w, axis=0), np.diff(b)) if n_scores == 2 else (sign * w, sign * b)
        return LinearModel(coef=w[0], intercept=float(b[0]), classes=classes, info=info)
    return LinearModel(coef=np.ascontiguousarray(w), intercept=b, classes=classes, info=info)


def _read_weights(file: TextIO, n_lines: int, n_scores: int) -> F64:
    """Return the weights of each score, (n_scores, n_lines)."""

    def read_numbers() -> Iterator[float]:
        for number in range(n_lines):
            words = file.readline(MOST_LINE).split()
            if len(words) != n_scores:
                where = f"line {number + 1:,} after w"
                raise ValueError(f"{where} has {say_count(len(words), 'number')}; {n_scores} are expected")
            yield from (_read_number(word, f"line {number + 1:,} after w") for word in words)

    found = np.fromiter(read_numbers(), np.float64).reshape(n_lines, n_scores)
    if any(line.strip() for line in islice(file, 1)):
        raise ValueError("there are more lines after the weights")
    if not np.isfinite(found).all():
        raise ValueError("a weight is not finite")
    return np.ascontiguousarray(found.T)


def _read_number(word: str, where: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{where} has {word[:40]!r} where a number is expected") from None


def _read_libsvm(file: TextIO) -> Model:
    """Return the model in a file. Raises ValueError for an unsuitable part."""
    head = _read_head(file, "SV", NEEDED, LIBSVM_NAMES)
    kind, name = head["svm_type"][0], head["kernel_type"][0]
    if kind not in TYPES or name not in LIBSVM_KERNELS:
        why = "; a precomputed kernel has no support vectors that another program could use" * (name == "precomputed")
        raise ValueError(
            f"it is {kind[:20]} with the kernel {name[:20]}; {', '.join(TYPES)} with the kernels "
            f"{', '.join(LIBSVM_KERNELS)} are supported{why}"
        )
    info, labels = _describe_model(head, f"libsvm {kind}", TYPES[kind])
    coefs, vectors = _read_vectors(file, max(1, len(labels) - 1))
    if head.get("total_sv", [str(len(coefs))]) != [str(len(coefs))]:
        found = say_count(len(coefs), "support vector")
        raise ValueError(f"total_sv is {head['total_sv'][0][:40]}, but the file has {found}")
    bias = -np.array([float(rho) for rho in head["rho"]])
    if not all(np.isfinite(part).all() for part in (coefs, vectors.data, bias)):
        raise ValueError("a number is not finite")
    if len(bias) != max(1, len(list_pairs(len(labels)))):
        raise ValueError("rho does not have one number for each pair of classes")
    kernel = _read_kernel(head, LIBSVM_KERNELS[name])
    classes = np.array(sorted(labels) or find_problem(info["task"]).own_classes or (), np.int64)
    about: dict[str, Any] = {"classes": classes, "info": info}
    if len(labels) > 2:
        sizes = [int(size) for size in head.get("nr_sv", ())]
        if len(sizes) != len(labels) or min(sizes) < 0 or sum(sizes) != len(coefs):
            raise ValueError("nr_sv does not give the number of support vectors of each class")
        return _sort_classes(labels, sizes, coefs.T, vectors, bias, {"kernel": kernel, **about})
    sign = -1.0 if labels and labels[0] < labels[1] else 1.0  # here, a score above 0 is for the larger label
    coef, about["intercept"] = sign * coefs[:, 0], sign * float(bias[0])
    if name == "linear":
        return LinearModel(coef=combine_rows(vectors, coef), **about)
    return KernelModel(kernel=kernel, support_vectors=vectors, dual_coef=coef, **about)


def _read_kernel(head: dict[str, list[str]], name: str) -> Kernel:
    """Return the kernel of this name. Raises ValueError for a missing or unsuitable parameter."""
    found: dict[str, Any] = {"name": name, **{each: getattr(Kernel, each) for each in ("gamma", "degree", "coef0")}}
    for each in PARAMETERS[name]:
        if each not in head:
            raise ValueError(f"{each} is missing")
        found[each] = type(found[each])(head[each][0])
    return read_kernel({"kernel": found})


def _read_vectors(file: TextIO, n_coefs: int) -> tuple[F64, CsrRows]:
    """Return the coefficients, (m, n_coefs), and the support vectors, whose last feature is the last in the file."""
    coefs, values, indices, ends = list[float](), list[float](), list[int](), [0]
    for number, line in enumerate(file, 1):
        own, items = line.split()[:n_coefs], line.split()[n_coefs:]
        if len(own) < n_coefs:
            raise ValueError(f"line {number:,} after SV has {say_count(len(own), 'word')}; {n_coefs} are expected")
        coefs += (_read_number(word, f"line {number:,} after SV") for word in own)
        for item in items:
            index, _, value = item.partition(":")
            try:
                indices.append(range(MOST_FEATURES).index(int(index) - 1))
                values.append(float(value))
            except ValueError:
                where = f"line {number:,} after SV has {item[:40]!r}"
                raise ValueError(f"{where} where index:value is expected") from None
        ends.append(len(values))
    if not values:
        raise ValueError("there are no support vectors")
    places, d = np.array(indices, np.int32), max(indices) + 1
    rows = CsrRows(np.array(values), places, np.array(ends), d)  # type: ignore[arg-type]
    return np.array(coefs).reshape(-1, n_coefs), make_canonical_rows(rows)


def _sort_classes(
    labels: list[int], sizes: list[int], coefs: F64, vectors: CsrRows, bias: F64, about: dict[str, Any]
) -> KernelModel:
    """Return a model of all pairs with its classes in ascending order; a file may list them in any order.

    A pair whose classes change places changes the sign of its score. coefs (K - 1, m), bias (pairs,): as in the file.
    """
    order, rows = np.argsort(labels), np.split(np.arange(coefs.shape[1]), np.cumsum(sizes)[:-1])
    place = {pair: number for number, pair in enumerate(list_pairs(len(labels)))}
    found, moved = coefs.copy(), bias.copy()
    for number, (first, second) in enumerate(list_pairs(len(labels))):
        p, q = int(order[first]), int(order[second])
        sign = 1.0 if p < q else -1.0
        moved[number] = sign * bias[place[min(p, q), max(p, q)]]
        found[second - 1, rows[p]] = sign * coefs[q - (q > p), rows[p]]
        found[first, rows[q]] = sign * coefs[p - (p > q), rows[q]]
    kept = np.concatenate([rows[p] for p in order])
    return KernelModel(
        support_vectors=take_rows(vectors, kept),
        dual_coef=found[:, kept],
        intercept=moved,
        n_support=np.array(sizes)[order],
        **about,
    )
