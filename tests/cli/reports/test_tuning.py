"""The page of a grid: costs are the ticks, bars go over the folds, and settings are told by name."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from streamsvm.cli.reports.page import render_page
from streamsvm.cli.reports.report import show_tuning
from tests.cli.reports.structure import check_page


def make_trial(C: float, loss: str, *scores: float) -> dict[str, Any]:
    mean = sum(scores) / len(scores)
    return {"C": C, "gamma": None, "scores": scores, "mean": mean, "converged": C < 1, "passes": 3, "loss": loss}


TRIALS = [
    make_trial(1.0, "hinge", 0.90, 0.94),
    make_trial(0.01, "hinge", 0.91, 0.91),
    make_trial(0.01, "<b>", 0.4, 0.6),
    make_trial(1.0, "<b>", 0.8, 0.8),
]
GRID = {"passes": 12, "seconds": 1.5, "scoring": "accuracy", "ideal_score": 1.0}
TOLD = {"trials": TRIALS, "grid": GRID, "C": 1.0, "gamma": None, "loss": "hinge"}


def test_charts_and_table_tell_every_setting() -> None:
    section = show_tuning(TOLD)
    page = render_page("grid", [section])
    parsed = check_page(page)
    spread = ["standard deviation", "standard error of the mean"]
    assert ["C", "loss", "mean accuracy", *spread, "converged", "passes"] in parsed.cells
    assert ["1 (best)", "hinge", "0.92", "0.02", "0.02", "no", "3"] in parsed.cells
    assert [cells[0] for cells in parsed.cells[1:]] == ["1 (best)", "0.01", "1", "0.01"], "the best mean comes first"
    svg = ET.fromstring(re.findall(r"<svg.*?</svg>", page, re.DOTALL)[0])
    tips = [str(text.text) for text in svg.iter("title")]
    assert "loss hinge: C (cost of a row) 1, 1 - accuracy 0.08 (0.06 to 0.1)" in tips
    assert "loss <b>: C (cost of a row) 0.01, 1 - accuracy 0.5 (0.4 to 0.6)" in tips
    ticks = [text.text for text in svg.iter("text")]
    assert {"0.01", "1"} <= set(ticks)


def test_errors_that_differ_little_fill_their_chart() -> None:
    """The axis begins near the smallest error, and not at zero."""
    trials = [make_trial(C, "hinge", score) for C, score in ((0.1, 0.700), (1.0, 0.701), (10.0, 0.702))]
    (svg,) = show_tuning({**TOLD, "trials": trials}).charts
    (line,) = ET.fromstring(svg).iter("polyline")
    heights = [float(point.split(",")[1]) for point in str(line.get("points")).split()]
    assert max(heights) - min(heights) > 100


def test_passes_are_shown_where_they_differ() -> None:
    trials = [{**trial, "passes": k + 1} for k, trial in enumerate(TRIALS)]
    assert "Passes of the longest fit" in show_tuning({**TOLD, "trials": trials}).charts[-1]


def test_errors_are_shown_as_they_are() -> None:
    """Their best value is 0, so the chart shows the errors themselves."""
    trials = [make_trial(C, "hinge", score) for C, score in ((0.1, -2.0), (1.0, -3.0))]
    grid = {**GRID, "scoring": "neg_mean_squared_error", "ideal_score": 0.0}
    page = render_page("grid", [show_tuning({**TOLD, "grid": grid, "trials": trials})])
    assert "Held-out rows: mean squared error" in page
    assert "mean squared error 2 (2 to 2)" in page


@pytest.mark.parametrize("nothing", [{"passes": 12, "seconds": 1.5}])
def test_a_grid_of_an_earlier_version(nothing: dict[str, Any]) -> None:
    assert "right on held-out rows" in render_page("grid", [show_tuning({**TOLD, "grid": nothing})])
