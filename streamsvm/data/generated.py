"""Generated datasets of any size, whose labels a noisy linear function decides.

    y_i = sign(w.x_i - t), flipped with probability `noise`; w is normal, t the median score of the first block

Dense rows are normal, and the scale of the last feature is a tenth of the first one's. Sparse rows resemble text: a few
features occur in almost every row and most in hardly any, rows differ in length, and their norm is 1. The rows are
written block by block in bounded memory. Every block has its own random generator, (seed, block), so the values depend
on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamsvm import interrupts
from streamsvm.data.dataset import Dataset
from streamsvm.data.destination import new_folder
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.writer import DatasetWriter, Shape
from streamsvm.errors import InputError
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F32, F64, I64, CsrRows, Matrix, Rows

BLOCK_BYTES = 8 << 20
CHUNK_BYTES = 16 << 20
SMALLEST_SCALE = 0.1


@dataclass(frozen=True)
class Truth:
    """The distribution of the rows. row_items: mean number of non-zeros of a sparse row; None for dense rows."""

    n_features: int
    row_items: int | None = None
    noise: float = 0.1
    seed: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the dataset with its label; the mean for sparse rows."""
        return 4 + 4 * self.n_features if self.row_items is None else 12 + 8 * self.row_items

    def make_blocks(self, n_rows: int) -> Iterator[Rows]:
        """Yield the rows in blocks of about BLOCK_BYTES."""
        weights = np.random.default_rng((self.seed, 0)).standard_normal((1, self.n_features))
        threshold = None
        for block, (start, rows) in enumerate(self._blocks(n_rows)):
            random = np.random.default_rng((self.seed, 1, block))
            X = self._draw_dense(random, rows) if self.row_items is None else self._draw_sparse(random, rows)
            scores = compute_scores(X, weights)[:, 0]
            threshold = float(np.median(scores)) if threshold is None else threshold
            flipped = random.random(rows) < self.noise
            yield Rows(start, X, ((scores > threshold) ^ flipped).astype(np.int32))

    def count_items(self, n_rows: int) -> tuple[int, int]:
        """Return the non-zeros of all rows and of the longest row, for which only the lengths are drawn."""
        if self.row_items is None:
            return n_rows * self.n_features, self.n_features
        total = longest = 0
        for block, (_, rows) in enumerate(self._blocks(n_rows)):
            lengths = self._draw_lengths(np.random.default_rng((self.seed, 1, block)), rows)
            total, longest = total + int(lengths.sum()), max(longest, int(lengths.max()))
        return total, longest

    def _blocks(self, n_rows: int) -> Iterator[tuple[int, int]]:
        step = max(1, BLOCK_BYTES // self.row_bytes)
        return ((start, min(step, n_rows - start)) for start in range(0, n_rows, step))

    def _draw_dense(self, random: np.random.Generator, n_rows: int) -> F32:
        X = random.standard_normal((n_rows, self.n_features), np.float32)
        X *= np.geomspace(1, SMALLEST_SCALE, self.n_features, dtype=np.float32)
        return X

    def _draw_lengths(self, random: np.random.Generator, n_rows: int) -> I64:
        assert self.row_items is not None
        return random.integers(self.row_items // 2, 2 * self.row_items - self.row_items // 2, n_rows, endpoint=True)

    def _draw_sparse(self, random: np.random.Generator, n_rows: int) -> Matrix:
        """Draw rows in which item k of K lies about (k/K)^3 of the way through the features: they need no sort."""
        lengths = self._draw_lengths(random, n_rows)
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        row = np.repeat(np.arange(n_rows), lengths)
        k = np.arange(indptr[-1]) - indptr[row]
        place: F64 = (k + random.random(len(k))) / lengths[row]
        indices = (place**3 * (self.n_features - lengths[row])).astype(np.int32) + k.astype(np.int32)
        values: F64 = random.random(len(k)) + 0.1
        values /= np.sqrt(np.bincount(row, values**2))[row]
        return CsrRows(values.astype(np.float32), indices, indptr, self.n_features)


def write_generated(destination: str | Path, n_rows: int, truth: Truth) -> Dataset:
    """Write rows of the classes -1 and 1 as a dataset, and open it. Raises InputError for an impossible shape."""
    if n_rows < 2 or truth.n_features < 1 or not 0 <= truth.noise < 0.5:
        raise InputError("at least 2 rows, 1 feature and less than half of the labels flipped are needed")
    if truth.row_items is not None and not 2 <= truth.row_items <= truth.n_features // 2:
        raise InputError(f"{truth.row_items} non-zeros a row: from 2 to half of the {truth.n_features} features")
    shape = Shape(n_rows, truth.n_features, *truth.count_items(n_rows), truth.row_items is not None)
    counts = np.zeros(2, np.int64)
    with new_folder(Path(destination)) as folder:
        writer = DatasetWriter(folder, shape, ("y",), CHUNK_BYTES, "crc32c")
        for rows in truth.make_blocks(n_rows):
            if interrupts.are_ending():  # in a thread, too
                raise KeyboardInterrupt
            assert rows.y is not None
            counts += np.bincount(rows.y, minlength=2)
            writer.append(rows)
        about = {"classes": [-1, 1], "class_counts": counts.tolist(), "feature_names": None, "shuffle": 0}
        writer.finish({**about, "source": f"generated from seed {truth.seed}"}, None)
    return open_dataset(destination)
