"""Scores of rows, in order, for datasets, for files, which are streamed piece by piece, and for frames."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import TILE_BYTES, LabelLists, RowSource, SourceRows
from streamsvm.data.rows.views import RowTransform, View
from streamsvm.data.sources.formats import SYNTAX, find_format, guess_format, has_known_ending
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.readers import (
    choose_label_kind,
    guess_bytes,
    is_folder_of_files,
    list_files,
    open_files,
    open_frame,
)
from streamsvm.models.model import Model
from streamsvm.models.score_rows import compile_scores, score_ahead, score_chunks, score_on_workers
from streamsvm.numeric.rows import CsrRows, Matrix, Rows
from streamsvm.numeric.stored_types import as_matrix, round_features
from streamsvm.problems.problem import Scored
from streamsvm.system.budget import memory_kept
from streamsvm.system.errors import InputError, naming, require_known, say_count
from streamsvm.system.files import is_remote
from streamsvm.system.machine import default_threads

Data = str | Path | RowSource  # the path or URL of rows, or a dataset
AS_IT_IS = Columns(read_label=False)
OF_FILES = ("qid", "index", *SYNTAX)  # columns and syntax of files, without effect on a dataset
UNKNOWN_FEATURES = ("error", "ignore")  # the ways to treat features with numbers beyond those of the model
LOGGER = logging.getLogger("streamsvm")
TEXT_OF_LISTS = "svmlight"  # in this format, labels are read as lists if the model was trained on sets of labels


def score(
    model: Model,
    data: Data,
    need_labels: bool = False,
    file_format: str | None = None,
    columns: Columns = AS_IT_IS,
    unknown_features: str = UNKNOWN_FEATURES[0],
    scheduler: str | None = None,
    memory_bytes: int | None = None,
) -> Iterator[Scored]:
    """Yield the scores of all rows of a dataset or a file, in order, with labels and query ids if there are any.

    need_labels: whether to raise InputError for rows without labels. columns: how to read the columns of a file.
    unknown_features: "error" refuses rows with more features than the model has; "ignore" leaves out the others, and
    warns once of their number. scheduler, memory_bytes: see `predict`.
    """
    require_known("unknown_features", unknown_features, UNKNOWN_FEATURES)
    ignores = unknown_features == "ignore"
    if isinstance(data, str | Path) and is_file_of_rows(data, file_format):
        if scheduler is not None:
            raise InputError(f"{data}: workers score datasets, not files: ingest it first, or remove --scheduler")
        return _score_file(model, data, need_labels, file_format, columns, ignores)
    source: RowSource = open_dataset(data, columns.label) if isinstance(data, str | Path) else data
    useless = [name for name in OF_FILES if getattr(columns, name) != getattr(AS_IT_IS, name)]
    if useless := (["format"] if file_format is not None else []) + useless:
        option = "id" if useless[0] == "index" else useless[0].replace("_", "-")
        raise InputError(f"{source.name}: --{option} has no effect on a dataset, only on files: remove it")
    if need_labels and source.classes is None and not source.has_targets:
        raise InputError(f"{source.name}: there are no labels to compare the predictions with; give rows with labels")
    if need_labels and source.has_targets and model.problem.has_classes:
        raise InputError(
            f"{source.name}: its labels are regression targets, but the model predicts classes; ingest the rows "
            "without --regression"
        )
    if need_labels:
        _compare_labels(model, source.name, source.has_label_sets)
    compile_scores(model, source.is_sparse, need_labels)
    source = _fit_width(model, source, ignores)
    if scheduler is None:
        return score_chunks(model, source)
    return score_on_workers(model, source, scheduler, _count_work(model, source), memory_bytes)


def _fit_width(model: Model, source: RowSource, ignores: bool) -> RowSource:
    """Return the source without features that the model does not know. Raises InputError for them unless `ignores`."""
    d = model.n_features
    if source.features is not None or source.n_features <= d:
        return source
    if not ignores:
        raise _refuse_width(model, source.name, source.n_features)
    _warn_of_width(model, source.name, source.n_features)
    names, scaling = source.feature_names, source.scaling
    if scaling is not None:
        scaling = replace(scaling, offset=scaling.offset[:d], factor=scaling.factor[:d])
    facts = {"n_features": d, "scaling": scaling, "feature_names": None if names is None else names[:d]}
    view: Any = View(source, RowTransform(partial(_keep_known, d=d)), **facts)
    return view  # type: ignore[no-any-return]


def _keep_known(rows: Rows, *, d: int) -> Rows:
    return replace(rows, X=_keep_features(rows.X, d))


def _keep_features(X: Matrix, d: int) -> Matrix:
    return X.keep_features(d) if isinstance(X, CsrRows) else np.ascontiguousarray(X[:, :d])


def _refuse_width(model: Model, name: str | Path, n_features: int) -> InputError:
    table = "" if model.encoding is None else "a table that was encoded as "
    return InputError(
        f"{name}: rows of {say_count(n_features, 'feature')}; the model was trained on {table}"
        f"{say_count(model.n_features, 'feature')}; "
        "`predict` and `evaluate` leave out the others with --unknown-features ignore"
    )


def _warn_of_width(model: Model, name: str | Path, n_features: int) -> None:
    known, unknown = model.n_features, n_features - model.n_features
    told = "%s: its rows have %s; the model was trained on %s, so the last %s ignored"
    last = "feature is" if unknown == 1 else f"{unknown:,} features are"
    LOGGER.warning(told, name, say_count(n_features, "feature"), say_count(known, "feature"), last)


def _compare_labels(model: Model, name: str | Path, has_sets: bool) -> None:
    """Raise InputError unless both the rows and the training rows have sets of labels, or neither has."""
    if has_sets != model.problem.has_label_sets:
        have, trained = ("sets of labels", "one label each") if has_sets else ("one label each", "sets of labels")
        raise InputError(f"{name}: its rows have {have}, but the training rows had {trained}")


def recall_column(model: Model, role: str, data: Data, file_format: str | None) -> str | None:
    """Return the column that held the labels or query ids (role "label" or "qid") in training, if the rows have it."""
    known: str | None = model.info.get(f"{role}_column")
    if known is None or not isinstance(data, str | Path):
        return None
    if is_file_of_rows(data, file_format):
        return known if role in find_format(_find_kind(model, data, file_format)).reads else None
    return known if role == "label" and "arrays" not in open_dataset(data).meta else None  # AnnData has label columns


def is_file_of_rows(data: str | Path, file_format: str | None) -> bool:
    """Return whether a path names a file of rows, rather than a dataset. For a URL, its ending decides."""
    if is_remote(data):
        return file_format is not None or has_known_ending(data)
    return "://" not in str(data) and (not Path(data).is_dir() or is_folder_of_files(data))


FILE_BYTES = 96 << 20  # Arrow, and the compiled functions of readers
PIECE_BYTES, PIECE_COPIES = 48 << 20, 6  # a block of text of 8 MiB, and what is made of it
TILE_COPIES = 8  # a tile in float64, its scores and kernel values, in a thread
SCORE_COPIES = 3  # the scores of a chunk, joined and handed on


def memory_kept_for(
    model: Model, data: Data, file_format: str | None, memory_bytes: int | None, row_bytes: int = 0
) -> AbstractContextManager[None]:
    """Return a context in which scores of the rows take at most memory_bytes in this process (None: no limit).

    row_bytes: what the caller holds for each row of a dataset; without effect for a file, whose rows are not counted.
    Entering raises MemoryBudgetError if that is impossible.
    """
    if memory_bytes is None:  # do not list a store or open a dataset for nothing
        return nullcontext()
    if isinstance(data, str | Path) and is_file_of_rows(data, file_format):
        # The reader and the scorer hold one piece more than they have threads each.
        piece = min(PIECE_BYTES, PIECE_COPIES * guess_bytes(list_files([data])))
        return memory_kept(memory_bytes, lambda threads: FILE_BYTES + 2 * (threads + 1) * piece)
    source: RowSource = open_dataset(data) if isinstance(data, str | Path) else data
    work, chunk = _count_work(model, source)

    def count(threads: int) -> int:
        return threads * work + (threads + 2) * chunk + row_bytes * source.n_rows

    return memory_kept(memory_bytes, count)


def _count_work(model: Model, source: RowSource) -> tuple[int, int]:
    """Return the bytes that a thread needs to score a chunk, and the bytes of the largest chunk's scores."""
    row_scores = 8 * math.prod(model.score_shape) + 16
    chunk = SCORE_COPIES * row_scores * int(np.diff(source.chunk_starts).max())
    return source.stream_bytes() + TILE_COPIES * TILE_BYTES, chunk


