"""Starts from earlier trainings: from the weights of a model, or from a ball that is stored with the model.

A ball (solvers.one_read.kept_ball) is stored as arrays with metadata and a checksum, and is checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.kernels.kernel import type_of
from streamsvm.kernels.stored_parts import read_array, read_count, read_floats, read_number, read_rows, require
from streamsvm.models.model import LinearModel, Model, read_about
from streamsvm.numeric.rows import F64, CsrRows, Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.solvers.cutting_plane.cuts import Magnitudes, RowSums
from streamsvm.solvers.cutting_plane.near_rows import Part
from streamsvm.solvers.one_read import kept_ball
from streamsvm.solvers.one_read.kept_ball import Ball, Changed, Finder
from streamsvm.solvers.one_read.setup import COPIES, choose_parameters, make_solver, need_memory
from streamsvm.solvers.one_read.state import GROUP_SHARE, OneRead
from streamsvm.solvers.set_up import choose_solver, read_own_options, set_up
from streamsvm.solvers.solver import Budget, Solver, Wrapper
from streamsvm.system.errors import InputError, MemoryBudgetError

if TYPE_CHECKING:
    from streamsvm.data.store.edits import Changes

FORMAT = 2  # Balls of format 1 have no count of additions.
NEAR = ("numbers", "margins", "reach", "priority")
SUMS = ("sums", "largest")
# the numbers of a ball that are stored in the metadata: the name there, and the attribute of the ball
PLACES = {"n_rows": "n_rows", "cost": "sums.offsets", "size": "sums.sizes", "radius": "near.radius"}
PLACES |= {"total_cost": "magnitudes.cost", "rows_summed": "magnitudes.n_rows", "additions": "magnitudes.additions"}
NUMBERS = ("bias_feature", "cost", "size", "radius", "total_cost")
COUNTS = ("n_rows", "rows_summed", "additions", "n_features")
ONLY_LINEAR = (
    "a ball can be kept only for a linear model of two classes with the hinge loss and up to {} features, trained by "
    "cutting planes"
)
MOST_FEATURES = 400


def choose_ball_settings(source: RowSource, options: TrainOptions) -> OneRead:
    """Return the settings of a ball.

    Raises InputError if the problem has no ball, and MemoryBudgetError if the rows of the ball do not fit into memory.
    """
    if set_up(source, options).n_starts != 1 or source.n_features > MOST_FEATURES:
        raise InputError(ONLY_LINEAR.format(MOST_FEATURES))
    budget = Budget.of(options, choose_solver(options).process_bytes)
    settings = choose_parameters(source, options, read_own_options(options), budget)
    if not settings.resident_rows:
        raise MemoryBudgetError(
            "the rows near the margin that a kept ball stores do not fit into the memory budget; raise --memory, or "
            "omit --keep-ball if it is given (memory, keep_ball in Python)"
        )
    return settings


def join_weights(model: Model, source: RowSource, bias_feature: float) -> F64:
    """Return the weights of a two-class linear model for the rows of a source; the constant feature's weight is last.

    Raises InputError if the model is of another kind, or has other classes or features.
    """
    if not isinstance(model, LinearModel) or model.coef.ndim != 1 or model.features is not None or source.features:
        raise InputError("the model to start from must be a linear model of two classes without a feature map")
    if source.classes is None or model.classes.tolist() != source.classes.tolist():
        raise InputError(f"the model to start from has other classes than {source.name}; choose another model")
    w, b = model.weights(source.n_features, source.scaling, source.is_sparse)
    return np.append(w, float(b) / bias_feature if bias_feature else 0.0)


def list_weights(model: Model, source: RowSource, bias_feature: float) -> list[F64 | None]:
    """Return the one-vs-rest weights for each class of a source with more than two classes; None for new classes.

    Raises InputError if the model is not linear, or has a class or a feature that the source does not have.
    """
    if not isinstance(model, LinearModel) or model.features is not None or source.features:
        raise InputError("the model to start from must be a linear model without a feature map")
    if model.coef.ndim == 1 and len(model.classes) > 2:
        raise InputError("the model to start from ranks rows, so it has no weights for each class; choose a classifier")
    assert source.classes is not None
    classes, known = source.classes.tolist(), model.classes.tolist()
    if not known or not set(known) <= set(classes) or model.problem.has_label_sets != source.has_label_sets:
        raise InputError(
            f"the model to start from has other classes than {source.name}, or another kind of labels; "
            "choose another model"
        )
    w, b = model.weights(source.n_features, source.scaling, source.is_sparse)
    constant = np.asarray(b, np.float64) / bias_feature if bias_feature else np.zeros(w.shape[:-1])
    W = np.concatenate((w, constant[..., None]), axis=-1)
    each = dict(zip(known, np.stack((-W, W)) if W.ndim == 1 else W, strict=True))
    return [each.get(label) for label in classes]


def find_ball(source: RowSource, settings: OneRead, model: Model) -> Finder:
    """Return the generator that computes the ball at the weights of a model."""
    centre = join_weights(model, source, settings.bias_feature)
    return kept_ball.find_ball(settings, source.n_rows, source.is_shuffled, centre)


class StartedFrom(Wrapper):
    """A solver that starts from the weights of a model. Raises InputError if the solver cannot use weights."""

    def __init__(self, inner: Solver, model: Model, source: RowSource) -> None:
        super().__init__(inner)
        if not inner.n_starts:
            raise InputError(
                "start_from is for linear models with the hinge loss, trained by cutting planes; more than two classes "
                "must be trained each against the rest, side by side. Train without start_from, or change these "
                "settings"
            )
        about = model, source, float(inner.settings["bias_feature"])
        self.weights: list[F64 | None] = [join_weights(*about)] if inner.n_starts == 1 else list_weights(*about)
        digest = hashlib.sha256(b"".join(b"new" if w is None else w.tobytes() for w in self.weights))
        self.settings = {**inner.settings, "start_from": digest.hexdigest()}

    def start(self) -> Any:
        """Return the state at the weights of the model."""
        return self.inner.start_each(self.weights)


class Update(Wrapper):
    """A solver that reads only the changed rows of a source, `changes.view()`, and updates a ball.

    The ball may have more near rows than settings.resident_rows, and the update adds new ones. The memory and the
    rounding bounds of sums over resident rows are computed for all near rows, old and new; the totals of a task belong
    to a group of changed rows. A resumed update must use the same ball, which is identified by its SHA-256.
    """

    def __init__(self, changes: Changes, settings: OneRead, ball: Ball, sha256: str, found: list[Ball]) -> None:
        self.view = changes.view()
        left, numbers = changes.renumber(ball.near.numbers)
        left_out = changes.list_copies(ball.near.numbers[~left])
        self.changed = Changed(changes.n_new, changes.n_gone, changes.source.n_rows, left_out)
        if changes.n_gone:  # Near rows may have been deleted since.
            ball = kept_ball.leave_out(settings, ball, left, numbers, changes.n_old)
        self.ball = ball
        most = len(self.ball.near.numbers) + kept_ball.count_new(self.ball, self.changed.n_new, self.view.n_chunks)
        self.parameters = replace(settings, resident_rows=max(settings.resident_rows, most))
        super().__init__(make_solver(changes.source, self.parameters))
        self.settings = {**self.settings, "updates": changes.n_before, "ball": sha256}
        self.found, self.dual, self.sample = found, None, None

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory of passes over the changed rows."""
        return need_memory(self.view, self.parameters, kept_ball.find_share(self.ball) / GROUP_SHARE, COPIES)

    def start(self) -> Any:
        """Return the state at the centre of the ball."""
        return kept_ball.start_update(self.parameters, self.ball, self.changed.n_new)

    def solve(self, state: Any) -> Requests:
        """Yield the passes over the changed rows."""
        return kept_ball.update(self.parameters, self.ball, self.changed, self.found, state)


