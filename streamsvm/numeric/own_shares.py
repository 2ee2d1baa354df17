"""Rows that have a share of their own in a cut, where the side of the margin on which they lie does not say it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64, I64


class OwnShares(NamedTuple):
    """The rows of several cuts, one cut after the other.

    own_cuts (c,): ascending places of the cuts that have such rows; own_stops (c,): where the rows of each of them end;
    own_rows, own_shares (e,): the numbers of the rows, which ascend in each cut, and their shares, from 0 to 1.
    """

    own_cuts: I64
    own_stops: I64
    own_rows: I64
    own_shares: F64


class OfCut(NamedTuple):
    """The rows of one cut: their numbers, ascending, and their shares, (e,) each."""

    rows: I64
    shares: F64


NONE = OfCut(np.empty(0, np.int64), np.empty(0))


def join(parts: Sequence[OfCut]) -> OwnShares:
    """Return the rows of all cuts, given those of each."""
    own = [k for k, part in enumerate(parts) if len(part.rows)]
    return OwnShares(
        np.array(own, np.int64),
        np.cumsum([len(parts[k].rows) for k in own], dtype=np.int64),
        np.concatenate([NONE.rows, *(parts[k].rows for k in own)]),
        np.concatenate([NONE.shares, *(parts[k].shares for k in own)]),
    )


def split(own: OwnShares) -> dict[int, OfCut]:
    """Return the rows of each cut that has any, by its place, as views."""
    bounds = pairwise([0, *own.own_stops.tolist()])
    parts = [OfCut(own.own_rows[a:b], own.own_shares[a:b]) for a, b in bounds]
    return dict(zip(own.own_cuts.tolist(), parts, strict=True))


def check(own: OwnShares, n_cuts: int, n_rows: int | None = None) -> None:
    """Raise ValueError unless the rows belong to cuts that exist; n_rows: of all rows, if it is known."""
    cuts, stops = own.own_cuts, np.concatenate(([0], own.own_stops))
    if len(cuts) != len(own.own_stops) or len(own.own_rows) != len(own.own_shares) or stops[-1] != len(own.own_rows):
        raise ValueError("own_cuts, own_stops, own_rows and own_shares do not go together")
    if (cuts[1:] <= cuts[:-1]).any() or (len(cuts) and not 0 <= int(cuts[0]) <= int(cuts[-1]) < n_cuts):
        raise ValueError(f"own_cuts are not places of the {n_cuts} cuts in ascending order")
    if (stops[1:] <= stops[:-1]).any():
        raise ValueError("own_stops are not in ascending order")
    for rows, _ in split(own).values():
        if (rows[1:] <= rows[:-1]).any():
            raise ValueError("own_rows of a cut are not in ascending order")
        if int(rows[0]) < 0 or (n_rows is not None and int(rows[-1]) >= n_rows):
            raise ValueError("own_rows are not among the rows of the data")
    if not ((own.own_shares >= 0.0) & (own.own_shares <= 1.0)).all():
        raise ValueError("own_shares are not from 0 to 1: a multiplier is beyond its bounds")


def put_own_shares(active: npt.NDArray[np.bool_], first: int, own: OwnShares) -> F64:
    """Return the share of each row in each cut, (n, m): its own, or 1 if the row is active and else 0.

    first: the number of the first of these consecutive rows.
    """
    shares = active.astype(np.float64)
    for cut, (rows, values) in split(own).items():
        start, stop = np.searchsorted(rows, [first, first + len(shares)])
        shares[rows[start:stop] - first, cut] = values[start:stop]
    return shares
