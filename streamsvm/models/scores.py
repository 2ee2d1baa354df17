"""Scores of rows, a chunk at a time and in their order: of datasets, of files, which are streamed, and of frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm import interrupts
from streamsvm.data.column_roles import choose_label_kind
from streamsvm.data.formats import find_format, guess_format, has_known_ending
from streamsvm.data.label_lists import LabelLists
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.readers import open_files, open_frame
from streamsvm.data.rounding import round_features
from streamsvm.data.source import RowSource
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.sources import is_folder_of_files, list_files
from streamsvm.data.spill import as_matrix
from streamsvm.data.tables import Columns
from streamsvm.data.work_ahead import unjoined_pool, work_ahead
from streamsvm.errors import InputError
from streamsvm.machine import default_threads
from streamsvm.models.compilation import compile_scores
from streamsvm.models.model import Model
from streamsvm.models.saved_model import Scorer
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix
from streamsvm.problems.problem import Scored, read_truth
from streamsvm.urls import is_remote

READ_AS_IT_IS = Columns(read_label=False)
OF_FILES = ("qid", "header", "sep", "index", "decimal")  # what has no effect on a dataset
TEXT_OF_LISTS = "svmlight"  # the format whose labels are lists if the model was trained on such


def score(
    model: Model,
    data: str | Path | RowSource,
    need_labels: bool = False,
    file_format: str | None = None,
    columns: Columns = READ_AS_IT_IS,
) -> Iterator[Scored]:
    """Yield the scores of all rows of a dataset or a file in their order, with labels and query ids if there are any.

    need_labels: whether rows without labels are an InputError. columns: how the columns of a file are read.
    """
    if isinstance(data, str | Path) and is_file_of_rows(data, file_format):
        return _score_file(model, data, need_labels, file_format, columns)
    source: RowSource = open_dataset(data, columns.label) if isinstance(data, str | Path) else data
    useless = [name for name in OF_FILES if getattr(columns, name) != getattr(READ_AS_IT_IS, name)]
    if useless := (["format"] if file_format is not None else []) + useless:
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


def recall_label(model: Model, data: str | Path | RowSource, file_format: str | None) -> str | None:
    """Return the column that held the labels of the training, if the rows are a table, or None."""
    known: str | None = model.info.get("label_column")
    if known is None or not isinstance(data, str | Path):
        return None
    if is_file_of_rows(data, file_format):
        return known if "label" in find_format(_find_kind(data, file_format)).reads else None
    return None if "arrays" in open_dataset(data).meta else known  # AnnData keep labels in columns


def recall_queries(model: Model, data: str | Path | RowSource, file_format: str | None) -> str | None:
    """Return the column that held the query ids of the training, if the rows are a table in a file, or None."""
    known: str | None = model.info.get("qid_column")
    if known is None or not isinstance(data, str | Path) or not is_file_of_rows(data, file_format):
        return None
    return known if "qid" in find_format(_find_kind(data, file_format)).reads else None


def is_file_of_rows(data: str | Path, file_format: str | None) -> bool:
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
    with one_blas_thread(), unjoined_pool(threads, "score") as pool:  # the bits of BLAS depend on its number of threads
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
    """Yield the scores of the rows of a file, a piece at a time. All threads work, each with one piece in memory."""
    columns, threads = _choose_columns(model, path, need_labels, file_format, given), default_threads()

    def score_piece(piece: tuple[Matrix, SourceRows]) -> Scored:
        X, rows = piece
        try:
            scores = model.decide(as_rows(model, X))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        labels: Any = rows.labels
        truth = None if labels is None else model.problem.code_labels(labels, model.classes)
        return Scored(scores, truth, rows.qid, rows.row_names)

    with one_blas_thread(), unjoined_pool(threads, "score") as pool:
        pieces = _check_pieces(model, path, need_labels, open_files([path], file_format, columns))
        for _, scored in work_ahead(pieces, score_piece, pool, threads + 1):
            yield scored
            interrupts.check()


def _choose_columns(
    model: Model, path: str | Path, need_labels: bool, file_format: str | None, given: Columns
) -> Columns:
    """Return the roles of the columns of a file: its features are those that the model was trained on, by name."""
    encoding = model.encoding
    names = model.feature_names if encoding is None else encoding.column_names
    columns = replace(given, features=names, require_label=need_labels, encoding=encoding)
    columns = replace(columns, label_kind=choose_label_kind(model.classes, not model.problem.has_classes))
    if encoding is not None and given.index is None:
        columns = replace(columns, index=encoding.index)
    of_lists = model.problem.has_label_sets and _find_kind(path, file_format) == TEXT_OF_LISTS
    return replace(columns, multi_label=of_lists)


def _find_kind(data: str | Path, file_format: str | None) -> str:
    """Return the format of a file, or of the first file of a pattern or a folder."""
    return file_format or guess_format(list_files([data])[0])


def _check_pieces(
    model: Model, path: str | Path, need_labels: bool, pieces: Iterator[SourceRows]
) -> Iterator[tuple[Matrix, SourceRows]]:
    """Yield the features of the pieces of a file, and the pieces. InputError for labels that do not suit the model."""
    sets = model.problem.has_label_sets
    for rows in pieces:
        if need_labels and rows.labels is None:
            raise InputError(f"{path}: there are no labels to compare the predictions with")
        if rows.labels is not None and isinstance(rows.labels, LabelLists) != sets:
            have = "one label each" if sets else "sets of labels"
            raise InputError(f"{path}: its rows have {have}, and the model was trained on others")
        if model.problem.has_classes:
            rows.require_classes()
        X = as_matrix(rows.X)
        if model.encoding is not None and rows.feature_names is None and X.shape[1] > model.n_features:
            raise InputError(
                f"{path}: rows of {X.shape[1]:,} features; the model was trained on a table that became "
                f"{model.n_features:,}"
            )
        compile_scores(model, isinstance(X, CsrRows), need_labels)
        yield X, rows


def as_rows(model: Model, X: Matrix) -> Matrix:
    """Return raw rows in float32, unless the model scales them first."""
    return X if model.row_scaling is not None else round_features(X, None)


def score_frame(model: Model, frame: Any) -> Iterator[Scored]:
    """Yield the scores of the rows of a frame, whose columns are encoded as those of the training rows."""
    encoding = model.encoding
    assert encoding is not None
    columns = Columns(features=encoding.column_names, require_label=False, encoding=encoding)
    for rows in open_frame(frame, {}, columns):
        X = as_matrix(rows.X)
        compile_scores(model, isinstance(X, CsrRows))
        yield Scored(model.decide(as_rows(model, X)))
