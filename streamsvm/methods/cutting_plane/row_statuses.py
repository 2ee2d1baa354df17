"""The steps of a segment at which each row is active, as one byte a row. numeric.losses adds up the same statuses.

The code of a row is 2 k + a. Here a is 1 if the row is active at step 0 (its margin is below 1), and k is the interval
between cut steps in which its status changes, counted from 1 as in `add_segment_totals`, or 0 if it does not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, Rows

U8 = npt.NDArray[np.uint8]


def read_statuses(rows: Rows, scores: F64, biases: F64, class_costs: F64, cut_steps: F64) -> tuple[F32, U8]:
    """Return the rows' margins at the end of the segment, (n,), and their codes, (n,).

    scores (n, 2): at both ends, without the biases (2,). A row of cost 0 gets the margin inf and the code 0. The
    statuses are the ones that numeric.losses finds, to the last bit of the scores.
    """
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    a, b = (y[:, None] * (scores + biases)).T
    starts_active, switches = a < 1.0, (a < 1.0) != (b < 1.0)
    step = np.divide(1.0 - a, b - a, out=np.zeros(len(y)), where=switches)
    bucket = 1 + np.minimum(np.searchsorted(cut_steps, step), len(cut_steps) - 1)
    codes: Any = 2 * np.where(switches, bucket, 0) + starts_active
    counts = costs > 0.0
    return np.where(counts, b, np.inf).astype(np.float32), np.where(counts, codes, 0).astype(np.uint8)


def find_active(codes: U8, k: int) -> npt.NDArray[np.bool_]:
    """Return which rows are active at cut step k, counted from 1; k = 0 is the start of the segment."""
    bucket = codes >> 1
    active: npt.NDArray[np.bool_] = ((codes & 1) == 1) != ((bucket > 0) & (bucket <= k))
    return active
