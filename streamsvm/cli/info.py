"""The output of `ingest`, `info`, `features` and `verify`: facts for JSON, and as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm import interrupts
from streamsvm.data.csr_layout import CsrLayout
from streamsvm.data.dataset import Dataset
from streamsvm.data.trimmed import TrimmedDataset
from streamsvm.errors import IntegrityError, say_count
from streamsvm.machine import format_bytes
from streamsvm.numeric.encoding import Encoding, read_encoding
from streamsvm.numeric.label_sets import sum_labels

if TYPE_CHECKING:
    from pathlib import Path

    from streamsvm.training.features import MadeFeatures

MOST_LISTED_CLASSES = 10
MOST_LISTED_COLUMNS = 5


def format_ingested(destination: str | Path, dataset: Dataset, seconds: float) -> str:
    """Return a line about a dataset that was written in so many seconds."""
    kind = "sparse" if dataset.is_sparse else "dense"
    encoded = "" if dataset.encoding is None else f"\n  encoded   {tell_encoding(dataset.encoding)}"
    return (
        f"{destination}: {say_count(dataset.n_rows, 'row')} of {say_count(dataset.n_features, 'feature')}, {kind}, "
        f"{format_bytes(dataset.stored_bytes)} in {say_count(dataset.n_chunks, 'chunk')}, {seconds:.1f} s"
        f"{encoded}"
    )


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return the shape, classes, density, chunks, bytes, scaling and origin of a dataset."""
    sparse_items = dataset.layout.data.length if isinstance(dataset.layout, CsrLayout) else None
    items = dataset.meta.get("n_items", sparse_items)  # None if it is not known without reading all rows
    classes = None
    if dataset.classes is not None and dataset.class_counts is not None:
        counts = zip(dataset.classes.tolist(), dataset.class_counts.tolist(), strict=True)
        classes = {str(label): count for label, count in counts}
    return {
        "path": dataset.path,
        "n_rows": dataset.n_rows,
        "deleted_rows": len(dataset.deleted) if isinstance(dataset, TrimmedDataset) else 0,
        "n_features": dataset.n_features,
        "sparse": dataset.is_sparse,
        "density": None if items is None else items / (dataset.n_rows * dataset.n_features),
        "classes": classes,
        "vectors": sorted(dataset.vectors),
        "n_chunks": dataset.n_chunks,
        "largest_chunk_rows": int(np.diff(dataset.chunk_starts).max()),
        "bytes": dataset.stored_bytes,
        "dtype": dataset.dtype,
        "codec": dataset.meta.get("codec"),
        "shards": any("shards" in entry for entry in (dataset.meta.get("arrays") or {}).values()),
        "scaling": dataset.scaling.kind if dataset.scaling else "none",
        "shuffle": dataset.meta.get("shuffle"),
        "source": dataset.meta.get("source"),
        "encoding": None if dataset.encoding is None else dataset.encoding.as_json(),
        "map": None if dataset.features is None else dataset.meta["features"]["map"],
        "manifest": dataset.meta.get("arrays") is not None,
        "fingerprint": dataset.fingerprint,
    }


def tell_encoding(encoding: Encoding) -> str:
    """Return in words how the columns of a table became features."""
    parts = []
    for kind, noun in (("number", "number"), ("date", "date"), ("one_hot", ""), ("hash", "")):
        columns = [column for column in encoding.columns if column.kind == kind]
        if columns and noun:
            parts.append(say_count(len(columns), noun))
        elif columns:
            names = ", ".join(show_text(column.name) for column in columns[:MOST_LISTED_COLUMNS])
            names += f" and {len(columns) - MOST_LISTED_COLUMNS} more" if len(columns) > MOST_LISTED_COLUMNS else ""
            n_categories = sum(len(column.categories) for column in columns)
            into = (
                say_count(n_categories, "category") if kind == "one_hot" else f"{encoding.n_hashed:,} hashed features"
            )
            parts.append(f"{into} of {names}")
    if encoding.missing is not None:
        n_indicators = sum(column.indicator for column in encoding.columns)
        more = f" and {say_count(n_indicators, 'indicator')}" if n_indicators else ""
        parts.append(f"missing values: {'zero' if encoding.missing == 'indicator' else encoding.missing}{more}")
    return "; ".join(parts) + ("" if encoding.index is None else f"; rows named by {show_text(encoding.index)}")


def verify(dataset: Dataset) -> dict[str, Any]:
    """Read all rows as a training would, and their groups, and compare them with the manifest.

    IntegrityError names what is damaged or differs. A dataset without a manifest can only be read.
    """
    dataset = dataset.read_groups()
    n_rows, counts = 0, np.zeros(0 if dataset.classes is None else len(dataset.classes), np.int64)
    for index in range(dataset.n_chunks):
        for rows in dataset.tiles(index):
            n_rows += rows.n_rows
            if rows.y is not None:
                counts += np.bincount(rows.y, minlength=len(counts))
            if rows.label_sets is not None:
                counts += sum_labels(rows.label_sets, len(counts), None).astype(np.int64)
        interrupts.check()
    dataset.check_parts()
    if dataset.class_counts is not None and not np.array_equal(counts, dataset.class_counts):
        raise IntegrityError(f"{dataset.path}/zarr.json: 'class_counts' differ from the counts of the labels")
    return {"verified_rows": n_rows, "verified": dataset.meta.get("arrays") is not None}


