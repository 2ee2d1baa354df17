"""Scaling: as scikit-learn scales, recorded with the dataset, and undone exactly enough for a model of raw rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import CsrRows, compute_scores
from streamsvm.numeric.stored_types import FeatureStatistics, Scaling, as_matrix
from streamsvm.system.errors import InputError
from tests.data.conftest import Collect, Write

SCALERS: dict[str, Any] = {"minmax": MinMaxScaler, "maxabs": MaxAbsScaler, "standard": StandardScaler}


def make_rows(n: int = 500) -> np.ndarray:
    """Features of many ranges: all negative, far from zero, tiny, of two values, constant, and zero."""
    rng = np.random.default_rng(2)
    columns = [
        rng.standard_normal(n),
        -5 - rng.random(n),
        1e4 + rng.standard_normal(n),
        1e-12 * rng.standard_normal(n),
        1e20 * rng.random(n),
        rng.random(n) < 0.1,
        np.full(n, 0.1),
        np.full(n, -1e6 / 3),
        np.zeros(n),
        rng.standard_normal(n) * (rng.random(n) < 0.3),
    ]
    return np.column_stack(columns).astype(np.float32)


def read(dataset: Dataset, collect: Collect) -> np.ndarray:
    found: np.ndarray = collect(dataset.read(k) for k in range(dataset.n_chunks))["X"]
    return found


@pytest.mark.parametrize("kind", SCALERS)
@pytest.mark.parametrize("borders", [[], [1, 1, 130]])
def test_dense_rows_are_scaled_as_by_scikit_learn(
    kind: str, borders: list[int], write: Write, collect: Collect
) -> None:
    X = make_rows()
    dataset = write(X, scale=kind, borders=borders, chunk_bytes=4000)
    wanted = SCALERS[kind]().fit_transform(X.astype(np.float64))
    found = read(dataset, collect)
    assert np.abs(found).max() < 40
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_sparse_rows_are_scaled_as_by_scikit_learn(write: Write, collect: Collect) -> None:
    X = csr_array(make_rows())
    dataset = write(X, scale="maxabs", layout="sparse", chunk_bytes=4000, borders=[77])
    wanted = MaxAbsScaler().fit_transform(X.astype(float)).toarray()
    np.testing.assert_allclose(read(dataset, collect), wanted, rtol=1e-6)
    rows = dataset.read(0).X
    assert isinstance(rows, CsrRows)
    assert dataset.layout.data.length == X.nnz  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", SCALERS)
def test_sparse_sources_count_the_zeros_that_are_not_stored(kind: str, write: Write, collect: Collect) -> None:
    X = make_rows()
    dataset = write(csr_array(X), scale=kind, layout="dense", borders=[3])
    wanted = SCALERS[kind]().fit_transform(X.astype(np.float64))
    np.testing.assert_allclose(read(dataset, collect), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", SCALERS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n", [2, 7, 1000, 100_000])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_constant_feature_keeps_factor_1(kind: str, sparse: bool, n: int, pieces: int) -> None:
    """Whatever the rounding of n sums: 1 / sqrt(rounding error) would be a factor of 1e8."""
    values = np.array([0.1, 3.3, -1e6 / 3, 1e30, 1e-30, 0.0], np.float32).astype(np.float64)
    statistics = FeatureStatistics.start()
    for part in np.array_split(np.arange(n), pieces):
        X = np.tile(values.astype(np.float32), (len(part), 1))
        statistics.add(as_matrix(csr_array(X)) if sparse else X, len(values))
    scaling = statistics.scaling(kind, n)
    if kind == "maxabs":
        np.testing.assert_allclose(scaling.factor, [*(1 / np.abs(values[:-1])), 1], rtol=1e-12)
    else:
        np.testing.assert_array_equal(scaling.factor, np.ones(len(values)))
        np.testing.assert_allclose(scaling.offset, values, rtol=1e-12)


def test_statistics_of_pieces_are_merged_to_the_bits_of_one() -> None:
    """Each piece has a few features of many, and is told by these alone."""
    rng = np.random.default_rng(0)
    whole, merged = FeatureStatistics.start(), FeatureStatistics.start()
    for k in range(5):
        columns, values = rng.integers(90, 100 * (k + 1), 40), rng.normal(size=40)
        piece = FeatureStatistics.start()
        for each in (whole, piece):
            each.add(CsrRows(values, columns, np.array([0, 40]), 1000), 1000)
        kept = piece.keep_stored()
        np.testing.assert_array_equal(kept.features, np.unique(columns))
        merged.merge(kept)
    merged.grow(1000)
    for name in ("low", "high", "total", "squares", "stored"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mean", [1e3, 1e5, 1e6])
def test_the_spread_of_a_feature_far_from_zero_is_not_lost(mean: float, sparse: bool) -> None:
    x = (mean + np.random.default_rng(0).standard_normal((5000, 1))).astype(np.float32)
    statistics = FeatureStatistics.start()
    for part in np.array_split(x, 7):
        statistics.add(as_matrix(csr_array(part)) if sparse else part, 1)
    scaling = statistics.scaling("standard", len(x))
    np.testing.assert_allclose(scaling.factor, 1 / x.astype(np.float64).std(axis=0), rtol=1e-3)


@pytest.mark.parametrize("kind", ["minmax", "standard"])
def test_what_would_move_the_zeros_of_sparse_rows_is_refused(kind: str, write: Write) -> None:
    X = csr_array(make_rows())
    with pytest.raises(InputError, match=rf"r\.svm: --scale {kind} would fill sparse rows"):
        write(X, scale=kind, layout="sparse", name="r.svm")


def test_minmax_of_sparse_rows_from_zero_on_moves_nothing(write: Write, collect: Collect) -> None:
    X = np.abs(make_rows()[:, [3, 5, 9]])
    X[0] = 0
    dataset = write(csr_array(X), scale="minmax", layout="sparse")
    np.testing.assert_allclose(read(dataset, collect), MinMaxScaler().fit_transform(X.astype(float)), rtol=1e-5)


@pytest.mark.parametrize("kind", SCALERS)
def test_a_scaling_is_recorded_and_opened_again(kind: str, write: Write) -> None:
    X = make_rows()
    scaling = open_dataset(write(X, scale=kind).path).scaling
    assert scaling is not None
    assert scaling.kind == kind
    assert scaling.offset.dtype == scaling.factor.dtype == np.float64
    scaler = SCALERS[kind]().fit(X.astype(np.float64))
    offset = {"minmax": "data_min_", "standard": "mean_"}.get(kind)
    wanted = np.zeros(X.shape[1]) if offset is None else getattr(scaler, offset)
    np.testing.assert_allclose(scaling.offset, wanted, rtol=1e-9, atol=1e-30)
    assert open_dataset(write(X).path).scaling is None


finite = st.floats(-10, 10)


@given(
    w=arrays(float, 4, elements=finite),
    b=finite,
    offset=arrays(float, 4, elements=finite),
    factor=arrays(float, 4, elements=st.floats(0.01, 100)),
    x=arrays(float, 4, elements=finite),
)
def test_weights_go_back_and_forth(w: Any, b: float, offset: Any, factor: Any, x: Any) -> None:
    scaling = Scaling("standard", offset, factor)
    raw_w, raw_b = scaling.to_raw(w, b)
    scaled = (x - offset) * factor
    size = 1 + abs(b) + np.abs(w) @ ((np.abs(x) + np.abs(offset)) * factor)
    assert abs((raw_w @ x + raw_b) - (w @ scaled + b)) < 1e-12 * size
    for there, back in ((scaling.to_raw, scaling.from_raw), (scaling.from_raw, scaling.to_raw)):
        again_w, again_b = back(*there(w, b))
        np.testing.assert_allclose(again_w, w, rtol=1e-12, atol=1e-300)
        size = 1 + abs(b) + 100 * (np.abs(w) @ np.abs(offset))
        assert abs(again_b - b) < 1e-12 * size


@pytest.mark.parametrize("kind", SCALERS)
def test_a_model_of_scaled_features_decides_alike_on_raw_rows(kind: str, write: Write, collect: Collect) -> None:
    X = make_rows()[:, [0, 1, 5, 6, 9]]
    rng = np.random.default_rng(4)
    scaled, raw = write(X, scale=kind), write(X)
    model = LinearModel(coef=rng.standard_normal(5), intercept=0.3, classes=np.array([-1, 1]), scaling=scaled.scaling)
    wanted = read(scaled, collect).astype(np.float64) @ model.coef + model.intercept
    for dataset in (scaled, raw, write(X, scale="standard"), write(X, scale="minmax")):
        w, b = model.weights(5, dataset.scaling, sparse=False)
        found = np.concatenate(
            [compute_scores(dataset.read(k).X, w[None, :])[:, 0] + b for k in range(dataset.n_chunks)]
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert scaled.scaling is not None
    raw_w, raw_b = scaled.scaling.to_raw(model.coef, model.intercept)
    unscaled = LinearModel(coef=raw_w, intercept=raw_b, classes=model.classes)
    w, b = unscaled.weights(5, scaled.scaling, sparse=False)
    np.testing.assert_allclose(w, model.coef, rtol=1e-9)
    assert b == pytest.approx(model.intercept, abs=1e-6)
