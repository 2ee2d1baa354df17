"""The shuffle of `data.spill`, done by several workers through a folder that they share.

Each row goes to the run that one process would draw for it, since the draws depend on the number of the piece alone. A
worker sets the rows of a stretch aside in segments: files with its rows sorted by run, and where each run begins. A run
is then read from all segments in order, so that its rows, and their permutation, are those of one process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.chunk_file import open_to_rewrite
from streamsvm.data.spill import RUN_BYTES, SpilledRows
from streamsvm.files import write_atomically
from streamsvm.numeric.permute import permute_rows
from streamsvm.numeric.rows import I64, CsrRows, Matrix, stack_rows

SEGMENT_BYTES = 64 << 20  # of rows that are sorted by run together
LIMITS, ARRAYS = "limits", "arrays.json"


@dataclass(frozen=True)
class Run:
    """Rows that are permuted together: those with the number `at` in each of the segments, in order."""

    segments: tuple[str, ...]
    at: int
    n_rows: int
    n_items: int


@dataclass
class SegmentWriter:
    """Sets rows aside in a folder, in segments whose names begin with `name`.

    n_runs: of a segment. counts_items: whether the non-zeros of dense rows are counted. segments: those that are
    written, by name, with their rows and items. rows, items: by run, of all of them. row_bytes: of a row without the
    items of sparse rows.
    """

    folder: Path
    name: str
    n_runs: int
    counts_items: bool = False

    def __post_init__(self) -> None:
        self.segments: dict[str, tuple[int, int]] = {}
        self.row_bytes, self.is_sparse = 0, False
        self.rows, self.items = np.zeros(self.n_runs, np.int64), np.zeros(self.n_runs, np.int64)
        self._waiting: list[tuple[Matrix, dict[str, Any], I64]] = []
        self._nbytes = 0

    def add(self, X: Matrix, vectors: Mapping[str, npt.NDArray[Any]], run: I64) -> None:
        """Set rows aside, row i in the run run[i]."""
        self.is_sparse = isinstance(X, CsrRows)
        self.row_bytes = sum(each.itemsize for each in vectors.values()) + (8 if self.is_sparse else 4 * X.shape[1])
        self._waiting.append((X, dict(vectors), run))
        self._nbytes += X.nbytes
        if self._nbytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as a segment."""
        if not self._waiting:
            return
        X = stack_rows([X for X, _, _ in self._waiting])
        run = np.concatenate([run for _, _, run in self._waiting])
        vectors = {n: np.concatenate([each[n] for _, each, _ in self._waiting]) for n in self._waiting[0][1]}
        self._waiting, self._nbytes = [], 0
        order = np.argsort(run, kind="stable")
        row_limits = np.searchsorted(run[order], np.arange(self.n_runs + 1))
        X = permute_rows(X, order)
        arrays = {name: values[order] for name, values in vectors.items()}
        item_limits = row_limits
        if isinstance(X, CsrRows):
            item_limits = X.indptr[row_limits]
            arrays |= {"data": X.data, "indices": X.indices, "counts": np.diff(X.indptr)}
            items = np.diff(item_limits)
        else:
            arrays["X"] = X
            counts = np.count_nonzero(X, axis=1) if self.counts_items else np.zeros(len(X), np.int64)
            items = np.diff(np.concatenate(([0], np.cumsum(counts)))[row_limits])
        self.rows, self.items = self.rows + np.diff(row_limits), self.items + items
        segment = f"{self.name}-{len(self.segments)}"
        for name, values in {**arrays, LIMITS: np.stack((row_limits, item_limits))}.items():
            with open_to_rewrite(self.folder / f"{segment}.{name}.npy") as file:
                np.save(file, values, allow_pickle=False)
        self.segments[segment] = (len(run), int(items.sum()))
        note_arrays(self.folder, list(arrays))


def draw_runs(seed: int, n_runs: int, piece: int, n_rows: int) -> I64:
    """Return the runs of the rows of a piece, whose number counts from 1, as `Spill.add` draws them."""
    if n_runs == 1:
        return np.zeros(n_rows, np.int64)
    return np.random.default_rng((seed, 0, piece)).integers(n_runs, size=(n_rows,))


