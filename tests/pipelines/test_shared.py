"""What all stories of pipelines/ share: how data are found, how tables are written, how errors are told; the pages."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines import story
from pipelines.data import DataFolder, read_covertype, read_numbers, read_svmlight
from pipelines.exponents import fit_exponent
from pipelines.report import Report, format_head, format_row
from streamsvm.system.errors import InputError
from tests.conftest import ROOT

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

PIPELINES = ROOT / "pipelines"
STORIES = sorted(file.parent.relative_to(PIPELINES) for file in PIPELINES.rglob("__main__.py"))


def test_tables_are_markdown_that_is_printed_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert format_row("a", "", "c") == "| a |  | c |"
    assert format_head("a", "b") == "| a | b |\n|---|---|"
    report = Report()
    report.begin_table("A title", "x", "y")
    report.add_row("1", "2")
    report.begin_table("", "z")
    assert report.text == "\nA title\n\n| x | y |\n|---|---|\n| 1 | 2 |\n| z |\n|---|\n"
    assert capsys.readouterr().out == report.text


def test_files_are_found_plain_before_packed_and_in_folders_below(tmp_path: Path) -> None:
    (tmp_path / "a9a").mkdir()
    for name in ("a9a/a9a", "deep/er/w8a.xz", "w8a.xz/w8a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    folder = DataFolder(tmp_path)
    assert folder.find("a9a") == tmp_path / "a9a" / "a9a"
    assert folder.find("w8a") == tmp_path / "w8a.xz" / "w8a"
    (tmp_path / "w8a.xz" / "w8a").unlink()
    assert folder.find("nothing", "w8a") == tmp_path / "deep" / "er" / "w8a.xz"
    assert folder.find_all("w8a", "a9a") == [tmp_path / "deep" / "er" / "w8a.xz", tmp_path / "a9a" / "a9a"]
    assert folder.find_all("w8a", "nothing") is None
    assert DataFolder(None).find("a9a") is None


def test_the_error_without_data_says_where_it_looked_and_what_to_get(tmp_path: Path) -> None:
    told = str(DataFolder(tmp_path).explain_missing("a9a from a page"))
    assert str(tmp_path) in told
    assert "Get a9a from a page; put the files into one folder, and pass it as --data" in told
    assert "STREAMSVM_DATA" in str(DataFolder(None).explain_missing("a9a from a page"))


def test_files_are_read_packed_or_not_and_named_if_they_are_broken(tmp_path: Path) -> None:
    columns = ",".join(f"c{k}" for k in range(55))
    lines = [columns, ",".join(["2", *["0"] * 53, "1"]), ",".join(["4", *["0"] * 53, "3"])]
    (tmp_path / "covtype.csv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    X, positive = read_covertype(tmp_path / "covtype.csv.xz")
    assert X[:, 0].tolist() == [0.5, 1.0]
    assert positive.tolist() == [True, False]
    (tmp_path / "rows").write_text("1 2:3\n-1 1:0.5\n")
    rows, y = read_svmlight(tmp_path / "rows", 3)
    np.testing.assert_array_equal(rows.toarray(), [[0, 3, 0], [0.5, 0, 0]])
    assert (rows.indices.dtype, rows.indptr.dtype, y.tolist()) == (np.int32, np.int32, [1.0, -1.0])
    for content in (b"1 no:1\n", b"1 9:1\n"):
        (tmp_path / "rows").write_bytes(content)
        with pytest.raises(InputError, match=re.escape(f"{tmp_path / 'rows'} cannot be read: ")):
            read_svmlight(tmp_path / "rows", 3)
    (tmp_path / "numbers.xz").write_bytes(b"not packed")
    with pytest.raises(InputError, match=r"numbers\.xz cannot be read: "):
        read_numbers(tmp_path / "numbers.xz", np.float32)


def test_an_input_error_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise InputError("no data: none")

    assert story.run_story("adult.py", fail) == 2
    assert capsys.readouterr() == ("", "adult.py: no data: none\n")
    assert story.run_story("adult.py", lambda: 1) == 1


def test_pictures_that_cannot_be_drawn_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "find_spec", lambda _: None)
    story.make_out(None)
    with pytest.raises(InputError, match=r"streamsvm\[plots\]"):
        story.make_out(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    story.make_out(tmp_path / "out")
    assert (tmp_path / "out").is_dir()


def test_a_passing_folder_goes_and_a_named_one_stays(tmp_path: Path) -> None:
    with story.open_work(None) as passing:
        assert passing.is_dir()
    assert not passing.exists()
    with story.open_work(tmp_path / "a" / "b") as named:
        assert named == tmp_path / "a" / "b"
    assert named.is_dir()


def test_exponents() -> None:
    assert fit_exponent((n, 3e-6 * n**1.5) for n in (10, 100, 1000)) == pytest.approx(1.5)
    assert np.isnan(fit_exponent([(10, 1.0), (10, 2.0)]))


def test_entry_files_run_from_any_folder(tmp_path: Path) -> None:
    """The files differ by their story's name only; one of them is run."""
    names = ("adult", "cells", "clicks", "compare", "embeddings", "land_cover", "larger_than_memory")
    names += ("peptides", "scale")
    entries = {name: (PIPELINES / f"{name}.py").read_text() for name in names}
    assert len({text.replace(name, "STORY") for name, text in entries.items()}) == 1
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(PIPELINES / "larger_than_memory.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: larger_than_memory.py")


def test_every_story_has_a_page_and_is_listed_with_its_command() -> None:
    page = (PIPELINES / "README.md").read_text()
    assert len(STORIES) == 14
    for folder in STORIES:
        module = ".".join(("pipelines", *folder.parts))
        command = f"python -m {module} " if folder.parts[0] == "papers" else f"python pipelines/{folder}.py "
        assert f"[{folder}]({folder}/README.md)" in page
        assert f"    {command}" in page
        assert f"    {command}" in (PIPELINES / folder / "README.md").read_text()


def test_links_and_pictures_of_the_pages_exist() -> None:
    pages = list(PIPELINES.rglob("*.md"))
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    assert len(links) > 15
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
