"""scikit-learn estimators; they translate, and leave the work to train and predict."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamsvm.data.dataset import Dataset, open_dataset
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.source import RowSource
from streamsvm.data.sources import ingest
from streamsvm.errors import InputError
from streamsvm.machine import parse_bytes
from streamsvm.models import LinearModel
from streamsvm.models import load as load_model
from streamsvm.numeric.rows import F64, CsrRows
from streamsvm.options import TrainOptions
from streamsvm.predict import evaluate, score_chunks
from streamsvm.solvers.protocol import Progress
from streamsvm.train import train

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client


class LinearSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear support-vector classifier for two classes, with a certificate, on data of any size.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i max(0, 1 - y_i (w.x_i + b))

    C_i = C * class_weight[y_i] * sample_weight_i; the bias is penalised, as in LIBLINEAR. Training stops when the
    relative duality gap over all rows is at most `tol`, and says "converged" in `status_` only then. On a dataset that
    is scaled, coef_ and intercept_ belong to scaled rows; predictions scale raw rows themselves.

    Parameters: C, solver ("cutting-plane"), tol, class_weight (None, a dict, or "balanced": n / (2 n_k), where a row
    counts as much as its sample weight, as in scikit-learn's LinearSVC since 1.7), intercept_scaling, memory ("2GB":
    the whole resident memory of a process; None: half of the machine's), n_jobs (threads; None: all cores), client (a
    Dask Client), checkpoint (a folder: training goes on from what is there, Ctrl-C leaves it), max_passes,
    resident_rows (not built yet: None), acceleration ("line-search", or "none": Algorithm 1 of Joachims 2006), epsilon
    (its stop), random_state (a seed).

    fit takes a Dataset or the path of one (y=None), NumPy, SciPy sparse, pandas, or Dask (written to a passing dataset
    chunk by chunk, never held whole). Fitted: coef_ (1, d), intercept_ (1,), classes_, n_features_in_, n_iter_,
    n_passes_, objective_, lower_bound_, gap_, status_, history_, result_, model_.
    """

    def __init__(
        self, C: float = 1.0, *, solver: str = "cutting-plane", tol: float = 1e-3, class_weight: Any = None,
        intercept_scaling: float = 1.0, memory: str | int | None = None, resident_rows: int | str | None = None,
        n_jobs: int | None = None, client: Client | None = None, checkpoint: str | Path | None = None,
        max_passes: int | None = None, acceleration: str = "line-search", epsilon: float | None = None,
        random_state: int | None = 0,
    ) -> None:  # fmt: skip
        self.C = C
        self.solver = solver
        self.tol = tol
        self.class_weight = class_weight
        self.intercept_scaling = intercept_scaling
        self.memory = memory
        self.resident_rows = resident_rows
        self.n_jobs = n_jobs
        self.client = client
        self.checkpoint = checkpoint
        self.max_passes = max_passes
        self.acceleration = acceleration
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train; see the class. ValueError (InputError) for bad data and settings."""
        options, resume = self._options(), self.checkpoint is not None
        with self._open_source(X, y, sample_weight) as source:
            result = train(source, options, out=self.checkpoint, resume=resume, client=self.client)
        if result.status == "interrupted":
            raise KeyboardInterrupt(f"the checkpoint is in {self.checkpoint}: fit again to go on")
        assert isinstance(result.model, LinearModel)
        self._take_model(result.model, getattr(y, "dtype", None))
        self.result_, self.history_ = result, result.history
        self.n_iter_, self.n_passes_ = result.steps, result.passes
        return self

    def decision_function(self, X: Any) -> Any:
        """w.x + b for each row: (n,) float64; a Dask array for Dask rows."""
        check_is_fitted(self)
        if _is_dask(X):
            self._check_columns(X)
            rows = X.to_dask_array() if hasattr(X, "to_dask_array") else X
            # not a method: the estimator may hold a client, which cannot be sent to workers
            decide = partial(_decide, self.model_)
            return rows.map_blocks(decide, drop_axis=1, dtype=np.float64, meta=np.empty(0))
        if _is_dataset(X):
            dataset = X if isinstance(X, Dataset) else open_dataset(X)
            return np.concatenate([part.scores for part in score_chunks(self.model_, dataset)])
        return _decide(self.model_, _validate(self, X, reset=False))

    def predict(self, X: Any) -> Any:
        """Class of each row; a Dask array for Dask rows."""
        scores, choose = self.decision_function(X), partial(_choose, self.classes_)
        return scores.map_blocks(choose, dtype=self.classes_.dtype) if _is_dask(X) else choose(scores)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean accuracy; y=None with a dataset that has labels."""
        if y is None and _is_dataset(X):
            check_is_fitted(self)
            _refuse_columns(sample_weight)
            return float(evaluate(self.model_, X)["accuracy"])
        weight = None if sample_weight is None else np.asarray(sample_weight)
        return float(accuracy_score(np.asarray(y), np.asarray(self.predict(X)), sample_weight=weight))

    def save(self, path: str | Path) -> None:
        """Write the model to a file from which `streamsvm.load` makes a fitted estimator; no pickle."""
        check_is_fitted(self)
        self.model_.save(path)

    def _options(self) -> TrainOptions:
        options = {"acceleration": self.acceleration, "intercept_scaling": str(self.intercept_scaling)}
        if self.epsilon is not None:
            options["epsilon"] = str(self.epsilon)
        if self.resident_rows is not None:
            raise InputError("resident_rows is not built yet: leave it None")
        if not (self.n_jobs in (None, -1) or self.n_jobs > 0):
            raise InputError(f"n_jobs is {self.n_jobs}; a number of threads, or -1 or None for all cores, is expected")
        return TrainOptions(
            C=self.C,
            solver=self.solver,
            class_weight=self.class_weight,
            tol=self.tol,
            memory_bytes=None if self.memory is None else parse_bytes(self.memory),
            threads=None if self.n_jobs in (None, -1) else self.n_jobs,
            max_passes=self.max_passes,
            seed=int(self.random_state or 0),
            options=options,
        )

    @contextmanager
    def _open_source(self, X: Any, y: Any, sample_weight: Any) -> Iterator[RowSource]:
        if _is_dataset(X):
            _refuse_columns(y, sample_weight)
            yield X if isinstance(X, Dataset) else open_dataset(X)
        elif _is_dask(X) or self.client is not None:
            if y is None:
                raise InputError("LinearSVC requires y to be passed, but the target y is None")
            with TemporaryDirectory(prefix="streamsvm") as folder:
                dataset = ingest(X, Path(folder) / "rows.zarr", y, sample_weight=sample_weight)
                _require_two(dataset.classes)
                yield dataset
        else:
            yield self._check_arrays(X, y, sample_weight)

    def _check_arrays(self, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
        rows, labels = _validate(self, X, y, reset=True)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        _require_two(classes)
        weight = sample_weight
        if weight is not None:
            weight = _check_sample_weight(weight, rows, dtype=np.float64, ensure_non_negative=True)
        classes = np.asarray(classes.tolist())  # no objects: a model is saved without pickle
        source = ArrayDataset(rows, codes.astype(np.int32), classes, weight)
        source.feature_names = tuple(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        if self.checkpoint is not None:
            source.fingerprint = _hash_rows(source)
        return source

    def _take_model(self, model: LinearModel, label_dtype: Any = None) -> None:
        """Set the attributes that a model file tells."""
        self.model_ = model
        self.coef_, self.intercept_ = model.coef[None, :], np.array([model.intercept])
        same_kind = isinstance(label_dtype, np.dtype) and label_dtype.kind in "biufO"
        self.classes_ = model.classes.astype(label_dtype) if same_kind else model.classes
        self.n_features_in_ = len(model.coef)
        self.__dict__.pop("feature_names_in_", None)
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        self.status_, self.objective_ = model.info["status"], model.info["objective"]
        self.lower_bound_ = model.info["lower_bound"]
        self.gap_ = Progress(self.objective_, self.lower_bound_, 0).relative_gap

    def _check_columns(self, X: Any) -> None:
        """Check Dask rows before anything is computed, as scikit-learn does with rows in memory."""
        names = [str(name) for name in getattr(X, "columns", ())]
        if names and hasattr(self, "feature_names_in_") and names != self.feature_names_in_.tolist():
            raise ValueError("The feature names should match those that were passed during fit, in the same order.")
        if X.shape[1] != self.n_features_in_:
            expected = f"LinearSVC is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {X.shape[1]} features, but {expected}")

    def __getstate__(self) -> dict[str, Any]:
        """Leave the client out: a connection can be neither pickled nor copied."""
        return {**super().__getstate__(), "client": None}

    def __sklearn_clone__(self) -> Self:
        """Clone, with the same client."""
        clone: Self = super(LinearSVC, copy(self)).__sklearn_clone__()
        return clone.set_params(client=self.client)  # type: ignore[no-any-return]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


def load(path: str | Path) -> LinearSVC:
    """Return the fitted estimator of a model's file or a run's folder, ready to predict; runs no code.

    Its parameters are the defaults but for C and solver; n_iter_, n_passes_, history_ and result_, which tell of the
    training and not of the model, are left out. InputError if there is no model.
    """
    model = load_model(path)
    if not isinstance(model, LinearModel):
        raise InputError(f"{path}: a kernel model, which no estimator holds yet; use the command `streamsvm predict`")
    try:
        estimator = LinearSVC(C=model.info["C"], solver=model.info["solver"])
        estimator._take_model(model)
    except KeyError as error:
        raise InputError(f"{path}: not a model that streamsvm trained ({error} is missing)") from error
    return estimator


def _validate(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
    """Return what scikit-learn makes of rows (and labels), CSR for sparse ones, float32 or float64."""
    checked = validate_data(estimator, X, y, reset=reset, accept_sparse="csr", dtype=[np.float32, np.float64])
    rows, *rest = checked if isinstance(checked, tuple) else (checked,)
    rows = csr_array(rows) if _is_sparse(rows) else rows
    return (rows, *rest) if rest else rows


def _is_dataset(X: Any) -> bool:
    return isinstance(X, Dataset | str | Path)


def _is_sparse(X: Any) -> bool:
    return bool(issparse(X))


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def _decide(model: LinearModel, X: Any) -> F64:
    """w.x + b for rows in memory, NumPy or sparse, a chunk at a time."""
    source = ArrayDataset(csr_array(X) if _is_sparse(X) else np.asarray(X), None, None)
    return np.concatenate([np.empty(0), *(part.scores for part in score_chunks(model, source, 1))])


def _hash_rows(source: ArrayDataset) -> str:
    """Return the SHA-256 of all rows, by which a later fit knows that a checkpoint is of the same ones."""
    digest = hashlib.sha256(f"{source.n_rows} {source.n_features}".encode())
    for rows in map(source.read, range(source.n_chunks)):
        parts = (rows.X.data, rows.X.indices, rows.X.indptr) if isinstance(rows.X, CsrRows) else (rows.X,)
        for part in (*parts, rows.y, rows.sample_weight):
            digest.update(b"none" if part is None else np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _choose(classes: npt.NDArray[Any], scores: F64) -> Any:
    return classes[(scores > 0).astype(int)]


def _require_two(classes: Any) -> None:
    if len(classes) > 2:
        found = f"The type of the target is multiclass: {len(classes)} classes."
        raise InputError(f"Only binary classification is supported. {found}")
    if len(classes) < 2:
        raise InputError(f"one class only ({classes[0]}): a classifier needs two classes")


def _refuse_columns(*columns: Any) -> None:
    if any(column is not None for column in columns):
        raise InputError("a dataset has its own labels and weights: leave y and sample_weight out")
