"""Solvers with resident rows as `train` drives them: when, with how many rows, in how much memory, among others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from streamsvm.data.sources.in_memory import CHUNK_BYTES, ArrayDataset
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.runs.held_out import draw_folds
from streamsvm.runs.train import open_for, train
from streamsvm.runs.tune import list_fits, run_chains, tune
from streamsvm.solvers.cutting_plane.line_search_setup import TwoSolvers
from streamsvm.solvers.registry import OTHER_BYTES
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.solver import Budget, Solver
from tests.conftest import Problem, compute_objective, make_problem, run_python
from tests.solvers.many.test_one_against_rest import make_classes

OPTIONS = TrainOptions(threads=1)
LINE_SEARCH = {"acceleration": "line-search"}
CLASSES = np.array([-1, 1])


def make_source(n: int, d: int) -> ArrayDataset:
    """Rows that nobody reads."""
    return ArrayDataset(np.zeros((1000, d), np.float32), (np.arange(1000) % 2).astype(np.int32), CLASSES)


def choose(n: int, d: int, on_disk: bool = True, name: str = "rows.zarr", **settings: Any) -> Solver:
    """The fit for n rows of d values, which need not exist."""
    source = make_source(n, d)
    source.on_disk, source.name = on_disk, name
    source.n_rows, source.nbytes = n, 4 * n * d
    source.chunk_starts = np.linspace(0, n, max(2, source.nbytes // CHUNK_BYTES)).astype(np.int64)
    fit = set_up(source, replace(OPTIONS, **{"memory_bytes": 8 << 30, **settings}))
    if "memory_bytes" in settings and has_resident_rows(fit):
        assert fit.memory(1).driver_bytes + OTHER_BYTES <= settings["memory_bytes"]
    return fit


def has_resident_rows(fit: Solver) -> bool:
    """Whether it has resident rows, and is not a line search alone."""
    return fit.settings.get("acceleration") in ("one-read", "block-ascent")


@pytest.mark.parametrize(
    ("n", "d", "one_read", "block_ascent"),
    [
        (1_000_000, 5, 100_000, 1_000_000),
        (20_000, 5, 3000, 20_000),
        (600, 5, 600, 600),
        (300, 500, None, 300),
        (100_000, 400, None, 100_000),
        (10_000, 400, 10_000, 10_000),
        (100_000, 100, None, 100_000),
        (600_000, 54, 101_632, 600_000),
        (100_000, 401, None, 100_000),
        (50_000, 2000, None, 50_000),
    ],
)
def test_the_choice_if_nothing_is_said(n: int, d: int, one_read: int | None, block_ascent: int) -> None:
    """One read for few features, with a row in ten but (n d)^(2/3) at least; otherwise ascent, with all rows.

    Few features are those for which one read has the lower price, and at most 400.
    """
    fit = choose(n, d)
    assert fit.settings["acceleration"] == ("block-ascent" if one_read is None else "one-read")
    assert fit.settings["resident_rows"] == (one_read or block_ascent)
    assert not fit.note
    asked = choose(n, d, options={"acceleration": "block-ascent"})
    assert (asked.settings["acceleration"], asked.settings["resident_rows"]) == ("block-ascent", block_ascent)


def test_the_reason_of_a_choice_names_the_second_price() -> None:
    reason = choose(100_000, 400).reason
    assert re.search(r"block-ascent takes about [\d.]+ s of a processor, and one-read [\d.]+ s", reason)
    assert choose(600_000, 54).reason.startswith("With all rows in memory")
    for unweighed in (
        choose(20_000, 54),
        choose(100_000, 100, on_disk=False),
        choose(100_000, 100, options={"acceleration": "one-read"}),
        choose(100_000, 100, resident_rows="50%"),
    ):
        assert not unweighed.reason


def test_a_line_search_leads_where_memory_leaves_few_resident_rows() -> None:
    """Unless each read goes to a store, or one read was asked for."""
    few = {"memory_bytes": 500 << 20}
    led = choose(7_500_000, 100, **few)
    assert isinstance(led, TwoSolvers)
    assert led.start().leads
    assert "passes of a line search come first" in led.reason
    asked = choose(7_500_000, 100, **few, options={"acceleration": "one-read"})
    assert not asked.start().leads
    assert not choose(7_500_000, 100, **few, name="s3://bucket/rows.zarr").start().leads
    assert not choose(1_000_000, 5).start().leads


def test_a_line_search_leads_where_the_rows_fit_into_memory_and_one_read_takes_long() -> None:
    """Unless the rows are few, read from a store, or larger than the memory, or one read was asked for."""
    led = choose(1_500_000, 100)
    assert led.start().leads
    assert led.settings["resident_rows"] == 36_700  # 0.13 (n d)^(2/3)
    assert choose(1_500_000, 100, resident_rows="10%").settings["resident_rows"] == 150_000
    assert re.search(r"fit into memory, so passes .* about [\d.]+ s .* one-read about [\d.]+ s", led.reason)
    for other in (
        choose(600_000, 54),
        choose(1_500_000, 100, name="s3://bucket/rows.zarr"),
        choose(8_000_000, 100, memory_bytes=3 << 30),
        choose(1_500_000, 100, options={"acceleration": "one-read"}),
    ):
        assert other.settings["acceleration"] == "one-read"
        assert not other.start().leads


def test_arrays_in_memory_are_for_the_ascent() -> None:
    """As far as they fit, and are not so many that one read is over sooner, which threads share."""
    for n_rows in (100_000, 500, 10):
        found = choose(n_rows, 100, on_disk=False)
        assert (found.settings["acceleration"], found.settings["resident_rows"]) == ("block-ascent", n_rows)
    for other in (
        choose(1_000_000, 100, on_disk=False),
        choose(100_000, 100, on_disk=False, memory_bytes=736 << 20),
        choose(100_000, 100, on_disk=False, resident_rows="50%"),
        choose(100_000, 100, on_disk=False, options={"acceleration": "one-read"}),
    ):
        assert other.settings.get("acceleration") != "block-ascent"


def test_what_more_memory_would_save_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Before the first pass, once; a choice that was asked for and does not suit the rows, too."""
    assert (
        "one-read supports at most 400 features and the rows have 500"
        in choose(100_000, 500, options={"acceleration": "one-read"}).note
    )
    few = choose(10_000, 400, resident_rows=2000).note
    assert few == "2,000 rows are kept in memory. With 3,276 rows, the data would be read fewer times."
    assert "2,000 rows are kept in memory. With 130,000 rows," in choose(100_000_000, 10, resident_rows=2000).note
    assert "no room for resident rows" in choose(20_000_000, 400, memory_bytes=400 << 20).note
    source = make_problem(1, n=600, d=40).in_memory()
    with caplog.at_level("INFO", "streamsvm"):
        train(source, replace(OPTIONS, resident_rows=20, max_passes=1))
        train(make_problem(1, n=300, d=40).in_memory(), replace(OPTIONS, resident_rows=20))  # all of them stay
    told = [record.message for record in caplog.records if not record.message.startswith("compiling")]
    assert told == ["20 rows are kept in memory. With 328 rows, the data would be read fewer times."]


