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
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, make_canonical_rows
from streamsvm.numeric.stored_types import KINDS, Scaling

MOST_FEATURES = 2**31 - 1  # the limit of 32-bit indices
MOST_DEGREE = 1000  # each degree adds a multiplication to every kernel value
MOST_ROWS = 2**53


def read_rows(arrays: Mapping[str, Any], name: str, n_features: int) -> Matrix:
    """Return finite rows, dense or sparse; sparse rows are canonical."""
    values = arrays.get("data" if name not in arrays else name)
    n_dimensions = 2 if name in arrays else 1
    types = (np.float32, np.float64)
    if not isinstance(values, np.ndarray) or values.dtype not in types or values.ndim != n_dimensions:
        raise ValueError(f"{name} are missing, or not float32 in rows and columns")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} hold values that are not finite")
    if name in arrays:
        if values.shape[1] != n_features:
            raise ValueError(f"{name} have {values.shape[1]} features, not {n_features}")
        return np.ascontiguousarray(values)
    indices, ends = (arrays.get(part, np.empty(0)) for part in ("indices", "indptr"))
    for part, dtype in ((indices, np.int32), (ends, np.int64)):
        if not isinstance(part, np.ndarray) or part.dtype != dtype or part.ndim != 1:
            raise ValueError(f"{name}: indices are not int32, or indptr is not int64")
    if not len(ends) or ends[0] or np.any(ends[1:] < ends[:-1]) or ends[-1] != len(values):
        raise ValueError(f"{name}: indptr leads out of the arrays")
    if len(indices) != len(values) or np.any((indices < 0) | (indices >= n_features)):
        raise ValueError(f"{name}: indices are not from 0 to {n_features - 1}, or not as many as values")
    return make_canonical_rows(CsrRows(values, indices, ends, n_features))


def read_part(parts: Mapping[str, Any], name: str) -> Any:
    """Return the part of this name; raise ValueError if it is missing."""
    if name not in parts:
        raise ValueError(f"{name} is missing")
    return parts[name]


def _read_array(arrays: Mapping[str, Any], name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the array of this name, which must have this type and shape."""
    found = read_part(arrays, name)
    if not isinstance(found, np.ndarray) or found.dtype != dtype or found.shape != shape:
        raise ValueError(f"{name} is {_show_array(found)}; {dtype} of shape {shape} is expected")
    return found


def read_floats(arrays: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> F64:
    """Return a finite array of float64 of the given shape."""
    found: F64 = _read_array(arrays, name, "float64", shape)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds values that are not finite")
    return np.ascontiguousarray(found)


def read_row_numbers(
    arrays: Mapping[str, Any], name: str, length: int, n_rows: int | None = None, parts: I64 | None = None
) -> I64:
    """Return distinct row numbers in ascending order, int64 of the given length.

    n_rows: the number of rows of the dataset, if known. parts: the lengths of successive parts, within each of which
    the numbers ascend; None for one part.
    """
    found = _read_array(arrays, name, "int64", (length,))
    part = np.repeat(np.arange(1 if parts is None else len(parts)), length if parts is None else parts)
    if length and (found.min() < 0 or np.any((found[1:] <= found[:-1]) & (part[1:] == part[:-1]))):
        raise ValueError(f"{name} holds numbers of rows that do not ascend from 0 or more")
    if len(np.unique(found)) < length:
        raise ValueError(f"{name} names a row twice")
    if n_rows is not None and length and found.max() >= n_rows:
        raise ValueError(f"{name} names row {found.max()}, but the model was trained on {n_rows:,} rows")
    return np.ascontiguousarray(found)


def read_n_rows(info: Mapping[str, Any]) -> int | None:
    """Return the number of rows on which the model was trained, or None if it is not recorded."""
    problem = info.get("problem")
    if not isinstance(problem, dict) or "n_rows" not in problem:
        return None
    return read_count(problem, "n_rows", MOST_ROWS)


def read_class_sizes(arrays: Mapping[str, Any], name: str, n_classes: int) -> I64:
    """Return the number of rows of each class, (n_classes,), none negative."""
    found: I64 = _read_array(arrays, name, "int64", (n_classes,))
    if n_classes < 3 or found.min() < 0 or found.max() > MOST_FEATURES:
        raise ValueError(f"{name} holds no numbers of rows of three or more classes")
    return found


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
    """Return the names of the features, or None."""
    found = read_part(parts, "feature_names")
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found) or len(found) != n_features:
        raise ValueError(f"feature_names are not {n_features} texts")
    return tuple(found)


def read_scaling(parts: Mapping[str, Any], arrays: Mapping[str, Any], n_features: int) -> Scaling | None:
    """Return the scaling of `n_features` features, or None."""
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


def read_classes(arrays: Mapping[str, Any], least: int) -> npt.NDArray[Any]:
    """Return the classes or ranks: at least `least` distinct numbers or strings."""
    found = read_part(arrays, "classes")
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "biufU":
        raise ValueError(f"classes are {_show_array(found)}; numbers or texts in one dimension are expected")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError("classes are not finite")
    if len(found) < least or len(np.unique(found)) < len(found):
        raise ValueError(f"classes are {len(found)}, or some are equal; {least} or more different ones are expected")
    return found


def read_intercept(parts: Mapping[str, Any], n_scores: int) -> float | F64:
    """Return the intercept: a number for one score, (n_scores,) for several."""
    found = read_part(parts, "intercept")
    if n_scores == 1:
        return read_number(parts, "intercept")
    if not isinstance(found, list) or len(found) != n_scores:
        raise ValueError(f"intercept is not {n_scores} numbers")
    return np.array([read_number({"intercept": value}, "intercept") for value in found])


def read_info(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the training. An unknown objective or lower bound is None."""
    found = read_part(parts, "info")
    if not isinstance(found, dict):
        raise ValueError("info is no object")
    for name in {"solver", "task", "version", "status", "label_column", "qid_column"} & set(found):
        if not isinstance(found[name], str):
            raise ValueError(f"info: {name} is {str(found[name])[:40]}; a text is expected")
    for name in {"C", "tol", "objective", "lower_bound", "rounding_bound"} & set(found):
        if found[name] is not None:
            read_number(found, name)
    return found


def _show_array(found: Any) -> str:
    return f"{found.dtype} of shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