def pack_ball(ball: Ball, settings: OneRead, fingerprint: str) -> dict[str, Any]:
    """Return a ball as arrays and metadata: the fingerprint of its rows, its costs, and a checksum of everything."""
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
    about = {"format": FORMAT, "fingerprint": fingerprint, "class_costs": list(settings.class_costs)}
    about |= {"bias_feature": settings.bias_feature, "n_features": len(ball.centre) - 1}
    about |= {name: attrgetter(place)(ball) for name, place in PLACES.items()}
    return {"about": json.dumps({**about, "sha256": _digest(about, arrays)}), **arrays}


def unpack_ball(arrays: Mapping[str, Any]) -> tuple[Ball, dict[str, Any]]:
    """Return a ball and its metadata, including its SHA-256.

    Raises ValueError or KeyError if the arrays were not made by `pack_ball`. Arrays that are invalid for compiled code
    are refused even if their checksum is right.
    """
    found, about = dict(arrays), read_about(arrays, (FORMAT,))
    del found["about"]
    sha256 = about.pop("sha256", None)
    require(sha256 == _digest(about, found), "its checksum is wrong")
    require(isinstance(about["fingerprint"], str) and isinstance(about["class_costs"], list), "it has other metadata")
    _, cost, size, radius, total_cost = numbers = [read_number(about, name) for name in NUMBERS]
    n_rows, rows_summed, additions, n_features = (read_count(about, name) for name in COUNTS)
    X = read_rows({name.removeprefix("X/"): values for name, values in found.items()}, "X", n_features)
    n, width, codes = X.shape[0], n_features + 1, read_array(found, "y", "int32", (X.shape[0],))
    weight = read_floats(found, "sample_weight", (n,)) if "sample_weight" in found else np.ones(n)
    margins, reach, priority = (read_floats(found, name, (n,)) for name in NEAR[1:])
    sums, largest, centre, gradient = (read_floats(found, name, (width,)) for name in (*SUMS, "centre", "gradient"))
    is_valid = type_of(X) == np.float32 and 1 <= n <= n_rows <= rows_summed and min(numbers[2:]) >= 0
    is_valid = is_valid and min(map(np.min, (reach, priority, weight, codes))) >= 0 and np.max(codes) <= 1
    require(is_valid, "it holds numbers, labels or weights that are impossible in a ball")
    rows = Rows(-1, X, codes, weight if "sample_weight" in found else None)
    near = Part(rows, read_array(found, "numbers", "int64", (n,)), margins, reach, priority, radius)
    magnitudes = Magnitudes(sums, largest, total_cost, rows_summed, additions)
    A = read_floats(found, "A", (width, width))
    return Ball(centre, A, RowSums(gradient, cost, size), near, n_rows, magnitudes), {**about, "sha256": sha256}


def check_fit(ball: Ball, source: RowSource, n_rows: int) -> None:
    """Raise ValueError unless the ball was computed for n_rows rows that match the source.

    Layout and features must be equal, and either both or neither must have weights.
    """
    rows, numbers, other = ball.near.rows, ball.near.numbers, f"its rows are not the rows of {source.name}: "
    width, has_weights = source.n_features + 1, source.take(np.zeros(1, np.int64)).sample_weight is not None
    are_alike = len(ball.centre) == width and isinstance(rows.X, CsrRows) == source.is_sparse
    require(are_alike, f"{other}they have other features")
    require((rows.sample_weight is not None) == has_weights, f"{other}only one of the two has weights")
    require(ball.n_rows == n_rows, f"{source.name} had {n_rows:,} rows then, not {ball.n_rows:,}")
    is_valid = np.all((numbers >= 0) & (numbers < ball.n_rows)) and len(np.unique(numbers)) == len(numbers)
    require(is_valid, "some numbers of its rows are out of range, or occur twice")


def _digest(about: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(values.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
