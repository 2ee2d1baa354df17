"""The options of a training, and the checks of them that do not depend on the solver."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.label_view import sum_label_weights
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.kernel_codes import KERNELS, has_gamma
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64

LARGEST_DEGREE = 10**6  # a power of a kernel value above it is 0, 1 or infinite
LEAST_COST = 1e-290  # The product of such a cost and a rounding error is still a normal float64.
LARGEST_COST = 1e100  # The square of such a sum of costs times a feature of 1e38 is still finite in float64.

BUDGET_SHARE = 4  # Resident rows get a quarter of the memory that is left, and their kernel columns another quarter.

ClassWeight = Mapping[Any, float] | str | None


@dataclass(frozen=True)
class TrainOptions:
    """The options of a training: what is trained, and within which limits.

    Parameters
    ----------
    C : float, default 1.0
        Cost of a row, as in LIBSVM and scikit-learn: C_i = C * class_weight * sample_weight_i.
    solver : str, default "auto"
        Name of the method (methods.registry); "auto" is the first one that minimises the loss and takes the kernel.
    loss : str or None, default None
        Name of the loss of the problem (problems.registry); None is its first one.
    penalty : {"l2", "l1"}, default "l2"
        What is minimised beside the losses: 1/2 |w|^2, or the sum of absolute weights, of which many are 0 then.
    epsilon : float or None, default None
        Half-width of the tube around a target, in which a regression's loss is 0; None is 0.1.
    nu : float or None, default None
        Of one class, the share of the rows that may lie outside, in (0, 1]; None is 0.5.
    class_weight : mapping of label to float, "balanced" or None, default None
        Factors of C by label; "balanced" gives all classes the same weight (`compute_class_factors`).
    tol : float, default 1e-3
        Relative duality gap (P - D) / P at which training ends.
    memory_bytes : int or None, default None
        Limit of the whole resident memory of one process, in bytes; None is half of the machine's memory.
    threads : int or None, default None
        Threads of this process, or of each worker; None is one for each core here, and one in a worker.
    workers : int or None, default None
        Number of worker processes on this machine; None trains on the threads of this process.
    scheduler : str or None, default None
        Address of a Dask cluster ("tcp://host:port") that carries out the passes.
    max_passes : int or None, default None
        Number of passes after which training ends without convergence; None is no limit. The read for gamma "scale"
        is one of them.
    max_seconds : float or None, default None
        Time after which training ends without convergence, in seconds; None is no limit. A start in memory ends then,
        and the pass that follows it, or the pass that has begun, is finished.
    seed : int, default 0
        Seed of all random draws; the same seed gives the same bits on any number of threads and workers.
    kernel : str, default "linear"
        Name of the kernel (numeric.kernels).
    gamma : float, "scale" or "auto", default "scale"
        Scale of a kernel: "scale" is 1 / (features * variance of all values, a row
        counting as much as its weight), "auto" is 1 / features.
    degree : int, default 3
        Degree of the polynomial kernel.
    coef0 : float, default 0.0
        Constant term of the polynomial and sigmoid kernels.
    resident_rows : int, str or None, default None
        Number of rows that are held in memory, or their share ("10%"); None is as many as the memory allows.
    multi_class : str or None, default None
        How more than two classes are trained: "ovr", each against the rest, or "ovo", all pairs of them; None is the
        method's default.
    task : str, default "classify"
        Name of the problem (problems.registry).
    options : mapping of str to str, default empty
        Options of the method's own as texts, by name (options.py in its folder of `streamsvm.methods`).
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


