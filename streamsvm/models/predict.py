"""Prediction: a model scores rows a chunk at a time, in their order. Files are streamed, and no copy is stored."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from streamsvm import interrupts
from streamsvm.data.csv_cells import write_cell
from streamsvm.data.dataset import open_dataset
from streamsvm.data.destination import check_destination, check_file, new_file, new_folder
from streamsvm.data.formats import guess_format, has_known_ending
from streamsvm.data.label_lists import LabelLists
from streamsvm.data.readers import open_files, open_frame
from streamsvm.data.source import RowSource
from streamsvm.data.sources import is_folder_of_files
from streamsvm.data.spill import as_matrix
from streamsvm.data.tables import Columns
from streamsvm.errors import InputError
from streamsvm.files import refuse_inputs
from streamsvm.machine import default_threads
from streamsvm.models.compilation import compile_scores
from streamsvm.models.model import Model
from streamsvm.models.probabilities import find_probabilities, require_probabilities
from streamsvm.models.saved_model import Scorer
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rows import F64, I64, CsrRows
from streamsvm.problems.classification import choose, choose_labels
from streamsvm.problems.problem import Scored, read_truth
from streamsvm.urls import is_remote

ZARR_CHUNK_ROWS = 1 << 18
EMPTY_CELL = '""'  # a line without a character would be no row to many readers
TEXT_OF_LISTS = "svmlight"  # the format whose labels are lists if the model was trained on such


def predict(
    model: Model,
    data: str | Path | RowSource,
    out: str | Path,
    *,
    file_format: str | None = None,
    label: str | None = None,
    overwrite: bool = False,
    header: str = "auto",
    probabilities: bool = False,
    sep: str | None = None,
    index: str | None = None,
) -> int:
    """Write the predicted label and the score of every row to a file, wholly or not at all.

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    data : path or dataset
        A dataset, its path, or a file that `ingest` reads.
    out : path
        A .csv file (label and score), a .npy file (labels) or a .zarr folder (label codes and scores). Of rows with
        any number of labels these are a .csv file (the labels), a .npy file (an indicator matrix of 0 and 1) or a .zarr
        folder (that matrix and the scores). For a ranking
        there are scores alone, which are higher for higher ranks. Text labels in CSV are written such that no
        spreadsheet takes them for formulas (see data.csv_cells). An older .csv or .npy file of this name is replaced.
    file_format : str, optional
        The format of a file; by default its name tells the format.
    label : str, optional
        The column of a table that holds labels, which is then no feature.
    overwrite : bool, default=False
        Whether an older .zarr folder of this name is replaced. The data themselves never are.
    header : {"auto", "yes", "no"}
        Whether the first row of CSV names the columns. "auto" decides by its cells.
    probabilities : bool, default=False
        Whether a .csv or .zarr file has the probability of each class, too; for models that were trained with them.
    sep : str, optional
        The character that separates the columns of CSV. By default it is found out.
    index : str, optional
        The column of a table that names the rows; a .csv file of predictions begins with these names. By default it is
        the one of the training table, if there is such a column.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    InputError
        If the rows do not suit the model, or if the file cannot be written.
    """
    out = Path(out)
    if isinstance(data, str | Path) and not is_remote(data):
        refuse_inputs(out, [data])
    if probabilities:
        require_probabilities(model)
    write = _choose_writer(out, overwrite, probabilities)
    return write(model, score(model, data, False, file_format, label, None, header, sep, index), out)


def score(
    model: Model,
    data: str | Path | RowSource,
    need_labels: bool = False,
    file_format: str | None = None,
    label: str | None = None,
    qid: str | None = None,
    header: str = "auto",
    sep: str | None = None,
    index: str | None = None,
) -> Iterator[Scored]:
    """Yield the scores of all rows of a dataset or a file in their order, with labels and query ids if there are any.

    need_labels: whether rows without labels are an InputError. See `evaluate` for the other parameters.
    """
    if isinstance(data, str | Path) and _is_file(data, file_format):
        columns = Columns(label=label, qid=qid, header=header, sep=sep, index=index)
        return _score_file(model, data, need_labels, file_format, columns)
    source: RowSource = open_dataset(data, label) if isinstance(data, str | Path) else data
    given = {"format": file_format, "qid": qid, "header": None if header == "auto" else header}
    given |= {"sep": sep, "index": index}
    if useless := [name for name, value in given.items() if value is not None]:
        raise InputError(f"{source.name}: --{useless[0]} has no effect on a dataset: leave it out; it is for files")
    if need_labels and source.classes is None and not source.has_targets:
        raise InputError(f"{source.name}: there are no labels to compare the predictions with")
    if need_labels and source.has_targets and model.problem.has_classes:
        raise InputError(f"{source.name}: its labels are numbers to be predicted, and the model predicts classes")
    if need_labels and source.has_label_sets != model.problem.has_label_sets:
        have = "sets of labels" if source.has_label_sets else "one label each"
        raise InputError(f"{source.name}: its rows have {have}, and the model was trained on others")
    compile_scores(model, source.is_sparse, need_labels)
    return score_chunks(model, source)


def _is_file(data: str | Path, file_format: str | None) -> bool:
    """Tell whether a path is that of a file of rows, and not of a dataset. Of a URL, its ending tells."""
    if is_remote(data):
        return file_format is not None or has_known_ending(data)
    return "://" not in str(data) and (not Path(data).is_dir() or is_folder_of_files(data))


def score_chunks(model: Model, source: RowSource, threads: int | None = None) -> Iterator[Scored]:
    """Yield the scores of every chunk, in order. All threads work, each with one chunk in memory.

    If the model was trained on features of a map, raw rows are mapped first, and rows that the model's own map made are
    taken as they are. InputError for rows that do not suit the model.
    """
    if None not in (model.feature_names, source.feature_names) and model.feature_names != source.feature_names:
        raise InputError(f"{source.name}: its features are not those that the model was trained on")
    if None not in (model.encoding, source.encoding) and model.encoding != source.encoding:
        raise InputError(
            f"{source.name}: its table was encoded otherwise than that of the model's training rows; give the model "
            "the table itself, or ingest it with --like and the dataset of the training"
        )
    scorer = model.scorer(source.n_features, source.scaling, source.is_sparse, source.features)
    compile_scores(model, source.is_sparse)
    table = None if source.classes is None else model.problem.code_labels(source.classes, model.classes)
    threads = threads or default_threads()
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:  # the bits of BLAS depend on its number of threads
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
        if rows.target is not None or table is not None:
            truth.append(read_truth(rows, np.empty(0) if table is None else table).copy())
        if rows.qid is not None:
            qid.append(rows.qid.copy())
    return Scored(
        np.concatenate(scores), np.concatenate(truth) if truth else None, np.concatenate(qid) if qid else None
    )


def _score_file(
    model: Model, path: str | Path, need_labels: bool, file_format: str | None, given: Columns
) -> Iterator[Scored]:
    sets = model.problem.has_label_sets
    encoding = model.encoding
    names = model.feature_names if encoding is None else encoding.column_names
    columns = replace(given, features=names, require_label=need_labels, encoding=encoding)
    if encoding is not None and given.index is None:
        columns = replace(columns, index=encoding.index)
    columns = replace(columns, multi_label=sets and (file_format or guess_format(path)) == TEXT_OF_LISTS)
    for rows in open_files([path], file_format, columns):
        if need_labels and rows.labels is None:
            raise InputError(f"{path}: there are no labels to compare the predictions with")
        if rows.labels is not None and isinstance(rows.labels, LabelLists) != sets:
            have = "one label each" if sets else "sets of labels"
            raise InputError(f"{path}: its rows have {have}, and the model was trained on others")
        X = as_matrix(rows.X)
        compile_scores(model, isinstance(X, CsrRows), need_labels)
        try:
            scores = model.decide(X)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        labels: Any = rows.labels
        truth = None if labels is None else model.problem.code_labels(labels, model.classes)
        yield Scored(scores, truth, rows.qid, rows.row_names)
        interrupts.check()


def score_frame(model: Model, frame: Any) -> Iterator[Scored]:
    """Yield the scores of the rows of a frame, whose columns are encoded as those of the training rows."""
    encoding = model.encoding
    assert encoding is not None
    columns = Columns(features=encoding.column_names, require_label=False, encoding=encoding)
    for rows in open_frame(frame, {}, columns):
        X = as_matrix(rows.X)
        compile_scores(model, isinstance(X, CsrRows))
        yield Scored(model.decide(X))


Writer = Callable[[Model, Iterator[Scored], Path], int]


def _choose_writer(out: Path, overwrite: bool, probabilities: bool) -> Writer:
    """Return the function that writes such a file; InputError if the file cannot be written, before rows are read."""
    writers: dict[str, Writer] = {
        ".csv": partial(_write_csv, probabilities=probabilities),
        ".npy": _write_npy,
        ".zarr": partial(_write_zarr, overwrite=overwrite, probabilities=probabilities),
    }
    if out.suffix == ".npy" and probabilities:
        raise InputError(f"{out}: a .npy file holds labels alone; for probabilities choose .csv or .zarr")
    if out.suffix not in writers:
        raise InputError(f"{out}: the name must end in .csv, .npy or .zarr")
    if out.suffix == ".zarr":
        check_destination(out, overwrite)
    else:
        check_file(out, overwrite=True)
    return writers[out.suffix]


def _write_csv(model: Model, scored: Iterator[Scored], out: Path, probabilities: bool) -> int:
    n_rows = 0
    cells = np.array([write_cell(label) for label in model.classes.tolist()])
    with new_file(out) as file:
        names = [write_cell(f"probability {name}") for name in model.classes.tolist()] if probabilities else []
        for part in scored:
            scores, own = part.scores, [] if part.row_names is None else ["name"]
            if not n_rows:
                file.write(f"{','.join(own + _name_columns(model) + names)}\n".encode())
            sets = model.problem.has_label_sets  # whose scores are too many for text
            values = np.atleast_2d(scores.T)[: 0 if sets else None]
            if probabilities:
                values = np.vstack((values, find_probabilities(model, scores).T))
            columns = [[f"{value:.9g}" for value in column.tolist()] for column in values]
            if sets:
                columns = [_list_labels(cells, scores), *columns]
            elif model.problem.predicts_labels:
                columns = [cells[choose(scores)].tolist(), *columns]
            if part.row_names is not None:
                columns = [[write_cell(name) for name in part.row_names.tolist()], *columns]
            file.write("".join(f"{','.join(line)}\n" for line in zip(*columns, strict=True)).encode())
            n_rows += len(scores)
    return n_rows


def _name_columns(model: Model) -> list[str]:
    """Return the header of a table, which has a score for each class if there are more than two."""
    if not model.problem.predicts_labels:
        return [model.problem.score_name]
    if model.problem.has_label_sets:
        return ["labels"]
    several = model.classes.tolist() if model.score_shape else None
    return ["label", "score"] if several is None else ["label", *(write_cell(f"score {name}") for name in several)]


def _list_labels(cells: npt.NDArray[Any], scores: F64) -> list[str]:
    """Return a cell for each row: its labels, with a space between them."""
    rows, codes = np.nonzero(choose_labels(scores))
    lists = np.split(cells[codes], np.searchsorted(rows, np.arange(1, len(scores))))
    return [" ".join(each.tolist()) or EMPTY_CELL for each in lists]


def _write_npy(model: Model, scored: Iterator[Scored], out: Path) -> int:
    n_rows, labels = 0, model.problem.predicts_labels
    dtype, sets = model.classes.dtype if labels else np.dtype(np.float64), model.problem.has_label_sets
    dtype, width = (np.dtype(np.uint8), model.score_shape) if sets else (dtype, ())
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    with new_file(out) as file:
        np.lib.format.write_array_header_1_0(file, {**about, "shape": (0, *width)})
        for part in scored:
            scores = part.scores
            values = choose_labels(scores) if sets else model.classes[choose(scores)] if labels else scores
            file.write(values.tobytes())  # `tofile` misses a full disk
            n_rows += len(scores)
        file.seek(0)  # the header leaves room for a larger number of rows
        np.lib.format.write_array_header_1_0(file, {**about, "shape": (n_rows, *width)})
    return n_rows


def _write_zarr(model: Model, scored: Iterator[Scored], out: Path, overwrite: bool, probabilities: bool) -> int:
    with new_folder(out, overwrite) as folder:
        group = zarr.open_group(str(folder), mode="w", zarr_format=3)
        group.attrs["classes"] = model.classes.tolist()
        width = model.score_shape
        chunks = (max(1, ZARR_CHUNK_ROWS // math.prod(width)),)
        score = group.create_array("score", shape=(0, *width), chunks=(*chunks, *width), dtype="float64")
        label = probability = None
        if probabilities:
            K = len(model.classes)
            probability = group.create_array("probability", shape=(0, K), chunks=(*chunks, K), dtype="float64")
        if model.problem.has_label_sets:
            label = group.create_array("label", shape=(0, *width), chunks=(*chunks, *width), dtype="uint8")
        elif model.problem.predicts_labels:
            label = group.create_array("label", shape=(0,), chunks=chunks, dtype="int32")
        for part in scored:
            scores = part.scores
            score.append(scores)
            if probability is not None:
                probability.append(find_probabilities(model, scores))
            if label is not None:
                sets = model.problem.has_label_sets
                label.append(choose_labels(scores).astype(np.uint8) if sets else choose(scores).astype(np.int32))
        return int(score.shape[0])
