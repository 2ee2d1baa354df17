"""Generated sparse rows that resemble text. The labels are a noisy linear function of the rows (ingestion.generated).

A few features occur in almost every row, and most features in very few rows. Rows have norm 1, and different numbers of
non-zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamsvm.ingestion.generated import Truth
from streamsvm.numeric.rows import F64, I64, CsrRows
from streamsvm.system.errors import InputError


@dataclass(frozen=True)
class SparseTruth(Truth):
    """The distribution of sparse rows. row_items: the mean number of non-zeros of a row."""

    row_items: int = 86
    is_sparse: ClassVar[bool] = True

    @property
    def row_bytes(self) -> int:
        """The bytes of an average row with its label, in the dataset."""
        return 12 + 8 * self.row_items

    def count_items(self, n_rows: int) -> tuple[int, int]:
        """Return the numbers of non-zeros in all rows and in the longest row.

        Only the lengths of rows are drawn for this.
        """
        if not 2 <= self.row_items <= self.n_features // 2:
            raise InputError(
                f"{self.row_items} non-zeros per row are asked for; from 2 to half of the {self.n_features} features "
                "are possible"
            )
        total = longest = 0
        for block, (_, rows) in enumerate(self.list_blocks(n_rows)):
            lengths = self._draw_lengths(np.random.default_rng((self.seed, 1, block)), rows)
            total, longest = total + int(lengths.sum()), max(longest, int(lengths.max()))
        return total, longest

    def _draw_lengths(self, random: np.random.Generator, n_rows: int) -> I64:
        return random.integers(self.row_items // 2, 2 * self.row_items - self.row_items // 2, n_rows, endpoint=True)

    def draw(self, random: np.random.Generator, n_rows: int) -> CsrRows:
        """Draw rows with sorted indices: the k-th of K items has about the index (k/K)^3 d, for d features."""
        lengths = self._draw_lengths(random, n_rows)
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        row = np.repeat(np.arange(n_rows), lengths)
        k = np.arange(indptr[-1]) - indptr[row]
        place: F64 = (k + random.random(len(k))) / lengths[row]
        indices = (place**3 * (self.n_features - lengths[row])).astype(np.int32) + k.astype(np.int32)
        values: F64 = random.random(len(k)) + 0.1
        values /= np.sqrt(np.bincount(row, values**2))[row]
        return CsrRows(values.astype(np.float32), indices, indptr, self.n_features)