@pytest.mark.parametrize("option", [{"epsilon": "0.1"}, {"max_cuts": "50"}, {"acceleration": "line-search"}])
def test_line_search_where_its_options_are_given(option: dict[str, str]) -> None:
    fit = choose(100_000, 5, options=option)
    assert not has_resident_rows(fit)
    assert fit.settings["accelerated"]
    assert fit.settings["epsilon"] == (0.1 if "epsilon" in option else None)
    assert fit.settings["max_cuts"] == (50 if "max_cuts" in option else None)
    assert choose(100_000, 5, options={"acceleration": "auto"} | option).settings == fit.settings


@pytest.mark.slow("trains on many rows")
@pytest.mark.parametrize("d", [100, 5000])
def test_as_many_rows_as_suit_the_memory(d: int) -> None:
    """More memory, more rows; with too little for the least, line search, even if another was asked for.

    If all rows fit into memory and a line search leads, it takes fewer rows to go on from its best point.
    """
    n = 20_000_000
    sizes = [300 << 20, 2 << 30, 4 << 30, 8 << 30, 32 << 30, 20 << 40]
    found = [choose(n, d, memory_bytes=size) for size in sizes]
    assert not has_resident_rows(found[0])
    assert not has_resident_rows(choose(n, d, memory_bytes=sizes[0], options={"acceleration": "one-read"}))
    rows = [fit.settings["resident_rows"] for fit in found if has_resident_rows(fit)]
    enough = round(0.13 * (n * d) ** (2 / 3))
    by_memory = [kept for kept in rows if kept != enough]
    assert 1000 <= by_memory[0] < by_memory[-1]
    assert by_memory == sorted(by_memory)
    assert rows[-1] == (n if d == 5000 else enough)
    asked = choose(n, d, resident_rows=1234)
    assert has_resident_rows(asked)
    assert asked.settings["resident_rows"] == 1234


