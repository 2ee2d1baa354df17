"""Rows are deleted or relabelled, and the model is updated from its ball; against trainings on what is left."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_array

from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.edits import find_changes
from streamsvm.ingestion.edit import delete_rows
from streamsvm.ingestion.readers import ingest
from streamsvm.numeric.rows import CsrRows
from streamsvm.runs.train import train
from streamsvm.runs.update import NAME, train_from
from streamsvm.solvers.start_from import unpack_ball
from streamsvm.system.npz import unpack_arrays
from tests.runs.test_update import LONG, OPTIONS, require_certificate, write


def read_all(dataset: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All rows, their labels 1 and -1, and their weights."""
    read = [dataset.read(index) for index in range(dataset.n_chunks)]
    X = np.concatenate([write_out(rows.X) for rows in read])
    y, weight = (np.concatenate([getattr(rows, name) for rows in read]) for name in ("y", "sample_weight"))
    return X, np.where(y == 1, 1, -1), weight


def write_out(X: Any) -> np.ndarray:
    return csr_array((X.data, X.indices, X.indptr), X.shape).toarray() if isinstance(X, CsrRows) else X


def choose(dataset: Dataset, n: int, seed: int) -> np.ndarray:
    """Numbers of rows that are to be deleted."""
    return np.random.default_rng(seed).choice(dataset.n_rows, n, replace=False)


def require_sums(run: Path, dataset: Dataset) -> None:
    """The sums of a ball are those over the rows that are left, rounding aside, and its near rows are among these."""
    ball, about = unpack_ball(unpack_arrays(run / NAME))
    X, y, weight = read_all(dataset)
    rows = np.concatenate((X, np.full((len(X), 1), about["bias_feature"])), axis=1).astype(LONG)
    costs = weight * about["class_costs"][0]
    active = np.where(y * (rows @ ball.centre) < 1, costs, 0)
    size = np.abs(rows).T @ costs + 1e-300
    assert float(np.max(np.abs((y * active) @ rows - ball.sums.vectors) / size)) < 1e-13
    assert ball.sums.offsets == pytest.approx(float(active.sum()), rel=1e-12)
    assert ball.n_rows == dataset.n_rows
    np.testing.assert_array_equal(write_out(ball.near.rows.X), X[ball.near.numbers])
    np.testing.assert_array_equal(np.where(ball.near.rows.y == 1, 1, -1), y[ball.near.numbers])


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
def test_deleted_rows_alone_are_read(layout: str, scale: float, tmp_path: Path) -> None:
    """And again, in turn with new rows, some of which are deleted as well."""
    path, options = tmp_path / "d.zarr", replace(OPTIONS, C=OPTIONS.C / scale**2)
    dataset, append, _ = write(path, layout=layout, scale=scale)
    train_from(dataset, options, tmp_path / "0", keep_ball=True)
    for k in range(3):
        gone = choose(dataset, 60, k)
        if k == 1:
            dataset = append()
            gone = np.union1d(gone[:40], np.arange(dataset.n_rows - 20, dataset.n_rows))
        dataset = delete_rows(path, gone)
        result = train_from(dataset, options, tmp_path / f"{k + 1}", start_from=tmp_path / f"{k}", keep_ball=True)
        assert (result.passes, result.n_rows) == (0, dataset.n_rows)
        assert 0 < result.read_bytes < 0.05 * dataset.nbytes
        require_certificate(read_all(dataset), result, options.C, train(dataset, replace(options, tol=1e-7)))
        require_sums(tmp_path / f"{k + 1}", dataset)


def test_relabelled_rows_are_read_twice(tmp_path: Path) -> None:
    """Once as deleted rows, and once as new ones."""
    path = tmp_path / "d.zarr"
    dataset, _, _ = write(path)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    gone = choose(dataset, 100, 0)
    X, y, weight = (part[gone] for part in read_all(dataset))
    delete_rows(path, gone)
    dataset = ingest(X, path, -y, sample_weight=weight, append=True)
    result = train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0", keep_ball=True)
    assert result.passes == 0
    assert 0 < result.read_bytes < 0.06 * dataset.nbytes
    require_certificate(read_all(dataset), result, OPTIONS.C, train(dataset, replace(OPTIONS, tol=1e-7)))
    require_sums(tmp_path / "1", dataset)
    history = result.history[-1]
    assert (history["new_rows"], history["deleted_rows"]) == (100, 100)


