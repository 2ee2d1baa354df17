"""The options of Newton's method."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import positive

OTHER_BYTES = 288 << 20  # interpreter, libraries, slack


@dataclass(frozen=True)
class NewtonOptions:
    """Options of Newton's method, which their help texts explain."""

    intercept_scaling: float = positive(
        default=1.0, or_zero=True, help="value of the constant feature whose weight is the bias; 0 is no bias"
    )
