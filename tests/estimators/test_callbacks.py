"""Who is told of the steps of a fit, and what scikit-learn routes to the estimators."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from streamsvm import (
    SVC,
    BudgetedSVC,
    CuttingPlane,
    InteriorPoint,
    LinearSVC,
    LinearSVR,
    LogisticRegression,
    OneClassSVM,
    RankSVM,
    ingest,
)
from streamsvm.system.display import draw_gaps
from streamsvm.system.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(150, 3))
Y = (X[:, 0] + RANDOM.normal(size=150) > 0).astype(int)
WEIGHT = RANDOM.uniform(0, 3, size=150)
QUERY = np.repeat(np.arange(15), 10)

callbacks_of_scikit_learn = pytest.mark.skipif(
    importlib.util.find_spec("sklearn.callback") is None, reason="scikit-learn before 1.9 has no callbacks"
)


@pytest.mark.parametrize("kind", [LinearSVC, SVC, LinearSVR, LogisticRegression])
def test_callbacks_know_what_the_history_tells(kind: Any) -> None:
    told: list[dict[str, Any]] = []
    model = kind(tol=1e-4).set_callbacks(told.append, lambda step: None).fit(X, Y)
    assert told == model.history_
    last = told[-1]
    assert last["relative_gap"] == pytest.approx((last["objective"] - last["lower_bound"]) / last["objective"])
    clone(model).fit(X, Y)
    assert len(told) == 2 * len(model.history_)
    again = pickle.loads(pickle.dumps(model)).fit(X, Y)
    assert len(told) == 2 * len(again.history_)


@pytest.mark.usefixtures("many_groups")
def test_progress_within_a_pass_is_logged_and_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("streamsvm.system.reading.REPORT_SECONDS", 0.0)
    monkeypatch.setattr("streamsvm.estimators.callbacks.READING_SECONDS", 0.0)
    data = ingest(X, tmp_path / "rows.zarr", Y, chunk_bytes=200)
    with caplog.at_level("INFO", "streamsvm"):
        LinearSVC(verbose=1).fit(data)
    printed = [line for line in capsys.readouterr().out.splitlines() if "of a pass" in line]
    assert printed
    assert all(re.fullmatch(r"\[LinearSVC\] \d+% of a pass, [\d,]+ rows/s, about \d+ s left", line) for line in printed)
    assert [message for message in caplog.messages if "of a pass" in message] == printed
    LinearSVC().fit(data)
    assert capsys.readouterr().out == ""


def test_an_error_of_a_callback_ends_the_fit() -> None:
    def stop(step: dict[str, Any]) -> None:
        raise RuntimeError(f"enough after {step['passes']}")

    with pytest.raises(RuntimeError, match="enough after"):
        LinearSVC().set_callbacks(stop).fit(X, Y)
    with pytest.raises(InputError, match="int is neither a function that takes a step, nor a scikit-learn"):
        LinearSVC().set_callbacks(3)
    with pytest.raises(InputError, match="set_callbacks: Recorder is a class"):
        LinearSVC().set_callbacks(Recorder)


class Recorder:
    """A callback of scikit-learn that keeps what the hooks are told. stop: the step whose end it asks for."""

    def __init__(self, stop: int = -1) -> None:
        self.stop, self.told, self.fitted = stop, list[tuple[str, str, int]](), list[Any]()

    def setup(self, estimator: Any, context: Any) -> None:
        self.told.append(("setup", context.task_name, context.task_id))

    def teardown(self, estimator: Any, context: Any) -> None:
        self.told.append(("teardown", context.task_name, context.task_id))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.told.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, X: Any, y: Any, metadata: Any, fitted_estimator: Any
    ) -> bool:
        self.told.append(("end", context.task_name, context.task_id))
        if fitted_estimator is not None:
            self.fitted.append((fitted_estimator, fitted_estimator.predict(X[:20]), len(X), metadata))
        return bool(context.task_name == "step" and context.task_id == self.stop)


def list_tasks(n_steps: int) -> list[tuple[str, str, int]]:
    """What a Recorder is told of a fit of so many steps."""
    steps = [(when, "step", k) for k in range(n_steps) for when in ("begin", "end")]
    return [("setup", "fit", 0), ("begin", "fit", 0), *steps, ("end", "fit", 0), ("teardown", "fit", 0)]


@callbacks_of_scikit_learn
@pytest.mark.parametrize(
    "model",
    [
        LinearSVC(C=10, tol=1e-6, solver=CuttingPlane(acceleration="none")),
        LinearSVC(probability=True),
        LinearSVR(),
        SVC(resident_rows=20),
        SVC(kernel=lambda a, b: np.asarray(a) @ np.asarray(b).T),
        SVC(C=np.inf, kernel="rbf", gamma=50.0),
        SVC(solver=InteriorPoint(n_components=20)),
        BudgetedSVC(epochs=2),
        OneClassSVM(),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.solver}-{getattr(model, 'probability', '')}",
)
def test_a_fit_and_its_steps_are_tasks_of_scikit_learn(model: Any) -> None:
    recorder, lines = Recorder(), list[dict[str, Any]]()
    model = clone(model).set_callbacks(recorder, lines.append).fit(X, Y, sample_weight=WEIGHT)
    steps = len(model.history_)
    assert recorder.told == list_tasks(steps)
    assert lines == model.history_
    for k, (fitted, _, rows, metadata) in enumerate(recorder.fitted):
        assert fitted.objective_ == model.history_[min(k, steps - 1)]["objective"]
        assert (type(fitted), rows, list(metadata)) == (type(model), len(Y), ["sample_weight"])
    np.testing.assert_array_equal(recorder.fitted[-1][1], model.predict(X[:20]))
    assert not hasattr(model, "_callback_fit_ctx")


@callbacks_of_scikit_learn
def test_a_callback_of_scikit_learn_ends_a_fit() -> None:
    recorder = Recorder(stop=1)
    many = LinearSVC(C=10, tol=1e-8, solver=CuttingPlane(acceleration="none"))
    model = clone(many).set_callbacks(recorder).fit(X, Y)
    assert (model.status_, len(model.history_)) == ("early_stop", 2)
    assert "stopped early, after 2 passes" in model.result_.status_reason
    assert recorder.told == list_tasks(2)
    two = clone(many).set_params(max_passes=2)
    with pytest.warns(ConvergenceWarning):
        two.fit(X, Y)
    np.testing.assert_array_equal(model.coef_, two.coef_)


@callbacks_of_scikit_learn
@pytest.mark.parametrize("probability", [False, True])
def test_the_end_that_a_callback_asked_for_stays(probability: bool, tmp_path: Path) -> None:
    """A fit from its checkpoint gives the same model, and begins no step; so does one that was killed thereafter."""
    own = {"C": 10.0, "tol": 1e-8, "solver": CuttingPlane(acceleration="none"), "probability": probability}
    models = [LinearSVC(**own, checkpoint=tmp_path).set_callbacks(Recorder(stop=1)).fit(X, Y)]
    recorder = Recorder()
    models.append(LinearSVC(**own, checkpoint=tmp_path).set_callbacks(recorder).fit(X, Y))
    (tmp_path / "result.json").unlink()
    (tmp_path / "model.npz").unlink()
    models.append(LinearSVC(**own, checkpoint=tmp_path).fit(X, Y))
    assert recorder.told == list_tasks(0)
    for model in models:
        assert (model.status_, len(model.history_)) == ("early_stop", 2)
        np.testing.assert_array_equal(model.decision_function(X), models[0].decision_function(X))


@callbacks_of_scikit_learn
def test_a_checkpoint_tells_of_the_end_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint of the step whose end the callback asked for has the status, before the run is finished."""
    monkeypatch.setattr("streamsvm.runs.folder.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("streamsvm.runs.folder.MOST_CHECKPOINT_SHARE", np.inf)
    monkeypatch.setattr("streamsvm.runs.train.save_all", lambda group: (_ for _ in ()).throw(MemoryError("killed")))
    own = {"C": 10.0, "tol": 1e-8, "solver": CuttingPlane(acceleration="none"), "checkpoint": tmp_path}
    with pytest.raises(MemoryError, match="killed"):
        LinearSVC(**own).set_callbacks(Recorder(stop=1)).fit(X, Y)
    monkeypatch.undo()
    model = LinearSVC(**own).fit(X, Y)
    assert (model.status_, len(model.history_)) == ("early_stop", 2)


@callbacks_of_scikit_learn
def test_callbacks_are_torn_down_after_an_error() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="Input X contains NaN"):
        LinearSVC().set_callbacks(recorder).fit(X * np.nan, Y)
    assert recorder.told == []

    def stop(step: dict[str, Any]) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        LinearSVC().set_callbacks(stop, recorder).fit(X, Y)
    assert recorder.told[-1] == ("teardown", "fit", 0)


