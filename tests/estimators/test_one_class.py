"""OneClassSVM beside scikit-learn's, on arrays, Dask rows and datasets; saved, loaded, verified, and by commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import dask.array
import numpy as np
import pytest
from sklearn import svm
from sklearn.exceptions import NotFittedError

import streamsvm
from streamsvm import SMO, OneClassSVM
from streamsvm.cli.info import format_evaluation
from streamsvm.cli.main import main
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import KernelModel
from streamsvm.models.model import load as load_model
from streamsvm.system.errors import InputError
from streamsvm.verify.verify import verify

RNG = np.random.default_rng(11)
X = (RNG.normal(size=(400, 3)) + np.array([1.0, 2.0, 0.5])).astype(np.float32)
NOVEL = (RNG.normal(size=(100, 3)) - 5.0).astype(np.float32)
WEIGHT = RNG.choice([0.0, 0.5, 3.0], len(X))
KERNELS = ("rbf", "poly", "linear")


@pytest.mark.parametrize("nu", [0.05, 0.5])
@pytest.mark.parametrize("solver", ["smo", "irwls"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_minimum_and_the_same_decisions_as_libsvm(kernel: str, solver: str, nu: float) -> None:
    about = {"kernel": kernel, "nu": nu, "gamma": 0.1, "degree": 2, "coef0": 1.0}
    model = OneClassSVM(solver=solver, tol=1e-7, **about).fit(X)
    expected = svm.OneClassSVM(tol=1e-10, **about).fit(X.astype(np.float64))
    least = float(expected.dual_coef_[0] @ expected.score_samples(expected.support_vectors_)) / 2
    assert (model.status_, model.gap_ <= 1e-7) == ("converged", True)
    assert model.lower_bound_ <= least * (1 + 1e-9)
    assert model.objective_ == pytest.approx(least, rel=2e-7)
    scale = abs(float(expected.offset_[0]))
    np.testing.assert_allclose(model.score_samples(X), expected.score_samples(X), atol=2e-3 * scale)
    assert model.offset_ == pytest.approx(expected.offset_[0], rel=2e-3)
    clear = np.abs(expected.decision_function(X)) > 2e-3 * scale
    np.testing.assert_array_equal(model.predict(X)[clear], expected.predict(X)[clear])
    assert np.mean(model.predict(X) == -1) <= nu + 1 / len(X)
    assert len(model.support_) >= nu * len(X)


def test_attributes_are_those_of_scikit_learn() -> None:
    model, expected = OneClassSVM(nu=0.1).fit(X), svm.OneClassSVM(nu=0.1).fit(X)
    np.testing.assert_array_equal(model.decision_function(X), model.score_samples(X) - model.offset_)
    np.testing.assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, 1, -1))
    np.testing.assert_array_equal(model.fit_predict(X), model.predict(X))
    np.testing.assert_array_equal(model.intercept_, [-model.offset_])
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    assert model.dual_coef_.shape == (1, len(model.support_))
    assert model.dual_coef_.sum() == pytest.approx(0.1 * len(X), rel=1e-14)
    assert np.all((model.dual_coef_ > 0) & (model.dual_coef_ <= 1))
    np.testing.assert_array_equal(model.n_support_, [len(model.support_)])
    assert not hasattr(model, "classes_")
    ours = {name for name in vars(expected) if name.endswith("_") and not name.startswith("_")} - set(dir(model))
    assert ours <= {"class_weight_"}
    with pytest.raises(AttributeError, match="linear"):
        _ = model.coef_
    linear = OneClassSVM(kernel="linear", nu=0.1).fit(X)
    np.testing.assert_allclose(linear.score_samples(X), X @ linear.coef_[0], rtol=1e-6)
    with pytest.raises(NotFittedError):
        OneClassSVM().predict(X)


def test_weights_are_bounds_of_multipliers() -> None:
    model = OneClassSVM(nu=0.3, gamma=0.1, tol=1e-7).fit(X, sample_weight=WEIGHT)
    kept = WEIGHT > 0
    expected = svm.OneClassSVM(nu=0.3, gamma=0.1, tol=1e-10).fit(X[kept], sample_weight=WEIGHT[kept])
    scale = float(expected.offset_[0])
    np.testing.assert_allclose(model.score_samples(X), expected.score_samples(X), atol=2e-3 * scale)
    assert np.all(model.dual_coef_[0] <= WEIGHT[model.support_])
    assert model.dual_coef_.sum() == pytest.approx(0.3 * WEIGHT.sum(), rel=1e-13)


def test_other_kernels_take_known_values_and_functions() -> None:
    model = OneClassSVM(nu=0.2, gamma=0.1).fit(X)
    K = svm.OneClassSVM(nu=0.2, kernel="precomputed", tol=1e-8).fit(form(X, X))
    known = OneClassSVM(nu=0.2, kernel="precomputed").fit(form(X, X))
    function = OneClassSVM(nu=0.2, kernel=form).fit(X)
    for other, rows in ((known, form(NOVEL, X)), (function, NOVEL)):
        assert other.status_ == "stationary"
        np.testing.assert_allclose(other.score_samples(rows), K.score_samples(form(NOVEL, X)), atol=0.05)
        np.testing.assert_allclose(other.score_samples(rows), model.score_samples(NOVEL), atol=0.05)


def form(A: np.ndarray, B: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The Gaussian kernel."""
    squares = np.sum((A[:, None].astype(np.float64) - B[None]) ** 2, axis=2)
    return np.exp(-0.1 * squares)


