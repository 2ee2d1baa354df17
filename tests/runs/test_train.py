"""Training from rows to a certified model: the same answer however rows are stored and whoever computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_sample_weight

import streamsvm
from streamsvm import estimators
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import SerialEngine
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event, Result
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.conftest import Problem, choose_examples, compute_objective, make_problem
from tests.linear_problems import bracket_by_qp

PROBLEMS = st.builds(
    make_problem,
    seed=st.integers(0, 10**6),
    n=st.integers(20, 250),
    d=st.integers(1, 10),
    density=st.sampled_from([1.0, 0.4]),
    weighted=st.booleans(),
)
COSTS = st.floats(-3, 1).map(lambda exponent: 10.0**exponent)


@settings(max_examples=choose_examples(10, 30, 30))
@given(
    problem=PROBLEMS,
    C=COSTS,
    layout=st.sampled_from(["dense", "sparse"]),
    codec=st.sampled_from(["crc32c", "lz4"]),
    chunk_bytes=st.integers(50, 4000),
)
def test_how_rows_are_chunked_does_not_change_the_answer(
    problem: Problem, C: float, layout: str, codec: str, chunk_bytes: int
) -> None:
    """Both objectives are within 1e-9 of the optimum, and so, P being strongly convex, both points are near w*.

    P(w) >= P* + 1/2 |w - w*|^2, hence |w - v| <= 2 sqrt(2 gap).
    """
    options = TrainOptions(C=C, tol=1e-9, threads=2)
    here = train(problem.in_memory(), options)
    with TemporaryDirectory() as folder:
        dataset = problem.store(Path(folder) / "rows", layout=layout, codec=codec, chunk_bytes=chunk_bytes)
        there = train(dataset, options)
    assert (here.status, there.status) == ("converged", "converged")
    assert there.objective == pytest.approx(here.objective, rel=1.01e-9)
    gap = max(each.objective - proved(each) for each in (here, there))
    points = [np.append(result.model.coef, result.model.intercept) for result in (here, there)]
    assert np.linalg.norm(points[0] - points[1]) <= 2 * np.sqrt(2 * gap) + 1e-12


def proved(result: Result) -> float:
    assert result.lower_bound is not None
    return result.lower_bound


def train_serially(source: Any, options: TrainOptions) -> Result:
    """By the reference engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "ThreadedEngine", lambda rows, threads, pin_bytes, *_: SerialEngine(rows, pin_bytes))
        return train(source, options)


@settings(max_examples=choose_examples(3, 8, 8))
@given(problem=PROBLEMS, C=COSTS, chunk_bytes=st.integers(300, 4000))
def test_who_computes_never_changes_a_bit(client: Client, problem: Problem, C: float, chunk_bytes: int) -> None:
    """Serially, on threads, on workers; the groups are as many as may be."""
    options = TrainOptions(C=C, threads=1)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.data.rows.source.SMALLEST_GROUP_BYTES", 1)
        dataset = problem.store(Path(folder) / "rows", chunk_bytes=chunk_bytes)
        expected = train_serially(dataset, options)
        results = [train(dataset, replace(options, threads=threads)) for threads in (1, 2, 4)]
        results.append(train(dataset, options, client=client))
    assert {result.model_sha256 for result in results} == {expected.model_sha256}
    assert all(same_steps(result, expected) for result in results)


def same_steps(left: Result, right: Result) -> bool:
    names = ("step", "passes", "objective", "lower_bound")
    steps = [[[line[name] for name in names] for line in result.history] for result in (left, right)]
    return steps[0] == steps[1]


