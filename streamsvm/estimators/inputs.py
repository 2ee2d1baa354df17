"""The input of estimators: NumPy, SciPy sparse, pandas, Dask, or a dataset. It is checked and becomes a RowSource."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import is_classifier, is_outlier_detector, is_regressor
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from streamsvm.data.arrays import count_label_axes, place_rows
from streamsvm.data.checks import check_targets
from streamsvm.data.dataset import Dataset
from streamsvm.data.frames import list_texts
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.ingest_options import IngestOptions
from streamsvm.data.labels import name_classes, refuse_name, settle_type, to_label_lists
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.pieces import comes_from, is_stored, is_tensor, refuse_lazy, refuse_unsuitable, to_numpy
from streamsvm.data.readers import ingest
from streamsvm.data.source import RowSource
from streamsvm.data.values import LEAST_WEIGHT, TOO_SMALL, to_groups, to_qid
from streamsvm.engines.workers import connect, require_synchronous
from streamsvm.errors import InputError
from streamsvm.numeric.calibration import CALIBRATIONS
from streamsvm.numeric.rows import I64, U8, CsrRows
from streamsvm.options import list_labels
from streamsvm.problems.ranking import RANK

PACKED_ROWS = 1 << 16  # rows of an indicator matrix that are packed at a time


@contextmanager
def connected(estimator: Any) -> Iterator[None]:
    """Let the estimator have a client while it is fitted, if its parameter `client` is the address of a scheduler."""
    address = estimator.client
    if not isinstance(address, str):
        if address is not None:
            require_synchronous(address)
        yield
        return
    with connect(address) as client:
        estimator.client = client
        try:
            yield
        finally:
            estimator.client = address


@contextmanager
def open_source(
    estimator: Any, X: Any, y: Any, sample_weight: Any, qid: Any = None, groups: Any = None
) -> Iterator[RowSource]:
    """Open rows and labels for training.

    Rows that are not in memory (of Dask, Zarr, HDF5, or an iterator of blocks), and all rows if the estimator has a
    client, are written to a temporary dataset, which is read chunk by chunk, and which workers can read.
    """
    refuse_unsuitable(X=X, y=y, sample_weight=sample_weight, qid=qid, groups=groups)
    refuse_name(y)
    refuse_lazy(X)
    refuse_lazy(y, "y")
    X, y = (to_numpy(values) if is_tensor(values) else values for values in (X, y))
    if is_dataset(X):
        refuse_columns(y, sample_weight, qid, groups)
        yield X if isinstance(X, Dataset) else open_dataset(X)
    elif is_elsewhere(X) or estimator.client is not None:
        if not isinstance(X, Iterator):
            _require_labels(estimator, y)
        if y is not None and count_label_axes(y) == 2 and not takes_label_sets(estimator, y):
            raise InputError(f"{type(estimator).__name__} takes one label for each row, and no matrix of labels")
        with TemporaryDirectory(prefix="streamsvm") as folder:
            options = IngestOptions(regression=is_regressor(estimator))
            rows = Path(folder) / "rows.zarr"
            with nullcontext() if estimator.client is None else estimator.client.as_current():
                dataset = ingest(X, rows, y, sample_weight=sample_weight, qid=qid, groups=groups, options=options)
            _require_labels(estimator, dataset.classes if dataset.has_targets is False else dataset.n_rows)
            if is_classifier(estimator) and not dataset.has_label_sets:
                _require_two(dataset.classes)
            yield dataset
    else:
        yield _check_arrays(estimator, X, y, sample_weight, qid, groups)


def warn_of_queries(source: RowSource, task: str) -> None:
    """Warn if the rows belong to queries, and the training does not learn their order."""
    if task != RANK.name and (source.vectors if isinstance(source, Dataset) else vars(source)).get("qid") is not None:
        told = f"the task {task!r} does not read its query ids; RankSVM learns the order of the rows of each query"
        warnings.warn(f"{source.name}: {told}", UserWarning, stacklevel=2)


def _check_arrays(estimator: Any, X: Any, y: Any, sample_weight: Any, qid: Any, groups: Any) -> ArrayDataset:
    """Return rows in memory as a source; InputError or ValueError for unsuitable rows or labels."""
    _require_labels(estimator, y)
    if takes_label_sets(estimator, y):
        source = _add_groups(_check_label_sets(estimator, X, y, sample_weight), groups)
        return _tell_apart(estimator, source)
    rows, labels = (validate(estimator, X, reset=True), None) if y is None else validate(estimator, X, y, reset=True)
    if labels is None:
        source = _make_source(estimator, rows, None, None, sample_weight)
    elif is_regressor(estimator):
        source = _add_targets(_make_source(estimator, rows, None, None, sample_weight), labels)
    else:
        source = _make_source(estimator, rows, labels, _find_classes(estimator, labels), sample_weight)
    if qid is not None:
        source.qid = read_queries(qid)
        check_consistent_length(rows, source.qid)
    return _tell_apart(estimator, _add_groups(source, groups))


def _add_groups(source: ArrayDataset, groups: Any) -> ArrayDataset:
    """Give the rows of the source their groups, if there are any; InputError for a group that is none."""
    if groups is not None:
        check_consistent_length(range(source.n_rows), groups)
        source.groups = to_groups(np.asarray(groups), lambda i: f"groups: row {i + 1} (counted from 1)")
    return source


def read_queries(qid: Any) -> I64:
    """Return the numbers of the queries of rows, which may be texts; InputError for other values."""
    return to_qid(np.asarray(column_or_1d(qid)), place_rows("qid", 0))


def _tell_apart(estimator: Any, source: ArrayDataset) -> ArrayDataset:
    """Return the source with a fingerprint by which a later fit knows it, if the estimator has a checkpoint."""
    if estimator.checkpoint is not None:
        source.fingerprint = _hash_rows(source)
    return source


def choose_calibration(probability: Any) -> str | None:
    """Return the name of the calibration that the parameter `probability` asks for, or None; InputError for others."""
    if isinstance(probability, str):
        if probability not in CALIBRATIONS:
            raise InputError(f"probability is {probability!r}; True, False, or one of {', '.join(CALIBRATIONS)}")
        return probability
    return "sigmoid" if probability else None


def takes_label_sets(estimator: Any, y: Any) -> bool:
    """Whether y is an indicator matrix with a column for each of several labels, and the estimator takes such."""
    return bool(getattr(estimator, "takes_label_sets", False)) and y is not None and count_label_axes(y) == 2


def _check_label_sets(estimator: Any, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
    """Return rows in memory, with the labels of an indicator matrix, as a source; InputError for unsuitable ones."""
    rows = validate(estimator, X, reset=True)
    check_consistent_length(rows, y)
    has = csr_array(y) if is_sparse(y) else np.asarray(y)
    labels, starts = np.arange(has.shape[1]), range(0, has.shape[0], PACKED_ROWS)
    if len(labels) < 2:
        raise InputError("y: a matrix of labels has at least two columns")
    parts = [to_label_lists(has[at : at + PACKED_ROWS], place_rows("y", at)).to_bits(labels) for at in starts]
    return _make_source(estimator, rows, None, labels, sample_weight, np.concatenate(parts))


def _require_labels(estimator: Any, y: Any) -> None:
    """InputError unless there are labels, or the estimator needs none."""
    if y is None and not is_outlier_detector(estimator):
        raise InputError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")


def _find_classes(estimator: Any, labels: Any) -> Any:
    """Return the classes or ranks among the labels; of a classifier, there must be two."""
    if is_classifier(estimator):
        check_classification_targets(labels)
    classes = np.unique(settle_type(labels, place_rows("y", 0)))
    if is_classifier(estimator):
        _require_two(classes)
    return classes


def check_chunk(estimator: Any, X: Any, y: Any, classes: Any, sample_weight: Any, *, reset: bool) -> ArrayDataset:
    """Return a chunk of a stream, in which not every class need occur, as a source. reset: whether it is the first."""
    refuse_name(y)
    rows, labels = validate(estimator, X, y, reset=reset)
    check_classification_targets(labels)
    known = np.unique(settle_type(np.asarray(classes), place_rows("classes", 0)))
    _require_two(known)
    if not np.isin(labels, known).all():
        unknown = labels[~np.isin(labels, known)][0]
        raise InputError(f"y has the label {unknown}, but the classes of the stream are {list_labels(known)}")
    return _make_source(estimator, rows, labels, known, sample_weight)


def check_target_chunk(estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> ArrayDataset:
    """Return a chunk of a stream of rows with targets as a source. reset: whether it is the first."""
    rows, targets = validate(estimator, X, y, reset=reset)
    return _add_targets(_make_source(estimator, rows, None, None, sample_weight), targets)


def _add_targets(source: ArrayDataset, targets: Any) -> ArrayDataset:
    """Give the rows of the source their targets; InputError for such as cannot be computed with."""
    source.target = np.asarray(settle_type(targets, place_rows("y", 0)), np.float64)
    check_targets(source.target, "y")
    return source


def _make_source(
    estimator: Any, rows: Any, labels: Any, classes: Any, sample_weight: Any, label_sets: U8 | None = None
) -> ArrayDataset:
    """Return checked rows and labels as a source, with checked weights. classes: None for rows without classes."""
    weight = sample_weight
    if weight is not None:
        refuse_unsuitable(sample_weight=weight)
        try:
            weight = _check_sample_weight(weight, rows, dtype=np.float64, ensure_non_negative=True)
        except OverflowError as error:
            raise InputError(f"sample_weight: a weight is too large for float64: {error}") from error
        if np.any((weight > 0) & (weight < LEAST_WEIGHT)):
            raise InputError(f"sample_weight: a weight is {TOO_SMALL}")
    dtype = estimator._choose_dtype(rows.shape[0])
    if classes is None or label_sets is not None:
        source = ArrayDataset(rows, None, classes, weight, label_sets=label_sets, dtype=dtype)
    else:
        codes = np.searchsorted(classes, labels).astype(np.int32)
        named = name_classes(classes, lambda code: place_rows("y", 0)(int(np.argmax(codes == code))))
        source = ArrayDataset(rows, codes, named, weight, dtype=dtype)
    source.feature_names = tuple(estimator.feature_names_in_) if hasattr(estimator, "feature_names_in_") else None
    return source


def check_columns(estimator: Any, X: Any) -> None:
    """Check the columns of Dask rows before anything is computed, as scikit-learn checks those of rows in memory."""
    names = [str(name) for name in getattr(X, "columns", ())]
    if names and hasattr(estimator, "feature_names_in_") and names != estimator.feature_names_in_.tolist():
        raise ValueError("The feature names should match those that were passed during fit, in the same order.")
    if X.shape[1] != estimator.n_features_in_:
        expected = f"{type(estimator).__name__} is expecting {estimator.n_features_in_} features as input"
        raise ValueError(f"X has {X.shape[1]} features, but {expected}")


def validate(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
    """Return rows, and labels if given, as scikit-learn validates them. Sparse rows become CSR, float32 or float64."""
    refuse_lazy(X)
    refuse_unsuitable(X=X, y=y)
    targets = {"y_numeric": True} if is_regressor(estimator) and not isinstance(y, str) else {}
    kinds = [np.float32, np.float64]
    y = to_numpy(y) if isinstance(y, np.ndarray) else y
    try:
        checked = validate_data(estimator, X, y, reset=reset, accept_sparse="csr", dtype=kinds, **targets)
    except ValueError as error:
        if comes_from(X, "pandas") and (texts := list_texts(X)):
            gaps = " and missing='mean' for missing values" if X.isna().to_numpy().any() else ""
            raise InputError(
                f"X: {_list_columns(texts)} not of numbers ({error}); streamsvm.ingest makes a dataset of such a "
                f"frame, with one_hot='auto' for text{gaps}, and `fit` takes the dataset"
            ) from error
        raise
    except OverflowError as error:
        raise InputError(f"a value of X or y is too large for float64: {error}") from error
    rows, *rest = checked if isinstance(checked, tuple) else (checked,)
    rows = csr_array(rows) if is_sparse(rows) else rows
    return (rows, *rest) if rest else rows


def _list_columns(names: list[str]) -> str:
    return f"column {names[0]} is" if len(names) == 1 else f"columns {', '.join(names)} are"


def is_dataset(X: Any) -> bool:
    """Whether X is a dataset or a path."""
    return isinstance(X, Dataset | str | Path)


def is_sparse(X: Any) -> bool:
    """Whether X is a SciPy sparse matrix or array."""
    return bool(issparse(X))


def is_elsewhere(X: Any) -> bool:
    """Whether the rows are not in memory, or would be converted as a whole: integers in a memory map."""
    are_mapped = isinstance(X, np.memmap) and X.dtype.kind != "f"
    return is_dask(X) or is_stored(X) or isinstance(X, Iterator) or are_mapped


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or frame."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def _hash_rows(source: ArrayDataset) -> str:
    """Return the SHA-256 of all rows, by which a later fit knows whether a checkpoint belongs to the same rows."""
    digest = hashlib.sha256(f"{source.n_rows} {source.n_features}".encode())
    for rows in map(source.read, range(source.n_chunks)):
        parts = (rows.X.data, rows.X.indices, rows.X.indptr) if isinstance(rows.X, CsrRows) else (rows.X,)
        for part in (*parts, rows.y, rows.sample_weight, rows.qid, rows.target, rows.groups, rows.label_sets):
            digest.update(b"none" if part is None else np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _require_two(classes: Any) -> None:
    """InputError unless there are at least two classes."""
    if len(classes) < 2:
        raise InputError(f"there is one class only ({classes[0]}): a classifier needs two classes")


def refuse_columns(*columns: Any) -> None:
    """InputError if labels, weights or query ids are given beside a dataset, which has its own."""
    if any(column is not None for column in columns):
        raise InputError("a dataset has its own labels and weights: leave y and sample_weight out")
