"""Ingest: shuffled once, in bounded memory, whole or not at all; bad sources named."""

from __future__ import annotations

import lzma
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chi2
from sklearn.datasets import load_svmlight_file

import streamsvm
from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources import formats
from streamsvm.data.sources.svmlight import read_svmlight
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion import ingest as ingest_module
from streamsvm.ingestion import segments
from streamsvm.ingestion.ingest import IngestOptions, write_dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError
from tests.data.conftest import Collect, Write, file_hashes, numbered_rows

ROOT = Path(__file__).parents[2]


def read_order(dataset: Dataset) -> np.ndarray:
    """Numbers of the rows as stored: written as sample weights, and as the first feature."""
    parts: list[Any] = [dataset.read(k) for k in range(dataset.n_chunks)]
    order: np.ndarray = np.concatenate([rows.sample_weight for rows in parts]).astype(int)
    np.testing.assert_array_equal(np.concatenate([rows.X[:, 0] for rows in parts]), order)
    return order


# --- shuffle


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_the_same_seed_gives_the_same_bytes(
    layout: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 2000)
    X, y, number = numbered_rows(500)
    options = {"layout": layout, "borders": [100, 110, 400], "expected_bytes": 4000, "chunk_bytes": 800}
    seen = {}
    for name, seed in (("a", 3), ("b", 3), ("c", 4), ("d", None)):
        write(X, y, number, to=tmp_path / name, shuffle=seed, **options)
        seen[name] = file_hashes(tmp_path / name)
    assert seen["a"] == seen["b"]
    assert seen["a"].keys() == seen["c"].keys() == seen["d"].keys()
    weights = [name for name in seen["a"] if name.startswith("sample_weight/c/")]
    assert len(weights) > 4
    assert all(len({seen[dataset][name] for dataset in "acd"}) == 3 for name in weights)


def test_runs_that_are_read_are_on_the_disk_no_more(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 2000)
    read, seen = segments.Spill.read_shuffled, []

    def look(self: segments.Spill, run: int) -> Any:
        seen.append(sorted({int(file.name.split(".")[0]) for file in self.folder.iterdir()}))
        return read(self, run)

    monkeypatch.setattr(segments.Spill, "read_shuffled", look)
    write(*numbered_rows(500), expected_bytes=8000, shuffle=0)
    last = seen[0][-1]
    assert last > 2
    assert seen[: last + 1] == [list(range(k, last + 1)) for k in range(last + 1)]


def test_the_shuffle_is_a_uniform_permutation(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 100_000)
    n = 20_000
    dataset = write(
        *numbered_rows(n), borders=range(700, n, 700), expected_bytes=300_000, chunk_bytes=20_000, shuffle=0
    )
    order = read_order(dataset)
    assert sorted(order) == list(range(n))
    table = np.histogram2d(np.arange(n), order, bins=(10, 10))[0]
    assert ((table - n / 100) ** 2).sum() / (n / 100) < chi2.ppf(1 - 1e-5, 81)
    labels = [np.bincount(dataset.read(k).y, minlength=2) for k in range(dataset.n_chunks)]  # type: ignore[arg-type]
    assert min(counts.min() / counts.sum() for counts in labels) > 0.4  # the source is sorted by label


def test_the_default_is_a_shuffle_with_seed_0(write: Write) -> None:
    assert IngestOptions().shuffle == 0
    order = read_order(write(*numbered_rows(300), shuffle=IngestOptions().shuffle))
    np.testing.assert_array_equal(order, read_order(write(*numbered_rows(300), shuffle=0)))
    assert (order != np.arange(300)).mean() > 0.9


