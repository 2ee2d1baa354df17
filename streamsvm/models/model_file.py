"""The file of a model: where it is, and what it tells of the model, checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamsvm.data.formats import is_table
from streamsvm.errors import InputError
from streamsvm.files import unpack_arrays
from streamsvm.models.saved_model import ENCODED_FORMAT, FORMAT
from streamsvm.numeric import saved_parts as saved
from streamsvm.numeric.encoding import read_encoding
from streamsvm.numeric.feature_maps import Features, unpack_features
from streamsvm.problems.problem import Problem
from streamsvm.problems.registry import PROBLEMS, find_problem
from streamsvm.urls import is_remote


def unpack_model(path: str | Path) -> tuple[dict[str, Any], str | Path]:
    """Return the contents of the file of a model, or of that in a run's folder, and its name; see `load`."""
    if is_remote(path):
        from streamsvm.data.remote_files import copied

        url = str(path) if str(path).endswith(".npz") else f"{str(path).rstrip('/')}/model.npz"
        try:
            with copied(url) as copy:
                return unpack_arrays(copy, url), url
        except OSError as error:
            raise InputError(f"{url}: {error.strerror or error}") from error
    file = Path(path)
    if (file / "zarr.json").is_file() or (file.is_file() and is_table(file)):
        raise InputError(f"{file}: holds rows, and is no model: name the model first, and then the rows")
    if file.is_dir():
        file = file / "model.npz"
    return unpack_arrays(file), file


def read_about(arrays: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return what a file tells of its model, and the kind of the model. ValueError for another format."""
    about = json.loads(str(saved.read_part(arrays, "about")))
    if not isinstance(about, dict) or about.get("format") not in (FORMAT, ENCODED_FORMAT):
        found = about.get("format") if isinstance(about, dict) else about
        raise ValueError(
            f"model format {str(found)[:40]}; this version of streamsvm reads {FORMAT} and {ENCODED_FORMAT}"
        )
    kind = saved.read_part(about, "kind")
    if kind not in ("linear", "rank", "kernel"):
        raise ValueError(f"kind is {str(kind)[:40]!r}; linear, rank or kernel is expected")
    return about, kind


def check_encoding(about: dict[str, Any], info: dict[str, Any], n_features: int) -> None:
    """Raise ValueError unless the encoding of a saved model, if it has one, makes so many features."""
    if ("encoding" in info) != (about["format"] == ENCODED_FORMAT):
        raise ValueError(f"model format {about['format']} is not that of its encoding")
    if "encoding" in info and read_encoding(info["encoding"]).n_features != n_features:
        raise ValueError("encoding: it makes another number of features than the model takes")


def find_saved_problem(kind: str, info: dict[str, Any], default_task: str) -> Problem:
    """Return the problem of a saved model; ValueError for one that is unknown, or has no such models."""
    task = info.get("task", default_task)
    if task not in PROBLEMS or kind not in find_problem(task).models:
        raise ValueError(f"a model of the kind {kind} for the task {str(task)[:40]!r}")
    if "loss" in info and info["loss"] not in list(PROBLEMS[task].losses):
        raise ValueError(f"a model of the task {task} with the loss {str(info['loss'])[:40]!r}")
    return find_problem(task)


def read_features(arrays: dict[str, Any], about: dict[str, Any] | None) -> Features | None:
    """Return the map that `pack_features` packed, or None."""
    prefix = "features_"
    parts = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
    return None if about is None else unpack_features(about, parts)
