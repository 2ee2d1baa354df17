"""Options of feature maps."""

from __future__ import annotations

from dataclasses import dataclass

APPROXIMATIONS = ("cholesky", "eigen", "nystrom")
MAPS = (*APPROXIMATIONS, "polynomial")


@dataclass(frozen=True)
class FeatureOptions:
    """Which features are made.

    map: one of MAPS; rank and seed are for all but the polynomial one. chunk_bytes: of the new dataset (None: as its
    size suggests). overwrite: a dataset of that name is replaced.
    """

    map: str = "cholesky"
    rank: int = 300
    seed: int = 0
    chunk_bytes: int | None = None
    overwrite: bool = False
