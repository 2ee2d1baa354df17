"""The base class of all estimators: parameters, training, scoring, saving, and scikit-learn's conventions."""

from __future__ import annotations

import warnings
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields
from functools import partial
from inspect import get_annotations
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources.arrays import find_pieces, is_stored, is_tensor, refuse_unsuitable, to_numpy, unwrap
from streamsvm.data.sources.in_memory import ArrayDataset, has_columns
from streamsvm.engines.open import Client
from streamsvm.estimators import inputs
from streamsvm.estimators.callbacks import CallbackSupportMixin, FitListener, StepFunction, to_callback, with_callbacks
from streamsvm.kernels.kernel import type_of
from streamsvm.models.model import KernelModel, Model
from streamsvm.models.score_rows import score_chunks
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions, check_count, require_weights, sum_weights
from streamsvm.passes import Progress
from streamsvm.runs.calibrate import make_folds, require_folds, train_with_probabilities
from streamsvm.runs.held_out import EvalSet
from streamsvm.runs.on_the_fly import open_rows
from streamsvm.runs.results import STATUSES, Listener, Result
from streamsvm.solvers.options import FeatureOptions, OptionSet
from streamsvm.system.docstrings import Documented, join_sections, split_sections, write_entries
from streamsvm.system.errors import InputError
from streamsvm.system.interrupts import caught
from streamsvm.system.machine import parse_bytes
from streamsvm.system.reading import shown

