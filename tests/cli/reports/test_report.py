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
from streamsvm.cli.main import main
from streamsvm.cli.reports.report import Run, draw_reliability, make_page, write_report
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import LinearModel, load
from tests.cli.reports.structure import check_page

LINE = {"passes": 1, "seconds": 0.5, "objective": 20.0, "lower_bound": 5.0, "relative_gap": 0.75}
HISTORY = [
    {**LINE, "read_bytes": 10**6, "memory_bytes": 2 * 10**8},
    {**LINE, "passes": 2, "seconds": 1.5, "relative_gap": 1e-3, "read_bytes": 2 * 10**6, "memory_bytes": 2 * 10**8},
]
SEVERAL_STEPS = ("--option", "acceleration=line-search")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    streamsvm.ingest(X, folder / "data.zarr", (X[:, 0] > 0).astype(int))
    assert main(["train", str(folder / "data.zarr"), "--out", str(folder / "run"), *SEVERAL_STEPS]) == 0
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
    titles = [svg.get("aria-label") for svg in read_svg(page)]
    assert titles == [
        "Gap against passes",
        "Gap against seconds",
        "Objective and lower bound",
        "Largest weights",
        "Where the time went",
        "Read from storage",
        "Resident memory of this process",
    ]
    check_page(page)


def test_a_file_of_ones_own(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_run_that_has_not_ended(run: Path, tmp_path: Path) -> None:
    for name in ("settings.json", "history.jsonl"):
        (tmp_path / name).write_text((run / name).read_text())
    page = write_report([tmp_path]).read_text()
    assert "has not ended" in page
    assert "Gap against passes" in page


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("settings.json", None, "this is not the folder of a run"),
        ("history.jsonl", '{"passes": 1}\n{"pas', "history.jsonl: missing or"),
        ("result.json", "{", "result.json: missing or damaged"),
    ],
)
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


def test_one_step_is_no_curve_but_a_certificate() -> None:
    """Its bars are as long as the gap that was proved, and as the gap that was allowed."""
    page = make_page([Run("run", {"tol": 1.5}, HISTORY[:1])])
    (bars,) = read_svg(page)
    assert bars.get("aria-label") == "P = 20, D = 5"
    proved, allowed = (float(str(bar.get("width"))) for bar in bars.iter("rect"))
    assert allowed == 2 * proved > 0
    assert "Certificate" in page


def test_one_step_that_proves_nothing() -> None:
    page = make_page([Run("run", {}, [{**HISTORY[0], "lower_bound": None, "relative_gap": None}])])
    assert "made one step and proved nothing" in page
    assert not read_svg(page)


