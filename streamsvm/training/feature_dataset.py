"""A dataset of features is written in one pass: each task maps the rows of its group of chunks and writes them.

The features are dense and uncompressed, so each row has a known place in the files, and tasks can write side by side
(data.dense_chunks). The files have the same bytes as if a single task had written them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import interrupts
from streamsvm.data.dense_chunks import Checksums, DenseChunks, RowBuffer
from streamsvm.data.groups import plan_groups
from streamsvm.data.manifest import ENCODING, FEATURES, LABEL_COLUMN, QID_COLUMN
from streamsvm.data.source import RowSource
from streamsvm.data.writer import DatasetWriter, Shape
from streamsvm.engines.protocol import Engine
from streamsvm.numeric.feature_maps import FeatureMap, Features, KernelMap, PolynomialMap, measure_diagonal, split_rows
from streamsvm.numeric.rows import I64, Rows
from streamsvm.requests import Scan, Take


@dataclass
class Written:
    """What tasks have written: the totals of the pass.

    buffer holds the rows of a task that are not yet written; it is None in joined totals, since no rows are left then.
    checksums are those of the complete chunks, by the number of the chunk. traces has a pair of sums for each part of
    the rows, in order: k(x, x) - |Phi(x)|^2, which is what the map leaves of trace K, and k(x, x), which is trace K.
    """

    buffer: RowBuffer | None
    checksums: dict[int, Checksums] = field(default_factory=dict)
    traces: list[tuple[float, float]] = field(default_factory=list)


def write_mapped(
    engine: Engine, found: FeatureMap, folder: Path, chunk_bytes: int | None, about: Mapping[str, Any]
) -> None:
    """Write the features Phi(x), labels, weights and query ids of all rows, and the map, into `folder`.

    `about` is added to the manifest. chunk_bytes is the size of a chunk of the new dataset (None: its size decides).
    """
    source = engine.source
    n, d = source.n_rows, found.n_features
    first = engine.take(Take(np.zeros(1, np.int64)))
    n_labels = len(source.classes) if source.has_label_sets and source.classes is not None else 0
    writer = DatasetWriter(folder, Shape(n, d, n * d, d, False, n_labels), tuple(first.vectors), chunk_bytes, "crc32c")
    chunks = writer.share_out()
    stops = np.array([source.chunk_starts[group[-1] + 1] for group in plan_groups(source)], np.int64)
    shared = (found.kernel, found.rows, found.matrix) if isinstance(found, KernelMap) else (found,)
    written: Written = engine.scan(Scan(partial(_start, chunks, stops), _add_mapped, _join, shared))
    checksums = []
    for index in range(chunks.n_chunks):
        checksums.append(written.checksums.get(index) or chunks.seal(index))
        interrupts.check()
    writer.note_chunks(checksums)
    left, whole = np.cumsum(np.reshape([(0.0, 0.0), *written.traces], (-1, 2)), axis=0)[-1].tolist()
    described, arrays = Features(found, source.scaling, source.feature_names).pack()
    error = left / whole if whole > 0 else None
    meta = {**_describe_labels(source), "features": described, "trace_error": error, **about}
    writer.finish(meta, None, {FEATURES + name: values for name, values in arrays.items()})


def _describe_labels(source: RowSource) -> dict[str, Any]:
    counts = source.class_counts
    encoding = source.encoding
    return {
        **({} if encoding is None else {ENCODING: encoding.as_json()}),
        **({} if source.label_column is None else {LABEL_COLUMN: source.label_column}),
        **({} if source.qid_column is None else {QID_COLUMN: source.qid_column}),
        "classes": None if source.classes is None else np.asarray(source.classes).tolist(),
        "class_counts": None if counts is None else np.asarray(counts).tolist(),
        "feature_names": None,
        "shuffle": None,
        "source": f"features of {source.name}",
    }


def _start(chunks: DenseChunks, stops: I64) -> Written:
    return Written(RowBuffer(chunks, stops))


def _add_mapped(written: Written, rows: Rows, *parts: Any) -> None:
    """Map the rows of a tile, a few at a time, and write them; `parts` are the parts of the map that a task is sent."""
    found: Any = parts[0] if isinstance(parts[0], PolynomialMap) else KernelMap(*parts)
    features, buffer = Features(found), written.buffer
    assert buffer is not None
    for part in split_rows(found, rows.n_rows):
        mine = rows.slice(part)
        mapped = features.apply(mine.X)
        buffer.append(Rows(mine.start, mapped, **mine.vectors))
        if isinstance(found, KernelMap):
            diagonal = measure_diagonal(found.kernel, mine.X)
            left = float(np.sum(diagonal - np.einsum("ij,ij->i", mapped, mapped, dtype=np.float64)))
            written.traces.append((left, float(np.sum(diagonal))))
    written.checksums = buffer.checksums


def _join(left: Written, right: Written) -> Written:
    return Written(None, left.checksums | right.checksums, left.traces + right.traces)