def _score_file(
    model: Model, path: str | Path, need_labels: bool, file_format: str | None, given: Columns, ignores: bool
) -> Iterator[Scored]:
    """Yield the scores of the rows of a file, piece by piece. Each thread works on one piece in memory."""
    columns = _choose_columns(model, path, need_labels, file_format, given)

    def score_piece(piece: tuple[Matrix, SourceRows]) -> Scored:
        X, rows = piece
        with naming(path):
            scores = model.decide(as_rows(model, X))
        labels: Any = rows.labels
        truth = None if labels is None else model.problem.code_labels(labels, model.classes)
        return Scored(scores, truth, rows.qid, rows.row_names)

    opened = open_files([path], file_format, columns, known=recall_syntax(model))
    pieces = _check_pieces(model, path, need_labels, ignores, opened)
    yield from score_ahead(pieces, score_piece, default_threads())


def _choose_columns(
    model: Model, path: str | Path, need_labels: bool, file_format: str | None, given: Columns
) -> Columns:
    """Return the roles of a file's columns; the features are those of the training, found by name."""
    encoding = model.encoding
    return replace(
        given,
        features=model.feature_names if encoding is None else encoding.column_names,
        require_label=need_labels,
        encoding=encoding,
        label_kind=choose_label_kind(model.classes, not model.problem.has_classes),
        index=encoding.index if encoding is not None and given.index is None else given.index,
        multi_label=model.problem.has_label_sets and _find_kind(model, path, file_format) == TEXT_OF_LISTS,
    )


