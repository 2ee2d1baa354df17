"""The names of the kernels, and their parameters as compiled code takes them."""

from __future__ import annotations

from typing import NamedTuple

PARAMETERS = {  # of each kernel, by name
    "linear": (),
    "rbf": ("gamma",),
    "poly": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
    "precomputed": (),  # the rows are those of the kernel matrix: compiled code never computes it
}
KERNELS = tuple(PARAMETERS)
LINEAR, RBF, POLY, SIGMOID = range(4)  # the positions in KERNELS, by which compiled code knows a kernel


def has_gamma(name: str) -> bool:
    """Return whether the kernel of this name has a gamma; InputError is for others to raise if there is no such."""
    return "gamma" in PARAMETERS.get(name, ())


class CompiledKernel(NamedTuple):
    """A kernel for compiled code. gamma and coef0 have the type of the rows, float32 or float64."""

    code: int
    gamma: float
    coef0: float
    degree: int
