"""Which rows a step may have made violate their conditions since their sums f were last known.

The sums of rows that are not active are not known before the next pass, while the active rows move. A row met its
condition by some leeway when its f was last known: before the step, or in the last turn in which it was active. The
standard deviation by which f of the active rows has moved since then tells how far f of that row may have moved.
"""

from __future__ import annotations

import numpy as np

from streamsvm.methods.decomposition.selection import Conditions, Mask
from streamsvm.numeric.rows import F64, I64


class NearRows:
    """What a step knows of the leeway of n rows.

    leeway: (n,), of each row when its f was last known. known_at: (n,), the path at that time. path: the sum over the
    turns of the step so far of the standard deviation by which f of the active rows has moved in the turn.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.leeway, self.known_at, self.path = conditions.leeway, np.zeros(len(conditions.errors)), 0.0

    def update(self, rows: I64, conditions: Conditions, change: F64) -> None:
        """Note the conditions of the active rows after a turn that has changed their sums by `change`."""
        self.path += float(np.std(change))
        self.leeway[rows], self.known_at[rows] = conditions.leeway, self.path

    def list_rows(self, is_candidate: Mask) -> I64:
        """Return the candidates whose leeway is less than the path since it was known, the least share of it first."""
        path = self.path - self.known_at
        near = np.flatnonzero(is_candidate & (path > 0.0) & (self.leeway < path))
        return near[np.argsort(self.leeway[near] / path[near], kind="stable")]
