"""Labels and costs of rows, as solvers use them, from the codes 0 and 1 of their classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.numeric.rows import F64


def read_labels(class_costs: Any, codes: Any, weight: F64 | None) -> tuple[F64, F64]:
    """Return y_i, -1 or +1, and C_i, (n,) each. C_i is the cost of the row's class, times its weight if it has one."""
    costs = np.asarray(class_costs, np.float64)[codes]
    return np.where(codes == 1, 1.0, -1.0), costs if weight is None else costs * weight
