"""HTML pages of notes, charts and tables, with line charts and bar charts as SVG.

The templates `page.html`, `chart.svg` and `bars.svg` draw them; the style of the page, light or dark, sets the colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from streamsvm import __version__
from streamsvm.cli.output import find_template, show_text

MOST_DECADES = 6  # maximum number of labelled decades on a logarithmic axis
FEW_DECADES = 2  # up to this many decades, 2 and 5 times a power of ten are labelled, too
LEFT, TOP, RIGHT, BOTTOM = 64, 30, 446, 238  # the edges of the area between the axes, in units of the picture
NAMES, NUMBERS = 170, 360  # the left and right edges of the area of the bars
N_COLORS = 6  # the number of colours in the page's style
APART = 3.0  # the distance between the error bars of two lines at the same x


@dataclass(frozen=True)
class Table:
    """A table of texts; the first text of each row names the row.

    head: the names of the columns, starting with the column of row names; empty for a list of facts. shades: the
    shading of each cell except the row names, from 0 to 1; empty for none. is_text: whether the cells hold text, which
    is left-aligned and may have several lines; numbers are right-aligned.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    caption: str = ""
    shades: Sequence[Sequence[float]] = ()
    is_text: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a page: a title, paragraphs, charts as SVG, and tables."""

    title: str
    notes: Sequence[str] = ()
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()


def render_page(title: str, sections: Sequence[Section], refresh_seconds: int | None = None) -> str:
    """Return the page as HTML, without empty sections. refresh_seconds: the interval of reloads, if any."""
    return _fill("page.html", title=title, sections=sections, refresh_seconds=refresh_seconds, version=__version__)


def _fill(name: str, **values: Any) -> Markup:
    """Return a template filled with these values."""
    return Markup(find_template(name, _show).render(values))  # noqa: S704


def _show(value: object) -> str:
    """Return a value as text without control characters; a float is a coordinate, with one decimal."""
    return f"{value:.1f}" if isinstance(value, float) else show_text(value)


@dataclass(frozen=True)
class Axis:
    """An axis from low to high, with ticks as pairs of a value and its label."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1."""
        low, high, at = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return (at - low) / (high - low)


def make_axis(low: float, high: float) -> Axis:
    """Return an axis that contains low and high, with ticks at multiples of 1, 2 or 5 times a power of ten."""
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil((low + span) / step - 1e-9)
    ticks = [(k * step, format_tick(k * step)) for k in range(first, last + 1)]
    return Axis(first * step, last * step, ticks)


def make_log_axis(low: float, high: float) -> Axis:
    """Return a logarithmic axis that contains low and high; it has whole decades if it spans more than FEW_DECADES."""
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


@dataclass(frozen=True)
class Series:
    """The points of a line, from left to right. Points that the axes cannot show are not drawn (`Frame.can_show`).

    spread: the ends of an error bar for each point. dashed: whether the line is dashed, as for limits and other lines
    that are not measurements. color: lines with the same number share a colour; by default each line has its own.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    spread: Sequence[tuple[float, float]] = ()
    color: int | None = None


@dataclass(frozen=True)
class Frame:
    """The axes of a chart: labels, whether they are logarithmic, and whether y starts at zero.

    x_axis: by default, one that fits the points.
    """

    x_label: str
    y_label: str
    log: bool = False
    log_x: bool = False
    from_zero: bool = True
    x_axis: Axis | None = None

    def can_show(self, x: float, y: float) -> bool:
        """Return whether the axes can show a point."""
        return math.isfinite(x) and math.isfinite(y) and (y > 0 or not self.log) and (x > 0 or not self.log_x)

    def make_axes(self, lines: Sequence[Series], shown: list[list[int]]) -> tuple[Axis, Axis]:
        """Return axes that contain all error bars and all shown points."""
        xs, ys = ([getattr(line, a)[k] for line, at in zip(lines, shown, strict=True) for k in at] for a in "xy")
        ends = [end for line in lines for bar in line.spread for end in bar if end > 0 or not self.log]
        low, high = min(ys + ends), max(ys + ends)
        x_axis = make_log_axis(min(xs), max(xs)) if self.log_x else make_axis(min(0.0, *xs), max(xs))
        y_axis = make_log_axis(low, high) if self.log else make_axis(min(0.0, low) if self.from_zero else low, high)
        return self.x_axis or x_axis, y_axis


def draw_chart(title: str, frame: Frame, lines: Sequence[Series]) -> Markup:
    """Return a line chart as an SVG element. A chart without points says so."""
    shown = [
        [k for k, point in enumerate(zip(line.x, line.y, strict=True)) if frame.can_show(*point)] for line in lines
    ]
    axes: tuple[Axis, ...] = frame.make_axes(lines, shown) if any(shown) else ()
    colors = [(k if line.color is None else line.color) % N_COLORS for k, line in enumerate(lines)]
    shifts = [APART * (k - (len(lines) - 1) / 2) if line.spread else 0.0 for k, line in enumerate(lines)]
    drawing = {
        "axes": axes,
        "x": lambda value: LEFT + axes[0].place(value) * (RIGHT - LEFT),
        "y": lambda value: BOTTOM - axes[1].place(value) * (BOTTOM - TOP),
        "curves": list(zip(lines, shown, colors, shifts, strict=True)),
        **{"left": LEFT, "top": TOP, "right": RIGHT, "bottom": BOTTOM},
    }
    return _fill("chart.svg", title=title, frame=frame, format_tick=format_tick, **drawing)


def draw_bars(title: str, bars: Sequence[tuple[str, float, str]]) -> Markup:
    """Return a bar chart as an SVG element. bars: name, length, and length as text."""
    low, high = (extreme([0.0, *(length for _, length, _ in bars)]) for extreme in (min, max))
    unit = (NUMBERS - NAMES) / ((high - low) or 1.0)
    return _fill("bars.svg", title=title, bars=bars, unit=unit, zero=NAMES - low * unit)
