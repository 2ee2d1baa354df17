"""The inputs of estimators (NumPy, SciPy sparse, pandas, Dask, or a dataset), checked and opened as a RowSource."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import is_classifier, is_outlier_detector, is_regressor
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources import arrays
from streamsvm.data.sources.dask_collections import require_usable
from streamsvm.data.sources.in_memory import ArrayDataset, list_texts
from streamsvm.data.store.layouts import check_targets
from streamsvm.data.tables import checks
from streamsvm.models.calibration import CALIBRATIONS
from streamsvm.numeric.rows import I64, U8, CsrRows
from streamsvm.numeric.stored_types import look_at_features
from streamsvm.options import require_weights
from streamsvm.problems.ranking import RANK
from streamsvm.runs.held_out import EvalSet
from streamsvm.system import deadline
from streamsvm.system.errors import InputError, list_few

DEPRECATED = "deprecated"  # the default of some of scikit-learn's parameters, which stands for our default
PACKED_ROWS = 1 << 16  # rows of an indicator matrix that are packed at a time


@contextmanager
def connected(estimator: Any) -> Iterator[None]:
    """Connect to the scheduler while the estimator is fitted, if its parameter `client` is an address."""
    address = estimator.client
    if not isinstance(address, str | None):
        require_usable(address)
    reached: AbstractContextManager[Any] = nullcontext(address)
    if isinstance(address, str):
        from streamsvm.engines.cluster.workers import connect  # loads distributed

        reached = connect(address)
    with reached as client:
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

    Rows that are not in memory (Dask, Zarr, HDF5, or an iterator of blocks), and all rows if the estimator has a
    client, are first written to a temporary dataset. It is read chunk by chunk, also by workers.
    """
    arrays.refuse_unsuitable(X=X, y=y, sample_weight=sample_weight, qid=qid, groups=groups)
    checks.refuse_name(y)
    arrays.refuse_lazy(X)
    arrays.refuse_lazy(y, "y")
    X, y = (arrays.to_numpy(values) if arrays.is_tensor(values) else values for values in (X, y))
    if is_dataset(X):
        from streamsvm.data.open import open_dataset  # loads Zarr, as does `ingest` below

        dataset = open_dataset(X) if isinstance(X, str | Path) else X
        refuse_columns(y, sample_weight, qid, groups)
        yield dataset
    elif needs_dataset(X) or estimator.client is not None:
        if not isinstance(X, Iterator):
            _require_labels(estimator, y)
        if y is not None and arrays.count_label_axes(y) == 2 and not takes_label_sets(estimator, y):
            raise InputError(f"{type(estimator).__name__} takes one label for each row, not a matrix of labels")
        of_classes = is_classifier(estimator)
        with _written(estimator, X, y, of_classes, sample_weight=sample_weight, qid=qid, groups=groups) as dataset:
            _require_labels(estimator, dataset.classes if dataset.has_targets is False else dataset.n_rows)
            if of_classes and not dataset.has_label_sets:
                _require_two(dataset.classes)
            yield dataset
    else:
        yield _check_arrays(estimator, X, y, sample_weight, qid, groups)


@contextmanager
def _written(estimator: Any, X: Any, y: Any, needs_two_classes: bool = False, **vectors: Any) -> Iterator[Any]:
    """Write rows to a temporary dataset."""
    from streamsvm.ingestion.ingest import IngestOptions
    from streamsvm.ingestion.readers import ingest

    with TemporaryDirectory(prefix="streamsvm") as folder:
        options = IngestOptions(regression=is_regressor(estimator), needs_two_classes=needs_two_classes)
        on_cluster = nullcontext() if estimator.client is None else estimator.client.as_current()
        with on_cluster, deadline.limit(estimator.max_seconds):
            dataset = ingest(X, Path(folder) / "rows.zarr", y, options=options, **vectors)
        yield dataset


@contextmanager
def open_eval_set(estimator: Any, eval_set: Any) -> Iterator[EvalSet | None]:
    """Open the rows on which the model of each step is measured. Rows that are no dataset are written to one."""
    if eval_set is None:
        yield None
    elif is_dataset(eval_set):
        with open_source(estimator, eval_set, None, None) as source:
            yield EvalSet(source)
    elif isinstance(eval_set, tuple) and len(eval_set) == 2:
        with _written(estimator, *eval_set) as source:
            yield EvalSet(source, given_name="eval_set")
    else:
        raise InputError("eval_set: give a pair (X, y), a dataset or its path")


def warn_about_queries(source: RowSource, task: str) -> None:
    """Warn if rows have query ids and the task does not read them."""
    vectors: Any = vars(source) if isinstance(source, ArrayDataset) else source.vectors  # type: ignore[attr-defined]
    if task != RANK.name and vectors.get("qid") is not None:
        reason = f"the task {task!r} does not read its query ids; RankSVM learns the order of the rows of each query"
        warnings.warn(f"{source.name}: {reason}", UserWarning, stacklevel=2)


