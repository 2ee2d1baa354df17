"""What scores rows and measures scores is compiled before, in a child process, and the user is told of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.kernels.feature_maps import Features, PolynomialMap, make_cholesky_map
from streamsvm.kernels.kernel import Kernel
from streamsvm.models import score_rows
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import KernelModel, LinearModel, Model, RankModel
from streamsvm.numeric.rows import Matrix
from tests.compiled_kernels import list_kernels
from tests.conftest import ROOT, make_problem, run_python

pytestmark = pytest.mark.slow("compiles in processes of their own")

KINDS = ("linear", "many classes", "rank", "rbf", "linear kernel", "map", "polynomial map")
CASES = list(product(KINDS, ("dense", "sparse")))


def make_source(is_sparse: bool) -> ArrayDataset:
    source: ArrayDataset = make_problem(1, n=60, density=0.5 if is_sparse else 1.0).in_memory()
    return source


def make_model(kind: str, rows: Matrix) -> Model:
    """A model with numbers out of the air. rows: those of its kernels."""
    d, n, labels, info = rows.shape[1], rows.shape[0], np.array([-1, 1]), {"task": "classify"}
    linear = LinearModel(coef=np.ones(d), intercept=0.5, classes=labels, info=info)
    match kind:
        case "many classes":
            return LinearModel(coef=np.eye(3, d), intercept=np.zeros(3), classes=np.array([-1, 0, 1]), info=info)
        case "rank":
            return RankModel(coef=np.ones(d), intercept=0.0, classes=labels, info={"task": "rank"})
        case "rbf":
            return KernelModel(
                kernel=Kernel("rbf"),
                support_vectors=rows,
                dual_coef=np.ones(n),
                intercept=0.5,
                classes=labels,
                info=info,
            )
        case "linear kernel":
            return KernelModel(
                kernel=Kernel("linear"),
                support_vectors=rows,
                dual_coef=np.ones((3, n)),
                intercept=np.zeros(3),
                classes=np.array([-1, 0, 1]),
                info=info,
            )
        case "map":
            found = make_cholesky_map(Kernel("rbf"), rows)
            return replace(linear, coef=np.ones(n), features=Features(found))
        case "polynomial map":
            found_2 = PolynomialMap(d)
            return replace(linear, coef=np.ones(found_2.n_features), features=Features(found_2))
    return linear


def list_late(case: tuple[str, str]) -> list[str]:
    """Evaluate a model, and return the kernels that were not loaded when the first row was scored."""
    kind, layout = case
    source = make_source(layout == "sparse")
    model = make_model(kind, source.take(np.arange(4)).X)
    loaded: list[str] = []
    load = score_rows.load_or_compile

    def load_and_list(*arguments: Any) -> None:
        load(*arguments)
        loaded.extend(list_kernels())

    score_rows.load_or_compile = load_and_list
    evaluate(model, source)
    return sorted(set(list_kernels()) - set(loaded))


def main() -> None:
    """Print the late kernels of each case, which has a process of its own."""
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(pool.map(list_late, CASES, chunksize=1)))


def test_nothing_is_compiled_amid_the_rows() -> None:
    ended = run_python("from tests.models.test_compilation import main; main()")
    assert ended.returncode == 0, ended.stderr
    assert dict(zip(CASES, json.loads(ended.stdout), strict=True)) == {case: [] for case in CASES}


def test_a_machine_that_never_trained_says_that_it_compiles(tmp_path: Path) -> None:
    """Once: in the second process all is in the cache."""
    X = np.eye(2, dtype=np.float32)
    make_model("linear", X).save(tmp_path / "model.npz")
    np.save(tmp_path / "rows.npy", X)
    command = [sys.executable, "-m", "streamsvm", "predict", "model.npz", "rows.npy", "--out", "out.csv"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    first, second = (
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert first.stderr.startswith("compiling kernels for scores/dense, once"), first.stderr
    assert second.stderr == ""
