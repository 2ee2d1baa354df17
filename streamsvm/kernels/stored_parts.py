"""Readers for the parts of saved models and feature maps, with checks of types, shapes and finite numbers.

Each raises ValueError if its part is invalid; the message names the part and the fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.kernels.kernel import Kernel
from streamsvm.kernels.names import KERNELS
from streamsvm.numeric.encoding import is_syntax
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, make_canonical_rows
from streamsvm.numeric.stored_types import KINDS, Scaling

MOST_FEATURES = 2**31 - 1  # the limit of 32-bit indices
MOST_DEGREE = 1000  # each degree adds a multiplication to every kernel value
MOST_ROWS = 2**53


def require(condition: object, fault: str) -> None:
    """Raise ValueError with the message `fault` unless the condition holds."""
    if not condition:
        raise ValueError(fault)


def read_rows(arrays: Mapping[str, Any], name: str, n_features: int) -> Matrix:
    """Return finite rows, dense or sparse; sparse rows are canonical."""
    is_dense = name in arrays
    values: Any = arrays.get(name if is_dense else "data")
    is_float = isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64)
    is_valid = is_float and values.ndim == 1 + is_dense
    require(is_valid, f"{name} are missing, or are not a float32 matrix")
    require(np.isfinite(values).all(), f"{name} contain values that are not finite")
    if is_dense:
        require(values.shape[1] == n_features, f"{name} have {values.shape[1]} features, not {n_features}")
        return np.ascontiguousarray(values)
    indices, ends = (arrays.get(part, np.empty(0)) for part in ("indices", "indptr"))
    for part, dtype in ((indices, np.int32), (ends, np.int64)):
        is_valid = isinstance(part, np.ndarray) and part.dtype == dtype and part.ndim == 1
        require(is_valid, f"{name}: indices are not int32, or indptr is not int64")
    is_valid = len(ends) and not ends[0] and np.all(ends[1:] >= ends[:-1]) and ends[-1] == len(values)
    require(is_valid, f"{name}: indptr points outside the arrays")
    is_valid = len(indices) == len(values) and np.all((indices >= 0) & (indices < n_features))
    require(is_valid, f"{name}: indices are not from 0 to {n_features - 1}, or not one per value")
    return make_canonical_rows(CsrRows(values, indices, ends, n_features))


def read_part(parts: Mapping[str, Any], name: str) -> Any:
    """Return the part of this name; raise ValueError if it is missing."""
    require(name in parts, f"{name} is missing")
    return parts[name]


def read_array(arrays: Mapping[str, Any], name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the array of this name, which must have this type and shape."""
    found: npt.NDArray[Any] = read_part(arrays, name)
    is_valid = isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == shape
    require(is_valid, f"{name} is {_show_array(found)}; {dtype} of shape {shape} is expected")
    return found


