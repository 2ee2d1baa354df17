"""Solver states as named arrays in a checkpoint, and the checkpoint of a feature map.

A state is a dataclass of arrays, scalars and lists of states. A restored state is checked against the initial state:
each array must have the same dtype. It must also have the same shape, unless the initial array is empty or its field
names axes (passes.axes, passes.grows): "n" is the number of rows, "d" the number of weights; any other name stands for
a length that all axes of that name share; "m-1" and "n/8" are derived from "m" and "n". A class of states may have
these attributes:

row_numbers   fields that hold row numbers
added         fields that checkpoints of earlier versions lack; a missing field keeps its initial value

A class may define a method `check`, which raises ValueError for an invalid state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamsvm.system.errors import InputError
from streamsvm.system.npz import unpack_arrays, write_arrays

S = TypeVar("S")
Array = npt.NDArray[Any]


def flatten(state: Any, prefix: str = "") -> dict[str, Any]:
    """Return the arrays and scalars of a state by name; nested names look like "problems/3/cuts"."""
    found: dict[str, Any] = {}
    for part in fields(state):
        name, value = prefix + part.name, getattr(state, part.name)
        if isinstance(value, list):
            for k, one in enumerate(value):
                found |= flatten(one, f"{name}/{k}/")
        else:
            found[name] = value
    return found


def accompany(like: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a checkpoint of the run that starts with the state `like`.

    If `like` is the state of two solvers, and a run of the first alone wrote the checkpoint, the initial state of the
    second is added.
    """
    whole, first = flatten(like), flatten(getattr(like, "states", [like])[0])
    if first.keys() <= whole.keys() or not arrays.keys() <= {*first, "run"}:
        return arrays
    added = {name: np.asarray(arrays.get(name, value)) for name, value in whole.items()}
    return {**added, **{name if name == "run" else f"states/0/{name}": value for name, value in arrays.items()}}


def restore(like: S, arrays: Mapping[str, Any], n_rows: int | None = None, prefix: str = "") -> S:
    """Return the state that was flattened into these arrays.

    like: the initial state, whose lists have the same lengths. n_rows: the number of rows of the data, if known. Raises
    ValueError naming the field if the run cannot have reached the state, and KeyError if a field is missing.
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
        _check_shape(name, arrays[name].shape, start.shape, part.metadata.get("axes"), sizes)
        values[part.name] = arrays[name] if arrays[name].ndim else arrays[name].item()
    for field in getattr(like, "row_numbers", ()):
        _check_rows(prefix + field, values[field], sizes.get("n"))
    state = type(like)(**values)
    getattr(state, "check", bool)()
    return state


def _find_sizes(like: Any, n_rows: int | None) -> dict[str, int]:
    """Return the lengths of the fixed axes "n" and "d", as far as the initial state determines them."""
    sizes = {} if n_rows is None else {"n": n_rows}
    named = [part for part in fields(like) if "axes" in part.metadata]
    for part in named:
        for axis, length in zip(part.metadata["axes"], getattr(like, part.name).shape, strict=True):
            if axis in ("n", "d") and length:
                sizes.setdefault(axis, length)
    return sizes


def _check_values(name: str, found: Array, start: Array) -> None:
    """Raise ValueError for a different dtype or dimension, or for NaN or infinity where the initial array has none."""
    text = found.dtype.kind == start.dtype.kind == "U"
    if found.ndim != start.ndim or (found.dtype != start.dtype and not text):
        shown = f"{found.dtype} in {found.ndim} dimensions"
        raise ValueError(f"{name} is {shown}; {start.dtype} in {start.ndim} dimensions is expected")
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
    """Raise ValueError for a wrong shape. Lengths of axes that are not yet in `sizes` are added to it."""
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


def refuse_changes(path: Path, known: dict[str, Any], new: dict[str, Any], set_by: Mapping[str, str]) -> None:
    """Raise InputError if a run to be resumed had other settings. set_by: the option that sets each setting."""
    by = {name: f" (set by {option})" for name, option in set_by.items()}
    differing = [name for name in new if known.get(name) != new[name]]
    if differing:
        listed = ", ".join(f"{name} was {known.get(name)!r}, now {new[name]!r}{by.get(name, '')}" for name in differing)
        raise InputError(
            f"{path}: cannot be resumed with other settings: {listed}; give the earlier settings, or start again"
        )


def name_checkpoint(destination: Path) -> Path:
    """Return the path of the checkpoint for the dataset of features at `destination`."""
    return destination.with_name(f".{destination.name}.passes.npz")


class FeatureCheckpoint:
    """The checkpoint of the passes that find a feature map: their state and settings.

    It is a hidden file next to the dataset of features, removed once they are written. For a run that stores no
    features, it is a file in the folder of the run.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.settings = path, dict[str, Any]()

    def begin(self, start: S, settings: dict[str, Any], n_rows: int, resume: bool) -> S:
        """Return the saved state if `resume` is set and the file exists; otherwise return `start`.

        settings: everything that determines the features, as JSON. Raises InputError if the file is damaged or belongs
        to other rows or settings.
        """
        self.settings = settings
        if not (resume and self.path.exists()):
            return start
        found = unpack_arrays(self.path)
        try:
            known = dict(json.loads(str(found.pop("settings"))))
            refuse_changes(self.path, known, settings, {})
            if set(found) != set(flatten(start)):
                raise ValueError("it holds other values")
            return restore(start, found, n_rows)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{self.path}: damaged, or not of this version of streamsvm ({error!r}); remove it to start again"
            ) from error

    def save(self, state: Any) -> None:
        """Write the state, which replaces the previous one."""
        write_arrays(self.path, {**flatten(state), "settings": json.dumps(self.settings)})

    def remove(self) -> None:
        """Remove the file once the features are written."""
        self.path.unlink(missing_ok=True)
