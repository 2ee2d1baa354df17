"""LinearSVC on every kind of rows: one answer for all; Dask rows stay lazy and are never held whole."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import streamsvm
from streamsvm import SVC, BudgetedSVC, CuttingPlane, InteriorPoint, LinearSVC, LinearSVR, OneClassSVM, RankSVM
from streamsvm.data.sources import dask_collections
from streamsvm.system.errors import InputError
from tests.conftest import make_problem

PROBLEM = make_problem(1, n=300, d=6, density=0.5)
X = PROBLEM.dense().astype(np.float32)
Y = PROBLEM.y
NAMES = list("abcdef")


@pytest.fixture(autouse=True)
def in_this_thread() -> Iterator[None]:
    """Compute Dask collections here, even if a client was opened by another test."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets: the rows as they are, and scaled."""
    path = tmp_path_factory.mktemp("datasets")
    streamsvm.ingest(X, path / "rows.zarr", Y, chunk_bytes=1000)
    streamsvm.ingest(X, path / "sparse.zarr", Y, layout="sparse", chunk_bytes=1000)
    streamsvm.ingest(X, path / "scaled.zarr", Y, scale="standard")
    return path


@pytest.fixture(scope="module")
def reference() -> LinearSVC:
    """The plainest case."""
    return LinearSVC(tol=1e-7).fit(X, Y)


def read_only(rows: Any) -> Any:
    rows.flags.writeable = False
    return rows


def with_indices(matrix: Any, dtype: type) -> Any:
    matrix.indices, matrix.indptr = matrix.indices.astype(dtype), matrix.indptr.astype(dtype)
    return matrix


def unsorted(matrix: Any) -> Any:
    """Store the items of each row back to front."""
    for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        matrix.indices[a:b], matrix.data[a:b] = matrix.indices[a:b][::-1].copy(), matrix.data[a:b][::-1].copy()
    matrix.has_sorted_indices = False
    return matrix


def repeated(matrix: Any) -> Any:
    """Store half of every item twice, one after the other: the same matrix to SciPy."""
    parts = (np.repeat(matrix.data / 2, 2), np.repeat(matrix.indices, 2), 2 * matrix.indptr)
    return type(matrix)(parts, shape=matrix.shape)


def believed(matrix: Any) -> Any:
    """Mark a matrix as canonical, as one is whose arrays were changed after it was asked."""
    matrix.has_canonical_format = True
    return matrix


def frame() -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


def sparse_kind(name: str) -> Callable[[], tuple[Any, Any]]:
    return lambda: (getattr(sparse, name)(X), Y)


KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "float64": lambda: (X.astype(np.float64), Y),
    "Fortran order": lambda: (np.asfortranarray(X), Y),
    "every second row": lambda: (np.repeat(X, 2, axis=0)[::2], Y),
    "read-only": lambda: (read_only(X.copy()), read_only(Y.copy())),
    "memory map": lambda: (X.view(np.memmap), Y),
    "lists": lambda: (X.tolist(), Y.tolist()),
    **{
        name: sparse_kind(name)
        for name in (
            "csr_array",
            "csr_matrix",
            "csc_array",
            "csc_matrix",
            "coo_array",
            "coo_matrix",
            "lil_array",
        )
    },
    "CSR, 64-bit": lambda: (with_indices(sparse.csr_array(X), np.int64), Y),
    "CSC, 64-bit": lambda: (with_indices(sparse.csc_matrix(X), np.int64), Y),
    "CSR, 32-bit, float64": lambda: (with_indices(sparse.csr_array(X.astype(float)), np.int32), Y),
    "CSR, unsorted": lambda: (unsorted(sparse.csr_array(X)), Y),
    "CSR, items repeated": lambda: (repeated(sparse.csr_matrix(X)), Y),
    "CSR, items repeated, marked canonical": lambda: (believed(repeated(sparse.csr_array(X))), Y),
    "Dask array of CSR, items repeated": lambda: (
        da.from_array(X, chunks=(70, 6)).map_blocks(lambda part: repeated(sparse.csr_array(part))),
        Y,
    ),
    "pandas": lambda: (frame(), pd.Series(Y)),
    "pandas, column of labels": lambda: (frame(), pd.Series(Y, name="y", index=np.arange(300)[::-1])),
    "Dask array": lambda: (da.from_array(X, chunks=(70, 6)), da.from_array(Y, chunks=110)),
    "Dask array, cut by columns": lambda: (da.from_array(X, chunks=(70, 4)), Y),
    "Dask array of CSR": lambda: (da.from_array(X, chunks=(70, 6)).map_blocks(sparse.csr_array), Y),
    "Dask frame": lambda: (dd.from_pandas(frame(), npartitions=3), dd.from_pandas(pd.Series(Y), npartitions=3)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_answer_for_every_kind_of_rows(reference: LinearSVC, kind: str) -> None:
    rows, labels = KINDS[kind]()
    model = LinearSVC(tol=1e-7).fit(rows, labels)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-6)
    np.testing.assert_array_equal(model.classes_, [-1, 1])
    scores = model.decision_function(rows)
    assert isinstance(scores, da.Array) == kind.startswith("Dask")
    np.testing.assert_allclose(np.asarray(scores), reference.decision_function(X), atol=1e-5)
    np.testing.assert_array_equal(np.asarray(model.predict(rows)), reference.predict(X))
    assert model.score(rows, labels) == reference.score(X, Y)
    named = kind.startswith("pandas") or kind == "Dask frame"
    assert (model.feature_names_in_.tolist() if named else hasattr(model, "feature_names_in_")) == (named and NAMES)


@pytest.mark.parametrize("name", ["rows.zarr", "sparse.zarr"])
@pytest.mark.parametrize("convert", [str, Path, streamsvm.open])
def test_datasets_and_their_paths(reference: LinearSVC, folder: Path, name: str, convert: Callable[..., Any]) -> None:
    data = convert(folder / name)
    model = LinearSVC(tol=1e-7).fit(data)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-6)
    stored = streamsvm.open(folder / name)
    labels = np.asarray(stored.classes)[stored.vectors["y"].read(0, 300)]
    assert model.score(data) == model.score(data, labels) == reference.score(X, Y)
    np.testing.assert_array_equal(model.predict(data) == labels, model.decision_function(data) * labels > 0)
    with pytest.raises(InputError, match="a dataset has its own labels and weights"):
        model.score(data, sample_weight=np.ones(300))


def test_a_scaled_dataset_gives_a_model_of_raw_rows(folder: Path, tmp_path: Path) -> None:
    model = LinearSVC(tol=1e-7).fit(folder / "scaled.zarr")
    standard = (X - X.mean(axis=0, dtype=float)) / X.std(axis=0, dtype=float)
    expected = LinearSVC(tol=1e-7).fit(standard, Y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-3)
    for rows in (X, sparse.csr_array(X), da.from_array(X, chunks=(100, 6))):
        np.testing.assert_allclose(
            np.asarray(model.decision_function(rows)), standard @ model.coef_[0] + model.intercept_, atol=1e-4
        )
    assert model.score(folder / "scaled.zarr") == model.score(folder / "rows.zarr") == model.score(X, Y)
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_weights_and_labels_of_dask(reference: LinearSVC) -> None:
    weight = 1.0 + np.arange(300) % 3
    rows = da.from_array(X, chunks=(70, 6))
    lazy = LinearSVC(tol=1e-7).fit(rows, da.from_array(Y > 0, chunks=50), da.from_array(weight, chunks=90))
    np.testing.assert_allclose(lazy.coef_, LinearSVC(tol=1e-7).fit(X, Y, weight).coef_, atol=1e-6)
    assert np.abs(lazy.coef_ - reference.coef_).max() > 1e-3
    assert (lazy.classes_.tolist(), lazy.predict(rows).dtype) == ([False, True], np.bool_)
    named = LinearSVC().fit(rows, da.from_array(np.where(Y > 0, "yes", "no"), chunks=300))
    assert set(named.predict(rows).compute()) == {"yes", "no"}