def _find_kind(model: Model, data: str | Path, file_format: str | None) -> str:
    """Return the format of a file, or of the first file of a pattern or a folder. For a URL, its ending decides."""
    known = recall_syntax(model).get("format")
    return file_format or guess_format(data if is_remote(data) else list_files([data])[0], known)


def recall_syntax(model: Model) -> dict[str, Any]:
    """Return the syntax of the files of the training rows (see ingestion.readers.describe_syntax)."""
    known = model.info.get("read_as", {})
    named = (model.info[name] for name in ("label_column", "qid_column") if name in model.info)
    return {"base": 1, **known, "others": [*known.get("others", ()), *named]}


def _check_pieces(
    model: Model, path: str | Path, need_labels: bool, ignores: bool, pieces: Iterator[SourceRows]
) -> Iterator[tuple[Matrix, SourceRows]]:
    """Yield each piece of a file, preceded by its features. Raises InputError for rows that do not suit the model."""
    widest = model.n_features
    for rows in pieces:
        if need_labels and rows.labels is None:
            raise InputError(f"{path}: there are no labels to compare the predictions with; give rows with labels")
        if rows.labels is not None:
            _compare_labels(model, path, isinstance(rows.labels, LabelLists))
        if model.problem.has_classes:
            rows.require_classes()
        X = as_matrix(rows.X)
        if X.shape[1] > model.n_features:
            if not ignores:
                raise _refuse_width(model, path, X.shape[1])
            widest = max(widest, X.shape[1])
            X = _keep_features(X, model.n_features)
        compile_scores(model, isinstance(X, CsrRows), need_labels)
        yield X, rows
    if widest > model.n_features:
        _warn_of_width(model, path, widest)


def as_rows(model: Model, X: Matrix) -> Matrix:
    """Return raw rows rounded to float32, or unchanged if the model scales them first."""
    return X if model.row_scaling is not None else round_features(X, None)


def score_frame(model: Model, frame: Any) -> Iterator[Scored]:
    """Yield the scores of the rows of a frame, encoded as the training rows were."""
    encoding = model.encoding
    assert encoding is not None
    known = recall_syntax(model)
    own: dict[str, Any] = {"date_format": known.get("date_format"), "others": tuple(known["others"])}
    columns = Columns(features=encoding.column_names, require_label=False, encoding=encoding, **own)
    for rows in open_frame(frame, {}, columns):
        X = as_matrix(rows.X)
        compile_scores(model, isinstance(X, CsrRows))
        yield Scored(model.decide(as_rows(model, X)))