def is_finite(value: Any) -> bool:
    """Tell whether a value is a number that float64 holds, which 10**400 is not."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def check_numbers(options: TrainOptions) -> None:
    """Raise InputError for an unsuitable number among C, tol, the limits and the seed."""
    for name, value in (("C", options.C), ("tol", options.tol)):
        if not (is_finite(value) and value > 0):
            raise InputError(f"{name} is {value!r:.40}; it must be positive and finite")
    if options.C < LEAST_COST:
        raise InputError(f"C is {options.C}; at least {LEAST_COST:.0e} can be computed with")
    for name, limit in (("max_passes", options.max_passes), ("max_seconds", options.max_seconds)):
        if limit is not None and not (isinstance(limit, Real) and limit >= 0):
            raise InputError(f"{name} is {limit!r:.40}; a number of at least 0 is expected")
    check_count("seed", options.seed, 0)


def check_count(name: str, value: Any, least: int) -> int:
    """Return a whole number that is given by this name. InputError for other values, and for less than `least`."""
    if not (isinstance(value, Integral) and int(value) >= least):
        raise InputError(f"{name} is {value!r:.40}; a whole number of at least {least} is expected")
    return int(value)


def compute_class_costs(source: RowSource, options: TrainOptions) -> tuple[float, float]:
    """Return C * class_weight of the two classes, before sample weights; InputError if there are not two classes."""
    costs = options.C * compute_class_factors(source, options)
    if len(costs) != 2:
        raise InputError(f"{source.name}: {say_count(len(costs), 'class')}; two at a time are trained")
    return float(costs[0]), float(costs[1])


def check_costs(source: RowSource, options: TrainOptions) -> None:
    """Raise InputError if the sum of all costs C * class_weight * sample_weight is too large to compute with."""
    sums = source.sum_weights()
    if sums is None:  # there are no labels
        weight = source.column("sample_weight")
        sums = np.array([source.n_rows if weight is None else weight.sum()], np.float64)
    factors = np.ones(len(sums))
    if options.class_weight != "balanced" and not source.has_label_sets:
        factors = _read_factors_or_ones(source, options)
    if source.has_label_sets:
        factors, sums = compute_label_factors(source, options).max(axis=1), sum_label_weights(source).sum(axis=1)
    with np.errstate(over="ignore"):
        total = float(np.sum(options.C * factors * sums))
    if not total < LARGEST_COST:
        raise InputError(
            f"the costs of all rows, C times class_weight times sample_weight, sum to {total:.1e}; at most "
            f"{LARGEST_COST:.0e} can be computed with: lower C or the weights"
        )


def _read_factors_or_ones(source: RowSource, options: TrainOptions) -> F64:
    known = source.classes is not None and isinstance(options.class_weight, Mapping)
    return compute_class_factors(source, options) if known else np.ones(1)


def compute_class_factors(source: RowSource, options: TrainOptions) -> F64:
    """Return the class_weight of each of K classes, (K,); InputError if there are fewer than two classes.

    "balanced" is n / (K n_k), so that all classes weigh the same. n and n_k are sums of sample weights: a row of weight
    2 counts as two rows. scikit-learn's LinearSVC counts likewise since 1.7, while its SVC ignores sample weights here.
    """
    classes, weights = require_classes(source).tolist(), options.class_weight
    if len(classes) < 2:
        listed = ", ".join(map(str, classes))
        raise InputError(f"{source.name}: {len(classes)} class{'es' * (len(classes) != 1)} ({listed}); two are needed")
    if weights == "balanced":
        return _balance(source, classes)
    if weights is None or isinstance(weights, Mapping):
        return _read_factors(weights or {}, classes)
    raise InputError(f"class_weight {weights!r}: give weights by label, or 'balanced'")


def compute_label_factors(source: RowSource, options: TrainOptions) -> F64:
    """Return the class_weight of the rows without each label and with it, (L, 2); of classes, see one_against_rest.

    Of labels a mapping has the factors of 0 and 1, and is for every label. "balanced" is n / (2 n_k) of each by itself.
    """
    classes, weights = require_classes(source), options.class_weight
    if not source.has_label_sets:
        return np.stack((np.ones(len(classes)), compute_class_factors(source, options)), axis=1)
    if weights == "balanced":
        sums = sum_label_weights(source)
        factors: F64 = sums.sum(axis=1, keepdims=True) / (2 * np.maximum(sums, 1.0))
        return factors
    if weights is None or isinstance(weights, Mapping):
        return np.tile(_read_factors(weights or {}, [0, 1]), (len(classes), 1))
    raise InputError(f"class_weight {weights!r}: give the weights of 0 and 1, or 'balanced'")


def require_classes(source: RowSource) -> npt.NDArray[Any]:
    """Return the classes or ranks of a source; InputError if there are none."""
    if source.has_targets:
        raise InputError(f"{source.name}: its labels are numbers to be predicted, and no classes: use the task regress")
    if source.classes is None:
        raise InputError(
            f"{source.name}: no labels to learn from; --label COLUMN (label=... in Python) names their column: of an "
            "AnnData file here, of other files when they are ingested"
        )
    return source.classes


def _balance(source: RowSource, classes: list[Any]) -> F64:
    """Return n / (K n_k) of each class, where n and n_k are sums of sample weights."""
    sums = source.sum_weights()
    assert sums is not None
    if not sums.all():
        label = classes[int(np.argmin(sums))]
        raise InputError(f"class_weight 'balanced': the sample weights of class {label} are all zero")
    factors: F64 = sums.sum() / (len(classes) * sums)
    return factors


def _read_factors(weights: Mapping[Any, float], classes: list[Any]) -> F64:
    """Return the factor of each class; a label names a class if they are equal as values or as texts."""
    factors = np.ones(len(classes))
    for label, weight in weights.items():
        codes = [code for code, known in enumerate(classes) if known == label or str(known) == str(label)]
        if not codes:
            raise InputError(f"class_weight names {label!r}; the classes are {list_labels(classes)}")
        if not (is_finite(weight) and (weight == 0 or weight >= LEAST_COST)):
            raise InputError(
                f"class_weight of {label} is {weight!r:.40}; it must be finite and not negative, and at least "
                f"{LEAST_COST:.0e} if it is not 0"
            )
        factors[codes] = weight
    return factors


def list_labels(classes: Any) -> str:
    """Return labels as a list in words; of more than five labels, it has the first three and the last."""
    shown = [str(label) for label in classes]
    shown = shown if len(shown) <= 5 else [*shown[:3], "..", shown[-1]]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def make_kernel(source: RowSource, options: TrainOptions) -> Kernel:
    """Return the kernel that was asked for; InputError for parameters out of range.

    A gamma of "scale" must have been replaced by its number before, which training.statistics measures.
    """
    if options.kernel not in KERNELS:
        raise InputError(f"kernel {options.kernel!r}: choose from {', '.join(KERNELS)}")
    gamma = options.gamma
    if not has_gamma(options.kernel):
        gamma = 1.0
    elif gamma == "auto":
        gamma = 1.0 / source.n_features
    if not (is_finite(gamma) and gamma > 0):  # type: ignore[operator]
        raise InputError(f"gamma is {options.gamma!r:.40}; it must be positive and finite, or scale, or auto")
    if not (isinstance(options.degree, Integral) and 1 <= int(options.degree) <= LARGEST_DEGREE):
        raise InputError(f"degree is {options.degree!r:.40}; a whole number from 1 to {LARGEST_DEGREE:,} is expected")
    if not is_finite(options.coef0):
        raise InputError(f"coef0 is {options.coef0!r:.40}; it must be finite")
    return Kernel(options.kernel, float(gamma), int(options.degree), float(options.coef0))


def count_resident(wanted: int | str, all_rows: int) -> int:
    """Return the number of rows that "5000" or "10%" stands for; InputError for other texts and fewer than two rows."""
    text = str(wanted)
    number = text.removesuffix("%")
    if not number.replace(".", "", 1).isdecimal():
        raise InputError(f"resident rows {text!r}: a number of rows, or a share like 10%, is expected")
    share = round(min(all_rows * float(number) / 100, all_rows))
    n_rows = share if text.endswith("%") else int(min(float(number), all_rows))
    if n_rows < 2:
        raise InputError(f"resident rows {text!r}: at least two are needed")
    return n_rows
