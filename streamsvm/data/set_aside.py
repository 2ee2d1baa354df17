"""Stretches whose rows were set aside, and what is recorded of each, so that a killed ingest goes on from there."""

from __future__ import annotations

import io
import json
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any

import google_crc32c
import numpy as np

from streamsvm.data.chunk_file import CRC_BYTES, Bytes
from streamsvm.data.segments import Column, Segment, SegmentWriter
from streamsvm.data.shared_scratch import SharedScratch, read_ranges
from streamsvm.data.survey import Survey
from streamsvm.errors import InputError, IntegrityError
from streamsvm.files import pack_arrays, unpack_arrays
from streamsvm.numeric.scaling import FeatureStatistics, StoredFeatures

COUNTS = ("n_rows", "n_features", "n_items", "longest_row")  # of a survey
STATISTICS = tuple(each.name for each in fields(FeatureStatistics))


@dataclass(frozen=True)
class SetAside:
    """A stretch whose rows were set aside. statistics: of each of its pieces, if features are scaled."""

    survey: Survey
    segments: SegmentWriter
    n_pieces: int
    statistics: tuple[StoredFeatures, ...]


def record_set_aside(scratch: SharedScratch, name: str, found: SetAside) -> None:
    """Record what is known of a stretch whose rows were set aside."""
    survey, writer = found.survey, found.segments
    columns = list(dict.fromkeys(segment.columns for segment in writer.segments))
    about = {
        "counts": {each: getattr(survey, each) for each in COUNTS},
        "fields": sorted(survey.fields),
        "texts": list(survey.texts),
        "feature_names": survey.feature_names,
        "n_pieces": found.n_pieces,
        "columns": [[[each.name, each.dtype, each.width] for each in group] for group in columns],
        "segments": [[each.name, each.n_rows, each.n_items, columns.index(each.columns)] for each in writer.segments],
        "writer": [writer.name, writer.n_runs, writer.counts_items, writer.row_bytes, writer.is_sparse],
    }
    arrays = {f"features-{k}": features for k, (features, _) in enumerate(found.statistics)}
    arrays |= {f"{each}-{k}": getattr(one, each) for k, (_, one) in enumerate(found.statistics) for each in STATISTICS}
    arrays |= {"labels": np.array(sorted(survey.labels)), "rows": writer.rows, "items": writer.items}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    scratch.keep(_name_record(name), pack_arrays(arrays))


def find_set_aside(scratch: SharedScratch, name: str, survey: Survey) -> SetAside | None:
    """Return what is recorded of a stretch, if its segments are all there and undamaged; otherwise None.

    survey: of no rows, which takes note of those of the stretch.
    """
    content = scratch.find(_name_record(name))
    if content is None:
        return None
    try:
        arrays = unpack_arrays(io.BytesIO(content), _name_record(name))
    except InputError:  # a record that is damaged is as good as none
        return None
    found = _unpack(scratch, arrays, survey)
    return found if all(_is_whole(scratch, segment) for segment in found.segments.segments) else None


def _unpack(scratch: SharedScratch, arrays: dict[str, Any], survey: Survey) -> SetAside:
    about = json.loads(arrays["about"].tobytes())
    for name, value in about["counts"].items():
        setattr(survey, name, value)
    survey.fields, survey.labels = set(about["fields"]), set(arrays["labels"].tolist())
    survey.texts = {text: code for code, text in enumerate(about["texts"])}
    survey.feature_names = None if about["feature_names"] is None else tuple(about["feature_names"])
    name, n_runs, counts_items, row_bytes, is_sparse = about["writer"]
    writer = SegmentWriter(scratch, name, n_runs, counts_items)
    writer.row_bytes, writer.is_sparse, writer.rows, writer.items = (
        row_bytes,
        is_sparse,
        arrays["rows"],
        arrays["items"],
    )
    columns = [tuple(Column(*each) for each in group) for group in about["columns"]]
    writer.segments = [Segment(each, n_runs, rows, items, columns[at]) for each, rows, items, at in about["segments"]]
    statistics = tuple(
        StoredFeatures(arrays[f"features-{k}"], FeatureStatistics(*(arrays[f"{each}-{k}"] for each in STATISTICS)))
        for k in range(sum(each.startswith("features-") for each in arrays))
    )
    return SetAside(survey, writer, about["n_pieces"], statistics)


def _is_whole(scratch: SharedScratch, segment: Segment) -> bool:
    """Tell whether a segment is there, and the part of each run has its checksum."""
    try:
        with closing(read_ranges(scratch, [(segment.name, segment.n_bytes, (0, segment.n_bytes))])) as contents:
            _, content = next(contents)
    except IntegrityError:
        return False
    rows, items = content[: 16 * (segment.n_runs + 1)].view(np.int64).reshape(-1, 2).T.tolist()
    limits = list(zip(rows, items, strict=True))
    return rows[-1] == segment.n_rows and all(
        _is_part_whole(segment, at, content[slice(*segment.find_part(at, limits[at], limits[at + 1]))])
        for at in range(segment.n_runs)
    )


def _is_part_whole(segment: Segment, at: int, part: Bytes) -> bool:
    checksum: int = google_crc32c.extend(segment.start_checksum(at), part[:-CRC_BYTES])
    return part[-CRC_BYTES:].tobytes() == checksum.to_bytes(CRC_BYTES, "little")


def _name_record(name: str) -> str:
    return f"set-aside-{name}"
