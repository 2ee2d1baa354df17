"""A hint to the processor, for compiled code that visits rows in random order, that it will soon read an array's entry.

Without it every visit waits for main memory: an epoch of coordinate ascent takes two to three times as long.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

READ, KEEP, DATA = 0, 3, 1  # arguments of LLVM's prefetch: to be read, kept in all caches, and data, not code


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Fetch entry `index` of an array whose entries lie one after another, counted over all of its dimensions."""

    def write_code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(context.make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])
        integer, address = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [address, integer, integer, integer])
        fetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(fetch, [builder.bitcast(place, address), integer(READ), integer(KEEP), integer(DATA)])
        return context.get_dummy_value()

    return types.void(array, index), write_code
