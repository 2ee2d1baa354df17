"""What scripts, pages and the programs inside of tests import exists, though no test runs all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

IMPORT = re.compile(r"from ((?:streamsvm|pipelines)[\w.]*) import (\([^)]*\)|[\w, ]+)")
FOLDERS = ("benchmarks", "cluster", "docs", "pipelines", "tests", "streamsvm")
TEXTS = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".sh", ".yaml"}
)


def list_imports(text: str) -> Iterator[tuple[str, str]]:
    """Give the modules and names of imports from our packages, those inside of strings included."""
    for module, names in IMPORT.findall(text):
        for name in re.sub(r"#[^\n]*|[()]", "", names).split(","):
            if name.strip():
                yield module, name.split(" as ")[0].strip()


def exists(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False


def test_what_is_missing_is_found() -> None:
    text = (
        'RUN = """\nfrom streamsvm.options import TrainOptions, Missing\nfrom streamsvm.gone import (\n    some,\n)"""'
    )
    found = [exists(module, name) for module, name in list_imports(text)]
    assert found == [True, False, False]


@pytest.mark.parametrize("path", [ROOT / "README.md", *TEXTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_imported_names_exist(path: Path) -> None:
    if path == Path(__file__):
        return
    assert [pair for pair in list_imports(path.read_text(encoding="utf-8")) if not exists(*pair)] == []
