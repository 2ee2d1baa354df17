"""Kernel estimators that accept the same input as scikit-learn's.

With solver="interior-point", SVC solves a linear problem on features that approximate the kernel.
"""

from __future__ import annotations

import json
import time
import warnings
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from inspect import get_annotations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.rows.source import RowSource
from streamsvm.estimators.base import KernelParameters
from streamsvm.estimators.inputs import choose_calibration
from streamsvm.estimators.libsvm_like import LibsvmLike
from streamsvm.estimators.tasks import BaseOneClass, BaseSVC, BaseSVR
from streamsvm.models.model import KernelModel
from streamsvm.numeric.labels import choose_by_votes
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions, check_numbers
from streamsvm.problems.nu import NU_CLASSIFY, NU_REGRESS
from streamsvm.problems.registry import MULTINOMIAL, settle_multi_class
from streamsvm.runs.held_out import EvalSet
from streamsvm.runs.results import Event, Listener, Result
from streamsvm.runs.train import train
from streamsvm.solvers.options import FeatureOptions, InteriorPoint, InteriorPointOptions, name_options, read_options
from streamsvm.system.errors import InputError
from streamsvm.system.files import to_local_path, writing

if TYPE_CHECKING:
    from streamsvm.data.store.dataset import Dataset


class LibsvmSVC(LibsvmLike, BaseSVC):
    """The base class of `SVC` and `NuSVC`.

    Parameters
    ----------
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        The scores of more than two classes: one for each class, or for each pair. It does not affect training.
    break_ties : bool or None, default=None
        Among classes with equal votes, False predicts the first (scikit-learn's default), and True and None predict the
        one with the highest score. As in scikit-learn, True is refused with decision_function_shape="ovo".
    multi_class : {"ovo", "ovr"} or None, default=None
        How more than two classes are trained: in pairs, or each against the rest. None is "ovo".

    Attributes
    ----------
    support_ : ndarray of shape (m,), int64
        The row numbers of the support vectors (for a dataset, in its order).
    n_support_ : ndarray of shape (K,), int64
        The number of support vectors of each class.
    dual_coef_ : ndarray of shape (1, m) or (K - 1, m), float64, or a sparse array if the rows are sparse
        y_j a_j. For K > 2 classes the support vectors are in the order of their classes, and each has one coefficient
        for each pair with the K - 1 other classes, as in LIBSVM; (K, m) with another multi_class.
    intercept_ : ndarray of shape (1,) or (K (K - 1) / 2,), float64
        (K,) with another multi_class.
    coef_ : ndarray of shape (1, d) or (K (K - 1) / 2, d), float64, or a sparse array if the rows are sparse
        Only for kernel="linear"; (K, d) with another multi_class.
    n_iter_ : ndarray of shape (1,) or (K (K - 1) / 2,), int64
        The number of SMO pair steps of each problem, which max_iter limits; the number of steps where max_iter limits
        reads.
    probA_, probB_ : ndarray of shape (1,) or (K,), float64
        The sigmoids 1 / (1 + exp(A f + B)) of the scores f, with probability=True. Deprecated, as in scikit-learn.
    class_weight_ : ndarray of shape (K,)
        The factor of C of each class.
    """

    probability: bool | str = False
    decision_function_shape: str = "ovr"
    break_ties: bool | None = None
    multi_class: str | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, eval_set: Any = None) -> Self:
        """Train on labelled rows; see `LinearSVC.fit`. Rows whose weights are not positive are left out."""
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise InputError(f"decision_function_shape is {self.decision_function_shape!r}; 'ovr' or 'ovo' is expected")
        if self._name_solver() != "interior-point":
            return super().fit(X, y, sample_weight, eval_set=eval_set)
        if choose_calibration(self.probability) or eval_set is not None:
            raise InputError(
                "probability and eval_set are not supported with solver='interior-point', which computes features of "
                "all rows"
            )
        self._X_fit = None
        return self._set_result(self._train(X, y, sample_weight, None), y)

    def decision_function(self, X: Any) -> Any:
        """Return scores of each row; for two classes f(x) > 0 predicts classes_[1].

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), Dask array or frame, Dataset, or path of a dataset
            With a callable kernel, any rows that the kernel takes; with kernel="precomputed", of shape (n, n_fit).

        Returns
        -------
        ndarray or Dask array of shape (n,), float64
            For K > 2 classes of shape (n, K): the votes of the pairs of classes, plus a fraction of a vote that breaks
            ties. With decision_function_shape="ovo" of shape (n, K (K - 1) / 2); a score above 0 is for the first class
            of a pair. The scores of Dask rows are a Dask array.
        """
        check_is_fitted(self)
        if self.decision_function_shape == "ovr" or len(self.classes_) == 2:
            return self._score(X)
        if self.model_.n_support is None:
            raise InputError("decision_function_shape='ovo': no pairs of classes were trained; use multi_class='ovo'")
        return self._score(X, self.model_.list_pairs())

    def predict(self, X: Any) -> Any:
        """Return the predicted label of each row, (n,); a Dask array for Dask rows. X: as in `decision_function`."""
        check_is_fitted(self)
        if self.break_ties and self.decision_function_shape == "ovo" and len(self.classes_) > 2:
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        if self.break_ties is not False or self.model_.n_support is None:
            return super().predict(X)
        choose = partial(choose_by_votes, n_classes=len(self.classes_))
        return self._name(self._score(X, self.model_.list_pairs()), choose)

    @property
    def probA_(self) -> F64:  # noqa: N802, the name is scikit-learn's
        """The slopes of the sigmoids that give probabilities, one per score; empty if there are none. Deprecated."""
        return self._read_sigmoids("A")

    @property
    def probB_(self) -> F64:  # noqa: N802
        """The offsets of the sigmoids that give probabilities, one per score; empty if there are none. Deprecated."""
        return self._read_sigmoids("B")

    def _read_sigmoids(self, name: str) -> F64:
        check_is_fitted(self)
        warnings.warn(
            f"Attribute `prob{name}_` was deprecated by scikit-learn 1.9, which will remove it; "
            "`model_.info['sigmoids']` has the same numbers",
            FutureWarning,
            stacklevel=3,
        )
        return np.array(self.model_.info.get("sigmoids", {}).get(name, []), np.float64)

    def _count_steps(self, result: Result) -> Any:
        """Return the number of pair steps (or steps) of each problem, (n_problems,), as scikit-learn's SVC does."""
        return np.array(self._count_each(result))

    def _name_options(self) -> dict[str, Any]:
        task, way = settle_multi_class(TrainOptions.task, self.multi_class)
        if task == MULTINOMIAL:
            raise InputError(
                f"multi_class={self.multi_class!r}: no solver for kernels trains it; use LogisticRegression, which "
                "takes a feature_map"
            )
        return {**super()._name_options(), "task": task, "multi_class": way}


