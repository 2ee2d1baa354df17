"""Balls that are kept beside a model (methods.cutting_plane.kept_ball), set up for the rows of a source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.changes import Changes
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError, MemoryBudgetError
from streamsvm.methods.cutting_plane import kept_ball
from streamsvm.methods.cutting_plane.cuts import RowSums
from streamsvm.methods.cutting_plane.exact_points import Magnitudes
from streamsvm.methods.cutting_plane.kept_ball import Ball, Changed, Finder
from streamsvm.methods.cutting_plane.near_rows import Part
from streamsvm.methods.cutting_plane.one_read_setup import COPIES, choose_settings, make_fit, need_memory
from streamsvm.methods.cutting_plane.one_read_state import GROUP_SHARE, OneRead
from streamsvm.methods.fit import Fit
from streamsvm.methods.set_up import read_own_options, set_up
from streamsvm.models.model import LinearModel, Model
from streamsvm.numeric.rows import F64, CsrRows, Rows
from streamsvm.options import TrainOptions

__all__ = [
    "Ball",
    "Finder",
    "check_fit",
    "choose_ball_settings",
    "find_ball",
    "join_weights",
    "make_fit",
    "pack_ball",
    "read_about",
    "set_up_update",
    "start_fit",
    "unpack_ball",
]

FORMAT = 2  # balls of format 1 do not count the additions that were made
NEAR = ("numbers", "margins", "reach", "priority")
SUMS = ("sums", "largest")
ABOUT: dict[str, tuple[type, ...]] = {"fingerprint": (str,), "class_costs": (list,)}
ABOUT |= dict.fromkeys(("n_rows", "rows_summed", "additions", "n_features"), (int,))
ABOUT |= dict.fromkeys(("bias_feature", "cost", "size", "radius", "total_cost"), (int, float))
ONLY_LINEAR = (
    "a ball is kept of linear models of two classes with the hinge loss, with up to {} features, trained by cutting "
    "planes"
)
MOST_FEATURES = 400


def choose_ball_settings(source: RowSource, options: TrainOptions) -> OneRead:
    """Return the settings of a ball. InputError for problems that have none, or too little memory."""
    if set_up(source, options).start_at is None or source.n_features > MOST_FEATURES:
        raise InputError(ONLY_LINEAR.format(MOST_FEATURES))
    settings = choose_settings(source, options, read_own_options(options))
    if not settings.resident_rows:
        raise MemoryBudgetError("the memory has no room for the rows of a ball; allow more, or leave it out")
    return settings


def join_weights(model: Model, source: RowSource, bias_feature: float) -> F64:
    """Return the weights of a linear model of two classes for the rows of a source, with that of the constant feature.

    InputError if the model is another one, or of other classes or features.
    """
    if not isinstance(model, LinearModel) or model.coef.ndim != 1 or model.features is not None or source.features:
        raise InputError("a training starts from linear models of two classes, without a feature map")
    if source.classes is None or model.classes.tolist() != source.classes.tolist():
        raise InputError(f"the model to start from has other classes than {source.name}")
    w, b = model.weights(source.n_features, source.scaling, source.is_sparse)
    return np.append(w, float(b) / bias_feature if bias_feature else 0.0)


def list_weights(model: Model, source: RowSource, bias_feature: float) -> list[F64 | None]:
    """Return the weights of each class of a source with more than two, against the rest; None for new classes.

    InputError if the model is no linear one, or has a class or a feature that the source does not have.
    """
    if not isinstance(model, LinearModel) or model.features is not None or source.features:
        raise InputError("a training starts from linear models, without a feature map")
    assert source.classes is not None
    classes, known = source.classes.tolist(), model.classes.tolist()
    if not known or not set(known) <= set(classes) or model.problem.has_label_sets != source.has_label_sets:
        raise InputError(f"the model to start from has other classes than {source.name}, or labels of another kind")
    w, b = model.weights(source.n_features, source.scaling, source.is_sparse)
    constant = np.asarray(b, np.float64) / bias_feature if bias_feature else np.zeros(w.shape[:-1])
    W = np.concatenate((w, constant[..., None]), axis=-1)
    each = dict(zip(known, np.stack((-W, W)) if W.ndim == 1 else W, strict=True))
    return [each.get(label) for label in classes]


def find_ball(source: RowSource, settings: OneRead, model: Model) -> Finder:
    """Return what finds the ball at the weights of a model."""
    centre = join_weights(model, source, settings.bias_feature)
    return kept_ball.find_ball(settings, source.n_rows, source.is_shuffled, centre)


def start_fit(fit: Fit, model: Model, source: RowSource) -> Fit:
    """Return a fit that starts from the weights of a model. InputError for methods that have no use for them."""
    if fit.start_at is None and fit.start_each is None:
        raise InputError(
            "start_from is for linear models with the hinge loss, trained by cutting planes, and of more than two "
            "classes for those that are trained against the rest side by side; leave it out"
        )
    bias_feature, start = float(fit.settings["bias_feature"]), fit.start
    weights: list[F64 | None] = []
    if fit.start_at is not None:
        w = join_weights(model, source, bias_feature)
        weights, start = [w], partial(fit.start_at, w)
    elif fit.start_each is not None:
        weights = list_weights(model, source, bias_feature)
        start = partial(fit.start_each, weights)
    digest = hashlib.sha256(b"".join(b"new" if w is None else w.tobytes() for w in weights))
    return replace(fit, start=start, settings={**fit.settings, "start_from": digest.hexdigest()})


def leave_out(ball: Ball, settings: OneRead, changes: Changes) -> tuple[Ball, Changed]:
    """Return a ball without the near rows that were deleted since, and what an update has to know of the changes."""
    left, numbers = changes.renumber(ball.near.numbers)
    left_out = changes.list_copies(ball.near.numbers[~left])
    changed = Changed(changes.n_new, changes.n_gone, changes.source.n_rows, left_out)
    return kept_ball.leave_out(settings, ball, left, numbers, changes.n_old) if changes.n_gone else ball, changed


def set_up_update(changes: Changes, settings: OneRead, ball: Ball, sha256: str, found: list[Ball]) -> Fit:
    """Return the fit that reads changed rows only: `changes.view` of the rows of a source.

    The ball may have more near rows than the settings have resident rows, and new near rows come on top. Memory and the
    rounding of sums over resident rows count all of them; the totals of a task are those of a group of changed rows. A
    resumed update shares the ball, which its SHA-256 tells.
    """
    source, view = changes.source, changes.view()
    ball, changed = leave_out(ball, settings, changes)
    most = len(ball.near.numbers) + kept_ball.count_new(ball, changed.n_new, view.n_chunks)
    settings = replace(settings, resident_rows=max(settings.resident_rows, most))
    whole = make_fit(source, settings)
    return replace(
        whole,
        settings={**whole.settings, "updates": changes.n_before, "ball": sha256},
        memory=partial(need_memory, view, settings, kept_ball.find_share(ball) / GROUP_SHARE, COPIES),
        start=partial(kept_ball.start_update, settings, ball, changed.n_new),
        solve=partial(kept_ball.update, settings, ball, changed, found),
        dual=None,
        sample=None,
    )


def pack_ball(ball: Ball, settings: OneRead, fingerprint: str) -> dict[str, Any]:
    """Return a ball as arrays, with the rows that it belongs to, its costs, and a checksum of all of it."""
    rows = ball.near.rows
    X = rows.X
    features = {"X/data": X.data, "X/indices": X.indices, "X/indptr": X.indptr} if isinstance(X, CsrRows) else {"X": X}
    arrays = {
        **features,
        **{name: values for name, values in rows.vectors.items() if name in ("y", "sample_weight")},
        **{name: getattr(ball.near, name) for name in NEAR},
        **{name: getattr(ball.magnitudes, name) for name in SUMS},
        "centre": ball.centre,
        "A": ball.A,
        "gradient": ball.sums.vectors,
    }
    about = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "class_costs": list(settings.class_costs),
        "bias_feature": settings.bias_feature,
        "n_rows": ball.n_rows,
        "cost": ball.sums.offsets,
        "size": ball.sums.sizes,
        "radius": ball.near.radius,
        "total_cost": ball.magnitudes.cost,
        "rows_summed": ball.magnitudes.n_rows,
        "additions": ball.magnitudes.additions,
        "n_features": len(ball.centre) - 1,
    }
    return {"about": json.dumps({**about, "sha256": _digest(about, arrays)}), **arrays}


def unpack_ball(arrays: Mapping[str, Any]) -> tuple[Ball, dict[str, Any]]:
    """Return a ball and what is told of it, its SHA-256 too. ValueError or KeyError for what is not of `pack_ball`."""
    found, about = dict(arrays), read_about(arrays)
    del found["about"]
    if about.get("format") != FORMAT:
        raise ValueError("it has another format")
    sha256 = about.pop("sha256", None)
    if sha256 != _digest(about, found):
        raise ValueError("its checksum is wrong")
    wrong = [name for name, kinds in ABOUT.items() if type(about[name]) not in kinds]
    if wrong:
        raise ValueError(f"{wrong[0]} is {str(about[wrong[0]])[:40]}")
    ball = _make_ball(found, about)
    _check(ball)
    return ball, {**about, "sha256": sha256}


def read_about(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is told of a ball, which is not checked."""
    about = json.loads(str(arrays["about"]))
    if not isinstance(about, dict):
        raise ValueError("it has another format")
    return about