class Watch:
    """Counts the computed chunks, and those that are still alive."""

    def __init__(self) -> None:
        self.computed = self.alive = self.most = 0

    def rows(self, n_chunks: int) -> da.Array:
        """Rows whose chunks are made when they are needed."""
        return da.from_array(np.arange(n_chunks), chunks=1).map_blocks(
            self._make, new_axis=1, chunks=((len(X),) * n_chunks, (6,)), dtype=np.float32, meta=np.empty((0, 6), "f4")
        )

    def _make(self, _: Any) -> Any:
        chunk = X.copy()
        self.computed += 1
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(chunk, self._release)
        return chunk

    def _release(self) -> None:
        self.alive -= 1


def test_fit_never_holds_dask_rows_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_collections, "find_client", lambda _: None)  # other tests have one
    watch = Watch()
    model = LinearSVC().fit(watch.rows(20), np.tile(Y, 20))
    assert watch.computed == 20  # and each is computed once only
    assert watch.most <= 2
    assert (model.result_.n_rows, model.status_) == (6000, "converged")


@pytest.mark.parametrize("method", ["predict", "decision_function"])
def test_predictions_of_dask_rows_wait_until_they_are_asked_for(reference: LinearSVC, method: str) -> None:
    watch = Watch()
    lazy = getattr(reference, method)(watch.rows(4))
    expected = getattr(reference, method)(X)
    assert watch.computed == 0
    assert (lazy.shape, lazy.dtype, lazy.chunks) == ((1200,), expected.dtype, ((300,) * 4,))
    np.testing.assert_array_equal(lazy[300:600].compute(), expected)
    assert watch.computed == 1


class Labelled:
    """An array with names for its axes, which wraps a Dask array as xarray's DataArray does."""

    def __init__(self, data: Any) -> None:
        self.data, self.chunks, self.shape, self.ndim, self.dtype = data, data.chunks, data.shape, data.ndim, data.dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array__(self, *_: Any, **__: Any) -> Any:
        pytest.fail("all of the array was computed")


@pytest.mark.parametrize("kind", ["stand-in", "xarray"])
@pytest.mark.parametrize("estimator", [LinearSVC, SVC])
def test_wrapped_dask_arrays_are_streamed(kind: str, estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, labels and weights; and their predictions wait until they are asked for."""
    monkeypatch.setattr(dask_collections, "find_client", lambda _: None)  # other tests have one
    wrap: Any = Labelled if kind == "stand-in" else pytest.importorskip("xarray").DataArray
    watch = Watch()
    rows = watch.rows(4)
    labels, weight = (da.from_array(np.tile(values, 4), chunks=300) for values in (Y, 1.0 + np.arange(300) % 3))
    model = estimator().fit(wrap(rows), wrap(labels), wrap(weight))
    assert (watch.computed, watch.most <= 2) == (4, True)
    expected = estimator().fit(rows, labels, weight)
    assert model.result_.model_sha256 == expected.result_.model_sha256
    watch.computed = 0
    for method in ("predict", "decision_function"):
        lazy = getattr(model, method)(wrap(rows))
        assert isinstance(lazy, da.Array)
        assert watch.computed == 0
        assert lazy.chunks == ((300,) * 4,)
    np.testing.assert_array_equal(lazy[300:600].compute(), expected.decision_function(X))


def test_wrapped_arrays_in_memory_are_rows_and_no_table(tmp_path: Path) -> None:
    """Newer xarray also gives Arrow's columns, of which each value is a row."""
    xarray = pytest.importorskip("xarray")
    dataset = streamsvm.ingest(xarray.DataArray(X), tmp_path / "rows.zarr", xarray.DataArray(Y), shuffle=None)
    np.testing.assert_array_equal(dataset.take(np.arange(300)).X, X)


LAYOUTS: dict[str, Callable[[], Any]] = {
    "blocks of columns": lambda: da.from_array(X, chunks=(100, 2)),
    "uneven": lambda: da.from_array(X, chunks=((299, 0, 1), (1, 5))),
    "unknown rows": lambda: da.from_array(X, chunks=(100, 3))[da.from_array(np.ones(300, bool), chunks=100)],
    "sparse blocks": lambda: da.from_array(X, chunks=(100, 3)).map_blocks(sparse.csr_array, dtype=np.float32),
}
SEVERAL = {"classes": np.digitize(X[:, 0], [-0.5, 0.5]), "sets": (X[:, :3] > 0.0).astype(int), "two": Y}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("labels", SEVERAL)
@pytest.mark.parametrize("way", ["sigmoid", "isotonic"])
def test_blocks_of_columns_are_joined(layout: str, labels: str, way: str) -> None:
    """Dask's rows may lie in several blocks, one of which may be empty; every method scores whole rows."""
    rows, model = LAYOUTS[layout](), LinearSVC(probability=way).fit(X, SEVERAL[labels])
    for method in ("decision_function", "predict", "predict_proba", "predict_log_proba"):
        found, expected = getattr(model, method)(rows), getattr(model, method)(X)
        assert (found.ndim, found.shape[1:], found.dtype) == (expected.ndim, expected.shape[1:], expected.dtype)
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-6, atol=1e-12)


