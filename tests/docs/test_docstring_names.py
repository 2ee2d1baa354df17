"""Comments and docstrings name modules and files that exist."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "streamsvm"
MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
FOLDERS = {path.name for path in PACKAGE.rglob("*") if (path / "__init__.py").exists()}
FILES = {path.name for folder in ("streamsvm", "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")}


def list_names(text: str) -> Iterator[str]:
    """Give what looks like a module below a folder of the package, `newton.steps`, or like a file, `hinges.py`."""
    for name in re.findall(r"(?<![\w./`\"'])[a-z_]+(?:\.[a-z_]\w*)+", text):
        if name.endswith(".py") or name.split(".")[0] in FOLDERS:
            yield name


def exists(name: str) -> bool:
    if name.endswith(".py"):
        return name in FILES
    name = name.removeprefix("streamsvm.")
    of_module = name.rpartition(".")[0]  # the last part may be a function of a module
    is_folder = (PACKAGE / name.replace(".", "/")).is_dir()
    return is_folder or any(f".{module}".endswith((f".{name}", f".{of_module}")) for module in MODULES)


def test_names_of_folders_alone_do_not_count() -> None:
    assert exists("newton.steps")
    assert exists("newton.steps.take_step")
    assert not exists("label_newton.nothing")
    assert list(list_names("see newton.steps and hinges.py")) == ["newton.steps", "hinges.py"]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_that_are_named_exist(module: str) -> None:
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or token.string.startswith(('"""', 'r"""')):
            missing = [name for name in list_names(token.string) if not exists(name)]
            assert not missing, f"{module}, line {token.start[0]}"
