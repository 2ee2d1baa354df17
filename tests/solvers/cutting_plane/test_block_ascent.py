"""Dual coordinate ascent on blocks against independent optima; its passes, its bits, and what it keeps in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import random_array

from streamsvm.data.store.dataset import Dataset
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions
from streamsvm.passes import Step
from streamsvm.plan.predict import plan_training
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.solvers.cutting_plane.block_ascent import BlockAscent, warm_state
from streamsvm.solvers.cutting_plane.block_ascent import solve as solve_blocks
from streamsvm.system.errors import IntegrityError
from tests.conftest import Problem, compute_objective, make_problem
from tests.linear_problems import bracket_by_qp, primal, run_steps, with_bias

OPTIONS = TrainOptions(threads=1, options={"acceleration": "block-ascent"})
KINDS = {
    "dense": make_problem(1, n=300, d=8),
    "sparse": make_problem(2, n=300, d=30, density=0.2),
    "weighted": make_problem(3, n=300, d=8, weighted=True),
    "wide": make_problem(5, n=200, d=400, density=0.1),
    "rows-of-zeros": make_problem(6, n=300, d=6, density=0.1, weighted=True),
}


def make_text(n: int = 2500, d: int = 2500) -> Problem:
    """Sparse rows of many features, with labels of which some are wrong."""
    rng = np.random.default_rng(0)
    X = random_array((n, d), density=0.01, format="csr", dtype=np.float32, rng=rng)
    return Problem(X, np.where(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0, 1, -1))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_text().store(tmp_path_factory.mktemp("text") / "rows.zarr", chunk_bytes=20_000)


def run(problem: Problem, settings: BlockAscent, most: int = 300) -> list[Step]:
    source = problem.in_memory()
    return run_steps(source, solve_blocks(settings, settings.start(source.n_features)), most)


def list_starts(problem: Problem) -> tuple[int, ...]:
    return tuple(problem.in_memory().chunk_starts.tolist())


def sum_rows(problem: Problem, costs: F64, share: F64) -> F64:
    return np.asarray((costs * share * problem.y) @ with_bias(problem, 1.0))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("C", [0.01, 10.0])
def test_the_optimum_is_that_of_a_qp_library(
    name: str, share: float, C: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P is that of the point that is returned, D that of the shares that are kept, and both enclose the optimum."""
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 1000)
    problem = KINDS[name]
    starts, costs = list_starts(problem), problem.costs(C, 1.0, 3.0)
    assert len(starts) > 2
    settings = BlockAscent((C, 3 * C), max(2, int(share * len(problem.y))), starts, 1e-6)
    last, found = run(problem, settings)[-1], bracket_by_qp(problem, costs)
    state, progress = last.state, last.progress
    assert last.status == "converged"
    assert progress.objective == pytest.approx(primal(problem, costs, state.best_w), rel=1e-9)
    w = sum_rows(problem, costs, state.proved)
    assert progress.lower_bound == pytest.approx(float(costs @ state.proved - w @ w / 2), rel=1e-9)
    assert 0.0 <= state.proved.min() <= state.proved.max() <= 1.0
    assert progress.lower_bound <= found.high * (1 + 1e-9)
    assert progress.objective >= found.low * (1 - 1e-9)


@pytest.mark.slow("trains on many rows twice")
def test_far_fewer_reads_than_by_line_search(text: Dataset, without_pins: None) -> None:
    """Nothing is kept in memory but the resident rows, so the bytes are reads; single rows count, too."""
    ways = {"block-ascent": "10%", "line-search": None}
    found = [
        train(text, replace(OPTIONS, resident_rows=rows, options={"acceleration": way})) for way, rows in ways.items()
    ]
    assert [result.status for result in found] == ["converged"] * 2
    assert found[0].read_bytes <= 0.5 * found[1].read_bytes
    assert found[0].objective == pytest.approx(found[1].objective, rel=2e-3)


def test_few_rows_that_are_nearly_parallel_need_few_passes() -> None:
    """Rows far from the origin, on which coordinate ascent alone has gaps of 98% after 150 passes."""
    random = np.random.default_rng(1)
    X = (random.normal(size=(60, 100)) + 1000.0).astype(np.float32)
    problem = Problem(X, np.where(np.arange(60) % 2, 1, -1), 10.0 ** random.uniform(-6, 6, 60))
    found = train(problem.in_memory(), replace(OPTIONS, C=1e4, tol=1e-6))
    assert found.status == "converged"
    assert found.passes <= 10
    assert found.objective == pytest.approx(compute_objective(problem, found.model, problem.costs(1e4)), rel=1e-9)


@pytest.mark.parametrize(("n", "d", "most"), [(300, 39, 2), (300, 60, 4)])
def test_few_rows_with_features_of_extreme_scales_need_few_passes(n: int, d: int, most: int) -> None:
    """The sum of C_i c_i y_i x_i is drowned in rounding, so w is found by itself; a line search needs 20 passes."""
    problem = make_problem(4, n=n, d=d)
    scales = 10.0 ** np.random.default_rng(4).uniform(-6.0, 6.0, d)
    problem = replace(problem, X=(problem.X * scales).astype(np.float32))
    result = train(problem.in_memory(), TrainOptions(C=1000.0, max_passes=20))
    assert (result.status, result.passes <= most) == ("converged", True)
    P = compute_objective(problem, result.model, problem.costs(1000.0))
    assert result.objective == pytest.approx(P, rel=1e-9)


