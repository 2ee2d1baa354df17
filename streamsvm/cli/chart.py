"""A line chart as SVG text, which needs no library, no script, and no other file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 30, 42
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b")
MOST_DECADES = 6  # decades of a logarithmic axis with a label


@dataclass(frozen=True)
class Series:
    """A line's points, from left to right. Points that are not finite, or not positive on a log axis, are not drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False


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


def draw_chart(title: str, x_label: str, y_label: str, lines: Sequence[Series], log: bool = False) -> str:
    """Return an SVG element. log: whether the y axis is logarithmic. A chart without points says that it has none."""
    points = [[(x, y) for x, y in zip(line.x, line.y, strict=True) if _is_shown(x, y, log)] for line in lines]
    all_points = [point for line in points for point in line]
    head = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>'
    )
    if not all_points:
        return f'{head}<text x="{LEFT}" y="{HEIGHT / 2:.0f}">nothing to show</text></svg>'
    x_axis = make_axis(min(0.0, *(x for x, _ in all_points)), max(x for x, _ in all_points))
    ys = [y for _, y in all_points]
    y_axis = make_log_axis(min(ys), max(ys)) if log else make_axis(min(0.0, *ys), max(ys))
    curves = [
        _draw_line(line, part, x_axis, y_axis, k) for k, (line, part) in enumerate(zip(lines, points, strict=True))
    ]
    legend = _draw_legend(lines) if len(lines) > 1 else ""
    return f"{head}{_draw_axes(x_axis, y_axis, x_label, y_label)}{''.join(curves)}{legend}</svg>"


def make_axis(low: float, high: float) -> Axis:
    """Return an axis from about low to about high, with ticks at multiples of 1, 2 or 5 times a power of ten."""
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil((low + span) / step - 1e-9)
    ticks = [(k * step, format_tick(k * step)) for k in range(first, last + 1)]
    return Axis(first * step, last * step, ticks)


def make_log_axis(low: float, high: float) -> Axis:
    """Return a logarithmic axis of whole decades that contains low and high."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    step = -(-(last - first) // MOST_DECADES)
    return Axis(10.0**first, 10.0**last, [(10.0**k, f"1e{k}") for k in range(first, last + 1, step)], log=True)


def format_tick(value: float) -> str:
    """Return a number as a short text: 0.25, 1,500, 2.5e+06."""
    return f"{value:,.4g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3g}"


def _is_shown(x: float, y: float, log: bool) -> bool:
    """Whether a point can be drawn."""
    return math.isfinite(x) and math.isfinite(y) and (y > 0 or not log)


def _place_x(axis: Axis, value: float) -> float:
    """Return the x coordinate of a value in the picture."""
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def _place_y(axis: Axis, value: float) -> float:
    """Return the y coordinate of a value in the picture, which grows downwards."""
    return HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)


def _draw_axes(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>']
    for value, label in x_axis.ticks:
        parts.append(f'<text x="{_place_x(x_axis, value):.1f}" y="{bottom + 15}" text-anchor="middle">{label}</text>')
    for value, label in y_axis.ticks:
        at = _place_y(y_axis, value)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'transform="rotate(-90 14 {middle:.0f})" text-anchor="middle"'
    parts.append(f'<text x="14" y="{middle:.0f}" {turned}>{escape(y_label)}</text>')
    return "".join(parts)


def _draw_line(line: Series, points: list[tuple[float, float]], x_axis: Axis, y_axis: Axis, k: int) -> str:
    color, dash = COLORS[k % len(COLORS)], ' stroke-dasharray="5 4"' if line.dashed else ""
    placed = [(_place_x(x_axis, x), _place_y(y_axis, y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{color}"/>' for x, y in placed)
    return f'<polyline class="line" stroke="{color}"{dash} points="{path}"/>{dots if len(placed) <= 60 else ""}'


def _draw_legend(lines: Sequence[Series]) -> str:
    parts = []
    for k, line in enumerate(lines):
        y = TOP + 12 + 15 * k
        color = COLORS[k % len(COLORS)]
        parts.append(f'<path class="line" stroke="{color}" d="M{WIDTH - 150} {y - 4}h22"/>')
        parts.append(f'<text x="{WIDTH - 122}" y="{y}">{escape(line.name)}</text>')
    return "".join(parts)
