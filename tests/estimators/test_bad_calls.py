"""Rows, labels, weights and parameters that estimators refuse, each with a message that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import streamsvm
from streamsvm import (
    SMO,
    SVC,
    SVR,
    BudgetedSGD,
    BudgetedSVC,
    CuttingPlane,
    IncompleteCholesky,
    LinearOneClassSVM,
    LinearSVC,
    LinearSVR,
    LogisticRegression,
    NuSVC,
    NuSVR,
    OneClassSVM,
    RankSVM,
)
from streamsvm.system.errors import InputError
from tests.estimators.test_linear import X, Y

BAD_NUMBERS = X.copy()


BAD_NUMBERS[3, 2] = np.nan


INFINITE = X.copy()


INFINITE[3, 2] = np.inf


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ((BAD_NUMBERS, Y), "Input X contains NaN"),
        ((INFINITE, Y), "Input X contains infinity"),
        ((X.astype(float) * 1e300, Y), "too large for float32"),
        ((X, None), "requires y to be passed"),
        ((X, np.ones(len(Y))), r"one class only \(1\.0\)"),
        ((X, Y[:-1]), "inconsistent numbers of samples"),
        ((X, X[:, 0]), "continuous"),
        ((X, Y, -np.ones(len(Y))), r"sample_weight: row 1 \(counted from 1\): sample weight is negative: -1.0"),
        ((X, Y, np.full(len(Y), 1j)), "sample_weight: numbers are expected"),
        ((X, Y, np.zeros(len(Y))), "sample_weight: the weights of all rows are zero; give"),
        (("no such dataset", None), "no such dataset: no such dataset"),
        (("no such dataset", Y), "no such dataset: no such dataset"),
    ],
)
def test_bad_data(fit: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearSVC().fit(*fit)


def test_a_dataset_has_its_own_labels(tmp_path: Path) -> None:
    data = streamsvm.ingest(X, tmp_path / "rows.zarr", Y)
    for rows in (data, data.path):
        with pytest.raises(InputError, match="a dataset has its own labels and weights"):
            LinearSVC().fit(rows, Y)


@pytest.mark.parametrize(
    "estimator", [LinearSVC, LinearSVR, LogisticRegression, LinearOneClassSVM, RankSVM, BudgetedSVC, NuSVC, OneClassSVM]
)
def test_weights_that_are_all_zero_are_refused_alike_wherever_the_rows_are(estimator: Any, tmp_path: Path) -> None:
    zeros, message = np.zeros(len(Y)), "^sample_weight: the weights of all rows are zero; give at least one row a"
    streamsvm.ingest(X, tmp_path / "rows.zarr", Y, sample_weight=zeros)
    rows, labels, weights = (da.from_array(of_all, chunks=(100, *of_all.shape[1:])) for of_all in (X, Y, zeros))
    with pytest.raises(InputError, match=message):
        estimator().fit(rows, labels, sample_weight=weights)
    if estimator is not LinearSVR:  # whose targets are no classes
        with pytest.raises(InputError, match=message):
            estimator().fit(tmp_path / "rows.zarr")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, "C is 0; it must be positive"),
        ({"C": "1"}, "C is '1'"),
        ({"C": float("nan")}, "C is nan"),
        ({"tol": -1}, "tol is -1"),
        ({"solver": "magic"}, "solver 'magic': choose from auto, cutting-plane"),
        ({"class_weight": {7: 1}}, "class_weight names 7; the classes are -1 and 1"),
        ({"class_weight": "heavy"}, "class_weight 'heavy'"),
        ({"intercept_scaling": 0}, "intercept_scaling=0"),
        ({"memory": "lots"}, "memory 'lots' is not a size in bytes"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"n_jobs": -2}, "n_jobs is -2"),
        ({"solver": CuttingPlane(acceleration="warp")}, "choose from auto, one-read, block-ascent, line-search, none"),
        ({"solver": CuttingPlane(epsilon=-1)}, "option epsilon=-1"),
        (
            {"resident_rows": 10, "solver": CuttingPlane(acceleration="none")},
            "resident rows cannot be used with acceleration=none",
        ),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LinearSVC(**parameters).fit(X, Y)


@pytest.mark.parametrize("solver", ["auto", "cutting-plane", "newton"])
@pytest.mark.parametrize("estimator", [SVC, SVR, OneClassSVM])
def test_solvers_of_linear_models_are_not_for_sums_of_kernels(estimator: Any, solver: str) -> None:
    told = f"solver '{solver}': {estimator.__name__} trains sums of kernels; choose from smo, irwls, budgeted-sgd"
    with pytest.raises(InputError, match=told):
        estimator(solver=solver, kernel="linear").fit(X, np.sign(Y))


@pytest.mark.parametrize("solver", ["smo", SMO(), BudgetedSGD()])
@pytest.mark.parametrize("estimator", [LinearSVC, LinearSVR])
def test_solvers_of_kernel_models_do_not_train_linear_models(estimator: Any, solver: Any) -> None:
    name = solver if isinstance(solver, str) else solver.name
    told = f"solver '{name}': {estimator.__name__} trains linear models; choose from auto, cutting-plane, newton"
    with pytest.raises(InputError, match=told):
        estimator(solver=solver).fit(np.eye(6, dtype=np.float32), np.arange(6) % 2)


def test_calls_that_newcomers_make(tmp_path: Path) -> None:
    """The name of a column in place of its values, text among the features, frames without rows, lists of labels."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "colour": ["red", "white"], "grade": [0, 1]})
    with pytest.raises(InputError, match=r"y is the string 'grade': give the labels, .*label='grade'"):
        LinearSVC().fit(frame, "grade")
    with pytest.raises(InputError, match=r"y is the string 'grade': give the labels, .*label='grade'"):
        streamsvm.ingest(frame, tmp_path / "d.zarr", "grade")
    with pytest.raises(InputError, match=r"X: column colour must hold numbers .*one_hot='auto'"):
        LinearSVC().fit(frame[["a", "colour"]], frame["grade"])
    with pytest.raises(InputError, match=r"y: rows differ in length; .*MultiLabelBinarizer"):
        LinearSVC().fit(X[:2], [["a", "b"], ["a"]])
    with pytest.raises(InputError, match=r"not a dataset; .*\(streamsvm\.ingest in Python\) makes one from files$"):
        LinearSVC().fit(__file__)