@pytest.mark.parametrize("resident", ["10%", "100%"])
def test_a_line_search_goes_on_where_weights_make_the_ascent_slow(resident: str, tmp_path: Path) -> None:
    """Weights of 1e-6 to 1e6: the ascent alone had gaps of 20% and more after 2,000 passes of such rows."""
    random = np.random.default_rng(1)
    X = np.zeros((600, 30 if resident == "10%" else 1001), np.float32)  # too many features for Newton's method
    X[:, 0] = random.normal(size=600)
    problem = Problem(X, np.where(random.random(600) < 0.5, 1, -1), 10.0 ** random.uniform(-6, 6, 600))
    data = problem.store(tmp_path / "rows.zarr", chunk_bytes=10_000)
    found = train(data, replace(OPTIONS, resident_rows=resident, max_passes=60))
    assert found.status == "converged"
    assert found.history[-1]["beside"] == 1.0
    assert found.history[0]["beside"] == 0.0
    assert found.read_bytes == pytest.approx(data.nbytes, rel=0.01)  # pinned: the line search reads nothing of its own
    assert found.objective == pytest.approx(compute_objective(problem, found.model, problem.costs(1.0)), rel=1e-9)


def test_one_pass_if_all_rows_fit_into_memory(text: Dataset) -> None:
    assert train(text, replace(OPTIONS, tol=1e-4)).passes == 1


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("resident", ["10%", "100%"])
def test_the_same_bits_on_any_engine_and_resumed(resident: str, text: Dataset, client: Client, tmp_path: Path) -> None:
    own = replace(OPTIONS, resident_rows=resident, C=0.1)
    found = [train(text, replace(own, threads=threads)) for threads in (1, 2)]
    found.append(train(text, own, client=client))
    train(text, replace(own, max_passes=1), tmp_path / "run")
    found.append(train(text, own, tmp_path / "run", resume=True))
    assert len({result.model_sha256 for result in found}) == 1
    assert found[0].status == "converged"


def test_gone_on_from_any_state_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 1000)
    problem = KINDS["sparse"]
    settings = BlockAscent((1.0, 1.0), 100, list_starts(problem), 1e-4)
    steps = run(problem, settings)
    assert len(steps) > 4
    for step in (*steps[:3], steps[-2]):
        again = run_steps(problem.in_memory(), solve_blocks(settings, step.state), 300)
        np.testing.assert_array_equal(again[-1].state.best_w, steps[-1].state.best_w)


def test_shares_are_a_start_for_larger_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 1000)
    problem = KINDS["dense"]
    starts = list_starts(problem)
    small = run(problem, BlockAscent((0.5, 0.5), 60, starts, 1e-4))[-1].state
    settings = BlockAscent((1.0, 1.0), 60, starts, 1e-4)
    warm = run_steps(problem.in_memory(), solve_blocks(settings, warm_state(settings, small, 2.0)), 300)
    cold = run(problem, settings)
    assert warm[-1].status == cold[-1].status == "converged"
    assert len(warm) <= len(cold)
    assert warm[0].progress.lower_bound > cold[0].progress.lower_bound


@pytest.mark.parametrize(("resident", "expected"), [("10%", None), (None, 1)])
def test_the_plan_tells_passes_and_time(resident: str | None, expected: int | None, text: Dataset) -> None:
    """Walks are timed as they are, and not as passes that add something up."""
    plan = plan_training(text, replace(OPTIONS, resident_rows=resident))
    assert plan.passes.about is not None
    assert expected in (None, plan.passes.about)
    assert plan.first_seconds > 0.0
    assert plan.taken.each_bytes == 0


def test_blocks_are_successive_chunks_that_fit() -> None:
    settings = BlockAscent((1.0, 1.0), 100, (0, 10, 20, 30, 40, 50, 60, 160, 170))
    blocks = settings.list_blocks()
    assert [k for block in blocks for k in block] == list(range(8))
    assert blocks == [[0, 1, 2, 3], [4, 5], [6], [7]]
    assert settings.kept_rows == 60


@pytest.mark.slow("trains many problems")
def test_folds_and_classes(text: Dataset) -> None:
    """Rows of a fold and labels of a class are altered in a walk as in a pass."""
    own = replace(OPTIONS, resident_rows="10%", C=0.1)
    found = tune(text, own, (0.1, 1.0), folds=2)
    assert found.result.status == "converged"
    lines = tune(text, replace(own, resident_rows=None, options={"acceleration": "line-search"}), (0.1, 1.0), folds=2)
    assert [trial.mean for trial in found.trials] == pytest.approx([trial.mean for trial in lines.trials], abs=0.01)


def test_three_classes(tmp_path: Path) -> None:
    problem = make_text(3000, 1000)
    y = np.digitize(problem.X @ np.random.default_rng(0).standard_normal(1000), [-0.5, 0.5])
    source = Problem(problem.X, y).store(tmp_path / "rows.zarr", chunk_bytes=30_000)
    found: list[Any] = [
        train(source, replace(OPTIONS, resident_rows=rows, options={"acceleration": way}))
        for way, rows in (("block-ascent", "10%"), ("line-search", None))
    ]
    assert [result.status for result in found] == ["converged"] * 2
    assert found[0].objective == pytest.approx(found[1].objective, rel=2e-3)


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    source = make_text(2000, 1000).store(tmp_path / "rows.zarr", chunk_bytes=30_000)
    chunk = max(
        (path for path in (tmp_path / "rows.zarr").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(IntegrityError, match=chunk.name):
        train(source, replace(OPTIONS, resident_rows="10%"))
