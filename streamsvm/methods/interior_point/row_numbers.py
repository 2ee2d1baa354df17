"""The numbers of each row, which stay where the rows are read, and how steps change them (requests.RowState).

    f, s, t, xi, r     the point (interior_point.steps)
    y, costs           the label, -1 or +1, and the cost C_i
    predicted          X dw of the predictor
    corrected          X dw of pure centering after the pass `predict`, and of the corrector after the pass `assemble`
    after              X w at the end of the step

The driver holds none of them. It knows all changes since the start: a step has two vectors dw of d entries, found
before `predict`, and dw and w before `assemble`, and a Course of seven numbers. The numbers of a row follow from these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from streamsvm.methods.interior_point.steps import (
    Direction,
    Point,
    Targets,
    aim_at_center,
    aim_at_zero,
    find_direction,
    find_scales,
    move_inside,
    unwarned,
)
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.row_products import SUMS_MAY_BE_REORDERED, scores_of
from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, split
from streamsvm.requests import Change

F, S, T, XI, R, Y, COSTS, PREDICTED, CORRECTED, AFTER = range(10)
N_NUMBERS = 10
BEGIN, PREDICT, CORRECT, MOVE, ARRIVE = range(5)  # the kinds of changes
N_VECTORS = 2  # of a change PREDICT or CORRECT


class Course(NamedTuple):
    """A step from a point, without its vectors dw: its numbers are all that the rows need beside their X dw.

    bias, mu: of the point. predicted_change: of the bias, by the predictor. center: sigma mu. mean: of the costs.
    bias_change, length: of the step.
    """

    bias: float
    predicted_change: float
    mu: float
    center: float
    mean: float
    bias_change: float = 0.0
    length: float = 0.0


def point_of(numbers: F64) -> Point:
    """Return the variables of rows."""
    return Point(numbers[F], numbers[S], numbers[T], numbers[XI], numbers[R])


def find_predicted(numbers: F64, bias: float, change: float) -> Direction:
    """Return the direction of the predictor. bias, change: b, and its change."""
    point = point_of(numbers)
    found: Direction = find_direction(
        point, numbers[Y], numbers[COSTS], bias, aim_at_zero(point), numbers[PREDICTED], change
    )
    return found


def find_targets(numbers: F64, course: Course) -> Targets:
    """Return the targets of the corrector."""
    predicted = find_predicted(numbers, course.bias, course.predicted_change)
    scales = find_scales(numbers[COSTS], course.mean)
    targets: Targets = aim_at_center(point_of(numbers), predicted, course.mu, course.center, scales)
    return targets


def find_corrected(numbers: F64, course: Course, df: F64) -> Direction:
    """Return the direction of the corrector with this X dw, (n,)."""
    rows = (numbers[Y], numbers[COSTS], course.bias, find_targets(numbers, course))
    found: Direction = find_direction(point_of(numbers), *rows, df, course.bias_change)
    return found


def list_changes(kinds: I64, given: F64, vectors: F64) -> list[Change]:
    """Return the changes of these kinds (m,). given (m, 7): numbers of each. vectors (v, d): two of some of them."""
    changes, at = list[Change](), 0
    for kind, numbers in zip(kinds.tolist(), given, strict=True):
        if kind == BEGIN:
            changes.append(Change(begin, (numbers[:2].copy(),)))
        elif kind in (PREDICT, CORRECT):
            changes.append(Change(predict if kind == PREDICT else correct, (vectors[at : at + N_VECTORS],)))
            at += N_VECTORS
        elif kind == MOVE:
            changes.append(Change(move, tuple(numbers.tolist()), of_features=False))
        else:
            changes.append(Change(arrive, of_features=False))
    return changes


def check_changes(kinds: I64, vectors: F64) -> None:
    """Raise ValueError unless there may be such changes."""
    n_vectors = N_VECTORS * int(np.count_nonzero((kinds == PREDICT) | (kinds == CORRECT)))
    if not np.isin(kinds, (BEGIN, PREDICT, CORRECT, MOVE, ARRIVE)).all() or len(vectors) != n_vectors:
        raise ValueError("change_kinds: no changes of an interior point")
    if (len(kinds) > 0 and kinds[0] != BEGIN) or (kinds[1:] == BEGIN).any():
        raise ValueError("change_kinds: one start is needed")


def begin(_: None, rows: Rows, class_costs: F64) -> F64:
    """Return w = 0 and s = xi = 2 as in the paper (section 5), and t = r = 1, which are multipliers within bounds."""
    numbers = np.zeros((N_NUMBERS, rows.n_rows))
    numbers[[S, XI]], numbers[[T, R]] = 2.0, 1.0
    numbers[Y], numbers[COSTS] = read_labels(class_costs, rows.y, rows.sample_weight)
    return numbers


def predict(numbers: F64, rows: Rows, dws: F64) -> F64:
    """Return the numbers with X dw of the predictor and of pure centering, whose dw are dws (2, d)."""
    found = numbers.copy()
    found[[PREDICTED, CORRECTED]] = _map(*split(rows.X), dws)
    return found


def correct(numbers: F64, rows: Rows, ends: F64) -> F64:
    """Return the numbers with X dw of the corrector, and X w after the step. ends (2, d): dw, and w after the step.

    So the new f is one product, and its rounding does not grow from step to step.
    """
    found = numbers.copy()
    found[[CORRECTED, AFTER]] = _map(*split(rows.X), ends)
    return found


@unwarned
def move(numbers: F64, rows: Rows, *given: float) -> F64:  # noqa: ARG001
    """Return the numbers after a step, with f moved as far as s, t, xi and r."""
    course, found = Course(*given), numbers.copy()
    direction = find_corrected(numbers, course, numbers[CORRECTED])
    found[: len(Point._fields)] = move_inside(point_of(numbers), direction, course.length)
    return found


def arrive(numbers: F64, rows: Rows) -> F64:  # noqa: ARG001
    """Return the numbers with the new product as f."""
    found = numbers.copy()
    found[F] = numbers[AFTER]
    return found


@njit(cache=True, nogil=True, fastmath=SUMS_MAY_BE_REORDERED)
def _map(values: F32, indices: I32, indptr: I64, dws: F64) -> F64:
    """Return X dw, (k, n), for k = 1 or 2 vectors dw. Dense rows are read one at a time, in the order of memory.

    This takes half the time of four rows at a time (rows.scores_of), because reading X is most of the work.
    """
    if values.ndim == 1:
        scores = np.empty((indptr.size - 1, len(dws)))
        scores_of(values, indices, indptr, dws, scores)
        return scores.T.copy()
    products, u, v = np.empty((len(dws), len(values))), dws[0], dws[-1]
    for i in range(len(values)):
        x, by_u, by_v = values[i], 0.0, 0.0
        for j in range(x.size):
            by_u += x[j] * u[j]
            by_v += x[j] * v[j]
        products[0, i], products[-1, i] = by_u, by_v
    return products
