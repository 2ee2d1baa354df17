"""What all estimators share: training, scoring, saving, and the methods that scikit-learn expects."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass
from functools import partial
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.frames import has_columns
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.pieces import find_pieces, is_stored, is_tensor, refuse_unsuitable, to_numpy
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.estimators.callbacks import CallbackSupportMixin, StepFunction, listen, to_callback, with_callbacks
from streamsvm.estimators.inputs import (
    check_columns,
    choose_calibration,
    connected,
    is_dask,
    is_dataset,
    is_sparse,
    open_source,
    validate,
    warn_of_queries,
)
from streamsvm.interrupts import caught
from streamsvm.machine import parse_bytes
from streamsvm.methods.feature_map.options import FeatureOptions
from streamsvm.methods.option_fields import name_options
from streamsvm.methods.registry import METHODS
from streamsvm.models.model import KernelModel, Model
from streamsvm.models.scores import score, score_chunks, score_frame
from streamsvm.numeric.kernels import type_of
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions, check_count
from streamsvm.requests import Progress
from streamsvm.training.calibrate import require_folds, train_with_probabilities
from streamsvm.training.on_the_fly import open_rows
from streamsvm.training.result import Result
from streamsvm.training.statuses import STATUSES
from streamsvm.training.train import train

if TYPE_CHECKING:
    from distributed import Client

MOST_THREADS = 1 << 16
STORED_PIECE_BYTES = 8 << 20  # of rows of Zarr and HDF5 that are scored at a time


T = TypeVar("T")


@dataclass_transform()
def with_parameters(estimator: type[T]) -> type[T]:
    """Make the annotated fields of a class its parameters, as `dataclass` does.

    Dask identifies and copies dataclasses by their fields alone, so that two fitted estimators with the same parameters
    would have one token. Hence the attributes by which Dask recognises dataclasses are removed.
    """
    made = dataclass(eq=False, repr=False)(estimator)
    del made.__dataclass_fields__, made.__dataclass_params__  # type: ignore[attr-defined]
    return made


class BaseSVM(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """The base class of all estimators. Subclasses declare their parameters and their solvers' options."""

    C: float
    solver: str
    tol: float
    class_weight: Any
    memory: str | int | None
    resident_rows: int | str | None
    n_jobs: int | None
    client: Client | str | None
    checkpoint: str | Path | None
    max_passes: int | None
    max_seconds: float | None
    random_state: int | None

    def set_callbacks(self, *callbacks: Any) -> Self:
        """Let functions, and callbacks of scikit-learn, be called after each step of a fit. Clones have them, too.

        Parameters
        ----------
        *callbacks : callable, or callback of sklearn.callback
            They replace earlier ones. A function is called with a dictionary, the step's line of `history_`: step,
            passes, seconds, objective, lower_bound, relative_gap (None if nothing is proved) and more. To callbacks
            with scikit-learn's hooks (scikit-learn 1.9) the fit and each step are tasks, whose ends come with an
            estimator that has the model of the step; a hook that returns True ends the fit with the status
            "early_stop". Files keep no callbacks, and pickles no functions.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If one of them is neither a function nor such a callback.
        """
        self._skl_callbacks = [to_callback(callback) for callback in callbacks]
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None) -> Self:
        """Train, and set the fitted attributes."""
        result, source = self._train(X, y, sample_weight, qid)
        self._keep(result, y)
        self._take_rows(source)
        return self

    @with_callbacks  # type: ignore[untyped-decorator]
    def _train(self, X: Any, y: Any, sample_weight: Any, qid: Any) -> tuple[Result, RowSource]:
        """Return the result of a training, and its rows."""
        options, resume = self._options(), self.checkpoint is not None
        way = choose_calibration(getattr(self, "probability", False))
        if way is not None:
            require_folds(options, way)
        with (
            connected(self),
            caught(),
            open_source(self, X, y, sample_weight, qid) as source,
            open_rows(source, self._name_map(), options, self.checkpoint, resume, client=self.client) as rows,
        ):
            warn_of_queries(source, options.task)
            listener = listen(self, self._list_given(X), y, {"sample_weight": sample_weight, "qid": qid})
            given = {"client": self.client, "listener": listener, **rows.arguments}
            given["start_from"] = self._find_start(rows.source, rows.options)
            if way is None:
                result = train(rows.source, rows.options, self.checkpoint, **given)
            else:
                result = train_with_probabilities(rows.source, rows.options, way, self.checkpoint, **given)
        if result.status == "interrupted":
            raise KeyboardInterrupt(f"the checkpoint is in {self.checkpoint}: call fit again to go on")
        listener.end(result.model)
        return result, source

    def _list_given(self, X: Any) -> Any:
        """Return the rows as `predict` takes them."""
        return X

    def _find_start(self, source: RowSource, options: TrainOptions) -> Model | None:  # noqa: ARG002
        """Return the model from whose weights a training starts, or None."""
        return None

    def _keep(self, result: Result, y: Any) -> Self:
        """Set the fitted attributes of a result, and warn if the training has ended before it converged."""
        self._take_model(result.model, getattr(y, "dtype", None))
        self.result_, self.history_ = result, result.history
        self.n_iter_, self.n_passes_ = self._count_steps(result), result.passes
        self._warn_of_limit(result)
        return self

    def _count_steps(self, result: Result) -> Any:
        """Return the number of steps; of many problems it is the number of the problem that took the most."""
        return max((problem.get("steps", result.steps) for problem in result.problems), default=result.steps)

    def _warn_of_limit(self, result: Result) -> None:
        """Give scikit-learn's ConvergenceWarning if a limit has ended the training, or it has stalled."""
        if result.status == "stalled" or not (result.finished or STATUSES[result.status].is_final):
            warnings.warn(self._tell_limit(result), ConvergenceWarning, stacklevel=4)

    def _tell_limit(self, result: Result) -> str:
        """Return what is told of a limit that has ended the training."""
        return f"{type(self).__name__}: {result.status_reason}"

    def _score(self, X: Any, model: Any = None) -> Any:
        """Return f(x) of each row of X, in any form that `fit` takes: (n,) or (n, K), or a Dask array for Dask rows.

        model: another one than that of the fit.
        """
        check_is_fitted(self)
        model = model or self._find_model()
        if is_dask(X):
            check_columns(self, X)
            rows = (X.to_dask_array() if hasattr(X, "to_dask_array") else X).rechunk({1: -1})
            # this is no method, as the estimator may hold a client, which cannot be sent to workers
            decide = partial(_decide, model)
            width = model.score_shape
            shape = {"chunks": (rows.chunks[0], width)} if width else {"drop_axis": 1}
            return rows.map_blocks(decide, **shape, **show_as("score"), dtype=np.float64, meta=np.empty((0, *width)))
        X = to_numpy(X) if is_tensor(X) else X
        with caught():
            if is_stored(X):
                check_columns(self, X)
                pieces = find_pieces("X", X, STORED_PIECE_BYTES)
                return np.concatenate([_decide(model, validate(self, piece, reset=False)) for piece in pieces])
            if is_dataset(X):
                return np.concatenate([part.scores for part in score(model, X)])
            if model.encoding is not None and has_columns(X, model.encoding.column_names):
                return np.concatenate([part.scores for part in score_frame(model, X)])
            return _decide(model, validate(self, X, reset=False))

    def save(self, path: str | Path) -> None:
        """Write the model to a file, without pickle. `streamsvm.load` returns a fitted estimator from it.

        Parameters
        ----------
        path : path
            The file, usually with the suffix .npz. An older file is replaced.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InputError
            If weights or a bias were changed after the fit, since the certificate that the file tells is not theirs.
        """
        check_is_fitted(self)
        if self._find_model() is not self.model_:
            raise InputError("coef_ or intercept_ were changed after fit, and the model's certificate is not theirs")
        self.model_.save(path)

    def _find_model(self) -> Any:
        """Return the model that predicts."""
        return self.model_

    def _name_options(self) -> dict[str, Any]:
        """Return those fields of TrainOptions that not all estimators share."""
        raise NotImplementedError

    def _name_map(self) -> FeatureOptions | None:
        """Return the feature map that makes the rows to learn from, or None."""
        return None

    def _list_own_options(self) -> dict[str, str]:
        """Return the parameters that are options of single methods, as texts, which the methods read and check.

        Only values other than the defaults are passed on, since a method refuses an option that it does not have.
        """
        own = {name for method in METHODS for name in name_options(method.options)}
        defaults = {name: each.default for name, each in signature(type(self)).parameters.items() if name in own}
        given = {name: getattr(self, name) for name in defaults}
        return {name: str(value) for name, value in given.items() if value != defaults[name]}

    def _options(self) -> TrainOptions:
        """Return the parameters as TrainOptions; InputError for an unsuitable one."""
        if not (self.n_jobs in (None, -1) or (isinstance(self.n_jobs, Integral) and 0 < self.n_jobs <= MOST_THREADS)):
            raise InputError(
                f"n_jobs is {self.n_jobs!r:.40}; a number of threads, or -1 or None for all cores, is expected"
            )
        return TrainOptions(
            C=self.C,
            solver=self.solver,
            class_weight=self.class_weight,
            tol=self.tol,
            memory_bytes=None if self.memory is None else parse_bytes(self.memory),
            threads=None if self.n_jobs in (None, -1) else self.n_jobs,
            max_passes=self._limit_passes(),
            max_seconds=self.max_seconds,
            seed=self._read_seed(),
            resident_rows=self.resident_rows,
            **self._name_options(),
        )

    def _read_seed(self) -> int:
        """Return the seed; InputError for generators, since a fit that goes on needs the numbers of the first one."""
        return check_count("random_state", 0 if self.random_state is None else self.random_state, 0)

    def _take_rows(self, source: RowSource) -> None:
        """Set the fitted attributes that need the rows as well."""

    def _choose_dtype(self, n_rows: int) -> type[np.float32 | np.float64]:  # noqa: ARG002
        """Return the type of the values of so many rows in memory."""
        return np.float32

    def _limit_passes(self) -> int | None:
        """Return the smaller one of max_passes and max_iter, which is scikit-learn's name of it."""
        limits = self.max_passes, getattr(self, "max_iter", -1)
        given = [limit for limit in limits if limit is not None and limit != -1]
        return min(given) if given else None

    def _take_model(self, model: Any, label_dtype: Any = None) -> None:
        """Set the fitted attributes that a model holds. label_dtype: the type of the labels given to `fit`."""
        self.model_: Any = model
        self.intercept_ = show_only(np.atleast_1d(model.intercept))
        if model.problem.has_classes:
            same_kind = isinstance(label_dtype, np.dtype) and label_dtype.kind in "biufO"
            self.classes_ = model.classes.astype(label_dtype) if same_kind else model.classes
        self.n_features_in_ = model.n_features
        self.__dict__.pop("feature_names_in_", None)
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        self.status_, self.objective_ = model.info["status"], model.info["objective"]
        self.lower_bound_ = model.info["lower_bound"]
        self.rounding_bound_ = model.info.get("rounding_bound")  # models of version 0.1 do not have it
        self.gap_ = Progress(self.objective_, self.lower_bound_, 0).relative_gap

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without client and functions of steps: a connection can be neither pickled nor copied."""
        state = {**super().__getstate__(), "client": None}
        if "_skl_callbacks" in state:
            state["_skl_callbacks"] = [each for each in self._skl_callbacks if not isinstance(each, StepFunction)]
        return state

    def __sklearn_clone__(self) -> Self:
        """Return a clone with the same client and callbacks."""
        clone: Self = super(BaseSVM, copy(self)).__sklearn_clone__()
        if hasattr(self, "_skl_callbacks"):
            clone._skl_callbacks = self._skl_callbacks
        return clone.set_params(client=self.client)  # type: ignore[no-any-return]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def show_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array that cannot be written to, since a change of it would not change the predictions."""
    shown = values.view()
    shown.flags.writeable = False
    return shown


def show_as(name: str) -> dict[str, str]:
    """Return the argument of `map_blocks` by which Dask's dashboard shows its tasks as streamsvm-NAME."""
    return {"token": f"streamsvm-{name}"}


def _decide(model: Model, X: Any) -> F64:
    """Return f(x) of rows in memory, NumPy or sparse, computed a chunk at a time."""
    refuse_unsuitable(X=X)
    is_exact = isinstance(model, KernelModel) and (
        model.is_of_known_values or type_of(model.support_vectors) == np.float64
    )
    is_exact = is_exact or (model.row_scaling is not None and not is_sparse(X) and X.dtype == np.float64)
    dtype = np.float64 if is_exact else np.float32
    source = ArrayDataset(csr_array(X) if is_sparse(X) else np.asarray(X), None, None, dtype=dtype)
    none = np.empty((0, *model.score_shape))
    return np.concatenate([none, *(part.scores for part in score_chunks(model, source, 1))])
