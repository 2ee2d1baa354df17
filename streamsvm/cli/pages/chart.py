"""A line chart as SVG text. Colours come from the page, so that it can be dark or light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from streamsvm.cli.info import show_text
from streamsvm.cli.pages.axes import Axis, format_tick, make_axis, make_log_axis

WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 30, 42
N_COLORS = 6  # that the page's style has
LEGEND_LINE = 17
APART = 3.0  # between the error bars of two lines at one place
MOST_LETTERS = 58  # of a name in a legend
MOST_TITLE_LETTERS = 48
MOST_DOTS = 60
MOST_TIPS = 200  # points of a line that tell their values under the pointer


@dataclass(frozen=True)
class Series:
    """A line's points, from left to right. Points that are not finite, or not positive on a log axis, are not drawn.

    spread: the ends of an error bar for each point. dashed: also for lines that are no measurements, such as limits.
    color: lines of one number have one colour; by default a line has its own.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    spread: Sequence[tuple[float, float]] = ()
    color: int | None = None


@dataclass(frozen=True)
class Frame:
    """What the axes of a chart are: their labels, whether they are logarithmic, and whether y begins at zero."""

    x_label: str
    y_label: str
    log: bool = False
    log_x: bool = False
    from_zero: bool = True
    x_axis: Axis | None = None
    """The axis of x, or None for one that suits the points."""


def write_text(text: str) -> str:
    """Return a text, which may come from data, as text of HTML or SVG, also within quotes."""
    return escape(show_text(text))


def write_short(text: str, n_letters: int) -> str:
    """Return at most so many letters of a text, which tells the rest under the pointer."""
    if len(text) <= n_letters:
        return write_text(text)
    return f"{write_text(text[: n_letters - 3])}...<title>{write_text(text)}</title>"


def draw_chart(
    title: str, x_label: str, y_label: str, lines: Sequence[Series], log: bool = False, frame: Frame | None = None
) -> str:
    """Return an SVG element. log: whether the y axis is logarithmic. A chart without points says that it has none."""
    frame = frame or Frame(x_label, y_label, log)
    shown = [_pick_points(line, frame) for line in lines]
    height = HEIGHT + (LEGEND_LINE * len(lines) if len(lines) > 1 else 0)
    head = (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{write_text(title)}">'
        f'<text class="title" x="{LEFT}" y="18">{write_short(title, MOST_TITLE_LETTERS)}</text>'
    )
    if not any(shown):
        return f'{head}<text x="{LEFT}" y="{HEIGHT / 2:.0f}">nothing to show</text></svg>'
    x_axis, y_axis = _make_axes(lines, shown, frame)
    curves = []
    for k, (line, chosen) in enumerate(zip(lines, shown, strict=True)):
        shift = APART * (k - (len(lines) - 1) / 2) if line.spread else 0.0
        curves.append(_draw_line(line, chosen, x_axis, y_axis, _choose_color(line, k), frame, shift))
    legend = _draw_legend(lines) if len(lines) > 1 else ""
    return f"{head}{_draw_axes(x_axis, y_axis, frame)}{''.join(curves)}{legend}</svg>"


def _pick_points(line: Series, frame: Frame) -> list[int]:
    """Return the numbers of the points of a line that can be drawn."""

    def is_shown(x: float, y: float) -> bool:
        return math.isfinite(x) and math.isfinite(y) and (y > 0 or not frame.log) and (x > 0 or not frame.log_x)

    return [k for k, (x, y) in enumerate(zip(line.x, line.y, strict=True)) if is_shown(x, y)]


def _make_axes(lines: Sequence[Series], shown: list[list[int]], frame: Frame) -> tuple[Axis, Axis]:
    """Return axes that hold all points, and their error bars."""
    xs = [line.x[k] for line, chosen in zip(lines, shown, strict=True) for k in chosen]
    ys = [line.y[k] for line, chosen in zip(lines, shown, strict=True) for k in chosen]
    ends = [end for line in lines for bar in line.spread for end in bar if end > 0 or not frame.log]
    low, high = min(*ys, *ends, ys[0]), max(*ys, *ends, ys[0])
    x_axis = frame.x_axis
    if x_axis is None:
        x_axis = make_log_axis(min(xs), max(xs)) if frame.log_x else make_axis(min(0.0, *xs), max(xs))
    if frame.log:
        return x_axis, make_log_axis(low, high)
    return x_axis, make_axis(min(0.0, low) if frame.from_zero else low, high)


def _choose_color(line: Series, k: int) -> int:
    """Return the number of the colour of line k."""
    return (k if line.color is None else line.color) % N_COLORS


def _place_x(axis: Axis, value: float) -> float:
    """Return the x coordinate of a value in the picture."""
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def _place_y(axis: Axis, value: float) -> float:
    """Return the y coordinate of a value in the picture, which grows downwards."""
    return HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)


def _draw_axes(x_axis: Axis, y_axis: Axis, frame: Frame) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>']
    for value, label in x_axis.ticks:
        parts.append(f'<text x="{_place_x(x_axis, value):.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    for value, label in y_axis.ticks:
        at = _place_y(y_axis, value)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    middle, center = (TOP + bottom) / 2, (LEFT + right) / 2
    below = f'<text class="label" x="{center:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
    parts.append(f"{below}{write_text(frame.x_label)}</text>")
    turned = f'transform="rotate(-90 14 {middle:.0f})" text-anchor="middle"'
    parts.append(f'<text class="label" x="14" y="{middle:.0f}" {turned}>{write_text(frame.y_label)}</text>')
    return "".join(parts)


def _draw_line(
    line: Series, chosen: list[int], x_axis: Axis, y_axis: Axis, color: int, frame: Frame, shift: float
) -> str:
    """Return a line with its points. shift: by how much it lies to the right, so that error bars are seen apart."""
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    placed = [(_place_x(x_axis, line.x[k]) + shift, _place_y(y_axis, line.y[k])) for k in chosen]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    parts = [f'<polyline class="line"{dash} points="{path}"/>']
    for k in chosen if line.spread else ():
        at = _place_x(x_axis, line.x[k]) + shift
        low, high = (_place_y(y_axis, max(end, y_axis.low)) for end in line.spread[k])
        parts.append(f'<path class="line" d="M{at:.1f} {low:.1f}V{high:.1f}M{at - 4:.1f} {low:.1f}h8')
        parts.append(f'M{at - 4:.1f} {high:.1f}h8"/>')
    every = -(-len(chosen) // MOST_TIPS) or 1
    for k, (x, y) in list(zip(chosen, placed, strict=True))[::every]:
        name = f"{line.name}: " if line.name else ""
        told = f"{name}{frame.x_label} {format_tick(line.x[k])}, {frame.y_label} {line.y[k]:.6g}"
        if line.spread:
            told += f" ({line.spread[k][0]:.6g} to {line.spread[k][1]:.6g})"
        dot = f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2"/>' if len(placed) <= MOST_DOTS else ""
        parts.append(
            f'<g>{dot}<circle class="near" cx="{x:.1f}" cy="{y:.1f}" r="7"/><title>{write_text(told)}</title></g>'
        )
    return f'<g class="c{color}">{"".join(parts)}</g>'


def _draw_legend(lines: Sequence[Series]) -> str:
    """Return the names of the lines, below the chart."""
    parts = []
    for k, line in enumerate(lines):
        y, dash = HEIGHT + 8 + LEGEND_LINE * k, ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<path class="line c{_choose_color(line, k)}"{dash} d="M{LEFT} {y - 4}h24"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y}">{write_short(line.name, MOST_LETTERS)}</text>')
    return "".join(parts)
