"""Arrays that compiled code can take."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.numeric.rows import CsrRows


def make_writable(value: Any) -> Any:
    """Copy an array that arrived read-only from another process, since compiled kernels take writable arrays only."""
    if isinstance(value, CsrRows):
        return CsrRows(
            make_writable(value.data), make_writable(value.indices), make_writable(value.indptr), value.n_features
        )
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value.copy(order="K")  # a product of matrices in another order may have other last bits
    return value
