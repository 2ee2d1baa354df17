"""Memory that it takes to make features, projected before a row is read."""

from __future__ import annotations

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.data.writer import Shape
from streamsvm.machine import resident_bytes
from streamsvm.numeric.feature_maps import PART_VALUES, PolynomialMap, compute_block
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import CsrRows

SLACK_BYTES = 48 << 20  # garbage between collections, what libraries set aside
CHUNK_COPIES = 4  # of a chunk of features: filled, encoded, checked
PART_COPIES = 3  # of rows that are mapped: their kernel values, features, squares, float32
ROW_COPIES = 8  # of the map's rows: taken from several chunks, put in order, float64, and the map before
MATRICES = 7  # m x m: K, jitter, factor, inverse, T, that of the map before; or those of an eigendecomposition
ROW_VECTORS = 8  # of 8 bytes a row of the source: residuals, and a draw in proportion to them


def project_bytes(source: RowSource, name: str, kernel_name: str, n_rows: int, chunk_bytes: int | None) -> int:
    """Return the whole resident memory of this process as it makes the features, at most.

    name: of the map; n_rows: m, rows that a kernel map meets others with.
    """
    width = PolynomialMap(source.n_features).n_features if name == "polynomial" else n_rows
    chunk = max(4 * width, chunk_bytes or Shape(source.n_rows, width, 0, width, False).chunk_bytes())
    row_bytes = 8 * (2 * width + 2 * source.n_features)
    writing = CHUNK_COPIES * min(chunk, 4 * width * source.n_rows)
    held = source.stream_bytes() + PART_COPIES * max(8 * PART_VALUES, row_bytes) + writing + SLACK_BYTES
    if name != "polynomial":
        _load_kernels(kernel_name, source.is_sparse)
        dense_bytes = 8 * source.n_features if source.is_sparse and kernel_name == "linear" else 0
        held += n_rows * (ROW_COPIES * source.nbytes // source.n_rows + 3 * dense_bytes)
        held += 8 * MATRICES * n_rows**2 + 8 * ROW_VECTORS * source.n_rows
    return resident_bytes() + held


def _load_kernels(kernel_name: str, sparse: bool) -> None:
    """Compile what will be needed, or load it, before memory is measured."""
    X = np.eye(2, dtype=np.float32)
    rows = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
    compute_block(Kernel(kernel_name), rows if sparse else X, rows if sparse else X)
