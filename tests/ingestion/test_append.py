"""Rows are appended to a dataset: as parts of their own, whole or not at all, under the eyes of who reads it."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm.cli.info import verify
from streamsvm.cli.main import main
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.edit import delete_rows
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.conftest import file_hashes
from tests.data.forging import edit_manifest
from tests.faults.power_failures import WatchedDisk, distinct, lay_out

N, D, CUTS = 300, 6, (120, 260)


def make_rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.7)).astype(np.float32)
    X[:, 0] = np.arange(1, N + 1)  # the number of the row
    return X, np.where(X[:, 1] > 0, 2, -1), rng.random(N)


def make_joined(path: Path, layout: str = "dense", **options: Any) -> Dataset:
    """A dataset to which rows were appended twice."""
    X, y, weight = make_rows()
    given = csr_array(X) if layout == "sparse" else X
    first = slice(0, CUTS[0])
    ingest(given[first], path, y[first], sample_weight=weight[first], layout=layout, chunk_bytes=900, **options)
    for part in (slice(*CUTS), slice(CUTS[1], N)):
        ingest(given[part], path, y[part], sample_weight=weight[part], append=True, chunk_bytes=700)
    return open_dataset(path)


def write_out(X: Any) -> np.ndarray:
    return X if isinstance(X, np.ndarray) else csr_array((X.data, X.indices, X.indptr), shape=X.shape).toarray()


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("scale", ["none", "maxabs"])
def test_all_rows_are_there(layout: str, scale: str, tmp_path: Path) -> None:
    """Each part is shuffled by itself; the new rows have the scaling that was found for the first ones."""
    dataset = make_joined(tmp_path / "d.zarr", layout, scale=scale)
    X, y, weight = make_rows()
    factor = 1.0 / np.abs(X[: CUTS[0]]).max(axis=0) if scale == "maxabs" else np.ones(D)
    for read in (dataset.read, lambda index: replace(next(dataset.tiles(index)))):
        seen = []
        for index in range(dataset.n_chunks):
            rows = read(index)
            assert rows.y is not None
            assert rows.sample_weight is not None
            assert rows.start == dataset.chunk_starts[index]
            found = write_out(rows.X)
            number = np.rint(found[:, 0] / factor[0]).astype(int) - 1
            np.testing.assert_allclose(found, X[number] * factor, rtol=1e-6)
            assert dataset.classes is not None
            np.testing.assert_array_equal(dataset.classes[rows.y], y[number])
            np.testing.assert_array_equal(rows.sample_weight, weight[number])
            seen.append(number)
        order = np.concatenate(seen)
        for a, b in ((0, CUTS[0]), CUTS, (CUTS[1], N)):
            np.testing.assert_array_equal(np.sort(order[a:b]), np.arange(a, b))
            assert (order[a:b] != np.arange(a, b)).any()
    np.testing.assert_array_equal(dataset.class_counts, [np.sum(y == -1), np.sum(y == 2)])
    sums = dataset.sum_weights()
    assert sums is not None
    np.testing.assert_allclose(sums, [weight[y == -1].sum(), weight[y == 2].sum()])
    assert verify(dataset)["verified_rows"] == N


@pytest.mark.parametrize("regression", [False, True])
def test_rows_without_classes_are_appended(regression: bool, tmp_path: Path) -> None:
    X, _, weight = make_rows()
    y, path = weight if regression else None, tmp_path / "d.zarr"
    ingest(X, path, y, regression=regression, shuffle=None)
    dataset = ingest(X, path, y, append=True, shuffle=None)
    assert (dataset.n_rows, dataset.classes) == (2 * N, None)
    if regression:
        np.testing.assert_array_equal(dataset.column("target"), np.concatenate((weight, weight)))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_single_rows_are_found_by_their_numbers(layout: str, tmp_path: Path) -> None:
    dataset = make_joined(tmp_path / "d.zarr", layout)
    every = np.concatenate([write_out(dataset.read(index).X) for index in range(dataset.n_chunks)])
    numbers = np.array([299, 0, 120, 119, 260, 259, 5, 299])
    taken = dataset.take(numbers)
    np.testing.assert_array_equal(write_out(taken.X), every[numbers])
    np.testing.assert_array_equal(taken.y, dataset.column("y")[numbers])  # type: ignore[index]
    assert dataset.take(np.empty(0, int)).n_rows == 0
    assert dataset.take_bytes(numbers) > 0
    with pytest.raises(InputError, match=r"there is no row 300 \(from 0\) among 300 rows"):
        dataset.take([300])


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        make_joined(tmp_path / name / "d.zarr")
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        written.append([(path.relative_to(tmp_path / name), path.read_bytes()) for path in files])
    assert written[0] == written[1]


def test_texts_as_labels_and_names_of_features(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("a,b,class\n1,2,no\n3,4,yes\n2,2,no\n")
    (tmp_path / "new.csv").write_text("a,b,class\n5,6,yes\n7,1,yes\n")
    ingest(tmp_path / "old.csv", tmp_path / "d.zarr")
    assert main(["ingest", str(tmp_path / "new.csv"), str(tmp_path / "d.zarr"), "--append"]) == 0
    dataset = open_dataset(tmp_path / "d.zarr")
    assert dataset.class_counts is not None
    assert (dataset.n_rows, dataset.class_counts.tolist(), dataset.feature_names) == (5, [2, 3], ("a", "b"))


REFUSED = {
    "no class of this": ("1,2,maybe\n", {}, "the label 'maybe' is not one of the 2 classes.*--new-classes"),
    "a number as label": ("1,2,3\n", {}, "some labels are numbers, and others are text"),
    "a feature more": ("a,b,c,class\n1,2,3,no\n", {}, "its rows have 3 features, but the rows of .* have 2"),
    "a feature fewer": ("a,class\n1,no\n", {}, "its rows have 1 features, but the rows of .* have 2"),
    "another name": ("a,z,class\n1,2,no\n", {}, "feature 2 is 'z', but 'b' in"),
    "zeros": ("0,0,no\n", {}, "every feature of every row is zero"),
    "bad input": ("1,x,no\n", {}, "x"),
    "another scaling": ("1,2,no\n", {"scale": "maxabs"}, "scale has no effect on appended rows"),
    "another codec": ("1,2,no\n", {"codec": "zstd"}, "codec has no effect"),
    "overwritten": ("1,2,no\n", {"overwrite": True}, "overwrite has no effect"),
    "targets": ("1,2,3\n", {"regression": True}, "regression has no effect"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_other_rows_are_refused(case: str, tmp_path: Path) -> None:
    text, options, message = REFUSED[case]
    (tmp_path / "old.csv").write_text("a,b,class\n1,2,no\n3,4,yes\n")
    (tmp_path / "new.csv").write_text(text if "class\n" in text else f"a,b,class\n{text}")
    ingest(tmp_path / "old.csv", tmp_path / "d.zarr")
    before = file_hashes(tmp_path)
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "new.csv", tmp_path / "d.zarr", append=True, **options)
    assert file_hashes(tmp_path) == before
    assert open_dataset(tmp_path / "d.zarr").n_rows == 2


@pytest.mark.parametrize("labels", [(2.0, -1.0, 7.0, 0.5), ("no", "yes", "maybe", "very")])
def test_new_classes_are_put_in_their_places(labels: tuple[Any, ...], tmp_path: Path) -> None:
    """Rows, deleted ones too, have the labels that they were given, however often classes come in between."""
    X, y, _ = make_rows()
    y, third = np.array(labels[:2])[(y > 0).astype(int)].astype(np.asarray(labels).dtype), slice(200, N)
    y[150:200:3], y[third] = labels[2], np.asarray(labels)[X[third, 0].astype(int) % 4]
    ingest(X[:150], tmp_path / "d.zarr", y[:150])
    for part in (slice(150, 200), third):
        ingest(X[part], tmp_path / "d.zarr", y[part], append=True, new_classes=True)
        gone = open_dataset(tmp_path / "d.zarr").n_rows - 1
        delete_rows(tmp_path / "d.zarr", [3, gone])
    dataset = open_dataset(tmp_path / "d.zarr")
    assert dataset.classes is not None
    assert dataset.class_counts is not None
    assert dataset.classes.tolist() == sorted(labels)
    for shown in (dataset, pickle.loads(pickle.dumps(dataset))):
        numbers, found = zip(*((rows.X[:, 0], rows.y) for rows in map(shown.read, range(shown.n_chunks))), strict=True)
        number = np.rint(np.concatenate(numbers)).astype(int) - 1
        np.testing.assert_array_equal(dataset.classes[np.concatenate(found)], y[number])
        np.testing.assert_array_equal(np.bincount(np.concatenate(found)), dataset.class_counts)
    taken = dataset.take([dataset.n_rows - 1, 0, 149])
    np.testing.assert_array_equal(dataset.classes[taken.y], y[np.rint(taken.X[:, 0]).astype(int) - 1])
    assert verify(dataset)["verified_rows"] == N - 4


def test_who_reads_before_a_new_class_keeps_the_classes(tmp_path: Path) -> None:
    X, y, _ = make_rows()
    before = ingest(X[:200], tmp_path / "d.zarr", y[:200])
    ingest(X[200:], tmp_path / "d.zarr", np.where(X[200:, 1] > 0, 1, 2), append=True, new_classes=True)
    for view in (before, pickle.loads(pickle.dumps(before))):
        assert view.classes.tolist() == [-1, 2]
        np.testing.assert_array_equal(view.classes[view.column("y")], y[np.rint(view.read(0).X[:, 0]).astype(int) - 1])


def test_new_labels_of_sets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.svm").write_text("1,2 1:1\n2 2:1\n")
    (tmp_path / "new.svm").write_text("1,3 1:1\n")
    ingest(tmp_path / "old.svm", tmp_path / "d.zarr", multi_label=True)
    with pytest.raises(InputError, match=r"the label 3 is not one of .*; to add a class, ingest all files again"):
        ingest(tmp_path / "new.svm", tmp_path / "d.zarr", multi_label=True, append=True, new_classes=True)
    with pytest.raises(InputError, match="needs --append"):
        ingest(tmp_path / "new.svm", tmp_path / "e.zarr", multi_label=True, new_classes=True)


def test_weights_in_one_of_both_are_refused(tmp_path: Path) -> None:
    X, y, weight = make_rows()
    ingest(X, tmp_path / "d.zarr", y)
    with pytest.raises(InputError, match=r"sample_weight must be in the new rows and in the rows of .*, or in neither"):
        ingest(X, tmp_path / "d.zarr", y, sample_weight=weight, append=True)
    with pytest.raises(InputError, match="no such dataset; ingest without --append"):
        ingest(X, tmp_path / "none.zarr", y, append=True)


def test_queries_are_refused(tmp_path: Path) -> None:
    X, y, _ = make_rows()
    ingest(X, tmp_path / "d.zarr", y, qid=np.arange(N) // 10)
    with pytest.raises(InputError, match="no rows can be appended: it has queries"):
        ingest(X, tmp_path / "d.zarr", y, qid=np.arange(N) // 10, append=True)


def test_who_reads_keeps_his_view(tmp_path: Path) -> None:
    """Also a worker, which opens the dataset by its path: it is sent the fingerprint of the view."""
    X, y, weight = make_rows()
    views = [ingest(X[:100], tmp_path / "d.zarr", y[:100], sample_weight=weight[:100], chunk_bytes=900)]
    before = [views[0].read(index).X for index in range(views[0].n_chunks)]
    for a in (100, 200):
        part = slice(a, a + 100)
        views.append(ingest(X[part], tmp_path / "d.zarr", y[part], sample_weight=weight[part], append=True))
    assert len({view.fingerprint for view in views}) == 3
    for k, view in enumerate(views):
        for shown in (view, pickle.loads(pickle.dumps(view))):
            assert (shown.n_rows, shown.fingerprint) == (100 * (k + 1), view.fingerprint)
            for index, old in enumerate(before):
                np.testing.assert_array_equal(shown.read(index).X, old)


def damage_base(path: Path) -> None:
    edit_manifest(path, lambda meta: meta["base"].update(n_rows=119))


def damage_list(path: Path) -> None:
    text = (path / "zarr.json").read_text()
    known = json.loads(text)["attributes"]["streamsvm"]["appended"]
    (path / "zarr.json").write_text(text.replace(known[0], "0" * 64))


def forge_list(path: Path) -> None:
    edit_manifest(path, lambda meta: meta["appended"].reverse())


def remove_part(path: Path) -> None:
    shutil.rmtree(path / "appended" / "2")


def swap_parts(path: Path) -> None:
    (path / "appended" / "1").rename(path / "other")
    (path / "appended" / "2").rename(path / "appended" / "1")
    (path / "other").rename(path / "appended" / "2")


def damage_chunk(path: Path) -> None:
    file = path / "appended" / "1" / "X" / "c" / "1" / "0"
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [damage_base, damage_list, forge_list, remove_part, swap_parts, damage_chunk])
def test_damage_is_found(damage: Any, tmp_path: Path) -> None:
    make_joined(tmp_path / "d.zarr")
    damage(tmp_path / "d.zarr")
    with pytest.raises(IntegrityError, match=r"d\.zarr"):
        verify(open_dataset(tmp_path / "d.zarr"))


def test_a_part_is_no_dataset(tmp_path: Path) -> None:
    make_joined(tmp_path / "d.zarr")
    with pytest.raises(InputError, match="holds rows that were appended to the dataset"):
        open_dataset(tmp_path / "d.zarr" / "appended" / "1")


@pytest.mark.slow("simulates a power failure at every write")
def test_power_failures_leave_the_old_rows_or_all(thorough: bool, tmp_path: Path) -> None:
    """And rows can be appended to what is left."""
    X, y, _ = make_rows()
    (tmp_path / "disk").mkdir()
    old = ingest(X[:20], tmp_path / "disk" / "d.zarr", y[:20])
    disk = WatchedDisk(tmp_path / "disk", tmp_path / "aside")
    with pytest.MonkeyPatch.context() as patch, disk.watch(patch):
        new = ingest(X[20:30], tmp_path / "disk" / "d.zarr", y[20:30], append=True)
    pictures = disk.pictures if thorough else [*disk.pictures[:-12:8], *disk.pictures[-12:]]
    left = [tree for tree, _ in distinct(pictures)]
    shown = set()
    for number, tree in enumerate(left if thorough else [*left[::12], left[-1]]):
        place = tmp_path / f"{number}"
        lay_out(tree, place)
        found = open_dataset(place / "d.zarr")
        verify(found)
        shown.add(found.fingerprint)
        assert ingest(X[30:], place / "d.zarr", y[30:], append=True).n_rows == found.n_rows + N - 30
        shutil.rmtree(place)
    assert shown == {old.fingerprint, new.fingerprint}


def test_the_model_is_that_of_all_rows(tmp_path: Path) -> None:
    """The optimum lies between the bounds of both trainings; threads change no bit."""
    dataset, (X, y, weight) = make_joined(tmp_path / "d.zarr"), make_rows()
    whole = ingest(X, tmp_path / "whole.zarr", y, sample_weight=weight)
    options = TrainOptions(C=0.1, tol=1e-5)
    joined, other = train(dataset, options), train(whole, options)
    assert joined.status == other.status == "converged"
    assert joined.lower_bound is not None
    assert other.lower_bound is not None
    assert joined.lower_bound <= other.objective
    assert other.lower_bound <= joined.objective
    again = train(dataset, replace(options, threads=1))
    assert again.model_sha256 == joined.model_sha256


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_rows_are_not_cut_by_the_size_of_a_few(layout: str, tmp_path: Path) -> None:
    """The rows of a single chunk say nothing of the size of chunks; those of several do."""
    X = np.random.default_rng(0).standard_normal((2000, 4)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1)
    for name, own, n_chunks in (("one", None, 1), ("many", 400, 80)):
        few = slice(0, 100)
        ingest(X[few], tmp_path / name, y[few], layout=layout, chunk_bytes=own)
        for _ in range(2):
            before = open_dataset(tmp_path / name).n_chunks
            after = ingest(X, tmp_path / name, y, append=True).n_chunks
            assert (after - before == 1) is (n_chunks == 1)
            assert after - before >= n_chunks
