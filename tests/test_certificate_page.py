"""What docs/certificate.md shows can be typed in as it stands, and ends as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "certificate.md").read_text()
NUMBERS = re.compile(r"objective (\S+) on 60 rows .*?lower bound (\S+), relative gap \S+: proves", re.DOTALL)


def find_block(first: str) -> str:
    """Return the indented block that begins with that line."""
    lines = PAGE[PAGE.index(f"    {first}") :].splitlines()
    end = next(k for k, line in enumerate(lines) if line and not line.startswith("    "))
    return "\n".join(line.removeprefix("    ") for line in lines[:end])


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with this copy of streamsvm, whose kernels are compiled."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow("runs every command of the page in a process of its own")
def test_the_commands_and_the_calls(tmp_path: Path) -> None:
    script = find_block('python -c "').replace("streamsvm ", f"{sys.executable} -m streamsvm ")
    script = script.replace("python -c", f"{sys.executable} -c", 1)
    ended = run(["bash", "-e", "-c", script], tmp_path)
    assert ended.returncode == 0, ended.stderr
    shown, printed = NUMBERS.search(PAGE), NUMBERS.search("".join(ended.stdout.splitlines(keepends=True)[-2:]))
    assert shown is not None
    assert printed is not None
    for number in (1, 2):  # other processors take other steps
        assert float(printed[number]) == pytest.approx(float(shown[number]), rel=1e-3)
    (tmp_path / "run").rename(tmp_path / "before")
    calls = find_block("from pathlib import Path")
    ended = run([sys.executable, "-c", calls], tmp_path)
    assert ended.returncode == 0, ended.stderr
