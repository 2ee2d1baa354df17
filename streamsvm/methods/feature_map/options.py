"""The options of feature maps."""

from __future__ import annotations

from dataclasses import dataclass

OF_A_KERNEL = ("kernel", "gamma", "degree", "coef0", "rank", "seed")  # what approximations of a kernel read
READS: dict[str, tuple[str, ...]] = {  # the settings that each map reads
    "cholesky": OF_A_KERNEL,
    "eigen": OF_A_KERNEL,
    "nystrom": OF_A_KERNEL,
    "polynomial": (),
}
MAPS = tuple(READS)
APPROXIMATIONS = tuple(name for name, settings in READS.items() if settings)


@dataclass(frozen=True)
class FeatureOptions:
    """Which feature map is made, and how the new dataset is written.

    Parameters
    ----------
    map
        One of MAPS: an approximation of a kernel, or "polynomial", the second-order map.
    rank
        The number of features of an approximation; the polynomial map does not read it.
    seed
        The seed of the random numbers that draw rows; the polynomial map does not read it.
    chunk_bytes
        The size of a chunk of the new dataset, in bytes; None chooses it by the size of the dataset.
    overwrite
        Whether a dataset of the same name is replaced.
    """

    map: str = "cholesky"
    rank: int = 300
    seed: int = 0
    chunk_bytes: int | None = None
    overwrite: bool = False
