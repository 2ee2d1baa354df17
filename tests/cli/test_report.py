"""`streamsvm report`: one page that tells the truth about a run, loads nothing, and refuses what is no run."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm.cli.chart import Series, draw_chart, make_axis, make_log_axis
from streamsvm.cli.command import main
from streamsvm.cli.report import make_page, write_report

LINE = {"passes": 1, "seconds": 0.5, "objective": 20.0, "lower_bound": 5.0, "relative_gap": 0.75}
HISTORY = [
    {**LINE, "read_bytes": 10**6, "memory_bytes": 2 * 10**8},
    {**LINE, "passes": 2, "seconds": 1.5, "relative_gap": 1e-3, "read_bytes": 2 * 10**6, "memory_bytes": 2 * 10**8},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    streamsvm.ingest(X, folder / "data.zarr", (X[:, 0] > 0).astype(int))
    assert main(["train", str(folder / "data.zarr"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def read_svg(page: str) -> list[ET.Element]:
    return [ET.fromstring(part) for part in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_the_page_tells_what_the_run_has_come_to(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    page, result = (run / "report.html").read_text(), json.loads((run / "result.json").read_text())
    for value in (result["model_sha256"], f"{result['objective']:.8g}", f"{result['relative_gap']:.2e}", "converged"):
        assert value in page
    assert result["status"] == "converged"
    assert len(read_svg(page)) == 5
    assert not re.search(r"<script|https?://|<link|@import|url\(", page), "it loads something"


def test_a_file_of_ones_own(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_run_that_has_not_ended(run: Path, tmp_path: Path) -> None:
    for name in ("settings.json", "history.jsonl"):
        (tmp_path / name).write_text((run / name).read_text())
    page = write_report(tmp_path).read_text()
    assert "has not ended" in page
    assert "Gap against passes" in page


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("settings.json", None, "no run is there"), ("history.jsonl", '{"passes": 1}\n{"pas', "history.jsonl: missing or"),
     ("result.json", "{", "result.json: missing or damaged")],
)  # fmt: skip
def test_what_is_no_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, message: str
) -> None:
    for file in run.glob("*.json*"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(tmp_path) in error
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "missing" / "page.html")]) == 2
    assert "page.html: cannot be written" in capsys.readouterr().err


def test_names_are_text_and_not_html() -> None:
    page = make_page("<b>run</b>", {"data": "<img src=x>.zarr"}, HISTORY, None)
    assert "<b>" not in page
    assert "<img" not in page


def test_without_a_lower_bound_there_is_no_gap() -> None:
    history: list[dict[str, Any]] = [{**line, "lower_bound": None, "relative_gap": None} for line in HISTORY]
    page = make_page("run", {}, history, None)
    assert "Gap" not in page
    assert "estimated" in page


def test_points_are_where_the_axes_say() -> None:
    """A line from the least to the greatest value: its ends are at the ticks of those values."""
    (svg,) = read_svg(draw_chart("t", "x", "y", [Series("a", [0, 10], [0.01, 1])], log=True))
    ends = [tuple(map(float, point.split(","))) for point in svg.find("polyline").get("points").split()]  # type: ignore[union-attr]
    place = {text.text: text for text in svg.iter("text")}
    assert ends[0][0] == float(place["0"].get("x"))  # type: ignore[arg-type]
    assert ends[1][0] == float(place["10"].get("x"))  # type: ignore[arg-type]
    assert ends[0][1] == pytest.approx(float(place["1e-2"].get("y")) - 4)  # type: ignore[arg-type]
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
    assert "nothing to show" in draw_chart("t", "x", "y", [Series("a", [1.0], [float("nan")])])
    assert "nothing to show" in draw_chart("t", "x", "y", [Series("a", [1.0], [-1.0])], log=True)
