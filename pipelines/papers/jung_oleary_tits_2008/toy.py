"""The toy problem of Figure 5.9, in two dimensions with an ellipse between the classes; the rows of each iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.papers.jung_oleary_tits_2008.problems import LABELS
from pipelines.papers.jung_oleary_tits_2008.steps import follow_steps, tell_support
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64, Flags
from streamsvm.solvers.interior_point.solver import InteriorPoint

DRAWN_ROWS, LEFT_ROWS = 2000, 1727
ELLIPSE = np.array([[2.9, -1.2], [-1.2, 2.6]])  # A of the ellipse x'Ax = 1, which the paper does not give


@dataclass(frozen=True)
class Snapshot:
    """A step: w and b for the three features, and the rows in the Q of the next step."""

    w: F64
    bias: float
    mu: float
    chosen: Flags


@dataclass(frozen=True)
class Toy:
    """The solved toy problem.

    Attributes
    ----------
    points : array (n, 2)
    y : array (n,) of -1 and +1
    steps : list of Snapshot
    on_boundary : array (n,) of bool
        Support vectors on the boundary of their class, at the end.
    """

    points: F64
    y: F64
    steps: list[Snapshot]
    on_boundary: Flags


def draw_points() -> tuple[F64, F64]:
    """Draw 2,000 points in the square, and drop the points nearest to the ellipse until 1,727 are left."""
    points = np.random.default_rng(2008).uniform(-1, 1, (DRAWN_ROWS, 2))
    heights = np.einsum("ni,ij,nj->n", points, ELLIPSE, points) - 1
    kept = np.sort(np.argsort(-np.abs(heights))[:LEFT_ROWS])
    return points[kept], np.where(heights[kept] < 0, 1.0, -1.0)


def map_points(points: F64) -> F64:
    """Return the features (2.5): (x_1^2, x_2^2, sqrt2 x_1 x_2)."""
    a, b = points.T
    return np.stack([a**2, b**2, np.sqrt(2) * a * b], axis=1)


def solve_toy(tol: float = 1e-8) -> Toy:
    """Solve the toy problem with the settings of the paper: adaptive, balanced, omega, q_U = n, C = 1."""
    points, y = draw_points()
    rows = ArrayDataset(map_points(points).astype(np.float32), (y > 0).astype(np.int32), LABELS)
    followed = list(follow_steps(rows, InteriorPoint((1.0, 1.0), tol)))
    steps = [Snapshot(step.state.w, step.state.bias, step.figures["mu"], chosen) for step, _, chosen in followed]
    return Toy(points, y, steps, tell_support(followed[-1][1])[1])
