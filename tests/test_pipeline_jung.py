"""pipelines/papers/jung_2008.py: on little data of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT

PAPERS = ROOT / "pipelines" / "papers"


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "STREAMSVM_DATA"}
    return subprocess.run(
        [sys.executable, "-c", f"import sys, jung_2008 as p; {code}; sys.exit(p.main())", *map(str, arguments)],
        env={**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), str(PAPERS)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Mushrooms of three attributes (2 + 3 + 1 columns), and a1a with its test file."""
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    codes = np.stack([random.integers(0, 2, 80), random.integers(0, 3, 80), np.zeros(80, int)], axis=1)
    codes[:3, 1], codes[:2, 0] = (0, 1, 2), (0, 1)
    labels = np.where(codes[:, 1] + random.integers(0, 2, 80) > 1, 2, 1)
    lines = [f"{y} {a + 1}:1 {b + 3}:1 {c + 6}:1" for y, (a, b, c) in zip(labels, codes, strict=True)]
    (folder / "mushrooms").write_text("\n".join(lines) + "\n")
    for name in ("a1a", "a1a.t"):
        lines = [f"{'+1' if i % 2 else '-1'} {i % 2 + 1}:1 {i % 7 + 3}:1" for i in range(60)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_tables(data: Path, tmp_path: Path) -> None:
    """Four tables; 21 attributes would be 253 features, three are 10."""
    waveform = "p.PROBLEMS = tuple(q for q in p.PROBLEMS if q.name != 'waveform')"
    ran = run(waveform, "--data", data, "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out" / "jung_2008.md").read_text() == ran.stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in ran.stdout.splitlines() if "|" in line]
    variants = [row for row in rows if row[0] == "mushroom" and len(row) == 11]
    assert [row[1:3] for row in variants] == [["80", "10"]] * 7
    assert len({row[-1] for row in variants}) == 1
    assert len([row for row in rows if row[0] == "mushroom" and len(row) == 7]) == 6
    assert [row[2:] for row in rows if row[0] == "a1a"] == [["100.00"] * 3]


def test_a_variant_that_ends_elsewhere_is_told(data: Path) -> None:
    worse = (
        "p.PROBLEMS = p.PROBLEMS[:1]; found = p.solve; from dataclasses import replace; "
        "p.solve = lambda rows, name, *more: "
        "(lambda r, s: (replace(r, objective=r.objective * (1 + 2e-6 * (name == 'fixed'))), s))"
        "(*found(rows, name, *more))"
    )
    ran = run(worse, "--data", data)
    assert ran.returncode == 1
    assert ran.stdout.count("(!)") >= 2


def test_without_data(tmp_path: Path) -> None:
    for arguments in ((), ("--data", tmp_path)):
        ran = run("p.PROBLEMS = p.PROBLEMS[:2]", *arguments)
        assert ran.returncode == 2
        assert "Traceback" not in ran.stderr