def _check_arrays(estimator: Any, X: Any, y: Any, sample_weight: Any, qid: Any, groups: Any) -> ArrayDataset:
    """Return rows in memory as a source. Raises InputError or ValueError for unsuitable rows or labels."""
    source = check_rows(estimator, X, y, sample_weight)
    if qid is not None and not source.has_label_sets:
        source.qid = read_queries(qid)
        check_consistent_length(range(source.n_rows), source.qid)
    if groups is not None:
        check_consistent_length(range(source.n_rows), groups)
        source.groups = checks.to_groups(np.asarray(groups), lambda i: f"groups: row {i + 1} (counted from 1)")
    if estimator.checkpoint is not None:
        source.fingerprint = _hash_rows(source)
    return source


def check_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, classes: Any = None, reset: bool = True
) -> ArrayDataset:
    """Return rows in memory and their labels as a source. Raises InputError or ValueError if they are unsuitable.

    The rows may be a chunk of a stream. classes: all labels of the stream; reset: whether the chunk is the first.
    """
    _require_labels(estimator, y)
    if takes_label_sets(estimator, y):
        return _check_label_sets(estimator, X, y, sample_weight)
    if y is None:
        return _make_source(estimator, validate(estimator, X, reset=reset), None, None, sample_weight)
    checks.refuse_name(y)
    rows, labels = validate(estimator, X, y, reset=reset)
    if not is_regressor(estimator):
        return _make_source(estimator, rows, labels, _find_classes(estimator, labels, classes), sample_weight)
    source = _make_source(estimator, rows, None, None, sample_weight)
    source.target = np.asarray(checks.settle_type(labels, arrays.place_rows("y", 0)), np.float64)
    check_targets(source.target, "y")
    return source


def read_queries(qid: Any) -> I64:
    """Return query ids as numbers. Raises InputError unless they are whole numbers or texts."""
    return checks.to_qid(np.asarray(column_or_1d(qid)), arrays.place_rows("qid", 0))


def choose_calibration(probability: Any) -> str | None:
    """Return the name of the calibration that `probability` selects, or None. Raises InputError for an unknown name."""
    if probability == DEPRECATED:
        return None
    if isinstance(probability, str):
        if probability not in CALIBRATIONS:
            raise InputError(f"probability is {probability!r}; choose True, False, {', '.join(CALIBRATIONS)}")
        return probability
    return "sigmoid" if probability else None


def takes_label_sets(estimator: Any, y: Any) -> bool:
    """Return whether y is an indicator matrix of several labels and the estimator accepts it."""
    return bool(getattr(estimator, "takes_label_sets", False)) and y is not None and arrays.count_label_axes(y) == 2


