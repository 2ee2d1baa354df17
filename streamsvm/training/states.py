"""States of solvers are turned into named arrays for a checkpoint, and back.

A state is a dataclass of arrays, scalars and lists of states. What is read back is checked against the state that the
run starts from. An array must have the type that it has at the start. It must also have the same shape, unless it is
empty at the start, or the class says otherwise in one of these attributes:

shapes        the names of the axes of arrays that grow, by field: "n" is the number of rows, "d" the number of weights,
              any other name a length that all axes of that name share; "m-1" and "n/8" follow from "m" and "n"
row_numbers   the fields that hold numbers of rows
added         the fields that checkpoints of earlier versions lack; a missing one has the value of the start

A class may have a method `check`, which raises ValueError for a state that is not valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

S = TypeVar("S")
Array = npt.NDArray[Any]


def flatten(state: Any, prefix: str = "") -> dict[str, Any]:
    """Return the arrays and scalars of a state by name; those of a state in a list are named like "problems/3/cuts"."""
    found: dict[str, Any] = {}
    for part in fields(state):
        name, value = prefix + part.name, getattr(state, part.name)
        if isinstance(value, list):
            for k, one in enumerate(value):
                found |= flatten(one, f"{name}/{k}/")
        else:
            found[name] = value
    return found


def list_added(state: Any, prefix: str = "") -> set[str]:
    """Return the names, as in `flatten`, of the fields that checkpoints of earlier versions lack."""
    found = {prefix + name for name in getattr(state, "added", ())}
    for part in fields(state):
        value = getattr(state, part.name)
        if isinstance(value, list):
            found |= {name for k, one in enumerate(value) for name in list_added(one, f"{prefix}{part.name}/{k}/")}
    return found


def restore(like: S, arrays: Mapping[str, Any], n_rows: int | None = None, prefix: str = "") -> S:
    """Return the state that was flattened into these arrays.

    `like` is the state at the start of the same run, with as many states in its lists, and n_rows the number of rows of
    the data, if they are known. Raises ValueError, which names the part, if the run cannot have reached the state.
    """
    values: dict[str, Any] = {}
    sizes = _find_sizes(like, n_rows)
    for part in fields(like):  # type: ignore[arg-type]
        name, value = prefix + part.name, getattr(like, part.name)
        if isinstance(value, list):
            values[part.name] = [restore(one, arrays, n_rows, f"{name}/{k}/") for k, one in enumerate(value)]
            continue
        if name not in arrays and part.name in getattr(like, "added", ()):
            values[part.name] = value
            continue
        start = np.asarray(value)
        _check_values(name, arrays[name], start)
        _check_shape(name, arrays[name].shape, start.shape, getattr(like, "shapes", {}).get(part.name), sizes)
        values[part.name] = arrays[name] if arrays[name].ndim else arrays[name].item()
    for field in getattr(like, "row_numbers", ()):
        _check_rows(prefix + field, values[field], sizes.get("n"))
    state = type(like)(**values)
    getattr(state, "check", bool)()
    return state


def _find_sizes(like: Any, n_rows: int | None) -> dict[str, int]:
    """Return the lengths of the axes that do not grow, "n" and "d", as they are at the start."""
    sizes = {} if n_rows is None else {"n": n_rows}
    for field, axes in getattr(like, "shapes", {}).items():
        for axis, length in zip(axes, getattr(like, field).shape, strict=True):
            if axis in ("n", "d") and length:
                sizes.setdefault(axis, length)
    return sizes


def _check_values(name: str, found: Array, start: Array) -> None:
    """Raise ValueError for an array of another type, or with NaN or infinity where the start has none."""
    text = found.dtype.kind == start.dtype.kind == "U"
    if found.ndim != start.ndim or (found.dtype != start.dtype and not text):
        shown = f"{found.dtype} in {found.ndim} dimensions"
        raise ValueError(f"{name} is {shown}; {start.dtype} in {start.ndim} is expected")
    for part in found.dtype.names or ("",):
        values, before = (array[part] if part else array for array in (found, start))
        if values.dtype.kind == "f" and (
            (np.isnan(values).any() and not np.isnan(before).any())
            or (np.isinf(values).any() and not np.isinf(before).any())
        ):
            raise ValueError(f"{f'{name}.{part}' if part else name} holds values that are not finite")


def _check_shape(
    name: str, found: tuple[int, ...], start: tuple[int, ...], axes: tuple[str, ...] | None, sizes: dict[str, int]
) -> None:
    """Raise ValueError for an array of another shape. The length of an axis that is met first is added to `sizes`."""
    if axes is None:
        if found != start and 0 not in start:
            raise ValueError(f"{name} has the shape {found}; {start} is expected")
        return
    for axis, length, first in zip(axes, found, start, strict=True):
        expected = _derive(axis, sizes)
        if expected is None:
            sizes[axis] = length
        elif length != expected and not (length == first == 0 and axis in ("n", "d", "n/8")):
            raise ValueError(f"{name} has the shape {found}; {expected} is expected where it has {length}")


def _derive(axis: str, sizes: dict[str, int]) -> int | None:
    """Return the length of an axis, or None if it is not known yet."""
    if axis.isdecimal():
        return int(axis)
    known = sizes.get(axis[0])
    if known is None or len(axis) == 1:
        return known
    return -(-known // 8) if axis == "n/8" else max(0, known - 1)


def _check_rows(name: str, rows: Array, n_rows: int | None) -> None:
    if n_rows is not None and rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < n_rows:
        raise ValueError(f"{name} holds numbers of rows that are not from 0 to {n_rows - 1}")
