"""The second half of an ingest on workers: the rows that were set aside are written by all of them, run by run."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.ingest import describe_rows, find_shape
from streamsvm.data.placed_array import PlacedArray
from streamsvm.data.placed_rows import Piece, RangeWritten, Stored, find_chunk_starts, note_written, seal
from streamsvm.data.segments import Segment, SegmentWriter
from streamsvm.data.shared_ingest import Plan, Source, write_range
from streamsvm.data.shared_runs import Inventory, Run, count_parts, list_segments, regroup_runs, split_run
from streamsvm.data.survey import Survey
from streamsvm.data.upload import Upload
from streamsvm.data.writer import DatasetWriter
from streamsvm.engines.errands import carry_out

if TYPE_CHECKING:
    from distributed import Client

MOST_SLICES = 256  # into which a segment is cut; more would have less than 256 KiB each
CHUNKS_TOGETHER = 4  # that one worker writes; of the first and the last, others write a part


def _list_runs(client: Client, source: Source, inventory: Inventory) -> list[Run]:
    """Return the runs in the order in which they are written. Those that outgrew memory are split."""
    segments = inventory.segments
    listing = list_segments(source.scratch, "segments", segments)
    if source.seed is None:
        return [Run(listing, k, k + 1, 0, each.n_rows, each.n_items) for k, each in enumerate(segments)]
    sizes = zip(inventory.rows.tolist(), inventory.items.tolist(), strict=True)
    runs = [Run(listing, 0, len(segments), at, *size) for at, size in enumerate(sizes)]
    if len(runs) > MOST_SLICES:
        runs = _regroup(client, source, runs)
    begin = 0
    while begin < len(runs):
        tasks = list[tuple[Any, ...]]()
        for number in range(begin, len(runs)):
            run = runs[number]
            nbytes = run.n_rows * inventory.row_bytes + run.n_items * inventory.item_bytes
            if count_parts(nbytes) > 1 and run.n_rows > 1:
                counts_items = source.options.layout == "sparse"
                writer = SegmentWriter(source.scratch, f"split{number}", count_parts(nbytes), counts_items)
                tasks.append((run, source.seed, number, nbytes, writer))
                runs[number] = replace(run, n_rows=0, n_items=0)
        begin = len(runs)
        runs += _list_parts(source, list(carry_out(client, "splitting large runs", split_run, tasks)), begin)
    return runs


def _regroup(client: Client, source: Source, runs: list[Run]) -> list[Run]:
    """Let workers write the rows of some runs side by side in segments of their own, and return the runs there.

    A run is a slice of each segment, so that R runs in S segments are R S slices. Of sqrt(R) groups of runs each takes
    one larger slice of each segment, S sqrt(R) in all, and a run is then a slice of the segments of its group: R^1.5.
    """
    step = isqrt(len(runs) - 1) + 1
    groups = [runs[at : at + step] for at in range(0, len(runs), step)]
    counts_items = source.options.layout == "sparse"
    writers = [SegmentWriter(source.scratch, f"group{k}", len(each), counts_items) for k, each in enumerate(groups)]
    written = list(carry_out(client, "shuffling the rows", regroup_runs, list(zip(groups, writers, strict=True))))
    return _list_parts(source, written, 0)


def _list_parts(source: Source, written: list[SegmentWriter], number: int) -> list[Run]:
    """Return the runs into which others were split, of which the first has this number."""
    segments, runs = list[Segment](), list[Run]()
    if not written:
        return runs
    listing = list_segments(source.scratch, f"segments-{number}", [each for one in written for each in one.segments])
    for one in written:
        sizes, begin = zip(one.rows.tolist(), one.items.tolist(), strict=True), len(segments)
        segments += one.segments
        runs += [Run(listing, begin, len(segments), at, *size) for at, size in enumerate(sizes)]
    return runs


def write_on_workers(
    client: Client, source: Source, survey: Survey, inventory: Inventory, place: Path | Upload
) -> None:
    """Let workers write all rows, and write the manifest."""
    options, name = source.options, source.name
    scaling = None
    if options.scale != "none":
        assert survey.statistics is not None
        scaling = survey.statistics.scaling(options.scale, survey.n_rows, survey.anchor)
    shape, fields = find_shape(survey, source.is_dense, scaling, name, options)
    runs = _list_runs(client, source, inventory)
    writer = DatasetWriter(place, shape, fields, options.chunk_bytes, options.codec, shard_bytes=options.shard_bytes)
    known = replace(survey, statistics=None, feature_names=None, encoding=None)  # what tasks need
    plan = Plan(source, known, shape, scaling, writer.arrays)
    ranges = list(carry_out(client, "writing the dataset", write_range, _share_out(plan, runs)))
    stored: Stored = {each: {} for each in plan.arrays}
    for one in ranges:
        for each, chunks in one.stored.items():
            stored[each] |= chunks
    _seal_shared(client, plan, ranges, stored)
    _join(client, plan, stored)
    starts = find_chunk_starts(ranges, plan.arrays["X/data"].chunks[0]) if shape.sparse else None
    note_written(writer, stored, starts)
    counts = sum((one.class_counts for one in ranges), np.zeros(len(survey.list_classes()), np.int64))
    writer.finish(describe_rows(source.seed, survey, counts, name, options), scaling)


def _seal_shared(client: Client, plan: Plan, ranges: list[RangeWritten], stored: Stored) -> None:
    """Let workers put the chunks together that several ranges share."""
    shared = dict[tuple[str, int], list[Piece]]()
    for one in ranges:
        for name, pieces in one.shared.items():
            for index, piece in pieces.items():
                shared.setdefault((name, index), []).append(piece)
    tasks = [(plan.arrays[name], plan.source.scratch, index, pieces) for (name, index), pieces in shared.items()]
    for (name, index), chunk in zip(shared, carry_out(client, "writing the dataset", seal, tasks), strict=True):
        stored[name][index] = chunk


def _join(client: Client, plan: Plan, stored: Stored) -> None:
    """Let workers join chunks to shards where they lie apart."""
    tasks = list[tuple[PlacedArray, int, list[int]]]()
    for name, array in plan.arrays.items():
        checksums = [chunk.checksum for _, chunk in sorted(stored[name].items())]
        per_shard = array.shards.chunks_per_shard
        if array.needs_joining:
            parts = [checksums[at : at + per_shard] for at in range(0, len(checksums), per_shard)]
            tasks += [(array, shard, part) for shard, part in enumerate(parts)]
    for _ in carry_out(client, "joining chunks to shards", PlacedArray.join, tasks):
        pass


def _share_out(plan: Plan, runs: list[Run]) -> list[tuple[Any, ...]]:
    """Return the runs that each task writes, in order, with their numbers, and the first row and item."""
    tasks, shape = list[tuple[Any, ...]](), plan.shape
    wanted = CHUNKS_TOGETHER * (plan.source.options.chunk_bytes or shape.chunk_bytes())
    nbytes, row, item = wanted, 0, 0
    for number, run in enumerate(runs):
        if not run.n_rows:
            continue
        if nbytes >= wanted:
            tasks.append((plan, [], row, item))
            nbytes = 0
        tasks[-1][1].append((number, run))
        nbytes += 8 * run.n_items if shape.sparse else 4 * shape.n_features * run.n_rows
        row, item = row + run.n_rows, item + run.n_items
    return tasks
