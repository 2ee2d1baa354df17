"""Generated embeddings in float16, and labels with known probabilities.

Row x has label k with the probability 1 / (1 + exp(-(u_k x + b_k))), which no linear probe can beat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SPREAD = 0.5  # the standard deviation in the j-th direction is about j^-SPREAD
STRENGTH = 3.0  # the standard deviation of the log-odds of a label
RARE, FREQUENT = -6.0, -1.5  # the minimum and the maximum of b_k


@dataclass(frozen=True)
class Embeddings:
    """Rows of embeddings and their labels.

    X (n, d): the rows, in float16. Y (n, L): whether each row has each label. probabilities (n, L): the probabilities
    of the labels.
    """

    X: npt.NDArray[np.float16]
    Y: npt.NDArray[np.bool_]
    probabilities: npt.NDArray[np.float64]


def make_embeddings(seed: int, n_rows: int, n_features: int, n_labels: int) -> Embeddings:
    """Draw rows with lengths of about 1, and their labels."""
    random = np.random.default_rng(seed)
    scales = np.arange(1, n_features + 1) ** -SPREAD
    rotation = np.linalg.qr(random.normal(size=(n_features, n_features)))[0]
    mixing = scales[:, None] / np.linalg.norm(scales) * rotation
    X = (random.normal(size=(n_rows, n_features)) @ mixing).astype(np.float16)
    U = random.normal(size=(n_features, n_labels))
    U *= STRENGTH / np.linalg.norm(mixing @ U, axis=0)
    odds = X.astype(np.float64) @ U + np.linspace(FREQUENT, RARE, n_labels)
    probabilities = 1.0 / (1.0 + np.exp(-odds))
    return Embeddings(X, random.random(odds.shape) < probabilities, probabilities)