class SVC(LibsvmSVC):
    """Kernel support-vector classifier with a certificate, on data of any size.

        P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    P is minimised with C_i = C * class_weight[y_i] * sample_weight_i and a free bias, as in LIBSVM. Training ends with
    the status "converged" only if the relative duality gap over all rows is proved to be at most `tol`. More than two
    classes are trained one against one, as in LIBSVM and scikit-learn: K (K - 1) / 2 problems of two classes, which
    share the memory and the reads. Objectives and bounds are sums over the problems; `result_.problems` lists each of
    them.

    solver="interior-point" solves a linear problem on features that approximate the kernel (Jung, O'Leary & Tits 2008,
    section 4). The features take 4 n_components bytes per row, in a temporary dataset, or in `checkpoint`, where they
    are kept for a fit that resumes. n_passes_ and read_bytes count the passes that made the features (cholesky 11,
    eigen 12, nystrom 1, and one for gamma="scale"); history_, max_passes and max_seconds do not. The gap is that of the
    approximate problem. The model is a sum of kernels of n_components rows (four times as many for "eigen"), which need
    not be support vectors. Features are float32, so gaps below 1e-6 mean little.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn. inf allows no errors: InputError if no function of the kernel
        separates the classes (with costs up to 1e10). "interior-point" and "crammer_singer" do not support inf.
    solver : {"smo", "irwls", "interior-point"}, or object, default="smo"
        SMO (Platt 1998) or IRWLS (Pérez-Cruz et al. 2000) on active sets of rows, or the solver described above.
        Objects with their options are streamsvm.SMO(selection="largest"), IRWLS, and
        InteriorPoint(approximation="nystrom", n_components=300): "cholesky" is a pivoted incomplete Cholesky factor,
        "eigen" leading eigenvectors within such a factor, and "nystrom" random rows.
    multi_class : {"ovo", "ovr", "crammer_singer"} or None, default=None
        How more than two classes are trained: in pairs, each against the rest, or by one problem for all of them,

            P(W) = 1/2 sum_k |w_k|^2 + sum_i C_i max(0, max_{k != y_i} 1 + f_k(x_i) - f_{y_i}(x_i))

        with f_k(x) = w_k.(phi(x), s), so that the biases are penalised as in LinearSVC; s is 1, or that of
        solver=SMO(intercept_scaling=s). "crammer_singer" requires "smo" and a positive semidefinite kernel. None is
        "ovo", or "ovr" for "interior-point", which does not train pairs.
    probability : bool or {"sigmoid", "isotonic", "temperature"}, default=False
        As in LinearSVC; not for "interior-point".

    Attributes
    ----------
    support_ : ndarray of shape (m,), int64
        The row numbers of the support vectors (for a dataset, in its order). Not for "interior-point".

    References
    ----------
    Platt (1998), Using analytic QP and sparseness to speed training of support vector machines, NIPS 11.
    Pérez-Cruz et al. (2000), Fast training of support vector classifiers, NIPS 13.
    Fan, Chen & Lin (2005), Working set selection using second order information, JMLR 6.
    Jung, O'Leary & Tits (2008), Adaptive constraint reduction for training support vector machines, ETNA 31.
    Crammer & Singer (2001), On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2.

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

    C: float = 1.0

    def _train_rows(
        self, source: RowSource, options: TrainOptions, way: str | None, listener: Listener, eval_set: EvalSet | None
    ) -> Result:
        """Train; the interior-point method learns from features, and its model is unfolded into a sum of kernels."""
        if self._name_solver() != "interior-point":
            return super()._train_rows(source, options, way, listener, eval_set)
        check_numbers(options)
        began, out = time.monotonic(), None if self.checkpoint is None else to_local_path(self.checkpoint)
        if out is not None:
            with writing(out):
                out.mkdir(parents=True, exist_ok=True)

        def tell(event: Event) -> object:
            make = event.make_model
            return listener(event if make is None else replace(event, make_model=lambda: unfold(make())))

        with TemporaryDirectory(prefix="streamsvm") if out is None else nullcontext(out) as folder:
            dataset, projected, read = self._make_features(source, options, Path(folder) / "features.zarr")
            seconds, passes = time.monotonic() - began, dataset.meta["passes"]
            of_solver = name_options(InteriorPointOptions)
            own = {name: value for name, value in options.options.items() if name in of_solver}
            linear = replace(options, kernel="linear", options=own)
            result = train(dataset, linear, out, resume=out is not None, client=self.client, listener=tell)
        return replace(
            result,
            model=unfold(result.model),
            passes=result.passes + passes,
            seconds=result.seconds + seconds,
            read_bytes=result.read_bytes + read,
            projected_memory_bytes=max(projected, result.projected_memory_bytes),
            n_features=source.n_features,
        )

    def _make_features(self, source: RowSource, options: TrainOptions, path: Path) -> tuple[Dataset, int, int]:
        """Return the dataset of the features, the projected memory, and the bytes read for them.

        Both numbers are 0 if an earlier fit made the features. Raises InputError if the features belong to other rows
        or settings.
        """
        from streamsvm.data.open import open_dataset  # loads Zarr, as does `make_features`
        from streamsvm.runs.features import make_features

        own = read_options(InteriorPoint, options.options, options.solver)
        features = FeatureOptions(own.approximation, own.n_components, options.seed)
        kernel = {name: getattr(options, name) for name in get_annotations(KernelParameters)}
        made_by = {"data": source.fingerprint, **asdict(features), **kernel}
        if path.exists():
            dataset = open_dataset(path)
            if dataset.meta.get("made_by") != json.loads(json.dumps(made_by)):
                raise InputError(f"{path}: these features belong to other rows or settings; choose another checkpoint")
            return dataset, 0, 0
        resume = self.checkpoint is not None
        made = make_features(source, path, features, options, made_by=made_by, resume=resume, client=self.client)
        return made.dataset, made.projected_memory_bytes, made.read_bytes


class NuSVC(LibsvmSVC):
    """Kernel support-vector classifier with a bound nu on margin errors and a certificate, on data of any size.

        min 1/2 |w|^2 - N rho + sum_i C_i max(0, rho - y_i (w.phi(x_i) + b)),   N = nu sum_i C_i

    over w, b and rho, with C_i = class_weight[y_i] * sample_weight_i, as in LIBSVM, except that LIBSVM's nu-SVC has no
    class_weight. The model is (w.phi(x) + b) / rho. `objective_` is 1/2 |w|^2 of the multipliers,

        w = sum_i a_i y_i phi(x_i),   0 <= a_i <= C_i,   sum_i a_i = N,   sum_i y_i a_i = 0,

    as LIBSVM minimises it (before it divides by rho^2), and `lower_bound_` is a proved lower bound of its minimum, over
    all rows (see docs/certificate.md). Training ends with the status "converged" only if the relative gap between the
    two is proved to be at most `tol`. More than two classes are trained one against one, as by SVC. If the reduced
    convex hulls of a pair of classes meet, w is 0 at the optimum, and no relative gap can be proved: the status then is
    "stalled". This happens if nu is too small for a kernel that does not separate the classes.

    Parameters
    ----------
    nu : float, default=0.5
        An upper bound on the share of rows with a margin below rho, and a lower bound on the share of support vectors,
        in (0, 1]. InputError if, in any pair of classes, it exceeds twice the smaller class's share of the sum of C_i.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, m) or (K - 1, m), float64, or a sparse array if the rows are sparse
        y_j a_j / rho, as in scikit-learn; in the form of SVC.

    References
    ----------
    Schoelkopf, Smola, Williamson & Bartlett (2000), New support vector algorithms, Neural Computation 12.
    Chang & Lin (2001), Training nu-support vector classifiers: theory and algorithms, Neural Computation 13.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import NuSVC
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.sum(X**2, axis=1) > 1.5
    >>> model = NuSVC(nu=0.2).fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.9
    ('converged', True, True)
    """

    task = NU_CLASSIFY.name
    C = 1.0

    nu: float = 0.5

    def _name_options(self) -> dict[str, Any]:
        return {**super()._name_options(), "task": self.task, "multi_class": self.multi_class}


class SVR(LibsvmLike, BaseSVR):
    """Kernel support-vector regression with a certificate, on data of any size.

        P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, |y_i - (w.phi(x_i) + b)| - epsilon),   k(x, z) = phi(x).phi(z)

    P is minimised with C_i = C * sample_weight_i and a free bias, as in LIBSVM. Training ends with the status
    "converged" only if the relative duality gap over all rows is proved to be at most `tol`.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn. inf allows no errors beyond epsilon: InputError if costs up to
        1e10 do not avoid them.
    epsilon : float, default=0.1
        The error that costs nothing, in units of the targets.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, m), float64, or a sparse array if the rows are sparse
        The multipliers of rows above the tube, and the negated multipliers of rows below it.

    References
    ----------
    Smola & Schoelkopf (2004), A tutorial on support vector regression, Statistics and Computing 14.
    Pérez-Cruz et al. (2000), An IRWLS procedure for SVR, EUSIPCO.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SVR
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = SVR(C=10.0, kernel="rbf").fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.9
    ('converged', True, True)
    """

    C: float = 1.0
    epsilon: float = 0.1


class NuSVR(LibsvmLike, BaseSVR):
    """Kernel support-vector regression with a bound nu on rows outside the tube and a certificate, on data of any size.

        P(w, b, epsilon) = 1/2 |w|^2 + nu (sum_i C_i) epsilon + sum_i C_i max(0, |y_i - (w.phi(x_i) + b)| - epsilon)

    P is minimised over epsilon >= 0 as well, with C_i = C * sample_weight_i and a free bias, as in LIBSVM. Training
    ends with the status "converged" only if the relative duality gap over all rows is proved to be at most `tol`.

    Parameters
    ----------
    nu : float, default=0.5
        An upper bound on the share of rows outside the tube, in (0, 1], and a lower bound on the share of support
        vectors.
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, m), float64, or a sparse array if the rows are sparse
        The multipliers of rows above the tube, and the negated multipliers of rows below it.

    References
    ----------
    Schoelkopf, Smola, Williamson & Bartlett (2000), New support vector algorithms, Neural Computation 12.
    Chang & Lin (2002), Training nu-support vector regression: theory and algorithms, Neural Computation 14.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import NuSVR
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = NuSVR(nu=0.3, C=10.0).fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.9
    ('converged', True, True)
    """

    task = NU_REGRESS.name

    nu: float = 0.5
    C: float = 1.0


class OneClassSVM(BaseOneClass, LibsvmLike):  # type: ignore[misc]
    """One-class support-vector machine with a certificate, on data of any size.

        min 1/2 |w|^2,   w = sum_i a_i phi(x_i),   0 <= a_i <= sample_weight_i,   sum_i a_i = nu sum_i sample_weight_i

    The score of a row is w.phi(x) - rho, with k(x, z) = phi(x).phi(z); rows with scores above 0 belong to the class,
    and the others are novel. `objective_` is 1/2 |w|^2, as LIBSVM prints it, and `lower_bound_` is a proved lower bound
    of its minimum, computed from w and rho over all rows (see docs/certificate.md). Training ends with the status
    "converged" only if the relative gap between the two is proved to be at most `tol`. If the origin lies among the
    images of the rows, w is 0 at the optimum, and no relative gap can be proved: the status then is "stalled". It
    cannot happen with kernel="rbf".

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, m), float64, or a sparse array if the rows are sparse
        a_i, which sum to nu times the sum of the weights.

    References
    ----------
    Schoelkopf et al. (2001), Estimating the support of a high-dimensional distribution, Neural Computation 13.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import OneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = OneClassSVM(nu=0.1).fit(X)
    >>> model.status_, model.gap_ <= 1e-3, model.predict([[0.0, 0.0], [5.0, 5.0]]).tolist()
    ('converged', True, [1, -1])
    """


def unfold(model: Any) -> KernelModel:
    """Return a linear model w of features T' k(Z, x) as a kernel model with coefficients T w, or T W' for K classes."""
    found, scaled = model.features.map, {name: getattr(model.features, name) for name in ("scaling", "feature_names")}
    about = {"approximation": found.approximation, "rank": found.rank}
    return KernelModel(
        kernel=found.kernel,
        support_vectors=found.rows,
        dual_coef=model.coef @ found.matrix.T,
        intercept=model.intercept,
        classes=model.classes,
        # "problem" describes the problem on the features, so it is dropped
        info=about | {name: value for name, value in model.info.items() if name != "problem"},
        **scaled,
    )
