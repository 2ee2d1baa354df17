"""`verify` computes the objective of a saved model anew, and tells a model that does not fit its rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.certificates.dual_points import Bound
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.features import make_features
from streamsvm.runs.train import train
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import _find_inaccuracy, verify
from tests.commands import Run, run  # noqa: F401  (a fixture)
from tests.conftest import make_problem

SETTINGS: dict[str, dict[str, Any]] = {
    "cutting-plane": {"options": {"intercept_scaling": "2"}},
    "smo": {"solver": "smo", "kernel": "rbf", "gamma": 0.2},
    "interior-point": {"solver": "interior-point"},
    "roc-area": {"task": "roc-area"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    problem = make_problem(5, n=300, d=6, weighted=True)
    return problem.store(tmp_path_factory.mktemp("data") / "rows.zarr", chunk_bytes=2000)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_model_is_what_it_tells(data: Dataset, name: str) -> None:
    result = train(data, TrainOptions(threads=1, **SETTINGS[name]))
    found = verify(result.model, data, threads=1)
    assert found.agrees
    assert found.objective == pytest.approx(result.objective, rel=1e-9)
    assert found.told_objective == result.objective


@pytest.mark.parametrize("name", SETTINGS)
def test_a_model_that_was_altered_is_told(data: Dataset, name: str) -> None:
    model: Any = train(data, TrainOptions(threads=1, **SETTINGS[name])).model
    if name == "smo":
        other = replace(model, dual_coef=model.dual_coef * (1 + 1e-4))
    else:
        other = replace(model, coef=model.coef * (1 + 1e-4))
    assert not verify(other, data, threads=1).agrees


def test_more_classes_than_two(tmp_path: Path) -> None:
    problem = make_problem(6, n=200, d=5)
    labels = np.where(problem.dense()[:, 1] > 0.5, 2, problem.y)
    data = replace(problem, y=labels).store(tmp_path / "rows.zarr")
    for settings in (SETTINGS["cutting-plane"], SETTINGS["smo"]):
        result = train(data, TrainOptions(threads=1, class_weight={2: 3.0}, **settings))
        assert verify(result.model, data, threads=1).agrees


def test_the_dual_point_of_a_kernel_model(tmp_path: Path) -> None:
    data = make_problem(7, n=200, d=4).store(tmp_path / "rows.zarr")
    result = train(data, TrainOptions(threads=1, tol=1e-6, **SETTINGS["smo"]))
    found = verify(result.model, data, dual=True, threads=1)
    assert found.lower_bound == pytest.approx(result.lower_bound, rel=1e-6)
    assert found.lower_bound <= found.objective
    model: Any = result.model
    with pytest.raises(InputError, match="do not sum to zero"):
        verify(replace(model, dual_coef=np.abs(model.dual_coef)), data, dual=True, threads=1)
    with pytest.raises(InputError, match="above the cost"):
        verify(replace(model, dual_coef=10 * model.dual_coef), data, dual=True, threads=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stretched_model_proves_the_bound_of_its_multipliers(tmp_path: Path, weighted: bool) -> None:
    """A model may be its multipliers times a stretch, of rows with weights, too; a longer one is no such model."""
    data = make_problem(7, n=200, d=4, weighted=weighted).store(tmp_path / "rows.zarr")
    result = train(data, TrainOptions(threads=1, tol=1e-6, **SETTINGS["smo"]))
    model: Any = result.model
    found = verify(replace(model, dual_coef=model.dual_coef * (1.0 + 1e-7)), data, dual=True, threads=1)
    assert found.lower_bound == pytest.approx(result.lower_bound, rel=1e-5)
    assert found.lower_bound <= result.objective
    with pytest.raises(InputError, match="above the cost"):
        verify(replace(model, dual_coef=10 * model.dual_coef), data, dual=True, threads=1)


def test_what_cannot_be_verified_is_said(data: Dataset) -> None:
    model = train(data, TrainOptions(threads=1)).model
    with pytest.raises(InputError, match="holds no dual point"):
        verify(model, data, dual=True)
    with pytest.raises(InputError, match="does not store the costs"):
        verify(replace(model, info={}), data)


def test_the_command(data: Dataset, tmp_path: Path, run: Run) -> None:  # noqa: F811
    train(data, TrainOptions(threads=1), tmp_path / "run")
    told = run("verify", tmp_path / "run", data.path, "--json")
    assert told.result["agrees"]
    assert told.code == 0
    model = load(tmp_path / "run")
    replace(model, info=model.info | {"objective": 2 * model.info["objective"]}).save(tmp_path / "forged.npz")
    told = run("verify", tmp_path / "forged.npz", data.path)
    assert told.code == 1
    assert "DIFFERS from the model" in told.out
    replace(model, info=model.info | {"tol": 1e-30}).save(tmp_path / "strict.npz")
    told = run("verify", tmp_path / "strict.npz", data.path)
    assert told.code == 1
    assert "may agree with the model" in told.out
    assert "nothing is confirmed: rounding may have changed the objective by up to" in told.out
    told = run("verify", tmp_path / "strict.npz", data.path, "--json")
    assert (told.code, told.result["agrees"]) == (1, False)
    assert "cannot confirm the model" in told.result["reason"]


INACCURATE: dict[str, dict[str, Any]] = {
    **SETTINGS,
    "newton": {"loss": "squared_hinge"},
    "absolute": {"task": "regress", "loss": "epsilon_insensitive"},
    "Crammer-Singer": {"task": "crammer-singer"},
    "Crammer-Singer with a kernel": {"task": "crammer-singer", "solver": "smo", "kernel": "rbf", "gamma": 0.2},
    "rank": {"task": "rank"},
    "one class": {"task": "one-class", "solver": "cutting-plane", "nu": 0.2},
    "one class with a kernel": {"task": "one-class", "solver": "smo", "kernel": "rbf", "gamma": 0.2},
    "nu-SVC": {"task": "nu-classify", "solver": "smo", "kernel": "rbf", "gamma": 0.2},
    "budgeted-sgd": {"solver": "budgeted-sgd", "kernel": "rbf", "gamma": 0.2},
}


@pytest.mark.parametrize("name", INACCURATE)
def test_where_rounding_exceeds_the_tolerance_nothing_agrees(data: Dataset, name: str) -> None:
    settings = INACCURATE[name]
    source: Any = data
    if settings.get("task") == "regress":
        source = ArrayDataset(np.random.default_rng(0).normal(size=(60, 3)), None, None, target=np.arange(60.0))
    model: Any = train(source, TrainOptions(threads=1, **settings)).model
    assert model.info["tol"] == 1e-3
    found = verify(model, source, threads=1)
    assert (found.agrees, found.reason) == (True, None)
    found = verify(replace(model, info=model.info | {"tol": 1e-30}), source, threads=1)
    assert (found.agrees, found.objective_agrees) == (False, True)
    assert "rounding may have changed" in str(found.reason)
    assert "1e-30 times the objective" in str(found.reason)


@pytest.mark.parametrize("task", ["one-class", "nu-classify"])
def test_an_objective_below_zero_agrees(data: Dataset, task: str) -> None:
    """An indefinite kernel may have a negative |w|^2, and with it a negative objective."""
    kernel: dict[str, Any] = {"solver": "smo", "kernel": "sigmoid", "gamma": 0.2, "coef0": -1.0, "nu": 0.2}
    found = verify(train(data, TrainOptions(task=task, threads=1, **kernel)).model, data, threads=1)
    assert found.objective < 0.0
    assert found.agrees


def test_the_rounding_of_the_lower_bound_counts_as_well() -> None:
    model: Any = SimpleNamespace(info={})  # of an older version, which tells no tolerance
    for rounding, bound, what in (
        (0.009, None, None),
        (0.011, None, "objective"),
        (0.009, Bound(9.0, 0.009), None),
        (0.009, Bound(9.0, 0.011), "lower bound"),
        (float("nan"), None, "objective"),
        (0.009, Bound(9.0, float("nan")), "lower bound"),
    ):
        reason = _find_inaccuracy(model, 10.0, rounding, bound)
        assert reason is None if what is None else f"changed the {what} by" in str(reason)


def test_coefficients_that_cancel_are_not_confirmed(data: Dataset) -> None:
    """Two copies of a row with +-1e14 change no score, but nobody can compute the objective of such a model."""
    model: Any = train(data, TrainOptions(threads=1, **SETTINGS["smo"])).model
    vectors, coef = model.support_vectors, model.dual_coef
    forged = replace(
        model, support_vectors=vectors[np.r_[: len(coef), 0, 0]], dual_coef=np.r_[coef, 1e14, -1e14], support=None
    )
    found = verify(forged, data, threads=1)
    assert found.rounding_bound > 1e-3 * found.objective
    assert not found.agrees


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_a_budgeted_model_has_an_objective_of_all_rows(tmp_path: Path, bias: str, n_classes: int) -> None:
    """1/2 |w|^2 + sum C_i max(0, 1 - y_i f_i), written out; what the training told is an estimate by a sample."""
    problem, weights = make_problem(8, n=1500, d=3, weighted=True), {1: 2.0}
    codes = np.arange(1500) % 3 if n_classes == 3 else (problem.y > 0).astype(np.int64)
    data = replace(problem, y=codes).store(tmp_path / "rows.zarr")
    own = {"budget": "30", "bias": bias}
    options = TrainOptions(
        C=0.5, solver="budgeted-sgd", kernel="rbf", gamma=0.2, threads=1, class_weight=weights, options=own
    )
    train(data, options, tmp_path / "run")
    model: Any = load(tmp_path / "run")
    X, Z = problem.dense(), np.asarray(model.support_vectors, np.float64)
    K, L = (np.exp(-0.2 * ((A[:, None] - Z[None]) ** 2).sum(axis=2)) for A in (X, Z))
    P = 0.0
    models = zip(np.atleast_2d(model.dual_coef), np.atleast_1d(model.intercept), strict=True)
    for k, (coef, intercept) in enumerate(models, start=3 - n_classes if n_classes == 2 else 0):
        y = np.where(codes == k, 1.0, -1.0)
        costs = 0.5 * np.where((codes == 1) & (k == 1), 2.0, 1.0) * np.asarray(problem.weight)
        P += 0.5 * coef @ L @ coef + costs @ np.maximum(0.0, 1.0 - y * (K @ coef + intercept))
    found = verify(model, data, threads=1)
    assert found.objective == pytest.approx(P, rel=1e-9)
    assert found.told_is_estimate
    assert found.agrees
    assert found.lower_bound is None


def test_the_command_on_a_budgeted_model(data: Dataset, tmp_path: Path, run: Run) -> None:  # noqa: F811
    train(data, TrainOptions(threads=1, solver="budgeted-sgd", kernel="rbf", gamma=0.2), tmp_path / "run")
    told = run("verify", tmp_path / "run", data.path)
    assert told.code == 0
    assert "so it cannot be checked" in told.out
    assert run("verify", tmp_path / "run", data.path, "--json").result["told_is_estimate"]


def test_rows_of_other_features_are_refused(data: Dataset, tmp_path: Path) -> None:
    other = make_problem(5, n=300, d=7).store(tmp_path / "other.zarr")
    for settings in SETTINGS.values():
        with pytest.raises(InputError, match="the rows have 7 features, but the model was trained on 6 features"):
            verify(train(data, TrainOptions(threads=1, **settings)).model, other, threads=1)


@pytest.mark.parametrize("name", ["cutting-plane", "smo"])
def test_rows_that_are_scaled_otherwise_are_refused(name: str, tmp_path: Path) -> None:
    """Their objective is another one, whether they are the rows of the training or not."""
    problem = make_problem(8, n=200, d=4)
    scaled, raw = (problem.store(tmp_path / f"{scale}.zarr", scale=scale) for scale in ("standard", "none"))
    model = train(scaled, TrainOptions(threads=1, **SETTINGS[name])).model
    assert verify(model, scaled, threads=1).agrees
    with pytest.raises(InputError, match="scaled differently"):
        verify(model, raw, threads=1)


def test_a_model_of_mapped_features(data: Dataset, tmp_path: Path) -> None:
    kernel = TrainOptions(kernel="rbf", gamma=0.2, threads=1)
    mapped = make_features(data, tmp_path / "mapped.zarr", FeatureOptions("nystrom", 20), kernel).dataset
    result = train(mapped, TrainOptions(threads=1), tmp_path / "run", keep_dual=True)
    found = verify(load(tmp_path / "run"), mapped, True, threads=1, dual_file=tmp_path / "run" / "dual.npz")
    assert found.agrees
    assert found.objective == pytest.approx(result.objective, rel=1e-9)