def test_empty_chunks_and_unknown_ones(reference: LinearSVC) -> None:
    rows = dd.from_pandas(frame(), npartitions=3)
    some = rows[rows["a"] > X[:, 0].max() - 0.1]
    assert len(some) < 100
    expected = reference.predict(X[X[:, 0] > X[:, 0].max() - 0.1])
    np.testing.assert_array_equal(reference.predict(some).compute(), expected)


def test_dask_rows_that_do_not_fit_are_refused_at_once() -> None:
    model = LinearSVC().fit(frame(), Y)
    with pytest.raises(ValueError, match="X has 5 features, but LinearSVC is expecting 6 features"):
        model.predict(da.from_array(X[:, :5]))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(dd.from_pandas(frame()[NAMES[::-1]], npartitions=2))
    rows = da.from_array(X, chunks=(100, 6))
    with pytest.raises(InputError, match="requires y to be passed"):
        LinearSVC().fit(rows)
    with pytest.raises(InputError, match="at least two classes are needed"):
        LinearSVC().fit(rows, np.ones(300))
    with pytest.raises(InputError, match=r"X: row 8, column 1 \(counted from 1\): nan"):
        LinearSVC().fit(da.where(da.arange(300, chunks=100)[:, None] == 7, np.nan, rows), Y)


def test_a_checkpoint_is_resumed_with_equal_dask_rows(tmp_path: Path) -> None:
    def rows() -> da.Array:
        return da.from_array(X.copy(), chunks=(100, 6))

    with pytest.warns(ConvergenceWarning):
        stopped = LinearSVC(
            checkpoint=tmp_path / "run", max_passes=1, solver=CuttingPlane(acceleration="line-search")
        ).fit(rows(), Y)
    resumed = LinearSVC(checkpoint=tmp_path / "run", solver=CuttingPlane(acceleration="line-search")).fit(rows(), Y)
    assert (stopped.status_, resumed.status_) == ("pass_limit", "converged")
    assert resumed.history_[:1] == stopped.history_


def test_names_are_those_of_the_last_fit(folder: Path) -> None:
    model = LinearSVC().fit(frame(), Y)
    model.fit(folder / "rows.zarr")
    assert not hasattr(model, "feature_names_in_")
    model.fit(streamsvm.ingest(frame(), folder / "named.zarr", Y))
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict(frame()), model.predict(dd.from_pandas(frame(), npartitions=2)))


def make_estimator(name: str) -> Any:
    kernel = {"kernel": name.partition(" ")[2] or "rbf", "gamma": 0.5}
    return {
        "SVC": lambda: SVC(**kernel, tol=1e-6),
        "LinearSVC": lambda: LinearSVC(tol=1e-6),
        "interior-point": lambda: LinearSVC(solver="interior-point", tol=1e-6),
        "RankSVM": lambda: RankSVM(tol=1e-6),
        "BudgetedSVC": lambda: BudgetedSVC(budget=30, **kernel),
    }[name.partition(" ")[0]]()


