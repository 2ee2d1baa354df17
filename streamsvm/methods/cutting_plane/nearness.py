"""Distances of rows from the margin, in one byte a row, and samples that prefer rows near the margin.

A row at distance t is drawn with probability min(1, s / (0.1 + t)^2), and stands for 1 / probability rows. The scale s
is such that about as many rows are drawn as are wanted. t is kept as the code floor(16 log2(1 + t / 0.05)), at most
255, which tells t + 0.05 to 5 percent for distances up to 3,000.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F32, F64, I64

Codes = npt.NDArray[np.uint8]

NEARNESS = 0.1
STEPS, UNIT, CODES = 16, 0.05, 256
ROUNDS = 50  # corrections of the scale s, more than it takes to settle
DRAWN_ROWS = 1 << 20  # rows that are drawn from at a time


def code_distances(margins: F32) -> Codes:
    """Return the codes (n,) of rows, given their margins at one or two points, (n, 1) or (n, 2).

    A row's distance is the smaller one of both points, or 0 if the row changes sides and so meets the margin between.
    """
    before, after = margins[:, 0], margins[:, -1]
    nearer = np.minimum(np.abs(1.0 - before), np.abs(1.0 - after))
    distance = np.where((before < 1.0) != (after < 1.0), np.float32(0.0), nearer)
    codes: Codes = np.minimum(STEPS * np.log2(1.0 + distance / UNIT), CODES - 1).astype(np.uint8)
    return codes


def draw_any(n_rows: int, number: int, seed: tuple[int, ...], is_shuffled: bool = False) -> I64:
    """Return about `number` of n rows, drawn uniformly, in ascending order; all rows if there are no more.

    Of shuffled rows these are the first ones, which can be read without all others.
    """
    if number >= n_rows or is_shuffled:
        return np.arange(min(number, n_rows))
    return np.unique(np.random.default_rng(seed).integers(0, n_rows, number))


def draw_near_margin(codes: Codes, number: int, seed: tuple[int, ...]) -> tuple[I64, F64]:
    """Return about `number` rows in ascending order, and how many rows each stands for."""
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
