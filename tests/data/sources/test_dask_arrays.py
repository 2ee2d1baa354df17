"""Dask arrays and frames as sources."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from distributed import Client

from streamsvm import LinearSVC, ingest
from streamsvm.data.sources import dask_collections
from streamsvm.data.sources.arrays import read_arrays
from streamsvm.system.errors import InputError
from tests.conftest import describe_keys
from tests.data.pieces import fault, together


def test_dask_forms() -> None:
    """Unknown, empty and sparse chunks, chunks of columns; vectors in other chunks, or in memory."""
    X = np.arange(60.0).reshape(20, 3)
    y = np.where(X[:, 0] > 20, "u", "v")
    keep = X[:, 0] % 2 == 0
    chunked, flags = da.from_array(X, chunks=(3, 2)), da.from_array(keep, chunks=20)
    unknown = chunked[flags]
    assert np.isnan(unknown.shape[0])
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b", "c"]), npartitions=4)
    forms = [
        (unknown, y[keep]),
        (unknown, da.from_array(y, chunks=7)[flags]),
        (X[keep], da.from_array(y, chunks=7)[flags]),
        (unknown.rechunk({1: -1}).map_blocks(sp.csr_matrix), y[keep]),
        (unknown.rechunk({1: -1}).map_blocks(sp.csc_array), pd.Series(y[keep])),
        (frame[frame["a"] % 2 == 0], y[keep]),
        (da.concatenate([chunked[:0], chunked[flags]], allow_unknown_chunksizes=True), y[keep].tolist()),
    ]
    for form, labels in forms:
        read = together(read_arrays(form, labels, piece_bytes=48))
        assert np.array_equal(read["X"], X[keep])
        assert np.array_equal(read["labels"], y[keep])
    for n, message in ((9, "y: has fewer rows than X"), (11, "y: has more rows than X")):
        assert fault(read_arrays(unknown, y[:n])) == message
    known = (da.from_array(y[:19], chunks=7), "y: has 19 rows, but X has 20")
    assert fault(read_arrays(chunked, known[0])) == known[1]
    kinds = da.from_array(np.array([1, 2, 3, "u"], object), chunks=2)
    message = "y: row 4 (counted from 1): labels were numbers so far, but this is text: u"
    assert fault(read_arrays(da.ones((4, 1), chunks=2), kinds)) == message
    message = "y: row 2 (counted from 1): other labels are text, but this is a number: 3"
    assert fault(read_arrays(da.ones((4, 1), chunks=2), kinds[::-1])).startswith(message)


@pytest.mark.parametrize("form", ["array", "frame", "sparse"])
def test_dask_is_never_computed_whole(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk is made once, one at a time, and let go before the next is made, if there is no cluster."""
    monkeypatch.setattr(dask_collections, "find_client", lambda _: None)  # other tests have one
    alive: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
    made: list[int] = []

    class Chunk(np.ndarray[Any, Any]):
        """An array whose life is watched."""

    def make(i: int) -> Any:
        assert not alive, "the chunk before is still there"
        assert threading.current_thread() is threading.main_thread()
        made.append(i)
        X = Chunk((100, 4))
        X[:] = i + 1
        chunk = sp.csr_array(X) if form == "sparse" else X
        alive[i] = chunk
        return pd.DataFrame(X, copy=False) if form == "frame" else chunk

    delayed: Any = dask.delayed(make, pure=True)
    tasks = [delayed(i) for i in range(8)]
    meta = {"array": np.ones((0, 4)), "sparse": sp.csr_array((0, 4))}.get(form)
    if form == "frame":
        X = dd.from_delayed(tasks, meta=pd.DataFrame(np.ones((0, 4))), verify_meta=False)
    else:
        X = da.concatenate([da.from_delayed(task, (100, 4), meta=meta) for task in tasks])
    pieces = 0
    for rows in read_arrays(X, np.repeat(np.arange(8) + 1, 100), piece_bytes=40 * 4 * 8):
        assert rows.labels is not None
        assert set(np.asarray(rows.X.sum(axis=1)).tolist()) == {4 * float(rows.labels[0])}
        pieces += 1
    assert made == list(range(8))
    assert pieces == 8 * 3


