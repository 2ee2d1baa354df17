"""Parts of saved models and feature maps, each checked as it is read: type, shape, and whether numbers are finite.

All of them raise ValueError, which names the part and says what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.canonical import make_canonical_rows
from streamsvm.numeric.kernel_codes import KERNELS
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64, CsrRows, Matrix, unpack_rows
from streamsvm.numeric.scaling import KINDS, Scaling

MOST_FEATURES = 2**31 - 1  # what indices of 32 bits can name
MOST_DEGREE = 1000  # each costs a product for every kernel value


def read_part(parts: Mapping[str, Any], name: str) -> Any:
    """Return a part that has to be there."""
    if name not in parts:
        raise ValueError(f"{name} is missing")
    return parts[name]


def read_floats(arrays: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> F64:
    """Return an array of float64 of that shape, all of it finite."""
    found = read_part(arrays, name)
    if not isinstance(found, np.ndarray) or found.dtype != np.float64 or found.shape != shape:
        raise ValueError(f"{name} is {_show_array(found)}; float64 of shape {shape} is expected")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds values that are not finite")
    return np.ascontiguousarray(found)


def read_rows(arrays: Mapping[str, Any], name: str, n_features: int) -> Matrix:
    """Return rows, dense or sparse, all of their values finite."""
    rows = unpack_rows(arrays, name, n_features)
    return make_canonical_rows(rows) if isinstance(rows, CsrRows) else rows


def read_number(parts: Mapping[str, Any], name: str) -> float:
    """Return a finite number."""
    found = read_part(parts, name)
    try:
        number = float(found) if type(found) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {str(found)[:40]}; a finite number is expected")
    return number


def read_count(parts: Mapping[str, Any], name: str, most: int) -> int:
    """Return a whole number from 1 to `most`."""
    found = read_part(parts, name)
    if type(found) is not int or not 1 <= found <= most:
        raise ValueError(f"{name} is {str(found)[:40]}; a whole number from 1 to {most} is expected")
    return found


def read_names(parts: Mapping[str, Any], n_features: int) -> tuple[str, ...] | None:
    """Return the names of the features, if there are any."""
    found = read_part(parts, "feature_names")
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found) or len(found) != n_features:
        raise ValueError(f"feature_names are not {n_features} texts")
    return tuple(found)


def read_scaling(parts: Mapping[str, Any], arrays: Mapping[str, Any], n_features: int) -> Scaling | None:
    """Return the scaling of so many features, if there is one."""
    kind = read_part(parts, "scaling")
    if kind is None:
        return None
    if kind not in KINDS:
        raise ValueError(f"scaling is {str(kind)[:40]!r}; one of {', '.join(KINDS)} is expected")
    offset, factor = (read_floats(arrays, name, (n_features,)) for name in ("offset", "factor"))
    if not np.all(factor > 0):
        raise ValueError("factor holds values that are not positive")
    return Scaling(kind, offset, factor)


def read_kernel(parts: Mapping[str, Any]) -> Kernel:
    """Return a kernel and its parameters."""
    found = read_part(parts, "kernel")
    if not isinstance(found, dict) or set(found) != {"name", "gamma", "degree", "coef0"}:
        raise ValueError("kernel is not of name, gamma, degree and coef0")
    if found["name"] not in KERNELS:
        raise ValueError(f"kernel: name is {str(found['name'])[:40]!r}; one of {', '.join(KERNELS)} is expected")
    gamma, degree = read_number(found, "gamma"), read_count(found, "degree", MOST_DEGREE)
    if gamma <= 0:
        raise ValueError(f"gamma is {gamma}; a positive number is expected")
    return Kernel(found["name"], gamma, degree, read_number(found, "coef0"))


def read_classes(arrays: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the classes or ranks: two or more different numbers or texts."""
    found = read_part(arrays, "classes")
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "biufU":
        raise ValueError(f"classes are {_show_array(found)}; numbers or texts in one dimension are expected")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError("classes are not finite")
    if len(found) < 2 or len(np.unique(found)) < len(found):
        raise ValueError(f"classes are {len(found)}, or some are equal; two or more different ones are expected")
    return found


def read_intercept(parts: Mapping[str, Any], n_scores: int) -> float | F64:
    """Return the intercept, or those of so many scores if they are several."""
    found = read_part(parts, "intercept")
    if n_scores == 1:
        return read_number(parts, "intercept")
    if not isinstance(found, list) or len(found) != n_scores:
        raise ValueError(f"intercept is not {n_scores} numbers")
    return np.array([read_number({"intercept": value}, "intercept") for value in found])


def read_info(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is told of the training; objective and lower bound may be unknown, which is None."""
    found = read_part(parts, "info")
    if not isinstance(found, dict):
        raise ValueError("info is no object")
    for name in {"solver", "task", "version", "status"} & set(found):
        if not isinstance(found[name], str):
            raise ValueError(f"info: {name} is {str(found[name])[:40]}; a text is expected")
    for name in {"C", "objective", "lower_bound"} & set(found):
        if found[name] is not None:
            read_number(found, name)
    return found


def _show_array(found: Any) -> str:
    return f"{found.dtype} of shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
