"""`verify` of kernel models whose support vectors are sparse where the rows are stored dense, and the other way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.kernels import layouts as compact
from streamsvm.models.model import load
from streamsvm.numeric.rows import CsrRows
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.verify.verify import verify
from tests.conftest import make_problem

PROBLEM = make_problem(3, n=80, d=6, density=0.4)
X, CODES = PROBLEM.dense().astype(np.float32), np.arange(80) % 3
KERNEL: dict[str, Any] = {"kernel": "rbf", "gamma": 0.3, "threads": 1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: ("labels", {"solver": "smo", "kernel": name, "gamma": 0.3, "threads": 1})
        for name in ("linear", "rbf", "poly", "sigmoid")
    },
    "one against the rest": ("classes", {"solver": "smo", **KERNEL}),
    "one against one": ("classes", {"solver": "smo", "multi_class": "ovo", **KERNEL}),
    "Crammer-Singer": ("classes", {"task": "crammer-singer", "solver": "smo", **KERNEL}),
    "budgeted": ("labels", {"solver": "budgeted-sgd", "options": {"budget": "20"}, **KERNEL}),
    "regression": ("targets", {"task": "regress", "solver": "smo", **KERNEL}),
    "one class": ("none", {"task": "one-class", "solver": "smo", "nu": 0.3, **KERNEL}),
    "nu-SVC": ("labels", {"task": "nu-classify", "solver": "smo", "nu": 0.3, **KERNEL}),
    "nu-SVR": ("targets", {"task": "nu-regress", "solver": "smo", "nu": 0.3, **KERNEL}),
}
WITHOUT_DUAL = ("budgeted", "regression", "nu-SVR")


def open_rows(kind: str, is_sparse: bool) -> ArrayDataset:
    rows: Any = csr_array(X) if is_sparse else X
    if kind == "targets":
        return ArrayDataset(rows, None, None, target=X @ np.arange(6.0))
    if kind == "none":
        return ArrayDataset(rows, None, None)
    codes = CODES if kind == "classes" else (PROBLEM.y > 0) * 1
    return ArrayDataset(rows, codes.astype(np.int32), np.unique(codes))


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_either_layout_verify_a_model(name: str, is_sparse: bool, tmp_path: Path) -> None:
    kind, settings = CASES[name]
    model: Any = train(open_rows(kind, is_sparse), TrainOptions(**settings)).model
    assert isinstance(model.support_vectors, CsrRows) == is_sparse
    model.save(tmp_path / "model.npz")
    for own in (model, load(tmp_path / "model.npz")):
        for dual in {False, name not in WITHOUT_DUAL}:
            same, other = (
                verify(own, open_rows(kind, layout), dual=dual, threads=1) for layout in (is_sparse, not is_sparse)
            )
            assert same.agrees
            assert other.agrees
            assert other.objective == pytest.approx(same.objective, abs=same.rounding_bound + other.rounding_bound)
            assert (same.lower_bound is None) == (other.lower_bound is None)
            assert same.lower_bound is None or other.lower_bound == pytest.approx(same.lower_bound, rel=1e-9)


def test_rows_of_many_features_take_no_memory_for_those_that_do_not_occur(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in predictions."""
    model: Any = train(open_rows("labels", True), TrainOptions(**CASES["rbf"][1])).model
    found = verify(model, open_rows("labels", True), threads=1)
    monkeypatch.setattr(compact, "WIDE", 1)
    monkeypatch.setattr(compact, "ITEM_FEATURES", 0)
    assert verify(model, open_rows("labels", True), threads=1) == found
