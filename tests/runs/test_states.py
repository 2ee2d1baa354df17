"""Checkpoints that hold what no run of theirs could have written: refused by name, before a solver sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from streamsvm.system.npz import unpack_arrays, write_arrays
from tests.conftest import make_problem

N, D = 120, 6
SOLVERS: dict[str, dict[str, Any]] = {
    "line search": {"options": {"acceleration": "line-search"}},
    "one read": {"resident_rows": 60},
    "block ascent": {"wide": True},
    "interior point": {"solver": "interior-point"},
    "smo": {"solver": "smo", "kernel": "rbf", "gamma": 0.5, "resident_rows": 30},
    "one class": {"task": "one-class", "C": 1.0, "kernel": "rbf", "gamma": 0.5, "nu": 0.4, "resident_rows": 30},
    "budgeted": {"solver": "budgeted-sgd", "kernel": "rbf", "gamma": 0.5, "options": {"budget": "10", "epochs": "4"}},
    "ranking": {"task": "rank"},
    "three classes": {"options": {"acceleration": "line-search"}, "classes": 3},
}


def start_run(name: str, folder: Path) -> tuple[Dataset, TrainOptions, Path]:
    """A run that was stopped by a limit after two passes or three."""
    given = dict(SOLVERS[name])
    wide, classes = given.pop("wide", False), given.pop("classes", 2)
    problem = make_problem(1, N, 2500 if wide else D, density=0.01 if wide else 1.0)
    y = np.arange(N) % 3 if classes == 3 else problem.y
    dataset = ingest(problem.X, folder / "rows.zarr", y, shuffle=None)
    options = TrainOptions(**{"C": 0.5, "threads": 1, "tol": 1e-9, "max_passes": 2, **given})
    train(dataset, options, out=folder / "run")
    return dataset, options, folder / "run" / "checkpoint.npz"


def as_text(array: Any) -> Any:
    return np.asarray(array).astype(str) if array.dtype.names is None else np.zeros(array.shape)


def with_nan(array: Any) -> Any:
    found = np.array(array)
    for part in found.dtype.names or ("",):
        values = found[part] if part else found
        if values.dtype.kind == "f" and values.size:
            values[(0,) * values.ndim] = np.nan
            return found
    return None


CHANGES: dict[str, Callable[[Any], Any]] = {
    "another type": as_text,
    "single precision": lambda array: array.astype(np.float32) if array.dtype == np.float64 else None,
    "a dimension more": lambda array: array[None],
    "longer": lambda array: np.concatenate((array, array[:1])) if array.ndim and len(array) else None,
    "shorter": lambda array: array[:-1] if array.ndim and len(array) else None,
    "narrower": lambda array: array[:, :-1] if array.ndim == 2 and array.shape[1] else None,
    "not a number": with_nan,
}
# The length of each is its own: no other array tells of it.
ANY_LENGTH = {("one read", "points"), ("ranking", "points"), ("block ascent", "resident")}


def list_damages(name: str, sound: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of each array of a checkpoint with each change that it must not survive."""
    for part, array in sound.items():
        for what, change in CHANGES.items():
            damaged, own = change(array), part.rpartition("/")[2]
            any_length = what in ("longer", "shorter") and (name, own) in ANY_LENGTH
            unknown_bound = what == "not a number" and own == "lower_bounds"  # so it is where there is none
            same = damaged is None or (what == "another type" and array.dtype.kind == "U")
            if not (same or any_length or unknown_bound):
                yield part, what, damaged


@pytest.mark.parametrize("name", SOLVERS)
def test_no_array_of_a_checkpoint_is_believed(name: str, thorough: bool, tmp_path: Path) -> None:
    dataset, options, path = start_run(name, tmp_path)
    sound = unpack_arrays(path)
    cases = list(list_damages(name, sound))
    assert len(cases) > 10
    for part, what, damaged in cases if thorough else cases[::3]:
        write_arrays(path, sound | {part: damaged})
        with pytest.raises(InputError, match=r"checkpoint\.npz: damaged, or not of this run") as caught:
            train(dataset, options, out=tmp_path / "run", resume=True)
        assert caught.value.__cause__ is not None, (part, what)
    write_arrays(path, sound)
    assert train(dataset, options, out=tmp_path / "run", resume=True).passes >= 1


@pytest.mark.parametrize("rows", [-1, N, 2**40])
def test_numbers_of_rows_are_those_of_the_data(rows: int, tmp_path: Path) -> None:
    dataset, options, path = start_run("one read", tmp_path)
    arrays = unpack_arrays(path)
    name = next(name for name in arrays if name.endswith("resident"))
    write_arrays(path, arrays | {name: np.full_like(arrays[name], rows)})
    with pytest.raises(InputError, match=f"resident holds numbers of rows that are not from 0 to {N - 1}"):
        train(dataset, options, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("counts", [-1, 17, 10**6])
def test_a_budgeted_model_has_no_more_vectors_than_room(counts: int, tmp_path: Path) -> None:
    dataset, options, path = start_run("budgeted", tmp_path)
    arrays = unpack_arrays(path)
    arrays["models"]["counts"][:, 0] = counts
    write_arrays(path, arrays)
    with pytest.raises(InputError, match=r"models have .* support vectors"):
        train(dataset, options, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    "run",
    [
        "[]",
        "{",
        '{"status": 3, "seconds": 1, "steps": 1}',
        '{"status": "", "seconds": NaN, "steps": 1}',
        '{"status": "", "seconds": 1, "steps": -2}',
        '{"status": "", "seconds": 1}',
        "[" * 10_000,
    ],
)
def test_what_is_told_of_the_run_is_checked(run: str, tmp_path: Path) -> None:
    dataset, options, path = start_run("line search", tmp_path)
    write_arrays(path, unpack_arrays(path) | {"run": run})
    with pytest.raises(InputError, match=r"checkpoint\.npz: damaged, or not of this run"):
        train(dataset, options, out=tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "settings.json").read_text())
