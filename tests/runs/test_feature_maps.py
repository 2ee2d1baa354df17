"""Datasets of features: their products are the kernel's; written in chunks; pivots block by block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import ThreadedEngine
from streamsvm.kernels import feature_maps
from streamsvm.kernels.feature_maps import (
    FeatureMap,
    Features,
    KernelMap,
    PolynomialMap,
    choose_pivots,
    measure_diagonal,
)
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions
from streamsvm.runs.features import find_feature_map, make_features
from streamsvm.solvers.feature_map.solver import BLOCKS
from streamsvm.solvers.options import APPROXIMATIONS, FeatureOptions
from streamsvm.system.errors import InputError
from tests.conftest import make_problem
from tests.kernel_problems import KINDS, ask_for, compute_matrix


def find_kernel_map(source: Any, kernel: Kernel, approximation: str, rank: int) -> KernelMap:
    found = find_feature_map(source, FeatureOptions(approximation, rank), ask_for(kernel))
    assert isinstance(found, KernelMap)
    return found


def write_features(source: Any, name: str, place: Path) -> Dataset:
    """Of a low rank, if it has one."""
    return make_features(source, place, FeatureOptions(name, 20), ask_for(KINDS["rbf"])).dataset


def map_of(dataset: Dataset) -> FeatureMap:
    assert dataset.features is not None
    return dataset.features.map


def measure_trace_error(source: Any, found: KernelMap) -> float:
    """trace(K - Phi Phi') / trace K, from all rows at once."""
    X = source.take(np.arange(source.n_rows)).X
    diagonal = measure_diagonal(found.kernel, X)
    return float(1 - np.sum(found.apply(X) ** 2) / np.sum(diagonal))


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_polynomial_features(density: float, tmp_path: Path) -> None:
    """(5.1): products are (x.z + 1)^2; (5.2): the largest is 1; labels and weights go with the rows."""
    problem = make_problem(1, n=70, d=5, density=density, weighted=True)
    source = problem.store(tmp_path / "rows", chunk_bytes=500)
    dataset = write_features(source, "polynomial", tmp_path / "features")
    found = map_of(dataset)
    assert isinstance(found, PolynomialMap)
    assert found == find_feature_map(source, FeatureOptions("polynomial"), TrainOptions())
    assert found.n_features == 21
    assert (dataset.n_rows, dataset.n_features, dataset.is_sparse) == (70, 21, False)
    rows = dataset.take(np.arange(70))
    assert np.abs(rows.X).max() == pytest.approx(1.0)
    X = problem.dense()
    np.testing.assert_allclose(rows.X @ rows.X.T * found.largest**2, (X @ X.T + 1) ** 2, rtol=1e-4, atol=1e-4)
    expected = source.take(np.arange(70))
    np.testing.assert_array_equal(rows.y, expected.y)
    np.testing.assert_array_equal(rows.sample_weight, expected.sample_weight)
    np.testing.assert_array_equal(dataset.classes, source.classes)
    np.testing.assert_array_equal(dataset.class_counts, source.class_counts)
    with pytest.raises(InputError, match="already exists"):
        write_features(source, "polynomial", tmp_path / "features")


def test_order_of_the_features() -> None:
    root = np.sqrt(2.0)
    found = PolynomialMap(2).apply(np.array([[3.0, 5.0]], np.float32))
    np.testing.assert_allclose(found, [[9, 25, 15 * root, 3 * root, 5 * root, 1]])


def approximate(problem_rows: F64, source: object, kind: str, approximation: str, rank: int) -> tuple[F64, F64]:
    K = compute_matrix(KINDS[kind], problem_rows, problem_rows)
    found = find_kernel_map(source, KINDS[kind], approximation, rank)
    phi = found.apply(source.take(np.arange(len(problem_rows))).X)  # type: ignore[attr-defined]
    assert phi.shape[1] <= rank
    return K, phi @ phi.T


@pytest.mark.parametrize("density", [1.0, 0.4])
@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("kind", ["rbf", "poly", "linear"])
def test_whole_rank_is_exact(kind: str, approximation: str, density: float, tmp_path: Path) -> None:
    """And lower ranks leave a positive semidefinite rest, of the trace that is told."""
    problem = make_problem(2, n=60, d=4, density=density)
    source = problem.store(tmp_path / "rows", chunk_bytes=400)
    K, whole = approximate(problem.dense(), source, kind, approximation, 60)
    np.testing.assert_allclose(whole, K, atol=2e-5 * K.max())
    K, low = approximate(problem.dense(), source, kind, approximation, 8)
    assert np.linalg.eigvalsh(K - low).min() >= -1e-6 * K.max()
    options = FeatureOptions(approximation, 8)
    made = make_features(source, tmp_path / "features", options, ask_for(KINDS[kind])).dataset
    assert made.meta["trace_error"] == pytest.approx(np.trace(K - low) / np.trace(K), abs=1e-6)


def test_cholesky_beats_random_rows_and_eigen_beats_both(tmp_path: Path) -> None:
    """The best approximation of a rank is known by the eigenvalues that it leaves."""
    problem = make_problem(3, n=300, d=3)
    source = problem.in_memory()
    K = compute_matrix(KINDS["rbf"], problem.dense(), problem.dense())
    best = np.sort(np.linalg.eigvalsh(K))[:-40].sum() / 300
    errors = {
        name: measure_trace_error(source, find_kernel_map(source, KINDS["rbf"], name, 40)) for name in APPROXIMATIONS
    }
    assert best <= errors["eigen"] <= 1.05 * best
    assert errors["eigen"] < errors["cholesky"] < errors["nystrom"] < 8 * best


def test_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    scan = ThreadedEngine.scan
    monkeypatch.setattr(ThreadedEngine, "scan", lambda *given: passes.append(1) or scan(*given))
    find_kernel_map(make_problem(4, n=400, d=6).in_memory(), KINDS["rbf"], "cholesky", 100)
    assert len(passes) == BLOCKS


@pytest.mark.parametrize("name", ["eigen", "polynomial"])
def test_few_rows_are_mapped_at_a_time(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of rows becomes many times as large: what is held stays within PART_VALUES, and every row is mapped."""
    source, held = make_problem(8, n=3000, d=8).store(tmp_path / "rows"), []
    kind: Any = PolynomialMap if name == "polynomial" else KernelMap
    apply = kind.apply

    def watch(self: Any, X: Any) -> F64:
        held.append((len(X), self.n_features))
        return apply(self, X)

    monkeypatch.setattr(feature_maps, "PART_VALUES", 5000)
    monkeypatch.setattr(kind, "apply", watch)
    written = write_features(source, name, tmp_path / "features")
    values = 45 + 3 * 8 if name == "polynomial" else 8 + 80 + 20
    last = [n for n, width in held if width == written.n_features]
    assert max(last) == 5000 // values
    assert sum(last) == (6000 if name == "polynomial" else 3000)


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("name", ["nystrom", "polynomial"])
def test_the_map_lies_beside_its_rows(name: str, density: float, tmp_path: Path) -> None:
    """To the bit, with scaling and names; the smallest change is another map."""
    problem = make_problem(9, density=density)
    source = problem.store(tmp_path / "rows", scale="maxabs")
    dataset = write_features(source, name, tmp_path / "features")
    found = find_feature_map(source, FeatureOptions(name, 20), ask_for(KINDS["rbf"]))
    expected, read = Features(found, source.scaling, None), dataset.features
    assert read is not None
    assert dataset.scaling is None
    assert read.sha256 == expected.sha256
    rows = source.take(np.arange(50)).X
    np.testing.assert_array_equal(read.map.apply(rows), found.apply(rows))
    np.testing.assert_array_equal(read.scaling.factor, source.scaling.factor)  # type: ignore[union-attr]
    assert isinstance(dataset.take([3]).X, np.ndarray)
    moved = replace(source.scaling, offset=np.nextafter(source.scaling.offset, 1))  # type: ignore[union-attr,type-var]
    others = [Features(found), Features(found, moved), Features(found, source.scaling, ("a",) * 6)]
    if isinstance(found, PolynomialMap):
        others.append(Features(replace(found, largest=np.nextafter(found.largest, 9)), source.scaling))
    else:
        others.append(Features(replace(found, matrix=found.matrix * (1 + 1e-15)), source.scaling))
    assert len({one.sha256 for one in (expected, *others)}) == 1 + len(others)


def test_pivots_are_those_of_the_textbook() -> None:
    random = np.random.default_rng(5)
    A = random.normal(size=(12, 12))
    K = A @ A.T
    rest, expected = K.copy(), []
    for _ in range(5):
        k = int(np.argmax(np.diag(rest)))
        expected.append(k)
        rest = rest - np.outer(rest[:, k], rest[k]) / rest[k, k]
    np.testing.assert_array_equal(choose_pivots(K, 5, 0.0), expected)
    ones = np.ones((4, 4))
    np.testing.assert_array_equal(choose_pivots(ones, 3, 1e-9), [0])


def test_rows_that_repeat_lower_the_rank() -> None:
    problem = make_problem(6, n=50, d=1)
    problem.X[10:] = problem.X[:1]
    found = find_kernel_map(problem.in_memory(), KINDS["rbf"], "cholesky", 40)
    assert found.n_features <= 11
    assert measure_trace_error(problem.in_memory(), found) < 1e-6


@pytest.mark.parametrize(
    ("kernel", "approximation", "rank", "message"),
    [
        ("rbf", "magic", 3, "choose from cholesky, eigen, nystrom"),
        ("rbf", "cholesky", 0, "rank is 0"),
        ("sigmoid", "cholesky", 3, "not positive semidefinite"),
    ],
)
def test_what_is_refused(kernel: str, approximation: str, rank: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_kernel_map(make_problem(7).in_memory(), Kernel(kernel), approximation, rank)
