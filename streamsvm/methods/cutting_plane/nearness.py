"""How near the margin rows are, in a byte each, and a sample of those that are near.

A row at distance t from the margin is drawn with probability min(1, s / (0.1 + t)^2), s such that about as many rows
come out as are wanted, and stands for 1 / probability rows. t is kept as the code floor(16 log2(1 + t / 0.05)), at most
255: to 5 percent, up to 3,000.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F32, F64, I64

Codes = npt.NDArray[np.uint8]

NEARNESS = 0.1
STEPS, UNIT, CODES = 16, 0.05, 256
ROUNDS = 50  # of scaling: more than it takes
DRAWN_ROWS = 1 << 20  # at a time


def code_distances(margins: F32) -> Codes:
    """Return codes of rows (n,) with margins at two points (n, 2): of the nearer one's distance.

    Rows whose status differs are at distance 0: they are on the margin somewhere between.
    """
    before, after = margins[:, 0], margins[:, -1]
    nearer = np.minimum(np.abs(1.0 - before), np.abs(1.0 - after))
    distance = np.where((before < 1.0) != (after < 1.0), np.float32(0.0), nearer)
    codes: Codes = np.minimum(STEPS * np.log2(1.0 + distance / UNIT), CODES - 1).astype(np.uint8)
    return codes


def draw_any(n_rows: int, number: int, seed: tuple[int, ...]) -> I64:
    """Return about so many of n rows, all alike, ascending; all if they are that few."""
    if number >= n_rows:
        return np.arange(n_rows)
    return np.unique(np.random.default_rng(seed).integers(0, n_rows, number))


def draw_near_margin(codes: Codes, number: int, seed: tuple[int, ...]) -> tuple[I64, F64]:
    """Return about so many rows, ascending, and how many rows each stands for."""
    if number >= len(codes):
        return np.arange(len(codes)), np.ones(len(codes))
    distance = UNIT * (2.0 ** (np.arange(CODES) / STEPS) - 1.0)
    near, counts = 1.0 / (NEARNESS + distance) ** 2, np.zeros(CODES)
    parts = [(at, codes[at : at + DRAWN_ROWS]) for at in range(0, len(codes), DRAWN_ROWS)]
    for _, part in parts:
        counts += np.bincount(part, minlength=CODES)
    scale = number / float(counts @ near)
    for _ in range(ROUNDS):
        scale *= number / float(counts @ np.minimum(1.0, scale * near))
    probability, rng = np.minimum(1.0, scale * near), np.random.default_rng(seed)
    drawn = np.concatenate([at + np.flatnonzero(rng.random(len(part)) < probability[part]) for at, part in parts])
    return drawn, 1.0 / probability[codes[drawn]]