MOST_THREADS = 1 << 16
STORED_PIECE_BYTES = 8 << 20  # the bytes of rows in Zarr or HDF5 that are scored at a time


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Parameters(Documented):
    """A base class that turns annotated class attributes with defaults, own and inherited, into parameters.

    Parameters are passed by keyword unless they are a `field` with `kw_only=False`. Only `__init__` comes from
    `dataclass`. The classes themselves are not dataclasses, because Dask identifies and copies dataclasses by their
    fields alone: two fitted estimators with the same parameters would have the same token.

    A class documents the parameters and attributes that it declares or whose meaning it changes. All others are added
    to its docstring from the docstrings of its bases.
    """

    _fields: ClassVar[Any] = object  # a dataclass with the parameters of the class, derived from those of its bases

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if not cls.__module__.startswith("streamsvm."):  # users' subclasses keep their annotations
            return
        if cls.__init__ is not cls._fields.__init__:  # the class or a base defines its own __init__
            return
        own = {name: kind for name, kind in get_annotations(cls).items() if name in vars(cls)}
        bases = [base._fields for base in cls.__bases__ if issubclass(base, Parameters) and base is not Parameters]
        body = {"__annotations__": own, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
        body |= {name: vars(cls)[name] for name in own}
        cls._fields = dataclass(kw_only=True)(type(cls.__name__, tuple(bases), body))
        cls.__init__ = cls._fields.__init__  # type: ignore[method-assign]
        for name in own:
            setattr(cls, name, getattr(cls._fields, name))
        if cls.__doc__:  # python -OO has no docstrings
            sections, fields = split_sections(cls.__doc__), cls._fields.__dataclass_fields__
            known = {name: entry for name, entry in cls._list_entries("Parameters").items() if name in fields}
            added = {"Parameters": write_entries(known), "Attributes": write_entries(cls._list_entries("Attributes"))}
            cls.__doc__ = join_sections({"": "", **added} | sections | added)


class BaseSVM(Parameters, CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """The base class of all estimators. Parameters and constants named like fields of TrainOptions set these fields.

    Every parameter of the scikit-learn estimator of the same name is accepted, also those that have no effect here.

    Parameters
    ----------
    solver : str or object
        The name of a solver, or an object with its options: streamsvm.CuttingPlane, Newton, SMO, IRWLS, BudgetedSGD or
        InteriorPoint, as in solver=CuttingPlane(max_cuts=50). Grids reach the options of an object as solver__max_cuts.
    memory : str, int or None, default=None
        The limit on the resident memory of the whole process, in bytes or as text ("2GB"); None is half of the
        machine's memory.
    n_jobs : int or None, default=None
        The number of threads; None and -1 are all cores.
    client : distributed.Client, str or None, default=None
        The Dask cluster whose workers read the data, or the address of its scheduler.
    checkpoint : path or None, default=None
        The folder of the run. Training resumes from the checkpoint in it; Ctrl-C leaves one.
    max_passes : int or None, default=None
        The maximum number of reads of all rows. At the limit, the status is "pass_limit" and a ConvergenceWarning is
        given.
    max_seconds : float or None, default=None
        The maximum time of training, in seconds. At the limit, the status is "time_limit" and a ConvergenceWarning is
        given. The current pass is finished, a start on rows in memory is cut short, and the model is the best one so
        far. Waiting for a cluster that is not working on the fit ends as well; if there is no model yet, an error is
        raised.
    random_state : int, RandomState or None, default=0
        The seed of the random numbers; None is 0. A RandomState is copied to draw a seed and stays as it is, so that
        another fit from the same state draws the same numbers.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)
        Only if the rows had column names.
    objective_, lower_bound_, rounding_bound_ : float
        The objective P, a proved lower bound of the optimum, and a bound on the rounding error of both; None if there
        is none.
    gap_ : float
        The relative duality gap, (objective_ - lower_bound_) / objective_; None if there is no lower bound.
    status_ : str
        "converged", or why training ended otherwise.
    n_iter_, n_passes_ : int
        The number of steps of the solver (with several problems, the largest number among them), and of reads of all
        rows.
    history_ : list of dict
        The figures of each step.
    result_ : streamsvm.runs.results.Result
    model_ : streamsvm.models.model.Model
    """

    memory: str | int | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    random_state: int | np.random.RandomState | None = 0

    own_options: ClassVar[tuple[str, ...]] = ()  # the parameters that are options of the solver

    def set_params(self, **params: Any) -> Self:
        """Set parameters; solver__NAME and feature_map__NAME set the options of these objects.

        Raises
        ------
        InputError
            If there is no such object, but a name or None.
        """
        known, examples = self.get_params(deep=False), {"solver": "CuttingPlane()", "feature_map": "Nystroem()"}
        for name in params:
            owner, nested, _ = name.partition("__")
            given = params.get(owner, known.get(owner))
            if nested and owner in known and not hasattr(given, "set_params"):
                such = f"; pass an object, such as {examples[owner]}" if owner in examples else ", which has no options"
                raise InputError(f"{name}: {owner} is {given!r}{such}")
        return super().set_params(**params)  # type: ignore[no-any-return]

    def set_callbacks(self, *callbacks: Any) -> Self:
        """Set functions and scikit-learn callbacks that are called after each step of a fit. Clones keep them.

        Parameters
        ----------
        *callbacks : callable, or callback of sklearn.callback
            They replace earlier callbacks. A function is called with a dictionary, the step's line of `history_`: step,
            passes, seconds, objective, lower_bound, relative_gap (None if nothing is proved) and more. For callbacks
            with scikit-learn's hooks (scikit-learn 1.9), the fit and each step are tasks. At the end of a task, the
            hook receives an estimator with the model of the step; if it returns True, the fit ends with the status
            "early_stop". Saved files contain no callbacks, and pickles contain no functions.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If an argument is neither a function nor a scikit-learn callback.
        """
        self._skl_callbacks = [to_callback(callback) for callback in callbacks]
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, eval_set: Any = None) -> Self:
        """Train on rows with labels or, for a regression, with targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), pandas frame, Dask array or frame, Dataset, or path of one
            Dask rows are written to a temporary dataset chunk by chunk, and are never held as a whole.
        y : array-like of shape (n,), or matrix of shape (n, L), optional
            The labels or targets; None with a dataset, which has its own (for targets, `ingest` with
            `regression=True`). A linear classifier also takes an indicator matrix of 0 and 1, dense or sparse, with a
            column for each of L labels; a row may have any number of them.
        sample_weight : array-like of shape (n,), optional
            The weights of the rows, >= 0; None with a dataset.
        eval_set : pair (X, y), Dataset, or path of one, optional
            Rows on which the model of each step is measured, in the same forms as X and y, such as Dask collections.
            `history_` then has "eval_score": the accuracy; for sets of labels, F1 over all decisions; for a regression,
            minus the mean absolute error.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A ValueError, for unsuitable data and parameters.
        """
        return self._fit(X, y, sample_weight, eval_set=eval_set)

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None, eval_set: Any = None) -> Self:
        """Train, and set the fitted attributes."""
        return self._set_result(self._train(X, y, sample_weight, qid, eval_set), y)

    @with_callbacks  # type: ignore[untyped-decorator]
    def _train(self, X: Any, y: Any, sample_weight: Any, qid: Any, eval_set: Any = None) -> Result:
        """Return the result of a training."""
        options, way = self._options(), inputs.choose_calibration(getattr(self, "probability", False))
        require_folds(options, way)
        held_out = inputs.open_eval_set(self, eval_set)
        opened = inputs.open_source(self, X, y, sample_weight, qid)
        with inputs.connected(self), caught(), opened as source, held_out as measured:
            require_weights(sum_weights(source))
            inputs.warn_about_queries(source, options.task)
            listener = FitListener(self, self._list_given(X), y, {"sample_weight": sample_weight, "qid": qid})
            with shown(listener.show_reading):
                result = self._train_rows(source, options, way, listener, measured)
        if result.status == "interrupted":
            raise KeyboardInterrupt(f"the checkpoint is in {self.checkpoint}: call fit again to continue")
        listener.end(result.model)
        return result

    def _train_rows(
        self, source: RowSource, options: TrainOptions, way: str | None, listener: Listener, eval_set: EvalSet | None
    ) -> Result:
        """Return the result of a training on rows. way: the name of a calibration, or None."""
        out, client = self.checkpoint, self.client
        with open_rows(source, self._name_map(), options, out, resume=out is not None, client=client) as rows:
            given = {"client": client, "listener": listener, "eval_set": eval_set, **rows.arguments}
            given["start_from"] = self._get_start(rows.source, rows.options)
            folds = make_folds(rows.source, rows.options, way) if way else None
            return train_with_probabilities(rows.source, rows.options, folds, out, **given)

    def _list_given(self, X: Any) -> Any:
        """Return the rows in the form that `predict` takes."""
        return X

    def _get_start(self, source: RowSource, options: TrainOptions) -> Model | None:  # noqa: ARG002
        """Return the model whose weights training starts from, or None."""
        return None

    def _set_result(self, result: Result, y: Any) -> Self:
        """Set the fitted attributes from a result, and warn if training ended before it converged."""
        self._set_model(result.model, getattr(y, "dtype", None))
        self.result_, self.history_ = result, result.history
        self.n_iter_, self.n_passes_ = self._count_steps(result), result.passes
        self._warn_of_limit(result)
        return self

    def _warn_of_limit(self, result: Result) -> None:
        """Warn if training ended before it converged."""
        if result.status == "stalled" or not (result.finished or STATUSES[result.status].is_final):
            warnings.warn(self._describe_limit(result), ConvergenceWarning, stacklevel=3)

    def _count_steps(self, result: Result) -> Any:
        """Return the number of steps; with several problems, the largest number among them."""
        return max((problem.get("steps", result.steps) for problem in result.problems), default=result.steps)

    def _describe_limit(self, result: Result) -> str:
        """Return the message about the limit that stopped training."""
        return f"{type(self).__name__}: {result.status_reason}"

    def _score(self, X: Any, model: Any = None) -> Any:
        """Return f(x) for each row of X: (n,) or (n, K), or a Dask array for Dask rows.

        X: in any form that `fit` takes. model: by default the model of the fit.
        """
        check_is_fitted(self)
        model = model or self._get_model()
        if inputs.is_dask(X):
            X = unwrap(X)
            inputs.check_columns(self, X)
            rows = (X.to_dask_array() if hasattr(X, "to_dask_array") else X).rechunk({1: -1})
            # not a method: the estimator may hold a client, which cannot be pickled
            decide = partial(_decide, model)
            width = model.score_shape
            shape = {"chunks": (rows.chunks[0], width)} if width else {"drop_axis": 1}
            return rows.map_blocks(decide, **shape, **show_as("score"), dtype=np.float64, meta=np.empty((0, *width)))
        X = to_numpy(X) if is_tensor(X) else X
        with caught():
            if is_stored(X):
                inputs.check_columns(self, X)
                pieces = find_pieces("X", X, STORED_PIECE_BYTES)
                return np.concatenate([_decide(model, inputs.validate(self, piece, reset=False)) for piece in pieces])
            is_frame = model.encoding is not None and has_columns(X, model.encoding.column_names)
            if not (inputs.is_dataset(X) or is_frame):
                return _decide(model, inputs.validate(self, X, reset=False))
            from streamsvm.models.score import score, score_frame  # loads Zarr

            scored = score_frame(model, X) if is_frame else score(model, X)
            return np.concatenate([part.scores for part in scored])

    def save(self, path: str | Path) -> None:
        """Write the model to a file, without pickle. `streamsvm.load` returns a fitted estimator from it.

        Parameters
        ----------
        path : path
            The file, usually with the suffix .npz, or the URL of an object in a store. An existing file is replaced.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InputError
            If weights or a bias were changed after the fit, since the certificate in the file would not be theirs.
        """
        check_is_fitted(self)
        if self._get_model() is not self.model_:
            raise InputError("coef_ or intercept_ were changed after fit, so the model's certificate no longer holds")
        self.model_.save(path)

    def _get_model(self) -> Any:
        """Return the model used for prediction."""
        return self.model_

    def _name_options(self) -> dict[str, Any]:
        """Return the fields of TrainOptions whose values differ from the parameters of the same names."""
        return {}

    def _name_map(self) -> FeatureOptions | None:
        """Return the feature map that is applied to the training rows, or None."""
        return None

    def _name_solver(self) -> str:
        """Return the name of the solver."""
        return self.solver.name if isinstance(self.solver, OptionSet) else self.solver

    def _list_solver_options(self) -> dict[str, Any]:
        """Return the options of the solver's object that differ from their defaults."""
        return self.solver.list_given() if isinstance(self.solver, OptionSet) else {}

    def _list_own_options(self) -> dict[str, str]:
        """Return the solver's own options, as strings that the solver parses and checks.

        Only values that differ from the defaults are included, since a solver refuses options that it lacks.
        """
        given = self._list_solver_options()
        own = {name: getattr(self, name) for name in self.own_options}
        own = {name: value for name, value in own.items() if value != getattr(type(self), name)}
        for name in own.keys() & given.keys():
            raise InputError(f"{name}={own[name]!r} and solver={self.solver!r}: set {name} in one of the two places")
        return {name: str(value) for name, value in {**given, **own}.items()}

    def _options(self) -> TrainOptions:
        """Return the parameters as TrainOptions. Raises InputError for an invalid value."""
        if not (self.n_jobs in (None, -1) or (isinstance(self.n_jobs, Integral) and 0 < self.n_jobs <= MOST_THREADS)):
            raise InputError(
                f"n_jobs is {self.n_jobs!r:.40}; a number of threads, or -1 or None for all cores, is expected"
            )
        given = {each.name: getattr(self, each.name) for each in fields(TrainOptions) if hasattr(self, each.name)}
        if given.get("loss") == getattr(type(self), "loss", None):
            given["loss"] = None  # None is the task's first loss
        known = {
            "memory_bytes": None if self.memory is None else parse_bytes(self.memory, "memory"),
            "threads": None if self.n_jobs in (None, -1) else self.n_jobs,
            "max_passes": self._limit_passes(),
            "seed": self._read_seed(),
            "solver": self._name_solver(),
            "options": self._list_own_options(),
        }
        return TrainOptions(**given | known | self._name_options())

    def _read_seed(self) -> int:
        """Return the seed, which must be the same at each call. Raises InputError for anything else."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(deepcopy(self.random_state).randint(np.iinfo(np.int32).max))
        return check_count("random_state", 0 if self.random_state is None else self.random_state, 0)

    def _choose_dtype(self, n_rows: int) -> type[np.float32 | np.float64]:  # noqa: ARG002
        """Return the dtype for rows in memory, which may depend on their number."""
        return np.float32

    def _limit_passes(self) -> int | None:
        """Return the smaller of max_passes and max_iter, scikit-learn's name for the same limit."""
        limits = self.max_passes, getattr(self, "max_iter", -1)
        given = [limit for limit in limits if limit is not None and limit != -1]
        return min(given) if given else None

    def _set_model(self, model: Any, label_dtype: Any = None) -> None:
        """Set the fitted attributes from a model. label_dtype: the type of the labels given to `fit`."""
        self.model_: Any = model
        self.intercept_ = show_only(np.atleast_1d(model.intercept))
        if model.problem.has_classes:
            same_kind = isinstance(label_dtype, np.dtype) and label_dtype.kind in "biufO"
            # as scikit-learn does for text in pandas' own types, such as categories
            are_texts = model.classes.dtype.kind == "U" and getattr(label_dtype, "kind", "") == "O"
            known = label_dtype if same_kind else np.dtype(object) if are_texts else model.classes.dtype
            self.classes_ = model.classes.astype(known)
        self.n_features_in_ = model.n_features
        names = model.feature_names
        self._set_known(feature_names_in_=None if names is None else np.array(names, dtype=object))
        # imported models of other programs have none of these facts, and models of version 0.1 no rounding_bound
        facts = ("status", "objective", "lower_bound", "rounding_bound")
        self.status_, self.objective_, self.lower_bound_, self.rounding_bound_ = map(model.info.get, facts)
        self.gap_ = Progress(self.objective_, self.lower_bound_, 0).relative_gap

    def _set_known(self, **attributes: Any) -> None:
        """Set the attributes that have a value; remove the others, which an earlier fit may have set."""
        for name, value in attributes.items():
            self.__dict__.pop(name, None)
            if value is not None:
                setattr(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the client and step functions, which cannot be pickled."""
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


class SolverParameters(Parameters):
    """The parameters of estimators that train to a tolerance and keep rows in memory.

    Parameters
    ----------
    tol : float, default=1e-3
        The relative duality gap, (P - D) / P, at which training ends.
    resident_rows : int, str or None, default=None
        The rows that stay in memory, as a number or a share ("10%"); None lets the solver choose within the memory.
    verbose : int, default=0
        Whether the objective and the gap of each step are printed.
    """

    tol: float = 1e-3
    resident_rows: int | str | None = None
    verbose: int = 0


class KernelParameters(Parameters):
    """The kernel of a model.

    Parameters
    ----------
    kernel : {"linear", "rbf", "poly", "sigmoid"}, default="rbf"
        x.z, exp(-gamma |x - z|^2), (gamma x.z + coef0)^degree, or tanh(gamma x.z + coef0), which is indefinite for some
        parameters and may then stall.
    gamma : float, "scale" or "auto", default="scale"
        The scale of the kernel. "scale" is 1 / (d * variance of all values, with rows weighted by their sample
        weights), which takes one more read of all rows; "auto" is 1 / d.
    degree : int, default=3
        The degree of the kernel "poly".
    coef0 : float, default=0.0
        The constant of the kernels "poly" and "sigmoid".
    """

    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0


def show_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, since changing the values would not change the predictions."""
    shown = values.view()
    shown.flags.writeable = False
    return shown


def show_as(name: str) -> dict[str, str]:
    """Return the argument of `map_blocks` that names its tasks streamsvm-NAME on Dask's dashboard."""
    return {"token": f"streamsvm-{name}"}


def _decide(model: Model, X: Any) -> F64:
    """Return f(x) for rows in memory, NumPy or sparse, computed chunk by chunk."""
    refuse_unsuitable(X=X)
    is_exact = isinstance(model, KernelModel) and (
        model.is_of_known_values or type_of(model.support_vectors) == np.float64
    )
    is_exact = is_exact or (model.row_scaling is not None and not issparse(X) and X.dtype == np.float64)
    dtype = np.float64 if is_exact else np.float32
    source = ArrayDataset(csr_array(X) if issparse(X) else np.asarray(X), None, None, dtype=dtype)
    none = np.empty((0, *model.score_shape))
    return np.concatenate([none, *(part.scores for part in score_chunks(model, source, 1))])