@pytest.mark.parametrize("shuffle", [0, 5, None])
def test_queries_stay_together_and_in_order(shuffle: int | None, write: Write) -> None:
    X, y, number = numbered_rows(300)
    qid = np.arange(300) // 7
    dataset = write(X, y, number, qid, borders=[100, 103], shuffle=shuffle, chunk_bytes=80)
    np.testing.assert_array_equal(read_order(dataset), np.arange(300))
    parts = [dataset.read(k).qid for k in range(dataset.n_chunks)]
    np.testing.assert_array_equal(np.concatenate(parts), qid)  # type: ignore[arg-type]
    assert dataset.meta["shuffle"] is None


def test_the_shuffle_does_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "rows.svm"
    text.write_text("".join(f"{i % 2} {i % 50 + 1}:{i} {i % 50 + 60}:1\n" for i in range(4000)))
    reader = partial(read_svmlight, block_bytes=3000)
    monkeypatch.setattr("streamsvm.data.sources.svmlight.read_svmlight", reader)
    monkeypatch.setattr(segments, "RUN_BYTES", 20_000)
    seen = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(formats, "default_threads", lambda n=threads: n)
        dataset = ingest(text, tmp_path / f"{threads}.zarr", chunk_bytes=4000)
        seen.append(dataset.fingerprint)
    assert len(set(seen)) == 1
    parts: list[Any] = [dataset.read(k).X for k in range(dataset.n_chunks)]
    taken = np.concatenate([X.data[::2] for X in parts])
    assert sorted(taken) == list(range(4000))


# --- labels, layouts, options


def test_one_class_only_gives_a_warning_or_is_refused(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    X = np.ones((5, 2), np.float32)
    for labels, shown in ((np.full(5, 3.0), "3"), (np.array(["ham"] * 5), "ham")):
        with pytest.raises(InputError, match=f"mails.svm: every row has the label {shown}"):
            write(X, labels, name="mails.svm", needs_two_classes=True, to=tmp_path / "no.zarr")
        assert os.listdir(tmp_path) == []
        assert not caplog.records
        one = write(X, labels, name="mails.svm")
        assert f"mails.svm: every row has the label {shown}: --task one-class" in caplog.text
        caplog.clear()
        assert one.class_counts is not None
        assert one.class_counts.tolist() == [5]


def test_rows_without_labels_are_allowed(write: Write) -> None:
    dataset = write(np.ones((5, 2), np.float32), needs_two_classes=True)
    assert dataset.classes is None
    assert dataset.class_counts is None
    assert dataset.read(0).y is None


def test_too_many_classes_are_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "MOST_CLASSES", 10)
    X = np.ones((30, 1), np.float32)
    number = np.arange(30)
    for labels in (number % 11 * 1.0, np.char.add("c", (number % 11).astype(str))):
        with pytest.raises(InputError, match=r"table\.csv: at most 10 different labels"):
            write(X, labels, name="table.csv", borders=[6])
    assert write(X, number % 10 * 1.0).class_counts is not None


@pytest.mark.parametrize("field", ["labels", "qid", "sample_weight"])
def test_a_field_of_some_rows_only_is_refused(field: str, tmp_path: Path) -> None:
    X = np.ones((4, 2), np.float32)
    values: dict[str, Any] = {"labels": np.array([0.0, 1, 0, 1]), "qid": np.arange(4), "sample_weight": np.ones(4)}
    for order in (1, -1):
        pieces = [SourceRows(X, **{field: values[field]}), SourceRows(X)][::order]
        shown = "label" if field == "labels" else field
        with pytest.raises(InputError, match=f"rows.svm: only some rows have {shown}"):
            write_dataset(iter(pieces), tmp_path / "d.zarr", "rows.svm", 0, IngestOptions())
        assert os.listdir(tmp_path) == []


def test_a_reader_is_closed_when_its_rows_are_refused(tmp_path: Path) -> None:
    """Its files and threads would otherwise live as long as the error does."""
    closed = []

    def read() -> Iterator[SourceRows]:
        try:
            for labels in (np.array([1.0, 2.0]), np.array(["a", "b"])):
                yield SourceRows(np.ones((2, 2), np.float32), labels)
        finally:
            closed.append(True)

    with pytest.raises(InputError) as caught:
        write_dataset(read(), tmp_path / "rows.zarr", "rows", 100, IngestOptions())
    assert closed
    assert caught.tb is not None