@pytest.mark.parametrize("where", ["here", "cluster"])
@pytest.mark.parametrize("lengths", [((9, *[1] * 8, 0), (*[1] * 8, 9, 0)), ((3, 0, 5, 0, 9), (0, 3, 5, 0, 9))])
def test_partitions_of_other_lengths_do_not_pile_up(
    lengths: tuple[tuple[int, ...], tuple[int, ...]], where: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels of a row may be in another partition than the row, and empty partitions hold no labels up."""
    monkeypatch.setattr(dask_collections, "find_client", lambda _: client if where == "cluster" else None)
    n_rows, most = sum(lengths[0]), list[int]()
    take = dask_collections.Partitions._take

    def count_waiting(self: dask_collections.Partitions, k: int) -> Any:
        part = take(self, k)
        most.append(max(sum(each.shape[0] > 0 for each in waiting) for waiting in self._waiting))
        return part

    monkeypatch.setattr(dask_collections.Partitions, "_take", count_waiting)
    frames = [dd.from_map(make_frame, each, np.cumsum(each) - each, meta=make_frame(0, 0)) for each in lengths]
    read = together(read_arrays(frames[0], frames[1]["a"]))
    assert np.array_equal(read["X"][:, 0], np.arange(n_rows))
    assert np.array_equal(read["labels"], np.arange(n_rows))
    assert max(most) == 1


def make_frame(n_rows: int, begin: int) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(float(begin), begin + n_rows)})


@pytest.mark.parametrize("form", ["array", "frame", "blocks"])
@pytest.mark.parametrize("where", ["here", "cluster"])
def test_partitions_of_rows_and_labels_are_computed_once(
    form: str, where: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels and weights often come from the collection that the rows come from."""
    monkeypatch.setattr(dask_collections, "find_client", lambda _: client if where == "cluster" else None)
    if form == "frame":
        meta = pd.DataFrame(np.zeros((0, 2)), columns=["a", "b"])
        frame = dd.from_map(load_frame, range(5), folder=str(tmp_path), meta=meta)
        X, y, weights = frame[["a", "b"]], frame["a"] > 3, frame["b"] + 1
    else:
        cut = (4, 2) if form == "blocks" else (4, 3)
        lazy: Any = da.zeros((20, 3), chunks=(4, 3)).map_blocks(load_block, folder=str(tmp_path), dtype=float)
        X, y, weights = lazy.rechunk(cut), lazy[:, 0] > 3, lazy[:, 1] + 1
    read = together(read_arrays(X, y, weights))
    assert sorted(file.name[0] for file in tmp_path.iterdir()) == list("01234")
    values = np.repeat(np.arange(5.0), 4)
    assert np.array_equal(read["X"][:, 0], values)
    assert np.array_equal(read["labels"], values > 3)
    assert np.array_equal(read["sample_weight"], values + 1)


def load_block(block: Any, folder: str, block_info: Any = None) -> Any:
    """Return rows, and leave a file that says so."""
    if block_info is None or not block_info:  # Dask asks for the type of the result
        return block
    k = block_info[0]["chunk-location"][0]
    (Path(folder) / f"{k}-{uuid4()}").touch()
    return np.full((4, 3), float(k))


def load_frame(k: int, folder: str) -> pd.DataFrame:
    """Return rows, and leave a file that says so."""
    (Path(folder) / f"{k}-{uuid4()}").touch()
    return pd.DataFrame(np.full((4, 2), float(k)), columns=["a", "b"])


def where_it_runs(block: Any) -> Any:
    return np.concatenate([block, np.full((len(block), 1), os.getpid())], axis=1)


@pytest.mark.parametrize("form", ["array", "frame"])
def test_collections_on_a_cluster_are_computed_there(client: Client, form: str, tmp_path: Path) -> None:
    """Persisted partitions, and those that the cluster has yet to compute, of rows and labels."""
    rows = np.arange(60.0).reshape(20, 3)
    chunks = (3,) * 6 + (2,), (4,)
    lazy: Any = da.from_array(rows, chunks=(3, 3)).map_blocks(where_it_runs, chunks=chunks, dtype=float)
    labels: Any = da.from_array(np.arange(20) % 2, chunks=7)
    if form == "frame":
        lazy = dd.from_dask_array(lazy, columns=list("abcd"))
    kept = client.persist(lazy)
    dataset = ingest(kept, tmp_path / "rows.zarr", client.persist(labels), shuffle=None)
    found = np.concatenate([dataset.read(k).X for k in range(dataset.n_chunks)])  # type: ignore[arg-type]
    np.testing.assert_array_equal(found[:, :3], rows)
    assert os.getpid() not in set(found[:, 3].astype(int).tolist())
    with client.as_current():
        lazily = ingest(lazy, tmp_path / "lazy.zarr", labels, shuffle=None)
    assert os.getpid() not in set(lazily.read(0).X[:, 3].astype(int).tolist())  # type: ignore[index]


def test_estimators_compute_on_their_client(client: Client) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    lazy = da.from_array(rows, chunks=(50, 3))
    labels = (rows[:, 0] > 0).astype(int)
    there = LinearSVC(C=0.1, client=client).fit(client.persist(lazy), client.persist(da.from_array(labels, chunks=50)))
    here = LinearSVC(C=0.1).fit(rows, labels)
    np.testing.assert_allclose(there.decision_function(rows), here.decision_function(rows), atol=0.01)


def test_the_address_of_a_scheduler_is_a_client(client: Client, tmp_path: Path) -> None:
    """An estimator connects for the time of a fit, and keeps the address as its parameter."""
    rows = np.random.default_rng(0).normal(size=(200, 3))
    data = ingest(rows, tmp_path / "rows.zarr", (rows[:, 0] > 0).astype(int))
    with dask.config.set(describe_keys(client.security)) if client.security.require_encryption else nullcontext():
        there = LinearSVC(C=0.1, client=client.scheduler.address).fit(data)
    assert there.client == client.scheduler.address
    assert there.result_.model_sha256 == LinearSVC(C=0.1).fit(data).result_.model_sha256
    with pytest.raises(InputError, match=r"scheduler 127\.0\.0\.1:1: "):
        LinearSVC(client="127.0.0.1:1").fit(data)
