"""pipelines/compare.py: its tables and pictures, and what it says without data or of bad data."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.test_compare import load  # noqa: F401

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

FEW = ("streamsvm", "scikit-learn LinearSVC", "scikit-learn SGDClassifier", "LIBLINEAR")


@pytest.fixture
def run(load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Exit status of compare.py with a few trainers and these arguments."""
    compare, known = load("__main__"), load("runs").TRAINERS["linear"]
    monkeypatch.setattr(compare, "SMALL_RUNGS", 1)  # how ladders are climbed has a test of its own

    def run(*arguments: object, trainers: tuple[str, ...] = FEW) -> int:
        chosen = tuple(trainer for trainer in known if trainer.name in trainers)
        monkeypatch.setattr(compare, "TRAINERS", {"linear": chosen})
        monkeypatch.setattr(sys, "argv", ["compare.py", *map(str, arguments)])
        status: int = compare.main()
        return status

    return run


def test_tables_and_pictures_are_kept_and_added_to(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    assert run("--small", "--only", "text", "--out", out, "--work", work) == 0
    text = capsys.readouterr().out
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| s")}
    assert "1,500 rows of 47,000 features" in text
    for name in ("streamsvm", "scikit-learn LinearSVC", "scikit-learn SGDClassifier"):
        assert rows[name].rstrip("| ").endswith("%"), rows[name]
    installed = importlib.util.find_spec("liblinear") is not None
    assert ("| LIBLINEAR | not installed |" in text) != installed
    assert run("--small", "--only", "disk", "--out", out, "--work", work, trainers=("streamsvm",)) == 0
    assert "memory limit 600.0 MB" in capsys.readouterr().out
    whole = (out / "compare.md").read_text()
    assert "### text, generated" in whole
    assert "### dense rows on the disk" in whole
    assert {file.name for file in out.iterdir()} == {
        "text.json",
        "disk.json",
        "compare.md",
        "compare_seconds.png",
        "compare_cpu_seconds.png",
        "compare_bytes.png",
    }
    told = json.loads((out / "disk.json").read_text())
    best = min(one["objective"] for one in told["runs"] if one["objective"])
    assert told["lower_bound"] <= best <= (1 + 1e-5) * told["lower_bound"]


def test_what_is_missing_is_left_out(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--small", "--only", "a9a", "ijcnn1-rbf", "--data", tmp_path) == 0
    assert capsys.readouterr().out.count("Left out: no") == 2


def test_bad_data_is_told(run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a9a", "a9a.t"):
        (tmp_path / name).write_text("1 3:what\n")
    assert run("--small", "--only", "a9a", "--data", tmp_path) == 2
    assert capsys.readouterr().err.startswith(f"compare.py: {tmp_path / 'a9a'} cannot be read: ")
