"""The scaling of a dataset's features, and the feature map that produced its rows, read and checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from streamsvm.data.checks import are_finite
from streamsvm.data.manifest import FEATURES
from streamsvm.data.store import StoredArray
from streamsvm.errors import IntegrityError
from streamsvm.numeric.feature_maps import Features, KernelMap, unpack_features
from streamsvm.numeric.scaling import KINDS, Scaling

Open = Callable[[str], StoredArray]


def read_scaling(path: str, meta: dict[str, Any], stored: Open) -> Scaling | None:
    """Return how the features were scaled, or None. Raises IntegrityError for what is no scaling."""
    if not meta["scaling"]:
        return None
    offset, factor = (stored(f"scaling/{name}").read(0, meta["n_features"]) for name in ("offset", "factor"))
    scaling = Scaling(meta["scaling"], offset, factor)
    if _is_scaling(scaling, meta["n_features"]) and not (meta["sparse"] and offset.any()):
        return scaling
    raise IntegrityError(f"{path}/scaling: offsets and factors that no scaling has: they are damaged")


def read_features(path: str, meta: dict[str, Any], stored: Open) -> Features | None:
    """Return the feature map that produced the rows, or None. Raises IntegrityError if it cannot have produced them."""
    if (about := meta.get("features")) is None:
        return None
    names = [name for name in meta["arrays"] if name.startswith(FEATURES)]
    arrays = {name.removeprefix(FEATURES): (array := stored(name)).read(0, array.length) for name in names}
    try:
        features = unpack_features(about, arrays)
        if about["map"] in ("kernel", "polynomial") and _could_make(features, arrays, meta["n_features"]):
            return features
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise IntegrityError(f"{path}/{FEATURES}: the feature map cannot be read ({error!r})") from error
    raise IntegrityError(f"{path}/{FEATURES}: the feature map is not one that makes {meta['n_features']} features")


def _could_make(features: Features, arrays: dict[str, Any], n_features: int) -> bool:
    """Tell whether a map has the sizes, types and values that compiled code takes for granted."""
    found, names, d = features.map, features.feature_names, features.map.d
    if any(values.dtype.kind == "f" and not are_finite(values) for values in arrays.values()):
        return False
    if isinstance(found, KernelMap):
        types = {name: arrays[name].dtype for name in arrays if name not in ("offset", "factor")}
        wanted = {"matrix": np.float64, "rows": np.float32, "data": np.float32, "indices": np.int32, "indptr": np.int64}
        kernel = found.kernel
        numbers = all(isinstance(value, int | float) and math.isfinite(value) for value in (kernel.gamma, kernel.coef0))
        known = numbers and isinstance(kernel.degree, int) and kernel.degree >= 1 and kernel.gamma > 0
        known = known and all(dtype == wanted[name] for name, dtype in types.items()) and 0 not in found.matrix.shape
    else:
        known = isinstance(found.largest, int | float) and 0 < found.largest < math.inf
    named = names is None or (len(names) == d and all(isinstance(name, str) for name in names))
    scaled = features.scaling is None or _is_scaling(features.scaling, d)
    return known and named and scaled and isinstance(d, int) and d >= 1 and found.n_features == n_features


def _is_scaling(scaling: Scaling, d: int) -> bool:
    offset, factor = scaling.offset, scaling.factor
    right = offset.shape == factor.shape == (d,) and offset.dtype == factor.dtype == np.float64
    return scaling.kind in KINDS and right and are_finite(offset) and are_finite(factor) and bool(np.all(factor > 0))
