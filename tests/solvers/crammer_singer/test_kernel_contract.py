"""Crammer-Singer with kernels owes what every method does: the same bits, memory as planned, and usable models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm import SMO, SVC, NuSVC, load
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import KernelModel
from streamsvm.options import TrainOptions
from streamsvm.passes import Step, Take
from streamsvm.plan.predict import plan_training
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.solvers.crammer_singer import kernel_active_set
from streamsvm.solvers.crammer_singer.kernel_solver import ClassDecomposition, solve, start_state
from streamsvm.solvers.set_up import set_up
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.class_problems import make_classes, measure_driver
from tests.linear_problems import run_steps

OPTIONS = TrainOptions(task="crammer-singer", kernel="rbf", gamma=0.1, threads=1, C=0.5)
PROBLEM = make_classes(1, n=1500, d=10, n_classes=4)
JOINT: dict[str, Any] = {"multi_class": "crammer_singer"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return PROBLEM.store(tmp_path_factory.mktemp("classes") / "rows.zarr", chunk_bytes=8_000)


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("own", [{"resident_rows": "20%"}, {}], ids=["few-rows", "memory"])
def test_the_same_bits_on_any_engine_and_resumed(
    own: dict[str, Any], data: Dataset, client: Client, many_groups: None, tmp_path: Path
) -> None:
    options = replace(OPTIONS, **own)
    found = [train(data, replace(options, threads=threads)) for threads in (1, 2)]
    found.append(train(data, options, client=client))
    train(data, replace(options, max_passes=1), tmp_path / "run")
    found.append(train(data, options, tmp_path / "run", resume=True))
    assert len({result.model_sha256 for result in found}) == 1
    assert found[0].status == "converged"


@pytest.mark.parametrize("kernel", [Kernel("rbf", 0.1), Kernel("linear")], ids=["rbf", "linear"])
def test_gone_on_from_any_state_to_the_same_bits(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 10_000)
    source = replace(PROBLEM, sparse=True).in_memory()
    settings = ClassDecomposition((0.5,) * 4, kernel, resident_rows=400, precise_rows=400, working_rows=100)
    steps = run_steps(source, solve(settings, start_state(1500, 4)))
    assert len(steps) > 2
    for step in steps[:-1:2]:
        after = run_steps(source, solve(settings, step.state))[-1].state
        assert np.array_equal(after.share, steps[-1].state.share)
        assert np.array_equal(after.F, steps[-1].state.F)


def test_d_rises_with_every_step_and_no_row_that_has_no_cost_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 10_000)
    problem = make_classes(2, n=900, d=6, weighted=True)
    fit = set_up(problem.in_memory(), replace(OPTIONS, resident_rows=150))
    steps = run_steps(problem.in_memory(), fit.solve(fit.start()))
    bounds = [float(step.progress.lower_bound or 0.0) for step in steps]
    assert bounds == sorted(bounds)
    assert problem.weight is not None
    assert not np.any(steps[-1].state.share[problem.weight == 0.0])


def test_no_row_is_active_twice_where_most_rows_have_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 of 80 rows have no weight, and 40 are active: more than there are with a cost."""
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 500)
    problem = make_classes(4, n=80)
    weight = (np.random.default_rng(1).permutation(80) < 20) * 1.0
    source = replace(problem, weight=weight).in_memory()
    fit = set_up(source, replace(OPTIONS, resident_rows=40, tol=1e-5))
    solver, engine = fit.solve(fit.start()), SerialEngine(source)
    request, taken = next(solver), []
    while not (isinstance(request, Step) and request.status):
        taken += [request.rows] if isinstance(request, Take) else []
        request = solver.send(None if isinstance(request, Step) else answer(engine, request))
    assert request.status == "converged"
    assert len(taken) > 1
    assert all(len(np.unique(rows)) == len(rows) == 40 for rows in taken)


@pytest.mark.parametrize("own", [{}, {"resident_rows": 500}], ids=["memory", "few-rows"])
def test_the_driver_holds_what_is_planned(own: dict[str, Any]) -> None:
    """Shares and sums of all rows, active rows with kernel columns, and a checkpoint after each step."""
    n = 8_000 if own else 900
    solver, peak, planned = measure_driver(replace(OPTIONS, **own), n, most=2)
    assert peak <= planned
    assert solver.settings["resident_rows"] == (500 if own else n)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_model_is_verified_and_evaluated(n_classes: int, kernel: str) -> None:
    problem = make_classes(3, n=300, d=5, n_classes=n_classes, density=0.7)
    options = replace(OPTIONS, solver="smo", kernel=kernel, class_weight={"1": 2.0})
    result, source = train(problem.in_memory(), options), problem.in_memory()
    assert isinstance(result.model, KernelModel)
    found = verify(result.model, source, dual=True)
    assert found.agrees
    assert found.lower_bound == pytest.approx(result.lower_bound, rel=1e-9)
    altered = replace(result.model, dual_coef=result.model.dual_coef * (1 + 1e-5))
    assert not verify(altered, source).objective_agrees
    with pytest.raises(InputError, match="above the cost"):
        verify(replace(result.model, dual_coef=result.model.dual_coef * 1.5), source, dual=True)
    with pytest.raises(InputError, match=r"do not belong to its class; .* in the same order"):
        verify(replace(result.model, dual_coef=-result.model.dual_coef), source, dual=True)
    scores = compute_scores(result.model, problem.X)
    chosen = np.argmax(scores, axis=1) if n_classes > 2 else (scores > 0).astype(int)
    assert evaluate(result.model, source)["accuracy"] == pytest.approx(np.mean(chosen == problem.y), abs=1e-9)