def test_lazy_frames_are_collected_by_their_owner(tmp_path: Path) -> None:
    """As rows and as labels, in `fit`, in `ingest`, in blocks, and in all that a model does with rows."""
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"a": [1.0, 2.0]})
    model = LinearSVC().fit([[1.0], [2.0]], [0, 1])
    path = tmp_path / "d.zarr"
    for call in (
        lambda: LinearSVC().fit(lazy, [0, 1]),
        lambda: BudgetedSVC().partial_fit(lazy, [0, 1], classes=[0, 1]),
        lambda: streamsvm.ingest(lazy, path, [0, 1]),
        lambda: streamsvm.ingest(iter([lazy]), path),
        lambda: model.predict(lazy),
        lambda: model.decision_function(lazy),
        lambda: model.score(lazy, [0, 1]),
    ):
        with pytest.raises(InputError, match=r"X: a LazyFrame has no rows yet: give X\.collect\(\)"):
            call()
    for call in (lambda: LinearSVC().fit(X[:2], lazy), lambda: streamsvm.ingest(X[:2], path, lazy)):
        with pytest.raises(InputError, match=r"y: a LazyFrame has no rows yet: give y\.collect\(\)"):
            call()


def test_labels_of_the_type_string_dtype(tmp_path: Path) -> None:
    """NumPy's StringDType gives the classes of any other text, and a missing label is told."""
    words = np.where(Y > 0, "up", "down")
    new, plain = words.astype(np.dtypes.StringDType()), LinearSVC().fit(X, words)
    model = LinearSVC().fit(X, new)
    assert model.classes_.tolist() == ["down", "up"]
    assert model.predict(X).tolist() == plain.predict(X).tolist()
    assert model.score(X, new) == plain.score(X, words)
    for k, labels in enumerate((new, words)):
        dataset = streamsvm.ingest(iter([(X, labels)]), tmp_path / f"{k}.zarr")
        assert np.asarray(dataset.classes).tolist() == ["down", "up"]
    gap = new.astype(np.dtypes.StringDType(na_object=None))
    gap[3] = None
    with pytest.raises(InputError, match=r"y: row 4 \(counted from 1\): label missing"):
        streamsvm.ingest(X, tmp_path / "gap.zarr", gap)


HUGE = 10**400