def check_fit(ball: Ball, source: RowSource, n_rows: int) -> None:
    """Raise ValueError unless a ball is one of n_rows rows that are like those of a source."""
    rows, numbers = ball.near.rows, ball.near.numbers
    width, has_weights = source.n_features + 1, source.take(np.zeros(1, np.int64)).sample_weight is not None
    if len(ball.centre) != width or isinstance(rows.X, CsrRows) != source.is_sparse:
        raise ValueError(f"its rows are not the rows of {source.name}: other features")
    if (rows.sample_weight is not None) != has_weights:
        raise ValueError(f"its rows are not the rows of {source.name}: weights in one of the two only")
    if ball.n_rows != n_rows:
        raise ValueError(f"{source.name} had {n_rows:,} rows then, and not {ball.n_rows:,}")
    if np.any((numbers < 0) | (numbers >= ball.n_rows)) or len(np.unique(numbers)) < len(numbers):
        raise ValueError("numbers of rows that lie outside of its rows, or occur twice")


def _make_ball(found: Mapping[str, Any], about: Mapping[str, Any]) -> Ball:
    d, X = about["n_features"], found.get("X")
    if X is None:
        X = CsrRows(found["X/data"], found["X/indices"], found["X/indptr"], d)
    rows = Rows(-1, X, found["y"], found.get("sample_weight"))
    near = replace(Part(rows, *(found[name] for name in NEAR)), radius=about["radius"])
    counts = about["total_cost"], about["rows_summed"], about["additions"]
    magnitudes = Magnitudes(found["sums"], found["largest"], *counts)
    sums = RowSums(found["gradient"], about["cost"], about["size"])
    return Ball(found["centre"], found["A"], sums, near, about["n_rows"], magnitudes)


