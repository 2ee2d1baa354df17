"""Crammer-Singer owes what every method does: the same bits, few reads, memory as planned, and models that are used."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm import CuttingPlane, LinearSVC, ingest, load
from streamsvm.data.rows.source import find_largest_tile
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.evaluate import evaluate
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.plan.predict import plan_training
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.solvers.crammer_singer.block_ascent import STEPS, ClassAscent
from streamsvm.solvers.crammer_singer.line_search import look_along
from streamsvm.solvers.crammer_singer.setup import ClassAscentSolver
from streamsvm.solvers.cutting_plane.block_ascent import solve
from streamsvm.solvers.set_up import set_up
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.class_problems import make_classes, measure_driver
from tests.linear_problems import run_steps

OPTIONS = TrainOptions(task="crammer-singer", threads=1, C=0.1)
LINE = {"acceleration": "line-search"}
PROBLEM = make_classes(1, n=3000, d=10, n_classes=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return PROBLEM.store(tmp_path_factory.mktemp("classes") / "rows.zarr", chunk_bytes=10_000)


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("own", [{"resident_rows": "10%"}, {}, {"options": LINE}], ids=["blocks", "memory", "line"])
def test_the_same_bits_on_any_engine_and_resumed(
    own: dict[str, Any], data: Dataset, client: Client, many_groups: None, tmp_path: Path
) -> None:
    options = replace(OPTIONS, tol=1e-4, **own)
    found = [train(data, replace(options, threads=threads)) for threads in (1, 2)]
    found.append(train(data, options, client=client))
    train(data, replace(options, max_passes=1), tmp_path / "run")
    found.append(train(data, options, tmp_path / "run", resume=True))
    assert len({result.model_sha256 for result in found}) == 1
    assert found[0].status == "converged"


@pytest.mark.parametrize("seed", [0, 1])
def test_three_reads_with_a_tenth_of_the_rows(seed: int, tmp_path: Path) -> None:
    """The line to the last weights, instead of the mean weights, takes four; so does seed 1 if fewer rows are kept."""
    random, n_classes = np.random.default_rng(seed), 5
    X = random.standard_normal((4000, 8)).astype(np.float32)
    scores = X @ random.standard_normal((8, n_classes))
    y = np.argmax(scores + 0.7 * random.gumbel(size=scores.shape), axis=1)
    data = ingest(X, tmp_path / "rows.zarr", y, chunk_bytes=X.nbytes // 64)
    result = train(data, replace(OPTIONS, tol=4e-4, resident_rows="10%"))
    assert (result.status, result.passes) == ("converged", 3)


def test_gone_on_from_any_state_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 10_000)
    source = replace(PROBLEM, sparse=True).in_memory()
    settings = ClassAscent((0.1,) * 5, 300, tuple(source.chunk_starts.tolist()), 1e-4)
    steps = run_steps(source, solve(settings, settings.start(10)))
    assert len(steps) > 2
    for step in steps[:-1]:
        after = run_steps(source, solve(settings, step.state))[-1].state
        assert np.array_equal(after.best_w, steps[-1].state.best_w)
        assert np.array_equal(after.share, steps[-1].state.share)


def test_far_fewer_reads_than_by_line_search(data: Dataset, without_pins: None) -> None:
    """Nothing is kept in memory but the resident rows, so the bytes are reads."""
    ascent, line = (train(data, replace(OPTIONS, **own)) for own in ({"resident_rows": "10%"}, {"options": LINE}))
    assert ascent.status == line.status == "converged"
    assert ascent.read_bytes <= 0.25 * line.read_bytes
    assert train(data, OPTIONS).passes == 1  # all rows fit into memory


def test_a_larger_cost_starts_from_the_shares_of_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 10_000)
    source = PROBLEM.in_memory()
    fits = [set_up(source, replace(OPTIONS, C=C, resident_rows=300)) for C in (0.1, 0.2)]
    small = run_steps(source, fits[0].solve(fits[0].start()))[-1].state
    warm = run_steps(source, fits[1].solve(fits[1].warm_start(small, 2.0)))
    cold = run_steps(source, fits[1].solve(fits[1].start()))
    assert warm[0].progress.objective < cold[0].progress.objective
    assert len(warm) < len(cold)
    assert warm[-1].progress.objective == pytest.approx(cold[-1].progress.objective, rel=1e-3)


@pytest.mark.parametrize(
    ("own", "n_classes"),
    [({}, 10), ({"resident_rows": 200}, 10), ({"options": LINE}, 10), ({"options": LINE}, 200)],
    ids=["memory", "blocks", "line", "many"],
)
def test_the_driver_holds_what_is_planned(own: dict[str, Any], n_classes: int) -> None:
    """Shares of all rows, kept rows and cuts, the scores of a tile, and a checkpoint after each step."""
    _, peak, planned = measure_driver(replace(OPTIONS, **own), 20_000, n_classes=n_classes)
    assert peak <= planned


@pytest.mark.parametrize("own", [{}, {"resident_rows": 200}], ids=["memory", "blocks"])
def test_each_thread_of_a_wide_ascent_holds_what_is_planned(own: dict[str, Any]) -> None:
    """No line search runs beside it, whose memory would count the scores of a tile."""
    problem = make_classes(0, n=2000, d=260, n_classes=200)
    solver = set_up(problem.in_memory(), replace(OPTIONS, **own))
    assert isinstance(solver, ClassAscentSolver)
    matrices = np.random.default_rng(0).standard_normal((2, 200, 261))
    scan = look_along(matrices, STEPS, np.empty(0), np.array(solver.parameters.class_costs), 1.0)
    n = find_largest_tile(solver.source)
    rows = Rows(0, problem.X[:n].astype(np.float32), problem.y[:n])
    scan.add(scan.start(), rows, *scan.shared)  # compiles
    tracemalloc.start()
    try:
        scan.add(scan.start(), rows, *scan.shared)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= solver.memory(2).walk_bytes - solver.memory(1).walk_bytes + (1 << 20)


def test_too_little_memory_for_the_shares_is_told() -> None:
    source = make_classes(0, n=3000, d=4, n_classes=100).in_memory()
    fit = set_up(source, replace(OPTIONS, memory_bytes=300 << 20))
    assert fit.settings["acceleration"] == "line-search"
    assert "--memory" in fit.note


def test_a_model_is_verified_and_evaluated(data: Dataset) -> None:
    result = train(data, replace(OPTIONS, class_weight={"1": 2.0}))
    found = verify(result.model, data)
    assert found.agrees
    assert found.relative_gap == pytest.approx(result.relative_gap, rel=1e-6)
    altered = replace(result.model, coef=result.model.coef * (1 + 1e-6))
    assert not verify(altered, data).objective_agrees
    scores = PROBLEM.X @ result.model.coef.T + result.model.intercept
    right = np.mean(np.argmax(scores, axis=1) == PROBLEM.y)
    assert evaluate(result.model, data)["accuracy"] == pytest.approx(right, abs=1e-9)


def test_tuned_and_planned(data: Dataset, tmp_path: Path) -> None:
    tuned = tune(data, OPTIONS, [0.001, 0.1], folds=3)
    assert all(trial.converged for trial in tuned.trials)
    assert tuned.result.model.problem.name == "crammer-singer"
    assert plan_training(data, OPTIONS).as_json()["passes"] is not None


def test_a_fitted_estimator(tmp_path: Path) -> None:
    for n_classes in (2, 4):
        problem = make_classes(3, n=300, n_classes=n_classes)
        model = LinearSVC(multi_class="crammer_singer", C=0.5).fit(problem.X, problem.y)
        assert model.coef_.shape == ((1, 4) if n_classes == 2 else (n_classes, 4))
        model.save(tmp_path / "model.npz")
        loaded = load(tmp_path / "model.npz")
        assert loaded.get_params()["multi_class"] == "crammer_singer"
        assert np.array_equal(loaded.predict(problem.X), model.predict(problem.X))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"multi_class": "ovo"}, "choose from ovr, crammer_singer"),
        (
            {"multi_class": "crammer_singer", "loss": "squared_hinge"},
            "crammer-singer are crammer_singer",
        ),
        ({"multi_class": "crammer_singer", "solver": "interior-point"}, "use --solver cutting-plane"),
        (
            {"multi_class": "crammer_singer", "solver": CuttingPlane(acceleration="line-search"), "resident_rows": 9},
            "resident_rows has no effect",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], reason: str) -> None:
    problem = make_classes(0)
    with pytest.raises(InputError, match=reason):
        LinearSVC(**wrong).fit(problem.X, problem.y)
