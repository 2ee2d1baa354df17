"""pipelines/: the scripts run as their first lines say, and their tables hold."""

from __future__ import annotations

import importlib
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

PIPELINES = ROOT / "pipelines"
RunAdult = Callable[..., "subprocess.CompletedProcess[str]"]


def run(script: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "STREAMSVM_DATA"}
    return subprocess.run(
        [sys.executable, str(PIPELINES / script), *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def run_adult(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunAdult:
    """Run the story of Adult in this process, without an environment."""
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    main = importlib.import_module("pipelines.adult.__main__").main

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["adult.py", *arguments])
        status: int = main()
        return subprocess.CompletedProcess([], status, *capsys.readouterr())

    return call


def read_table(text: str) -> dict[str, list[str]]:
    """Cells of a Markdown table by the first of each row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1, "every row has as many cells"
    return {row[0]: row[1:] for row in rows}


@pytest.fixture(scope="module")
def pipeline() -> ModuleType:
    """The story larger_than_memory as a module."""
    return importlib.import_module("pipelines.larger_than_memory.__main__")


@pytest.mark.data
def test_adult_reaches_the_published_figures(data_folder: Path) -> None:
    done = run("adult.py", STREAMSVM_DATA=str(data_folder))
    assert done.returncode == 0, done.stderr
    table = read_table(done.stdout)
    assert table["published"] == ["", "", "577.516 (optimum)", "", "85.0%"]
    ours, published = table["streamsvm, line search"], table["streamsvm, Algorithm 1 as published"]
    for status, _, objective, gap, _ in (ours, published):
        assert status == "converged"
        assert float(objective) == pytest.approx(577.516, rel=1e-3)
        assert float(gap) <= 1e-3
    assert abs(float(ours[4].rstrip("%")) - 85.0) <= 0.1
    assert int(ours[1]) <= 30
    assert 150 <= int(published[1]) <= 250


def test_adult_takes_a_folder_plain_or_compressed(run_adult: RunAdult, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = [f"{'+1' if x > 0 else '-1'} 1:{x:.3f} 2:1\n" for x in random.normal(size=80)]
    (tmp_path / "adult").mkdir()
    (tmp_path / "a9a").write_text("".join(lines[:60]))
    (tmp_path / "adult" / "a9a.t.xz").write_bytes(lzma.compress("".join(lines[60:]).encode()))
    done = run_adult("--data", str(tmp_path), "--C", "1", "--work", str(tmp_path / "work"))
    assert done.returncode == 0, done.stderr
    assert "60 rows to train, 20 to test, C = 1.0" in done.stdout
    table = read_table(done.stdout)
    assert "published" not in table, "published figures are for another C"
    assert [table[name][0] for name in list(table)[2:]] == ["converged", "converged"]
    assert sorted(file.name for file in (tmp_path / "work").iterdir()) == ["a9a-test.zarr", "a9a.zarr"]


def test_adult_on_other_data_is_not_as_published(run_adult: RunAdult, tmp_path: Path) -> None:
    for name in ("a9a", "a9a.t"):
        (tmp_path / name).write_text("+1 1:1\n-1 2:1\n" * 5)
    done = run_adult("--data", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert read_table(done.stdout)["streamsvm, line search"][0] == "converged"


@pytest.mark.parametrize("folder", [None, "empty"])
def test_adult_without_data_says_where_they_are(folder: str | None, run_adult: RunAdult, tmp_path: Path) -> None:
    done = run_adult(*(["--data", str(tmp_path)] if folder else []))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("adult.py: no data: ")
    assert "LIBSVM Data: Classification (Binary Class)" in done.stderr


@pytest.mark.parametrize(("kind", "budget"), [([], "400.0 MB"), (["--sparse"], "450.0 MB")], ids=["dense", "sparse"])
def test_larger_than_memory_prints_what_it_measured(kind: list[str], budget: str, tmp_path: Path) -> None:
    """On little data, which makes no difference to the code."""
    done = run("larger_than_memory.py", "--times", "0.1", "--work", str(tmp_path / "work"), *kind)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0.1 times the budget" in done.stdout
    table = read_table(done.stdout)
    for name in ("2 threads", "2 workers"):
        result = json.loads((tmp_path / "work" / name.replace(" ", "-") / "result.json").read_text())
        peak, projected = (result[f"{what}_memory_bytes"] for what in ("peak", "projected"))
        model, status, gap, passes, _, *sizes, _, limit = table[name]
        assert model == result["model_sha256"][:8]
        assert (status, int(passes)) == ("converged", result["passes"])
        assert float(gap) <= 1e-3
        assert sizes == [f"{peak / 1e6:.1f} MB", f"{projected / 1e6:.1f} MB", budget]
        assert limit.startswith(("cgroup memory.max", "RLIMIT_DATA"))
    assert "Models: the same" in done.stdout
    assert "A budget of 100.0 MB: exit status 2, nothing ran:" in done.stdout
    assert "raise --memory to at least" in done.stdout


def test_the_limit_is_enforced_from_outside(pipeline: ModuleType) -> None:
    with pipeline.limit_memory(100 * 10**6, 1) as limit:
        for size_bytes, fits in ((10 * 10**6, True), (400 * 10**6, False)):
            fill = f"x = bytearray({size_bytes}); x[::4096] = b'1' * len(x[::4096])"
            command = ["sh", "-c", f'{limit.prologue} && exec "$@"', "sh", sys.executable, "-c", fill]
            done = subprocess.run(command, check=False, capture_output=True)
            assert (done.returncode == 0) == fits, limit.description


def test_control_groups_that_cannot_be_made_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    limits = importlib.import_module("pipelines.limits")
    assert limits.make_control_group(10**9, tmp_path) is None
    assert [file.name for file in tmp_path.iterdir()] == ["cgroup.controllers"]


GOOD = {
    "status": "converged",
    "relative_gap": 5e-4,
    "passes": 20,
    "seconds": 2.0,
    "read_bytes": 8 * 10**9,
    "peak_memory_bytes": 300,
    "projected_memory_bytes": 390,
    "model_sha256": "0123456789",
}


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, True),
        ({"status": "pass_limit"}, False),
        ({"peak_memory_bytes": 391}, False),
        ({"projected_memory_bytes": 401}, False),
        (None, False),
    ],
)
def test_a_run_that_breaks_its_promise_is_told(
    changed: dict[str, Any] | None, held: bool, pipeline: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    limit, report = pipeline.Limit("true", "none"), pipeline.Report()
    done = subprocess.CompletedProcess([], 0, stdout="progress\n" + json.dumps({**GOOD, **(changed or {})}) + "\n")
    if changed is None:
        done = subprocess.CompletedProcess([], 1, stdout="", stderr="a\nout of memory\n")
    assert pipeline.add_run(report, "2 threads", done, 400, limit) == held
    row = capsys.readouterr().out
    assert row == report.text
    assert row.count("|") == len(pipeline.COLUMNS) + 1
    if held:
        assert "| 20 | 2 | 300 bytes | 390 bytes | 400 bytes | 4,000 | none |" in row
    if changed is None:
        assert "failed: out of memory" in row


def test_a_refusal_that_did_not_happen_is_told(
    pipeline: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "train", lambda *_: subprocess.CompletedProcess([], 0, stdout="{}", stderr=""))
    assert not pipeline.show_refusal(None, tmp_path, "")
    monkeypatch.setattr(pipeline, "train", lambda *_: subprocess.CompletedProcess([], 2, stdout="", stderr="no"))
    assert pipeline.show_refusal(None, tmp_path, "")
    (tmp_path / "history.jsonl").write_text("{}\n")
    assert not pipeline.show_refusal(None, tmp_path, "")
