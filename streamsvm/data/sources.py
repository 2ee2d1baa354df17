"""The files that a user names: single files, patterns such as data/*.csv, and folders of files."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from streamsvm.data.formats import SAFETENSORS_INDEX, has_known_ending
from streamsvm.errors import InputError
from streamsvm.urls import is_remote

ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")  # one of these is in every folder of Zarr


def list_files(sources: Sequence[str | Path]) -> list[str | Path]:
    """Return the files that are named, those of a pattern and of a folder sorted by their names.

    Raises InputError for a pattern that no file matches, and for a folder that is a dataset or has no files of rows.
    """
    found: list[str | Path] = []
    for source in sources:
        if is_remote(source) or str(source) == "-":
            found.append(source)
        elif Path(source).is_dir():
            found += _list_folder(Path(source))
        elif glob.has_magic(str(source)) and not Path(source).exists():
            matching = sorted(path for path in glob.glob(str(source), recursive=True) if Path(path).is_file())
            if not matching:
                raise InputError(f"{source}: no file matches")
            found += matching
        else:
            found.append(source)
    return found


def is_folder_of_files(path: str | Path) -> bool:
    """Tell whether a path is a folder with files of rows, and no dataset."""
    folder = Path(path)
    return folder.is_dir() and not any((folder / name).exists() for name in ZARR_FILES) and bool(_find_files(folder))


def _list_folder(folder: Path) -> list[str | Path]:
    if any((folder / name).exists() for name in ZARR_FILES):
        raise InputError(
            f"{folder}: is a dataset already; use it as it is (for instance by `streamsvm train`), or ingest the "
            "files that it was made of"
        )
    files = sorted(folder.glob(f"*{SAFETENSORS_INDEX}")) or _find_files(folder)
    if not files:
        raise InputError(
            f"{folder}: is a folder without files of rows, by their endings; name the files in it, or give a pattern "
            "such as 'folder/**/*.parquet'"
        )
    return list(files)


def _find_files(folder: Path) -> list[Path]:
    """Return the files in a folder whose endings are known, without hidden ones and the marks that programs leave."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and has_known_ending(path)]
    return [path for path in files if path.name[0] not in "._"]
