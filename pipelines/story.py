"""The common parts of all stories' command lines: arguments, folders, pictures, and error messages."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamsvm.system.errors import InputError


def run_story(name: str, tell: Callable[[], int]) -> int:
    """Return the exit status of a story; an InputError becomes one line on standard error and the status 2."""
    try:
        return tell()
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2


def make_paper_parser(name: str, description: str, small: str) -> argparse.ArgumentParser:
    """Return the parser for a paper's story, with --data, --out and --small."""
    parser = argparse.ArgumentParser(prog=f"python -m pipelines.papers.{name}", description=description)
    add_data_argument(parser)
    add_out_argument(parser)
    parser.add_argument("--small", action="store_true", help=small)
    return parser


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Add --data, whose default is the variable STREAMSVM_DATA."""
    folder = os.environ.get("STREAMSVM_DATA")
    text = "folder that holds the data files, plain or as .xz (default: the variable STREAMSVM_DATA)"
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None, metavar="FOLDER", help=text)


def add_out_argument(parser: argparse.ArgumentParser, kept: str = "the tables and the pictures") -> None:
    """Add --out, the folder for saved results."""
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=f"keep {kept} in this folder")


def add_work_argument(parser: argparse.ArgumentParser) -> None:
    """Add --work, the folder for datasets and runs."""
    text = "keep the datasets in this folder (default: a temporary folder, which is removed at the end)"
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=text)


@contextmanager
def open_work(folder: Path | None) -> Iterator[Path]:
    """Make and yield the folder of --work, or a temporary folder that is removed at the end."""
    if folder is None:
        with TemporaryDirectory() as passing:
            yield Path(passing)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def make_out(folder: Path | None) -> None:
    """Make the folder of --out. Raises InputError if pictures cannot be drawn, before minutes of work."""
    if folder is None:
        return
    if find_spec("matplotlib") is None:
        raise InputError('--out draws pictures with matplotlib: python -m pip install "streamsvm[plots]"')
    folder.mkdir(parents=True, exist_ok=True)


def load_pyplot() -> Any:
    """Return matplotlib's pyplot, with a backend that draws into files."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def save_pictures(plt: Any, folder: Path, figures: Mapping[str, Any], dpi: int = 110) -> None:
    """Write a PNG of each figure under its name. Figures that are None, for lack of results, are left out."""
    for name, figure in figures.items():
        if figure is not None:
            figure.savefig(folder / f"{name}.png", dpi=dpi)
            plt.close(figure)
