"""Rows with sets of labels on disk: every way in, what is stored and checked, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy.sparse import csr_array, csr_matrix, save_npz

import streamsvm
from streamsvm.cli.info import describe, format_description, verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.numeric.labels import find_label, pack_sets, pick_labels, sum_labels, unpack_sets
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.sources.test_anndata import Make, add_array, make  # noqa: F401
from tests.label_problems import LabelProblem, make_labels

PROBLEM = make_labels(1, n=400, weighted=True)


def read_sets(dataset: Dataset) -> np.ndarray:
    """The indicator matrix of all rows, in their order."""
    assert dataset.classes is not None
    tiles = [rows.label_sets.copy() for k in range(dataset.n_chunks) for rows in dataset.tiles(k)]  # type: ignore[union-attr]
    return unpack_sets(np.concatenate(tiles), len(dataset.classes))


@pytest.mark.parametrize("n_labels", [1, 7, 8, 9, 30])
def test_bits(n_labels: int) -> None:
    rng = np.random.default_rng(n_labels)
    has, weight = rng.random((50, n_labels)) < 0.3, rng.random(50)
    bits = pack_sets(has)
    assert bits.shape == (50, -(-n_labels // 8))
    np.testing.assert_array_equal(unpack_sets(bits, n_labels), has)
    np.testing.assert_array_equal(find_label(bits, n_labels - 1), has[:, -1])
    np.testing.assert_array_equal(pick_labels(bits, np.array([n_labels - 1, -1, 0])), has[:, [-1, 0, 0]] & [1, 0, 1])
    np.testing.assert_allclose(sum_labels(bits, n_labels, weight), weight @ has)


FORMS = {
    "array": lambda Y: Y.astype(int),
    "flags": lambda Y: Y,
    "float": lambda Y: Y.astype(np.float32),
    "csr_array": csr_array,
    "csr_matrix": lambda Y: csr_matrix(Y.astype(float)),
    "csc": lambda Y: csr_array(Y).tocsc(),
    "frame": lambda Y: pd.DataFrame(Y.astype(int)),
    "dask": lambda Y: da.from_array(Y.astype(int), chunks=(150, Y.shape[1])),
    "list": lambda Y: Y.astype(int).tolist(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"codec": "lz4"}, {"chunk_bytes": 500, "layout": "sparse"}])
def test_an_indicator_matrix_of_any_form(form: str, options: dict[str, Any], tmp_path: Path) -> None:
    dataset = streamsvm.ingest(
        PROBLEM.X, tmp_path / "rows", FORMS[form](PROBLEM.Y), sample_weight=PROBLEM.weight, shuffle=None, **options
    )
    np.testing.assert_array_equal(read_sets(dataset), PROBLEM.Y)
    assert dataset.classes is not None
    assert dataset.classes.tolist() == list(range(6))
    assert dataset.class_counts is not None
    assert dataset.class_counts.tolist() == PROBLEM.Y.sum(axis=0).tolist()
    np.testing.assert_allclose(dataset.sum_weights(), PROBLEM.weight @ PROBLEM.Y)
    assert verify(dataset)["verified"]


def test_rows_are_shuffled_with_their_labels(tmp_path: Path) -> None:
    """Also through runs that are split on disk."""
    X = np.arange(1, 2001, dtype=np.float32)[:, None]
    Y = (X.astype(int) >> np.arange(10)) & 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.ingestion.segments.RUN_BYTES", 4000)
        dataset = streamsvm.ingest(X, tmp_path / "rows", Y, shuffle=3, chunk_bytes=800)
    found = dataset.take(np.arange(2000))
    assert found.label_sets is not None
    numbers = np.asarray(found.X)[:, 0].astype(int)
    assert not np.array_equal(numbers, np.sort(numbers))
    np.testing.assert_array_equal(unpack_sets(found.label_sets, 10), (numbers[:, None] >> np.arange(10)) & 1)


def write_text(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_lists_of_labels_in_text(tmp_path: Path) -> None:
    """Labels are numbers in any order; a list may be empty; the labels that occur are the labels."""
    lines = ["3,1 1:1 2:2", " 2:1", "2:3 # no labels", "1,10,3 1:-1", "-2.5 1:4", "7,7 2:1"]
    file = write_text(tmp_path / "rows.svm", lines)
    dataset = streamsvm.ingest(file, tmp_path / "rows", multi_label=True, shuffle=None)
    assert dataset.classes is not None
    assert dataset.classes.tolist() == [-2.5, 1, 3, 7, 10]
    expected = [[1, 3], [], [], [1, 3, 10], [-2.5], [7]]
    assert [dataset.classes[row].tolist() for row in read_sets(dataset)] == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,,2 1:1", r":2:1: label '1,,2' is not a number"),
        ("1, 2:1 3:1", r":2:1: label '1,' is not a number"),
        ("1,nan 1:1", r":2:1: label '1,nan' is not a number"),
        ("a,b 1:1", r":2:1: label 'a,b' is not a number"),
    ],
)
def test_bad_lists(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        streamsvm.ingest(write_text(tmp_path / "a.svm", ["1,2 1:1", line]), tmp_path / "rows", multi_label=True)
    assert not (tmp_path / "rows").exists()


def test_text_with_lists_needs_the_option(tmp_path: Path) -> None:
    file = write_text(tmp_path / "a.svm", ["1,2 1:1"])
    with pytest.raises(InputError, match="list of labels: use --multi-label"):
        streamsvm.ingest(file, tmp_path / "rows")


@pytest.mark.parametrize("sparse", [False, True])
def test_numpy_files(sparse: bool, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", PROBLEM.X)
    np.save(tmp_path / "Y.npy", PROBLEM.Y.astype(np.uint8))
    paths = [tmp_path / "X.npy", tmp_path / "Y.npy"]
    if sparse:
        save_npz(tmp_path / "rows.npz", csr_matrix(PROBLEM.X))
        with np.load(tmp_path / "rows.npz") as file:
            np.savez(tmp_path / "rows.npz", **{**file, "y": np.asfortranarray(PROBLEM.Y)})
        paths = [tmp_path / "rows.npz"]
    np.testing.assert_array_equal(read_sets(streamsvm.ingest(paths, tmp_path / "rows", shuffle=None)), PROBLEM.Y)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (np.full((4, 3), 2), "holds only 0 and 1, not 2"),
        (np.array([[0, 1], [1, 0], [0, 1], [0.5, 0]]), "row 4 .counted from 1.: a matrix of labels holds only 0 and 1"),
        (np.ones((3, 2)), "y: has 3 rows, but X has 4"),
        (np.full((4, 2), "a"), "a matrix of labels holds 0 and 1"),
        (np.zeros((4, 0)), "no columns"),
    ],
)
def test_bad_matrices(Y: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        streamsvm.ingest(np.ones((4, 2)), tmp_path / "rows", Y)


def test_a_regression_has_no_sets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a regression needs one number"):
        streamsvm.ingest(PROBLEM.X, tmp_path / "rows", PROBLEM.Y, regression=True)


def test_rows_are_appended(tmp_path: Path) -> None:
    more = LabelProblem(PROBLEM.X[:50] + 1, PROBLEM.Y[:50], None)
    LabelProblem(PROBLEM.X, PROBLEM.Y).store(tmp_path / "rows")
    dataset = more.store(tmp_path / "rows", append=True)
    np.testing.assert_array_equal(read_sets(dataset), np.concatenate((PROBLEM.Y, more.Y)))
    assert dataset.class_counts is not None
    assert dataset.class_counts.tolist() == (PROBLEM.Y.sum(0) + more.Y.sum(0)).tolist()
    wider = LabelProblem(more.X, np.column_stack((more.Y, more.Y[:, :1])))
    with pytest.raises(InputError, match=r"the label 6"):
        wider.store(tmp_path / "rows", append=True)


def test_info_tells_the_labels(tmp_path: Path) -> None:
    told = format_description(describe(PROBLEM.store(tmp_path / "rows")))
    assert f"labels    any number per row; 0: {PROBLEM.Y[:, 0].sum()}, " in told


def test_every_part_is_verified(tmp_path: Path) -> None:
    """A flipped bit of a set is found when its chunk is read, and so is a label that does not exist."""
    dataset = PROBLEM.store(tmp_path / "rows")
    file = tmp_path / "rows" / "label_sets" / "c" / "0" / "0"
    before = file.read_bytes()
    file.write_bytes(bytes([before[0] ^ 1]) + before[1:])
    with pytest.raises(IntegrityError):
        list(dataset.tiles(0))
    file.write_bytes(before)
    list(dataset.tiles(0))


def test_earlier_versions_refuse_it(tmp_path: Path) -> None:
    PROBLEM.store(tmp_path / "rows")
    assert zarr.open_group(str(tmp_path / "rows"), mode="r").attrs["streamsvm"]["format"] == 4  # type: ignore[index,call-overload]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_matrix_of_obsm(sparse: bool, zarr_format: int, make: Make) -> None:  # noqa: F811
    path = make(PROBLEM.X, zarr_format)
    group = zarr.open_group(str(path), mode="a").create_group("obsm")
    if sparse:
        Y = csr_array(PROBLEM.Y.astype(np.float64))
        there = group.create_group("topics")
        there.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(Y.shape)})
        for name in ("data", "indices", "indptr"):
            add_array(there, name, getattr(Y, name), "array", (50,))
    else:
        add_array(group, "topics", PROBLEM.Y.astype(np.int8), "array", (100, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.data.sources.anndata.PIECE_VALUES", 300)
        dataset = open_dataset(path, "obsm/topics")
    np.testing.assert_array_equal(read_sets(dataset), PROBLEM.Y)
    assert dataset.class_counts is not None
    assert dataset.class_counts.tolist() == PROBLEM.Y.sum(0).tolist()
    with pytest.raises(InputError, match="has no matrix 'obsm/others' of labels"):
        open_dataset(path, "obsm/others")
    with pytest.raises(InputError, match="no matrix"):
        open_dataset(path, "obsm/../X")
