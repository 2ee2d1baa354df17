"""Imports go down the list of folders only, and each large library is known to one of them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsvm.problems.registry import PROBLEMS
from streamsvm.solvers.registry import name_solvers
from tests.conftest import ROOT, run_python

PACKAGE = ROOT / "streamsvm"

# The folders from the ground up. A folder may import those above it in this list, itself, and those of its own line.
LAYERS = (
    "system",
    "numeric",
    "passes kernels losses",
    "certificates",
    "data.rows data.remote",
    "data.tables",
    "data.store",
    "data.sources",
    "data",
    "options",
    "engines engines.cluster",
    "ingestion",
    "problems",
    "models",
    "models.exports",
    "solvers.common",
    "solvers.cutting_plane solvers.decomposition solvers.interior_point solvers.budgeted_sgd "
    "solvers.feature_map solvers.newton solvers.label_newton",
    "solvers.one_class solvers.one_read solvers.ranking solvers.crammer_singer solvers.softmax",
    "solvers.many",
    "solvers.setup",
    "solvers",
    "verify",
    "runs",
    "plan",
    "estimators",
    "cli cli.reports",
)
SOLVERS = {name for name in " ".join(LAYERS).split() if name.startswith("solvers.")}
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names.split()}
OF_SOLVERS = ("solvers.solver", "solvers.options")  # what the folders of all solvers share
# A solver never reads data: it yields passes. Its set-up, which makes the model, knows data and models.
OF_A_SOLVER = {"system", "numeric", "passes", "kernels", "losses", "certificates"}
BESIDE = {
    "solvers.one_read": {"solvers.cutting_plane"},
    "solvers.one_class": {"solvers.cutting_plane"},
    "solvers.newton": {"solvers.cutting_plane"},
    "solvers.ranking": {"solvers.cutting_plane"},
    "solvers.softmax": {"solvers.cutting_plane"},
    "solvers.crammer_singer": {"solvers.cutting_plane", "solvers.decomposition"},
}
BY_NAME = {("data.store", "data")}  # a dataset that was pickled is opened again where it is used

# Where a library may be imported: room or module, and whether within functions only.
LIBRARIES = {
    "zarr": {"data.remote", "data.store", "data.sources", "ingestion", "models.predict"},
    "dask": {"engines", "engines.cluster", "data.sources.dask_collections"},
    "distributed": {"engines", "engines.cluster", "data.sources.dask_collections"},
    "numba": {"numeric", "kernels", "losses", "certificates", "data.sources", *SOLVERS},
    "sklearn": {"estimators", "cli.demo"},
    "pyarrow": {"data.sources", "data.tables", "ingestion"},
    "obstore": {"data.remote", "data.store", "ingestion"},
    "google_crc32c": {"data.store", "ingestion"},
    "jinja2": {"cli.output.find_template"},
    "onnx": {f"models.exports.onnx_graph.{name}" for name in ("write_onnx", "add", "_add_labels", "_make_file")},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """`streamsvm/data/store.py` is data.store; a package is named by its folder, the whole is the empty name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Return the folder of a module; set-ups of solvers, and what all solvers share, are folders of their own."""
    if module in OF_SOLVERS:
        return "solvers.common"
    if module.startswith("solvers.") and module.endswith("setup"):
        return "solvers.setup"
    folder = module if module in RANKS else module.rpartition(".")[0]
    return folder if folder in RANKS else "top"


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


def may_import(room: str, target: str) -> bool:
    """Tell whether a folder may import another one."""
    if room in SOLVERS - {"solvers.many", "solvers.setup", "solvers.common"}:
        return target in OF_A_SOLVER | BESIDE.get(room, set())
    return RANKS[target] <= RANKS[room] or (room, target) in BY_NAME


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    module = name_of(path)
    room = room_of(module)
    for imported in own_imports(path):
        target = room_of(imported)
        if room != "top" and imported and target != room:
            assert target != "top", f"{module} ({room}) may not import {imported}"
            assert may_import(room, target), f"{module} ({room}) may not import {imported} ({target})"


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
        "def f():\n    from streamsvm.engines import local\n    import zarr.codecs\n"
        "class A:\n    def g(self):\n        from streamsvm.runs.train import train\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "PACKAGE", tmp_path)
        found = set(imports(module))
    assert found == {
        ("module", "typing"),
        ("module.f", "streamsvm.engines.local"),
        ("module.f", "zarr.codecs"),
        ("module.g", "streamsvm.runs.train"),
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
    if room not in ("problems", "models", "models.exports"):
        assert not found & {*PROBLEMS, "RankModel"}
    if room != "estimators" and not room.startswith("solvers"):
        assert not found & {*name_solvers()}


def test_the_folders_exist() -> None:
    assert {*RANKS} - {"solvers.setup", "solvers.common"} <= {name_of(path) for path in modules()}


def test_importing_the_package_imports_none_of_the_large_libraries() -> None:
    code = "import json, sys, streamsvm; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    ended = run_python(code)
    assert ended.returncode == 0, ended.stderr
    assert not {*LIBRARIES, "numpy", "scipy", "pandas"} & set(json.loads(ended.stdout))