@pytest.mark.parametrize("value", [HUGE, -HUGE, float("nan"), "many", 1j, [1], True], ids=lambda value: repr(value)[:9])
@pytest.mark.parametrize("name", ["C", "tol", "gamma", "coef0", "epsilon", "max_seconds", "nu", "intercept_scaling"])
def test_numbers_that_float64_does_not_hold(name: str, value: Any) -> None:
    of_kernels = {"nu": NuSVC} if name == "nu" else dict.fromkeys(("gamma", "coef0", "epsilon"), SVR)
    if (name, value) in (("max_seconds", HUGE), ("max_seconds", True), ("nu", True)):
        return  # limits that end nothing, or at once, and a share of 1
    with pytest.raises(InputError, match=rf"{name} ?(is|=) ?"):
        of_kernels.get(name, LinearSVR)(**{name: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("estimator", "parameters", "message"),
    [
        (SVC, {"degree": HUGE, "kernel": "poly"}, "degree is 1000.*; a whole number from 0 to 1,000,000"),
        (SVC, {"degree": 2**70, "kernel": "poly"}, "degree is 1180"),
        (SVC, {"n_jobs": HUGE}, "n_jobs is 1000"),
        (SVC, {"n_jobs": 1.5}, "n_jobs is 1.5"),
        (SVC, {"n_jobs": "two"}, "n_jobs is 'two'"),
        (SVC, {"class_weight": {1: HUGE}}, "class_weight of 1 is 1000"),
        (SVC, {"class_weight": {1: 5e-324}}, "class_weight of 1 is 5e-324; .* at least 1e-290"),
        (LinearSVC, {"feature_map": IncompleteCholesky(n_components=2.5)}, "n_components is 2.5"),
        (LinearSVC, {"intercept_scaling": 1e308}, "intercept_scaling=1e.308: a positive number up to"),
        (BudgetedSVC, {"solver": BudgetedSGD(pack=1e300)}, "option pack=1e.300"),
        (LinearSVR, {"C": 5e-324}, "C is 5e-324; the smallest supported value is 1e-290"),
        (RankSVM, {"C": 1e-320}, "C is 1e-320; the smallest supported value is 1e-290"),
    ],
)
def test_numbers_at_which_arithmetic_fails(estimator: Any, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        estimator(**parameters).fit(X, Y)


@pytest.mark.parametrize("generator", [np.random.default_rng(0), -1, 1.5, "0"])
def test_seeds_are_whole_numbers(generator: Any) -> None:
    for estimator in (LinearSVC, BudgetedSVC):
        with pytest.raises(InputError, match=r"random_state is .*; a whole number of at least 0 is expected"):
            estimator(random_state=generator).fit(X, Y)
    assert LinearSVC(random_state=None).fit(X, Y).status_ == "converged"


def test_a_random_state_is_a_seed_that_stays() -> None:
    """Each fit from the same state draws the same numbers, so that a fit can be resumed."""
    states = [np.random.RandomState(seed) for seed in (0, 0, 1)]
    before = states[0].get_state()[1].copy()
    fits = [BudgetedSVC(budget=5, random_state=state).fit(X, Y) for state in (*states, states[0])]
    coefs = [fit.dual_coef_.tolist() for fit in fits]
    assert coefs[0] == coefs[1] == coefs[3] != coefs[2]
    np.testing.assert_array_equal(states[0].get_state()[1], before)
    assert clone(fits[0]).fit(X, Y).dual_coef_.tolist() == coefs[0]


def test_whole_numbers_beyond_64_bits_are_numbers() -> None:
    assert SVR(C=2**64).fit(X[:9], Y[:9]).objective_ == SVR(C=2.0**64).fit(X[:9], Y[:9]).objective_
    assert SVC(resident_rows=HUGE).fit(X, Y).objective_ == SVC(resident_rows=len(X)).fit(X, Y).objective_


@pytest.mark.parametrize("estimator", [SVC, SVR, OneClassSVM, NuSVR, LinearOneClassSVM, LinearSVC, LinearSVR, RankSVM])
@pytest.mark.parametrize("weight", [1e200, 5e-324, HUGE, 1e-310], ids=lambda weight: repr(weight)[:9])
@pytest.mark.parametrize("is_one", [True, False])
def test_weights_at_which_arithmetic_fails(estimator: Any, weight: Any, is_one: bool) -> None:
    """A weight of all rows or of one of them."""
    weights = np.full(len(X), 1.0 if is_one else weight, object)
    weights[3] = weight
    labels = () if "OneClass" in estimator.__name__ else (Y,)
    with pytest.raises(InputError, match=r"weight is (below|too large)|sum to .*: lower C or the weights"):
        estimator().fit(X, *labels, sample_weight=weights)


def test_a_weight_that_is_next_to_nothing() -> None:
    """One class of linear scores starts at a quadratic program whose numbers leave float64's range."""
    weights = np.ones(len(X))
    weights[3] = 1e-300
    rows = X + 3.0
    model = LinearOneClassSVM().fit(rows, sample_weight=weights)
    weights[3] = 0.0
    assert model.objective_ == pytest.approx(LinearOneClassSVM().fit(rows, sample_weight=weights).objective_, rel=2e-3)


@pytest.mark.parametrize("estimator", [LinearSVC, LinearSVR, LogisticRegression, SVC, SVR, NuSVC, LinearOneClassSVM])
@pytest.mark.parametrize("weight", [1e-300, 1e-155])
@pytest.mark.parametrize("is_half", [True, False])
def test_weights_next_to_nothing_lead_to_no_message_of_numpy(estimator: Any, weight: float, is_half: bool) -> None:
    weights = np.full(60, weight)
    weights[:: 2 if is_half else 60] = 1.0 if is_half else weight
    rows = np.random.default_rng(0).normal(size=(60, 4))
    labels = () if "OneClass" in estimator.__name__ else ((rows[:, 0] > 0).astype(int),)
    with catch_warnings():
        simplefilter("error", RuntimeWarning)
        simplefilter("ignore", ConvergenceWarning)
        assert estimator().fit(rows, *labels, sample_weight=weights).status_ in ("converged", "stalled")


def test_weights_of_files_are_checked_by_their_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,y,w\n1,0,1\n2,1,5e-324\n")
    with pytest.raises(InputError, match=rf"{path}:3:3: .*sample weight is below 2\.2e-308"):
        streamsvm.ingest(path, tmp_path / "a.zarr", sample_weight="w")


def test_pairs_whose_weights_are_products_of_small_ones() -> None:
    with pytest.raises(InputError, match=r"no two rows to compare: .*or sample weights are so small"):
        RankSVM().fit(X, Y, sample_weight=np.full(len(X), 1e-200))
