"""Prediction: a model over rows, a piece at a time, in their order; files are streamed, not stored."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import zarr
from threadpoolctl import threadpool_limits

from streamsvm import interrupts
from streamsvm.data.csv_cells import strip_guard, write_cell
from streamsvm.data.dataset import open_dataset
from streamsvm.data.destination import check_destination, new_folder
from streamsvm.data.readers import open_files
from streamsvm.data.source import RowSource
from streamsvm.data.spill import as_matrix
from streamsvm.data.tables import Columns
from streamsvm.errors import InputError
from streamsvm.files import open_atomically, refuse_inputs, remove_partials
from streamsvm.locks import Lock
from streamsvm.machine import default_threads
from streamsvm.models.model import Model, RankModel, Scorer
from streamsvm.numeric.rows import F64, I64

Codes = npt.NDArray[np.int32]
ZARR_CHUNK_ROWS = 1 << 18


@dataclass(frozen=True)
class Scored:
    """Some consecutive rows: f(x) as (n,) float64, or (n, K) for K > 2 classes; what is known of them.

    truth: codes in the model's classes (-1: unknown); for rankings, the labels as numbers. qid: query ids.
    """

    scores: F64
    truth: Codes | F64 | None = None
    qid: I64 | None = None


def predict(
    model: Model, data: str | Path | RowSource, out: str | Path, *, file_format: str | None = None,
    label: str | None = None, overwrite: bool = False, header: str = "auto",
) -> int:  # fmt: skip
    """Write label and score of every row to a .csv, .npy (labels) or .zarr file, whole or not at all.

    Of a ranking: the scores alone, higher for higher ranks. Text labels in CSV are written so that no spreadsheet takes
    them for formulas (see data.csv_cells).

    data: a dataset, its path, or any file that ingest reads; header: see `score`. An older .csv or .npy file of that
    name is replaced, as by other commands that write a file; a .zarr folder only if `overwrite` is true, and the data
    themselves never. Returns the number of rows. InputError for bad input.
    """
    out = Path(out)
    if isinstance(data, str | Path):
        refuse_inputs(out, [data])
    write = _choose_writer(out, overwrite)
    return write(model, (part.scores for part in score(model, data, False, file_format, label, None, header)), out)


def score(
    model: Model, data: str | Path | RowSource, need_labels: bool = False, file_format: str | None = None,
    label: str | None = None, qid: str | None = None, header: str = "auto",
) -> Iterator[Scored]:  # fmt: skip
    """Scores of all rows of a dataset or a file, in order; `truth` where there are labels, `qid` where there are ids.

    label, qid: columns of a table that hold them. header: whether the first row of CSV names the columns: "yes", "no"
    or "auto", by what it holds.
    """
    if isinstance(data, str | Path) and "://" not in str(data) and not Path(data).is_dir():
        return _score_file(model, data, need_labels, file_format, Columns(label=label, qid=qid, header=header))
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
            interrupts.check()
        while waiting:
            yield waiting.popleft().result()


def _score_chunk(source: RowSource, index: int, scorer: Scorer, table: Codes | F64 | None) -> Scored:
    scores: list[F64] = []
    truth: list[Any] = []
    qid: list[I64] = []
    for rows in source.tiles(index):
        scores.append(scorer(rows.X))
        if table is not None and rows.y is not None:
            truth.append(table[rows.y])
        if rows.qid is not None:
            qid.append(rows.qid.copy())
    return Scored(
        np.concatenate(scores), np.concatenate(truth) if truth else None, np.concatenate(qid) if qid else None
    )


def _score_file(
    model: Model, path: str | Path, need_labels: bool, file_format: str | None, given: Columns
) -> Iterator[Scored]:
    columns = replace(given, features=model.feature_names, require_label=need_labels)
    for rows in open_files([path], file_format, columns):
        if need_labels and rows.labels is None:
            raise InputError(f"{path}: no labels to compare with")
        try:
            scores = model.decide(as_matrix(rows.X))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        yield Scored(scores, None if rows.labels is None else _code_labels(rows.labels, model), rows.qid)
        interrupts.check()


def _code_labels(labels: npt.NDArray[Any], model: Model) -> Codes | F64:
    """Return the model's codes of labels, equal as numbers or as texts; -1 for one it does not know.

    Of a ranking: the labels as numbers (codes if its classes are texts, NaN for unknown ones). InputError for texts.
    """
    if isinstance(model, RankModel) and model.classes.dtype.kind in "biuf":
        try:
            return labels.astype(np.float64)
        except ValueError:
            raise InputError(f"labels are {str(labels[0])!r}, ..; ranks have to be numbers") from None
    different, inverse = np.unique(labels, return_inverse=True)
    codes = np.full(len(different), -1, np.int32)
    for code, known in enumerate(model.classes.tolist()):
        codes[[_is_same_label(label, known) for label in different.tolist()]] = code
    return np.where(codes < 0, np.nan, codes)[inverse] if isinstance(model, RankModel) else codes[inverse]


def _is_same_label(label: Any, known: Any) -> bool:
    """Compare labels as values or as texts; one that `predict` has written to a table is known again."""
    return bool(label == known) or _to_text(known) in (_to_text(label), strip_guard(_to_text(label)))


def _to_text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


Writer = Callable[[Model, Iterator[F64], Path], int]


def _choose_writer(out: Path, overwrite: bool) -> Writer:
    """Return what writes such a file; InputError, before anything is read, if it cannot be written."""
    writers: dict[str, Writer] = {
        ".csv": _write_csv, ".npy": _write_npy, ".zarr": partial(_write_zarr, overwrite=overwrite),
    }  # fmt: skip
    if out.suffix not in writers:
        raise InputError(f"{out}: write to a name that ends in .csv, .npy or .zarr")
    if out.suffix == ".zarr":
        check_destination(out, overwrite)
    elif not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such folder")
    elif out.is_dir():
        raise InputError(f"{out}: exists already, as a folder; remove it or choose another name")
    return writers[out.suffix]


@contextmanager
def _new_file(out: Path) -> Iterator[BinaryIO]:
    """Open a file to be written, by one process at a time; it is there whole or not at all."""
    with Lock(out):
        remove_partials(out.parent, out.name)
        with open_atomically(out) as file:
            yield file


def _write_csv(model: Model, scored: Iterator[F64], out: Path) -> int:
    n_rows = 0
    cells = np.array([write_cell(label) for label in model.classes.tolist()])
    with _new_file(out) as file:
        file.write(f"{','.join(_name_columns(model))}\n".encode())
        for scores in scored:
            columns = [[f"{value:.9g}" for value in column.tolist()] for column in np.atleast_2d(scores.T)]
            if not isinstance(model, RankModel):
                columns = [cells[choose(scores)].tolist(), *columns]
            file.write("".join(f"{','.join(line)}\n" for line in zip(*columns, strict=True)).encode())
            n_rows += len(scores)
    return n_rows


def _name_columns(model: Model) -> list[str]:
    """Return the header of a table: a score by class where there are several."""
    if isinstance(model, RankModel):
        return ["score"]
    several = model.classes.tolist() if np.ndim(model.intercept) else None
    return ["label", "score"] if several is None else ["label", *(write_cell(f"score {name}") for name in several)]


def choose(scores: F64) -> npt.NDArray[np.intp]:
    """Return the code of the class that scores are for: by sign, or the highest of K, of equals the first."""
    return (scores > 0).astype(np.intp) if scores.ndim == 1 else np.argmax(scores, axis=1)


def _write_npy(model: Model, scored: Iterator[F64], out: Path) -> int:
    n_rows, ranks = 0, isinstance(model, RankModel)
    dtype = np.dtype(np.float64) if ranks else model.classes.dtype
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    with _new_file(out) as file:
        np.lib.format.write_array_header_1_0(file, {**about, "shape": (0,)})
        for scores in scored:
            values = scores if ranks else model.classes[choose(scores)]
            file.write(values.tobytes())  # `tofile` misses a full disk
            n_rows += len(scores)
        file.seek(0)  # a header leaves room for the number of rows to grow
        np.lib.format.write_array_header_1_0(file, {**about, "shape": (n_rows,)})
    return n_rows


def _write_zarr(model: Model, scored: Iterator[F64], out: Path, overwrite: bool) -> int:
    with new_folder(out, overwrite) as folder:
        group = zarr.open_group(str(folder), mode="w", zarr_format=3)
        group.attrs["classes"] = model.classes.tolist()
        width = np.shape(model.intercept)
        chunks = (ZARR_CHUNK_ROWS // math.prod(width),)
        score = group.create_array("score", shape=(0, *width), chunks=(*chunks, *width), dtype="float64")
        label = None
        if not isinstance(model, RankModel):
            label = group.create_array("label", shape=(0,), chunks=chunks, dtype="int32")
        for scores in scored:
            score.append(scores)
            if label is not None:
                label.append(choose(scores).astype(np.int32))
        return int(score.shape[0])
