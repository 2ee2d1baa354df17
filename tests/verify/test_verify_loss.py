"""The objective of a model with a smooth loss is computed anew, and a model that was altered is found out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.open import MemoryPlan, Opened, open_engine
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from streamsvm.verify import ranking
from streamsvm.verify.verify import verify
from tests.class_problems import make_classes
from tests.conftest import make_problem
from tests.data.conftest import measure_peak

PROBLEM = make_problem(4, n=300, d=5)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_the_objective_agrees(loss: str) -> None:
    source = PROBLEM.in_memory()
    options = TrainOptions(loss=loss, C=2.0, class_weight={"-1": 3.0}, options={"intercept_scaling": "2.0"})
    model = train(source, options).model
    found = verify(model, source)
    y = np.where(np.asarray(source.y) == 1, 1.0, -1.0)
    margins = y * (np.asarray(source.X, np.float64) @ model.coef + model.intercept)
    losses = np.maximum(0.0, 1.0 - margins) ** 2 if loss == "squared_hinge" else np.log1p(np.exp(-margins))
    costs = 2.0 * np.where(y < 0, 3.0, 1.0) * (1.0 if source.sample_weight is None else source.sample_weight)
    P = (model.coef @ model.coef + (model.intercept / 2.0) ** 2) / 2 + costs @ losses
    assert found.objective == pytest.approx(P, rel=1e-12)
    assert found.agrees
    assert found.relative_gap is not None
    assert found.relative_gap <= 1e-3


@pytest.mark.parametrize("task", ["multinomial", "crammer-singer"])
def test_the_objective_of_several_classes_agrees(task: str) -> None:
    problem = make_classes(4, n=300, n_classes=4, weighted=True)
    source, factors = problem.in_memory(), np.array([1.0, 3.0, 1.0, 0.5])
    weights = dict(enumerate(factors.tolist()))
    options = TrainOptions(task=task, C=2.0, class_weight=weights, options={"intercept_scaling": "2.0"})
    model: Any = train(source, options).model
    found = verify(model, source)
    scores = problem.X @ model.coef.T + model.intercept
    leads = scores - scores[np.arange(300), problem.y][:, None]
    others = np.where(np.arange(4) == problem.y[:, None], 0.0, 1.0 + leads)
    losses = np.log(np.sum(np.exp(leads), axis=1)) if task == "multinomial" else np.max(others, axis=1)
    P = (np.sum(model.coef**2) + np.sum((model.intercept / 2.0) ** 2)) / 2 + problem.costs(2.0, factors) @ losses
    assert found.objective == pytest.approx(P, rel=1e-12)
    assert found.agrees
    assert not verify(replace(model, coef=model.coef * 1.001), source).agrees
    strict = verify(replace(model, info={**model.info, "tol": 1e-30}), source)
    assert (strict.agrees, strict.objective_agrees) == (False, True)


MANY = 200  # classes
KINDS: dict[str, dict[str, Any]] = {
    "squared hinge": {"loss": "squared_hinge"},
    "all classes": {"task": "crammer-singer"},
    "softmax": {"task": "multinomial"},
    "kernel": {"kernel": "rbf", "multi_class": "ovr"},
    "all classes, kernel": {"kernel": "rbf", "task": "crammer-singer"},
    "pairs": {"kernel": "rbf", "n_classes": 20},
}


@pytest.mark.slow("measures the memory of the scores of 200 classes")
@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_of_many_classes_is_projected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of few features has many scores. The model is that of a few rows, since training takes longer."""
    settings = KINDS[kind]
    rng, K, n = np.random.default_rng(0), settings.get("n_classes", MANY), 1 << 15
    y = np.arange(n, dtype=np.int32) % K
    X = np.column_stack((y, rng.normal(size=n))).astype(np.float32)
    few, many = (ArrayDataset(X[:m], y[:m], np.arange(K)) for m in (2 * K, n))
    options = TrainOptions(max_passes=2, **{name: value for name, value in settings.items() if name != "n_classes"})
    model, plans = train(few, options).model, list[MemoryPlan]()

    @contextmanager
    def note(*given: Any) -> Iterator[Opened]:
        with open_engine(*given) as opened:
            plans.append(opened[1])
            yield opened

    monkeypatch.setattr("streamsvm.verify.verify.open_engine", note)
    peak = measure_peak(lambda: verify(model, many, threads=1))
    fixed = "interpreter and libraries", "slack"
    assert peak <= sum(size for name, size in plans[0].parts.items() if name not in fixed)


def test_another_model_does_not_agree() -> None:
    source = PROBLEM.in_memory()
    model = train(source, TrainOptions(loss="logistic")).model
    assert not verify(replace(model, coef=model.coef * 1.01), source).agrees


def test_losses_that_are_forged_are_refused(tmp_path: Path) -> None:
    source = PROBLEM.in_memory()
    model = train(source, TrainOptions(loss="logistic")).model
    replace(model, info={**model.info, "loss": "magic"}).save(tmp_path / "model.npz")
    with pytest.raises(InputError, match="the loss is 'magic'"):
        load(tmp_path / "model.npz")
    problem = {**model.info["problem"], "loss": "magic"}
    with pytest.raises(InputError, match="names two different losses"):
        verify(replace(model, info={**model.info, "problem": problem}), source)


@pytest.mark.parametrize(
    ("keeps", "settings"),
    [
        (True, {}),
        (True, {"solver": "interior-point"}),
        (True, {"task": "rank"}),
        (False, {"loss": "logistic"}),
        (False, {"loss": "squared_hinge", "penalty": "l1"}),
        (False, {"task": "crammer-singer"}),
    ],
)
def test_a_bound_without_a_dual_point_says_whether_there_can_be_one(
    keeps: bool, settings: dict[str, Any], tmp_path: Path
) -> None:
    """What `verify` says is what a training with `keep_dual` does."""
    source, options = PROBLEM.in_memory(), TrainOptions(**settings)
    model = train(source, options).model
    told = "no such file: .* train with --keep-dual to keep one" if keeps else "keeps no dual point, so the"
    with pytest.raises(InputError, match=told):
        verify(model, source, dual=True, dual_file=tmp_path / "dual.npz")
    if keeps:
        train(source, options, tmp_path / "run", keep_dual=True)
        assert (tmp_path / "run" / "dual.npz").exists()
    else:
        with pytest.raises(InputError, match="remove --keep-dual"):
            train(source, options, tmp_path / "run", keep_dual=True)


def test_there_is_no_dual_point(tmp_path: Path) -> None:
    source = PROBLEM.in_memory()
    with pytest.raises(InputError, match="no dual point is kept"):
        train(source, TrainOptions(loss="logistic"), tmp_path / "run", keep_dual=True)


def test_the_memory_of_all_pairs_is_projected() -> None:
    """With many ranks the scores of all rows are in memory, in twice the precision."""

    def make(n: int) -> ArrayDataset:
        random = np.random.default_rng(0)
        X, ranks = random.standard_normal((n, 2)).astype(np.float32), random.integers(0, 20, n)
        return ArrayDataset(X, ranks.astype(np.int32), np.arange(20))

    model = train(make(2000), TrainOptions(task="rank", max_passes=2, threads=1)).model
    few, many = make(1 << 15), make(1 << 16)
    verify(model, make(200), threads=1)  # loads the compiled functions
    peaks = [measure_peak(lambda source=source: verify(model, source, threads=1)) for source in (few, many)]
    planned = [ranking.count_bytes(source, "rank", [])[0] for source in (few, many)]
    assert peaks[1] - peaks[0] <= planned[1] - planned[0]
