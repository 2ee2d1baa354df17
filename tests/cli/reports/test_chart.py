"""Charts as SVG: points are where the axes say, bars are as long as their values, texts stay texts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from streamsvm.cli.reports.page import Frame, Series, draw_bars, draw_chart, make_axis, make_log_axis, mark_values

HOSTILE = "</svg><script>alert('x')</script>\" onload=\"x\u202e\x00"


def read(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def ends_of(svg: ET.Element) -> list[tuple[float, ...]]:
    (line,) = svg.iter("polyline")
    return [tuple(map(float, point.split(","))) for point in str(line.get("points")).split()]


def test_points_are_where_the_axes_say() -> None:
    """A line from the least to the greatest value: its ends are at the ticks of those values."""
    svg = read(draw_chart("t", Frame("x", "y", log=True), [Series("a", [0, 10], [0.001, 1])]))
    ends = ends_of(svg)
    place = {text.text: text for text in svg.iter("text")}
    assert ends[0][0] == float(place["0"].get("x"))  # type: ignore[arg-type]
    assert ends[1][0] == float(place["10"].get("x"))  # type: ignore[arg-type]
    assert ends[0][1] == pytest.approx(float(place["1e-3"].get("y")) - 4)  # type: ignore[arg-type]
    assert ends[1][1] == pytest.approx(float(place["1e0"].get("y")) - 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1e-7), (0, 37), (-3, 5), (0, 1e12), (12, 12)])
def test_axes_hold_their_values(low: float, high: float) -> None:
    axis = make_axis(low, high)
    assert axis.low <= low <= high <= axis.high
    assert 2 <= len(axis.ticks) <= 8
    assert len({label for _, label in axis.ticks}) == len(axis.ticks)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (3e-9, 2e5), (0.5, 0.6)])
def test_axes_of_decades(low: float, high: float) -> None:
    axis = make_log_axis(low, high)
    assert axis.low <= low <= high <= axis.high
    assert 2 <= len(axis.ticks) <= 8


def test_a_chart_without_points_says_so() -> None:
    assert "nothing to show" in draw_chart("t", Frame("x", "y"), [Series("a", [1.0], [float("nan")])])
    assert "nothing to show" in draw_chart("t", Frame("x", "y", log=True), [Series("a", [1.0], [-1.0])])


def test_axes_of_few_decades_have_ticks_between_them() -> None:
    labels = [label for _, label in make_log_axis(0.03, 0.6).ticks]
    assert labels == ["0.02", "0.05", "0.1", "0.2", "0.5", "1"]


def test_costs_of_a_grid_are_the_ticks() -> None:
    axis = mark_values([10.0, 0.1, 1.0, 0.1])
    assert [value for value, _ in axis.ticks] == [0.1, 1.0, 10.0]
    steps = [after - before for before, after in pairwise(axis.place(value) for value, _ in axis.ticks)]
    assert steps[0] == pytest.approx(steps[1])
    assert mark_values([2.0]).place(2.0) == pytest.approx(0.5)


def test_error_bars_reach_from_end_to_end() -> None:
    """The bars of two points are as long as their ratio says, and lie around the points."""
    line = Series("a", [1, 10], [0.3, 0.2], spread=[(0.2, 0.4), (0.1, 0.5)])
    frame = Frame("C", "share", log_x=True, from_zero=False, x_axis=mark_values([1.0, 10.0]))
    svg = read(draw_chart("t", frame, [line]))
    found = [re.match(r"M([\d.]+) ([\d.]+)V([\d.]+)", str(path.get("d"))) for path in svg.iter("path")]
    bars = [tuple(map(float, match.groups())) for match in found if match]
    ends = ends_of(svg)
    bars = [bar for bar in bars if any(bar[0] == x for x, _ in ends)]
    lengths = [low - high for _, low, high in bars]
    assert lengths[1] == pytest.approx(2 * lengths[0], abs=0.3)
    for (_, low, high), (_, y) in zip(bars, ends, strict=True):
        assert high < y < low


def test_points_tell_their_values() -> None:
    svg = read(draw_chart("t", Frame("passes", "gap"), [Series("run", [1, 2], [0.5, 0.25])]))
    assert [text.text for text in svg.iter("title")] == ["run: passes 1, gap 0.5", "run: passes 2, gap 0.25"]


def test_a_long_line_has_few_tooltips_and_all_points() -> None:
    svg = read(draw_chart("t", Frame("x", "y"), [Series("a", range(5000), range(5000))]))
    assert len(ends_of(svg)) == 5000
    assert 100 <= len(list(svg.iter("title"))) <= 200


def test_a_line_that_ends_in_no_number_is_drawn_to_there() -> None:
    svg = read(draw_chart("t", Frame("x", "y"), [Series("a", [0, 1, 2], [1, 2, float("inf")])]))
    assert len(ends_of(svg)) == 2


def test_bars_are_as_long_as_their_values() -> None:
    svg = read(draw_bars("t", [("a", 2.0, "2"), ("b", -1.0, "-1")]))
    first, second = svg.iter("rect")
    assert float(str(first.get("width"))) == pytest.approx(2 * float(str(second.get("width"))), abs=0.2)
    assert float(str(second.get("x"))) + float(str(second.get("width"))) == pytest.approx(float(str(first.get("x"))))
    assert "nothing to show" in draw_bars("t", [])
    assert list(read(draw_bars("t", [("zero", 0.0, "0")])).iter("rect"))


@pytest.mark.parametrize(
    "svg",
    [
        draw_chart(HOSTILE, Frame(HOSTILE, HOSTILE), [Series(HOSTILE, [1.0], [1.0]), Series("b", [1.0], [2.0])]),
        draw_bars(HOSTILE, [(HOSTILE, 1.0, HOSTILE)]),
    ],
)
def test_names_stay_texts(svg: str) -> None:
    tags = {element.tag for element in read(svg).iter()}
    assert tags <= {"svg", "g", "text", "title", "path", "polyline", "circle", "rect"}
    assert not [name for element in read(svg).iter() for name in element.attrib if name.startswith("on")]
    shown = "".join(read(svg).itertext())
    assert "<script>alert('x')</script>" in shown
    assert "\u202e" not in svg
    assert "\x00" not in svg