def _check_label_sets(estimator: Any, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
    """Return rows in memory, with the labels of an indicator matrix, as a source.

    Raises InputError for an invalid matrix.
    """
    rows = validate(estimator, X, reset=True)
    check_consistent_length(rows, y)
    has = csr_array(y) if issparse(y) else np.asarray(y)
    labels, starts = np.arange(has.shape[1]), range(0, has.shape[0], PACKED_ROWS)
    if len(labels) < 2:
        raise InputError("y: a matrix of labels needs at least two columns")
    lists = [checks.to_label_lists(has[at : at + PACKED_ROWS], arrays.place_rows("y", at)) for at in starts]
    bits = np.concatenate([each.to_bits(labels) for each in lists])
    return _make_source(estimator, rows, None, labels, sample_weight, bits)


def _require_labels(estimator: Any, y: Any) -> None:
    """Raise InputError unless there are labels, or the estimator needs none."""
    if y is None and not is_outlier_detector(estimator):
        raise InputError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")


def _find_classes(estimator: Any, labels: Any, given: Any) -> Any:
    """Return the classes or ranks in `given`, or by default in the labels.

    Raises InputError for a classifier with fewer than two classes.
    """
    if is_classifier(estimator):
        check_classification_targets(labels)
    arrays.refuse_unsuitable(classes=given)
    values, name = (labels, "y") if given is None else (np.asarray(given), "classes")
    classes = np.unique(checks.settle_type(values, arrays.place_rows(name, 0)))
    if is_classifier(estimator):
        _require_two(classes)
    if given is not None and not (known := np.isin(labels, classes)).all():
        unknown = labels[~known][0]
        raise InputError(f"y has the label {unknown}, but the classes of the stream are {list_few(classes)}")
    return classes


def _make_source(
    estimator: Any, rows: Any, labels: Any, classes: Any, sample_weight: Any, label_sets: U8 | None = None
) -> ArrayDataset:
    """Return checked rows and labels as a source, with checked weights. classes: None for rows without classes."""
    weight = None
    if sample_weight is not None:
        weight = read_weights(sample_weight)
        require_weights(np.atleast_1d(weight))
        weight = _check_sample_weight(weight, rows, dtype=np.float64)
        weight = checks.to_weights(weight, arrays.place_rows("sample_weight", 0))
    dtype = estimator._choose_dtype(rows.shape[0])
    if classes is None or label_sets is not None:
        source = ArrayDataset(rows, None, classes, weight, label_sets=label_sets, dtype=dtype)
    else:
        codes = np.searchsorted(classes, labels).astype(np.int32)
        named = checks.name_classes(classes, lambda code: arrays.place_rows("y", 0)(int(np.argmax(codes == code))))
        source = ArrayDataset(rows, codes, named, weight, dtype=dtype)
    source.feature_names = tuple(estimator.feature_names_in_) if hasattr(estimator, "feature_names_in_") else None
    return source


def read_weights(sample_weight: Any) -> Any:
    """Return weights, or one weight for all rows, as float64. Raises InputError for values that float64 cannot hold."""
    arrays.refuse_unsuitable(sample_weight=sample_weight)
    given = np.asarray(sample_weight)
    try:
        return given.astype(np.float64, casting="unsafe" if given.dtype.kind == "O" else "same_kind")[()]
    except TypeError as error:
        raise InputError(f"sample_weight: numbers are expected: {error}") from error
    except OverflowError as error:
        raise InputError(f"sample_weight: a weight is too large for float64: {error}") from error


def check_columns(estimator: Any, X: Any) -> None:
    """Check the columns of Dask rows before any computation, as scikit-learn does for rows in memory."""
    names = [str(name) for name in getattr(X, "columns", ())]
    if names and hasattr(estimator, "feature_names_in_") and names != estimator.feature_names_in_.tolist():
        raise ValueError("The feature names should match those that were passed during fit, in the same order.")
    if X.shape[1] != estimator.n_features_in_:
        expected = f"{type(estimator).__name__} is expecting {estimator.n_features_in_} features as input"
        raise ValueError(f"X has {X.shape[1]} features, but {expected}")


def validate(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
    """Return rows, and labels if given, as scikit-learn validates them. Sparse rows become CSR, float32 or float64."""
    arrays.refuse_lazy(X)
    arrays.refuse_unsuitable(X=X, y=y)
    targets = {"y_numeric": True} if is_regressor(estimator) and not isinstance(y, str) else {}
    kinds = [np.float32, np.float64]
    y = arrays.to_numpy(y) if isinstance(y, np.ndarray) else y
    try:
        with np.errstate(invalid="ignore"):  # of a sum of X that overflows; scikit-learn then checks each value
            checked = validate_data(estimator, X, y, reset=reset, accept_sparse="csr", dtype=kinds, **targets)
    except (ValueError, TypeError) as error:
        if arrays.comes_from(X, "pandas", "polars") and (texts := list_texts(X)):
            gaps = X.isna() if arrays.comes_from(X, "pandas") else X.null_count()
            gaps = " and missing='mean' for missing values" if gaps.to_numpy().any() else ""
            raise InputError(
                f"X: column{'s' * (len(texts) > 1)} {', '.join(texts)} must hold numbers ({error}); streamsvm.ingest "
                f"makes a dataset of such a frame, with one_hot='auto' for text{gaps}, and `fit` takes the dataset"
            ) from error
        raise
    except OverflowError as error:
        raise InputError(f"a value of X or y is too large for float64: {error}") from error
    rows, *rest = checked if isinstance(checked, tuple) else (checked,)
    rows = csr_array(rows) if issparse(rows) else rows
    if reset and estimator._choose_dtype(rows.shape[0]) == np.float32:
        names = tuple(getattr(estimator, "feature_names_in_", ()))
        look_at_features(rows, names, False, "X")
    return (rows, *rest) if rest else rows


def is_dataset(X: Any) -> bool:
    """Return whether X is a dataset or a path."""
    if isinstance(X, str | Path) or not arrays.comes_from(X, "streamsvm"):
        return isinstance(X, str | Path)
    from streamsvm.data.store.dataset import Dataset  # loads Zarr

    return isinstance(X, Dataset)


def needs_dataset(X: Any) -> bool:
    """Return whether rows are outside memory, or are integers in a memory map, which would be converted as a whole."""
    are_mapped = isinstance(X, np.memmap) and X.dtype.kind != "f"
    return is_dask(X) or arrays.is_stored(X) or isinstance(X, Iterator) or are_mapped


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array or frame, or wraps a Dask array."""
    return arrays.comes_from(arrays.unwrap(X), "dask")


def _hash_rows(source: ArrayDataset) -> str:
    """Return the SHA-256 of all rows, by which a later fit recognises whether a checkpoint belongs to the same rows."""
    digest = hashlib.sha256(f"{source.n_rows} {source.n_features}".encode())
    for rows in map(source.read, range(source.n_chunks)):
        parts = (rows.X.data, rows.X.indices, rows.X.indptr) if isinstance(rows.X, CsrRows) else (rows.X,)
        for part in (*parts, rows.y, rows.sample_weight, rows.qid, rows.target, rows.groups, rows.label_sets):
            digest.update(b"none" if part is None else np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _require_two(classes: Any) -> None:
    """Raise InputError unless there are at least two classes."""
    if len(classes) < 2:
        raise InputError(f"there is one class only ({classes[0]}): a classifier needs two")


def refuse_columns(*columns: Any) -> None:
    """Raise InputError for labels, weights or query ids that are passed with a dataset, which has its own."""
    if any(column is not None for column in columns):
        raise InputError("a dataset has its own labels and weights: do not pass y or sample_weight")
