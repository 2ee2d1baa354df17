"""The options of the interior-point method."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import choice, count, positive

ADAPTIVE = {"reduction": ("adaptive-balanced", "adaptive")}
REDUCED = {"reduction": ("adaptive-balanced", "adaptive", "fixed")}


@dataclass(frozen=True)
class InteriorPointOptions:
    """Which rows make the normal equations; the help text of each field says what it does.

    The symbols Q, q_U, omega_i, mu, theta and beta are those of Jung, O'Leary & Tits 2008, section 3.2.
    """

    reduction: str = choice(
        "adaptive-balanced",
        "adaptive",
        "fixed",
        "none",
        help="how many rows make the normal equations: q of the paper, by class or over both, fixed, or all",
    )
    rule: str = choice(
        "omega", "distance", help="by what the rows are chosen: their omega_i, or their distance", read_with=REDUCED
    )
    most_rows: int | None = count(
        1, help="rows that make the equations at most, q_U of the paper; all if not given", read_with=REDUCED
    )
    theta: float = positive(
        default=100.0, help="a row is in Q if 1 / omega_i is at least theta sqrt(mu), (3.20)", read_with=ADAPTIVE
    )
    beta: float = positive(default=4.0, help="the share of rows in Q is mu^(1 / beta), (3.18)", read_with=ADAPTIVE)
