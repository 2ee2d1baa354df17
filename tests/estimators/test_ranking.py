"""Rankings from rows to scores: the estimator, the command line, and how they are measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_array
from sklearn.metrics import roc_auc_score

import streamsvm
from streamsvm import CuttingPlane, LinearSVC, RankSVM
from streamsvm.cli.main import main
from streamsvm.data.rows.source import plan_groups
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.losses.pairs import Pairs
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import RankModel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.faults.instants import describe
from tests.solvers.ranking.test_solver import make_problem, measure, minimise

SIZES = (30, 25, 40, 5)
X, PAIRS = make_problem(1, SIZES, 4)
RANKS = PAIRS.ranks
QID = np.repeat([7, 3, 11, 5], SIZES)
OPTIONS = TrainOptions(task="rank", C=0.1, tol=1e-4, threads=1)


def cost_of(C: float, pairs: Pairs) -> float:
    return C * len(pairs.ranks) / pairs.total


def write_svmlight(path: Path, labels: Any = RANKS, qid: Any = QID) -> Path:
    rows = [" ".join(f"{j + 1}:{value:.9g}" for j, value in enumerate(row)) for row in X]
    ids = [""] * len(X) if qid is None else [f"qid:{q} " for q in qid]
    path.write_text("".join(f"{y} {q}{row}\n" for y, q, row in zip(labels, ids, rows, strict=True)))
    return path


@pytest.mark.parametrize("with_queries", [True, False])
def test_the_estimator_minimises_what_it_says(with_queries: bool) -> None:
    pairs = PAIRS if with_queries else Pairs(RANKS, np.ones(len(X)), np.array([0, len(X)]))
    model = RankSVM(C=0.3, tol=1e-5).fit(X, RANKS, qid=QID if with_queries else None)
    cost = cost_of(0.3, pairs)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(measure((X, pairs), cost, model.coef_[0]), rel=1e-9)
    best = minimise((X, pairs), cost)
    assert model.lower_bound_ <= best * (1 + 1e-9)
    assert model.objective_ <= best * (1 + 1.1e-5)
    assert not hasattr(model, "intercept_")


def test_a_query_weighs_as_much_as_it_says() -> None:
    """Weight 3 is three times the same query; without queries, a row of weight 2 is two rows."""
    weight = np.repeat([1.0, 3.0, 1.0, 2.0], SIZES)
    weighted = RankSVM(C=0.2, tol=1e-7).fit(X, RANKS, qid=QID, sample_weight=weight)
    parts = [np.flatnonzero(q == QID) for q in (7, 3, 3, 3, 11, 5, 5)]
    rows, again = np.concatenate(parts), np.repeat(np.arange(7), [len(part) for part in parts])
    repeated = RankSVM(C=0.2, tol=1e-7).fit(X[rows], RANKS[rows], qid=again)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=3e-7)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-3)
    counts = 1 + (np.arange(len(X)) % 2)
    weighted = RankSVM(C=0.2, tol=1e-7).fit(X, RANKS, sample_weight=counts)
    repeated = RankSVM(C=0.2, tol=1e-7).fit(np.repeat(X, counts, axis=0), np.repeat(RANKS, counts))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=3e-7)


def test_rows_in_any_form_give_the_same_ranking(tmp_path: Path, client: Client) -> None:
    """NumPy, CSR, Dask, a dataset of sparse or dense chunks, and workers; scores of all forms, too."""
    first = RankSVM(C=0.2, tol=1e-6).fit(X, RANKS, qid=QID)
    dataset = ingest(X, tmp_path / "rows.zarr", RANKS, qid=QID, chunk_bytes=300)
    dask_rows = (da.from_array(X, (40, 4)), da.from_array(RANKS, 40), da.from_array(QID, 40))
    others = [
        RankSVM(C=0.2, tol=1e-6).fit(csr_array(X), RANKS, qid=QID),
        RankSVM(C=0.2, tol=1e-6).fit(dataset),
        RankSVM(C=0.2, tol=1e-6).fit(dask_rows[0], dask_rows[1], qid=dask_rows[2]),
        RankSVM(C=0.2, tol=1e-6, client=client).fit(X, RANKS, qid=QID),
    ]
    for other in others:
        assert other.objective_ == pytest.approx(first.objective_, rel=2e-6)
        np.testing.assert_allclose(other.coef_, first.coef_, atol=3e-3)
    for rows in (csr_array(X), dataset, dask_rows[0]):
        np.testing.assert_allclose(np.asarray(first.predict(rows)), X @ first.coef_[0], atol=1e-5)
    assert first.score(dataset) == pytest.approx(first.score(X, RANKS, qid=QID))
    assert first.score(X, RANKS, qid=QID) > 0.8


def test_roc_area_is_what_two_ranks_order() -> None:
    """Texts as classes; the higher one is positive. Better by area than a classifier of a rare class."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((600, 6)).astype(np.float32)
    labels = np.where(rows[:, 0] + 2.0 * rng.standard_normal(600) > 3.0, "yes", "no")
    model = RankSVM(C=0.1, task="roc-area", tol=1e-5).fit(rows, labels)
    area = roc_auc_score(labels == "yes", model.predict(rows))
    assert model.score(rows, labels) == pytest.approx(area)
    assert area >= roc_auc_score(labels == "yes", LinearSVC(C=0.1).fit(rows, labels).decision_function(rows))
    pairs = Pairs((labels == "yes").astype(np.int32), np.ones(600), np.array([0, 600]))
    assert 1.0 - area <= model.objective_ / (0.1 * 600)  # every swapped pair costs more than 1
    assert model.objective_ == pytest.approx(measure((rows, pairs), cost_of(0.1, pairs), model.coef_[0]), rel=1e-9)


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = RankSVM(C=0.2).fit(X, RANKS, qid=QID)
    model.save(tmp_path / "model.npz")
    again = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(again, RankSVM)
    assert (again.C, again.task, again.status_) == (0.2, "rank", "converged")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Chunks that cut queries in two."""
    return ingest(X, tmp_path_factory.mktemp("rows") / "rows.zarr", RANKS, qid=QID, chunk_bytes=300)


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_on_any_engine(dataset: Dataset, client: Client) -> None:
    assert len(plan_groups(dataset)) >= 5
    results = [train(dataset, replace(OPTIONS, threads=threads)) for threads in (1, 2, 4)]
    results.append(train(dataset, OPTIONS, client=client))
    assert results[0].status == "converged"
    for other in results[1:]:
        assert other.model_sha256 == results[0].model_sha256
        assert (other.objective, other.lower_bound, other.passes) == (
            results[0].objective,
            results[0].lower_bound,
            results[0].passes,
        )


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.usefixtures("many_groups")
def test_resumed_after_each_step(dataset: Dataset, tmp_path: Path) -> None:
    options = replace(OPTIONS, tol=1e-8)
    train(dataset, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    n_steps = len(whole["history"])
    assert n_steps > 1
    for step in range(1, n_steps):
        out = tmp_path / f"stopped-{step}"
        stopped = train(dataset, replace(options, max_passes=step), out=out)
        assert (stopped.status, stopped.steps) == ("pass_limit", step)
        train(dataset, replace(options, threads=2), out=out, resume=True)
        assert describe(out) == whole
    with pytest.raises(InputError, match="cannot be resumed with other settings"):
        train(dataset, replace(options, C=0.2), out=tmp_path / "stopped-1", resume=True)


def test_from_files_to_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ingest, train, evaluate, predict; the measures are those of the scores."""
    text, rows, run = write_svmlight(tmp_path / "rows.svm"), str(tmp_path / "rows.zarr"), str(tmp_path / "run")
    assert main(["ingest", str(text), rows]) == 0
    assert main(["train", rows, "--task", "rank", "--C", "0.2", "--out", run, "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["status"], told["solver"], told["n_support_vectors"]) == ("converged", "cutting-plane", None)
    for data in (rows, str(text)):
        assert main(["evaluate", run, data, "--json"]) == 0
        measures = json.loads(capsys.readouterr().out)
        assert (measures["n_rows"], measures["n_queries"]) == (100, 4)
        assert measures["swapped_pairs"] < 0.2
        assert set(measures["ndcg"]) == {"1", "5", "10"}
        assert main(["evaluate", run, data]) == 0
        assert f"swapped pairs {measures['swapped_pairs']:.4f}" in capsys.readouterr().out
    for name in ("p.csv", "p.npy", "p.zarr"):
        assert main(["predict", run, rows, "--out", str(tmp_path / name)]) == 0
    scores = np.load(tmp_path / "p.npy")
    model = streamsvm.load(run)
    np.testing.assert_allclose(scores, model.predict(X), atol=1e-5)
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "score"
    np.testing.assert_allclose([float(line) for line in lines[1:]], scores, rtol=1e-8)
    assert main(["report", run]) == 0


def test_query_ids_in_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, rows, run = tmp_path / "rows.csv", str(tmp_path / "rows.zarr"), str(tmp_path / "run")
    head, width = "rank,query,a,b,c,d\n", X.shape[1]
    lines = [f"{y},{q},{','.join(f'{v:.9g}' for v in row)}\n" for y, q, row in zip(RANKS, QID, X, strict=True)]
    table.write_text(head + "".join(lines))
    assert width == 4
    assert main(["ingest", str(table), rows, "--label", "rank", "--qid", "query"]) == 0
    assert main(["train", rows, "--task", "rank", "--out", run]) == 0
    found = []
    for data in ([rows], [str(table), "--label", "rank", "--qid", "query"]):
        capsys.readouterr()
        assert main(["evaluate", run, *data, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["n_queries"] == 4


def source_of(labels: Any, qid: Any = None, weight: Any = None) -> ArrayDataset:
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    return ArrayDataset(X[: len(codes)], codes.astype(np.int32), classes, weight, qid=qid)


@pytest.mark.parametrize(
    ("source", "change", "message"),
    [
        (source_of(["a", "b"] * 10), {}, "ranks have to be numbers"),
        (source_of([1, 2, 3]), {"task": "roc-area"}, "the area under the ROC curve needs two classes, not 3"),
        (source_of([1, 2, 3, 4], np.array([1, 1, 2, 1])), {}, "row 4: query 1 occurs again after other queries"),
        (source_of([1, 2, 3], np.array([1, 2, 3])), {}, "no two rows to compare"),
        (source_of([1, 1, 1]), {}, "no two rows to compare"),
        (source_of([1, 2, 1], np.array([1, 1, 2]), np.array([1.0, 2.0, 1.0])), {}, "row 2: its weight differs"),
        (
            source_of([1, 2]),
            {"solver": "smo"},
            "solver smo does not support the loss hinge of --task rank; use --solver cutting-plane$",
        ),
        (source_of([1, 2]), {"kernel": "rbf"}, "kernel rbf: cutting-plane supports only the linear kernel"),
        (source_of([1, 2]), {"class_weight": "balanced"}, "class_weight"),
        (source_of([1, 2]), {"resident_rows": 5}, "resident_rows has no effect"),
        (source_of([1, 2]), {"options": {"reduction": "none"}}, "option 'reduction' is unknown"),
        (
            source_of([1, 2]),
            {"task": "order"},
            "choose from classify, crammer-singer, multinomial, multi-label, nu-classify, .*, rank, roc-area",
        ),
    ],
)
def test_refused(source: ArrayDataset, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(source, replace(OPTIONS, **change))


def test_bad_estimator_input() -> None:
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        RankSVM().fit(X, RANKS, qid=QID[:-1])
    with pytest.raises(InputError, match="task is 'sort'"):
        RankSVM(task="sort").fit(X, RANKS)
    with pytest.raises(InputError, match=r"nowhere\.zarr: no such dataset"):
        RankSVM().fit("nowhere.zarr", qid=QID)


def test_labels_that_are_no_ranks_are_told_at_evaluation(tmp_path: Path) -> None:
    model = RankSVM().fit(X, RANKS).model_
    assert isinstance(model, RankModel)
    with pytest.raises(InputError, match="ranks have to be numbers"):
        evaluate(model, source_of(["a", "b"] * 10))
    text = RankSVM(task="roc-area").fit(X, np.where(RANKS > 1, "high", "low")).model_
    measures = evaluate(text, source_of(["high", "low", "middle"] * 5))
    assert (measures["n_rows"], measures["unknown_labels"]) == (15, 5)


def test_longer_points_lose_nothing_where_scores_cancel() -> None:
    """Rows far from the origin: the best w misses pairs by 1e-11, and a w that is longer by so much does not."""
    rng = np.random.default_rng(1)
    X, grades = ((rng.normal(size=(20, 20)) + 1e4) * 1e6).astype(np.float32), rng.integers(0, 3, 20)
    model = RankSVM(C=6e3, n_jobs=1, max_passes=300, solver=CuttingPlane(acceleration="none")).fit(X, grades)
    assert model.status_ == "converged"


def test_queries_may_be_texts() -> None:
    """They are the same queries as by their numbers, in fit and in score."""
    random = np.random.default_rng(3)
    X, query = random.normal(size=(60, 4)), np.repeat(np.arange(12), 5)
    ranks = (X[:, 0] + random.normal(size=60) > 0).astype(int)
    names = np.array([f"query {number}" for number in query])
    by_number, by_name = RankSVM().fit(X, ranks, qid=query), RankSVM().fit(X, ranks, qid=names)
    np.testing.assert_array_equal(by_number.coef_, by_name.coef_)
    assert by_name.score(X, ranks, qid=names) == by_number.score(X, ranks, qid=query)
    with pytest.raises(ValueError, match=r"qid: row 2 .*query id is not a whole number: 1\.5"):
        RankSVM().fit(X, ranks, qid=[1, 1.5, *query[2:]])


@pytest.mark.parametrize("layout", [csr_array, np.asarray])
def test_rows_without_any_item_are_ranked_by_nothing(layout: Any) -> None:
    """Sparse rows take no bytes then: w is 0, and every pair costs 1, which is C for each row."""
    model = RankSVM(C=0.5).fit(layout(np.zeros((len(X), 3), np.float32)), RANKS, qid=QID)
    assert (model.status_, model.objective_) == ("converged", pytest.approx(0.5 * len(X)))
    assert not model.coef_.any()
