"""The matrix of a Newton step, factorised even if rounding has made it singular."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from streamsvm.numeric.rows import F64

RIDGES = (0.0, 1e-14, 1e-12, 1e-9, 1e-6)  # shares of a matrix's diagonal that are added to it, the least that helps


def factorise(M: F64) -> tuple[F64, F64 | None]:
    """Return a matrix and its upper Cholesky factor, which is None if it overflows.

    If rounding has made the matrix singular, its diagonal is raised by the least share of RIDGES that mends it. Without
    the large curvature of the losses a step would be too long by as many orders of magnitude.
    """
    for ridge in RIDGES:
        raised = M + np.diag(ridge * np.diagonal(M))
        try:
            return raised, cholesky(raised, lower=False)
        except (LinAlgError, ValueError):
            continue
    return M, None
