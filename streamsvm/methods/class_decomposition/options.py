"""The options of Crammer-Singer with kernels."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import count, positive


@dataclass(frozen=True)
class ClassDecompositionOptions:
    """See the help texts."""

    intercept_scaling: float = positive(
        default=1.0,
        or_zero=True,
        help="value s of the constant feature whose weights are the biases, so that the kernel is k(x, z) + s^2; 0 is "
        "no bias",
    )
    working_rows: int | None = count(2, help="rows of a working set; a share of the active rows if not given")
    cache_bytes: int | None = count(
        0,
        help="memory for kernel columns; a quarter of what is spare if not given",
        read_with={"kernel": ("rbf", "poly", "precomputed")},
    )
