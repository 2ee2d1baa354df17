"""`train --plan`: what it says beforehand is what training then takes; it makes nothing, and fails as training does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.cli.train import format_plan
from streamsvm.data.open import open_dataset
from streamsvm.data.rows.views import ChunkRange
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import ThreadedEngine
from streamsvm.engines.open import MemoryPlan
from streamsvm.engines.tasks import plan_scratch
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan
from streamsvm.plan import predict
from streamsvm.plan.predict import draw_sample, plan_training, repeat, try_sample
from streamsvm.plan.table import NO_FETCHES, Passes, Plan
from streamsvm.runs.calibrate import make_folds, train_with_probabilities
from streamsvm.runs.train import train
from streamsvm.solvers.newton.setup import NewtonSolver
from streamsvm.solvers.solver import Budget
from streamsvm.system.errors import InputError
from streamsvm.system.machine import format_bytes
from tests.commands import Run, data, run, text
from tests.conftest import make_problem

__all__ = ["data", "run", "text"]

LINE_SEARCH = ("--option", "acceleration=line-search")
MEMORY = MemoryPlan(1 << 30, {"all": 1 << 20}, 0)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """20,000 rows in 20 chunks."""
    return make_problem(3, 20_000).store(tmp_path_factory.mktemp("large") / "rows.zarr", chunk_bytes=30_000)


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 2000)


def add_first(totals: list[float], rows: Any) -> None:
    totals[0] += float(rows.X[:, 0].sum())


def add_both(left: list[float], right: list[float]) -> list[float]:
    return [left[0] + right[0]]


def make_totals() -> list[float]:
    return [0.0]


SUM = Scan(make_totals, add_first, add_both)


def make_plan(source: Dataset, passes: Passes, pin_bytes: int = 0, **options: Any) -> Plan:
    """10 s for the first pass, 4 for a later one, 2 after each."""
    memory = MemoryPlan(1 << 30, {"all": 1 << 20}, pin_bytes)
    return Plan(source, TrainOptions(**options), memory, passes, 10.0, 4.0, 2.0, NO_FETCHES, 3)


@pytest.mark.parametrize(
    ("solver", "own"),
    [
        ("cutting-plane", {"acceleration": "line-search"}),
        ("cutting-plane", {"acceleration": "block-ascent"}),
        ("cutting-plane", {}),
        ("interior-point", {}),
    ],
)
@pytest.mark.usefixtures("small_sample")
def test_passes_and_bytes_are_as_planned(large: Dataset, solver: str, own: dict[str, str]) -> None:
    options = TrainOptions(C=0.01, solver=solver, threads=1, options=own)
    plan, real = plan_training(large, options), train(large, options)
    least, _, most = plan.count_passes()
    assert least is not None
    assert most is not None
    assert most <= 3 * least + 2
    assert least <= real.passes <= most
    assert plan.sum_bytes(real.passes) == pytest.approx(real.read_bytes, rel=0.1)
    assert plan.memory.projected_bytes == pytest.approx(real.projected_memory_bytes, rel=0.2)


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("own", [{"acceleration": "line-search"}, {}])
def test_folds_are_planned(own: dict[str, str], large: Dataset) -> None:
    """They take the memory of six fits, and one read more than the model."""
    options = TrainOptions(C=0.01, threads=1, options=own)
    folds = make_folds(large, options, "sigmoid")
    plan = plan_training(large, options, folds=folds)
    alone, real = plan_training(large, options), train_with_probabilities(large, options, folds)
    least, about, most = plan.count_passes()
    assert least is not None
    assert about is not None
    assert most is not None
    assert (about, "that scores the held-out rows" in plan.passes.how) == ((alone.count_passes()[1] or 0) + 1, True)
    assert least <= real.passes <= most
    assert plan.memory.projected_bytes == pytest.approx(real.projected_memory_bytes, rel=0.2)
    assert plan.memory.parts["solver"] > 2 * alone.memory.parts["solver"]
    assert plan.sum_bytes(real.passes) == pytest.approx(real.read_bytes, rel=0.1)


@pytest.mark.usefixtures("small_sample")
def test_resident_rows_give_a_range_that_holds(large: Dataset) -> None:
    options = TrainOptions(C=0.1, threads=1, resident_rows="2%", options={"acceleration": "one-read"})
    plan, real = plan_training(large, options), train(large, options)
    least, about, most = plan.count_passes()
    assert least is not None
    assert about is not None
    assert most is not None
    assert least <= about <= most
    assert about / 2 <= real.passes <= 2 * about


@pytest.mark.parametrize("chunks", [1, 5, 30])
def test_walks_over_few_chunks_take_as_many_passes_as_told(
    chunks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample has as many chunks as the data, so that a walk learns as many blocks one after another."""
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 1000)
    problem = make_problem(0, n=4000, d=30)
    data = problem.store(tmp_path / "rows", chunk_bytes=problem.X.nbytes // chunks)
    assert draw_sample(data, False, 0).n_chunks == data.n_chunks >= chunks
    options = TrainOptions(threads=1, resident_rows="25%", options={"acceleration": "block-ascent"})
    least, _, most = plan_training(data, options).count_passes()
    assert least is not None
    assert most is not None
    assert least <= train(data, options).passes <= most


def test_many_chunks_are_not_all_tried(tmp_path: Path) -> None:
    data = make_problem(3, 5000).store(tmp_path / "rows", chunk_bytes=1000)
    assert data.n_chunks > 100
    assert draw_sample(data, False, 0).n_chunks == predict.MOST_CHUNKS


def test_what_may_be_set_aside_is_told(large: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the rows at most, and none of those that stay in memory."""
    options = TrainOptions(resident_rows=1000, options={"acceleration": "one-read", "scratch": str(tmp_path)})
    plan = plan_training(large, options)
    assert plan.scratch_bytes == 0
    monkeypatch.setattr(predict, "plan_scratch", lambda folder, source, _: plan_scratch(folder, source, 0))
    plan = plan_training(large, options)
    assert large.nbytes / 2 < plan.scratch_bytes < large.nbytes
    assert plan.as_json()["scratch_bytes"] == plan.scratch_bytes
    assert f"scratch   at most {format_bytes(plan.scratch_bytes)} in {tmp_path}" in format_plan(plan)
    assert list(tmp_path.iterdir()) == []


def test_few_rows_are_tried_all(data: Path) -> None:
    dataset, options = open_dataset(data), TrainOptions(threads=1)
    assert plan_training(dataset, options).count_passes() == (train(dataset, options).passes,) * 3


def test_rows_several_times_over_are_the_same_problem(large: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """C is for all rows together: so the solver makes as many passes; with 8 times the cost it would make more."""
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 1000)
    sample = draw_sample(large, False, 0)
    options, costly = (TrainOptions(C=C, options={"acceleration": "line-search"}) for C in (0.01, 0.08))
    once, more = (try_sample(rows, large, options, MEMORY) for rows in (sample, repeat(sample, 8)))
    assert more.n_rows == 8 * once.n_rows
    assert abs(more.passes - once.passes) <= 1
    assert try_sample(sample, large, costly, MEMORY).passes > once.passes + 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--solver smo --kernel rbf --resident-rows 50", "not estimated: the passes of smo"),
        ("--solver smo --kernel rbf", "all rows are active"),
        ("--solver irwls --kernel rbf --resident-rows 50", "not estimated: the passes of irwls"),
        ("--solver budgeted-sgd --option epochs=7", "8 (the requested epochs, and one for gamma)"),
        ("--task roc-area", "measured on all rows"),
        ("--task rank", "measured on all rows"),
        ("--option acceleration=block-ascent", "measured on all rows"),
        ("--option acceleration=none", "measured on all rows"),
        ("--workers 1", "measured on all rows"),
    ],
)
def test_every_solver_and_task_says_what_is_known(run: Run, data: Path, options: str, expected: str) -> None:
    ended = run("train", data, "--plan", *options.split())
    assert ended.code == 0, ended.err
    passes = next(line for line in ended.out.splitlines() if line.startswith("passes"))
    assert expected in passes


def test_a_solver_that_keeps_no_rows_is_tried_as_it_is(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's method takes no sample if memory has no room for one."""
    count = NewtonSolver._count_rows

    def leave_no_room(self: NewtonSolver, options: TrainOptions, budget: Budget) -> tuple[int, bool]:
        return (0, False) if options.resident_rows is None else count(self, options, budget)

    monkeypatch.setattr(NewtonSolver, "_count_rows", leave_no_room)
    ended = run("train", data, "--plan", "--loss", "logistic")
    assert "measured on all rows" in next(line for line in ended.out.splitlines() if line.startswith("passes"))


def test_many_classes_and_queries(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 300)
    random = np.random.default_rng(0)
    X, y = random.normal(size=(900, 4)), np.arange(900) % 3
    y[X[:, 0] > 0.5] = 2
    ingest(X.astype(np.float32), tmp_path / "classes.zarr", y)
    ingest(X.astype(np.float32), tmp_path / "queries.zarr", y, qid=np.arange(900) // 9, shuffle=None)
    for command in (("classes.zarr", *LINE_SEARCH), ("queries.zarr", "--task", "rank")):
        plan = run("train", tmp_path / command[0], *command[1:], "--plan", "--json").result
        least, most = plan["passes_range"]
        out = tmp_path / f"run-{command[0]}"
        real = run("train", tmp_path / command[0], *command[1:], "--out", out, "--json").result
        assert least <= real["passes"] <= most


def test_json_and_no_files(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(data.parent))
    ended = run("train", data, "--plan", "--json", "--out", tmp_path / "run", "--max-passes", 3, *LINE_SEARCH)
    assert ended.code == 0
    assert list(tmp_path.iterdir()) == []
    assert sorted(os.listdir(data.parent)) == before
    plan = ended.result
    assert plan["status"] == "planned"
    assert plan["passes"] == 3
    assert plan["first_pass_bytes"] == open_dataset(data).nbytes
    assert 0 < plan["seconds"] < 60
    assert plan["projected_memory_bytes"] <= plan["memory_budget_bytes"]


def test_sums(large: Dataset) -> None:
    plan = make_plan(large, Passes(2, 4, 8, ""))
    assert [plan.sum_seconds(n) for n in plan.count_passes()] == [18.0, 30.0, 54.0]
    assert plan.sum_bytes(4) == 4 * large.nbytes
    assert make_plan(large, Passes(2, 4, 8, ""), max_passes=3).count_passes() == (2, 3, 3)
    assert make_plan(large, Passes(2, 4, 8, ""), max_seconds=20.0).sum_seconds(8) == 20.0
    unknown = make_plan(large, Passes(2, None, None, "unknown"))
    assert unknown.sum_seconds(None) is None
    assert "at least 2" in format_plan(unknown)
    assert "more than 18 s" in format_plan(unknown)


def test_bytes_of_data_that_fit_in_part_are_those_that_an_engine_reads(large: Dataset) -> None:
    pin_bytes = large.nbytes // 3
    engine = ThreadedEngine(large, 1, pin_bytes)
    for _ in range(5):
        engine.scan(SUM)
    engine.close()
    planned = make_plan(large, Passes(5, 5, 5, ""), pin_bytes).sum_bytes(5)
    assert planned == pytest.approx(engine.costs.read_bytes, abs=4 * large.nbytes / large.n_chunks)
    assert engine.costs.read_bytes < 4 * large.nbytes


def test_a_probe_reads_few_chunks(large: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """So few as keep the threads busy, if these are slow; and of rows in the sample, those of some chunks."""
    engine = ThreadedEngine(large, 2, 0)
    monkeypatch.setattr(predict, "READ_BYTES_A_SECOND", 1.0)
    speed = predict.Probe((), TrainOptions(), engine, MEMORY, 2).measure_reading()
    engine.close()
    assert speed.n_chunks == 2
    assert engine.costs.read_bytes == 4 * int(large.nbytes * large.chunk_starts[2] / large.n_rows)
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 500)
    seen: list[np.ndarray] = []
    monkeypatch.setattr(Dataset, "take", lambda self, rows: seen.append(rows) or ChunkRange(self, 0, 1).read(0))
    draw_sample(large, False, 0)
    chunks = np.unique(np.searchsorted(large.chunk_starts, seen[0], side="right"))
    assert len(chunks) == predict.SAMPLE_CHUNKS
    assert abs(len(seen[0]) - 500) <= predict.SAMPLE_CHUNKS


def test_what_the_system_cannot_hold_is_read_from_disk_again(large: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "default_budget_bytes", lambda: large.nbytes // 8)
    speed = predict.Speed(10.0, 1.0, 4)
    half = large.nbytes * 105 // 200
    assert predict._slow_down(large, half, speed).later == pytest.approx(5.0, rel=0.01)
    monkeypatch.setattr(predict, "default_budget_bytes", lambda: large.nbytes)
    assert predict._slow_down(large, half, speed).later == 1.0


def test_workers_are_probed_as_they_are(large: Dataset, client: Client) -> None:
    plan = plan_training(large, TrainOptions(C=0.01, workers=2), client)
    assert plan.first_seconds > 0.0
    assert plan.passes.about is not None


def test_queries_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 200)
    problem, qid = make_problem(0, 2000), np.arange(2000) // 7
    source = ingest(problem.X, tmp_path / "q.zarr", problem.y, qid=qid, shuffle=None, chunk_bytes=4000)
    sample = draw_sample(source, True, 0)
    assert sample.qid is not None
    assert 150 < sample.n_rows < 300
    for query in np.unique(sample.qid):
        assert np.sum(sample.qid == query) == np.sum(qid == query)
    again = repeat(sample, 2)
    assert again.qid is not None
    assert len(np.unique(again.qid)) == 2 * len(np.unique(sample.qid))


def test_a_sample_of_one_class_is_not_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "SAMPLE_ROWS", 70)
    X, y = np.ones((3000, 2), np.float32), np.zeros(3000, int)
    y[0] = 1
    plan = plan_training(ingest(X, tmp_path / "one.zarr", y, shuffle=None), TrainOptions())
    assert plan.passes.about is None
    assert "one class" in format_plan(plan)
    assert "not known" in format_plan(plan)


def test_fails_as_training_does(run: Run, data: Path, tmp_path: Path) -> None:
    for options, message in (
        ("--memory 50MB", "raise --memory to at least"),
        ("--C -1", "C is -1.0"),
        ("--solver interior-point --kernel rbf", "interior-point supports only the linear kernel"),
        ("--option nonsense=1", "nonsense"),
    ):
        planned = run("train", data, "--plan", *options.split())
        real = run("train", data, "--out", tmp_path / "run", *options.split())
        assert (planned.code, real.code) == (2, 2)
        assert message in planned.err
        assert message in real.err
        assert planned.out == ""
    assert run("train", tmp_path / "none.zarr", "--plan").code == 2
    without = run("train", data)
    assert without.code == 2
    assert "--out" in without.err


def test_ctrl_c_leaves_nothing(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(predict, "try_sample", interrupt)
    ended = run("train", data, "--plan")
    assert ended.code == 1
    assert ended.err.endswith("interrupted; nothing was left behind\n")
    assert ended.out == ""


def test_a_sample_that_takes_too_long_is_a_lower_bound(large: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "SAMPLE_SECONDS", 1e-9)
    plan = plan_training(large, TrainOptions(C=0.01, options={"acceleration": "line-search"}))
    assert plan.count_passes() == (1, None, None)
    assert "at least 1" in format_plan(plan)


def test_errors_of_rows_come_through(large: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise InputError("chunk 0 is damaged")

    monkeypatch.setattr(Dataset, "take", fail)
    with pytest.raises(InputError, match="chunk 0 is damaged"):
        plan_training(large, TrainOptions())
