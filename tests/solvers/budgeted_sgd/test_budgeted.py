"""Budgeted SGD as `train` drives it: the same bits anywhere, options, limits, and what a run leaves."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import KernelModel, load
from streamsvm.numeric.rows import CsrRows
from streamsvm.options import TrainOptions
from streamsvm.runs import folder
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.solvers.budgeted_sgd import setup
from streamsvm.solvers.budgeted_sgd import solver as budgeted_sgd
from streamsvm.solvers.budgeted_sgd.setup import _choose_parameters
from streamsvm.solvers.budgeted_sgd.solver import BudgetedSGD
from streamsvm.solvers.set_up import read_own_options
from streamsvm.system.errors import InputError, IntegrityError, MemoryBudgetError
from tests.commands import Run, run  # noqa: F401
from tests.conftest import make_problem
from tests.faults.instants import describe

DENSE = make_problem(1, n=600, d=7, weighted=True)
SPARSE = make_problem(2, n=600, d=40, density=0.2)
SMALL = {"budget": "25", "epochs": "2"}
OPTIONS = TrainOptions(solver="budgeted-sgd", kernel="rbf", gamma=0.2, threads=1, seed=3, options=SMALL)


def with_options(**options: object) -> TrainOptions:
    return replace(OPTIONS, options={**SMALL, **{name: str(value) for name, value in options.items()}})


@pytest.fixture
def datasets(tmp_path: Path) -> dict[str, Dataset]:
    """Of 16 to 23 chunks."""
    dense = DENSE.store(tmp_path / "dense", layout="dense", chunk_bytes=1000)
    return {"dense": dense, "sparse": SPARSE.store(tmp_path / "sparse", layout="sparse", chunk_bytes=1900)}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of three chunks, steps of two buffers, and a checkpoint after each."""
    monkeypatch.setattr(setup, "MOST_CHUNKS", 3)
    monkeypatch.setattr(budgeted_sgd, "SEGMENT_BUFFERS", 2)
    monkeypatch.setattr(folder, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(folder, "MOST_CHECKPOINT_SHARE", float("inf"))


def settings_of(source: Any, options: TrainOptions) -> BudgetedSGD:
    return _choose_parameters(source, options, read_own_options(options))


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_the_same_bits_on_any_engine(
    replicas: int, layout: str, datasets: dict[str, Dataset], client: Client, small_steps: None
) -> None:
    """However many threads and workers, whatever the memory for chunks; two replicas share chunks, three rows."""
    source, options = datasets[layout], with_options(replicas=replicas)
    assert 16 <= source.n_chunks < 24
    first = train(source, options)
    assert settings_of(source, options).shares_chunks == (replicas < 3)
    others = [train(source, replace(options, threads=threads)) for threads in (2, 4)]
    others += [train(source, options, client=client), train(source, replace(options, memory_bytes=2 << 30))]
    others += [train(source, with_options(replicas=replicas, pack=pack)) for pack in (1, 7)]
    assert first.steps >= 4
    for other in others:
        assert other.model.to_bytes() == first.model.to_bytes()
        assert (other.objective, other.steps) == (first.objective, first.steps)


def test_settings_change_the_model(datasets: dict[str, Dataset]) -> None:
    """So that equal bits above are no accident."""
    source = datasets["dense"]
    options = [
        OPTIONS,
        replace(OPTIONS, seed=4),
        replace(OPTIONS, C=3.0),
        replace(OPTIONS, class_weight={1: 3.0}),
        *(with_options(**{name: value}) for name, value in (("replicas", 2), ("epochs", 1), ("budget", 24))),
        *(with_options(maintenance=name) for name in ("gradient-merge", "projection", "removal")),
        with_options(merge=3),
        with_options(bias="free"),
    ]
    assert len({train(source, each).model_sha256 for each in options}) == len(options)


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.parametrize(("layout", "replicas"), [("dense", 1), ("dense", 2), ("sparse", 3)])
def test_interrupted_after_any_step_and_resumed(
    layout: str, replicas: int, datasets: dict[str, Dataset], small_steps: None, tmp_path: Path
) -> None:
    """In the middle of an epoch, too; then with more threads. Model, history and status are those of one run."""
    source, options = datasets[layout], with_options(replicas=replicas)
    train(source, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    passes = [line["passes"] for line in whole["history"]]
    assert passes.count(0) >= 1
    assert passes.count(1) >= 2
    for step in range(1, len(passes)):
        out = tmp_path / f"stopped-{step}"

        def stop(event: Event, step: int = step) -> None:
            if event.line["step"] == step:
                raise KeyboardInterrupt

        stopped = train(source, options, out=out, listener=stop)
        within = passes[step - 1] == [0, *passes][step - 1]
        assert (stopped.status, stopped.finished) == ("interrupted", False)
        assert stopped.passes == passes[step - 1] + within
        train(source, replace(options, threads=2), out=out, resume=True)
        assert describe(out) == whole


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("as_classes", [False, True])
def test_a_regression_has_the_same_bits_anywhere(
    as_classes: bool, client: Client, small_steps: None, tmp_path: Path
) -> None:
    """On threads and workers, and interrupted and resumed; targets may be classes that are numbers."""
    X = np.asarray(DENSE.X, np.float32)
    target = np.round(np.sin(3.0 * X[:, 0]) + X[:, 1]) + 50.0
    source = ingest(X, tmp_path / "rows", target, chunk_bytes=1000, shuffle=None, regression=not as_classes)
    assert source.has_targets != as_classes
    options = replace(with_options(replicas=2), task="regress")
    train(source, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    for given in ({"client": client}, {}):
        assert (
            train(source, replace(options, threads=2), **given).model.to_bytes() == load(tmp_path / "whole").to_bytes()
        )

    def stop(event: Event) -> None:
        if event.line["step"] == 1:
            raise KeyboardInterrupt

    train(source, options, out=tmp_path / "stopped", listener=stop)
    train(source, options, out=tmp_path / "stopped", resume=True)
    assert describe(tmp_path / "stopped") == whole


def test_limits_and_more_epochs(datasets: dict[str, Dataset], small_steps: None, tmp_path: Path) -> None:
    """`finished` tells the end of the epochs from a limit; a run may go on for more of them to the same bits."""
    source = datasets["dense"]
    two = train(source, OPTIONS, out=tmp_path / "two")
    assert (two.status, two.finished, two.passes) == ("pass_limit", True, 2)
    short = train(source, replace(OPTIONS, max_passes=1), out=tmp_path / "run")
    assert (short.status, short.finished, short.passes) == ("pass_limit", False, 1)
    one = train(source, with_options(epochs=1), out=tmp_path / "run", resume=True)
    assert (one.status, one.finished, one.model_sha256) == ("pass_limit", True, short.model_sha256)
    assert train(source, OPTIONS, out=tmp_path / "run", resume=True).model_sha256 == two.model_sha256
    again = train(source, OPTIONS, out=tmp_path / "run", resume=True)
    assert (again.finished, again.steps, again.model_sha256) == (True, two.steps, two.model_sha256)
    late = train(source, replace(OPTIONS, max_seconds=1e-9))
    assert (late.status, late.finished, late.passes, late.steps) == ("time_limit", False, 1, 1)
    with pytest.raises(InputError, match="cannot be resumed with other settings: budget was 25, now 26"):
        train(source, with_options(budget=26), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_what_a_run_leaves(layout: str, datasets: dict[str, Dataset], small_steps: None, tmp_path: Path) -> None:
    source = datasets[layout]
    result = train(source, OPTIONS, out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    model = load(tmp_path / "run")
    assert isinstance(model, KernelModel)
    assert isinstance(model.support_vectors, CsrRows) == (layout == "sparse")
    assert result.n_support_vectors == len(model.dual_coef) == lines[-1]["n_support_vectors"]
    assert (result.solver, result.lower_bound, result.relative_gap) == ("budgeted-sgd", None, None)
    assert [line["rows"] for line in lines][-1] == 1200
    assert all(line["degradation"] > 0 and line["gradient_error"] > 0 for line in lines)
    assert all(line["n_support_vectors"] <= 25 for line in lines)
    assert result.read_bytes >= source.nbytes


def test_it_learns(datasets: dict[str, Dataset]) -> None:
    """Nearly as well as the exact solver: rows were met in both layouts, with their own labels."""
    for layout, problem in (("dense", DENSE), ("sparse", SPARSE)):
        rows, accuracy = datasets[layout].take(np.arange(600)), []
        for solver, options in (("smo", {}), ("budgeted-sgd", {"budget": "200", "epochs": "10"})):
            model = train(datasets[layout], replace(OPTIONS, gamma=0.02, solver=solver, options=options)).model
            found = np.where(model.decide(rows.X) > 0, 1, -1)
            accuracy.append(np.average(found == problem.y, weights=problem.weight))
        assert accuracy[0] > 0.75
        assert accuracy[1] > accuracy[0] - 0.03


def test_a_sample_weight_is_a_cost(tmp_path: Path) -> None:
    """Of 2 it doubles the cost of a row, as a class weight does; of 0 the row is met and left."""
    plain = replace(DENSE, weight=None).store(tmp_path / "plain", chunk_bytes=1000)
    heavy = replace(DENSE, weight=np.where(DENSE.y > 0, 2.0, 1.0)).store(tmp_path / "heavy", chunk_bytes=1000)
    by_class = train(plain, replace(OPTIONS, class_weight={1: 2.0}))
    by_row = train(heavy, OPTIONS)
    models = [result.model for result in (by_row, by_class, train(plain, OPTIONS))]
    bits = []
    for model in models:  # what a model tells of its costs is not the same
        assert isinstance(model, KernelModel)
        bits.append((np.asarray(model.support_vectors).tobytes(), model.dual_coef.tobytes(), model.intercept))
    assert bits[0] == bits[1] != bits[2]
    one_sided = replace(DENSE, weight=np.where(DENSE.y > 0, 1.0, 0.0)).store(tmp_path / "one", chunk_bytes=1000)
    model = train(one_sided, OPTIONS).model
    assert isinstance(model, KernelModel)
    assert np.all(model.dual_coef > 0)


def test_a_flipped_bit_is_named(datasets: dict[str, Dataset], tmp_path: Path) -> None:
    source = datasets["dense"]
    chunk = Path(source.path) / "X" / "c" / "5" / "0"
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    for options in (OPTIONS, with_options(replicas=2)):
        with pytest.raises(IntegrityError, match=r"X/c/5"):
            train(source, replace(options, threads=2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "linear"}, "only vectors of the rbf kernel can be merged, not those of the linear kernel"),
        ({"kernel": "poly", "options": {"maintenance": "gradient-merge"}}, "only vectors of the rbf kernel"),
        ({"options": {"budget": "0"}}, "option budget=0: a whole number of at least 1 is expected"),
        ({"options": {"budget": "5", "merge": "7"}}, "merge is 7 and budget 5: merge must be between 2 and"),
        ({"options": {"merge": "1"}}, "option merge=1"),
        ({"options": {"maintenance": "magic"}}, "maintenance 'magic': choose from merge, gradient-merge"),
        ({"options": {"epochs": "0.5"}}, "option epochs=0.5"),
        ({"options": {"pack": "0"}}, "option pack=0"),
        ({"options": {"replicas": "none"}}, "option replicas=none"),
        ({"options": {"bias": "yes"}}, "bias 'yes': choose from none, free"),
        ({"options": {"cache_bytes": "1"}}, "option 'cache_bytes' is unknown to budgeted-sgd"),
        ({"resident_rows": 10}, "resident_rows has no effect with budgeted-sgd"),
        ({"kernel": "sigmoid", "options": {"maintenance": "projection"}}, "projection requires a Mercer kernel"),
        ({"kernel": "poly", "coef0": -1.0, "options": {"maintenance": "projection"}}, "projection requires a Mercer"),
        ({"options": {"budget": "90000000"}}, "90000000 support vectors of 7 features exceed 2 GB"),
        ({"C": 1e-320}, "C is 1e-320; the smallest supported value is 1e-290"),
    ],
)
def test_bad_settings_leave_nothing(
    change: dict[str, Any], message: str, datasets: dict[str, Dataset], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train(datasets["dense"], replace(OPTIONS, **change), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kernel", "maintenance"),
    [
        ("linear", "removal"),
        ("linear", "projection"),
        ("poly", "removal"),
        ("poly", "projection"),
        ("sigmoid", "removal"),
    ],
)
def test_other_kernels(kernel: str, maintenance: str, datasets: dict[str, Dataset]) -> None:
    options = replace(with_options(maintenance=maintenance), kernel=kernel, coef0=1.0)
    model = train(datasets["dense"], options).model
    found = np.where(model.decide(datasets["dense"].take(np.arange(600)).X) > 0, 1, -1)
    assert np.average(found == DENSE.y, weights=DENSE.weight) > 0.6


def test_the_shape_of_the_data_makes_the_buffers(datasets: dict[str, Dataset]) -> None:
    """Neither threads nor memory: with others the rows would come in another order."""
    source = datasets["dense"]
    assert settings_of(source, OPTIONS).buffer_chunks == 8
    for change in ({"threads": 4}, {"memory_bytes": 1 << 30}, {"workers": 2}):
        settings = settings_of(source, replace(OPTIONS, **change))  # type: ignore[arg-type]
        assert replace(settings, threads=1) == settings_of(source, OPTIONS)


def test_the_command(run: Run, datasets: dict[str, Dataset], tmp_path: Path) -> None:
    """The Gaussian kernel where none is named; 0 after the epochs asked for, 3 where a limit came before.

    gamma="scale" takes a read of its own.
    """
    data = datasets["dense"].path
    ran = run("train", data, "--solver", "budgeted-sgd", "--out", tmp_path / "a", "--json", "--option", "epochs=2")
    assert (ran.code, ran.result["status"], ran.result["passes"]) == (0, "pass_limit", 3)
    assert json.loads((tmp_path / "a" / "settings.json").read_text())["kernel"]["name"] == "rbf"
    arguments = ("train", data, "--solver", "budgeted-sgd", "--option", "epochs=2", "--max-passes", "2")
    ran = run(*arguments, "--out", tmp_path / "b")
    assert ran.code == 3
    assert "pass_limit" in ran.out
    ran = run("train", data, "--solver", "budgeted-sgd", "--kernel", "linear", "--out", tmp_path / "c")
    assert (ran.code, ran.out) == (2, "")
    assert "only vectors of the rbf kernel can be merged" in ran.err
    assert run("evaluate", tmp_path / "a", data, "--json").result["accuracy"] > 0.6


def test_too_little_memory_is_refused(datasets: dict[str, Dataset]) -> None:
    with pytest.raises(MemoryBudgetError, match="raise --memory to at least"):
        train(datasets["dense"], replace(OPTIONS, memory_bytes=100 << 20))