def compute_scores(model: KernelModel, X: Any) -> Any:
    """Return scores by the formula of the model."""
    Z = np.asarray(X)[model.support]
    squares = np.sum((np.asarray(X)[:, None] - Z[None]) ** 2, axis=2)
    K = X @ Z.T if model.kernel.name == "linear" else np.exp(-model.kernel.gamma * squares)
    return K @ model.dual_coef.T + model.intercept


def test_tuned_and_planned(data: Dataset) -> None:
    tuned = tune(data, OPTIONS, [0.01, 0.5], folds=3)
    assert all(trial.converged for trial in tuned.trials)
    assert tuned.result.model.problem.name == "crammer-singer"
    assert plan_training(data, OPTIONS).as_json()["passes"] == 1


def test_a_fitted_estimator(tmp_path: Path) -> None:
    for n_classes in (2, 4):
        problem = make_classes(3, n=300, n_classes=n_classes)
        model = SVC(C=0.5, probability="temperature", solver=SMO(intercept_scaling=0.5), **JOINT).fit(
            problem.X, problem.y
        )
        m = len(model.support_)
        assert model.dual_coef_.shape == ((1, m) if n_classes == 2 else (n_classes, m))
        assert model.n_support_.sum() == m
        assert model.predict_proba(problem.X).shape == (300, n_classes)
        model.save(tmp_path / "model.npz")
        loaded = load(tmp_path / "model.npz")
        assert loaded.get_params()["multi_class"] == "crammer_singer"
        assert loaded.get_params()["solver"] == SMO(intercept_scaling=0.5)
        assert np.array_equal(loaded.predict(problem.X), model.predict(problem.X))


def test_named_labels_and_weights_of_rows_are_costs() -> None:
    problem = make_classes(5, n=120)
    names, weight = np.array(["a", "b", "c"])[problem.y], np.random.default_rng(0).integers(1, 4, 120)
    weighted = SVC(**JOINT, gamma=0.2, tol=1e-6).fit(problem.X, names, sample_weight=weight)
    repeated = SVC(**JOINT, gamma=0.2, tol=1e-6).fit(np.repeat(problem.X, weight, axis=0), np.repeat(names, weight))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=3e-6)
    assert set(weighted.predict(problem.X)) <= {"a", "b", "c"}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"kernel": "sigmoid"}, "kernel 'sigmoid': choose from linear, rbf, poly, precomputed"),
        ({"solver": "irwls"}, "use --solver cutting-plane or smo"),
        ({"solver": "interior-point"}, "use --solver cutting-plane or smo"),
        ({"solver": SMO(selection="platt")}, "option 'selection' is unknown"),
        ({"kernel": "poly", "degree": 1, "coef0": -1.0}, "remove coef0"),
        ({"solver": SMO(intercept_scaling=-1.0)}, "a positive number or 0 is expected"),
        ({"C": 0.0}, "C is 0"),
        ({"C": np.inf}, "C is inf; it must be positive and finite"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], reason: str) -> None:
    problem = make_classes(0)
    with pytest.raises(InputError, match=reason):
        SVC(**JOINT, **wrong).fit(problem.X, problem.y)


def test_pairs_and_shares_of_rows_have_no_such_problem() -> None:
    problem = make_classes(0)
    with pytest.raises(InputError, match="smo supports ovo and ovr"):
        NuSVC(nu=0.2, **JOINT).fit(problem.X, problem.y)
    model = SVC(**JOINT, decision_function_shape="ovo").fit(problem.X, problem.y)
    with pytest.raises(InputError, match="no pairs of classes were trained"):
        model.decision_function(problem.X)
    with pytest.raises(InputError, match="option 'intercept_scaling' is unknown"):
        SVC(solver=SMO(intercept_scaling=2.0)).fit(problem.X, problem.y)


def test_a_step_whose_active_rows_are_one_working_set_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly D rises: otherwise neither a limit of seconds nor Ctrl-C would be looked at between two steps."""
    rounds: list[int] = []

    def rise_a_little(*given: Any) -> tuple[float, bool]:
        rounds.append(len(given))
        return 1.0, False

    monkeypatch.setattr(kernel_active_set, "_improve_working_set", rise_a_little)
    source = make_classes(3, n=60, d=3, n_classes=3).in_memory()
    result = train(source, replace(OPTIONS, max_passes=2))
    assert (result.status, result.passes) == ("pass_limit", 2)
    assert len(rounds) == 2 * kernel_active_set.SAME_SET_ROUNDS
