"""A generated click log: a table of texts and numbers in which a few pairs of an ad and a site get many clicks."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

COLUMNS = ("clicked", "site", "ad", "device", "city", "hour", "seen")
CATEGORIES = {"site": 3000, "ad": 1000, "device": 40, "city": 2000}
BASE = -2.0  # the log-odds of a click if all effects are zero
BLOCK = 10_000


def write_log(path: Path, seed: int, n_rows: int) -> None:
    """Write a CSV file with a row for each ad that was shown, and whether it was clicked.

    The values of a column are distributed like words: the share of the k-th value is about proportional to 1 / k. Each
    value has its own effect on the log-odds of a click, which is the same in all files.
    """
    effects = np.random.default_rng(12)
    by_value = {name: effects.normal(scale=0.7, size=count) for name, count in CATEGORIES.items()}
    random = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for start in range(0, n_rows, BLOCK):
            n = min(BLOCK, n_rows - start)
            codes = {name: _draw(random, count, n) for name, count in CATEGORIES.items()}
            hour, seen = random.integers(24, size=n), random.poisson(2.0, size=n)
            odds = BASE + sum(by_value[name][code] for name, code in codes.items()) - 0.2 * seen
            clicked = random.random(n) < 1.0 / (1.0 + np.exp(-odds))
            texts = [[f"{name}-{code}" for code in codes[name]] for name in CATEGORIES]
            writer.writerows(zip(clicked.astype(int), *texts, hour, seen, strict=True))


def _draw(random: np.random.Generator, count: int, n: int) -> np.ndarray:
    """Draw n codes below `count`; smaller codes are more frequent."""
    return np.minimum((count + 1) ** random.random(n) - 1, count - 1).astype(np.int64)
