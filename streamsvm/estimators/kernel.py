"""`SVC`, a kernel support-vector classifier, and the base class that it shares with `BudgetedSVC`."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.dataset import Dataset, open_dataset
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVM
from streamsvm.estimators.classifier import BaseSVC
from streamsvm.estimators.inputs import open_source
from streamsvm.models.model import KernelModel, LinearModel
from streamsvm.numeric.feature_maps import KernelMap
from streamsvm.numeric.kernels import combine_rows
from streamsvm.numeric.rows import F64, CsrRows
from streamsvm.options import ClassWeight, TrainOptions, check_numbers
from streamsvm.training.features import FeatureOptions, make_features
from streamsvm.training.train import train

if TYPE_CHECKING:
    from distributed import Client


class KernelSVM(BaseSVM):  # type: ignore[misc]
    """The base class of estimators whose model is a sum of kernels."""

    kernel: str
    gamma: float | str
    degree: int
    coef0: float

    def _name_kernel(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kernel", "gamma", "degree", "coef0")}

    def _take_model(self, model: KernelModel, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        X = model.support_vectors
        self.support_vectors_ = csr_array((X.data, X.indices, X.indptr), X.shape) if isinstance(X, CsrRows) else X
        self.dual_coef_ = np.atleast_2d(model.dual_coef)
        for name in ("support_", "n_support_"):
            self.__dict__.pop(name, None)
        if model.support is not None:
            self.support_ = model.support
        if not model.problem.has_classes:
            self.n_support_ = np.array([len(X.indptr) - 1 if isinstance(X, CsrRows) else len(X)])

    def _take_rows(self, source: RowSource) -> None:
        """Count the support vectors of each class, if the rows are in memory."""
        y = source.y if isinstance(source, ArrayDataset) and self.model_.problem.has_classes else None
        if y is not None and hasattr(self, "support_"):
            self.n_support_ = np.bincount(y[self.support_], minlength=len(self.classes_))

    @property
    def coef_(self) -> F64:
        """The weights for kernel="linear", (1, d) or (K, d), read-only. They are formed when they are asked for."""
        check_is_fitted(self)
        if self.model_.kernel.name != "linear":
            raise AttributeError("coef_ exists for kernel='linear' only")
        coef = np.stack([combine_rows(self.model_.support_vectors, each) for each in self.dual_coef_])
        coef.flags.writeable = False  # a change of it would not change the predictions
        return coef


class KernelSVC(KernelSVM, BaseSVC):
    """The base class of classifiers whose model is a sum of kernels."""


def unfold(model: LinearModel) -> KernelModel:
    """Return the sum of kernels that equals w for features T' k(Z, x): its coefficients are T w, for K classes T W'."""
    features = model.features
    assert features is not None
    assert isinstance(features.map, KernelMap)
    return KernelModel(
        kernel=features.map.kernel,
        support_vectors=features.map.rows,
        dual_coef=model.coef @ features.map.matrix.T,
        intercept=model.intercept,
        classes=model.classes,
        scaling=features.scaling,
        feature_names=features.feature_names,
        info={name: value for name, value in model.info.items() if name != "problem"},  # it describes the features
    )


class SVC(KernelSVC):
    """Kernel support-vector classifier with a certificate, on data of any size.

        P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    P is minimised with C_i = C * class_weight[y_i] * sample_weight_i and a free bias, as in LIBSVM. Training ends with
    the status "converged" only if the relative duality gap over all rows is proved to be at most `tol`. More than two
    classes are trained one against the rest, as in LinearSVC (scikit-learn's SVC trains one against one), and share the
    memory.

    solver="interior-point" solves the linear problem of features that approximate the kernel (Jung, O'Leary & Tits
    2008, section 4). The features take 4 * rank bytes a row, in a temporary dataset or in `checkpoint`, where they stay
    for a fit that resumes. n_passes_ and read_bytes count the passes that made the features (cholesky 11, eigen 12,
    nystrom 1, and one for gamma="scale"); history_, max_passes and max_seconds do not. The gap is that of the
    approximate problem. The model is a sum of kernels of `rank` rows (four times as many for "eigen"), which need not
    be support vectors. Features are float32, so that gaps below 1e-6 mean little.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    kernel : {"linear", "rbf", "poly", "sigmoid"}, default="rbf"
        x.z, exp(-gamma |x - z|^2), (gamma x.z + coef0)^degree, or tanh(gamma x.z + coef0), which is indefinite for some
        parameters and may then stall.
    gamma : float, "scale" or "auto", default="scale"
        "scale" is 1 / (d * variance of all values, where a row counts as much as its sample weight), for which all rows
        are read once more; "auto" is 1 / d.
    degree : int, default=3
    coef0 : float, default=0.0
    solver : {"smo", "irwls", "interior-point"}, default="smo"
        SMO (Platt 1998) or IRWLS (Pérez-Cruz et al. 2000) on active sets of rows, or the method described above.
    selection : {"second-order", "largest", "smallest", "random", "chunking", "platt"}, default="second-order"
        How the rows of working sets are chosen.
    inner : {"smo", "irwls", "qp"} or None, default=None
        What solves a working set; "qp" is a QP library, and None is the solver itself.
    working_rows : int or None, default=None
        The rows of a working set; None is a number that depends on the solver and on resident_rows.
    tol, class_weight, memory : as in LinearSVC
    resident_rows : int, str or None, default=None
        The rows in memory, as a number or a share ("10%"). None is all rows if there are at most 16,384 or if they are
        long, and else a fifth of them, as far as the memory allows.
    n_jobs, client, checkpoint, max_passes, max_seconds, random_state, max_iter, verbose : as in LinearSVC
    probability : bool, default=False
        As in LinearSVC; not for "interior-point".
    decision_function_shape : {"ovr"}, default="ovr"
        Scores of more than two classes are those of each against the rest; "ovo" is refused.
    break_ties : bool, default=True
        Without effect: the highest score always predicts its class, as with scikit-learn's break_ties=True.
    approximation : {"cholesky", "eigen", "nystrom"}, default="cholesky"
        For "interior-point": a pivoted incomplete Cholesky factor, leading eigenvectors within one, or random rows.
    rank : int, default=300
        The number of features that approximate the kernel.

    Attributes
    ----------
    support_vectors_ : ndarray or sparse array of shape (m, d), float32
        On a scaled dataset they are scaled rows.
    support_ : ndarray of shape (m,), int64
        The numbers of the support vectors among the rows (of a dataset, in its order). Not for "interior-point".
    n_support_ : ndarray of shape (K,), int64
        The support vectors of each class, if the rows of `fit` were arrays in memory.
    dual_coef_ : ndarray of shape (1, m) or (K, m), float64
        y_j a_j, for K > 2 classes over the support vectors of all classes.
    intercept_ : ndarray of shape (1,) or (K,), float64
    coef_ : ndarray of shape (1, d) or (K, d), float64
        Only for kernel="linear".
    classes_, n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_ : as in LinearSVC

    References
    ----------
    Platt (1998), Using analytic QP and sparseness to speed training of support vector machines, NIPS 11.
    Pérez-Cruz et al. (2000), Fast training of support vector classifiers, NIPS 13.
    Fan, Chen & Lin (2005), Working set selection using second order information, JMLR 6.
    Jung, O'Leary & Tits (2008), Adaptive constraint reduction for training support vector machines, ETNA 31.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SVC
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.sum(X**2, axis=1) > 1.5
    >>> model = SVC(C=10.0, kernel="rbf").fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.9
    ('converged', True, True)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        solver: str = "smo",
        selection: str = "second-order",
        inner: str | None = None,
        working_rows: int | None = None,
        tol: float = 1e-3,
        class_weight: ClassWeight = None,
        memory: str | int | None = None,
        resident_rows: int | str | None = None,
        n_jobs: int | None = None,
        client: Client | None = None,
        checkpoint: str | Path | None = None,
        max_passes: int | None = None,
        max_seconds: float | None = None,
        random_state: int | None = 0,
        max_iter: int = -1,
        verbose: int = 0,
        probability: bool = False,
        decision_function_shape: str = "ovr",
        break_ties: bool = True,
        multi_class: str | None = None,
        approximation: str = "cholesky",
        rank: int = 300,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.selection = selection
        self.inner = inner
        self.working_rows = working_rows
        self.tol = tol
        self.class_weight = class_weight
        self.memory = memory
        self.resident_rows = resident_rows
        self.n_jobs = n_jobs
        self.client = client
        self.checkpoint = checkpoint
        self.max_passes = max_passes
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.max_iter = max_iter
        self.verbose = verbose
        self.probability = probability
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.multi_class = multi_class
        self.approximation = approximation
        self.rank = rank

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on labelled rows; see `LinearSVC.fit`."""
        if self.decision_function_shape != "ovr":
            given = self.decision_function_shape
            raise InputError(
                f"decision_function_shape is {given!r}: classes are trained one against the rest, which is 'ovr'"
            )
        if self.solver != "interior-point":
            return super().fit(X, y, sample_weight)
        if self.probability:
            raise InputError("probability: not with solver='interior-point', which makes features of all rows")
        options, began = self._options(), time.monotonic()
        check_numbers(options)
        with open_source(self, X, y, sample_weight) as source, self._open_folder() as folder:
            dataset, projected, read = self._make_features(source, options, folder / "features.zarr")
            seconds, passes = time.monotonic() - began, dataset.meta["passes"]
            linear, resume = replace(options, kernel="linear", options={}), self.checkpoint is not None
            result = train(dataset, linear, out=self.checkpoint, resume=resume, client=self.client)
        if result.status == "interrupted":
            raise KeyboardInterrupt(f"the checkpoint is in {self.checkpoint}: call fit again to go on")
        assert isinstance(result.model, LinearModel)
        model = unfold(result.model)
        self._take_model(model, getattr(y, "dtype", None))
        self.result_ = replace(
            result,
            model=model,
            passes=result.passes + passes,
            seconds=result.seconds + seconds,
            read_bytes=result.read_bytes + read,
            projected_memory_bytes=max(projected, result.projected_memory_bytes),
            n_features=model.n_features,
            model_sha256=hashlib.sha256(model.to_bytes()).hexdigest(),
        )
        self.history_, self.n_iter_, self.n_passes_ = result.history, result.steps, self.result_.passes
        self._warn_of_limit(result)
        return self

    @contextmanager
    def _open_folder(self) -> Iterator[Path]:
        """Open the folder of the features: the checkpoint, where they stay, or a temporary folder."""
        if self.checkpoint is None:
            with TemporaryDirectory(prefix="streamsvm") as folder:
                yield Path(folder)
            return
        try:
            Path(self.checkpoint).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.checkpoint}: cannot be written: {error.strerror}") from error
        yield Path(self.checkpoint)

    def _make_features(self, source: RowSource, options: TrainOptions, path: Path) -> tuple[Dataset, int, int]:
        """Return the dataset of the features, the projected memory, and the bytes that were read for them.

        Both numbers are 0 if an earlier fit made the features. InputError if there are features of other rows or
        settings.
        """
        feature_options = FeatureOptions(self.approximation, self.rank, options.seed)
        made_by = {"data": source.fingerprint, **asdict(feature_options), **self._name_kernel()}
        if path.exists():
            dataset = open_dataset(path)
            if dataset.meta.get("made_by") != json.loads(json.dumps(made_by)):
                raise InputError(f"{path}: these are features of other rows or settings; choose another checkpoint")
            return dataset, 0, 0
        resume = self.checkpoint is not None
        made = make_features(source, path, feature_options, options, made_by=made_by, resume=resume, client=self.client)
        return made.dataset, made.projected_memory_bytes, made.read_bytes

    def _name_options(self) -> dict[str, Any]:
        return {**self._name_kernel(), "multi_class": self.multi_class, "options": self._list_own_options()}
