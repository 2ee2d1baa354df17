"""The larger of two numbers, in a form that LLVM makes vector code of."""

from __future__ import annotations

from typing import Any

from numba.extending import intrinsic


@intrinsic
def larger(_context: Any, a: Any, _b: Any) -> Any:
    """Return the larger number, never NaN: unlike max() and `if`, LLVM vectorises a loop that reduces by it."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        flags = ("nnan", "nsz")
        return builder.select(builder.fcmp_ordered(">", *args, flags=flags), *args, flags=flags)

    return a(a, a), generate
