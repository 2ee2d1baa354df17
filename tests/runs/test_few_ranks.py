"""Rankings of many rows of few ranks, trained, verified, and on workers; few rows count as many here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.problems import ranking as problem_pairs
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up
from streamsvm.verify.verify import verify
from tests.conftest import make_problem

OPTIONS = {
    "ranks": TrainOptions(task="rank", C=0.1, threads=1),
    "classes": TrainOptions(task="roc-area", C=1.0, threads=1),
    "the paper": TrainOptions(task="rank", C=0.1, threads=1, options={"acceleration": "none"}),
}


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch, many_groups: None) -> None:
    monkeypatch.setattr(problem_pairs, "HELD_ROWS", 100)


def make_data(folder: Path, name: str, density: float = 1.0) -> Dataset:
    problem = make_problem(3, n=600, d=6, density=density, weighted=True)
    random = np.random.default_rng(0)
    truth = problem.dense()[:, 0] + random.normal(size=600)
    y = np.digitize(truth, [0.0] if name == "classes" else [-1.0, 0.0, 1.5])
    return ingest(problem.X, folder / "rows.zarr", y, sample_weight=problem.weight, chunk_bytes=2000)


@pytest.mark.parametrize("density", [1.0, 0.4], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_the_ranking_of_the_solver_with_all_scores(
    name: str, density: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(tmp_path, name, density)
    found = train(data, replace(OPTIONS[name], tol=1e-5))
    monkeypatch.setattr(problem_pairs, "HELD_ROWS", 1000)
    held = train(data, replace(OPTIONS[name], tol=1e-5))
    assert (found.status, held.status) == ("converged", "converged")
    assert found.objective == pytest.approx(held.objective, rel=2e-5)
    np.testing.assert_allclose(found.model.coef, held.model.coef, atol=0.02 * np.abs(held.model.coef).max())


@pytest.mark.parametrize("name", OPTIONS)
def test_p_and_d_are_verified(name: str, tmp_path: Path) -> None:
    data = make_data(tmp_path, name)
    result = train(data, OPTIONS[name], tmp_path / "run", keep_dual=True)
    found = verify(load(tmp_path / "run"), data, dual=True, dual_file=tmp_path / "run" / "dual.npz")
    assert found.agrees
    assert found.lower_bound == pytest.approx(result.lower_bound, rel=1e-5)
    assert found.objective == pytest.approx(result.objective, rel=1e-6)


def test_the_driver_needs_nothing_for_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs: list[Any] = []
    for held in (100, 1 << 20):
        monkeypatch.setattr(problem_pairs, "HELD_ROWS", held)
        for n in (30_000, 60_000):
            random = np.random.default_rng(n)
            X, y = random.normal(size=(n, 2)).astype(np.float32), random.integers(0, 2, n)
            data = ingest(X, tmp_path / f"{held} {n}.zarr", y)
            needs.append(set_up(data, OPTIONS["classes"]).memory(1))
    assert needs[0].driver_bytes == pytest.approx(needs[1].driver_bytes, abs=10_000)  # samples differ by some rows
    assert replace(needs[0], driver_bytes=0) == replace(needs[1], driver_bytes=0)
    assert needs[3].driver_bytes - needs[2].driver_bytes >= 200 * 30_000


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("name", ["ranks", "classes"])
def test_the_same_bits_on_workers(name: str, client: Client, tmp_path: Path) -> None:
    data = make_data(tmp_path, name)
    threads = train(data, OPTIONS[name])
    workers = train(data, replace(OPTIONS[name], threads=None), client=client)
    np.testing.assert_array_equal(threads.model.coef, workers.model.coef)
    assert (threads.objective, threads.lower_bound) == (workers.objective, workers.lower_bound)
