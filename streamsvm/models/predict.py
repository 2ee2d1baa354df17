"""Prediction: a model over rows, a piece at a time, in their order; files are streamed, not stored."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import zarr
from threadpoolctl import threadpool_limits

from streamsvm import interrupts
from streamsvm.data.csv_cells import write_cell
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
from streamsvm.models.model import Model, Scorer
from streamsvm.numeric.rows import F64, I64
from streamsvm.problems.classification import choose
from streamsvm.problems.problem import Scored

ZARR_CHUNK_ROWS = 1 << 18


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
    table = None if source.classes is None else model.problem.code_labels(source.classes, model.classes)
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


def _score_chunk(source: RowSource, index: int, scorer: Scorer, table: npt.NDArray[Any] | None) -> Scored:
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
        truth = None if rows.labels is None else model.problem.code_labels(rows.labels, model.classes)
        yield Scored(scores, truth, rows.qid)
        interrupts.check()


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
            if model.problem.predicts_labels:
                columns = [cells[choose(scores)].tolist(), *columns]
            file.write("".join(f"{','.join(line)}\n" for line in zip(*columns, strict=True)).encode())
            n_rows += len(scores)
    return n_rows


def _name_columns(model: Model) -> list[str]:
    """Return the header of a table: a score by class where there are several."""
    if not model.problem.predicts_labels:
        return ["score"]
    several = model.classes.tolist() if np.ndim(model.intercept) else None
    return ["label", "score"] if several is None else ["label", *(write_cell(f"score {name}") for name in several)]


def _write_npy(model: Model, scored: Iterator[F64], out: Path) -> int:
    n_rows, labels = 0, model.problem.predicts_labels
    dtype = model.classes.dtype if labels else np.dtype(np.float64)
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    with _new_file(out) as file:
        np.lib.format.write_array_header_1_0(file, {**about, "shape": (0,)})
        for scores in scored:
            values = model.classes[choose(scores)] if labels else scores
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
        if model.problem.predicts_labels:
            label = group.create_array("label", shape=(0,), chunks=chunks, dtype="int32")
        for scores in scored:
            score.append(scores)
            if label is not None:
                label.append(choose(scores).astype(np.int32))
        return int(score.shape[0])
