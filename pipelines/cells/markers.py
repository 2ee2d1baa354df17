"""Marker genes, which distinguish a type of cell from others, ranked by weights or by a t-test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.int64]  # (types, genes): the gene numbers, sorted for each type from best to worst


def rank_by_weight(coef: npt.NDArray[np.float64]) -> Ranks:
    """Rank the genes of each type by their weights in the score of the type against the others.

    coef (types, genes): the weights.
    """
    return np.argsort(-coef, axis=1, kind="stable")


def rank_by_t(X: Any, types: npt.NDArray[np.int64], n_types: int) -> Ranks:
    """Rank the genes of each type by Welch's t, which compares the cells of the type with all others.

    t = (mean_1 - mean_2) / sqrt(variance_1 / n_1 + variance_2 / n_2)    for each gene
    """
    ranks = []
    for number in range(n_types):
        (mean, error), (other, other_error) = (_measure(X[types == number]), _measure(X[types != number]))
        ranks.append(np.argsort(-(mean - other) / np.sqrt(np.maximum(error + other_error, 1e-12)), kind="stable"))
    return np.array(ranks)


def _measure(X: Any) -> tuple[Any, Any]:
    """Return the mean of each gene, and the square of its standard error."""
    n = X.shape[0]
    mean = np.asarray(X.mean(axis=0)).ravel()
    square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
    return mean, (square - mean**2) / max(n - 1, 1)


def count_found(ranks: Ranks, markers: npt.NDArray[np.int64]) -> float:
    """Return the share of the true markers that are among the first m genes of their types.

    markers (types, m): the numbers of the true marker genes.
    """
    n_markers = markers.shape[1]
    shares = [np.isin(found[:n_markers], true).mean() for found, true in zip(ranks, markers, strict=True)]
    return float(np.mean(shares))
