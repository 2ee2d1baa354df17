"""Folds of whole groups, and folds in the order of groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, StratifiedKFold

import streamsvm
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.tables.checks import to_groups
from streamsvm.options import TrainOptions
from streamsvm.problems.problem import NEVER
from streamsvm.runs.held_out import draw_folds, keep
from streamsvm.system.errors import InputError

RANDOM = np.random.default_rng(0)
N = 400
X = RANDOM.standard_normal((N, 3)).astype(np.float32)
Y = (X[:, 0] + 0.5 * RANDOM.standard_normal(N) > 0).astype(np.int32)
GROUPS = RANDOM.integers(0, 25, N) ** 2
OPTIONS = TrainOptions()


def make_source(groups: Any, y: Any = Y) -> ArrayDataset:
    source = ArrayDataset(X[: len(y)], np.asarray(y, np.int32), np.array([0, 1]))
    source.groups = to_groups(np.asarray(groups), str)
    return source


def test_a_group_is_in_one_fold() -> None:
    fold = draw_folds(make_source(GROUPS), OPTIONS, 5)
    assert all(len(set(fold[group == GROUPS])) == 1 for group in GROUPS)
    theirs = [len(test) for _, test in GroupKFold(5).split(X, Y, GROUPS)]
    assert sorted(np.bincount(fold).tolist()) == sorted(theirs)  # both fill the smallest fold with the largest group
    assert not np.array_equal(fold, draw_folds(make_source(GROUPS), TrainOptions(seed=1), 5))


def test_folds_in_order_look_forward() -> None:
    fold = draw_folds(make_source(GROUPS), OPTIONS, 4, forward=True)
    assert set(fold.tolist()) == {0, 1, 2, 3, NEVER}
    for k in range(4):
        kept = keep(fold, k, True)
        assert GROUPS[kept].max() < GROUPS[fold == k].min()
        assert set(fold[kept].tolist()) == {NEVER, *range(k)}
    assert np.bincount(fold, minlength=256)[[0, 1, 2, 3, NEVER]].min() > N / 10


def test_without_groups_each_fold_is_kept_out_of_its_fit() -> None:
    source = make_source(GROUPS)
    source.groups = None
    fold = draw_folds(source, OPTIONS, 4)
    np.testing.assert_array_equal(keep(fold, 2, False), fold != 2)


@pytest.mark.parametrize(
    ("groups", "folds", "forward", "fault"),
    [
        (np.arange(N) % 3, 4, False, "3 groups cannot be split into 4 parts"),
        (np.arange(N) % 3, 3, True, "3 groups cannot be split into 4 parts"),
        (np.array([f"u{i % 9}" for i in range(N)]), 3, True, "its groups are strings, which have no order"),
        (np.where(np.arange(N) < 5, np.arange(N), 9), 3, True, "its groups are too large"),
        (Y, 2, False, "fold 1 would be trained without a row of the class"),
        (np.argsort(np.argsort(Y, kind="stable")), 3, True, "fold 1 would be trained without a row of the class 1"),
    ],
)
def test_folds_that_cannot_be(groups: Any, folds: int, forward: bool, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        draw_folds(make_source(groups), OPTIONS, folds, forward)


def test_an_order_needs_groups() -> None:
    with pytest.raises(InputError, match="folds in order need groups"):
        streamsvm.tune(X, Y, C=[1.0], folds=3, forward=True)


@pytest.mark.parametrize("forward", [False, True])
def test_scores_are_those_of_separate_fits(forward: bool) -> None:
    tuned = streamsvm.tune(X, Y, C=[0.01, 1.0], folds=3, groups=GROUPS, forward=forward, tol=1e-6)
    fold = draw_folds(make_source(GROUPS), OPTIONS, 3, forward)
    for trial in tuned.trials:
        for k in range(3):
            kept, out = keep(fold, k, forward), fold == k
            alone = streamsvm.LinearSVC(C=trial.C, tol=1e-6).fit(X[kept], Y[kept])
            assert trial.scores[k] == pytest.approx(alone.score(X[out], Y[out]), abs=1.1 / np.count_nonzero(out))


def test_probabilities_keep_groups_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    seen = []

    def note(*arguments: Any, **named: Any) -> Any:
        fold = draw_folds(*arguments, **named)
        seen.append((arguments[0].column("groups"), fold))
        return fold

    monkeypatch.setattr("streamsvm.runs.calibrate.draw_folds", note)
    data = streamsvm.ingest(X, tmp_path / "rows.zarr", Y, groups=GROUPS)
    streamsvm.LinearSVC(probability=True).fit(data)
    ((groups, fold),) = seen
    assert all(len(set(fold[groups == group])) == 1 for group in groups)


def test_a_rare_class_gives_a_warning_and_the_folds_of_scikit_learn(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    y = np.array([0] * 9 + [1] * 2, np.int32)
    source = ArrayDataset(X[: len(y)], y, np.array(["often", "rare"]))
    fold = draw_folds(source, OPTIONS, 3)
    assert "the class rare has 2 rows, too few for 3 folds" in caplog.text
    ours = sorted(np.bincount(y[fold == k], minlength=2).tolist() for k in range(3))
    with pytest.warns(UserWarning, match="least populated class"):
        theirs = [np.bincount(y[out], minlength=2).tolist() for _, out in StratifiedKFold(3).split(y, y)]
    assert ours == sorted(theirs)
    caplog.clear()
    draw_folds(source, OPTIONS, 2)
    assert caplog.text == ""


def test_probabilities_of_a_rare_class(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    y = np.array(["often"] * 18 + ["rare"] * 2)
    model = streamsvm.LinearSVC(probability=True).fit(X[:20], y)
    assert "the class rare has 2 rows, too few for 5 folds" in caplog.text
    assert np.isfinite(model.predict_proba(X[:20])).all()


@pytest.mark.parametrize(("folds", "told"), [(5, ["5"]), (4, ["4", "5"])])
def test_a_grid_with_probabilities_warns_once_of_a_rare_class(
    folds: int, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    y = np.array(["often"] * 18 + ["rare"] * 2)
    streamsvm.tune(X[:20], y, C=[0.1, 1.0], folds=folds, probability=True)
    assert re.findall(r"too few for (\d) folds", caplog.text) == told


def test_rows_that_give_no_probabilities_are_refused_before_the_grid(tmp_path: Path) -> None:
    y, out = np.array(["often"] * 18 + ["rare"] * 2), tmp_path / "grid"
    with pytest.raises(InputError, match="probabilities by sigmoid need, for every fold, a row of the class rare"):
        streamsvm.tune(X[:20], y, sample_weight=y == "often", C=[0.1, 1.0], folds=2, probability=True, out=out)
    assert not out.exists()


def test_the_only_row_of_a_class_is_never_held_out() -> None:
    y = np.array(["a"] * 10 + ["b"] * 9 + ["c"])
    tuned = streamsvm.tune(X[:20], y, C=[0.1, 1.0], folds=3)
    assert tuned.best.mean > 0.0
    source = ArrayDataset(X[:20], np.unique(y, return_inverse=True)[1].astype(np.int32), np.array(["a", "b", "c"]))
    fold = draw_folds(source, OPTIONS, 3)
    assert fold[-1] == NEVER
    assert set(fold[:-1]) == {0, 1, 2}
    for way in (True, "isotonic", "temperature"):
        probabilities = streamsvm.SVC(probability=way, C=100.0).fit(X[:20], y).predict_proba(X[:20])
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        assert probabilities[-1, 2] > probabilities[:-1, 2].mean()  # the row is scored, though by models that know it


def test_probabilities_of_small_classes_come_from_fewer_folds(caplog: pytest.LogCaptureFixture) -> None:
    """As scikit-learn's SVC, which draws its folds from all rows, has probabilities of three rows a class."""
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    rows, y = np.array([[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1.0]]), np.repeat([1, 2], 3)
    model = streamsvm.SVC(probability=True, gamma=1).fit(rows, y)
    assert "no class has 5 rows, so the probabilities come from 3 folds" in caplog.text
    assert (np.argmax(model.predict_proba(rows), axis=1) + 1).tolist() == y.tolist()
    with pytest.raises(InputError, match=r"the class 1 has 1 row, too few for 2 folds, .*, and no class has enough"):
        streamsvm.SVC(probability=True).fit(rows[2:4], y[2:4])


def test_as_many_models_as_folds_are_trained(tmp_path: Path) -> None:
    rows, y = np.array([[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1.0]]), np.repeat([1, 2], 3)
    streamsvm.SVC(probability=True, gamma=1, checkpoint=tmp_path / "run").fit(rows, y)
    assert len(list((tmp_path / "run" / "folds").iterdir())) == 3


def test_fewer_rows_than_folds_in_every_class_are_refused() -> None:
    y = np.array([0] * 4 + [1] * 2, np.int32)
    source = ArrayDataset(X[:6], y, np.array(["often", "rare"]))
    with pytest.raises(InputError, match=r"the class rare has 2 rows, too few for 5 folds, .*: remove the class"):
        draw_folds(source, OPTIONS, 5)
