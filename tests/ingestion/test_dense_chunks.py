"""Ranges of rows that tasks write side by side have the bytes of chunks that are written one after another."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.open import open_dataset
from streamsvm.data.store.destination import new_folder
from streamsvm.data.store.shared_files import SharedFolder
from streamsvm.ingestion.write import DatasetWriter, RangeWriter, Shape, map_here
from streamsvm.numeric.rows import Rows
from streamsvm.system.errors import InputError

N, D = 1000, 37
META = {"classes": [0, 1], "class_counts": [500, 500], "feature_names": None, "shuffle": None, "source": "rows"}


def make_rows() -> Rows:
    random = np.random.default_rng(1)
    X = random.normal(size=(N, D)).astype(np.float32)
    y = np.tile(np.array([0, 1], np.int32), N // 2)
    return Rows(0, X, y, random.random(N), np.arange(N) // 9)


def cut(rows: Rows, start: int, stop: int) -> Rows:
    assert rows.y is not None
    assert rows.sample_weight is not None
    assert rows.qid is not None
    part = slice(start, stop)
    return Rows(start, np.asarray(rows.X)[part], rows.y[part], rows.sample_weight[part], rows.qid[part])


def open_writer(folder: Path, chunk_rows: int, together: int = 0) -> DatasetWriter:
    """The writer of chunks of so many rows; together: how many of X lie in a shard."""
    folder.mkdir(exist_ok=True)
    shape, chunk_bytes = Shape(N, D, N * D, D, False), chunk_rows * 4 * D
    fields = ("y", "sample_weight", "qid")
    return DatasetWriter(folder, shape, fields, chunk_bytes, "crc32c", shard_bytes=together * (chunk_bytes + 4))


def write_apart(folder: Path, chunk_rows: int, together: int, stops: list[int], order: list[int], seed: int) -> None:
    """A task for the rows between two stops, each in small parts; the tasks in some order, the last one twice."""
    writer, rows, random = open_writer(folder, chunk_rows, together), make_rows(), np.random.default_rng(seed)
    scratch, found = SharedFolder(folder / "spill"), {}
    scratch.folder.mkdir()
    for k in [*order, order[-1]]:
        at = [0, *stops][k]
        part = RangeWriter(writer.arrays, (at, stops[k]), scratch=scratch)
        while not part.is_full:
            after = min(stops[k], at + int(random.integers(1, 150)))
            part.append(cut(rows, at, after))
            at = after
        found[k] = part.finish()
    ranges = [one for _, one in sorted(found.items())]
    assert any(one.fragments["X"] for one in ranges) or all(stop % chunk_rows == 0 for stop in stops[:-1])
    writer.seal(ranges, scratch, map_here)
    shutil.rmtree(scratch.folder)
    writer.finish(META, None, ranges=ranges)


def list_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("chunk_rows", [7, 64, 450, 1000])
@pytest.mark.parametrize("together", [0, 3])
@pytest.mark.parametrize("stops", [[1000], [300, 333, 340, 999, 1000], [500, 1000]])
def test_the_files_are_those_of_one_writer(chunk_rows: int, together: int, stops: list[int], tmp_path: Path) -> None:
    """Whatever the tasks are, and in whatever order they are carried out."""
    writer = open_writer(tmp_path / "one", chunk_rows, together)
    writer.append(make_rows())
    writer.finish(META, None)
    expected = list_files(tmp_path / "one")
    tasks = list(range(len(stops)))
    for k, order in enumerate((tasks, tasks[::-1])):
        write_apart(tmp_path / str(k), chunk_rows, together, stops, order, seed=k)
        assert list_files(tmp_path / str(k)) == expected
    np.testing.assert_array_equal(open_dataset(tmp_path / "0").take(np.arange(N)).X, make_rows().X)


def test_a_folder_that_was_given_up_stays_away(tmp_path: Path) -> None:
    """A task of a pass that was given up may still run on another machine."""
    arrays = open_writer(tmp_path / "one", 100).arrays
    (tmp_path / "one").rename(tmp_path / "other")
    writer = RangeWriter(arrays, (0, N))
    with pytest.raises(InputError, match=r"one/X: no such folder; all workers must share"):
        writer.append(make_rows())
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_an_abandoned_task_adds_nothing_to_a_folder_that_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found the folder, and writes when some of the files of the folder are gone."""
    remove, late = shutil.rmtree, list[int]()
    monkeypatch.setattr(SharedFolder, "check", lambda _: None)

    def remove_slowly(folder: Path, ignore_errors: bool = False) -> None:
        remove(folder / "spill", ignore_errors)
        for task in (lambda: scratch.put("rows", [b"abc"], 3), lambda: RangeWriter(arrays, (0, N)).append(make_rows())):
            with pytest.raises(FileNotFoundError):
                task()
            late.append(1)
        remove(folder, ignore_errors)

    with suppress(KeyError), new_folder(tmp_path / "one") as folder:
        monkeypatch.setattr("streamsvm.system.files.shutil.rmtree", remove_slowly)
        arrays, scratch = open_writer(folder, 100).arrays, SharedFolder(folder / "spill")
        scratch.folder.mkdir()
        raise KeyError
    assert len(late) == 2
    assert os.listdir(tmp_path) == []


def test_a_range_that_is_missing_is_noticed(tmp_path: Path) -> None:
    """Whether whole chunks are missing, or a part of one."""
    for stop, refusal in ((500, "some chunks were not written"), (450, r"50 of 100 values of chunk 4 were written")):
        writer = open_writer(folder := tmp_path / str(stop), 100)
        scratch = SharedFolder(folder / "spill")
        scratch.folder.mkdir()
        part = RangeWriter(writer.arrays, (0, stop), scratch=scratch)
        part.append(cut(make_rows(), 0, stop))
        with pytest.raises(InputError, match=refusal):  # noqa: PT012
            writer.seal(ranges := [part.finish()], scratch, map_here)
            writer.finish(META, None, ranges=ranges)
