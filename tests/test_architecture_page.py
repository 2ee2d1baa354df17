"""What docs/architecture.md says of files and functions is there, and its picture is the one of today's imports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PLACES = re.findall(r"`((?:\w+/)*\w+\.py):(\w+)`", PAGE)


def find_file(name: str) -> Path:
    """A path within the package, or the name of a file of solvers/cutting_plane, which the page explains."""
    inside = ROOT / "streamsvm" / name
    return inside if inside.exists() else ROOT / "streamsvm" / "solvers" / "cutting_plane" / name


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_each_function_is_where_the_page_says(file: str, name: str) -> None:
    assert re.search(rf"^\s*(def|class) {name}\b", find_file(file).read_text(), re.MULTILINE)


def test_the_page_names_places() -> None:
    assert len(PLACES) >= 15


def test_every_part_is_in_the_table() -> None:
    folders = {path.name for path in (ROOT / "streamsvm").iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(re.findall(r"`(\w+)/`", PAGE))


def test_the_picture_is_of_these_imports(tmp_path: Path) -> None:
    """Boxes and arrows, none of which runs up; how text is drawn depends on the fonts."""
    drawn = tmp_path / "imports.svg"
    command = [sys.executable, ROOT / "docs" / "draw_imports.py", "--out", drawn]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert ", 0 of them up" in told
    assert count(drawn) == count(ROOT / "docs" / "imports.svg")


def count(picture: Path) -> int:
    return picture.read_text().count('<g id="patch_')
