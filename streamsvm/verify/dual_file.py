"""The file `dual.npz`, in which a run keeps its dual points next to the model, as arrays without pickle.

about                                         JSON: the format, the model's SHA-256, the data's fingerprint and n_rows
k/share, most, rows, corrections              the point of problem k, if given by shares (certificates.dual_points)
k/vectors, ends, steps, multipliers           the point of problem k, if given by cuts
k/own_cuts, own_stops, own_rows, own_shares   the rows that have individual shares in these cuts

With more than two classes, problem k separates class k from the rest. Files of format 1 lack the arrays of the last
line, and may lack most, rows and corrections. `verify` trusts nothing in the file: it refuses infeasible points, and
computes D from feasible points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.certificates.dual_points import OWN, DualPoint
from streamsvm.data.rows.source import RowSource
from streamsvm.models.model import Model, read_about
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.npz import unpack_arrays, write_arrays

NAME = "dual.npz"
FORMAT = 2
READABLE = (1, 2)
# Files of earlier versions lack these arrays. In this case, no row is corrected or has an individual share in a cut.
ADDED = ("most", "rows", "corrections", *OWN)
MOST_ABOVE = 1e-9  # a sum of multipliers may exceed 1 by this amount, due to rounding


def find_dual_file(model: Path) -> Path:
    """Return the path of the dual file that belongs to a model; `model` is the model's file or its run's folder."""
    return (model if model.is_dir() else model.parent) / NAME


def write_dual_points(folder: Path, points: Sequence[DualPoint], model: Model, source: RowSource) -> None:
    """Write the dual points of all problems of a model to the run's folder, completely or not at all."""
    arrays = {f"{k}/{name}": part for k, point in enumerate(points) for name, part in vars(point).items()}
    about = {"format": FORMAT, **_describe(model, source), "n_problems": len(points)}
    write_arrays(folder / NAME, {"about": json.dumps(about), **arrays})


def read_dual_points(path: Path, model: Model, source: RowSource) -> list[DualPoint]:
    """Return the dual points of this model and these rows, one per problem.

    Raises InputError if the file is missing or damaged, or belongs to another model or other data.
    """
    if not path.exists():
        raise InputError(
            f"{path}: no such file: a linear model does not include its dual point; train with --keep-dual to keep one"
        )
    arrays = unpack_arrays(path)
    try:
        about = read_about(arrays, READABLE)
        for name, value in _describe(model, source).items():
            if about.get(name) != value:
                what = {"model_sha256": "model", "fingerprint": "data", "n_rows": "data"}[name]
                raise ValueError(f"it belongs to another {what}")
        n_problems = np.size(model.intercept)
        known = {f"{k}/{name}" for k in range(n_problems) for name in vars(DualPoint())}
        needed = {name for name in known if name.split("/")[1] not in ADDED}
        if about.get("n_problems") != n_problems or not needed <= set(arrays) - {"about"} <= known:
            raise ValueError(f"the dual points of {say_count(n_problems, 'problem')} are expected")
        return [_read_point(arrays, k, model, source) for k in range(n_problems)]
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: not the dual point of this model and these rows ({error}); train again with --keep-dual"
        ) from error


def _describe(model: Model, source: RowSource) -> dict[str, Any]:
    return {"model_sha256": model.sha256, "fingerprint": source.fingerprint, "n_rows": source.n_rows}


def _read_point(arrays: Mapping[str, Any], k: int, model: Model, source: RowSource) -> DualPoint:
    """Return the dual point of problem k. Raises ValueError if any part of the point is invalid."""
    empty = {name: np.asarray(part) for name, part in vars(DualPoint()).items()}
    parts = {name: np.asarray(arrays.get(f"{k}/{name}", part)) for name, part in empty.items()}
    for name, part in parts.items():
        expected = empty[name]
        if part.dtype != expected.dtype or part.ndim != expected.ndim:
            raise ValueError(f"{k}/{name} is {part.dtype} in {say_count(part.ndim, 'dimension')}")
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            raise ValueError(f"{k}/{name} holds values that are not finite")
    values: dict[str, Any] = {name: np.ascontiguousarray(part) for name, part in parts.items()}
    point = DualPoint(**values | {"most": parts["most"].item()})
    _check_shares(point, model, source)
    _check_corrections(point)
    _check_cuts(point, source.n_features + model.problem.predicts_labels)
    if len(point.own_cuts) and not model.problem.predicts_labels:
        raise ValueError("own_cuts: in the cuts of a ranking no row has a share of its own")
    point.check(source.n_rows)
    return point


def _check_shares(point: DualPoint, model: Model, source: RowSource) -> None:
    allowed = (0, source.n_rows) if model.problem.predicts_labels else (0,)
    if len(point.share) not in allowed:
        raise ValueError(f"share has {say_count(len(point.share), 'row')}, the data have {source.n_rows:,}")
    if not 0.5 <= point.most <= 1.0:
        raise ValueError(f"most is {point.most}, which is not from 1/2 to 1")
    if not len(point.share) and point.most != 1.0:  # shares computed from cuts may reach 1
        raise ValueError(f"most is {point.most}, but a point by cuts may have shares of 1")
    if len(point.share) and not 0.0 <= float(point.share.min()) <= float(point.share.max()) <= point.most:
        raise ValueError(f"share is not from 0 to {point.most}: a multiplier is beyond its bounds")


def _check_corrections(point: DualPoint) -> None:
    """Raise ValueError unless the corrections belong to rows with a share, in ascending order.

    The sizes of the corrections are not checked here: `verify` limits them, since their limits depend on the costs.
    """
    if point.corrections.shape != (len(point.rows), 2):
        raise ValueError(f"there are {say_count(len(point.rows), 'row')} with corrections {point.corrections.shape}")
    if len(point.rows) and not 0 <= int(point.rows[0]) <= int(point.rows[-1]) < len(point.share):
        raise ValueError(f"rows of corrections are not among the {say_count(len(point.share), 'row')} with a share")
    if (point.rows[1:] <= point.rows[:-1]).any():
        raise ValueError("rows of corrections are not in ascending order")


def _check_cuts(point: DualPoint, width: int) -> None:
    m, p = len(point.steps), len(point.vectors)
    if point.ends.shape != (m, 2) or len(point.multipliers) != m or (p and point.vectors.shape[1] != width):
        raise ValueError(f"the numbers of cuts, vectors of {width} weights and multipliers contradict one another")
    if m and not 0.0 <= float(point.steps.min()) <= float(point.steps.max()) <= 1.0:
        raise ValueError("steps are not between 0 and 1")
    if m and (float(point.multipliers.min()) < 0.0 or math.fsum(point.multipliers.tolist()) > 1.0 + MOST_ABOVE):
        raise ValueError("multipliers are negative, or sum to more than 1")