def test_what_threads_add_up_fits_beside_the_rows() -> None:
    """Long rows on many threads, where line search alone would fit."""
    memory_bytes, threads = 3 << 30, 8
    source = ArrayDataset(csr_array((3000, 500_000), dtype=np.float32), np.ones(3000, np.int32), CLASSES)
    options = TrainOptions(memory_bytes=memory_bytes, threads=threads)
    needs = [
        OTHER_BYTES + need.driver_bytes + 3 * threads * need.totals_bytes
        for need in (set_up(source, replace(options, options=own)).memory(threads) for own in (LINE_SEARCH, {}))
    ]
    assert needs[0] <= memory_bytes
    assert needs[1] <= memory_bytes


def test_trained_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """By line search, to the same optimum."""
    source = make_problem(1, n=3000).in_memory()
    usual = train(source, OPTIONS)
    monkeypatch.setattr(Budget, "spare_bytes", 0)
    little = train(source, OPTIONS)
    assert little.status == usual.status == "converged"
    assert "resident_rows" not in little.history[-1]
    assert usual.history[-1]["resident_rows"] > 0
    assert little.objective == pytest.approx(usual.objective, rel=2e-3)


PEAK = """
import re, sys
from streamsvm.runs import folder as run_folder
from streamsvm.data.open import open_dataset
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import parse_bytes, peak_bytes, reset_peak
from streamsvm.options import TrainOptions; from streamsvm.runs.train import train

run_folder.CHECKPOINT_SECONDS, run_folder.MOST_CHECKPOINT_SHARE = 0.0, float("inf")
path, out, resident, passes = sys.argv[1:]

def run(budget, out):
    options = TrainOptions(tol=1e-9, max_passes=int(passes), threads=2, memory_bytes=budget, resident_rows=resident)
    return train(open_dataset(path), options, out)

try:
    run(1, None)
except MemoryBudgetError as refusal:
    budget = parse_bytes(re.search(r"--memory to at least ([^ ,]+)", str(refusal))[1]) + (4 << 20)
reset_peak()
result = run(budget, out)
print(budget, result.projected_memory_bytes, peak_bytes(), result.passes, result.history[-1]["resident_rows"])
"""


@pytest.mark.slow("measures the memory of trainings in processes of their own")
@pytest.mark.parametrize(("kind", "resident"), [("narrow", "10%"), ("tall", "1%"), ("wide", "100%"), ("wide", "10%")])
def test_the_peak_stays_below_the_projection(kind: str, resident: str, tmp_path: Path) -> None:
    """In a process of its own, a checkpoint a step; the budget is the least there is."""
    rng = np.random.default_rng(0)
    if kind == "wide":
        X = random_array((30_000, 20_000), density=0.005, format="csr", dtype=np.float32, rng=rng)
        problem = Problem(X, np.where(X @ rng.standard_normal(20_000) + rng.standard_normal(30_000) > 0, 1, -1))
    else:
        n, d = {"narrow": (110_000, 50), "tall": (1_000_000, 6)}[kind]
        problem = make_problem(1, n, d)
    source = problem.store(tmp_path / "rows", chunk_bytes=1_000_000)
    assert source.nbytes > 20_000_000
    most_passes = 4 if kind == "wide" else 8  # later ones take long
    ended = run_python(PEAK, source.path, tmp_path / "run", resident, most_passes)
    assert ended.returncode == 0, ended.stderr
    budget, projected, peak, passes, resident_rows = map(float, ended.stdout.split())
    assert 60_000_000 < peak <= projected <= budget
    assert projected - peak < 300_000_000
    assert passes >= 2
    assert resident_rows > 0


