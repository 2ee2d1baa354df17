"""Runs that keep their dual points, for the tests of what these prove."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.system.npz import pack_arrays, unpack_arrays
from streamsvm.verify.dual_file import NAME
from streamsvm.verify.verify import Verification, verify
from tests.conftest import Problem

BLOCK_ASCENT: dict[str, Any] = {"options": {"acceleration": "block-ascent"}}
ONE_READ: dict[str, Any] = {"options": {"acceleration": "one-read"}, "resident_rows": 60, "tol": 1e-6}
LINE_SEARCH: dict[str, Any] = {"options": {"acceleration": "line-search", "intercept_scaling": "2"}}
PLAIN: dict[str, Any] = {"options": {"acceleration": "none"}, "tol": 0.02}
INTERIOR: dict[str, Any] = {"solver": "interior-point"}
SOLVERS = {
    "one-read": ONE_READ,
    "block-ascent": BLOCK_ASCENT,
    "line-search": LINE_SEARCH,
    "none": PLAIN,
    "interior-point": INTERIOR,
}


@dataclass(frozen=True)
class Kept:
    """A run that kept its dual point, and its rows."""

    problem: Problem
    data: Dataset
    options: TrainOptions
    folder: Path
    result: Result

    def verify(self) -> Verification:
        """Verify the model that was saved."""
        return verify(load(self.folder), self.data, True, threads=1, dual_file=self.folder / NAME)

    def arrays(self) -> dict[str, Any]:
        """What the file holds."""
        return unpack_arrays(self.folder / NAME)

    def forge(self, **changes: Any) -> None:
        """Write the file with other arrays of the first problem."""
        arrays = self.arrays() | {f"0/{name}": value for name, value in changes.items()}
        (self.folder / NAME).write_bytes(pack_arrays(arrays))


def keep(problem: Problem, folder: Path, **settings: Any) -> Kept:
    folder.mkdir(exist_ok=True)
    data = problem.store(folder / "rows.zarr", chunk_bytes=2000)
    options = TrainOptions(threads=1, **settings)
    return Kept(problem, data, options, folder / "run", train(data, options, folder / "run", keep_dual=True))
