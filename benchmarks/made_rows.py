"""Rows that are generated when they are read and never stored: two overlapping classes of normal rows.

    x_i = z_i + SHIFT s_i u,      z_i normal, u a unit vector, s_i = y_i, but -y_i with probability FLIPPED

In each chunk, half of the rows belong to each class, in random order; the class sizes are therefore known. Each chunk
has two random generators, seeded by (seed, 1, chunk) and (seed, 2, chunk). A row therefore depends only on the seed and
on its number, and a larger source begins with the chunks of a smaller one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import split_rows
from streamsvm.kernels.feature_maps import Features
from streamsvm.numeric.rows import F32, F64, I64, Rows
from streamsvm.numeric.stored_types import Scaling

FEATURES = 30
CHUNK_ROWS = 1 << 15
SHIFT, FLIPPED = 1.2, 0.05
LABELS = np.array([-1, 1])


class MadeRows:
    """A RowSource whose chunks are computed whenever they are read."""

    on_disk = True  # no chunk counts as in memory, so every read is counted
    is_shuffled = True
    has_targets = False
    has_label_sets = False
    is_sparse = False
    streams = False
    name = "made rows"
    classes = LABELS
    scaling: Scaling | None = None
    features: Features | None = None
    feature_names: tuple[str, ...] | None = None
    encoding: None = None
    label_column: None = None
    qid_column: None = None
    read_as: None = None

    def __init__(self, n_rows: int, seed: int = 0, n_features: int = FEATURES) -> None:
        self.n_rows, self.n_features, self.seed = n_rows, n_features, seed
        self.chunk_starts: I64 = np.append(np.arange(0, n_rows, CHUNK_ROWS), n_rows).astype(np.int64)
        self.n_chunks = len(self.chunk_starts) - 1
        self.nbytes = self.stored_bytes = 4 * n_rows * n_features
        self.fingerprint = f"made rows {n_rows} {n_features} {seed}"
        self.class_counts: I64 = np.array([(n_rows + 1) // 2, n_rows // 2])
        self.mean = SHIFT * draw_direction(seed, n_features)

    def sum_weights(self) -> F64:
        """See RowSource."""
        return self.class_counts.astype(np.float64)

    def column(self, name: str, index: int | None = None) -> npt.NDArray[np.int32] | None:
        """See RowSource."""
        wanted = range(self.n_chunks) if index is None else [index]
        return np.concatenate([self._draw_labels(each) for each in wanted]) if name == "y" else None

    def read(self, index: int) -> Rows:
        """Compute chunk `index`, and return it."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        random = np.random.Generator(np.random.SFC64((self.seed, 1, index)))
        y = self._draw_labels(index)
        side = np.where(random.random(CHUNK_ROWS)[: stop - start] < FLIPPED, 1 - 2 * y, 2 * y - 1)
        X: F32 = random.standard_normal((stop - start, self.n_features), np.float32)
        X += side.astype(np.float32)[:, None] * self.mean
        return Rows(start, X, y)

    def tiles(self, index: int) -> Iterator[Rows]:
        """See RowSource."""
        return split_rows(self.read(index))

    def take(self, rows: I64) -> Rows:
        """Return single rows. Each chunk in which they lie is computed."""
        chunks = np.searchsorted(self.chunk_starts, rows, side="right") - 1
        X, y = np.empty((len(rows), self.n_features), np.float32), np.empty(len(rows), np.int32)
        for index in np.unique(chunks):
            chunk, places = self.read(int(index)), np.flatnonzero(chunks == index)
            own = rows[places] - chunk.start
            assert isinstance(chunk.X, np.ndarray)
            assert chunk.y is not None
            X[places], y[places] = chunk.X[own], chunk.y[own]
        return Rows(-1, X, y)

    def take_bytes(self, rows: I64) -> int:
        """Return the bytes of the rows alone, although their whole chunks are computed."""
        return 4 * self.n_features * len(rows)

    def advise(self, index: int) -> None:
        """Do nothing."""

    def chunk_bytes(self, index: int) -> int:
        """See RowSource."""
        return 4 * (self.n_features + 1) * CHUNK_ROWS

    def stream_bytes(self) -> int:
        """Return the bytes of the current chunk, of the next one, and of the random numbers of one chunk."""
        return 3 * self.chunk_bytes(0)

    def _draw_labels(self, index: int) -> npt.NDArray[np.int32]:
        """Return the codes of the rows of a chunk."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        codes = (np.arange(start, stop) % 2).astype(np.int32)
        return np.random.default_rng((self.seed, 2, index)).permutation(codes)


def draw_direction(seed: int, n_features: int = FEATURES) -> F32:
    """Return the unit vector between the centres of the classes."""
    u = np.random.default_rng((seed, 0)).standard_normal(n_features)
    return np.asarray(u / np.linalg.norm(u), np.float32)
