"""SVC(solver="interior-point"): the linear problem of low-rank features, and back to a sum of kernels."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

import streamsvm
from streamsvm import SVC
from streamsvm.data.features import APPROXIMATIONS
from streamsvm.errors import InputError
from tests.conftest import Problem, make_problem


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("approximation", ["cholesky", "eigen"])
def test_a_high_rank_is_the_kernel_svm(approximation: str, density: float, tmp_path: Path) -> None:
    """Objective and decisions are those of the exact solver; new rows are told from the rows of the expansion alone."""
    problem = make_problem(1, n=300, density=density, weighted=True)
    new = make_problem(2, n=50, density=density)
    exact = SVC(C=2.0, gamma=0.2, tol=1e-6).fit(problem.X, problem.y, problem.weight)
    low = SVC(C=2.0, gamma=0.2, tol=1e-6, solver="interior-point", approximation=approximation, rank=280)
    low.fit(problem.X, problem.y, problem.weight)
    assert low.status_ == "converged"
    assert low.objective_ == pytest.approx(exact.objective_, rel=2e-3)
    np.testing.assert_allclose(low.decision_function(new.X), exact.decision_function(new.X), atol=0.05)
    assert low.support_vectors_.shape[1] == low.n_features_in_ == problem.X.shape[1]
    assert low.history_[-1]["passes"] <= 2.2 * low.n_iter_
    low.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.decision_function(new.X), low.decision_function(new.X))


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_low_ranks(kernel: str, approximation: str) -> None:
    """Every kernel that has features; the certified objective is that of the sum of kernels."""
    problem = make_problem(3, n=200)
    model = SVC(kernel=kernel, gamma=0.3, coef0=1.0, solver="interior-point", approximation=approximation, rank=20)
    model.fit(problem.X, problem.y)
    assert model.status_ == "converged"
    assert len(model.support_vectors_) <= (80 if approximation == "eigen" else 20)
    losses = np.maximum(0, 1 - problem.y * model.decision_function(problem.X)).sum()
    assert losses < model.objective_ < 200


def test_datasets_and_scalings(tmp_path: Path) -> None:
    """Rows of a scaled dataset are mapped as they are stored; raw rows are scaled by the model."""
    problem = make_problem(4, n=150)
    shifted = Problem(problem.X * 7 + 3, problem.y)
    dataset = shifted.store(tmp_path / "rows", scale="standard", chunk_bytes=1000)
    model = SVC(gamma=0.2, solver="interior-point", rank=50).fit(dataset)
    np.testing.assert_allclose(
        np.sort(model.decision_function(shifted.X)), np.sort(model.decision_function(dataset)), atol=1e-3
    )
    assert model.score(dataset) == pytest.approx(model.score(shifted.X, shifted.y), abs=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"approximation": "magic"}, "choose from cholesky, eigen, nystrom"),
        ({"rank": 0}, "rank is 0"),
        ({"kernel": "sigmoid"}, "not positive semidefinite"),
        ({"C": -1.0}, "C is -1.0"),
    ],
)
def test_what_is_refused(changes: dict[str, object], message: str) -> None:
    problem = make_problem(5)
    with pytest.raises(InputError, match=message):
        SVC(solver="interior-point", **changes).fit(problem.X, problem.y)  # type: ignore[arg-type]


@pytest.mark.data
def test_adult(data_folder: Path, tmp_path: Path) -> None:
    """a1a: as accurate as the exact kernel SVM, to 0.3 point."""
    pairs = []
    for name in ("a1a", "a1a.t"):
        (tmp_path / name).write_bytes(lzma.decompress((data_folder / "adult" / f"{name}.xz").read_bytes()))
        X, y = load_svmlight_file(str(tmp_path / name), n_features=123)
        pairs.append((X, y))
    (X, y), (X_test, y_test) = pairs
    exact = SVC(gamma=1 / 123).fit(X, y).score(X_test, y_test)
    for approximation, rank in (("cholesky", 300), ("eigen", 64)):
        model = SVC(gamma=1 / 123, solver="interior-point", approximation=approximation, rank=rank).fit(X, y)
        assert model.score(X_test, y_test) == pytest.approx(exact, abs=0.003)
