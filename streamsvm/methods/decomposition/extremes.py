"""The larger of two numbers, in a form that LLVM turns into vector instructions."""

from __future__ import annotations

from typing import Any

from numba.extending import intrinsic


@intrinsic
def larger(_context: Any, a: Any, _b: Any) -> Any:
    """Return the larger of two numbers, neither of which is NaN.

    LLVM vectorises a loop that reduces by this function, but not one that reduces by max() or by `if`.
    """

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        flags = ("nnan", "nsz")
        return builder.select(builder.fcmp_ordered(">", *args, flags=flags), *args, flags=flags)

    return a(a, a), generate