def count_parts(nbytes: int) -> int:
    """Return over how many new runs a run is scattered that outgrew memory, as `Spill.split_large_runs` does."""
    return nbytes // (2 * RUN_BYTES) + 1


def split_run(
    folder: Path, run: Run, seed: int, number: int, nbytes: int, writer: SegmentWriter, texts: Mapping[str, int]
) -> SegmentWriter:
    """Scatter a run over the runs of a writer; `nbytes` are its own, and `number` is its place among all runs."""
    step, at = max(1, run.n_rows * RUN_BYTES // (4 * nbytes)), 0
    drawn = np.concatenate(
        [
            np.random.default_rng((seed, 1, number, begin)).integers(writer.n_runs, size=min(step, run.n_rows - begin))
            for begin in range(0, run.n_rows, step)
        ]
    )
    for segment in run.segments:  # the run may be larger than the memory
        part = _read_part(folder, segment, run.at, texts)
        writer.add(part.X, part.vectors, drawn[at : at + part.n_rows])
        at += part.n_rows
    writer.flush()
    if texts:
        note_texts(folder, writer.name, texts)
    return writer


def read_run(folder: Path, run: Run, texts: Mapping[str, int]) -> SpilledRows:
    """Return the rows of a run. texts: if labels are texts, the code of each among all."""
    parts = [_read_part(folder, segment, run.at, texts) for segment in run.segments]
    parts = [part for part in parts if part.n_rows] or parts[:1]
    vectors = {name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors}
    return SpilledRows(stack_rows([part.X for part in parts]), vectors)


def _read_part(folder: Path, segment: str, at: int, texts: Mapping[str, int]) -> SpilledRows:
    files = {file.name.split(".")[1]: file for file in _list_arrays(folder, segment)}
    (row, row_stop), (item, item_stop) = np.load(files.pop(LIMITS))[:, at : at + 2].tolist()
    vectors = {name: _load(file, row, row_stop) for name, file in files.items() if name not in ("data", "indices")}
    if texts:
        vectors["label"] = _number_texts(folder, segment, texts)[vectors["label"].astype(np.int64)]
    if "X" in vectors:
        return SpilledRows(vectors.pop("X"), vectors)
    indptr = np.concatenate(([0], np.cumsum(vectors.pop("counts")))).astype(np.int64)
    data, indices = (_load(files[name], item, item_stop) for name in ("data", "indices"))
    return SpilledRows(CsrRows(data, indices, indptr, int(indices.max(initial=-1)) + 1), vectors)


def _list_arrays(folder: Path, segment: str) -> Iterator[Path]:
    names = json.loads((folder / ARRAYS).read_bytes())
    return (folder / f"{segment}.{name}.npy" for name in (*names, LIMITS))


def note_arrays(folder: Path, names: Sequence[str]) -> None:
    """Write down which arrays all segments have, once for all."""
    if not (folder / ARRAYS).exists():
        write_atomically(folder / ARRAYS, json.dumps(list(names)).encode())


def note_texts(folder: Path, stretch: str, texts: Mapping[str, int]) -> None:
    """Write down the codes that labels of text have in a stretch."""
    (folder / f"{stretch}.texts.json").write_text(json.dumps(list(texts)))


def _number_texts(folder: Path, segment: str, texts: Mapping[str, int]) -> npt.NDArray[np.float64]:
    known = json.loads((folder / f"{segment.rsplit('-', 1)[0]}.texts.json").read_bytes())
    return np.array([texts[text] for text in known], np.float64)


def _load(file: Path, start: int, stop: int) -> npt.NDArray[Any]:
    """Return a part of an array."""
    with file.open("rb") as opened:
        version = np.lib.format.read_magic(opened)
        assert version == (1, 0)
        shape, _, dtype = np.lib.format.read_array_header_1_0(opened)
        width = int(np.prod(shape[1:], dtype=np.int64))
        opened.seek(start * width * dtype.itemsize, 1)
        return np.fromfile(opened, dtype, (stop - start) * width).reshape(stop - start, *shape[1:])
