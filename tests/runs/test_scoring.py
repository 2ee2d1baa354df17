"""Measures by which a grid is judged: each is scikit-learn's on the same held-out rows, and unsuitable ones are named."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
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
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.tables.checks import to_groups
from streamsvm.models.evaluate import find_probabilities, find_scoring
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.runs.held_out import draw_folds, keep
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.system.errors import InputError
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
    """Also with folds of whole groups in their order: a measure is told by its name, not by the way rows are held out."""
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
