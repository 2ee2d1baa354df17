"""Print the size of the package and of the tests, by folder.

    python .ci/house.py [ROOT]

Lines of code are lines that hold a token of the program: docstrings, comments and blank lines do not count. A file has
a single importer if exactly one other file of the package imports it.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count_lines(text: str) -> int:
    """Return the lines of code of a file."""
    documented = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {k for token in tokens if token.type not in SKIPPED for k in range(token.start[0], token.end[0] + 1)}
    return len(lines - documented)


def list_imports(path: Path) -> set[str]:
    """Return the modules that a file imports, and the imported names that may be modules."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def count_importers(root: Path, paths: list[Path]) -> Counter[str]:
    """Return the number of files that import each module."""
    names = {path: ".".join(path.relative_to(root).with_suffix("").parts) for path in paths}
    return Counter(name for path in paths for name in list_imports(path) & {*names.values()} - {names[path]})


def print_table(root: Path, package: str) -> None:
    """Print the table of a package."""
    paths = sorted((root / package).rglob("*.py"))
    single = sum(count == 1 for count in count_importers(root, paths).values())
    folders = defaultdict[str, list[tuple[int, int]]](list)
    for path in paths:
        text = path.read_text()
        folders[str(path.parent.relative_to(root))].append((count_lines(text), text.count("\n")))
    print(f"\n| {package} | lines of code | files | largest file |\n|---|---:|---:|---:|")
    for name, files in sorted(folders.items()):
        print(f"| {name} | {sum(code for code, _ in files):,} | {len(files)} | {max(length for _, length in files)} |")
    code = sum(count for files in folders.values() for count, _ in files)
    print(f"| all | {code:,} | {len(paths)} in {len(folders)} folders | {single} files with a single importer |")


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    print_table(root, "streamsvm")
    print_table(root, "tests")