def show_text(text: str) -> str:
    """Return a text from data for a terminal: characters that could move the cursor or begin a line are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def format_description(about: dict[str, Any]) -> str:
    """Return the facts of `describe` as lines of text."""
    layout = "sparse" if about["sparse"] else "dense"
    layout += "" if about["dtype"] == "float32" else f", stored as {about['dtype']}"
    density = "" if about["density"] is None else f", {about['density']:.2%} not zero"
    codec = f", codec {about['codec']}" if about["codec"] else ""
    codec += ", in shards" if about["shards"] else ""
    size = f"{say_count(about['largest_chunk_rows'], 'row')} each, {format_bytes(about['bytes'])} in all"
    deleted = f"; {about['deleted_rows']:,} more were deleted, and stay in its files" if about["deleted_rows"] else ""
    lines = [
        show_text(about["path"]),
        f"  rows      {about['n_rows']:,}{deleted}",
        f"  features  {about['n_features']:,}, {layout}{density}",
        f"  chunks    {about['n_chunks']}, at most {size}{codec}",
        f"  scaling   {about['scaling']}",
    ]
    if about["encoding"] is not None:
        lines.append(f"  encoded   {tell_encoding(read_encoding(about['encoding']))}")
    if about["map"] is not None:
        lines.append(f"  made by   a {about['map']} map: {show_text(str(about['source']))}")
    if about["classes"] is not None:
        shown = [(show_text(label), count) for label, count in about["classes"].items()][:MOST_LISTED_CLASSES]
        n_more = len(about["classes"]) - MOST_LISTED_CLASSES
        more = f", and {n_more} more" if n_more > 0 else ""
        name = "  labels    any number for each row; " if "label_sets" in about["vectors"] else "  classes   "
        lines.append(name + ", ".join(f"{label}: {count:,}" for label, count in shown) + more)
    if "target" in about["vectors"]:
        lines.append("  labels    numbers to be predicted (train --task regress)")
    if not about["manifest"]:
        lines.append("  there is no manifest: a damaged chunk may go unnoticed")
    if "verified_rows" in about:
        what = "verified" if about["verified"] else "read (there is nothing to verify them by)"
        lines.append(f"  all {say_count(about['verified_rows'], 'row')} {what}")
    return "\n".join(lines)


def describe_features(made: MadeFeatures, seconds: float) -> dict[str, Any]:
    """Return the facts of a new dataset of features. trace_error: trace(K - Phi Phi') / trace K of kernels."""
    dataset = made.dataset
    assert dataset.features is not None
    return {
        "path": dataset.path,
        "map": dataset.meta["features"]["map"],
        "n_rows": dataset.n_rows,
        "n_features": dataset.n_features,
        "bytes": dataset.nbytes,
        "n_chunks": dataset.n_chunks,
        "trace_error": dataset.meta["trace_error"],
        "passes": dataset.meta["passes"],
        "seconds": seconds,
        "read_bytes": made.read_bytes,
        "peak_memory_bytes": made.peak_memory_bytes,
        "projected_memory_bytes": made.projected_memory_bytes,
        "map_sha256": dataset.features.sha256,
    }


def format_features(about: dict[str, Any]) -> str:
    """Return the facts of `describe_features` as lines of text."""
    error = about["trace_error"]
    shown = "" if error is None else f"; trace error of the kernel {error:.2e}, summed while they were written"
    return (
        f"{about['path']}: {say_count(about['n_rows'], 'row')} of {say_count(about['n_features'], 'feature')}, "
        f"{format_bytes(about['bytes'])} in {say_count(about['n_chunks'], 'chunk')}{shown}\n"
        f"{say_count(about['passes'], 'pass')}, {about['seconds']:.1f} s, "
        f"memory: peak {format_bytes(about['peak_memory_bytes'])}, "
        f"projected {format_bytes(about['projected_memory_bytes'])}"
    )


def format_verification(found: dict[str, Any]) -> str:
    """Return the outcome of `verify` as lines of text."""
    told = f"{found['told_objective']:.12g} that the model tells"
    is_told = "is" if found["reason"] is None else "may be"
    verdict = f"it {is_told if found['objective_agrees'] else 'is NOT'} the {told}"
    if found["told_is_estimate"]:
        verdict = f"the {told} is an estimate from a sample of the rows, so there is no number to compare with"
    rounding = f"rounding at most {found['rounding_bound']:.1e}"
    lines = [f"objective {found['objective']:.12g} on {say_count(found['n_rows'], 'row')} ({rounding}): {verdict}"]
    if found["lower_bound"] is not None:
        lines.append(f"lower bound {found['lower_bound']:.12g}, relative gap {found['relative_gap']:.2e}")
    if found["lower_bound_agrees"] is not None:
        verdict = "it proves" if found["lower_bound_agrees"] else "it does NOT prove"
        lines[-1] += f": {verdict} the {found['told_lower_bound']:.12g} that the model tells"
    if found["reason"] is not None:
        lines.append(f"nothing is confirmed: {found['reason']}")
    return "\n".join(lines)
