"""The names of the kernels, and their parameters as compiled code takes them."""

from __future__ import annotations

from typing import NamedTuple

PARAMETERS = {  # of each kernel, by name
    "linear": (),
    "rbf": ("gamma",),
    "poly": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
}
KERNELS = tuple(PARAMETERS)
LINEAR, RBF, POLY, SIGMOID = range(4)  # the positions in KERNELS, by which compiled code knows a kernel


class CompiledKernel(NamedTuple):
    """A kernel for compiled code. gamma and coef0 have the type of the rows, float32 or float64."""

    code: int
    gamma: float
    coef0: float
    degree: int
