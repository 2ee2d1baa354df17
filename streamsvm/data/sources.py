"""The files that a user names: single files, patterns such as data/*.csv, and folders of files."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from streamsvm.data.folders import is_column
from streamsvm.data.formats import SAFETENSORS_INDEX, has_known_ending
from streamsvm.data.remote_files import quote_folder
from streamsvm.data.remote_folder import RemoteFolder
from streamsvm.errors import InputError
from streamsvm.urls import is_remote

IN_FOLDERS = r"([^/=]+=[^/]*/)*[^/]+"  # files in a folder of a store, and in its folders COLUMN=VALUE
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")  # one of these is in every folder of Zarr


def list_files(sources: Sequence[str | Path]) -> list[str | Path]:
    """Return the files that are named, those of a pattern and of a folder sorted by their names.

    Raises InputError for a pattern that no file matches, and for a folder that is a dataset or has no files of rows.
    """
    found: list[str | Path] = []
    for source in sources:
        if is_remote(source) and (str(source).endswith("/") or "*" in str(source)):
            found += _list_objects(str(source))
        elif is_remote(source) or str(source) == "-":
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
    """Return the files in a folder, and in its folders COLUMN=VALUE, whose endings are known.

    Hidden files and the marks that programs leave are left out.
    """
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name[0] not in "._" and path.is_dir() and is_column(path.name):
            found += _find_files(path)
        elif _is_file_of_rows(path.name) and path.is_file():
            found.append(path)
    return found


def _is_file_of_rows(name: str) -> bool:
    return name[0] not in "._" and has_known_ending(name)


def _list_objects(url: str) -> list[str | Path]:
    """Return the objects that match a pattern, or lie in a folder and its folders COLUMN=VALUE, sorted."""
    base = url.partition("*")[0].rpartition("/")[0]
    steps = {"**/": "(.*/)?", "*": "[^/]*"}
    given = "".join(steps.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*)", url[len(base) + 1 :]))
    names = [name for name in RemoteFolder(quote_folder(base)).list_names() if re.fullmatch(given or IN_FOLDERS, name)]
    found: list[str | Path] = [
        f"{base}/{name}" for name in sorted(names) if given or _is_file_of_rows(name.rpartition("/")[2])
    ]
    if not found:
        raise InputError(f"{url}: no file matches" if given else f"{url}: no files of rows, by their endings")
    return found
