"""What the pages name as `folder/file.py:function` is there, and the pages of the methods name enough."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

NAMED_BY_OTHERS = {"architecture.md"}  # tests/test_architecture_page.py: it shortens the names of one folder
PLACES = [
    (page.relative_to(ROOT / "docs"), file, name)
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if page.name not in NAMED_BY_OTHERS
    for file, name in re.findall(r"`((?:\w+/)*\w+\.py):(\w+)`", page.read_text())
]


@pytest.mark.parametrize(("page", "file", "name"), PLACES, ids=lambda part: str(part))
def test_each_function_is_where_the_page_says(page: Path, file: str, name: str) -> None:
    text = (ROOT / "streamsvm" / file).read_text()
    assert re.search(rf"^\s*(?:(?:def|class) {name}\b|{name}(?:: .*)? = )", text, re.MULTILINE)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "solvers").glob("*.md")), ids=lambda page: str(page.name))
def test_a_method_s_page_leads_to_its_functions(page: Path) -> None:
    named = {f"{file}:{name}" for where, file, name in PLACES if where.name == page.name}
    assert len(named) >= 6 or page.name == "index.md"
