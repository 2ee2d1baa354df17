"""On which steps of a segment each row is active: what numeric.losses adds up, by row.

The code of a row is 2 k + a: a = 1 if it is active at step 0, k the interval between cut steps in which its status
changes, as a bucket of `add_segment_totals`, 0 if it does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, Rows

U8 = npt.NDArray[np.uint8]


def read_statuses(rows: Rows, scores: F64, biases: F64, class_costs: F64, cut_steps: F64) -> tuple[F32, U8]:
    """Return the rows' margins at the segment's end, (n,), and their codes, (n,). Rows that cost nothing: inf, 0.

    scores: (n, 2) at both ends, without the biases (2,). Decides as the losses do, to the last bit.
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
    """Return which rows are active at the k-th cut step, step 0 being the 0th."""
    bucket = codes >> 1
    active: npt.NDArray[np.bool_] = ((codes & 1) == 1) != ((bucket > 0) & (bucket <= k))
    return active