def test_dask_rows_without_labels() -> None:
    lazy = dask.array.from_array(X, chunks=(100, 3))
    model, of_dask = OneClassSVM(nu=0.2, gamma=0.1).fit(X), OneClassSVM(nu=0.2, gamma=0.1).fit(lazy)
    assert of_dask.objective_ == pytest.approx(model.objective_, rel=1e-3)
    found = of_dask.predict(lazy).compute(scheduler="sync")
    np.testing.assert_array_equal(found, of_dask.predict(X))
    scores = of_dask.score_samples(lazy).compute(scheduler="sync")
    np.testing.assert_allclose(scores, of_dask.score_samples(X), rtol=1e-12)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["no weights", "weights"])
def test_saved_loaded_and_verified(weight: np.ndarray | None, tmp_path: Path) -> None:  # type: ignore[type-arg]
    dataset = ingest(X, tmp_path / "rows.zarr", sample_weight=weight, shuffle=None)
    model = OneClassSVM(nu=0.1, gamma=0.1, solver="irwls").fit(dataset)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    assert isinstance(loaded, OneClassSVM)
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    for dual in (False, True):
        found = verify(loaded.model_, dataset, dual=dual)
        assert found.agrees
        assert found.objective == pytest.approx(model.objective_, rel=1e-12)
        assert found.lower_bound == pytest.approx(model.lower_bound_, rel=1e-7)
        assert found.lower_bound is not None
        assert found.lower_bound <= found.objective


def test_a_model_that_is_no_point_of_the_problem_is_not_verified(tmp_path: Path) -> None:
    dataset = ingest(X, tmp_path / "rows.zarr", shuffle=None)
    model = OneClassSVM(nu=0.1, gamma=0.1).fit(dataset).model_
    assert isinstance(model, KernelModel)
    changed = model.dual_coef.copy()
    changed[[0, 1]] += 1.5, -1.5
    with pytest.raises(InputError, match="not between 0 and the weight"):
        verify(replace(model, dual_coef=changed), dataset)
    with pytest.raises(InputError, match="their sum is not nu times"):
        verify(replace(model, dual_coef=0.999 * model.dual_coef), dataset)
    fewer = ingest(X[:50], tmp_path / "fewer.zarr", shuffle=None)
    with pytest.raises(InputError, match="not among these rows"):
        verify(model, fewer)
    other = ingest(X + np.float32(0.01) * X**2, tmp_path / "other.zarr", shuffle=None)
    found = verify(model, other)  # the objective is that of the model's own rows; the bound is one for these
    assert found.lower_bound is not None
    assert found.lower_bound < 0.999 * model.info["lower_bound"]


def test_evaluation_counts_false_alarms_and_detections(tmp_path: Path) -> None:
    model = OneClassSVM(nu=0.1, gamma=0.1).fit(X).model_
    own = ingest(X, tmp_path / "own.zarr")
    found, novel = evaluate(model, own), float(np.mean(model.decide(X) <= 0))
    assert found["n_rows"] == len(X)
    assert found["novel_rate"] == pytest.approx(novel, abs=1e-15)
    unknown = [found[name] for name in ("false_alarm_rate", "detection_rate", "roc_area")]
    assert (unknown, found["unknown_labels"]) == ([None] * 3, 0)
    assert format_evaluation(found) == f"novel {novel:.4f} on 400 rows"
    y = np.concatenate((np.ones(400, int), -np.ones(99, int), [7]))
    both = ingest(np.concatenate((X, NOVEL)), tmp_path / "both.zarr", y)
    found = evaluate(model, both)
    assert found["false_alarm_rate"] == pytest.approx(novel, abs=1e-15)
    assert (found["detection_rate"], found["unknown_labels"]) == (1.0, 1)
    assert found["roc_area"] > 0.99
    assert found["novel_rate"] == pytest.approx((novel * 400 + 100) / 500, abs=1e-12)


