"""Measures by which a grid is judged: each is scikit-learn's on the same held-out rows, and others are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.dummy import DummyClassifier
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    log_loss,
    matthews_corrcoef,
    mean_absolute_error,
    mean_squared_error,
    ndcg_score,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

import streamsvm
from streamsvm.cli.main import main
from streamsvm.data.rows.source import plan_groups
from streamsvm.data.rows.views import HeldOut
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.tables.checks import to_groups
from streamsvm.models.evaluate import find_probabilities, find_scoring
from streamsvm.options import TrainOptions
from streamsvm.passes import NOTHING
from streamsvm.problems.registry import find_problem
from streamsvm.runs.held_out import draw_folds, keep, need_for_scores
from streamsvm.runs.train import open_for, train
from streamsvm.runs.tune import list_fits, make_chains, tune
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.label_problems import make_labels

RNG = np.random.default_rng(0)
N = 240
X = RNG.standard_normal((N, 4)).astype(np.float32)
SCORE = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.8 * RNG.standard_normal(N)
TWO, THREE = (SCORE > 0.7).astype(np.int32), np.digitize(SCORE, [-1.0, 0.7]).astype(np.int32)
FOLDS, OPTIONS = 3, TrainOptions(tol=1e-6, threads=1)
GROUPS = RNG.integers(0, 30, N)
AVERAGES = ("macro", "micro", "weighted")
RATIOS = {"f1": f1_score, "precision": precision_score, "recall": recall_score}


def make_source(labels: Any, qid: Any = None) -> ArrayDataset:
    classes, codes = np.unique(labels, return_inverse=True)
    return ArrayDataset(X, codes.astype(np.int32), classes, qid=qid)


def of_classes(y: Any, f: Any) -> dict[str, float]:
    """Return scikit-learn's measures of predicted classes."""
    told = (f > 0).astype(int) if f.ndim == 1 else np.argmax(f, axis=1)
    found = {
        "accuracy": accuracy_score(y, told),
        "balanced_accuracy": balanced_accuracy_score(y, told),
        "matthews_corrcoef": matthews_corrcoef(y, told),
    }
    for name, measure in RATIOS.items():
        found |= {f"{name}_{kind}": measure(y, told, average=kind, zero_division=0) for kind in AVERAGES}
        found |= {name: measure(y, told, zero_division=0)} if f.ndim == 1 else {}
    if f.ndim == 1:
        found |= {"roc_auc": roc_auc_score(y, f), "average_precision": average_precision_score(y, f)}
    return found


