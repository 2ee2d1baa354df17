"""Pages in a real browser: they fit a phone, are dark where the reader wants it, and run nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.reports.report import Run, make_page
from streamsvm.models.model import LinearModel
from tests.cli.reports.test_tuning import TOLD

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: pages are not tried in a browser"),
]

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE = """<script>
const root = document.documentElement, chart = document.querySelector("svg").getBoundingClientRect();
const texts = [...document.querySelectorAll("svg .title")].map(one => one.getBoundingClientRect());
parent.document.documentElement.setAttribute("data-seen", JSON.stringify({
  window: innerWidth, page: root.scrollWidth, chart: chart.width,
  paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  hidden: [...document.querySelectorAll(".scroll:has(.numbers)")].map(box => box.scrollWidth - box.clientWidth),
  title: Math.max(...texts.map(box => box.right)), letter: texts[0].height,
}));
</script>"""


def make_example() -> str:
    """A page with everything, whose names are long."""
    line = {"objective": 20.0, "lower_bound": 5.0, "read_bytes": 10**6, "memory_bytes": 2 * 10**8, "relative_gap": 0.1}
    history = [{**line, "passes": k, "seconds": k, "pass_seconds": 1, "solver_seconds": 1} for k in range(1, 9)]
    names = tuple(f"a feature with a long name, number {k}" for k in range(20))
    model = LinearModel(
        coef=np.linspace(-1, 2, 20),
        intercept=0.0,
        classes=np.array(["a class with a name of many words", "x" * 60]),
        feature_names=names,
    )
    settings = {"fingerprint": "f" * 64, "class_costs": [1.0] * 30}
    measured = {
        "accuracy": 0.5,
        "n_rows": 10,
        "roc_area": 0.5,
        "average_precision": 0.5,
        "unknown_labels": 0,
        "classes": {str(name): {"rows": 5, "recall": 0.5, "precision": 0.5, "f1": 0.5} for name in model.classes},
        "confusion": [[3, 2], [2, 3]],
        "curves": {"false_positive_rate": [0.0, 1.0], "true_positive_rate": [0.0, 1.0], "precision": [1.0, 0.5]},
    }
    runs = [Run("a-run-with-a-rather-long-name-of-its-own", settings, history, tuning=TOLD)]
    return make_page(runs, {runs[0].name: model}, {runs[0].name: measured}, "rows.csv")


def browse(page: str, folder: Path, *more: str) -> str:
    """Return the document as the browser has it after loading a page."""
    (folder / "page.html").write_text(page)
    command = [str(CHROMIUM), *FLAGS, *more, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,2000"]
    ended = subprocess.run(
        [*command, "--dump-dom", (folder / "page.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    return ended.stdout


def look_at(page: str, folder: Path, width: int, *more: str) -> dict[str, Any]:
    """Return what a script measures that is put into the page, whose policy would otherwise forbid it.

    The page is in a frame of this width, since a window of Chromium has at least 500 pixels.
    """
    inner = escape(POLICY.sub("", page).replace("</body>", f"{MEASURE}</body>"))
    frame = f'<!doctype html><iframe style="border: 0; width: {width}px; height: 1900px" srcdoc="{inner}"></iframe>'
    found: dict[str, Any] = json.loads(unescape(re.findall(r'data-seen="([^"]*)"', browse(frame, folder, *more))[0]))
    return found


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_as_wide_as_its_window(tmp_path: Path, width: int) -> None:
    """Wide tables scroll in their own boxes, and titles end within their charts."""
    seen = look_at(make_example(), tmp_path, width)
    assert seen["window"] == width
    assert seen["page"] <= width
    assert seen["title"] <= width
    assert 300 < seen["chart"] < 700
    assert seen["letter"] >= 10, "letters are too small to read"


def test_tables_of_classes_fit_a_phone(tmp_path: Path) -> None:
    assert look_at(make_example(), tmp_path, 420)["hidden"][-2:] == [0, 0], (
        "the measures of classes, and their confusion"
    )


def test_dark_and_light(tmp_path: Path) -> None:
    """Blink's setting 0 is dark and 1 is light."""
    for setting, is_dark in ((0, True), (1, False)):
        seen = look_at(make_example(), tmp_path, 800, f"--blink-settings=preferredColorScheme={setting}")
        paper, ink = (sum(map(int, re.findall(r"\d+", seen[name])[:3])) / 3 for name in ("paper", "ink"))
        assert (paper < 60 and ink > 200) if is_dark else (paper > 200 and ink < 60)


def test_a_script_that_gets_into_a_page_does_not_run(tmp_path: Path) -> None:
    evil = "<script>document.body.setAttribute('data-ran', '1')</script></body>"
    assert "data-ran=" not in browse(make_example().replace("</body>", evil), tmp_path)
    assert "data-ran=" in browse(POLICY.sub("", make_example()).replace("</body>", evil), tmp_path)
