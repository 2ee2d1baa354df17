"""Figure 5.9 of jung_2008.py: two dimensions, an ellipse between the classes, and the rows that each iteration uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jung_problems import LABELS
from jung_steps import follow_steps, tell_support

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.methods.interior_point.constraint_reduction import Flags
from streamsvm.methods.interior_point.solver import InteriorPoint
from streamsvm.numeric.rows import F64

DRAWN_ROWS, LEFT_ROWS = 2000, 1727
ELLIPSE = np.array([[2.9, -1.2], [-1.2, 2.6]])  # x'Ax = 1: where the gap is is not published


@dataclass(frozen=True)
class Snapshot:
    """A step: w and b of the three features, and the rows in the Q of the next."""

    w: F64
    bias: float
    mu: float
    chosen: Flags


@dataclass(frozen=True)
class Toy:
    """points: (n, 2); y: (n,), -1 or +1; on_boundary: support vectors on the boundary of their class, at the end."""

    points: F64
    y: F64
    steps: list[Snapshot]
    on_boundary: Flags


def draw_points() -> tuple[F64, F64]:
    """Draw 2,000 points of the square; leave out those nearest to the ellipse, until 1,727 are left."""
    points = np.random.default_rng(2008).uniform(-1, 1, (DRAWN_ROWS, 2))
    heights = np.einsum("ni,ij,nj->n", points, ELLIPSE, points) - 1
    kept = np.sort(np.argsort(-np.abs(heights))[:LEFT_ROWS])
    return points[kept], np.where(heights[kept] < 0, 1.0, -1.0)


def map_points(points: F64) -> F64:
    """Return (2.5): (x_1^2, x_2^2, sqrt2 x_1 x_2)."""
    a, b = points.T
    return np.stack([a**2, b**2, np.sqrt(2) * a * b], axis=1)


def solve_toy(tol: float = 1e-8) -> Toy:
    """Adaptive, balanced, omega, q_U = n, C = 1, as in the paper."""
    points, y = draw_points()
    rows = ArrayDataset(map_points(points).astype(np.float32), (y > 0).astype(np.int32), LABELS)
    steps = []
    for step, chosen in follow_steps(rows, InteriorPoint((1.0, 1.0), tol)):
        state = step.state
        steps.append(Snapshot(state.w, state.bias, step.figures["mu"], chosen))
    return Toy(points, y, steps, tell_support(state)[1])
