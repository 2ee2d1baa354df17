"""One against one: each pair is solved as it would be alone, to the bit; all pairs in one read; LIBSVM's models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.svm import SVC as Libsvm  # noqa: N811

from streamsvm.data.rows.views import PairOfClasses
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import KernelModel, load
from streamsvm.numeric.labels import choose_by_votes, expand, list_pairs, vote
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify
from tests.conftest import F64
from tests.solvers.many.test_one_against_rest import CHUNKS, ROWS, make_classes

KERNEL = TrainOptions(solver="smo", kernel="rbf", gamma=0.2, threads=1, multi_class="ovo")
SOLVERS = {
    "smo, all active": KERNEL,
    "smo": replace(KERNEL, resident_rows=60),
    "smo, linear": replace(KERNEL, kernel="linear", resident_rows=60),
    "irwls, weights": replace(KERNEL, solver="irwls", resident_rows=60, class_weight={"b": 3.0, "d": 0.5}),
}
PAIRS = list_pairs(4)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """16 chunks, most of which have rows of one or two classes."""
    return ROWS.store(tmp_path_factory.mktemp("classes") / "rows", **CHUNKS)


def take_pair(first: int, second: int, path: Path) -> Dataset:
    """Write the rows of two classes: label 1 for the first."""
    kept = (ROWS.y == first) | (ROWS.y == second)
    y, weight = (ROWS.y[kept] == first).astype(int), ROWS.weight[kept]
    return ingest(ROWS.X[kept], path, y, sample_weight=weight, shuffle=None, **CHUNKS)


def sums_of_pairs(model: KernelModel) -> list[F64]:
    assert model.n_support is not None
    return list(expand(model.dual_coef, model.n_support))


@pytest.mark.slow("trains each problem alone, too")
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.usefixtures("many_groups")
def test_each_pair_is_what_it_is_alone(name: str, dataset: Dataset, tmp_path: Path) -> None:
    together = train(dataset, SOLVERS[name])
    model, weights = together.model, dict(SOLVERS[name].class_weight or {})  # type: ignore[arg-type]
    assert isinstance(model, KernelModel)
    assert together.status == "converged"
    objectives = []
    for k, (pair, coef) in enumerate(zip(PAIRS, sums_of_pairs(model), strict=True)):
        costs = {label: weights.get("abcd"[code], 1.0) for label, code in ((1, pair[0]), (0, pair[1]))}
        alone = train(take_pair(*pair, tmp_path / str(k)), replace(SOLVERS[name], class_weight=costs))
        np.testing.assert_allclose(model.intercept[k], alone.model.intercept, atol=1e-3)  # type: ignore[index]
        objectives.append(alone.objective)
        if name == "smo, all active":  # other sums are made of other tiles, and their last bits differ
            assert model.intercept[k] == alone.model.intercept  # type: ignore[index]
            np.testing.assert_array_equal(np.sort(coef[coef != 0]), np.sort(alone.model.dual_coef))
        told = together.problems[k]
        assert told["status"] == "converged"
        assert told["objective"] == pytest.approx(alone.objective, rel=2e-3)
        assert told["lower_bound"] <= alone.objective
    assert together.objective == pytest.approx(sum(one["objective"] for one in together.problems), rel=1e-14)
    assert together.lower_bound == pytest.approx(sum(one["lower_bound"] for one in together.problems), rel=1e-14)
    assert together.lower_bound <= sum(objectives)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("weights", [None, {"a": 2.0, "d": 10.0}, "balanced"])
def test_it_is_libsvm(kernel: str, weights: Any) -> None:
    """With its layout of coefficients, its order of support vectors, and its votes."""
    rows = make_classes(3, n=240)
    names, unit = rows.names[rows.y], np.ones(240)
    source = ArrayDataset(rows.X, rows.y, rows.names)
    options = replace(KERNEL, kernel=kernel, tol=1e-9, class_weight=weights)
    model = train(source, options).model
    theirs = Libsvm(kernel=kernel, gamma=0.2, tol=1e-10, class_weight=weights, decision_function_shape="ovo")
    theirs.fit(rows.X, names, sample_weight=unit)
    assert isinstance(model, KernelModel)
    assert model.n_support is not None
    assert model.n_support.tolist() == theirs.n_support_.tolist()
    np.testing.assert_array_equal(model.support, theirs.support_)
    np.testing.assert_allclose(model.dual_coef, theirs.dual_coef_, atol=2e-4)
    np.testing.assert_allclose(model.intercept, theirs.intercept_, atol=1e-4)
    scores = model.list_pairs().decide(rows.X)
    np.testing.assert_allclose(scores, theirs.decision_function(rows.X), atol=1e-4)
    assert (names == theirs.predict(rows.X)).mean() > 0.5
    assert (rows.names[choose_by_votes(scores, 4)] == theirs.predict(rows.X)).all()
    theirs.decision_function_shape = "ovr"
    np.testing.assert_allclose(model.decide(rows.X), theirs.decision_function(rows.X), atol=1e-4)


def test_votes_by_hand() -> None:
    """Row 0: b beats a and c, a beats c. Row 1: each class has a vote; row 2: scores of 0 are for the first class."""
    scores = np.array([[-1.0, 2.0, 0.5], [1.0, -3.0, 1.0], [0.0, 0.0, 0.0]])
    sums = np.array([[1.0, 1.5, -2.5], [-2.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    votes = np.array([[1, 2, 0], [1, 1, 1], [2, 1, 0]])
    np.testing.assert_allclose(vote(scores, 3), votes + sums / (3 * (np.abs(sums) + 1)), rtol=1e-15)
    assert choose_by_votes(scores, 3).tolist() == [1, 0, 2]  # LIBSVM gives a score of 0 to the second class


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("name", ["smo, all active", "smo"])
@pytest.mark.usefixtures("many_groups", "workers_import_tests")
def test_the_same_bits_for_any_number_of_threads_and_workers(name: str, dataset: Dataset, client: Client) -> None:
    one = train(dataset, SOLVERS[name]).model_sha256
    assert train(dataset, replace(SOLVERS[name], threads=3)).model_sha256 == one
    assert train(dataset, replace(SOLVERS[name], threads=None), client=client).model_sha256 == one


def test_stopped_and_gone_on_as_if_never_stopped(dataset: Dataset, tmp_path: Path) -> None:
    whole = train(dataset, SOLVERS["smo"], out=tmp_path / "whole")
    stopped = train(dataset, replace(SOLVERS["smo"], max_passes=whole.passes - 1), out=tmp_path / "run")
    assert (stopped.status, stopped.model_sha256 == whole.model_sha256) == ("pass_limit", False)
    resumed = train(dataset, SOLVERS["smo"], out=tmp_path / "run", resume=True)
    assert (resumed.model_sha256, resumed.passes, resumed.steps) == (whole.model_sha256, whole.passes, whole.steps)
    with pytest.raises(InputError, match="cannot be resumed with other settings"):
        train(dataset, replace(SOLVERS["smo"], multi_class="ovr"), out=tmp_path / "run", resume=True)


def test_rows_that_pairs_share_are_read_once(dataset: Dataset) -> None:
    """Each row is in three pairs, all rows of which are taken: a part of a chunk is read for all of them at once."""
    result = train(dataset, SOLVERS["smo, all active"])
    once = dataset.take_bytes(np.arange(dataset.n_rows))
    assert (result.passes, result.read_bytes) == (1, 2 * once)  # and again for the support vectors


def test_a_saved_model_scores_as_before(dataset: Dataset, tmp_path: Path) -> None:
    model = train(dataset, SOLVERS["smo"]).model
    model.save(tmp_path / "model.npz")
    same = load(tmp_path / "model.npz")
    assert isinstance(same, KernelModel)
    np.testing.assert_array_equal(same.decide(ROWS.X), model.decide(ROWS.X))
    np.testing.assert_array_equal(same.n_support, model.n_support)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("n_support", np.array([1, 1, 1]), "n_support is int64"),
        ("n_support", np.array([10**6, 1, 1, 1]), "n_support sums to"),
        ("n_support", np.array([-1, 1, 1, 1]), "does not contain the numbers of rows"),
        ("dual_coef", np.zeros((4, 1)), "dual_coef is"),
    ],
)
def test_damaged_models_are_refused(name: str, wrong: Any, message: str, dataset: Dataset, tmp_path: Path) -> None:
    model = train(dataset, SOLVERS["smo"]).model
    np.savez(tmp_path / "model.npz", **model.to_arrays() | {name: wrong})
    with pytest.raises(InputError, match=message):
        load(tmp_path / "model.npz")


@pytest.mark.parametrize("name", ["smo", "irwls, weights"])
def test_the_objective_is_verified(name: str, dataset: Dataset) -> None:
    result = train(dataset, SOLVERS[name])
    found = verify(result.model, dataset, dual=True)
    assert found.agrees
    assert found.lower_bound is not None
    assert found.lower_bound <= found.objective
    spoiled = replace(result.model, intercept=np.asarray(result.model.intercept) + 0.5)
    assert not verify(spoiled, dataset).agrees


def test_a_view_has_the_rows_of_two_classes(dataset: Dataset) -> None:
    y = dataset.column("y")
    assert y is not None
    view = PairOfClasses(dataset, y, 1, 3)
    members = np.flatnonzero((y == 1) | (y == 3))
    tiles = [rows for index in range(view.n_chunks) for rows in view.tiles(index)]
    found = np.concatenate([np.asarray(rows.X).copy() for rows in (view.read(k) for k in range(view.n_chunks))])
    np.testing.assert_array_equal(found, ROWS.X[members])
    np.testing.assert_array_equal(view.take(np.arange(view.n_rows)).y, (y[members] == 1).astype(int))
    np.testing.assert_array_equal(view.column("sample_weight"), ROWS.weight[members])
    assert [rows.start for rows in tiles if rows.n_rows] == np.unique(
        [view.chunk_starts[k] for k in range(view.n_chunks) if view.chunk_starts[k + 1] > view.chunk_starts[k]]
    ).tolist()
    assert view.class_counts is not None
    assert view.class_counts.tolist() == [int(np.sum(y == 3)), int(np.sum(y == 1))]


def test_the_memory_of_all_pairs_is_counted(dataset: Dataset) -> None:
    """Each problem's vectors are those of its own rows: K - 1 times all rows in sum."""
    ovo, ovr = (set_up(dataset, replace(KERNEL, resident_rows=60, multi_class=way)).memory(1) for way in ("ovo", "ovr"))
    least = 8 * 32 * 3 * dataset.n_rows
    assert least < ovo.driver_bytes < 2 * ovr.driver_bytes


def test_pairs_take_turns_with_the_working_memory_of_a_task() -> None:
    """The tiles of kernel values of 300 pairs were counted as if a task held them all: 8 GB for 20 kB of rows."""
    y = np.repeat(np.arange(25), 8)
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    need = set_up(ArrayDataset(X, y, classes=np.arange(25)), KERNEL).memory(1)
    assert need.totals_bytes + need.walk_bytes + need.driver_bytes < 300 << 20


def test_other_ways_are_refused(dataset: Dataset) -> None:
    for options, message in (
        (replace(KERNEL, multi_class="ova"), "multi_class 'ova': smo supports ovo and ovr"),
        (
            TrainOptions(multi_class="ovo"),
            "multi_class 'ovo': cutting-plane supports ovr.*; choose the solver smo or irwls",
        ),
    ):
        with pytest.raises(InputError, match=message):
            train(dataset, options)