@pytest.mark.usefixtures("many_groups", "workers_import_tests")
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_threads_and_workers_give_the_same_bits(layout: str, client: Client, thorough: bool, tmp_path: Path) -> None:
    """1, 2 and 4 of each, workers that are there or are started; with all chunks kept in memory, and with none."""
    problem = make_problem(1, n=3000, d=30, density=1.0 if layout == "dense" else 0.2, weighted=True)
    dataset = problem.store(tmp_path / "rows", layout=layout, chunk_bytes=8000)
    options = TrainOptions(resident_rows="10%")
    results = [train(dataset, replace(options, threads=threads)) for threads in (1, 2, 4)]
    results.append(train(dataset, options, client=client))
    if layout == "dense":
        results += [train(dataset, replace(options, workers=workers)) for workers in ((1, 4) if thorough else (1,))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.engines.tasks.load_chunk", lambda source, index, pins: None)
        streamed = train(dataset, replace(options, threads=2))
    assert streamed.read_bytes > 2 * results[0].read_bytes
    assert {result.model_sha256 for result in results} == {streamed.model_sha256}


@pytest.mark.usefixtures("many_groups")
def test_a_run_may_change_hands(client: Client, tmp_path: Path) -> None:
    """Begun on workers, gone on with on threads, ended on workers: the bits of one who did it all."""
    dataset, out = make_problem(6, weighted=True).store(tmp_path / "rows", chunk_bytes=700), tmp_path / "run"
    options = TrainOptions(tol=1e-9, options={"acceleration": "line-search"})
    whole = train(dataset, options)
    assert whole.passes > 6
    train(dataset, replace(options, max_passes=2), out=out, client=client)
    train(dataset, replace(options, max_passes=5, threads=2), out=out, resume=True)
    last = train(dataset, options, out=out, resume=True, client=client)
    assert last.model_sha256 == whole.model_sha256
    assert same_steps(last, whole)


@pytest.mark.parametrize(
    ("options", "negative", "positive", "bias_feature"),
    [
        ({}, 1.0, 1.0, 1.0),
        ({"class_weight": {-1: 3.0, 1: 0.5}}, 3.0, 0.5, 1.0),
        ({"class_weight": {"1": 2.0}}, 1.0, 2.0, 1.0),
        ({"class_weight": {1: 0.0}}, 1.0, 0.0, 1.0),
        ({"options": {"intercept_scaling": "5"}}, 1.0, 1.0, 5.0),
        ({"options": {"acceleration": "none"}, "tol": 0.01}, 1.0, 1.0, 1.0),
    ],
)
@pytest.mark.parametrize("weighted", [True, False])
def test_the_objective_is_that_of_the_model(
    options: dict[str, Any], negative: float, positive: float, bias_feature: float, weighted: bool
) -> None:
    """P recomputed from the model in float64; the optimum lies between the bounds."""
    problem = make_problem(4, n=120, d=5, weighted=weighted)
    chosen = TrainOptions(**{"C": 0.3, "tol": 1e-6, **options})
    result, costs = train(problem.in_memory(), chosen), problem.costs(0.3, negative, positive)
    assert result.objective == pytest.approx(compute_objective(problem, result.model, costs, bias_feature), rel=1e-10)
    optimum = bracket_by_qp(problem, costs, bias_feature)
    assert proved(result) <= optimum.high * (1 + 1e-12)
    assert optimum.low * (1 - 1e-12) <= result.objective <= optimum.high * (1 + chosen.tol)
    assert result.relative_gap == (result.objective - proved(result)) / result.objective <= chosen.tol


def test_balanced_weights_are_n_over_classes_times_count() -> None:
    problem = make_problem(5, n=90, d=4)
    n_negative, n_positive = (int(np.sum(problem.y == label)) for label in (-1, 1))
    assert n_negative != n_positive
    by_hand = {-1: 90 / (2 * n_negative), 1: 90 / (2 * n_positive)}
    results = [train(problem.in_memory(), TrainOptions(class_weight=w)) for w in ("balanced", by_hand)]
    assert results[0].objective == pytest.approx(results[1].objective, rel=1e-12)


@pytest.mark.parametrize("layout", ["memory", "disk"])
def test_balanced_weights_count_a_row_as_often_as_it_weighs(layout: str, tmp_path: Path) -> None:
    """A weight of 2 is a row that is there twice, and a weight of 0 one that is not, as in scikit-learn's LinearSVC."""
    problem = make_problem(5, n=90, d=4)
    times = np.arange(90) % 3
    rows = np.repeat(np.arange(90), times)
    repeated = Problem(problem.X[rows], problem.y[rows])
    weighted = Problem(problem.X, problem.y, times.astype(float))
    source = weighted.store(tmp_path / "rows", chunk_bytes=500) if layout == "disk" else weighted.in_memory()
    options = TrainOptions(class_weight="balanced", tol=1e-9)
    left, right = train(source, options), train(repeated.in_memory(), options)
    assert left.objective == pytest.approx(right.objective, rel=2e-9)
    rows_only = train(source, TrainOptions(class_weight={label: 45 / np.sum(problem.y == label) for label in (-1, 1)}))
    assert abs(rows_only.objective / left.objective - 1) > 0.001
    costs = weighted.weight * compute_sample_weight("balanced", repeated.y)[np.cumsum(times) - 1]
    assert left.objective == pytest.approx(compute_objective(weighted, left.model, costs), rel=1e-9)


def test_balanced_weights_of_a_class_that_weighs_nothing_are_refused() -> None:
    problem = make_problem(5, n=90, d=4)
    weighted = Problem(problem.X, problem.y, (problem.y > 0).astype(float))
    with pytest.raises(InputError, match="'balanced': the sample weights of class -1 are all zero"):
        train(weighted.in_memory(), TrainOptions(class_weight="balanced"))


@pytest.mark.parametrize(
    ("status", "options", "passes"), [("pass_limit", {"max_passes": 3}, 3), ("time_limit", {"max_seconds": 1e-9}, 1)]
)
def test_a_limit_ends_a_run(status: str, options: dict[str, Any], passes: int, tmp_path: Path) -> None:
    """With a model, a finite objective and a gap all the same, as JSON that others can read."""
    few = TrainOptions(tol=1e-9, options={"acceleration": "line-search"}, **options)
    result = train(make_problem(1).in_memory(), few, out=tmp_path / "run")
    assert (result.status, result.passes) == (status, passes)
    text = (tmp_path / "run" / "result.json").read_text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["status"] == status
    assert load(tmp_path / "run").to_bytes() == result.model.to_bytes()


def test_a_result_tells_what_the_interface_promises() -> None:
    problem = make_problem(1, n=200, d=3)
    events: list[Event] = []
    result = train(problem.in_memory(), TrainOptions(), listener=events.append)
    promised = {
        "status",
        "solver",
        "objective",
        "lower_bound",
        "relative_gap",
        "passes",
        "steps",
        "seconds",
        "read_bytes",
        "peak_memory_bytes",
        "projected_memory_bytes",
        "n_rows",
        "n_features",
        "n_support_vectors",
        "model_sha256",
    }
    assert promised <= result.as_json().keys()
    assert (result.n_rows, result.n_features, result.solver) == (200, 3, "cutting-plane")
    assert result.steps == len(result.history) == len(events) == result.passes
    assert [event.line for event in events] == result.history
    assert result.model_sha256 == hashlib.sha256(result.model.to_bytes()).hexdigest()
    assert {event.plan.projected_bytes for event in events} == {result.projected_memory_bytes}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "magic"}, "solver 'magic': choose from auto, cutting-plane"),
        ({"C": 0.0}, "C is 0.0; it must be positive"),
        ({"C": float("nan")}, "C is nan"),
        ({"C": float("inf")}, "C is inf"),
        ({"C": "1"}, "C is '1'"),
        ({"tol": -1.0}, "tol is -1.0"),
        ({"class_weight": {7: 1.0}}, "class_weight names 7; the classes are -1 and 1"),
        ({"class_weight": {1: -1.0}}, "class_weight of 1 is -1.0"),
        ({"class_weight": "fair"}, "class_weight 'fair'"),
        ({"options": {"speed": "11"}}, "option 'speed' is unknown"),
        (
            {"options": {"acceleration": "much"}},
            "acceleration 'much': choose from auto, one-read, block-ascent, line-search",
        ),
        ({"options": {"epsilon": "0"}}, "option epsilon=0: a positive number"),
        ({"options": {"epsilon": "small"}}, "option epsilon=small"),
        ({"options": {"max_cuts": "3"}}, "option max_cuts=3: a whole number of at least 4"),
        ({"options": {"max_cuts": "10.5"}}, "option max_cuts=10.5: a whole number"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        train(make_problem(1).in_memory(), TrainOptions(**options), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def of_classes(y: Any, classes: Any) -> ArrayDataset:
    return ArrayDataset(np.eye(3, dtype=np.float32), y, classes)


@pytest.mark.parametrize(
    ("make_source", "message"),
    [
        (lambda: of_classes(None, None), "X: there are no labels"),
        (
            lambda: of_classes(np.zeros(3, np.int32), np.array(["a"])),
            r"X: has 1 class \(a\), but at least two are needed",
        ),
    ],
)
def test_rows_without_two_classes_are_refused(make_source: Callable[[], ArrayDataset], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(make_source(), TrainOptions())


def test_classes_keep_their_names(tmp_path: Path) -> None:
    """Positive is the one that sorts last."""
    problem = make_problem(1, n=100)
    names = np.where(problem.y > 0, "yes", "no")
    dataset = ingest(problem.X, tmp_path / "rows", names, shuffle=None)
    named, numbered = train(dataset, TrainOptions()), train(problem.in_memory(), TrainOptions())
    assert named.model.classes.tolist() == ["no", "yes"]
    assert named.objective == pytest.approx(numbered.objective, rel=1e-4)  # by another solver


def test_the_package_offers_the_parts(tmp_path: Path) -> None:
    """The names of the front door lead to what is tested here."""
    dataset = make_problem(1).store(tmp_path / "rows")
    assert streamsvm.open(tmp_path / "rows").fingerprint == dataset.fingerprint
    assert streamsvm.load is estimators.load
    assert streamsvm.ingest is ingest
