"""Training options, and the checks on them that do not depend on the solver."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import RowSource
from streamsvm.data.rows.views import sum_label_weights
from streamsvm.kernels.kernel import Kernel
from streamsvm.kernels.names import KERNELS, has_gamma
from streamsvm.numeric.rows import F64
from streamsvm.system.errors import InputError, list_few, require_known, say_count
from streamsvm.system.machine import default_threads

LARGEST_DEGREE = 10**6  # with a higher degree, almost all powers are 0, 1 or infinite
LEAST_COST = 1e-290  # The product of this cost and a rounding error is still a normal float64.
# C=inf allows no errors. It is trained with this cost: multipliers below this cost are optimal for any larger cost, so
# the lower bound holds for C=inf as well, and P - D bounds the remaining errors times the cost.
INFINITE_COST = 1e10
LARGEST_COST = 1e100  # The product of the square of this sum and a feature of 1e38 is finite in float64.

BUDGET_SHARE = 4  # Resident rows get a quarter of the spare memory, and kernel columns another quarter.

ClassWeight = Mapping[Any, float] | str | None


@dataclass(frozen=True)
class TrainOptions:
    """Training options: the problem, the solver and the limits.

    Parameters
    ----------
    C : float, default 1.0
        Cost of a row, as in LIBSVM and scikit-learn: C_i = C * class_weight * sample_weight_i.
    solver : str, default "auto"
        Name of the solver (solvers.registry); "auto" is the first that supports the loss and the kernel.
    loss : str or None, default None
        Name of the problem's loss (problems.registry); None is the first loss of the problem.
    penalty : {"l2", "l1"}, default "l2"
        The penalty: 1/2 |w|^2, or the sum of absolute weights, which leaves many weights at 0.
    epsilon : float or None, default None
        Half-width of the tube around a target within which a regression's loss is 0; None is 0.1.
    nu : float or None, default None
        The share of rows that may lie outside the class, the margin or the tube, in (0, 1]; None is 0.5.
    class_weight : mapping of label to float, "balanced" or None, default None
        Factors of C by label; "balanced" gives all classes the same weight (`compute_class_factors`).
    tol : float, default 1e-3
        Relative duality gap (P - D) / P at which training ends.
    memory_bytes : int or None, default None
        Limit on the total resident memory of one process, in bytes; None is half of the machine's memory.
    threads : int or None, default None
        Threads of this process, or of each worker; None is one per core in this process, and one in a worker.
    workers : int or None, default None
        Number of worker processes on this machine; None trains on the threads of this process.
    scheduler : str or None, default None
        Address of a Dask cluster ("tcp://host:port") that runs the passes.
    max_passes : int or None, default None
        Number of passes after which training ends without convergence; None is no limit. The read that computes gamma
        "scale" counts as a pass.
    max_seconds : float or None, default None
        Time after which training ends without convergence, in seconds; None is no limit. A start on rows in memory is
        cut short; the pass after it, or the current pass, is finished. Waiting for a cluster that is not working on the
        training ends as well; before the first step this raises TimeLimitError, or InputError if there are no workers.
    seed : int, default 0
        Seed of all random draws; the same seed gives the same bits on any number of threads and workers.
    kernel : str, default "linear"
        Name of the kernel (kernels.names).
    gamma : float, "scale" or "auto", default "scale"
        Scale of a kernel: "scale" is 1 / (features * variance of all values, with rows weighted by their sample
        weights), "auto" is 1 / features.
    degree : int, default 3
        Degree of the polynomial kernel.
    coef0 : float, default 0.0
        Constant term of the polynomial and sigmoid kernels.
    resident_rows : int, str or None, default None
        Number of rows to hold in memory, or their share of all rows ("10%"); None is as many as memory allows.
    multi_class : str or None, default None
        How more than two classes are trained: "ovr", each against the rest, or "ovo", all pairs; None is the solver's
        default.
    task : str, default "classify"
        Name of the problem (problems.registry).
    options : mapping of str to str, default empty
        The solver's own options by name, as strings (solvers.options).
    """

    C: float = 1.0
    solver: str = "auto"
    loss: str | None = None
    penalty: str = "l2"
    epsilon: float | None = None
    nu: float | None = None
    class_weight: ClassWeight = None
    tol: float = 1e-3
    memory_bytes: int | None = None
    threads: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    seed: int = 0
    kernel: str = "linear"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    resident_rows: int | str | None = None
    multi_class: str | None = None
    task: str = "classify"
    options: Mapping[str, str] = field(default_factory=dict)


def count_driver_threads(options: TrainOptions) -> int:
    """Return the number of threads of the driver's own computations, during which its tasks or workers are idle."""
    elsewhere = (options.workers, options.scheduler) != (None, None)
    return default_threads() if elsewhere else options.threads or default_threads()