def test_rows_with_targets_have_no_labels(tmp_path: Path) -> None:
    model = OneClassSVM(nu=0.1, gamma=0.1).fit(X).model_
    found = evaluate(model, ingest(X, tmp_path / "targets.zarr", X[:, 0] / 7, regression=True))
    assert found["novel_rate"] == pytest.approx(0.1, abs=0.02)
    assert (found["false_alarm_rate"], found["detection_rate"], found["unknown_labels"]) == (None, None, 0)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, labelled = tmp_path / "own.csv", tmp_path / "both.csv"
    np.savetxt(table, X, delimiter=",", header="a,b,c", comments="")
    y = np.concatenate((np.ones(400), -np.ones(100)))
    np.savetxt(
        labelled, np.column_stack((y, *np.concatenate((X, NOVEL)).T)), delimiter=",", header="y,a,b,c", comments=""
    )
    rows, run, out = tmp_path / "rows.zarr", tmp_path / "run", tmp_path / "out.csv"
    assert main(["ingest", str(table), str(rows)]) == 2
    assert "which column is the label" in capsys.readouterr().err
    assert main(["ingest", str(table), str(rows), "--unlabelled"]) == 0
    asked = ["train", str(rows), "--task", "one-class", "--kernel", "rbf", "--nu", "0.1", "--out", str(run)]
    assert main([*asked, "--plan"]) == 0
    assert "all rows are active" in capsys.readouterr().out
    assert main([*asked, "--max-passes", "2", "--resident-rows", "20%"]) == 3
    assert main([*asked, "--resident-rows", "20%", "--resume"]) == 0
    assert main(["verify", str(run), str(rows)]) == 0
    assert main(["predict", str(run), str(table), "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(run), str(labelled), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["detection_rate"] == 1.0
    assert told["false_alarm_rate"] == pytest.approx(0.1, abs=0.02)
    assert main(["evaluate", str(run), str(table)]) == 0
    shown = capsys.readouterr().out
    assert "novel 0.1" in shown
    assert "false alarms" not in shown
    assert main(["evaluate", str(run), str(labelled), "--label", "y"]) == 0
    assert "false alarms 0.1" in capsys.readouterr().out
    labels, scores = np.loadtxt(out, delimiter=",", skiprows=1).T
    np.testing.assert_allclose(scores, load_model(run).decide(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(labels, np.where(scores > 0, 1, -1))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--nu", "2"], "nu is 2.0"),
        (["--C", "3"], "nu replaces it"),
        (["--solver", "newton"], "use --solver smo or irwls"),
        (["--epsilon", "0.1"], "has no tube"),
        (["--loss", "hinge"], "one_class"),
        (["--map", "nystrom"], "map"),
    ],
    ids=str,
)
def test_commands_that_have_no_meaning(
    given: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest(X, tmp_path / "rows.zarr")
    asked = ["train", str(tmp_path / "rows.zarr"), "--task", "one-class", "--out", str(tmp_path / "run"), *given]
    assert main(asked) == 2
    ended = capsys.readouterr().err
    assert told in ended
    assert "Traceback" not in ended
    assert not (tmp_path / "run").exists()


def test_what_has_no_meaning_is_refused(tmp_path: Path) -> None:
    for nu in (0.0, 1.5, -1.0, float("nan")):
        with pytest.raises(InputError, match="nu is"):
            OneClassSVM(nu=nu).fit(X)
    with pytest.raises(InputError, match="zero or negative weights"):
        OneClassSVM().fit(X, sample_weight=np.zeros(len(X)))
    with pytest.raises(InputError, match="two classes"):
        OneClassSVM(solver=SMO(selection="platt")).fit(X)
    with pytest.raises(InputError, match="do not pass y or sample_weight"):
        OneClassSVM().fit(ingest(X, tmp_path / "rows.zarr"), sample_weight=WEIGHT)
    y = np.where(X[:, 0] > 1, 1, -1)
    with pytest.raises(InputError, match="uses no labels"):
        streamsvm.tune(X, y, C=[1.0], task="one-class", solver="smo", kernel="rbf")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_around_the_origin_have_no_half_space() -> None:
    """w is 0 for a linear kernel, and no relative gap can be proved: the run ends soon, and says why."""
    both = np.concatenate((X - X.mean(axis=0), X.mean(axis=0) - X))
    model = OneClassSVM(kernel="linear", nu=0.5).fit(both)
    assert model.status_ == "stalled"
    assert "the origin lies among the rows" in model.result_.status_reason
    assert model.lower_bound_ == 0.0


def test_a_training_goes_on_until_the_multipliers_have_their_sum() -> None:
    """The gap is proved before, by what is lacking of the sum; but then the model is no point of the problem."""
    X = np.random.default_rng(0).standard_normal((1501, 3)).astype(np.float32)
    model = OneClassSVM(gamma=1e-3, nu=0.5, resident_rows="20%").fit(X)
    assert model.status_ == "converged"
    assert np.sum(model.dual_coef_) == pytest.approx(750.5, rel=1e-9)


def test_a_constant_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="coef0 is -1"):
        OneClassSVM(kernel="poly", degree=1, gamma=1.0, coef0=-1).fit(np.eye(4, 2))