@callbacks_of_scikit_learn
@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow("starts processes of joblib"))])
def test_searches_of_scikit_learn_hand_their_callbacks_on(n_jobs: int | None) -> None:
    """The monitor is told of each step of each fit, and a function of the inner estimator stays with it."""

    class Propagated(Recorder):
        max_propagation_depth = None

    monitor = importlib.import_module("sklearn.callback").ScoringMonitor(scoring="accuracy")
    propagated, lines = Propagated(), list[dict[str, Any]]()
    inner = LinearSVC().set_callbacks(monitor, lines.append)
    search = GridSearchCV(inner, {"C": [0.01, 0.1]}, cv=3, n_jobs=n_jobs).set_callbacks(propagated).fit(X, Y)
    best, log = search.best_estimator_, monitor.get_logs().data
    scores = [row["accuracy"] for row in log if row["estimator_name"] == "LinearSVC"]
    assert scores.count(accuracy_score(Y, search.predict(X))) >= 2  # after the last step of the refit, and after it
    assert len(scores) >= 7 * 2
    if n_jobs is None:
        assert sum(told[:2] == ("end", "step") for told in propagated.told) == len(lines) >= 7
        best.fit(X, Y)
        assert lines[-1] == best.history_[-1]


def test_steps_are_logged_and_printed_on_demand(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    LinearSVC().fit(X, Y)
    assert capsys.readouterr().out == ""
    assert not caplog.records
    with caplog.at_level(logging.INFO, "streamsvm"):
        model = LinearSVC(verbose=1).fit(X, Y)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [record.getMessage() for record in caplog.records if "objective" in record.getMessage()]
    assert len(printed) == len(model.history_)


def test_the_curve_of_gaps_has_a_point_for_each_step() -> None:
    model = LinearSVC(C=10, tol=1e-8, solver=CuttingPlane(acceleration="none")).fit(X, Y)
    shown = model.result_._repr_html_()
    (points,) = re.findall('polyline points="(.*?)"', shown)
    gaps = [line["objective"] - line["lower_bound"] for line in model.history_ if line["lower_bound"] is not None]
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert len(heights) <= len(gaps)
    assert heights[-1] == max(heights) == 38.0
    assert min(heights) == 2.0
    assert draw_gaps([0.5]) == ""
    assert draw_gaps([0.5, float("inf"), 0.0]) == ""
    assert draw_gaps([1.0, 1e-1, 1e-2]).count("2.0,2.0 100.0,20.0 198.0,38.0") == 1


@pytest.fixture
def routing() -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("kind", [LinearSVC, SVC])
def test_weights_are_routed_through_pipelines(routing: None, kind: Any) -> None:
    twice = FunctionTransformer(lambda rows: 2 * rows)
    piped = make_pipeline(twice, kind(C=0.1, tol=1e-6).set_fit_request(sample_weight=True))
    piped.fit(X, Y, sample_weight=WEIGHT)
    alone = kind(C=0.1, tol=1e-6).fit(2 * X, Y, sample_weight=WEIGHT)
    np.testing.assert_array_equal(piped.decision_function(X), alone.decision_function(2 * X))


def test_weights_are_routed_through_searches(routing: None) -> None:
    asked = LinearSVC().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(asked, {"C": [0.01, 0.1]}, cv=3).fit(X, Y, sample_weight=WEIGHT)
    again = LinearSVC(**search.best_params_).fit(X, Y, sample_weight=WEIGHT)
    np.testing.assert_array_equal(search.decision_function(X), again.decision_function(X))


def test_queries_are_routed_to_rankings(routing: None) -> None:
    asked = RankSVM(C=0.1).set_fit_request(qid=True).set_score_request(qid=True)
    folds = GroupKFold(3)
    found = cross_validate(asked, X, Y, params={"qid": QUERY, "groups": QUERY}, cv=folds)["test_score"]
    for k, (rows, held) in enumerate(folds.split(X, Y, QUERY)):
        model = RankSVM(C=0.1).fit(X[rows], Y[rows], qid=QUERY[rows])
        assert found[k] == model.score(X[held], Y[held], qid=QUERY[held])
