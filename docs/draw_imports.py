"""Draws which parts of the package import which, with matplotlib; prints how many there are.

    python docs/draw_imports.py [PACKAGE] [--out docs/imports.svg]

A part is a folder of the package, of data/ or of solvers/, or a module that lies in no folder. The set-ups of solvers
are a part, because they alone know data and models, and so are the modules that the folders of all solvers share. A
part stands one layer above the highest part that it imports; an arrow within a layer, or upwards, is red. An import is
not drawn where others lead to the same part, nor where it is for type checkers only.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

Arrows = dict[str, set[str]]
COMMON = ("solver", "options")  # modules of solvers/ that its folders import
BY_NAME = ("data/store", "data")  # a dataset that was pickled is opened again where it is used


def name_part(module: Path) -> str:
    """Return the part that a module, by its path within the package, belongs to."""
    folders = module.parts[:-1]
    if not folders:
        return module.stem
    if folders[0] == "solvers" and module.stem.endswith("setup"):
        return "solvers/*/setup"
    if folders == ("solvers",) and module.stem in COMMON:
        return "solvers/common"
    return "/".join(folders) if folders[0] in ("data", "solvers") else folders[0]


def list_imports(package: Path, path: Path) -> Iterator[Path]:
    """Give the modules of the package that a module imports, by their paths within it."""
    tree = ast.parse(path.read_text())
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == package.name and rest and package.joinpath(*rest).with_suffix(".py").exists():
                yield Path(*rest).with_suffix(".py")


def find_arrows(package: Path) -> Arrows:
    """Return for each part those that it imports."""
    arrows: Arrows = defaultdict(set)
    for path in sorted(package.rglob("*.py")):
        own = name_part(path.relative_to(package))
        if own.endswith(("__init__", "__main__")):
            continue
        arrows[own] |= {name_part(other) for other in list_imports(package, path)} - {own}
    arrows[BY_NAME[0]].discard(BY_NAME[1])
    return dict(arrows)


def find_layers(arrows: Arrows) -> dict[str, int]:
    """Return the layer of each part, 0 at the bottom."""
    layers: dict[str, int] = {}

    def place(part: str, above: tuple[str, ...]) -> int:
        if part not in layers:
            below = [place(other, (*above, part)) for other in sorted(arrows[part]) if other not in (*above, part)]
            layers[part] = 1 + max(below, default=-1)
        return layers[part]

    for part in sorted(arrows):
        place(part, ())
    return layers


def reduce_arrows(arrows: Arrows) -> Arrows:
    """Return the arrows without those to parts that are reached over another part as well."""

    def reach(part: str, seen: set[str]) -> set[str]:
        for other in arrows[part] - seen:
            seen.add(other)
            reach(other, seen)
        return seen

    return {
        part: {other for other in others if not any(other in reach(third, set()) for third in others - {other})}
        for part, others in arrows.items()
    }


def draw(arrows: Arrows, layers: dict[str, int], out: Path) -> None:
    """Draw the highest layer at the top, an arrow from each part to those that it imports, if no other leads there."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "streamsvm"  # so that equal pictures are equal files
    rows: dict[int, list[str]] = defaultdict(list)
    for part in sorted(layers):
        rows[layers[part]].append(part)
    places = {part: (k - (len(parts) - 1) / 2, layer) for layer, parts in rows.items() for k, part in enumerate(parts)}
    figure = Figure(figsize=(2.1 * max(map(len, rows.values())), 0.8 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for part, others in sorted(reduce_arrows(arrows).items()):
        for other in sorted(others):
            colour = "#c0392b" if layers[other] >= layers[part] else "#9aa5b1"
            drawn = {"arrowstyle": "-|>", "color": colour, "linewidth": 0.6, "shrinkA": 9, "shrinkB": 9}
            axes.annotate("", places[other], places[part], arrowprops=drawn)
    for part, place in places.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": "#e8f0fa" if "/" in part else "white", "edgecolor": "#34495e"}
        axes.annotate(part, place, ha="center", va="center", fontsize=9, bbox=box)
    most = max(abs(x) for x, _ in places.values())
    axes.set(xlim=(-most - 0.7, most + 0.7), ylim=(-0.6, max(layers.values()) + 0.6))
    axes.set_axis_off()
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def main() -> None:
    """Draw, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, nargs="?", default=Path(__file__).resolve().parents[1] / "streamsvm")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    arrows = find_arrows(options.package)
    layers = find_layers(arrows)
    loose = [part for part in arrows if (options.package / f"{part}.py").exists()]
    up = [(part, other) for part in arrows for other in arrows[part] if layers[other] >= layers[part]]
    print(
        f"{len(arrows) - len(loose)} folders and {len(loose)} loose modules, {max(layers.values()) + 1} layers, "
        f"{sum(map(len, arrows.values()))} arrows, {len(up)} of them up: {up}"
    )
    if options.out:
        draw(arrows, layers, options.out)


if __name__ == "__main__":
    main()
