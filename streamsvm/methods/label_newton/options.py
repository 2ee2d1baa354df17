"""The options of Newton's method for many labels."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import count, positive

OTHER_BYTES = 288 << 20  # interpreter, libraries, slack


@dataclass(frozen=True)
class LabelNewtonOptions:
    """Options of Newton's method for many labels, which their help texts explain."""

    intercept_scaling: float = positive(
        default=1.0, or_zero=True, help="value of the constant feature whose weight is the bias; 0 is no bias"
    )
    curvature_rows: int = count(
        default=0, least=0, help="rows from which a pass finds the curvature of a label; 0: 64 for each weight"
    )
    sample_rows: int = count(
        default=0,
        least=0,
        help="rows in memory at the start; 0: 160 for each weight, or 256 MB where a label has more than 1,500 weights",
    )
