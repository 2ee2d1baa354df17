"""Rows are deleted from a dataset: they are skipped by whoever reads it, and no chunk is changed."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import streamsvm
from streamsvm.cli.info import describe, verify
from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import split_rows
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion import edit
from streamsvm.ingestion.edit import delete_rows
from streamsvm.ingestion.readers import ingest
from streamsvm.ingestion.write import DatasetWriter
from streamsvm.numeric.rows import CsrRows, Rows
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, IntegrityError
from tests.commands import Run, run  # noqa: F401
from tests.data.conftest import file_hashes, measure_peak
from tests.data.forging import edit_manifest, forge
from tests.faults.power_failures import WatchedDisk, distinct, lay_out

N, D = 400, 300  # a tile has some 400 rows
LAYOUTS = pytest.mark.parametrize("layout", ["dense", "sparse"])


def make_rows(n: int = N, d: int = D) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)).astype(np.float32)
    X[:, 0] = np.arange(1, n + 1)  # the number of the row
    return X, np.where(X[:, 1] > 0, 2, -1), rng.random(n)


def make(path: Path, layout: str = "dense", n: int = N, **options: Any) -> Dataset:
    X, y, weight = make_rows(n)
    given = {"sample_weight": weight, "groups": np.array([f"donor {k % 7}" for k in range(n)]), "layout": layout}
    return ingest(csr_array(X) if layout == "sparse" else X, path, y, **{"chunk_bytes": 100_000, **given, **options})


def write_out(X: Any) -> np.ndarray:
    return X if isinstance(X, np.ndarray) else csr_array((X.data, X.indices, X.indptr), shape=X.shape).toarray()


def read_all(dataset: Dataset) -> np.ndarray:
    return np.concatenate([write_out(dataset.read(index).X) for index in range(dataset.n_chunks)])


def same(one: Rows, other: Rows) -> bool:
    parts = [(rows.start, write_out(rows.X), rows.y, rows.sample_weight, rows.groups) for rows in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(*parts, strict=True))  # type: ignore[arg-type]


@LAYOUTS
@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
def test_the_other_rows_are_left(layout: str, codec: str, tmp_path: Path) -> None:
    """In their order, in every way of reading them; also where no row of a chunk is left, and after a second time."""
    before = make(tmp_path / "d.zarr", layout, 3000, codec=codec, chunk_bytes=700_000)
    every, labels = read_all(before), before.column("y")
    assert before.n_chunks >= 5  # of which some are left whole
    assert labels is not None
    first, second = np.r_[5, np.arange(*before.chunk_starts[1:3]), 2999], np.arange(0, 300, 3)
    left = np.delete(np.delete(np.arange(3000), first), second)
    delete_rows(tmp_path / "d.zarr", first[::-1])
    dataset = delete_rows(tmp_path / "d.zarr", [*second, 3]).read_groups()
    assert (dataset.n_rows, dataset.n_chunks) == (len(left), before.n_chunks - 1)
    np.testing.assert_array_equal(read_all(dataset), every[left])
    np.testing.assert_array_equal(dataset.column("y"), labels[left])
    np.testing.assert_array_equal(dataset.class_counts, np.bincount(labels[left]))
    weight = make_rows(3000)[2][every[left, 0].astype(int) - 1]
    np.testing.assert_array_equal(dataset.column("sample_weight"), weight)
    np.testing.assert_allclose(dataset.sum_weights(), np.bincount(labels[left], weight))  # type: ignore[arg-type]
    some = np.array([7, 0, len(left) - 1, 7, 290])
    np.testing.assert_array_equal(write_out(dataset.take(some).X), every[left[some]])
    with pytest.raises(InputError, match=rf"d\.zarr: there is no row {len(left)} \(from 0\) among {len(left):,} rows"):
        dataset.take([len(left)])
    for index in range(dataset.n_chunks):
        whole = dataset.read(index)
        assert whole.start == dataset.chunk_starts[index]
        streamed = [replace(tile, X=copy(tile.X)) for tile in dataset.tiles(index)]
        assert all(same(*pair) for pair in zip(streamed, split_rows(whole), strict=True))  # or sums had other bits
    assert verify(dataset)["verified_rows"] == len(left)


def copy(X: Any) -> Any:
    return X.copy() if isinstance(X, np.ndarray) else CsrRows(X.data.copy(), X.indices.copy(), X.indptr, X.n_features)


@LAYOUTS
def test_the_model_is_that_of_the_rows_that_are_left(layout: str, tmp_path: Path) -> None:
    """The optimum lies between the bounds of both; threads change no bit."""
    before = make(tmp_path / "d.zarr", layout)
    every, gone = read_all(before), np.arange(0, N, 5)
    number = np.delete(every, gone, axis=0)[:, 0].astype(int) - 1
    dataset, (X, y, weight) = delete_rows(tmp_path / "d.zarr", gone), make_rows()
    whole = ingest(X[number], tmp_path / "whole.zarr", y[number], sample_weight=weight[number])
    options = TrainOptions(C=0.001, tol=1e-5)
    trimmed, other = train(dataset, options), train(whole, options)
    assert trimmed.status == other.status == "converged"
    assert trimmed.lower_bound is not None
    assert other.lower_bound is not None
    assert trimmed.lower_bound <= other.objective
    assert other.lower_bound <= trimmed.objective
    assert train(dataset, replace(options, threads=1)).model_sha256 == trimmed.model_sha256


@LAYOUTS
def test_streaming_needs_no_more_memory_than_projected(layout: str, tmp_path: Path) -> None:
    """And a chunk that is kept takes what is told of it, while what is left of it is put together."""
    make(tmp_path / "d.zarr", layout, 20_000, chunk_bytes=8 << 20)
    dataset = delete_rows(tmp_path / "d.zarr", np.arange(0, 20_000, 7))
    deque(dataset.tiles(0), maxlen=0)  # whatever is made once only
    streamed = measure_peak(lambda: deque(dataset.tiles(0), maxlen=0))
    assert streamed <= dataset.stream_bytes() + (1 << 19) + 100_000
    assert measure_peak(lambda: dataset.read(0)) <= dataset.chunk_bytes(0) + dataset.stream_bytes()


def test_groups_are_deleted(tmp_path: Path) -> None:
    make(tmp_path / "d.zarr")
    dataset = delete_rows(tmp_path / "d.zarr", groups=["donor 3", "donor 0"])
    number = np.sort(read_all(dataset)[:, 0].astype(int) - 1)
    np.testing.assert_array_equal(number, [k for k in range(N) if k % 7 not in (0, 3)])
    with pytest.raises(InputError, match="no row has the group donor 3"):
        delete_rows(tmp_path / "d.zarr", groups=["donor 1", "donor 3"])


def test_sparse_rows_without_a_value_are_deleted(tmp_path: Path) -> None:
    X = np.zeros((6, 3), np.float32)
    X[:3] = 1
    ingest(csr_array(X), tmp_path / "d.zarr", [1, -1, 1, -1, 1, -1], shuffle=None, layout="sparse")
    assert delete_rows(tmp_path / "d.zarr", [3, 5]).n_rows == 4
    np.testing.assert_array_equal(read_all(open_dataset(tmp_path / "d.zarr")), X[[0, 1, 2, 4]])
    assert open_dataset(tmp_path / "d.zarr").meta["n_items"] <= 9


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_the_share_of_values_is_that_of_the_raw_rows_left(scale: str, tmp_path: Path) -> None:
    X = make_rows(50, 6)[0] * (np.arange(50) % 5 > 0)[:, None]
    ingest(X, tmp_path / "d.zarr", np.tile([1, -1], 25), scale=scale, layout="dense", shuffle=None)
    dataset = delete_rows(tmp_path / "d.zarr", np.arange(20))
    assert describe(dataset)["density"] == pytest.approx(np.mean(X[20:] != 0))


def test_empty_rows_that_are_deleted_have_no_values(tmp_path: Path) -> None:
    X = np.zeros((8, 3), np.float32)
    X[0, 0] = 1
    ingest(csr_array(X), tmp_path / "d.zarr", np.tile([1, -1], 4), shuffle=None, layout="sparse")
    delete_rows(tmp_path / "d.zarr", [4])
    assert describe(delete_rows(tmp_path / "d.zarr", [5]))["density"] >= 0


def test_sets_of_labels(tmp_path: Path) -> None:
    X, sets = make_rows()[0], np.random.default_rng(1).random((N, 4)) < 0.3
    before = ingest(X, tmp_path / "d.zarr", sets.astype(int))
    number = read_all(before)[:, 0].astype(int) - 1
    dataset = delete_rows(tmp_path / "d.zarr", np.arange(100))
    np.testing.assert_array_equal(dataset.class_counts, sets[number[100:]].sum(axis=0))
    assert verify(dataset)["verified_rows"] == N - 100


def test_who_reads_keeps_his_view(tmp_path: Path) -> None:
    """And rows can be appended and deleted in turn; row numbers are those of the rows that are left."""
    views = [make(tmp_path / "d.zarr")]
    X, y, weight = make_rows()
    expected = [read_all(views[0])]
    for k in range(2):
        views.append(delete_rows(tmp_path / "d.zarr", [0, N - 10 - k]))
        expected.append(np.delete(expected[-1], [0, N - 10 - k], axis=0))
        groups = ["new"] * 20
        views.append(ingest(X[:20], tmp_path / "d.zarr", y[:20], sample_weight=weight[:20], groups=groups, append=True))
        new = read_all(views[-1])
        np.testing.assert_array_equal(new[:-20], expected[-1])
        expected.append(new)
    assert len({view.fingerprint for view in views}) == 5
    for view, rows in zip(views, expected, strict=True):
        for shown in (view, pickle.loads(pickle.dumps(view))):
            assert shown.fingerprint == view.fingerprint
            np.testing.assert_array_equal(read_all(shown), rows)


def test_no_file_that_is_there_changes_but_the_manifest(tmp_path: Path) -> None:
    make(tmp_path / "d.zarr")
    before = file_hashes(tmp_path)
    delete_rows(tmp_path / "d.zarr", [1])
    after = file_hashes(tmp_path)
    assert [str(name) for name in before if before[name] != after[name]] == ["d.zarr/zarr.json"]
    meta = json.loads((tmp_path / "d.zarr" / "zarr.json").read_text())["attributes"]["streamsvm"]
    assert meta["format"] == 6  # which earlier versions refuse
    with pytest.raises(InputError, match="holds rows that were deleted from the dataset"):
        open_dataset(tmp_path / "d.zarr" / "deleted" / "1")


def damage_base(path: Path) -> None:
    edit_manifest(path, lambda meta: meta["base"].update(n_rows=N - 1))


def reverse(path: Path) -> None:
    edit_manifest(path, lambda meta: meta["edits"].reverse())


def rename_kind(path: Path) -> None:
    edit_manifest(path, lambda meta: meta["edits"][0].__setitem__(0, "appended"))


def forget(path: Path) -> None:
    """Undo the first deletion: the second one was made to another dataset."""
    edit_manifest(path, lambda meta: meta["edits"].pop(0))


def list_kind(path: Path) -> None:
    edit_manifest(path, lambda meta: meta["edits"][0].__setitem__(0, {}))


def no_list(path: Path) -> None:
    edit_manifest(path, lambda meta: meta.update(edits=3))


def remove_copies(path: Path) -> None:
    shutil.rmtree(path / "deleted" / "2")


def swap_copies(path: Path) -> None:
    (path / "deleted" / "1").rename(path / "other")
    (path / "deleted" / "2").rename(path / "deleted" / "1")
    (path / "other").rename(path / "deleted" / "2")


def damage_numbers(path: Path) -> None:
    file = path / "deleted" / "1" / "numbers" / "c" / "0"
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)


def damage_copies(path: Path) -> None:
    file = path / "deleted" / "2" / "X" / "c" / "0" / "0"
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(content)


DAMAGES = [
    *(damage_base, reverse, rename_kind, list_kind, forget, no_list, remove_copies),
    *(swap_copies, damage_numbers, damage_copies),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found(damage: Any, tmp_path: Path) -> None:
    make(tmp_path / "d.zarr")
    delete_rows(tmp_path / "d.zarr", [1, 2, 3])
    delete_rows(tmp_path / "d.zarr", [4, 5, 9])
    damage(tmp_path / "d.zarr")
    with pytest.raises(IntegrityError, match=r"d\.zarr"):
        verify(open_dataset(tmp_path / "d.zarr"))


@pytest.mark.parametrize("numbers", [[3, 2], [3, 3], [-1, 3], [3, N], [1, 7]])
def test_numbers_of_no_rows_are_found(numbers: list[int], tmp_path: Path) -> None:
    """Even if every checksum is right: not ascending, beyond all rows, or deleted before."""
    make(tmp_path / "d.zarr")
    delete_rows(tmp_path / "d.zarr", [1])
    delete_rows(tmp_path / "d.zarr", [2, 6])
    forge(tmp_path / "d.zarr" / "deleted" / "2", "numbers", slice(0, 2), numbers)
    text = (tmp_path / "d.zarr" / "deleted" / "2" / "zarr.json").read_text()
    made = json.loads(text)["attributes"]["streamsvm"]["sha256"]
    edit_manifest(tmp_path / "d.zarr", lambda meta: meta["edits"][1].__setitem__(1, made))
    with pytest.raises(IntegrityError, match="some row numbers do not exist"):
        open_dataset(tmp_path / "d.zarr")


REFUSED: dict[str, tuple[Any, str]] = {
    "beyond": ({"rows": [0, N]}, "no row 400 .from 0. among 400 rows"),
    "negative": ({"rows": [-1]}, "no row -1 .from 0. among 400"),
    "all": ({"rows": range(N)}, "no row would be left"),
    "none": ({"rows": []}, "give the rows to delete as whole numbers"),
    "no numbers": ({"rows": [0.5]}, "give the rows to delete as whole numbers"),
    "flags": ({"rows": np.ones(N, bool)}, "give the rows to delete as whole numbers"),
    "neither": ({}, "give either the numbers or the groups of the rows to delete"),
    "both": (
        {"rows": [1], "groups": ["donor 1"]},
        "give either the numbers or the groups of the rows to delete",
    ),
    "a group that is missing": ({"groups": ["donor 1", ""]}, "group 2 to delete: the group is missing"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_other_requests_are_refused(case: str, tmp_path: Path) -> None:
    given, message = REFUSED[case]
    make(tmp_path / "d.zarr")
    before = file_hashes(tmp_path)
    with pytest.raises(InputError, match=message):
        delete_rows(tmp_path / "d.zarr", **given)
    assert file_hashes(tmp_path) == before


def test_a_class_must_keep_a_row(tmp_path: Path) -> None:
    dataset = make(tmp_path / "d.zarr")
    y = dataset.column("y")
    assert y is not None
    with pytest.raises(InputError, match="no row with the label -1 would be left"):
        delete_rows(tmp_path / "d.zarr", np.flatnonzero(y == 0))
    ingest(make_rows()[0], tmp_path / "bare.zarr", y)
    with pytest.raises(InputError, match="its rows have no groups"):
        delete_rows(tmp_path / "bare.zarr", groups=["a"])
    with pytest.raises(InputError, match="no such dataset"):
        delete_rows(tmp_path / "none.zarr", [0])


@pytest.mark.slow("simulates a power failure at every write")
def test_power_failures_leave_all_rows_or_the_others(thorough: bool, tmp_path: Path) -> None:
    """And rows can be deleted from what is left."""
    X, y, _ = make_rows(20, 4)
    (tmp_path / "disk").mkdir()
    old = ingest(X, tmp_path / "disk" / "d.zarr", y)
    disk = WatchedDisk(tmp_path / "disk", tmp_path / "aside")
    with pytest.MonkeyPatch.context() as patch, disk.watch(patch):
        new = delete_rows(tmp_path / "disk" / "d.zarr", [3])
    pictures = disk.pictures if thorough else [*disk.pictures[:-12:8], *disk.pictures[-12:]]
    left = [tree for tree, _ in distinct(pictures)]
    shown = set()
    for number, tree in enumerate(left if thorough else [*left[::12], left[-1]]):
        place = tmp_path / f"{number}"
        lay_out(tree, place)
        found = open_dataset(place / "d.zarr")
        verify(found)
        shown.add(found.fingerprint)
        assert delete_rows(place / "d.zarr", [5]).n_rows == found.n_rows - 1
        shutil.rmtree(place)
    assert shown == {old.fingerprint, new.fingerprint}


def test_ctrl_c_leaves_the_dataset_as_it_was(
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(tmp_path / "d.zarr")
    before, append = file_hashes(tmp_path), DatasetWriter.append

    def press(writer: DatasetWriter, rows: Rows) -> None:
        signal.raise_signal(signal.SIGINT)
        append(writer, rows)

    monkeypatch.setattr(edit, "BLOCK_BYTES", 1)
    monkeypatch.setattr(DatasetWriter, "append", press)
    stopped = run("delete", tmp_path / "d.zarr", "--rows", "0-9")
    assert (stopped.code, "interrupted; nothing was left behind" in stopped.err) == (1, True)
    assert file_hashes(tmp_path) == before


def test_a_row_that_is_longer_than_the_first_rows_is_deleted(tmp_path: Path) -> None:
    X = np.zeros((6, 5), np.float32)
    X[:, 0] = 1
    ingest(csr_array(X), tmp_path / "d.zarr", np.tile([1, -1], 3), layout="sparse", shuffle=None)
    more = np.arange(1, 21, dtype=np.float32).reshape(4, 5)
    ingest(csr_array(more), tmp_path / "d.zarr", np.tile([1, -1], 2), append=True, shuffle=None)
    dataset = delete_rows(tmp_path / "d.zarr", [1, 7])
    verify(dataset)
    np.testing.assert_array_equal(read_all(dataset), np.delete(np.concatenate((X, more)), [1, 7], axis=0))
    assert dataset.meta["longest_row"] == 5


def test_options_that_are_repeated_delete_all_that_they_name(run: Run, tmp_path: Path) -> None:  # noqa: F811
    make(tmp_path / "d.zarr")
    assert "2 rows deleted" in run("delete", tmp_path / "d.zarr", "--rows", "3", "--rows", "5").out
    assert run("delete", tmp_path / "d.zarr", "--group", "donor 1", "--group", "donor 2").code == 0
    number = read_all(streamsvm.open(tmp_path / "d.zarr"))[:, 0].astype(int) - 1
    assert not np.isin(number % 7, (1, 2)).any()


@pytest.mark.parametrize("given", [{"groups": [[1]]}, {"groups": []}, {"rows": np.array([2**64 - 1], np.uint64)}])
def test_what_names_no_rows_is_told(given: dict[str, Any], tmp_path: Path) -> None:
    make(tmp_path / "d.zarr")
    with pytest.raises(InputError, match=r"the groups whose rows|no row 18446744073709551615 .from 0. among 400 rows"):
        delete_rows(tmp_path / "d.zarr", **given)


def test_the_command(run: Run, tmp_path: Path) -> None:  # noqa: F811
    make(tmp_path / "d.zarr")
    (tmp_path / "rows.txt").write_text("3\n\n7-9,11\n")
    told = run("delete", tmp_path / "d.zarr", "--rows", tmp_path / "rows.txt")
    assert (told.code, told.out) == (0, f"{tmp_path}/d.zarr: 5 rows deleted, 395 rows left\n")
    assert run("delete", tmp_path / "d.zarr", "--rows", "0,10-19").out.endswith("11 rows deleted, 384 rows left\n")
    assert run("delete", tmp_path / "d.zarr", "--group", "donor 1", "donor 2").code == 0
    n_rows = streamsvm.open(tmp_path / "d.zarr").n_rows
    for rows in (f"{n_rows}", "0-99999999999999999", "9-3", "1;2", str(tmp_path / "none.txt"), str(tmp_path)):
        refused = run("delete", tmp_path / "d.zarr", "--rows", rows)
        assert (refused.code, refused.err.startswith("streamsvm delete: ")) == (2, True)
    (tmp_path / "rows.txt").write_text("first\n")
    assert "expected, not 'first'" in run("delete", tmp_path / "d.zarr", "--rows", tmp_path / "rows.txt").err
    told = run("info", tmp_path / "d.zarr", "--verify")
    assert (told.code, f"; deleted but still in the files: {N - n_rows}" in told.out) == (0, True)
    assert streamsvm.delete(tmp_path / "d.zarr", [0]).n_rows == n_rows - 1


@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
def test_damage_to_a_chunk_without_rows_is_told(codec: str, tmp_path: Path) -> None:
    """No reader reads it, and `info --verify` does."""
    before = make(tmp_path / "d.zarr", "dense", 3000, codec=codec, chunk_bytes=700_000)
    dataset = delete_rows(tmp_path / "d.zarr", np.arange(*before.chunk_starts[1:3]))
    file = tmp_path / "d.zarr" / "X" / "c" / "1" / "0"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    read_all(dataset)
    with pytest.raises(IntegrityError, match="X/c/1/0"):
        verify(dataset)
