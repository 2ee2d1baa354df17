"""scikit-learn estimators; they translate, and leave the work to train and predict."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamsvm.data.dataset import Dataset, RowSource, open_dataset
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.sources import ingest
from streamsvm.errors import InputError
from streamsvm.machine import parse_bytes
from streamsvm.models import LinearModel
from streamsvm.predict import score_chunks
from streamsvm.train import Result, TrainOptions, train

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client


class LinearSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear support-vector classifier for two classes, with a certificate, on data of any size.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i max(0, 1 - y_i (w.x_i + b))

    C_i = C * class_weight[y_i] * sample_weight_i; the bias is penalised, as in LIBLINEAR. Training stops when the
    relative duality gap over all rows is at most `tol`, and says "converged" in `status_` only then.

    Parameters: C, solver ("cutting-plane"), tol, class_weight (None, "balanced" or a dict), intercept_scaling, memory
    ("2GB": the whole resident memory of a process; None: half of the machine's), n_jobs (threads; None: all cores),
    client (a Dask Client), checkpoint (a folder: training goes on from what is there), max_passes, acceleration
    ("line-search", or "none": Algorithm 1 of Joachims 2006), epsilon (its stop), random_state (a seed).

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
        with self._open_source(X, y, sample_weight) as source:
            result = train(
                source, self._options(), out=self.checkpoint, resume=self.checkpoint is not None, client=self.client
            )
        return self._take_over(result)

    def decision_function(self, X: Any) -> Any:
        """w.x + b for each row: (n,) float64; a Dask array for Dask rows."""
        check_is_fitted(self)
        if _is_dask(X):
            return _lazily(X, self.decision_function, np.dtype(np.float64))
        if _is_dataset(X):
            dataset = X if isinstance(X, Dataset) else open_dataset(X)
            return np.concatenate([scores for _, scores, _ in score_chunks(self.model_, dataset)])
        rows = _validate(self, X, reset=False)
        source = ArrayDataset(rows, None, None)
        return np.concatenate([scores for _, scores, _ in score_chunks(self.model_, source, 1)])

    def predict(self, X: Any) -> Any:
        """Class of each row; a Dask array for Dask rows."""
        check_is_fitted(self)
        if _is_dask(X):
            return _lazily(X, self.predict, self.classes_.dtype)
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean accuracy; y=None with a dataset that has labels."""
        if y is None and _is_dataset(X):
            dataset = X if isinstance(X, Dataset) else open_dataset(X)
            known = dataset.vectors["y"].read(0, dataset.n_rows)
            y = np.asarray(dataset.classes)[known]
        return float(super().score(X, np.asarray(y), sample_weight))

    def save(self, path: str | Path) -> None:
        """Write the model to a file that `streamsvm.load` reads; no pickle."""
        check_is_fitted(self)
        self.model_.save(path)

    def _options(self) -> TrainOptions:
        options = {"acceleration": self.acceleration, "intercept_scaling": str(self.intercept_scaling)}
        if self.epsilon is not None:
            options["epsilon"] = str(self.epsilon)
        weight = self.class_weight if self.class_weight is None or isinstance(self.class_weight, str) else dict(self.class_weight)
        return TrainOptions(
            C=self.C,
            solver=self.solver,
            class_weight=weight,
            tol=self.tol,
            memory_bytes=None if self.memory is None else parse_bytes(self.memory),
            threads=None if self.n_jobs in (None, -1) else self.n_jobs,
            max_passes=self.max_passes,
            options=options,
        )

    @contextmanager
    def _open_source(self, X: Any, y: Any, sample_weight: Any) -> Iterator[RowSource]:
        if _is_dataset(X):
            if y is not None or sample_weight is not None:
                raise InputError("a dataset has its own labels and weights: leave y and sample_weight out")
            yield X if isinstance(X, Dataset) else open_dataset(X)
        elif _is_dask(X) or self.client is not None:
            with TemporaryDirectory(prefix="streamsvm") as folder:
                yield ingest(X, Path(folder) / "rows.zarr", y, sample_weight=sample_weight)
        else:
            yield self._check_arrays(X, y, sample_weight)

    def _check_arrays(self, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
        rows, labels = _validate(self, X, y, reset=True)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) > 2:
            raise ValueError(f"Only binary classification is supported. The type of the target is multiclass: {len(classes)} classes.")
        if len(classes) < 2:
            raise ValueError(f"one class only ({classes[0]}): a classifier needs two classes")
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        return ArrayDataset(rows, codes.astype(np.int32), classes, weight)

    def _take_over(self, result: Result) -> Self:
        self.model_: LinearModel = result.model
        self.result_ = result
        self.coef_ = result.model.coef[None, :]
        self.intercept_ = np.array([result.model.intercept])
        self.classes_ = result.model.classes
        self.n_features_in_ = result.n_features
        if result.model.feature_names is not None:
            self.feature_names_in_ = np.array(result.model.feature_names, dtype=object)
        self.n_iter_, self.n_passes_ = result.steps, result.passes
        self.objective_, self.lower_bound_, self.gap_ = result.objective, result.lower_bound, result.relative_gap
        self.status_, self.history_ = result.status, result.history
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


def _validate(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
    """Return what scikit-learn makes of rows (and labels), CSR for sparse ones, float32 or float64."""
    checked = validate_data(estimator, X, y, reset=reset, accept_sparse="csr", dtype=[np.float32, np.float64], accept_large_sparse=True)
    rows, *rest = checked if isinstance(checked, tuple) else (checked,)
    rows = csr_array(rows) if issparse(rows) else rows
    return (rows, *rest) if rest else rows


def _is_dataset(X: Any) -> bool:
    return isinstance(X, Dataset | str | Path)


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def _lazily(X: Any, function: Any, dtype: np.dtype[Any]) -> Any:
    """Apply to each chunk of Dask rows when it is computed."""
    array = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    return array.rechunk({1: -1}).map_blocks(function, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype))