def test_numbers_and_texts_as_labels_are_refused(tmp_path: Path) -> None:
    X = np.ones((2, 2), np.float32)
    pieces = [SourceRows(X, np.array([0.0, 1.0])), SourceRows(X, np.array(["a", "b"]))]
    for order in (1, -1):
        with pytest.raises(InputError, match=r"rows\.csv: some labels are numbers, and others are text"):
            write_dataset(iter(pieces[::order]), tmp_path / "d.zarr", "rows.csv", 0, IngestOptions())


@pytest.mark.parametrize("pieces", [[], [SourceRows(np.empty((0, 3), np.float32))]])
def test_a_source_without_rows_is_refused(pieces: list[SourceRows], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"empty\.svm: no rows"):
        write_dataset(iter(pieces), tmp_path / "d.zarr", "empty.svm", 0, IngestOptions(scale="minmax"))
    assert os.listdir(tmp_path) == []


def test_rows_of_zeros_only_are_refused(write: Write) -> None:
    for X in (np.zeros((4, 2), np.float32), csr_array((4, 2), dtype=np.float32)):
        with pytest.raises(InputError, match=r"z\.svm: every feature of every row is zero"):
            write(X, np.arange(4.0), name="z.svm")


def test_sizes_may_be_text() -> None:
    options = IngestOptions(chunk_bytes="1.5MB", shard_bytes="2MiB")  # type: ignore[arg-type]
    assert (options.chunk_bytes, options.shard_bytes) == (1_500_000, 2 << 20)
    with pytest.raises(InputError, match="chunk_bytes 'lots' is not a size in bytes"):
        IngestOptions(chunk_bytes="lots")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("layout", "csr", "layout 'csr'"),
        ("codec", "gzip", "codec 'gzip'"),
        ("scale", "unit", "scale 'unit'"),
        ("shuffle", -1, "shuffle -1"),
        ("chunk_bytes", 0, "chunk_bytes 0"),
        ("chunk_bytes", -5, "chunk_bytes -5"),
        ("chunk_bytes", float("nan"), "chunk_bytes nan"),
    ],
)
def test_wrong_options_are_refused_before_a_row_is_read(option: str, value: Any, named: str, tmp_path: Path) -> None:
    def source() -> Iterator[SourceRows]:
        raise AssertionError("read")
        yield

    with pytest.raises(InputError, match=named):
        write_dataset(source(), tmp_path / "d.zarr", "rows", 0, IngestOptions(**{option: value}))


@pytest.mark.parametrize(("share", "sparse"), [(0.3, True), (0.4, False)])
def test_the_layout_follows_the_density_of_sparse_sources(share: float, sparse: bool, write: Write) -> None:
    X = np.zeros((100, 10), np.float32)
    X[:, : int(10 * share)] = 1
    assert write(csr_array(X)).is_sparse == sparse
    assert not write(X).is_sparse
    assert not write(csr_array(X), layout="dense").is_sparse
    assert write(X, layout="sparse").is_sparse


def test_progress_is_told_the_rows_read_so_far(tmp_path: Path) -> None:
    told: list[int] = []
    X = np.ones((7, 2), np.float32)
    pieces = iter([SourceRows(X), SourceRows(X[:3]), SourceRows(X)])
    write_dataset(pieces, tmp_path / "d.zarr", "rows", 0, IngestOptions(), told.append)
    assert told == [7, 10, 17]


