"""The names of the kernels, their parameters, and their codes in compiled code."""

from __future__ import annotations

PARAMETERS = {  # the parameters of each kernel
    "linear": (),
    "rbf": ("gamma",),
    "poly": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
    "precomputed": (),  # the rows hold the kernel values; compiled code never computes them
}
KERNELS = tuple(PARAMETERS)
LINEAR, RBF, POLY, SIGMOID = range(4)  # positions in KERNELS, by which compiled code identifies a kernel


def has_gamma(name: str) -> bool:
    """Return whether the kernel of this name has a gamma; the caller checks that the kernel exists."""
    return "gamma" in PARAMETERS.get(name, ())
