"""Prediction and evaluation: a model over rows, a piece at a time, in their order; files are streamed, not stored."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from threadpoolctl import threadpool_limits

from streamsvm.data.dataset import open_dataset
from streamsvm.data.source import RowSource
from streamsvm.data.sources import open_files
from streamsvm.data.spill import as_matrix
from streamsvm.data.tables import Columns
from streamsvm.data.writer import new_folder
from streamsvm.errors import InputError
from streamsvm.machine import default_threads
from streamsvm.models import Model, Scorer
from streamsvm.numeric.rows import F64

Codes = npt.NDArray[np.int8]
ZARR_CHUNK_ROWS = 1 << 18


@dataclass(frozen=True)
class Scored:
    """Some consecutive rows: f(x) as (n,) float64; their codes in the model's classes (-1: unknown), or None."""

    scores: F64
    truth: Codes | None = None


def predict(
    model: Model, data: str | Path | RowSource, out: str | Path, *, file_format: str | None = None,
    label: str | None = None,
) -> int:  # fmt: skip
    """Write label and score of every row to a .csv, .npy (labels) or .zarr file, whole or not at all.

    data: a dataset, its path, or any file that ingest reads. Returns the number of rows. InputError for bad input.
    """
    out = Path(out)
    write = _choose_writer(out)
    return write(model, (part.scores for part in score(model, data, False, file_format, label)), out)