def test_columns_seen_late_count_for_all_rows(write: Write, collect: Collect) -> None:
    """A sparse source gives the columns seen so far; the dataset has them all."""
    early = csr_array(np.array([[1, 0], [0, 2]], np.float32))
    late = csr_array(np.array([[0, 0, 0, 5], [3, 0, 0, 0]], np.float32))
    for layout in ("dense", "sparse"):
        first, last = SourceRows(early, np.array([0.0, 1.0])), SourceRows(late, np.array([1.0, 0.0]))
        pieces = iter([first, last, first])  # the third: a file of its own, which begins anew
        path = Path(write(early).path).with_name(f"late-{layout}.zarr")
        options = IngestOptions(layout=layout, shuffle=None, scale="maxabs")
        dataset = write_dataset(pieces, path, "rows", 0, options)
        assert dataset.n_features == 4
        rows = [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 5], [3, 0, 0, 0], [1, 0, 0, 0], [0, 2, 0, 0]]
        wanted = np.array(rows) / [3, 2, 1, 5]
        np.testing.assert_allclose(collect([dataset.read(0)])["X"], wanted, rtol=1e-6)


def test_names_of_features_are_kept(tmp_path: Path) -> None:
    rows = SourceRows(np.ones((2, 2), np.float32), np.arange(2.0), feature_names=("età", 'say "hi"'))
    write_dataset(iter([rows]), tmp_path / "d.zarr", "rows", 0, IngestOptions())
    assert open_dataset(tmp_path / "d.zarr").feature_names == ("età", 'say "hi"')


# --- the front door


def test_ingest_takes_arrays_and_files_alike(tmp_path: Path, collect: Collect) -> None:
    X = np.array([[1.5, 0, 2], [0, 0.25, 0], [0, 0, 3]], np.float32)
    y = np.array([1, -1, 1])
    text = tmp_path / "rows.svm"
    text.write_text("1 1:1.5 3:2\n-1 2:0.25\n1 3:3\n")
    sources: list[Any] = [text, str(text), X, csr_array(X)]
    made = [
        streamsvm.ingest(source, tmp_path / f"{i}.zarr", y if i > 1 else None, shuffle=None, layout="sparse")
        for i, source in enumerate(sources)
    ]
    for dataset in made:
        found = collect([dataset.read(0)])
        np.testing.assert_array_equal(found["X"], X)
        assert dataset.classes is not None
        np.testing.assert_array_equal(dataset.classes[found["y"]], y)


@pytest.mark.data
def test_real_data_come_back_as_they_were(data_folder: Path, a9a: Dataset, collect: Collect) -> None:
    with lzma.open(data_folder / "adult" / "a9a.xz") as file:
        X, y = load_svmlight_file(file)
    found = collect(rows for k in range(a9a.n_chunks) for rows in a9a.tiles(k))
    assert a9a.classes is not None
    stored = np.column_stack((a9a.classes[found["y"]], found["X"]))
    wanted = np.column_stack((y, X.toarray()))
    assert stored.shape == (32_561, 124)
    np.testing.assert_array_equal(stored[np.lexsort(stored.T)], wanted[np.lexsort(wanted.T)])


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in ("none.svm", "none.csv", "none.npy", "none.parquet"):
        with pytest.raises(InputError, match=name) as caught:
            ingest(tmp_path / name, tmp_path / "d.zarr")
        assert "d.zarr" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("option", [{"label": "target"}, {"header": "yes"}])
def test_options_for_files_are_refused_for_rows_in_memory(option: dict[str, str], tmp_path: Path) -> None:
    """Otherwise the column of the labels would be a feature, and the model would know the answer."""
    with pytest.raises(InputError, match="give their labels as y"):
        ingest(np.ones((3, 2)), tmp_path / "rows", np.array([0, 1, 1]), **option)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_working_directory_does_not_change_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 2:1\n")
    whole = ingest(tmp_path / "rows.svm", tmp_path / "whole.zarr")
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(("rows.svm", "./rows.svm", f"../{tmp_path.name}/rows.svm")):
        other = ingest(name, f"{k}.zarr")
        assert (other.fingerprint, other.meta["source"]) == (whole.fingerprint, "rows.svm")
