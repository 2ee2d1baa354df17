"""Prediction and evaluation: a model over the rows of a source, chunk by chunk, on all threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from streamsvm.data.dataset import Dataset, RowSource, open_dataset
from streamsvm.data.ingest import IngestOptions, join_names, write_dataset
from streamsvm.data.sources import guess_bytes, open_files
from streamsvm.data.tables import Columns
from streamsvm.data.writer import new_folder
from streamsvm.machine import default_threads
from streamsvm.errors import InputError
from streamsvm.models import LinearModel
from streamsvm.numeric.rows import F64, compute_scores

Scored = tuple[int, F64, npt.NDArray[np.int32] | None]


def score_chunks(model: LinearModel, source: RowSource, threads: int | None = None) -> Iterator[Scored]:
    """(first row, f of the chunk's rows, their codes) for every chunk, in order; a few chunks in memory."""
    w, b = model.scorer(source.n_features, source.scaling, source.is_sparse)
    threads = threads or default_threads()
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Scored]] = deque()
        for index in range(source.n_chunks):
            waiting.append(pool.submit(_score_chunk, source, index, w, b))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _score_chunk(source: RowSource, index: int, w: F64, b: float) -> Scored:
    scores, codes = [np.empty(0)], []
    for rows in source.tiles(index):
        scores.append(compute_scores(rows.X, w[None, :])[:, 0] + b)
        codes.append(rows.y)
    known = [part for part in codes if part is not None]
    return int(source.chunk_starts[index]), np.concatenate(scores), np.concatenate(known) if known else None


@contextmanager
def open_rows(
    data: str | Path, model: LinearModel, need_labels: bool, format: str | None = None, label: str | None = None
) -> Iterator[Dataset]:
    """Open a dataset, or any file that ingest reads as a passing one, its rows in their order."""
    if "://" in str(data) or Path(data).is_dir():
        yield open_dataset(data, label)
        return
    columns = Columns(label=label, features=model.feature_names, require_label=need_labels)
    options = IngestOptions(shuffle=None, needs_two_classes=False)
    with TemporaryDirectory(prefix="streamsvm") as folder:
        pieces = open_files([data], format, columns)
        yield write_dataset(pieces, Path(folder) / "rows.zarr", join_names([data]), guess_bytes([data]), options)


def predict(model: LinearModel, source: RowSource, out: str | Path) -> int:
    """Write label and score of every row to a .csv, .npy (labels) or .zarr file; return the number of rows."""
    out = Path(out)
    writers = {".csv": _write_csv, ".npy": _write_npy, ".zarr": _write_zarr}
    if out.suffix not in writers:
        raise InputError(f"{out}: write to a name that ends in .csv, .npy or .zarr")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder")
    writers[out.suffix](model, source, out)
    return source.n_rows


def _write_csv(model: LinearModel, source: RowSource, out: Path) -> None:
    partial = out.with_name(f".{out.name}.partial")
    names = [str(label) for label in model.classes]
    try:
        with partial.open("w") as file:
            file.write("label,score\n")
            for _, scores, _ in score_chunks(model, source):
                file.writelines(f"{names[int(score > 0)]},{score:.9g}\n" for score in scores.tolist())
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)


def _write_npy(model: LinearModel, source: RowSource, out: Path) -> None:
    partial = out.with_name(f".{out.name}.partial")
    try:
        labels = np.lib.format.open_memmap(partial, mode="w+", dtype=model.classes.dtype, shape=(source.n_rows,))
        for start, scores, _ in score_chunks(model, source):
            labels[start : start + len(scores)] = model.classes[(scores > 0).astype(int)]
        labels.flush()
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)


def _write_zarr(model: LinearModel, source: RowSource, out: Path) -> None:
    with new_folder(out) as folder:
        group = zarr.open_group(str(folder), mode="w", zarr_format=3)
        group.attrs["classes"] = model.classes.tolist()
        chunks = (min(source.n_rows, 1 << 20),)
        label = group.create_array("label", shape=(source.n_rows,), chunks=chunks, dtype="int32")
        score = group.create_array("score", shape=(source.n_rows,), chunks=chunks, dtype="float64")
        for start, scores, _ in score_chunks(model, source):
            label[start : start + len(scores)] = (scores > 0).astype(np.int32)
            score[start : start + len(scores)] = scores


def evaluate(model: LinearModel, source: RowSource) -> dict[str, Any]:
    """Accuracy, recall and precision by class, area under the ROC curve (holds 9 bytes a row). InputError without labels."""
    if source.classes is None:
        raise InputError(f"{source.name}: no labels to compare with")
    known = [str(label) for label in model.classes]
    truth_of = np.array([_code_of(label, model) for label in source.classes.tolist()], np.int8)
    scores, truth = np.empty(source.n_rows), np.empty(source.n_rows, np.int8)
    for start, part, codes in score_chunks(model, source):
        assert codes is not None
        scores[start : start + len(part)], truth[start : start + len(part)] = part, truth_of[codes]
    predicted = (scores > 0).astype(np.int8)
    per_class = {}
    for code, label in enumerate(known):
        right = int(np.count_nonzero((truth == code) & (predicted == code)))
        rows, chosen = int(np.count_nonzero(truth == code)), int(np.count_nonzero(predicted == code))
        per_class[label] = {"rows": rows, "recall": right / rows if rows else None, "precision": right / chosen if chosen else None}
    return {
        "n_rows": source.n_rows,
        "accuracy": float(np.mean(truth == predicted)),
        "roc_area": roc_area(scores[truth >= 0], truth[truth >= 0] == 1),
        "classes": per_class,
        "unknown_labels": int(np.count_nonzero(truth < 0)),
    }


def roc_area(scores: F64, positive: npt.NDArray[np.bool_]) -> float | None:
    """Share of (positive, negative) pairs in the right order, ties half; None unless both occur."""
    n_positive = int(np.count_nonzero(positive))
    n_negative = len(scores) - n_positive
    if not n_positive or not n_negative:
        return None
    _, rank, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    return float((middle[rank][positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def _code_of(label: Any, model: LinearModel) -> int:
    """Return the model's code of a label, equal as a number or as a text; -1 for a label it does not know."""
    for code, known in enumerate(model.classes.tolist()):
        if known == label or str(known) == str(label):
            return code
    return -1
