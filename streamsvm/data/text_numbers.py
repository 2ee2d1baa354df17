"""Numbers in text, for compiled parsers, which read bytes by the address where the text begins.

    number =  [+|-] digits [. digits] [e [+|-] digits]        (digits on one side of the point are enough)

`text` is an address, and `at` a place counted from it. With an array instead, compiled code would ask of every place
whether it is negative, and count references to the array (atomically) at every call: parsing would take twice as long.
Nothing checks bounds. A caller holds the text in memory, and lets it end in a byte that no number has, such as a
newline.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Text = npt.NDArray[np.uint8]
Address = int

NEWLINE, RETURN, TAB, SPACE = ord("\n"), ord("\r"), ord("\t"), ord(" ")
PLUS, MINUS, POINT, ZERO = ord("+"), ord("-"), ord("."), ord("0")

MIN_FLOAT32_OVERFLOW = float(2**128 - 2**103)  # halfway between the largest float32 and 2^128; it rounds to inf
MAX_DIGITS = 18  # the most that always fit into an int64
MAX_EXPONENT = 10**15  # larger exponents saturate, since no run of zeros before them is long enough to matter
POWERS_OF_TEN = np.array([float(f"1e{k}") for k in range(309)])  # exact up to 10^22


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(_: Any, text: Any, at: Any) -> Any:  # noqa: ARG001
    """Return the byte text[at] of the text that begins at an address."""

    def write_code(_: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(builder.add(*arguments), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(place), ir.IntType(64))

    return types.int64(types.int64, types.int64), write_code


@njit(cache=True, nogil=True)
def is_digit(byte: int) -> bool:
    """Tell whether a byte is a digit, by one comparison: as an unsigned number, what is less than 0 is large."""
    return bool(np.uint64(byte - ZERO) <= np.uint64(9))


@njit(cache=True, nogil=True)
def parse_digits(text: Address, at: int, limit: int) -> tuple[int, int]:
    """Parse a run of digits. Return its value (negative beyond the limit) and its end, or (0, at) if there is none."""
    value = 0
    while is_digit(byte_at(text, at)):
        if value > limit // 10 or value < 0:  # of a number that has wrapped, another digit would be of any sign
            return -1, at
        value = value * 10 + (byte_at(text, at) - ZERO)
        at += 1
    return value if value <= limit else -1, at  # just beyond 2^63 - 1 it has wrapped to a negative number


@njit(cache=True, nogil=True)
def parse_decimal(text: Address, start: int) -> tuple[float, int]:
    """Parse a number of at most 18 digits without an exponent. Return it and its end, or (0, start) for all else.

    This is the common case. If the mantissa and the power of ten are exact, the quotient is correctly rounded.
    """
    at = start + (byte_at(text, start) == MINUS or byte_at(text, start) == PLUS)
    first = at
    mantissa, n_decimals = 0, 0
    while is_digit(byte_at(text, at)):
        mantissa = mantissa * 10 + (byte_at(text, at) - ZERO)
        at += 1
    n_digits = at - first
    if byte_at(text, at) == POINT:
        at += 1
        point = at
        while is_digit(byte_at(text, at)):
            mantissa = mantissa * 10 + (byte_at(text, at) - ZERO)
            at += 1
        n_decimals = at - point
        n_digits += n_decimals
    if n_digits == 0 or n_digits > MAX_DIGITS:  # none, or the mantissa may have wrapped
        return 0.0, start
    value = mantissa / POWERS_OF_TEN[n_decimals]
    return -value if byte_at(text, start) == MINUS else value, at


@njit(cache=True, nogil=True)
def parse_number(text: Address, start: int) -> tuple[float, int]:
    """Parse a number of any length. Return it and its end, or (0, start) if there is none.

    Digits after the 18th significant one are cut off, which is less than 2^-56 of the value.
    """
    at = start + (byte_at(text, start) == MINUS or byte_at(text, start) == PLUS)
    mantissa, exponent, n_digits, past_point = 0, 0, 0, False
    while is_digit(byte_at(text, at)) or (byte_at(text, at) == POINT and not past_point):
        if byte_at(text, at) == POINT:
            past_point = True
        elif mantissa < 10 ** (MAX_DIGITS - 1):
            mantissa = mantissa * 10 + (byte_at(text, at) - ZERO)
            exponent -= past_point
            n_digits += 1
        else:
            exponent += not past_point
        at += 1
    if n_digits == 0:
        return 0.0, start
    if byte_at(text, at) == ord("e") or byte_at(text, at) == ord("E"):
        written, end = parse_exponent(text, at + 1)
        if end == at + 1:
            return 0.0, start
        at, exponent = end, exponent + written
    value = scale(float(mantissa), exponent)
    return -value if byte_at(text, start) == MINUS else value, at


@njit(cache=True, nogil=True)
def parse_exponent(text: Address, start: int) -> tuple[int, int]:
    """Parse the signed digits after `e`. Return the exponent and its end, or (0, start) if there are none."""
    at = start + (byte_at(text, start) == MINUS or byte_at(text, start) == PLUS)
    first = at
    exponent = 0
    while is_digit(byte_at(text, at)):
        exponent = min(exponent * 10 + (byte_at(text, at) - ZERO), MAX_EXPONENT)
        at += 1
    if at == first:
        return 0, start
    return -exponent if byte_at(text, start) == MINUS else exponent, at


@njit(cache=True, nogil=True)
def scale(mantissa: float, exponent: int) -> float:
    """Return mantissa * 10^exponent, correctly rounded if mantissa < 2^53 and |exponent| <= 22.

    In that case both operands are exact (W. D. Clinger, How to read floating point numbers accurately, PLDI 1990).
    Otherwise there are at most four roundings of half a unit of float64, which is 2^-29 units of float32.
    """
    if mantissa == 0.0 or exponent < -616:
        mantissa = 0.0
    elif exponent > 308:
        mantissa = np.inf
    elif exponent >= 0:
        mantissa *= POWERS_OF_TEN[exponent]
    elif exponent >= -308:
        mantissa /= POWERS_OF_TEN[-exponent]
    else:
        mantissa = mantissa / POWERS_OF_TEN[308] / POWERS_OF_TEN[-exponent - 308]
    return mantissa
