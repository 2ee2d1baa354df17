"""The shuffle of `data.spill`, done by several workers through scratch files that they share.

Each row goes to the run that one process would draw for it, since the draws depend on the number of the piece alone. A
worker sets the rows of a stretch aside in segments (data.segments). A run is then read from all segments in order, so
that its rows, and their permutation, are those of one process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.data.chunk_file import CRC_BYTES, Bytes
from streamsvm.data.segments import OF_ITEMS, Column, Limits, Segment, SegmentWriter, hash_text
from streamsvm.data.shared_scratch import ScratchFile, SharedScratch, put_whole, read_ranges, read_whole
from streamsvm.data.spill import RUN_BYTES, SpilledRows
from streamsvm.errors import IntegrityError
from streamsvm.numeric.rows import I64, CsrRows, stack_rows

SEGMENTS_TOGETHER = 64  # of which the limits of all runs of a group are in memory


@dataclass(frozen=True)
class Run:
    """Rows that are permuted together: those with the number `at` in each of the segments begin:end of a listing.

    The listing is a scratch file, so that what tasks are sent does not grow with the number of segments.
    """

    listing: ScratchFile
    begin: int
    end: int
    at: int
    n_rows: int
    n_items: int


class Inventory:
    """What is known of the segments of all stretches, and of their n_runs runs.

    rows, items: of each run. row_bytes: of a row without the items of sparse rows. item_bytes: of an item of theirs.
    """

    def __init__(self, n_runs: int) -> None:
        self.rows, self.items = np.zeros(n_runs, np.int64), np.zeros(n_runs, np.int64)
        self.row_bytes = self.item_bytes = 0
        self._segments = dict[int, list[Segment]]()

    def add(self, number: int, writer: SegmentWriter) -> None:
        """Take note of the segments of a stretch, by its number."""
        self._segments[number] = writer.segments
        self.rows, self.items = self.rows + writer.rows, self.items + writer.items
        self.row_bytes = max(self.row_bytes, writer.row_bytes)
        self.item_bytes = 8 if writer.is_sparse else self.item_bytes

    @property
    def segments(self) -> list[Segment]:
        """All segments, in the order of the stretches."""
        return [segment for _, segments in sorted(self._segments.items()) for segment in segments]


def list_segments(scratch: SharedScratch, name: str, segments: Sequence[Segment]) -> ScratchFile:
    """Write a listing of segments."""
    columns = list(dict.fromkeys(segment.columns for segment in segments))
    about = [[each.name, each.n_runs, each.n_rows, each.n_items, columns.index(each.columns)] for each in segments]
    content = json.dumps([[[asdict(column) for column in each] for each in columns], about]).encode()
    return put_whole(scratch, name, content)


def _read_listing(scratch: SharedScratch, listing: ScratchFile) -> list[Segment]:
    columns, about = json.loads(read_whole(scratch, listing).tobytes())
    known = [tuple(Column(**column) for column in each) for each in columns]
    return [Segment(name, n_runs, rows, items, known[which]) for name, n_runs, rows, items, which in about]


def draw_runs(seed: int, n_runs: int, piece: int, n_rows: int) -> I64:
    """Return the runs of the rows of a piece, whose number counts from 1, as `Spill.add` draws them."""
    if n_runs == 1:
        return np.zeros(n_rows, np.int64)
    return np.random.default_rng((seed, 0, piece)).integers(n_runs, size=(n_rows,))


def count_parts(nbytes: int) -> int:
    """Return over how many new runs a run is scattered that outgrew memory, as `Spill.split_large_runs` does."""
    return nbytes // (2 * RUN_BYTES) + 1


def split_run(run: Run, seed: int, number: int, nbytes: int, writer: SegmentWriter) -> SegmentWriter:
    """Scatter a run over the runs of a writer; `nbytes` are its own, and `number` is its place among all runs."""
    step, at = max(1, run.n_rows * RUN_BYTES // (4 * nbytes)), 0
    drawn = np.concatenate(
        [
            np.random.default_rng((seed, 1, number, begin)).integers(writer.n_runs, size=min(step, run.n_rows - begin))
            for begin in range(0, run.n_rows, step)
        ]
    )
    segments = _read_listing(writer.scratch, run.listing)[run.begin : run.end]
    (limits,) = _read_limits(writer.scratch, segments, [run])
    for part in _read_parts(writer.scratch, segments, run, limits):  # the run may be larger than the memory
        writer.add(part.X, part.vectors, drawn[at : at + part.n_rows])
        at += part.n_rows
    writer.flush()
    writer.wait()
    return writer


def regroup_runs(runs: Sequence[Run], writer: SegmentWriter) -> SegmentWriter:
    """Write the rows of runs, which follow one another in the same segments, to segments of their own."""
    segments = _read_listing(writer.scratch, runs[0].listing)[runs[0].begin : runs[0].end]
    for at in range(0, len(segments), SEGMENTS_TOGETHER):
        _scatter_slices(segments[at : at + SEGMENTS_TOGETHER], runs, writer)
    writer.flush()
    writer.wait()
    return writer


def _scatter_slices(segments: Sequence[Segment], runs: Sequence[Run], writer: SegmentWriter) -> None:
    """Add the rows of runs in some segments to a writer, run by run. Of each segment one range is read."""
    by_segment = list(zip(*_read_limits(writer.scratch, segments, runs), strict=True))
    parts = [
        [segment.find_part(run.at, *each) for run, each in zip(runs, limits, strict=True)]
        for segment, limits in zip(segments, by_segment, strict=True)
    ]
    ranges = [(each[0][0], max(each[0][0], each[-1][1])) for each in parts]  # limits that are damaged may descend
    wanted = [(segment.name, segment.n_bytes, limits) for segment, limits in zip(segments, ranges, strict=True)]
    with closing(read_ranges(writer.scratch, wanted)) as slices:
        for segment, limits, places, (name, content) in zip(segments, by_segment, parts, slices, strict=True):
            for number, (run, each, (begin, end)) in enumerate(zip(runs, limits, places, strict=True)):
                mine = content[begin - places[0][0] : end - places[0][0]].copy()  # a copy is aligned
                part = _check_part(segment, run, each, name, mine)
                writer.add(part.X, part.vectors, np.full(part.n_rows, number))


def read_runs(scratch: SharedScratch, runs: Sequence[Run], texts: Mapping[str, int]) -> Iterator[SpilledRows]:
    """Yield the rows of runs. texts: if labels are texts, the code of each among all."""
    listings = {listing: _read_listing(scratch, listing) for listing in {run.listing for run in runs}}
    for (listing, begin, end), same in groupby(runs, key=lambda run: (run.listing, run.begin, run.end)):
        segments, together = listings[listing][begin:end], list(same)
        for run, limits in zip(together, _read_limits(scratch, segments, together), strict=True):
            yield _read_run(scratch, segments, run, limits, texts)


def _read_run(
    scratch: SharedScratch, segments: Sequence[Segment], run: Run, limits: Sequence[Limits], texts: Mapping[str, int]
) -> SpilledRows:
    parts = [part for part in _read_parts(scratch, segments, run, limits) if part.n_rows]
    vectors = {name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors}
    if texts:
        vectors["label"] = _number_texts(vectors["label"], texts)
    return SpilledRows(stack_rows([part.X for part in parts]), vectors)


def _read_limits(scratch: SharedScratch, segments: Sequence[Segment], runs: Sequence[Run]) -> list[list[Limits]]:
    """Return the limits of the parts of runs, by run and segment."""
    first, stop = runs[0].at, runs[-1].at + 2
    wanted = [(segment.name, segment.n_bytes, (16 * first, 16 * stop)) for segment in segments]
    found: list[list[Limits]] = [[] for _ in runs]
    for _, content in read_ranges(scratch, wanted):
        limits = content.view(np.int64).reshape(-1, 2).tolist()
        for run, mine in zip(runs, found, strict=True):
            begin, end = limits[run.at - first : run.at - first + 2]
            mine.append(((begin[0], begin[1]), (end[0], end[1])))
    return found


def _read_parts(
    scratch: SharedScratch, segments: Sequence[Segment], run: Run, limits: Sequence[Limits]
) -> Iterator[SpilledRows]:
    """Yield the rows of a run by segment. Raises IntegrityError, which names the segment, if they are damaged."""
    places = zip(segments, limits, strict=True)
    wanted = [(segment.name, segment.n_bytes, segment.find_part(run.at, *each)) for segment, each in places]
    with closing(read_ranges(scratch, wanted)) as parts:
        for segment, each, (name, content) in zip(segments, limits, parts, strict=True):
            yield _check_part(segment, run, each, name, content)


def _check_part(segment: Segment, run: Run, limits: Limits, name: str, content: Bytes) -> SpilledRows:
    """Return the rows of a part. Raises IntegrityError, which names the segment, if they are damaged."""
    payload, stored = content[:-CRC_BYTES], content[-CRC_BYTES:].tobytes()
    checksum = google_crc32c.extend(segment.start_checksum(run.at), payload)
    if checksum.to_bytes(CRC_BYTES, "little") != stored:
        raise IntegrityError(f"{name}: the rows of run {run.at} are damaged (their checksum is wrong)")
    return _unpack(segment.columns, payload, limits)


def _unpack(columns: Sequence[Column], content: Bytes, limits: Limits) -> SpilledRows:
    """Return the rows of a part."""
    arrays, at = dict[str, Any](), 0
    for column in columns:
        n_bytes = column.count(limits) * column.n_bytes
        values = content[at : at + n_bytes].view(column.dtype)
        arrays[column.name] = values.reshape(-1, column.width) if column.name == "X" else values
        at += n_bytes
    if "X" in arrays:
        return SpilledRows(arrays.pop("X"), arrays)
    indptr = np.concatenate(([0], np.cumsum(arrays.pop("counts")))).astype(np.int64)
    data, indices = (arrays.pop(name) for name in OF_ITEMS)
    return SpilledRows(CsrRows(data, indices, indptr, int(indices.max(initial=-1)) + 1), arrays)


def _number_texts(hashes: npt.NDArray[np.uint64], texts: Mapping[str, int]) -> npt.NDArray[np.float64]:
    """Return the code of each label among all."""
    known = np.array([hash_text(text) for text in texts], np.uint64)
    order = np.argsort(known)
    codes = np.array(list(texts.values()), np.float64)[order]
    return codes[np.searchsorted(known[order], hashes)]
