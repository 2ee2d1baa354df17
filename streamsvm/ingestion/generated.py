"""Generated datasets of any size, whose labels are a noisy linear function of the rows.

    y_i = sign(w.x_i - t), flipped with probability `noise`; w is normal, t the median of w.x_i in the first block

The features are normal, with standard deviations that fall geometrically from 1 to 0.1. The rows are written block by
block in bounded memory. Each block has a separate random generator, seeded by the seed and the number of the block, so
the values depend only on the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import new_folder
from streamsvm.ingestion.write import DatasetWriter, Shape
from streamsvm.numeric.rows import F32, Matrix, Rows, compute_scores
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError

BLOCK_BYTES = 8 << 20
CHUNK_BYTES = 16 << 20
SMALLEST_SCALE = 0.1


@dataclass(frozen=True)
class Truth:
    """The distribution of the generated rows and labels."""

    n_features: int
    noise: float = 0.1
    seed: int = 0
    is_sparse: ClassVar[bool] = False

    @property
    def row_bytes(self) -> int:
        """Bytes of a row with its label in the dataset."""
        return 4 + 4 * self.n_features

    def make_blocks(self, n_rows: int) -> Iterator[Rows]:
        """Yield the rows in blocks of about BLOCK_BYTES."""
        weights = np.random.default_rng((self.seed, 0)).standard_normal((1, self.n_features))
        threshold = None
        for block, (start, rows) in enumerate(self.list_blocks(n_rows)):
            random = np.random.default_rng((self.seed, 1, block))
            X = self.draw(random, rows)
            scores = compute_scores(X, weights)[:, 0]
            threshold = float(np.median(scores)) if threshold is None else threshold
            flipped = random.random(rows) < self.noise
            yield Rows(start, X, ((scores > threshold) ^ flipped).astype(np.int32))

    def count_items(self, n_rows: int) -> tuple[int, int]:
        """Return the number of non-zeros in all rows, and in the longest row."""
        return n_rows * self.n_features, self.n_features

    def list_blocks(self, n_rows: int) -> Iterator[tuple[int, int]]:
        """Yield the first row and the number of rows of each block."""
        step = max(1, BLOCK_BYTES // self.row_bytes)
        return ((start, min(step, n_rows - start)) for start in range(0, n_rows, step))

    def draw(self, random: np.random.Generator, n_rows: int) -> Matrix:
        """Draw the features of a block."""
        X: F32 = random.standard_normal((n_rows, self.n_features), np.float32)
        X *= np.geomspace(1, SMALLEST_SCALE, self.n_features, dtype=np.float32)
        return X


def write_generated(destination: str | Path, n_rows: int, truth: Truth) -> Dataset:
    """Write a dataset with the classes -1 and 1, and open it. Raises InputError for invalid arguments."""
    if n_rows < 2 or truth.n_features < 1 or not 0 <= truth.noise < 0.5:
        raise InputError("generated data need at least 2 rows, at least 1 feature, and a noise from 0 to below 0.5")
    shape = Shape(n_rows, truth.n_features, *truth.count_items(n_rows), truth.is_sparse, n_classes=2)
    with new_folder(Path(destination)) as folder:
        writer = DatasetWriter(folder, shape, ("y",), CHUNK_BYTES, "crc32c")
        for rows in truth.make_blocks(n_rows):
            if interrupts.are_ending():  # unlike interrupts.check, this works in any thread
                raise KeyboardInterrupt
            writer.append(rows)
        about = {"classes": [-1, 1], "feature_names": None, "shuffle": 0}
        writer.finish({**about, "source": f"generated from seed {truth.seed}"}, None)
    return open_dataset(destination)