def evaluate(
    model: Model, data: str | Path | RowSource, *, file_format: str | None = None, label: str | None = None
) -> dict[str, Any]:
    """Accuracy, recall and precision by class, area under the ROC curve of labelled rows; see predict for `data`.

    Holds 9 bytes a row, twice while they are joined. InputError without labels.
    """
    parts = list(score(model, data, True, file_format, label))
    scores = np.concatenate([part.scores for part in parts])
    truth = np.concatenate([part.truth for part in parts if part.truth is not None])
    predicted, known = scores > 0, truth >= 0
    per_class = {}
    for code, name in enumerate(model.classes.tolist()):
        right = int(np.count_nonzero((truth == code) & (predicted == code)))
        rows, chosen = int(np.count_nonzero(truth == code)), int(np.count_nonzero(predicted == code))
        recall, precision = right / rows if rows else None, right / chosen if chosen else None
        per_class[str(name)] = {"rows": rows, "recall": recall, "precision": precision}
    return {
        "n_rows": len(scores),
        "accuracy": float(np.mean(truth == predicted)),
        "roc_area": roc_area(scores[known], truth[known] == 1),
        "classes": per_class,
        "unknown_labels": int(np.count_nonzero(~known)),
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


def score(
    model: Model, data: str | Path | RowSource, need_labels: bool = False, file_format: str | None = None,
    label: str | None = None,
) -> Iterator[Scored]:  # fmt: skip
    """Scores of all rows of a dataset or a file, in order; `truth` where there are labels."""
    if isinstance(data, str | Path) and "://" not in str(data) and not Path(data).is_dir():
        return _score_file(model, data, need_labels, file_format, label)
    source: RowSource = open_dataset(data, label) if isinstance(data, str | Path) else data
    if need_labels and source.classes is None:
        raise InputError(f"{source.name}: no labels to compare with")
    return score_chunks(model, source)


def score_chunks(model: Model, source: RowSource, threads: int | None = None) -> Iterator[Scored]:
    """Scores of every chunk, in order, on all threads; a few chunks in memory.

    Raw rows are mapped first if the model was trained on features; a dataset of features is taken as it is, but only
    if the model's own map made it. InputError for other rows.
    """
    if None not in (model.feature_names, source.feature_names) and model.feature_names != source.feature_names:
        raise InputError(f"{source.name}: its features are not those that the model was trained on")
    scorer = model.scorer(source.n_features, source.scaling, source.is_sparse, source.features)
    table = None if source.classes is None else _code_labels(source.classes, model)
    threads = threads or default_threads()
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:  # BLAS: as many bits as threads otherwise
        waiting: deque[Future[Scored]] = deque()
        for index in range(source.n_chunks):
            waiting.append(pool.submit(_score_chunk, source, index, scorer, table))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _score_chunk(source: RowSource, index: int, scorer: Scorer, table: Codes | None) -> Scored:
    scores, truth = [np.empty(0)], [np.empty(0, np.int8)]
    for rows in source.tiles(index):
        scores.append(scorer(rows.X))
        if table is not None and rows.y is not None:
            truth.append(table[rows.y])
    return Scored(np.concatenate(scores), None if table is None else np.concatenate(truth))


def _score_file(
    model: Model, path: str | Path, need_labels: bool, file_format: str | None, label: str | None
) -> Iterator[Scored]:
    columns = Columns(label=label, features=model.feature_names, require_label=need_labels)
    for rows in open_files([path], file_format, columns):
        if need_labels and rows.labels is None:
            raise InputError(f"{path}: no labels to compare with")
        try:
            scores = model.decide(as_matrix(rows.X))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        yield Scored(scores, None if rows.labels is None else _code_labels(rows.labels, model))


def _code_labels(labels: npt.NDArray[Any], model: Model) -> Codes:
    """Return the model's codes of labels, equal as numbers or as texts; -1 for one it does not know."""
    different, inverse = np.unique(labels, return_inverse=True)
    codes = np.full(len(different), -1, np.int8)
    for code, known in enumerate(model.classes.tolist()):
        codes[[label == known or _to_text(label) == _to_text(known) for label in different.tolist()]] = code
    return codes[inverse]


def _to_text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


Writer = Callable[[Model, Iterator[F64], Path], int]


def _choose_writer(out: Path) -> Writer:
    """Return what writes such a file; InputError, before anything is read, if it cannot be written."""
    writers: dict[str, Writer] = {".csv": _write_csv, ".npy": _write_npy, ".zarr": _write_zarr}
    if out.suffix not in writers:
        raise InputError(f"{out}: write to a name that ends in .csv, .npy or .zarr")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder")
    if out.is_dir():
        raise InputError(f"{out}: exists already, as a folder; remove it or choose another name")
    return writers[out.suffix]


def _write_csv(model: Model, scored: Iterator[F64], out: Path) -> int:
    partial, n_rows = out.with_name(f".{out.name}.partial"), 0
    names = [str(label) for label in model.classes.tolist()]
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("label", "score"))
            for scores in scored:
                writer.writerows((names[value > 0], f"{value:.9g}") for value in scores.tolist())
                n_rows += len(scores)
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return n_rows


def _write_npy(model: Model, scored: Iterator[F64], out: Path) -> int:
    partial, n_rows = out.with_name(f".{out.name}.partial"), 0
    about = {"descr": np.lib.format.dtype_to_descr(model.classes.dtype), "fortran_order": False}
    try:
        with partial.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {**about, "shape": (0,)})
            for scores in scored:
                file.write(model.classes[(scores > 0).astype(int)].tobytes())  # `tofile` misses a full disk
                n_rows += len(scores)
            file.seek(0)  # a header leaves room for the number of rows to grow
            np.lib.format.write_array_header_1_0(file, {**about, "shape": (n_rows,)})
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return n_rows


def _write_zarr(model: Model, scored: Iterator[F64], out: Path) -> int:
    with new_folder(out) as folder:
        group = zarr.open_group(str(folder), mode="w", zarr_format=3)
        group.attrs["classes"] = model.classes.tolist()
        chunks = (ZARR_CHUNK_ROWS,)
        label = group.create_array("label", shape=(0,), chunks=chunks, dtype="int32")
        score = group.create_array("score", shape=(0,), chunks=chunks, dtype="float64")
        for scores in scored:
            label.append((scores > 0).astype(np.int32))
            score.append(scores)
        return int(score.shape[0])
