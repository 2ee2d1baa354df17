"""The exponent p of power-law growth y ~ x^p."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def fit_exponent(points: Iterable[tuple[float, float]]) -> float:
    """Return the slope of the line through the logarithms of x and y; NaN if no two x differ."""
    logs = np.log(np.array(list(points), float))
    if len(np.unique(logs[:, 0])) < 2:
        return float("nan")
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