@pytest.fixture(params=["one-read", "block-ascent"])
def options(request: pytest.FixtureRequest) -> TrainOptions:
    """Either solver with resident rows."""
    return replace(OPTIONS, resident_rows="20%", options={"acceleration": request.param})


COSTS = (0.001, 0.01, 0.1, 1.0)


def test_each_fit_of_a_chain_is_right(options: TrainOptions) -> None:
    """The larger C start from where the smaller ones have ended, and need fewer passes for it."""
    problem = make_problem(3, n=3000, d=10, weighted=True)
    source = problem.in_memory()
    fits = [replace(options, C=C, tol=1e-4) for C in COSTS]
    chain = [(own, set_up(source, own)) for own in fits]
    assert {fit.settings["acceleration"] for _, fit in chain} == set(options.options.values())
    with open_for(source, fits[0], list_fits([chain]), None) as opened:
        (results,) = run_chains(source, [chain], opened, lambda *_: None)
    assert len(results) == len(COSTS)
    alone = [train(source, own) for own in fits]
    for one, other, own in zip(results, alone, fits, strict=True):
        assert one.status == other.status == "converged"
        assert isinstance(one.model, LinearModel)
        assert one.objective == pytest.approx(compute_objective(problem, one.model, problem.costs(own.C)), rel=1e-9)
        assert one.lower_bound is not None
        assert other.lower_bound is not None
        assert one.lower_bound <= other.objective * (1 + 1e-9)
        assert other.lower_bound * (1 - 1e-9) <= one.objective <= other.objective * (1 + 1.1e-4)
    assert sum(one.passes for one in results) <= sum(other.passes for other in alone)


def test_tuned(options: TrainOptions) -> None:
    """Each fold's rows are learnt by models that have not seen them; the best is trained as it would be alone."""
    problem = make_problem(4, n=900, d=6)
    source, folds = problem.in_memory(), 3
    options = replace(options, tol=1e-6)
    found = tune(source, options, COSTS, folds=folds)
    fold = draw_folds(source, options, folds)
    X, codes = problem.dense().astype(np.float32), source.column("y")
    assert codes is not None
    for trial in found.trials:
        assert trial.converged
        for k in range(folds):
            kept = ArrayDataset(X[fold != k], codes[fold != k], source.classes)
            line_search = replace(options, C=trial.C, resident_rows=None, options=LINE_SEARCH)
            scores = train(kept, line_search).model.decide(X[fold == k])
            right = np.mean((scores > 0) == codes[fold == k])
            assert trial.scores[k] == pytest.approx(right, abs=1.1 / np.count_nonzero(fold == k))
    again = train(source, replace(options, C=found.best.C))
    assert found.result.model_sha256 == again.model_sha256


def test_many_classes(options: TrainOptions, tmp_path: Path) -> None:
    """Each class' problem is solved as well as it would be by itself."""
    rows = make_classes(5, n=1500)
    together = train(rows.store(tmp_path / "rows"), replace(options, C=0.5))
    assert together.status == "converged"
    assert isinstance(together.model, LinearModel)
    objectives, intercepts = [], np.asarray(together.model.intercept)
    for code in range(4):
        problem = Problem(rows.X, np.where(rows.y == code, 1, -1), rows.weight)
        usual = train(problem.in_memory(), TrainOptions(C=0.5, threads=1, options=LINE_SEARCH))
        assert usual.lower_bound is not None
        own = LinearModel(coef=together.model.coef[code], intercept=intercepts[code], classes=CLASSES)
        objectives.append(compute_objective(problem, own, problem.costs(0.5)))
        assert usual.lower_bound * (1 - 1e-9) <= objectives[-1] <= usual.objective * (1 + 1.1e-3)
    assert together.objective == pytest.approx(sum(objectives), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resident_rows": "x%"}, "a number of rows, or a share"),
        ({"resident_rows": 1}, "at least two are needed"),
        ({"options": {"acceleration": "block-ascent", "epsilon": "0.1"}}, "epsilon and max_cuts cannot be used with"),
        ({"options": {"acceleration": "line-search"}}, "resident rows cannot be used with acceleration=line-search"),
    ],
)
def test_refused(change: dict[str, Any], message: str, options: TrainOptions) -> None:
    with pytest.raises(ValueError, match=message):
        train(make_problem(1, n=900).in_memory(), replace(options, **change))
