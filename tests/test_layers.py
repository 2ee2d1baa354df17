"""Imports go down the list of rooms only, and each large library is known to one room."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsvm.methods.registry import name_methods
from streamsvm.problems.registry import PROBLEMS
from tests.conftest import ROOT, run_python

pytestmark = pytest.mark.once

PACKAGE = ROOT / "streamsvm"

# What a room may import of the package besides itself; from the ground up. A folder of methods/ is a room; so are the
# set-up of all methods, which alone knows data, models and options, and their own options, which import next to
# nothing. Methods do not know each other, but for rankings and Crammer-Singer, which are trained by cutting
# planes, too, and for Crammer-Singer with kernels, which is trained by decomposition.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "deadline": set(),
    "interrupts": set(),
    "urls": set(),
    "shared_setting": set(),
    "shown": set(),
    "npy_header": {"errors"},
    "files": {"errors", "npy_header"},
    "locks": {"errors"},
    "machine": {"errors"},
    "numeric": {"errors", "interrupts", "shared_setting"},
    "requests": {"numeric"},
    "data": {"errors", "files", "interrupts", "locks", "machine", "numeric", "npy_header", "shown", "urls"},
    "problems": {"errors", "numeric", "data", "options"},
    "models": {"errors", "files", "interrupts", "locks", "machine", "numeric", "data", "problems", "shown", "urls"},
    "engines": {"errors", "interrupts", "machine", "numeric", "data", "requests", "shared_setting"},
    "options": {"errors", "numeric", "data"},
    "methods.option_fields": {"errors"},
    "methods.options": {"methods.option_fields"},
}
OF_A_METHOD = {"deadline", "errors", "interrupts", "numeric", "requests"}
NAMES = ("cutting_plane", "decomposition", "interior_point", "budgeted_sgd", "feature_map", "newton", "label_newton")
METHODS = {f"methods.{name}" for name in NAMES}
MAY_IMPORT |= dict.fromkeys(METHODS, OF_A_METHOD)
BY_CUTTING_PLANES = ("methods.ranking", "methods.crammer_singer")
MAY_IMPORT |= {name: {*OF_A_METHOD, "methods.cutting_plane"} for name in BY_CUTTING_PLANES}
BY_DECOMPOSITION = "methods.class_decomposition"
MAY_IMPORT[BY_DECOMPOSITION] = {*OF_A_METHOD, "methods.decomposition"}
MAY_IMPORT["methods.setup"] = {*MAY_IMPORT, "methods"} - {"engines", "files", "npy_header"}
MAY_IMPORT["methods"] = {*MAY_IMPORT} - {"engines", "files", "npy_header"}
MAY_IMPORT["training"] = {*MAY_IMPORT, "version"} - {
    *METHODS,
    *BY_CUTTING_PLANES,
    "methods.class_decomposition",
    "methods.setup",
}
MAY_IMPORT["estimators"] = {*MAY_IMPORT, "version"}
BELOW_FACES = {*MAY_IMPORT, "version"}  # the command line may use all of it

# Where a library may be imported: room or module, and whether within functions only.
LIBRARIES = {
    "zarr": {"data", "models.prediction_files"},
    "dask": {"engines", "data.dask_pieces"},
    "distributed": {"engines", "data.dask_pieces"},
    "numba": {
        "numeric",
        "data.csv_parser",
        "data.svmlight",
        "data.text_numbers",
        "methods.crammer_singer",
        "methods.class_decomposition",
        *METHODS,
    },
    "sklearn": {"estimators", "cli.demo"},
    "pyarrow": {"data"},
    "obstore": {"data"},
    "google_crc32c": {"data"},
    "jinja2": {"cli.pages.page"},
    "onnx": {f"models.exports.onnx_graph.{name}" for name in ("write_onnx", "add", "_add_labels", "_make_file")},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """`streamsvm/data/store.py` is data.store; a package is named by its folder, the whole is the empty name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    if module in ("", "version"):
        return "version"
    first, _, rest = module.partition(".")
    if first == "methods" and "." in rest:
        last = next((name for name in ("setup", "options") if rest.endswith(name)), rest.partition(".")[0])
        return f"methods.{last}"
    return module if module in MAY_IMPORT else first if first in MAY_IMPORT else "faces"


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(place, module) of every import that is carried out; a place is the module, or module.function."""

    def visit(node: ast.AST, place: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            yield from ((place, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            base = str(node.module)
            inside = [f"{base}.{alias.name}" for alias in node.names]
            yield from ((place, name if is_module(name) else base) for name in inside)
        if isinstance(node, ast.FunctionDef):
            place = f"{place}.{node.name}"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, place)

    yield from visit(ast.parse(path.read_text()), name_of(path))


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def own_imports(path: Path) -> set[str]:
    found = {name for _, name in imports(path) if name.partition(".")[0] == "streamsvm"}
    return {name.removeprefix("streamsvm").removeprefix(".") for name in found}


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    """From a room to itself or to one that it may know; what is in no room is a face, which nothing below knows."""
    module = name_of(path)
    room = room_of(module)
    for imported in own_imports(path):
        target = room_of(imported)
        if room == "faces":
            continue
        assert (
            target == room or (module == "" and target == "version") or target in MAY_IMPORT.get(room, BELOW_FACES)
        ), f"{module} ({room}) may not import {imported} ({target})"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_each_library_has_its_room(path: Path) -> None:
    for place, imported in imports(path):
        allowed = LIBRARIES.get(imported.partition(".")[0])
        if allowed is not None:
            assert {room_of(name_of(path)), name_of(path), place} & allowed, f"{place} may not import {imported}"


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    """Imports within functions count, those for type checkers alone do not."""
    module = tmp_path / "module.py"
    module.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import distributed\n"
        "def f():\n    from streamsvm.engines import dask\n    import zarr.codecs\n"
        "class A:\n    def g(self):\n        from streamsvm.training.train import train\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "PACKAGE", tmp_path)
        found = set(imports(module))
    assert found == {
        ("module", "typing"),
        ("module.f", "streamsvm.engines.dask"),
        ("module.f", "zarr.codecs"),
        ("module.g", "streamsvm.training.train"),
    }


def decisions(path: Path) -> Iterator[str]:
    """What is compared with a name, or is asked whether it is of a class, anywhere in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            constants = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
            yield from (str(part.value) for part in constants if isinstance(part, ast.Constant))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            yield from (part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name))


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_problems_and_methods_are_not_told_apart_by_name(path: Path) -> None:
    """Their records say what there is to know; estimators, whose parameters are theirs, know the methods' names."""
    room = room_of(name_of(path))
    found = set(decisions(path))
    if room not in ("problems", "models"):
        assert not found & {*PROBLEMS, "RankModel"}
    if room != "estimators" and not room.startswith("methods."):
        assert not found & {*name_methods()}


def test_the_rooms_exist() -> None:
    names = {name_of(path) for path in modules()}
    assert {*MAY_IMPORT} - {"methods.setup", "methods.options"} <= names


def test_importing_the_package_imports_none_of_the_large_libraries() -> None:
    code = "import json, sys, streamsvm; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    ended = run_python(code)
    assert ended.returncode == 0, ended.stderr
    assert not {*LIBRARIES, "numpy", "scipy", "pandas"} & set(json.loads(ended.stdout))