def read_floats(arrays: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> F64:
    """Return a finite array of float64 of the given shape."""
    found: F64 = read_array(arrays, name, "float64", shape)
    require(np.isfinite(found).all(), f"{name} contains values that are not finite")
    return np.ascontiguousarray(found)


def read_row_numbers(
    arrays: Mapping[str, Any], name: str, length: int, n_rows: int | None = None, parts: I64 | None = None
) -> I64:
    """Return distinct row numbers in ascending order, int64 of the given length.

    n_rows: the number of rows of the dataset, if known. parts: the lengths of successive parts, within each of which
    the numbers ascend; None for one part.
    """
    found = read_array(arrays, name, "int64", (length,))
    part = np.repeat(np.arange(1 if parts is None else len(parts)), length if parts is None else parts)
    ascends = np.all((found[1:] > found[:-1]) | (part[1:] != part[:-1])) and found.min(initial=0) >= 0
    require(ascends, f"{name} contains row numbers that are negative or do not ascend")
    require(len(np.unique(found)) == length, f"{name} names a row twice")
    last, most = int(found.max(initial=-1)), MOST_ROWS if n_rows is None else n_rows
    require(last < most, f"{name} names row {last}, but the model was trained on {most:,} rows")
    return np.ascontiguousarray(found)


def read_n_rows(info: Mapping[str, Any]) -> int | None:
    """Return the number of rows on which the model was trained, or None if it is not recorded."""
    problem = info.get("problem")
    if not isinstance(problem, dict) or "n_rows" not in problem:
        return None
    return read_count(problem, "n_rows")


def read_class_sizes(arrays: Mapping[str, Any], name: str, n_classes: int) -> I64:
    """Return the number of rows of each class, (n_classes,), none negative."""
    found: I64 = read_array(arrays, name, "int64", (n_classes,))
    is_valid = n_classes >= 3 and found.min() >= 0 and found.max() <= MOST_FEATURES
    require(is_valid, f"{name} does not contain the numbers of rows of three or more classes")
    return found


def read_number(parts: Mapping[str, Any], name: str) -> float:
    """Return a finite number."""
    found = read_part(parts, name)
    try:
        number = float(found) if type(found) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    require(math.isfinite(number), f"{name} is {str(found)[:40]}; a finite number is expected")
    return number


def read_count(parts: Mapping[str, Any], name: str, most: int = MOST_ROWS) -> int:
    """Return a whole number from 1 to `most`."""
    found = read_part(parts, name)
    is_valid = type(found) is int and 1 <= found <= most
    require(is_valid, f"{name} is {str(found)[:40]}; a whole number from 1 to {most} is expected")
    return int(found)


def read_names(parts: Mapping[str, Any], n_features: int) -> tuple[str, ...] | None:
    """Return the names of the features, or None."""
    found = read_part(parts, "feature_names")
    if found is None:
        return None
    is_valid = isinstance(found, list) and all(isinstance(name, str) for name in found) and len(found) == n_features
    require(is_valid, f"feature_names are not {n_features} strings")
    return tuple(found)


def read_scaling(parts: Mapping[str, Any], arrays: Mapping[str, Any], n_features: int) -> Scaling | None:
    """Return the scaling of `n_features` features, or None."""
    kind = read_part(parts, "scaling")
    if kind is None:
        return None
    require(kind in KINDS, f"scaling is {str(kind)[:40]!r}; one of {', '.join(KINDS)} is expected")
    offset, factor = (read_floats(arrays, name, (n_features,)) for name in ("offset", "factor"))
    require(np.all(factor > 0), "factor contains values that are not positive")
    return Scaling(kind, offset, factor)


def read_kernel(parts: Mapping[str, Any]) -> Kernel:
    """Return a kernel and its parameters."""
    found = read_part(parts, "kernel")
    is_valid = isinstance(found, dict) and set(found) == {"name", "gamma", "degree", "coef0"}
    require(is_valid, "kernel does not consist of name, gamma, degree and coef0")
    name = found["name"]
    require(name in KERNELS, f"kernel: name is {str(name)[:40]!r}; one of {', '.join(KERNELS)} is expected")
    gamma, degree = read_number(found, "gamma"), read_count(found, "degree", MOST_DEGREE)
    require(gamma >= 0, f"gamma is {gamma}; a number of at least 0 is expected")
    return Kernel(name, gamma, degree, read_number(found, "coef0"))


def read_classes(arrays: Mapping[str, Any], least: int) -> npt.NDArray[Any]:
    """Return the classes or ranks: at least `least` distinct numbers or strings."""
    found = read_part(arrays, "classes")
    is_valid = isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype.kind in "biufU"
    require(is_valid, f"classes are {_show_array(found)}; numbers or strings in one dimension are expected")
    require(found.dtype.kind != "f" or np.isfinite(found).all(), "classes are not finite")
    n, n_different = len(found), len(np.unique(found))
    require(least <= n == n_different, f"{n_different} of {n} classes differ; {least} or more classes are expected")
    return np.asarray(found)


def read_intercept(parts: Mapping[str, Any], n_scores: int) -> float | F64:
    """Return the intercept: a number for one score, (n_scores,) for several."""
    found = read_part(parts, "intercept")
    if n_scores == 1:
        return read_number(parts, "intercept")
    require(isinstance(found, list) and len(found) == n_scores, f"intercept is not a list of {n_scores} numbers")
    return np.array([read_number({"intercept": value}, "intercept") for value in found])


def read_info(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the training. An unknown objective or lower bound is None."""
    found: dict[str, Any] = read_part(parts, "info")
    require(isinstance(found, dict), "info is not an object")
    for name in {"solver", "task", "version", "status", "label_column", "qid_column"} & set(found):
        require(isinstance(found[name], str), f"info: {name} is {str(found[name])[:40]}; a string is expected")
    require("read_as" not in found or is_syntax(found["read_as"]), "info: read_as is not the syntax of files")
    for name in {"C", "tol", "objective", "lower_bound", "rounding_bound"} & set(found):
        if found[name] is not None:
            read_number(found, name)
    return found


def _show_array(found: Any) -> str:
    return f"{found.dtype} of shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
