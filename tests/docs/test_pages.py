"""Every code block of README.md and of the pages in docs/ runs, in order, and shows what comes out."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.blocks import ELSEWHERE, LANGUAGES, NOT_RUN, carry_out_page, find_blocks, is_alike

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW = pytest.mark.slow("runs every command of a page")
RUN = [
    page if page.name == "README.md" else pytest.param(page, marks=SLOW)
    for page in PAGES
    if any(block.is_run for block in find_blocks(page))
]
MOST_NOT_RUN = 6
TESTED_ELSEWHERE = (
    "add_a_solver.md",
    "add_a_problem.md",
    "certificate.md",
    "clients.md",
)  # each by a test of its own


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Commands that run in this process leave their signal handlers behind."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported everything and holds nothing else, of which others are forks."""
    command = [sys.executable, "-W", "error", "-m", "tests.docs.blocks"]
    environment, pipe = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}, subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        yield process
        process.communicate()


def carry_out_by(reader: subprocess.Popen[str], page: Path, folder: Path) -> None:
    assert reader.stdin is not None
    assert reader.stdout is not None
    told = folder.with_suffix(".told")
    print(json.dumps([str(page), str(folder), str(told)]), file=reader.stdin, flush=True)
    assert reader.stdout.readline() == "0\n", told.read_text()


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Pages that speak of memory run in a process of their own: this one holds what other tests have left.

    The page of object stores finds one on loopback.
    """
    if page.name == "object_stores.md":
        request.getfixturevalue("server")
    if any(block.is_run and "memory" in block.text for block in find_blocks(page)):
        carry_out_by(request.getfixturevalue("reader"), page, tmp_path)
    else:
        monkeypatch.chdir(tmp_path)
        carry_out_page(page)


def test_a_block_that_fails_in_a_process_of_its_own_is_told(reader: subprocess.Popen[str], tmp_path: Path) -> None:
    """And the next page finds a process."""
    (tmp_path / "wrong.md").write_text("```python\nraise ValueError('not so')\n```\n")
    (tmp_path / "right.md").write_text("```pycon\n>>> 1 + 1\n2\n```\n")
    (tmp_path / "work").mkdir()
    with pytest.raises(AssertionError, match="ValueError: not so"):
        carry_out_by(reader, tmp_path / "wrong.md", tmp_path / "work")
    carry_out_by(reader, tmp_path / "right.md", tmp_path / "work")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_its_language(page: Path) -> None:
    """So that none is passed over: known languages are run, or hold nothing that could be."""
    fences = re.findall(r"^```(\S.*)$", page.read_text(), re.M)
    plain = [fence for fence in fences if not fence.startswith("{") or fence.startswith("{code-block}")]
    languages = {fence.removeprefix("{code-block} ") for fence in plain}
    assert languages <= {*LANGUAGES, *ELSEWHERE}
    assert len(find_blocks(page)) == len(plain)


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_hides_in_an_indented_block(page: Path) -> None:
    assert page.name in TESTED_ELSEWHERE or not re.findall(
        r"^    (?:\$ )?(?:streamsvm|python|dask) .*$", page.read_text(), re.M
    )


def test_few_blocks_are_left_out() -> None:
    pages = [page for page in PAGES if page.name not in TESTED_ELSEWHERE]
    captions = [block.caption for page in pages for block in find_blocks(page) if block.caption]
    assert all(caption.startswith(NOT_RUN) for caption in captions)
    assert len(captions) <= MOST_NOT_RUN


def test_the_examples_are_shown_and_run() -> None:
    scripts = sorted(path.name for path in (ROOT / "docs" / "examples").glob("*.py"))
    assert len(scripts) == 5
    for script in scripts:
        page = (ROOT / "docs" / "examples" / script).with_suffix(".md").read_text()
        assert f"```{{literalinclude}} {script}\n" in page
        assert f"$ python docs/examples/{script}\n" in page


@pytest.mark.slow("runs pages in processes of their own")
@pytest.mark.parametrize(
    ("shown", "said", "alike"),
    [
        ("gap ..., 98.7% of 1,000 rows", "gap 9e-04,  98.3% of 1,000\nrows", True),
        ("98.7% of 1,000 rows", "95.1% of 1,000 rows", False),
        ("98.7% of 1,000 rows", "98.7% of 1,000 rows, and more", False),
        ("98.7% of 1,000 rows ...", "98.7% of 1,000 rows, and more", False),
        ("98.7% of 1,000 rows...", "98.7% of 1,000 rows, and more", True),
        ("2", "1", False),
    ],
)
def test_outputs_are_compared(shown: str, said: str, alike: bool) -> None:
    assert is_alike(shown, said) == alike
