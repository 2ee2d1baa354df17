"""What the last bits of sums depend on beside their order: the processor, and the libraries that add.

Compilers and libraries choose instructions by the processor, and these round in different places. So models have the
same bits on processors of one kind with one version of each library. The kind of OpenBLAS may be set by the variable
OPENBLAS_CORETYPE, which then has to be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version

from threadpoolctl import ThreadpoolController

MIXED = (
    "the processes of this run do not add alike (%s): the certificate holds, but the last bits of the model may not be "
    "those of other runs"
)
LIBRARIES = ("numpy", "scipy", "numba")
Arithmetic = dict[str, str]


@lru_cache(maxsize=1)
def _describe() -> tuple[tuple[str, str], ...]:
    from llvmlite.binding import get_host_cpu_name
    from numba import config

    blas = {
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')}".strip()
        for library in ThreadpoolController().info()
        if library["user_api"] == "blas" and "scipy.libs" not in library["filepath"]  # loaded when it is needed
    }
    told = {"processor": config.CPU_NAME or get_host_cpu_name(), "blas": ", ".join(sorted(blas))}
    return tuple((told | {name: version(name) for name in LIBRARIES}).items())


def describe_arithmetic() -> Arithmetic:
    """Return the processor that code is compiled for, the kind of BLAS, and the versions of libraries."""
    return dict(_describe())


def list_kinds(found: Iterable[Arithmetic]) -> list[Arithmetic]:
    """Return those that differ from all before them."""
    kinds: list[Arithmetic] = []
    for one in found:
        if one not in kinds:
            kinds.append(one)
    return kinds


def name_differences(kinds: list[Arithmetic]) -> str:
    """Return what differs between the kinds: "blas: openblas 0.3.31 Haswell or openblas 0.3.31 SkylakeX"."""
    names = list(dict.fromkeys(name for one in kinds for name in one))
    values = {name: list(dict.fromkeys(one.get(name, "?") for one in kinds)) for name in names}
    return "; ".join(f"{name}: {' or '.join(each)}" for name, each in values.items() if len(each) > 1)
