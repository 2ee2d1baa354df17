"""Axes of charts: linear ones, and logarithmic ones, with ticks that people read easily."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_DECADES = 6  # decades of a logarithmic axis with a label
FEW_DECADES = 2  # up to which 2 and 5 times a power of ten have a label, too


@dataclass(frozen=True)
class Axis:
    """An axis from low to high, with ticks as pairs of a value and its label."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1."""
        if self.log:
            return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return (value - self.low) / (self.high - self.low)


def make_axis(low: float, high: float) -> Axis:
    """Return an axis from about low to about high, with ticks at multiples of 1, 2 or 5 times a power of ten."""
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil((low + span) / step - 1e-9)
    ticks = [(k * step, format_tick(k * step)) for k in range(first, last + 1)]
    return Axis(first * step, last * step, ticks)


def make_log_axis(low: float, high: float) -> Axis:
    """Return a logarithmic axis that contains low and high, of whole decades if there are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    if last - first <= FEW_DECADES:
        values = [factor * 10.0**k for k in range(first, last) for factor in (1, 2, 5)] + [10.0**last]
        begin = max(k for k, value in enumerate(values[:-1]) if value <= low * (1 + 1e-9))
        end = next(k for k, value in enumerate(values) if value >= high * (1 - 1e-9) and k > begin)
        ticks = [(value, format_tick(value)) for value in values[begin : end + 1]]
        return Axis(min(values[begin], low), max(values[end], high), ticks, log=True)
    step = -(-(last - first) // MOST_DECADES)
    return Axis(10.0**first, 10.0**last, [(10.0**k, f"1e{k}") for k in range(first, last + 1, step)], log=True)


def mark_values(values: list[float]) -> Axis:
    """Return a logarithmic axis whose ticks are these values, such as the costs of a grid."""
    low, high = min(values), max(values)
    shown = sorted(set(values))
    every = -(-len(shown) // 8)
    margin = (high / low) ** 0.05 if high > low else 2.0
    return Axis(low / margin, high * margin, [(value, format_tick(value)) for value in shown[::every]], log=True)


def format_tick(value: float) -> str:
    """Return a number as a short text: 0.25, 1,500, 2.5e+06."""
    return f"{value:,.4g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3g}"
