"""Solvers on transformed rows: labels or weights are changed between the engine and the solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from streamsvm.data.rows.views import RowTransform
from streamsvm.numeric.rows import Rows
from streamsvm.passes import All, Requests, RowState, Scan, Take, Walk, WalkStep
from streamsvm.solvers.solver import Solver, Wrapper


def transform_rows(solver: Requests, transform: RowTransform) -> Requests:
    """Pass on the requests of a solver, and send it transformed rows in reply.

    A transform with per-row arrays needs the numbers of the rows. In sequential passes, rows have numbers only if the
    passes go over groups of successive chunks. A transform that drops rows supports neither sequential passes nor
    passes with per-row arrays.
    """
    request, taken = next(solver), None
    while True:
        found = yield _transform_request(request, transform, taken)
        taken = found if isinstance(request, Take) else None
        request = solver.send(_transform_answer(request, transform, found))


class OnTransformedRows(Wrapper):
    """A solver that receives transformed rows. Its requests are translated into requests for the stored rows."""

    def __init__(self, inner: Solver, transform: RowTransform, driver_bytes: int = 0, shared_bytes: int = 0) -> None:
        super().__init__(inner, driver_bytes, shared_bytes)
        self.transform = transform

    def solve(self, state: Any) -> Requests:
        """Yield the requests of the inner solver, and send it transformed rows."""
        return transform_rows(self.inner.solve(state), self.transform)


def _transform_request(request: Any, transform: RowTransform, taken: Rows | None) -> Any:
    """Return the request for the engine; a step stays as it is.

    taken: the stored rows if the last request was a Take, or None.
    """
    match request:
        case Take():
            return Take(transform.to_source(request.rows))
        case Scan():
            n_arrays = len(transform.by_row)
            function = _leave_rows if request.of_states else transform.function
            return replace(
                request,
                add=OnTransformed(request.add, function, len(request.shared), n_arrays),
                held=None if request.held is None else taken,
                by_row=(*transform.by_row, *request.by_row),
                states=tuple(_transform_state(state, transform) for state in request.states),
            )
        case Walk():
            return replace(request, step=partial(_step_on_transformed, request.step, transform))
        case All():
            return replace(request, requests=[_transform_request(one, transform, taken) for one in request.requests])
    return request


def _transform_state(state: RowState, transform: RowTransform) -> RowState:
    """Return a state whose changes see transformed rows. The transform's arrays come first in the pass's `by_row`."""
    assert state.altering == (0, 0)
    n_arrays = len(transform.by_row)
    changes = [
        replace(change, apply=OnTransformed(change.apply, transform.function, len(change.given), n_arrays))
        if change.of_features
        else change
        for change in state.changes
    ]
    return replace(state, changes=changes, altering=(0, n_arrays))


def _leave_rows(rows: Rows, *_: Any) -> Rows:
    """Return the rows unchanged, because passes over row states do not use labels or weights."""
    return rows


def _transform_answer(request: Any, transform: RowTransform, found: Any) -> Any:
    if isinstance(request, All):
        pairs = zip(request.requests, found, strict=True)
        return [_transform_answer(one, transform, part) for one, part in pairs]
    return transform.apply(found, transform.to_source(request.rows)) if isinstance(request, Take) else found


@dataclass(frozen=True)
class OnTransformed:
    """The `add` of a pass, or the `apply` of a change of row states, on transformed rows.

    A call passes `n_before` arrays of the function, then `n_arrays` arrays of the transform, then the other arrays of
    the function.
    """

    function: Callable[..., Any]
    transform: Callable[..., Rows]
    n_before: int
    n_arrays: int

    def __call__(self, values: Any, rows: Rows, *arrays: Any) -> Any:
        """Call the function with the transformed rows; if the transform drops all rows, return the values."""
        stop = self.n_before + self.n_arrays
        transformed = self.transform(rows, *arrays[self.n_before : stop])
        if not transformed.n_rows:
            return values
        return self.function(values, transformed, *arrays[: self.n_before], *arrays[stop:])


def _step_on_transformed(step: WalkStep, transform: RowTransform, carry: Any, rows: Rows) -> Iterator[tuple[Any, int]]:
    """Make the step of a sequential pass on transformed rows; return an iterator over its carries."""
    assert rows.start >= 0 or not transform.by_row
    return step(carry, transform.apply_in_place(rows))
