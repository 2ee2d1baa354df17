"""Opening datasets, by path, by pickle, and rows of them by number."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm.data.open import open_dataset
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.conftest import Collect, Write

CODECS = ("crc32c", "lz4", "zstd")


# --- rows by number


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_take_gives_rows_in_any_order(
    layout: str, codec: str, write: Write, collect: Collect, sparse_rows: csr_array
) -> None:
    weight, qid = np.arange(60) / 7, np.arange(60) // 9
    dataset = write(sparse_rows, np.arange(60.0), weight, qid, layout=layout, codec=codec, chunk_bytes=64)
    rng = np.random.default_rng(0)
    for rows in (rng.integers(60, size=200), np.arange(60)[::-1], [59], [59, 0, 59, 0], range(60)):
        found = collect([dataset.take(rows)])
        wanted = np.asarray(rows)
        np.testing.assert_array_equal(found["X"], sparse_rows.toarray()[wanted])
        np.testing.assert_array_equal(found["y"], wanted)
        np.testing.assert_array_equal(found["sample_weight"], weight[wanted])
        np.testing.assert_array_equal(found["qid"], qid[wanted])


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_take_of_no_rows_gives_none(layout: str, write: Write, sparse_rows: csr_array) -> None:
    rows = write(sparse_rows, np.arange(60.0), layout=layout).take([])
    assert rows.X.shape == (0, 7)
    assert rows.y is not None
    assert rows.y.shape == (0,)


@pytest.mark.parametrize(("rows", "named"), [([3, 60, 4], "row 60 "), ([-1, 5], "row -1 "), ([10**12], "row 10")])
def test_take_refuses_rows_that_do_not_exist(rows: list[int], named: str, write: Write, sparse_rows: csr_array) -> None:
    dataset = write(sparse_rows)
    with pytest.raises(InputError, match=named) as caught:
        dataset.take(rows)
    assert dataset.path in str(caught.value)


# --- opening


def test_a_dataset_pickles_to_its_name(write: Write, collect: Collect, sparse_rows: csr_array) -> None:
    dataset = write(sparse_rows, np.arange(60.0), chunk_bytes=8, scale="maxabs")
    packed = pickle.dumps(dataset)
    assert len(packed) < 1000
    reopened = pickle.loads(packed)
    assert reopened.fingerprint == dataset.fingerprint
    np.testing.assert_array_equal(collect(reopened.tiles(2))["X"], collect(dataset.tiles(2))["X"])


def test_a_relative_path_is_found_from_other_folders(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a cluster run in folders of their own. A line end in a path changes nothing."""
    write(np.ones((6, 2), np.float32), to=tmp_path / "a\nb.zarr")
    monkeypatch.chdir(tmp_path)
    dataset = open_dataset("a\nb.zarr")
    packed = pickle.dumps(dataset)
    monkeypatch.chdir("/")
    assert (dataset.path, pickle.loads(packed).n_rows) == ("a\nb.zarr", 6)


def test_a_replaced_dataset_is_refused(write: Write, tmp_path: Path) -> None:
    X, path = np.ones((6, 2), np.float32), tmp_path / "d.zarr"
    packed = pickle.dumps(write(X, to=path))
    shutil.rmtree(path)
    write(2 * X, to=path)
    received = pickle.loads(packed)
    with pytest.raises(IntegrityError, match=r"d\.zarr: another dataset has replaced this dataset"):
        _ = received.n_rows


def test_a_dataset_replaced_while_it_is_open_is_refused(write: Write, tmp_path: Path) -> None:
    X, path = np.ones((6, 2), np.float32), tmp_path / "d.zarr"
    dataset = write(X, to=path)
    reopened = pickle.loads(pickle.dumps(dataset))
    shutil.rmtree(path)
    write(2 * X, to=path)
    for stale in (dataset, reopened):
        with pytest.raises(IntegrityError, match=r"d\.zarr/X/c/0"):
            stale.read(0)


def test_the_fingerprint_follows_every_value(write: Write) -> None:
    X, labels, weight = np.ones((6, 2), np.float32), np.arange(6.0) % 2, np.ones(6)
    other = [X.copy(), labels.copy(), weight.copy()]
    other[0][3, 1], other[1][2], other[2][5] = 2, 1, 0.5
    same = [X, labels, weight]
    seen = {write(*same).fingerprint}
    assert {write(*same).fingerprint} == seen
    for which in range(3):
        seen.add(write(*(other[i] if i == which else same[i] for i in range(3))).fingerprint)
    seen |= {write(*same, scale="maxabs").fingerprint, write(*same, layout="sparse").fingerprint}
    assert len(seen) == 6


def test_what_is_no_dataset_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("+1 1:2\n")
    for name, reason in (("none", "no such dataset"), ("empty", "not a dataset"), ("text", "not a dataset")):
        with pytest.raises(InputError, match=reason) as caught:
            open_dataset(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_another_format_is_refused_by_its_number(write: Write, tmp_path: Path) -> None:
    dataset = write(np.ones((4, 2), np.float32), to=tmp_path / "d.zarr")
    about = tmp_path / "d.zarr" / "zarr.json"
    about.write_text(about.read_text().replace('"format": 2', '"format": 9'))
    with pytest.raises(InputError, match="format 9, and this version of streamsvm reads formats 1 to 8"):
        open_dataset(dataset.path)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_path_may_be_written_as_url(prefix: str, write: Write, collect: Collect, sparse_rows: csr_array) -> None:
    dataset = open_dataset(prefix + write(sparse_rows, chunk_bytes=64).path)
    found = collect(rows for k in range(dataset.n_chunks) for rows in dataset.tiles(k))
    np.testing.assert_array_equal(found["X"], sparse_rows.toarray())