@pytest.mark.slow("trains on every engine")
def test_threads_and_workers_find_the_same_bits(tmp_path: Path, client: Client) -> None:
    path = tmp_path / "d.zarr"
    dataset, append, _ = write(path, n_new=500)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    append()
    dataset = delete_rows(path, choose(dataset, 500, 3))
    one = train_from(dataset, OPTIONS, start_from=tmp_path / "0")
    for given in ({"options": replace(OPTIONS, threads=3)}, {"options": OPTIONS, "client": client}):
        assert train_from(dataset, start_from=tmp_path / "0", **given).model_sha256 == one.model_sha256
    assert one.passes == 0


@pytest.mark.parametrize("what", ["far", "near", "new"])
def test_what_the_ball_does_not_prove_is_told(what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Most rows of a class are gone, or all near rows; rows that came and went leave a ball as it was."""
    path = tmp_path / "d.zarr"
    dataset, append, _ = write(path)
    train_from(dataset, OPTIONS, tmp_path / "0", keep_ball=True)
    if what == "near":
        gone = unpack_ball(unpack_arrays(tmp_path / "0" / NAME))[0].near.numbers
    elif what == "far":
        gone = np.flatnonzero(read_all(dataset)[1] == 1)[50:]
    else:
        gone = np.arange(dataset.n_rows, append().n_rows)
    dataset = delete_rows(path, gone)
    with caplog.at_level(logging.WARNING, logger="streamsvm"):
        result = train_from(dataset, OPTIONS, tmp_path / "1", start_from=tmp_path / "0")
    messages = {
        "far": "the new optimum is not proved to lie in the kept ball",
        "near": "the deleted rows leave nothing of the kept ball",
        "new": "no rows were appended or deleted since",
    }
    assert messages[what] in caplog.text
    assert result.passes >= 1
    require_certificate(read_all(dataset), result, OPTIONS.C, train(dataset, replace(OPTIONS, tol=1e-7)))


def test_what_has_changed(tmp_path: Path) -> None:
    """Row numbers of each state are carried over to the last one, by brute force."""
    path = tmp_path / "d.zarr"
    X, labels = np.arange(1, 61, dtype=np.float32)[:, None], np.tile([1, -1], 30)
    states = [ingest(X[:40], path, labels[:40], chunk_bytes=40)]
    states.append(delete_rows(path, [3, 20, 39]))
    states.append(ingest(X[40:], path, labels[40:], append=True))
    states.append(delete_rows(path, [0, 38, 50]))
    values = [np.concatenate([rows.X[:, 0] for rows in map(state.read, range(state.n_chunks))]) for state in states]
    for state, then in zip(states, values, strict=True):
        changes = find_changes(states[-1], state.fingerprint)
        assert changes is not None
        left, numbers = changes.renumber(np.arange(state.n_rows))
        np.testing.assert_array_equal(left, np.isin(then, values[-1]))
        np.testing.assert_array_equal(values[-1][numbers], then[left])
        assert (changes.n_before, changes.n_old) == (state.n_rows, left.sum())
        view = changes.view()
        shown = np.concatenate([np.zeros(0), *(view.read(k).X[:, 0] for k in range(view.n_chunks))])  # type: ignore[list-item]
        listed = set(changes.list_copies(np.arange(0)) - changes.n_old)
        copies = [value for k, value in enumerate(shown) if k >= changes.n_new and k not in listed]
        np.testing.assert_array_equal(np.sort(shown[: changes.n_new]), np.sort(np.setdiff1d(values[-1], then)))
        np.testing.assert_array_equal(np.sort(copies), np.setdiff1d(then, values[-1]))
        near = then[~left][:1]
        some = changes.list_copies(np.flatnonzero(then == near)) - changes.n_old if len(near) else np.zeros(0, int)
        assert set(shown[some]) - {shown[k] for k in listed} == set(near)
    assert find_changes(states[0], states[1].fingerprint) is None