@pytest.mark.parametrize(
    "name", ["SVC rbf", "SVC poly", "SVC linear", "LinearSVC", "interior-point", "RankSVM", "BudgetedSVC"]
)
def test_repeated_items_are_added_up_everywhere(name: str) -> None:
    """The same bits as of the matrix that was added up before; the caller's arrays stay as they are."""
    plain, twice = sparse.csr_array(X), repeated(sparse.csr_array(X))
    kept = [part.copy() for part in (twice.data, twice.indices, twice.indptr)]
    expected, found = make_estimator(name).fit(plain, Y), make_estimator(name).fit(twice, Y)
    assert found.objective_ == expected.objective_
    score = expected.decision_function if hasattr(expected, "decision_function") else expected.predict
    np.testing.assert_array_equal(score(twice), score(plain))
    assert expected.score(twice, Y) == found.score(plain, Y)
    if name == "BudgetedSVC":
        streams = [BudgetedSVC(budget=30, gamma=0.5).partial_fit(rows, Y, [-1, 1]) for rows in (plain, twice)]
        np.testing.assert_array_equal(*(one.decision_function(X) for one in streams))
    for part, before in zip((twice.data, twice.indices, twice.indptr), kept, strict=True):
        np.testing.assert_array_equal(part, before)


@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_rows_that_lead_out_of_their_arrays_are_refused(part: str) -> None:
    matrix = sparse.csr_array(X)
    getattr(matrix, part)[3] = 10**6
    for use in (lambda: LinearSVC().fit(matrix, Y), lambda: LinearSVC().fit(X, Y).predict(matrix)):
        with pytest.raises(ValueError, match=r"X: (a column index is outside|not a CSR matrix)"):
            use()


def test_the_dashboard_names_predictions() -> None:
    """By the beginning of their keys; equal predictions of equal rows have equal keys."""
    model = LinearSVC(probability=True).fit(X, Y)
    rows = da.from_array(X, chunks=(50, -1))
    for predict, name in ((model.decision_function, "score"), (model.predict, "label"), (model.predict_proba, "odds")):
        assert key_split(predict(rows).name) == f"streamsvm-{name}"
        assert predict(rows).name == predict(rows).name
        assert predict(rows).name != predict(2 * rows).name
    novel = OneClassSVM().fit(X)
    assert key_split(novel.predict(rows).name) == "streamsvm-label"


def test_query_ids_that_a_fit_does_not_read_are_told(tmp_path: Path) -> None:
    """Also by a fit on features and by a search; a ranking reads them, and says nothing."""
    query = np.repeat(np.arange(30), 10)
    rows = streamsvm.ingest(X, tmp_path / "rows.zarr", Y, qid=query)
    told = "rows.zarr: the task 'classify' does not read its query ids; RankSVM learns the order"
    interior = SVC(C=0.1, solver=InteriorPoint(n_components=5))
    for estimator in (LinearSVC(), SVC(kernel="linear"), interior, BudgetedSVC(budget=5)):
        with pytest.warns(UserWarning, match=told):
            estimator.fit(rows)
    with pytest.warns(UserWarning, match="X: the task 'classify' does not read its query ids"):
        streamsvm.tune(X, Y, C=[0.1], folds=2, qid=query)
    RankSVM().fit(rows)
    streamsvm.tune(rows, C=[0.1], folds=2, task="rank")
    LinearSVC().fit(X, Y)


MASKED = np.ma.array(X, mask=np.arange(X.size).reshape(X.shape) == 7)
TIMES = np.repeat(np.arange(len(X)).astype("timedelta64[D]")[:, None], X.shape[1], axis=1)