def is_finite(value: Any) -> bool:
    """Return whether a value is a number that is finite in float64; 10**400 is not."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def check_numbers(options: TrainOptions) -> None:
    """Raise InputError for an invalid C, tol, limit or seed."""
    for name, value in (("C", options.C), ("tol", options.tol)):
        if not (is_finite(value) and value > 0):
            raise InputError(f"{name} is {value!r:.40}; it must be positive and finite")
    if options.C < LEAST_COST:
        raise InputError(f"C is {options.C}; the smallest supported value is {LEAST_COST:.0e}")
    for name, limit in (("max_passes", options.max_passes), ("max_seconds", options.max_seconds)):
        if limit is not None and not (isinstance(limit, Real) and limit >= 0):
            raise InputError(f"{name} is {limit!r:.40}; a number of at least 0 is expected")
    check_count("seed", options.seed, 0)


def check_count(name: str, value: Any, least: int) -> int:
    """Return a value as an int. Raises InputError unless it is a whole number of at least `least`."""
    if not (isinstance(value, Integral) and int(value) >= least):
        raise InputError(f"{name} is {value!r:.40}; a whole number of at least {least} is expected")
    return int(value)


def compute_class_costs(source: RowSource, options: TrainOptions) -> tuple[float, float]:
    """Return C * class_weight of the two classes, before sample weights.

    Raises InputError if there are not two classes.
    """
    costs = options.C * compute_class_factors(source, options)
    if len(costs) != 2:
        raise InputError(f"{source.name}: {say_count(len(costs), 'class')}; a solver trains on two at a time")
    return float(costs[0]), float(costs[1])


def require_weights(weights: F64) -> None:
    """Raise InputError if the sample weights of all rows are zero. weights: the weights of rows, or sums of weights."""
    if len(weights) and not np.any(weights):
        raise InputError("sample_weight: the weights of all rows are zero; give at least one row a positive weight")


def sum_weights(source: RowSource) -> F64:
    """Return the sum of the sample weights of each class or label, or of all rows if there are no labels."""
    if source.has_label_sets:
        return np.asarray(sum_label_weights(source).sum(axis=1))
    sums = source.sum_weights()
    if sums is None:
        weight = source.column("sample_weight")
        sums = np.array([source.n_rows if weight is None else weight.sum()], np.float64)
    return sums


def check_costs(source: RowSource, options: TrainOptions) -> None:
    """Raise InputError if the sum of all costs C * class_weight * sample_weight is too large for the arithmetic."""
    factors, sums = np.ones(1), sum_weights(source)
    if source.has_label_sets:
        factors = compute_label_factors(source, options).max(axis=1)
    elif source.classes is not None and isinstance(options.class_weight, Mapping):
        factors = compute_class_factors(source, options)
    with np.errstate(over="ignore"):
        total = float(np.sum(options.C * factors * sums))
    if not total < LARGEST_COST:
        raise InputError(
            f"the costs of all rows, C times class_weight times sample_weight, sum to {total:.1e}; the largest "
            f"supported sum is {LARGEST_COST:.0e}: lower C or the weights"
        )


def compute_class_factors(source: RowSource, options: TrainOptions) -> F64:
    """Return the class_weight of each of K classes, (K,). Raises InputError if there are fewer than two classes.

    "balanced" is n / (K n_k), so that all classes weigh the same. n and n_k are sums of sample weights: a row of weight
    2 counts as two rows. scikit-learn's LinearSVC does the same since 1.7; its SVC ignores sample weights in this
    formula.
    """
    classes, weights = require_classes(source).tolist(), options.class_weight
    if len(classes) < 2:
        listed = ", ".join(map(str, classes))
        raise InputError(
            f"{source.name}: has {say_count(len(classes), 'class')} ({listed}), but at least two are needed; to learn "
            "from rows of one class, choose the task one-class"
        )
    if weights == "balanced":
        sums = sum_weights(source)
        if not sums.all():
            label = classes[int(np.argmin(sums))]
            raise InputError(
                f"class_weight 'balanced': the sample weights of class {label} are all zero; give the factors by name"
            )
        return np.asarray(sums.sum() / (len(classes) * sums))
    return _read_factors(weights, classes, "weights by label")


def compute_label_factors(source: RowSource, options: TrainOptions) -> F64:
    """Return the class_weight of the rows without and with each label or class, (L, 2).

    For classes, the rows of all other classes have the factor 1. For sets of labels, a mapping gives the factors of 0
    and 1, which apply to every label; "balanced" is n / (2 n_k), computed for each label separately.
    """
    classes, weights = require_classes(source), options.class_weight
    if not source.has_label_sets:
        return np.stack((np.ones(len(classes)), compute_class_factors(source, options)), axis=1)
    if weights == "balanced":
        sums = sum_label_weights(source)
        return np.asarray(sums.sum(axis=1, keepdims=True) / (2 * np.maximum(sums, 1.0)))
    return np.tile(_read_factors(weights, [0, 1], "the weights of 0 and 1"), (len(classes), 1))


def require_classes(source: RowSource) -> npt.NDArray[Any]:
    """Return the classes or ranks of a source. Raises InputError if the source has none."""
    if source.has_targets:
        raise InputError(f"{source.name}: its labels are numbers to predict: use --task regress (LinearSVR in Python)")
    if source.classes is None:
        raise InputError(
            f"{source.name}: there are no labels to learn from; name their column by --label COLUMN (label=... in "
            "Python), for an AnnData file here, and for other files when they are ingested"
        )
    return source.classes


def _read_factors(weights: ClassWeight, classes: list[Any], expected: str) -> F64:
    """Return the factor of each class; a label matches a class if the two are equal as values or as strings."""
    factors = np.ones(len(classes))
    if weights is not None and not isinstance(weights, Mapping):
        raise InputError(f"class_weight {weights!r}: give {expected}, or 'balanced'")
    for label, weight in (weights or {}).items():
        codes = [code for code, known in enumerate(classes) if known == label or str(known) == str(label)]
        if not codes:
            raise InputError(f"class_weight names {label!r}; the classes are {list_few(classes)}")
        if not (is_finite(weight) and (weight == 0 or weight >= LEAST_COST)):
            raise InputError(
                f"class_weight of {label} is {weight!r:.40}; it must be finite and not negative, and at least "
                f"{LEAST_COST:.0e} if it is not 0"
            )
        factors[codes] = weight
    return factors


def make_kernel(source: RowSource, options: TrainOptions) -> Kernel:
    """Return the kernel of the options. Raises InputError for parameters out of range.

    The caller has already replaced gamma "scale" by its value, which runs.gamma_scale computes.
    """
    require_known("kernel", options.kernel, KERNELS)
    gamma = options.gamma
    if not has_gamma(options.kernel):
        gamma = 1.0
    elif gamma == "auto":
        gamma = 1.0 / source.n_features
    if not (is_finite(gamma) and gamma >= 0):  # type: ignore[operator]
        raise InputError(f"gamma is {options.gamma!r:.40}; it must be at least 0 and finite, or scale, or auto")
    if not (isinstance(options.degree, Integral) and 0 <= int(options.degree) <= LARGEST_DEGREE):
        raise InputError(f"degree is {options.degree!r:.40}; a whole number from 0 to {LARGEST_DEGREE:,} is expected")
    if not is_finite(options.coef0):
        raise InputError(f"coef0 is {options.coef0!r:.40}; it must be finite")
    if options.kernel == "poly" and options.degree == 0:
        return Kernel("poly", 0.0, 1, 1.0)  # the same constant, 1; powers in compiled code begin at 1
    return Kernel(options.kernel, float(gamma), int(options.degree), float(options.coef0))


def count_resident(wanted: int | str, all_rows: int) -> int:
    """Return the number of rows that "5000" or "10%" specifies.

    Raises InputError for other strings, and for fewer than two rows.
    """
    text = str(wanted)
    number = text.removesuffix("%")
    if not number.replace(".", "", 1).isdecimal():
        raise InputError(f"resident rows {text!r}: a number of rows, or a share like 10%, is expected")
    share = round(min(all_rows * float(number) / 100, all_rows))
    n_rows = share if text.endswith("%") else int(min(float(number), all_rows))
    if n_rows < 2:
        raise InputError(f"resident rows {text!r}: at least two are needed")
    return n_rows