@pytest.mark.parametrize(("largest", "unit"), [(4 * 10**5, "MB"), (3 * 10**11, "GB"), (2 * 10**12, "TB")])
def test_bytes_have_a_unit_that_suits_them(largest: int, unit: str) -> None:
    history = [{**line, "read_bytes": largest // 2 * (k + 1), "memory_bytes": 10**5} for k, line in enumerate(HISTORY)]
    charts = {svg.get("aria-label"): svg for svg in read_svg(make_page([Run("run", {}, history)]))}
    for title, labels in ((f"Gap against {unit} read", 1), ("Read from storage", 1)):
        assert [text.text for text in charts[title].iter("text")].count(
            f"{unit} read" if "Gap" in title else unit
        ) == labels


def test_few_rows_prove_little_of_a_probability() -> None:
    """Wilson's interval of 1 of 1 rows begins at 0.21; that of 500 of 1,000 rows is 0.469 to 0.531."""
    curve = [{"rows": 1000, "predicted": 0.5, "true": 0.5}, {"rows": 1, "predicted": 0.9, "true": 1.0}]
    (chart,) = draw_reliability({"run": {"reliability": curve}})
    assert "0.469069 to 0.530931" in chart
    assert "0.206543 to 1)" in chart


def test_without_a_lower_bound_there_is_no_gap() -> None:
    history: list[dict[str, Any]] = [{**line, "lower_bound": None, "relative_gap": None} for line in HISTORY]
    page = make_page([Run("run", {}, history)])
    assert "Gap" not in page
    assert "estimated" in page


def test_what_the_model_gives_new_rows(run: Path, tmp_path: Path) -> None:
    """The measures are those of `evaluate`; curves and matrix are there."""
    data = run.parent / "data.zarr"
    page = write_report([run], tmp_path / "page.html", str(data)).read_text()
    found = evaluate(load(run), data)
    parsed = check_page(page)
    titles = [svg.get("aria-label") for svg in read_svg(page)]
    assert {"ROC curve", "Precision and recall"} <= set(titles)
    assert f"area {found['roc_area']:.4f}" in page
    assert ["true class", "0", "1"] in parsed.cells
    for name, counts in zip("01", found["confusion"], strict=True):
        assert [name, *map(str, counts)] in parsed.cells


def test_several_runs_on_one_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    assert main(["train", str(run.parent / "data.zarr"), "--C", "5", "--loss", "logistic", "--out", str(other)]) == 0
    assert main(["report", str(run), str(other)]) == 2
    assert "--out FILE.html is missing" in capsys.readouterr().err
    assert main(["report", str(run), str(other), "--out", str(tmp_path / "both.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(tmp_path / "both.html")}
    page = (tmp_path / "both.html").read_text()
    parsed = check_page(page)
    (gap,) = (svg for svg in read_svg(page) if svg.get("aria-label") == "Gap against passes")
    assert [part.get("class") for part in gap.iter("g") if part.get("class")] == ["c0", "c1"]
    assert ["", "run", "other"] in parsed.cells
    assert ["solver", "cutting-plane", "newton"] in parsed.cells
    assert ["class costs", "1, 1", "5, 5"] in parsed.cells
    assert ["loss", "not set", "logistic"] in parsed.cells


def test_settings_are_words() -> None:
    settings = {
        "a_b": [True, None],
        "c": {"x": 0.1, "y": 1e-5},
        "d": [{"k": "v"}, {"k": "w"}],
        "e": 0.123456789,
        "f": 1,
    }
    parsed = check_page(make_page([Run("run", settings, HISTORY)]))
    words = [["a b", "yes, not set"], ["c", "x 0.1, y 1e-05"], ["d", "k v; k w"], ["e", "0.123456789"], ["f", "1"]]
    assert all(row in parsed.cells for row in words)


def test_runs_of_one_name_are_told_apart(run: Path, tmp_path: Path) -> None:
    page = write_report([run, run], tmp_path / "page.html").read_text()
    assert ["", "run (1)", "run (2)"] in check_page(page).cells


def test_options_for_rows_that_are_not_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--label", "y"]) == 2
    assert "--label has no effect without --eval" in capsys.readouterr().err


def test_the_page_does_not_replace_what_it_reads(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = run.parent / "rows.svm"
    data.write_text("1 1:1\n0 1:-1\n")
    assert main(["report", str(run), "--eval", str(data), "--out", str(data)]) == 2
    assert "would be replaced" in capsys.readouterr().err
    assert data.read_text() == "1 1:1\n0 1:-1\n"


def test_the_time_of_a_run_is_told_apart(run: Path) -> None:
    """The passes and the solver take time, together at most that of the run; they grow from step to step."""
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for line in lines:
        assert 0 < line["pass_seconds"] + line["solver_seconds"] <= line["seconds"] + 1e-3
    page = make_page([Run("run", {}, [{**lines[-1], "seconds": 8.0, "pass_seconds": 4.0, "solver_seconds": 2.0}])])
    (bars,) = (svg for svg in read_svg(page) if svg.get("aria-label") == "Where the time went")
    shown = "".join(bars.itertext())
    assert all(told in shown for told in ("4 s, 50%", "2 s, 25%"))
    assert len(list(bars.iter("rect"))) == 3


def test_the_time_of_passes_is_divided_as_that_of_their_tasks(run: Path) -> None:
    line = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
    result = json.loads((run / "result.json").read_text())
    assert set(result["task_seconds"]) == {"read", "verify", "compute"}
    assert result["task_seconds"]["compute"] > 0
    result |= {"seconds": 8.0, "task_seconds": {"read": 6.0, "verify": 2.0, "compute": 8.0}}
    page = make_page([Run("run", {}, [{**line, "seconds": 8.0, "pass_seconds": 4.0, "solver_seconds": 2.0}], result)])
    (bars,) = (svg for svg in read_svg(page) if svg.get("aria-label") == "Where the time went")
    shown = "".join(bars.itertext())
    for told in ("passes: reading1.5 s, 19%", "passes: verifying0.5 s, 6%", "passes: computing2 s, 25%"):
        assert told in "".join(shown.split("\n")), shown
    assert len(list(bars.iter("rect"))) == 5


def test_names_of_classes_and_features_stay_texts(tmp_path: Path) -> None:
    """Whatever a table calls its columns and classes is shown, and no element, attribute or control character."""
    names = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "a\u202eb", "]]>&amp;"]
    classes = np.array(["</table><svg onload=x>", "{% raw %}\x1b[2J"])
    model = LinearModel(coef=np.arange(1.0, 6.0), intercept=0.0, classes=classes, feature_names=tuple(names))
    (tmp_path / "settings.json").write_text(json.dumps({names[1]: names[0], "task": "\ud800"}))
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in HISTORY))
    (tmp_path / "model.npz").write_bytes(model.to_bytes())
    X = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    streamsvm.ingest(X, tmp_path / "data.zarr", classes[np.arange(40) % 2])
    page = write_report([tmp_path], None, str(tmp_path / "data.zarr")).read_text()
    parsed = check_page(page)
    shown = "".join(parsed.texts)
    for text in (*names[:3], names[4], "a\\u202eb", classes[0], "{% raw %}\\x1b[2J", "\\ud800"):
        assert text in shown
    assert "49" not in parsed.texts
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page)