def _check(ball: Ball) -> None:
    """Raise ValueError for arrays that compiled code could not take, whoever has made their checksum."""
    near, width = ball.near, len(ball.centre)
    n, X = len(near.numbers), near.rows.X
    shapes: list[tuple[Any, tuple[int, ...], Any]] = (
        [(X, (n, width - 1), np.float32)] if isinstance(X, np.ndarray) else []
    )
    shapes += [(getattr(near, name), (n,), np.int64 if name == "numbers" else np.float64) for name in NEAR]
    shapes += [(values, (width,), np.float64) for values in (ball.centre, ball.sums.vectors)]
    shapes += [(values, (width,), np.float64) for values in (ball.magnitudes.sums, ball.magnitudes.largest)]
    shapes += [(ball.A, (width, width), np.float64), (near.rows.y, (n,), np.int32)]
    weight = near.rows.sample_weight
    shapes += [] if weight is None else [(weight, (n,), np.float64)]
    if isinstance(X, CsrRows):
        items = len(X.data)
        shapes += [(X.data, (items,), np.float32), (X.indices, (items,), np.int32), (X.indptr, (n + 1,), np.int64)]
    for values, shape, dtype in shapes:
        if values.shape != shape or values.dtype != dtype or not np.isfinite(values).all():
            raise ValueError(f"an array of shape {values.shape} where finite numbers {shape} are expected")
    if isinstance(X, CsrRows):
        _check_items(X, width - 1)
    codes, numbers = near.rows.y, (near.radius, ball.sums.sizes, ball.magnitudes.cost, ball.magnitudes.additions)
    right = all(np.isfinite(number) and number >= 0 for number in (*numbers, abs(ball.sums.offsets)))
    right = right and 1 <= n <= ball.n_rows <= ball.magnitudes.n_rows < 2**62
    right = right and not (np.any(near.reach < 0) or np.any(near.priority < 0))
    if not right or np.any((codes != 0) & (codes != 1)) or (weight is not None and np.any(weight < 0)):
        raise ValueError("numbers, labels or weights that no ball has")


def _check_items(X: CsrRows, n_features: int) -> None:
    if X.n_features != n_features:
        raise ValueError(f"sparse rows with {X.n_features} features, and a centre with {n_features}")
    limits = X.indptr[0] == 0 and X.indptr[-1] == len(X.data) == len(X.indices) and np.all(np.diff(X.indptr) >= 0)
    if not limits or np.any((X.indices < 0) | (X.indices >= X.n_features)):
        raise ValueError("items of sparse rows that lie outside of the rows")


def _digest(about: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(values.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
