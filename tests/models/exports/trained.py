"""Models that the commands train and export, and rows that they have not seen, to compare scores with others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from streamsvm import ingest
from streamsvm.cli.main import main
from streamsvm.models.model import KernelModel, Model
from streamsvm.numeric.rows import CsrRows, Matrix

F64 = npt.NDArray[np.float64]
LABELS = {2: [-3, 7], 4: [1, 2, 5, 9], 0: []}


@dataclass(frozen=True)
class Task:
    """Rows with labels, and others without. scale: of the training rows. n_classes: 0 for a regression."""

    n_classes: int = 2
    sparse: bool = False
    scale: str = "none"

    def make(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[np.float32]]:
        """200 rows of 6 features of different sizes with their labels, and 40 held-out rows."""
        random = np.random.default_rng(self.n_classes)
        X = random.normal(size=(240, 6)) * (random.random((240, 6)) < (0.4 if self.sparse else 1.0))
        values = X @ random.normal(size=(6, max(self.n_classes, 1))) + 0.3 * random.normal(size=(240, 1))
        rows = (X * [1, 2, 5, 0.5, 1, 3] + (0 if self.sparse else 1.5)).astype(np.float32)
        if not self.n_classes:
            return rows[:200], values[:200, 0], rows[200:]
        codes = np.argmax(values, axis=1) if self.n_classes > 2 else (values[:, 0] > 0.2).astype(int)
        return rows[:200], np.array(LABELS[self.n_classes])[codes[:200]], rows[200:]


def train(task: Task, folder: Path, *options: str) -> Path:
    """The folder of a run on the rows of a task."""
    X, y, _ = task.make()
    rows: Any = csr_matrix(X) if task.sparse else X
    ingest(rows, folder / "rows.zarr", y, scale=task.scale, regression=not task.n_classes)
    assert main(["train", str(folder / "rows.zarr"), "--out", str(folder / "run"), *options]) == 0
    return folder / "run"


def score(model: Model, task: Task) -> F64:
    """The scores of held-out rows, (n, k): those of all pairs, if the model has them."""
    X = task.make()[2]
    found = csr_matrix(X)
    rows: Matrix = CsrRows(found.data, found.indices, found.indptr.astype(np.int64), 6) if task.sparse else X
    if isinstance(model, KernelModel) and model.n_support is not None:
        model = model.list_pairs()
    return model.decide(rows).reshape(len(X), -1)


def as_others_take(task: Task) -> Any:
    """The held-out rows in float64, as LIBLINEAR and LIBSVM take them."""
    X = task.make()[2].astype(np.float64)
    return csr_matrix(X) if task.sparse else X


def export(run: Path, to: str, *options: str) -> Path:
    """The file of an exported model."""
    out = run.parent / f"exported.{to}"
    assert main(["export", str(run), "--to", to, "--out", str(out), *options]) == 0
    return out


def compare(found: Any, expected: F64, task: Task) -> None:
    """Compare scores of held-out rows to 1e-6.

    Where rows are scaled for a kernel, streamsvm rounds the scaled rows to float32, and others do not: then scores near
    0 differ by more than 1e-6 of themselves, but not of the largest score.
    """
    rounding = 1e-9 if task.scale == "none" else 1e-7 * float(np.max(np.abs(expected)))
    np.testing.assert_allclose(np.array(found).reshape(expected.shape), expected, rtol=1e-6, atol=rounding)
