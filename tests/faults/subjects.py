"""What the campaign damages: datasets, a run, a model, how they are used, and how they are forged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streamsvm.cli.main import main
from streamsvm.ingestion import write
from streamsvm.ingestion.readers import ingest
from tests.data.forging import FORGERIES, edit_manifest

SUBJECTS = ("dense", "sparse", "features", "run", "model")
Action = Callable[[Path, Path], list[str]]


@dataclass(frozen=True)
class Subject:
    """A folder, commands that use a copy of it (given a folder for what they write), and forgeries of a copy."""

    path: Path
    actions: dict[str, Action]
    forgeries: dict[str, Callable[[Path], Any]] = field(default_factory=dict)


def make_rows() -> csr_array:
    """200 rows of 6 features that three classes can be told by, more or less."""
    random = np.random.default_rng(0)
    X = random.standard_normal((200, 6)) * (random.random((200, 6)) < np.linspace(0.25, 0.75, 200)[:, None])
    X[:, :3] += np.eye(3)[np.arange(200) % 3]
    return csr_array(X.astype(np.float32))


def make_subjects(folder: Path, names: list[str]) -> dict[str, Subject]:
    """Write the subjects; datasets in small chunks and smaller parts."""
    folder.mkdir()
    kept = write.PART_BYTES, write.VECTOR_PART_BYTES, write.TABLE_BYTES
    write.PART_BYTES = write.VECTOR_PART_BYTES = write.TABLE_BYTES = 96
    try:
        number = np.arange(200)
        for layout in ("dense", "sparse"):
            weight, qid = 1 + number % 5 / 7, number // 9
            ingest(
                make_rows(),
                folder / f"{layout}.zarr",
                number % 3,
                sample_weight=weight,
                qid=qid,
                layout=layout,
                chunk_bytes=960,
                scale="maxabs",
            )
        _run("features", folder / "dense.zarr", folder / "features.zarr", "--rank", 5, "--chunk-bytes", 960)
    finally:
        write.PART_BYTES, write.VECTOR_PART_BYTES, write.TABLE_BYTES = kept
    for name in ("dense", "features"):
        _run("train", folder / f"{name}.zarr", "--out", folder / f"of {name}", "--threads", 1)
    limits = "--threads", 1, "--tol", 1e-6, "--max-passes"
    _run("train", folder / "sparse.zarr", "--out", folder / "run", *limits, 2)
    (folder / "model").mkdir()
    (folder / "of dense" / "model.npz").rename(folder / "model" / "model.npz")
    made = {name: _dataset(folder, name) for name in ("dense", "sparse", "features") if name in names}
    if "run" in names:
        resume: Action = lambda copy, _: _words(  # noqa: E731
            "train", folder / "sparse.zarr", "--out", copy, *limits, 12, "--resume", "--json"
        )
        made["run"] = Subject(folder / "run", {"resume": resume}, FORGED_RUNS)
    if "model" in names:
        predict: Action = lambda copy, work: _words(  # noqa: E731
            "predict", copy / "model.npz", folder / "dense.zarr", "--out", work / "out.csv"
        )
        made["model"] = Subject(folder / "model", {"predict": predict}, FORGED_MODELS)
    return made


def _dataset(folder: Path, name: str) -> Subject:
    model = folder / "model" / "model.npz" if name != "features" else folder / "of features" / "model.npz"
    smo = _words("--solver", "smo", "--kernel", "rbf", "--class-weight", "balanced", "--threads", 1, "--json")
    actions: dict[str, Action] = {
        "verify": lambda copy, _: _words("info", copy, "--verify", "--json"),
        "train": lambda copy, work: _words("train", copy, "--out", work / "run", "--threads", 1, "--json"),
        "train smo": lambda copy, work: _words("train", copy, "--out", work / "run", *smo),
        "predict": lambda copy, work: _words("predict", model, copy, "--out", work / "out.csv"),
    }
    return Subject(folder / f"{name}.zarr", actions, FORGERIES[name])


def _words(*words: object) -> list[str]:
    return [str(word) for word in words]


def _run(*words: object) -> None:
    status = main(_words(*words))
    assert status in (0, 3), (words, status)


def _change_arrays(file: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    """A forgery: other arrays in an .npz file."""

    def forge(copy: Path) -> None:
        with np.load(copy / file) as archive:
            arrays = dict(archive)
        change(arrays)
        np.savez(copy / file, **arrays)

    return forge


FORGED_MODELS = {
    "coefficients that are NaN": _change_arrays("model.npz", lambda a: a["coef"].__setitem__((0, 0), np.nan)),
    "infinite coefficients": _change_arrays("model.npz", lambda a: a["coef"].__setitem__((0, 0), np.inf)),
    "fewer coefficients": _change_arrays("model.npz", lambda a: a.update(coef=a["coef"][:, :-1])),
    "coefficients in three dimensions": _change_arrays("model.npz", lambda a: a.update(coef=a["coef"][None])),
    "texts for coefficients": _change_arrays("model.npz", lambda a: a.update(coef=a["coef"].astype(str))),
    "fewer classes": _change_arrays("model.npz", lambda a: a.update(classes=a["classes"][:-1])),
    "a factor of zero": _change_arrays("model.npz", lambda a: a["factor"].__setitem__(0, 0.0)),
    "a short scaling": _change_arrays("model.npz", lambda a: a.update(factor=a["factor"][:-1])),
    "no classes": _change_arrays("model.npz", lambda a: a.pop("classes")),
    "no JSON": _change_arrays("model.npz", lambda a: a.update(about="{")),
}
FORGED_RUNS = {
    "a checkpoint without an array": _change_arrays("checkpoint.npz", lambda a: a.pop(sorted(a)[0])),
    "a checkpoint of no JSON": _change_arrays("checkpoint.npz", lambda a: a.update(run="{")),
    "a checkpoint of an empty run": _change_arrays("checkpoint.npz", lambda a: a.update(run="{}")),
    "a checkpoint of other shapes": _change_arrays(
        "checkpoint.npz", lambda a: a.update({name: v[..., :-1] for name, v in a.items() if v.ndim})
    ),
    "a checkpoint of NaN": _change_arrays(
        "checkpoint.npz", lambda a: a.update({n: v * np.nan for n, v in a.items() if v.ndim and v.dtype.kind == "f"})
    ),
}


def swap_labels(copy: Path) -> None:
    """Call the classes otherwise: a dataset as good as any, of which another model is learnt."""
    edit_manifest(copy, lambda meta: meta.update(classes=[7, 8, 9]))