def of_targets(y: Any, f: Any) -> dict[str, float]:
    """Return scikit-learn's measures of predicted numbers."""
    return {
        "neg_mean_absolute_error": -mean_absolute_error(y, f),
        "neg_mean_squared_error": -mean_squared_error(y, f),
        "neg_root_mean_squared_error": -root_mean_squared_error(y, f),
        "r2": r2_score(y, f),
    }


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_measures_of_classes(labels: Any, forward: bool) -> None:
    """Also with folds of whole groups in their order."""
    source, options = make_source(labels), replace(OPTIONS, loss="logistic")
    if forward:
        source.groups = to_groups(GROUPS, str)
    fold = draw_folds(source, options, FOLDS, forward)
    expected: list[dict[str, float]] = []
    for k in range(FOLDS):
        kept, out = keep(fold, k, forward), fold == k
        model = train(ArrayDataset(X[kept], labels[kept], source.classes), options).model
        y, f = labels[out], model.decide(X[out])
        p = find_probabilities(model, f)
        expected.append({**of_classes(y, f), "neg_log_loss": -log_loss(y, p, labels=source.classes)})
        expected[-1]["neg_brier_score"] = -brier_score_loss(y, p if f.ndim == 2 else p[:, 1], labels=source.classes)
    for name in expected[0]:
        found = tune(source, options, [1.0], folds=FOLDS, forward=forward, scoring=name)
        assert found.scoring == name
        np.testing.assert_allclose(found.best.scores, [each[name] for each in expected], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("on_groups", [False, True])
def test_measures_of_numbers(on_groups: bool) -> None:
    """With targets far from 0, where sums of squares cancel."""
    target = 1e4 + SCORE
    source = ArrayDataset(X, None, None, target=target)
    source.groups = to_groups(GROUPS, str) if on_groups else None
    options = replace(OPTIONS, task="regress", tol=1e-3)
    fold = draw_folds(source, options, FOLDS)
    for name in of_targets(target, SCORE):
        found = tune(source, options, [1.0], folds=FOLDS, scoring=name)
        for k in range(FOLDS):
            kept, out = fold != k, fold == k
            model = train(ArrayDataset(X[kept], None, None, target=target[kept]), options).model
            expected = of_targets(target[out], model.decide(X[out]))[name]
            assert found.best.scores[k] == pytest.approx(expected, rel=1e-6), name


def test_measures_of_label_sets(tmp_path: Path) -> None:
    problem = make_labels(3, n=300, empty=False)
    source = problem.store(tmp_path / "rows")
    options = TrainOptions(loss="squared_hinge", tol=1e-7, threads=1, task="multi-label")
    fold, Y = draw_folds(source, options, 2), np.asarray(problem.Y, bool)
    for name in find_problem("multi-label").list_scorings(Y.shape[1])[0].names:
        found = tune(source, options, [1.0], folds=2, scoring=name)
        for k in range(2):
            out = fold == k
            model = streamsvm.LinearSVC(C=1.0, loss="squared_hinge", tol=1e-7).fit(problem.X[~out], Y[~out])
            told, ratio = model.predict(problem.X[out]), name.rpartition("_")
            expected = accuracy_score(Y[out], told)
            if name != "accuracy":
                expected = RATIOS[ratio[0]](Y[out], told, average=ratio[2], zero_division=0)
            assert found.best.scores[k] == pytest.approx(expected, rel=1e-9), name


def test_measures_of_rankings() -> None:
    """NDCG has the gains 2^rank - 1, and ranks that are no whole numbers keep their order."""
    qid, ranks = np.repeat(np.arange(24), 10), np.digitize(SCORE, [-0.7, 0.7]) / 2
    source, options = make_source(ranks, qid), replace(OPTIONS, task="rank")
    fold = draw_folds(source, options, FOLDS)
    scored = {}
    for k in range(FOLDS):
        kept = fold != k
        own = ArrayDataset(X[kept], source.column("y")[kept], source.classes, qid=qid[kept])  # type: ignore[index]
        scored[k] = train(own, options).model.decide(X)
    for place in (1, 5, 10):
        found = tune(source, options, [1.0], folds=FOLDS, scoring=f"ndcg@{place}")
        for k, f in scored.items():
            queries = [qid == q for q in np.unique(qid[fold == k]) if np.ptp(ranks[qid == q]) > 0]
            theirs = [ndcg_score([2 ** ranks[q] - 1], [f[q]], k=place) for q in queries]
            assert found.best.scores[k] == pytest.approx(np.mean(theirs), rel=1e-6)
    with pytest.raises(InputError, match=r"scoring 'roc_auc' is undefined for the rows that fold 1 holds out"):
        tune(source, options, [1.0], folds=FOLDS, scoring="roc_auc")


@pytest.mark.parametrize("name", ["roc_auc", "average_precision"])
def test_measures_of_the_area(name: str) -> None:
    source, options = make_source(np.where(TWO, -1, -3)), replace(OPTIONS, task="roc-area")
    fold, measure = draw_folds(source, options, FOLDS), {"roc_auc": roc_auc_score}.get(name, average_precision_score)
    found = tune(source, options, [1.0], folds=FOLDS, scoring=name)
    for k in range(FOLDS):
        out = fold == k
        model = train(ArrayDataset(X[~out], TWO[~out], source.classes), options).model
        assert found.best.scores[k] == pytest.approx(measure(TWO[out], model.decide(X[out])), abs=1e-3)


def test_the_best_setting_is_that_of_the_measure() -> None:
    """All rows are predicted to be of the frequent class with a small C: only the balanced accuracy tells."""
    y = (SCORE > 2.5).astype(np.int32)
    costs = [1e-6, 100.0]
    accuracy, balanced = (streamsvm.tune(X, y, C=costs, folds=3, scoring=name) for name in (None, "balanced_accuracy"))
    assert accuracy.scoring == "accuracy"
    by_name = {name: [t.mean for t in each.trials] for name, each in (("a", accuracy), ("b", balanced))}
    for found in (accuracy, balanced):
        assert found.best.mean == max(trial.mean for trial in found.trials)
    assert by_name["b"][0] == 0.5
    assert balanced.best.C == 100.0
    dummy = DummyClassifier().fit(X, y)
    assert by_name["a"][0] == pytest.approx(accuracy_score(y, dummy.predict(X)), abs=0.01)


def test_spread_of_the_folds() -> None:
    found = streamsvm.tune(X, TWO, C=[1.0], folds=3)
    (trial,) = found.trials
    assert trial.std == np.std(trial.scores) == found.cv_results_["std_test_score"][0]
    assert trial.standard_error == pytest.approx(np.std(trial.scores, ddof=1) / math.sqrt(3), rel=1e-12)
    told = found.as_json()
    assert (told["trials"][0]["std"], told["trials"][0]["standard_error"]) == (trial.std, trial.standard_error)
    assert (told["grid"]["scoring"], told["grid"]["ideal_score"]) == ("accuracy", 1.0)
    assert "best_score" not in told["grid"]
    assert list(found.to_frame().columns[:4]) == ["C", "mean", "std", "standard error"]


@pytest.mark.parametrize(
    ("labels", "settings", "name", "message"),
    [
        (TWO, {}, "r2", "scoring 'r2': choose from accuracy, balanced_accuracy, .*roc_auc, .*neg_log_loss"),
        (THREE, {}, "roc_auc", "scoring 'roc_auc': choose from accuracy"),
        (THREE, {}, "roc_auc_ovr", "scoring 'roc_auc_ovr': choose from accuracy"),
        (THREE, {}, "f1", "scoring 'f1': choose from accuracy, .*f1_macro"),
        (SCORE, {"task": "regress"}, "accuracy", "'accuracy': choose from neg_mean_absolute_error, .*r2$"),
        (THREE, {"task": "rank"}, "accuracy", "'accuracy': choose from ordered_pairs, kendall_tau"),
        (TWO, {}, "neg_log_loss", "'neg_log_loss' measures probabilities, .*: tune with --loss logistic"),
        (TWO, {"loss": ["logistic", "hinge"]}, "neg_brier_score", "tune with --loss logistic"),
        (TWO, {}, accuracy_score, "choose from accuracy"),
    ],
)
def test_unsuitable_measures_are_refused(labels: Any, settings: Any, name: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        streamsvm.tune(X, labels, C=[1.0], folds=3, scoring=name, **settings)


def test_an_undefined_measure_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.runs.tune._carry_out", None)
    groups = np.where(TWO, np.arange(N) % 2, 2 + np.arange(N) % 2)
    with pytest.raises(InputError, match=r"'roc_auc' is undefined for the rows that fold \d holds out.*other folds"):
        streamsvm.tune(X, TWO, C=[1.0], folds=4, groups=groups, scoring="roc_auc")


def test_unknown_labels_are_wrong_and_empty_folds_count_nothing() -> None:
    """The label -1 marks a class that the model does not know."""
    scoring, f = find_scoring(None, find_problem("classify"), 2), np.array([1.0, -1.0, 1.0])
    assert scoring.measure(f, np.array([1, -1, -1]), None) == pytest.approx(1 / 3)
    assert find_problem("classify").measure_scores(f[:0], np.zeros(0, np.int32), None) == 0.0


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(
    ("task", "loss", "names"),
    [("classify", "logistic", ("roc_auc", "neg_log_loss", "f1_macro")), ("regress", None, ("r2",))],
)
def test_the_same_bits_on_any_engine(task: str, loss: Any, names: Any, tmp_path: Path, client: Client) -> None:
    rows = tmp_path / "rows.zarr"
    data = streamsvm.ingest(X, rows, SCORE if task == "regress" else TWO, regression=task == "regress", chunk_bytes=800)
    assert len(plan_groups(data)) >= 5
    for name in names:
        options = replace(OPTIONS, task=task, loss=loss)
        one, *others = [tune(data, replace(options, threads=n), [1.0], folds=3, scoring=name) for n in (1, 2, 4)]
        others.append(tune(data, options, [1.0], folds=3, scoring=name, client=client))
        assert all(other.trials == one.trials for other in others)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, run = tmp_path / "rows.zarr", tmp_path / "run"
    streamsvm.ingest(X, rows, TWO)
    command = ["tune", str(rows), "--C", "0.1,1", "--folds", "2", "--out", str(run), "--scoring"]
    assert main([*command, "roc_auc"]) == 0
    table = capsys.readouterr().out
    assert "roc_auc" in table.splitlines()[0]
    assert "+-: standard deviation over the folds" in table
    told = json.loads((run / "tuning.json").read_text())
    assert told["grid"]["scoring"] == "roc_auc"
    assert "mean roc_auc" in (run / "tuning.html").read_text()
    assert main([*command, "f1", "--resume"]) == 2
    assert "scoring" in capsys.readouterr().err
    assert main([*command, "r2"]) == 2
    assert "scoring 'r2': choose from accuracy, balanced_accuracy" in capsys.readouterr().err


def test_the_memory_of_all_scores_is_projected(tmp_path: Path) -> None:
    """A measure with sums takes nothing; one of all scores takes them twice, and is refused before a pass."""
    n = 1_000_000
    data = streamsvm.ingest(np.ones((n, 1), np.float32), tmp_path / "many.zarr", np.arange(n) % 2)
    fold = np.tile(np.arange(2, dtype=np.uint8), n // 2)
    need, nothing = (
        need_for_scores(data, 40, 2, find_scoring(name, find_problem("classify"), 2)) for name in ("roc_auc", "f1")
    )
    assert nothing == NOTHING
    assert need.driver_bytes > 2 * need.gathered_bytes == 2 * 40 * 8 * n
    views = [HeldOut(data, keep(fold, k, False)) for k in range(2)]
    fits = list_fits(make_chains([OPTIONS], views))
    with open_for(data, OPTIONS, fits, None) as (_, plan):
        needed = plan.projected_bytes - plan.pin_bytes
    tight = replace(OPTIONS, memory_bytes=needed + (64 << 20))
    with open_for(data, tight, fits, None):
        pass
    with pytest.raises(MemoryBudgetError), open_for(data, tight, fits, None, need):
        pass
