"""pipelines/papers/qaadan_glasmachers_2018/: on little data of its own, and what it says without any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.pipelines.tables import read_tables
from tests.pipelines.test_platt import write_text

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

MERGES = 4  # M = 2, 3, 5, 10
SHARES = 6


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "STREAMSVM_DATA"}
    return subprocess.run(
        [sys.executable, "-m", "pipelines.papers.qaadan_glasmachers_2018", *map(str, arguments)],
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def write_colours(file: Path, n: int = 300) -> None:
    """Two classes by the red of three colours."""
    colours = np.random.default_rng(3).integers(0, 256, (n, 3))
    label = np.where(colours[:, 0] > 128, 1, 2)
    lines = [",".join(map(str, (*row, y))) for row, y in zip(colours.tolist(), label.tolist(), strict=True)]
    file.write_text("r,g,b,skin\n" + "\n".join(lines) + "\n")


def test_every_table_and_picture_is_there(tmp_path: Path) -> None:
    write_text(tmp_path / "phishing", 0)
    write_text(tmp_path / "adult" / "a9a.xz", 1)
    write_text(tmp_path / "adult" / "a9a.t", 2)
    write_colours(tmp_path / "Skin_NonSkin.txt")
    done = run("--data", tmp_path, "--small", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    exact, table_1, shares, budgets, parameters, said = read_tables(done.stdout)
    assert [(row[0], row[3]) for row in exact] == [("phishing", "97.55"), ("adult", "84.82"), ("skin", "98.96")]
    assert float(exact[2][4]) > 90, "the exact SVM tells colours apart"
    assert [row[0] for row in table_1] == ["120", "600", "1,200", "1,800", "2,500"]
    assert [row[:3] for row in shares] == [["adult", b, m] for b in ("100", "500") for m in ("2", "3", "5", "10")]
    assert {row[0] for row in budgets} == {"phishing", "adult", "skin"}
    assert len(budgets) == 3 * SHARES
    assert [len(row) for row in budgets] == [4 + 2 * MERGES] * len(budgets)
    assert len(parameters) == 9 * SHARES
    assert said[-1][0].startswith("by gradient") or len(said) >= 6
    assert (tmp_path / "out" / "qaadan_glasmachers_2018.md").read_text() == done.stdout
    for name in ("figure_1", "figures_2_3", "figure_4", "figure_5"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
