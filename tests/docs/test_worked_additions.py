"""The pages that add a problem and a solver: what they show is applied to the package, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow("runs the commands of a page")

BLOCK = re.compile(r"^```\{code-block\} (\w+)\n:caption: ([^\n]+)\n\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_blocks(page: str) -> list[tuple[str, str, str]]:
    """The language, the caption and the text of every block of a page that has a caption."""
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text())
    assert blocks
    return blocks


def apply_diff(text: str, diff: str) -> str:
    """Insert the added lines after the line above them, or before the one below; both must be in the text once."""
    for hunk in diff.split("@@\n"):
        lines = [line for line in hunk.splitlines() if line.strip()]
        old = "".join(f"{line[1:]}\n" for line in lines if line.startswith(" "))
        new = "".join(f"{line[1:]}\n" for line in lines)
        assert not any(line.startswith("-") for line in lines)
        assert text.count(old) == 1, f"the text has changed around:\n{old}"
        text = text.replace(old, new)
    return text


def apply_page(page: str, root: Path) -> list[str]:
    """Apply the files and the diffs of a page to a copy of the package; return the files that were touched."""
    touched = []
    for language, caption, text in read_blocks(page):
        file = root / caption
        if language == "diff":
            file.write_text(apply_diff(file.read_text(), text))
        elif caption.endswith(".py"):
            file.parent.mkdir(exist_ok=True)
            (file.parent / "__init__.py").touch()
            assert not file.exists()
            file.write_text(text)
        else:
            continue
        touched.append(caption)
    return touched


@pytest.mark.parametrize(
    ("page", "n_touched"), [("add_a_problem.md", 2), ("add_a_solver.md", 2)], ids=["problem", "solver"]
)
def test_what_the_page_shows_works(page: str, n_touched: int, tmp_path: Path) -> None:
    """Types and style included. The number of files that an addition touches is part of the promise."""
    shutil.copytree(ROOT / "streamsvm", tmp_path / "streamsvm")  # with what is compiled already
    touched = apply_page(page, tmp_path)
    assert len(touched) == n_touched
    (tried,) = (text for _, caption, text in read_blocks(page) if caption == "Try it")
    (tmp_path / "try_it.py").write_text(tried)
    command = [sys.executable, "-W", "error", "try_it.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", ["add_a_problem.md", "add_a_solver.md"])
def test_what_the_page_shows_keeps_the_rules(page: str, tmp_path: Path) -> None:
    """A stranger's addition passes the checks that ours have to pass; skipped where their tools are not installed."""
    pytest.importorskip("ruff")
    for name in ("streamsvm", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    files = [name for name in apply_page(page, tmp_path) if name.endswith(".py")]
    for command in (["ruff", "check"], ["ruff", "format", "--check"]):
        ended = subprocess.run(
            [sys.executable, "-m", *command, *files], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