@pytest.mark.parametrize("estimator", [LinearSVC(), SVC(), LinearSVR(), RankSVM(), OneClassSVM(), BudgetedSVC()])
def test_masked_values_and_times_are_refused_by_every_method(estimator: Any) -> None:
    """What is behind a mask is not learned or scored; times are no numbers. Without a masked value nothing changes."""
    model = estimator.fit(np.ma.array(X), np.ma.array(Y))
    np.testing.assert_array_equal(model.predict(np.ma.array(X)), model.predict(X))
    labels, weight = np.ma.array(Y, mask=Y[0] == Y), np.ma.array(np.ones(len(Y)), mask=Y[0] == Y)
    calls = [lambda: model.fit(MASKED, Y), lambda: model.fit(X, Y, sample_weight=weight), lambda: model.predict(MASKED)]
    calls += [lambda: model.fit(list(MASKED), Y), lambda: model.predict(list(MASKED))]
    calls += [lambda: model.decision_function(MASKED)] if hasattr(model, "decision_function") else []
    calls += [lambda: model.predict(da.from_array(MASKED, (100, 6))).compute()]
    if not isinstance(model, OneClassSVM):
        calls += [lambda: model.fit(X, labels), lambda: model.score(X, labels), lambda: model.score(MASKED, Y)]
        calls += [lambda: model.score(da.from_array(X), da.from_array(labels, asarray=False))]
    if not isinstance(model, OneClassSVM | RankSVM):
        calls += [lambda: model.score(X, Y, sample_weight=weight)]
        calls += [lambda: model.score(X, Y, sample_weight=da.from_array(weight, asarray=False))]
    for call in calls:
        with pytest.raises(InputError, match=r"(X|y|sample_weight): has masked \(missing\) values"):
            call()
    for call in (
        lambda: model.fit(TIMES, Y),
        lambda: model.predict(TIMES),
        lambda: model.fit(X, Y, sample_weight=TIMES[:, 0]),
    ):
        with pytest.raises(
            InputError, match=r"(X|sample_weight): has values of the type timedelta64\[D\], not numbers"
        ):
            call()


def test_masked_values_of_other_arguments() -> None:
    query = np.ma.array(np.arange(300) // 10, mask=np.arange(300) < 3)
    calls = [
        lambda: RankSVM().fit(X, Y, qid=query),
        lambda: RankSVM().fit(X, Y).score(X, Y, qid=query),
        lambda: streamsvm.tune(X, Y, groups=query),
        lambda: LinearSVC().fit(X, np.ma.array(X > 0.0, mask=X > 1.0)),
        lambda: BudgetedSVC().partial_fit(MASKED, Y, classes=[-1, 1]),
        lambda: BudgetedSVC().partial_fit(X, Y, classes=np.ma.array([-1, 1, 2], mask=[0, 0, 1])),
        lambda: SVC(kernel=lambda A, B: A @ B.T).fit(MASKED, Y),
        lambda: SVC(kernel=lambda A, B: A @ B.T).fit(X, Y).predict(MASKED),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"has masked \(missing\) values"):
            call()


def test_labels_of_a_model_stay_what_they_are(tmp_path: Path) -> None:
    """Whole numbers of 64 bits are classes of their own, also in the file; float64 does not tell all of them apart."""
    large = 72048431380967004 + 2 * np.digitize(X[:, 0], [-0.3, 0.3])
    for labels in (large, large.astype(np.uint64), large.tolist()):
        model = SVC().fit(X, labels)
        model.save(tmp_path / "model.npz")
        assert model.classes_.tolist() == streamsvm.load(tmp_path / "model.npz").classes_.tolist() == sorted({*large})
        assert set(model.predict(X)) <= {*large}
    for unclear in (np.array([2**63 + 5, 3], np.uint64)[(Y[0] == Y) * 1], large.astype(np.float64) + 64 * (Y[0] == Y)):
        with pytest.raises(InputError, match=r"y: row \d+ .*may lose digits as a float64|one class only"):
            LinearSVC().fit(X, unclear)
    targets = np.arange(300).astype("datetime64[D]")
    with pytest.raises(InputError, match=r"a label is a datetime64\[D\], neither a number nor text"):
        LinearSVR().fit(X, targets)
