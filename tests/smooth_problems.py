"""P of the smooth losses in long double, and its minimum by a Newton method that is written out here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.conftest import F64, Problem

Long = npt.NDArray[np.longdouble]
LOSSES = ("squared_hinge", "logistic")


@dataclass(frozen=True)
class Smooth:
    """P(w) = 1/2 |w|^2 + sum C_i l(y_i w.z_i), where z_i has the constant feature as its last entry."""

    loss: str
    Z: Long
    y: Long
    costs: Long

    def value(self, w: npt.NDArray[Any]) -> np.longdouble:
        """P at w."""
        w = w.astype(np.longdouble)
        margins = self.y * (self.Z @ w)
        if self.loss == "squared_hinge":
            losses = np.maximum(0, 1 - margins) ** 2
        else:
            losses = np.logaddexp(np.longdouble(0), -margins)
        return np.longdouble(w @ w / 2 + self.costs @ losses)

    def slopes(self, w: Long) -> tuple[Long, Long]:
        """The gradient of P at w, and the second derivatives of the losses."""
        margins = self.y * (self.Z @ w)
        if self.loss == "squared_hinge":
            missing = np.maximum(0, 1 - margins)
            return w + self.Z.T @ (-2 * self.costs * self.y * missing), 2 * self.costs * (missing > 0)
        share = np.exp(-np.logaddexp(np.longdouble(0), margins))
        return w + self.Z.T @ (-self.costs * self.y * share), self.costs * share * (1 - share)

    def minimise(self, start: npt.NDArray[Any] | None = None, most: int = 200) -> tuple[Long, np.longdouble]:
        """The minimiser and the minimum, by Newton steps that are solved in float64 and searched along in long double.

        The minimum is a value of P, hence never below the true one.
        """
        w = np.zeros(self.Z.shape[1], np.longdouble) if start is None else start.astype(np.longdouble)
        best = self.value(w)
        for _ in range(most):
            gradient, bends = self.slopes(w)
            step = _solve(self.Z * np.sqrt(bends)[:, None], gradient)
            shares = (share for share in 0.5 ** np.arange(40.0) if self.value(w - share * step) < best)
            share = next(shares, 0.0)
            if share == 0.0:
                break
            w = w - share * step
            best = self.value(w)
        return w, best


def _solve(R: Long, gradient: Long) -> Long:
    """(I + R'R)^-1 gradient, with columns scaled to a diagonal of ones, and refined in long double."""
    M = R.T @ R + np.eye(R.shape[1], dtype=np.longdouble)
    scale = 1 / np.sqrt(np.diagonal(M))
    S = scale[:, None] * M * scale
    inverse, x = np.linalg.pinv(S.astype(np.float64), hermitian=True), np.zeros_like(gradient)
    for _ in range(4):
        x = x + inverse @ (scale * gradient - S @ x)
    return np.asarray(scale * x)


def make_smooth(problem: Problem, loss: str, costs: F64, bias_feature: float = 1.0) -> Smooth:
    """P of a problem's rows."""
    Z = np.column_stack((problem.dense(), np.full(len(problem.y), bias_feature)))
    return Smooth(loss, *(each.astype(np.longdouble) for each in (Z, problem.y, costs)))
