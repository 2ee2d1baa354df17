"""`SVC`, a kernel support-vector classifier."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.errors import InputError
from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.kernel_base import KernelSVC
from streamsvm.estimators.libsvm_like import LibsvmLike
from streamsvm.estimators.low_rank import train_on_features
from streamsvm.numeric.pairs_of_classes import choose_by_votes
from streamsvm.numeric.rows import F64
from streamsvm.options import ClassWeight, TrainOptions
from streamsvm.problems.registry import settle_multi_class
from streamsvm.training.result import Result

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class SVC(LibsvmLike, KernelSVC):
    """Kernel support-vector classifier with a certificate, on data of any size.

        P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    P is minimised with C_i = C * class_weight[y_i] * sample_weight_i and a free bias, as in LIBSVM. Training ends with
    the status "converged" only if the relative duality gap over all rows is proved to be at most `tol`. More than two
    classes are trained one against one, as in LIBSVM and scikit-learn: K (K - 1) / 2 problems of two classes, which
    share the memory and the reads. Objectives and bounds are sums over the problems; `result_.problems` tells each.

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
        inf allows no errors: InputError if no function of the kernel separates the classes (with costs up to 1e10). It
        is not for "interior-point" and "crammer_singer".
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="rbf"
        x.z, exp(-gamma |x - z|^2), (gamma x.z + coef0)^degree, or tanh(gamma x.z + coef0), which is indefinite for some
        parameters and may then stall. "precomputed": row i holds its kernel values with all rows of `fit`. A callable
        returns such values, (n, m), for rows in memory; its models are not saved to files. Nothing proves that given
        values are positive semidefinite: there is no lower bound, and the status at the optimum is "stationary".
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
    n_jobs, client, checkpoint, max_passes, max_seconds, random_state, verbose : as in LinearSVC
    max_iter : int, default=-1
        The most pair steps of SMO for each problem, as in LIBSVM; then the status is "pair_limit", and a
        ConvergenceWarning is given. -1 is no limit. Where no pair steps are counted ("irwls", selection="platt",
        "crammer_singer", and "interior-point"), it is another name of max_passes.
    probability : bool or {"sigmoid", "isotonic", "temperature"}, default=False
        As in LinearSVC; not for "interior-point".
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        The scores of more than two classes: one for each class, or for each pair. It does not change the training.
    break_ties : bool or None, default=None
        Of classes with equally many votes, False predicts the first (as scikit-learn does by default), and True and
        None the one with the highest score. As there, True is refused with decision_function_shape="ovo".
    multi_class : {"ovo", "ovr", "crammer_singer"} or None, default=None
        How more than two classes are trained: in pairs, each against the rest, or by one problem for all of them,

            P(W) = 1/2 sum_k |w_k|^2 + sum_i C_i max(0, max_{k != y_i} 1 + f_k(x_i) - f_{y_i}(x_i))

        with f_k(x) = w_k.(phi(x), s), so that the biases are penalised as in LinearSVC. "crammer_singer" is for "smo"
        and for kernels that are positive semidefinite. None is "ovo", and "ovr" for "interior-point", which has no
        pairs.
    intercept_scaling : float, default=1.0
        Of "crammer_singer", the constant feature s, whose weight is the bias; 0 is no bias.
    approximation : {"cholesky", "eigen", "nystrom"}, default="cholesky"
        For "interior-point": a pivoted incomplete Cholesky factor, leading eigenvectors within one, or random rows.
    rank : int, default=300
        The number of features that approximate the kernel.

    Attributes
    ----------
    support_vectors_ : ndarray or sparse array of shape (m, d), float32, or float64 of up to 1,024 rows in memory
        On a scaled dataset they are scaled rows.
    support_ : ndarray of shape (m,), int64
        The numbers of the support vectors among the rows (of a dataset, in its order). Not for "interior-point".
    n_support_ : ndarray of shape (K,), int64
        The support vectors of each class. Of K problems it may be missing if the rows of `fit` were not in memory.
    dual_coef_ : ndarray of shape (1, m) or (K - 1, m), float64, or a sparse array if the rows are sparse
        y_j a_j. For K > 2 classes the support vectors are in the order of their classes, and each has its coefficients
        in the pairs with the K - 1 other classes, as in LIBSVM; (K, m) with another multi_class.
    intercept_ : ndarray of shape (1,) or (K (K - 1) / 2,), float64
        (K,) with another multi_class.
    coef_ : ndarray of shape (1, d) or (K (K - 1) / 2, d), float64
        Only for kernel="linear"; (K, d) with another multi_class.
    n_iter_ : ndarray of shape (1,) or (K (K - 1) / 2,), int64
        The pair steps of SMO of each problem, which max_iter limits; the steps where max_iter limits reads.
    probA_, probB_ : ndarray of shape (1,) or (K,), float64
        The sigmoids 1 / (1 + exp(A f + B)) of the scores f, with probability=True. They are deprecated, as those of
        scikit-learn are.
    fit_status_, shape_fit_, class_weight_ : int, tuple, ndarray of shape (K,)
        0 if nothing cut the training short, else 1; the shape of the rows; the factor of C of each class.
    classes_, n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_passes_ : as in LinearSVC

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
    _: KW_ONLY
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    solver: str = "smo"
    selection: str = "second-order"
    inner: str | None = None
    working_rows: int | None = None
    tol: float = 1e-3
    class_weight: ClassWeight = None
    memory: str | int | None = None
    resident_rows: int | str | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    random_state: int | None = 0
    max_iter: int = -1
    verbose: int = 0
    probability: bool | str = False
    decision_function_shape: str = "ovr"
    break_ties: bool | None = None
    multi_class: str | None = None
    approximation: str = "cholesky"
    rank: int = 300
    intercept_scaling: float = 1.0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on labelled rows; see `LinearSVC.fit`. Rows whose weights are not positive are left out."""
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise InputError(f"decision_function_shape is {self.decision_function_shape!r}; 'ovr' or 'ovo' is expected")
        if self.solver != "interior-point":
            return super().fit(X, y, sample_weight)
        if self.probability:
            raise InputError("probability: not with solver='interior-point', which makes features of all rows")
        return self._keep(train_on_features(self, X, y, sample_weight), y)

    def decision_function(self, X: Any) -> Any:
        """Return scores of each row; for two classes f(x) > 0 predicts classes_[1].

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), Dask array or frame, Dataset, or path of a dataset
            Whatever a kernel that is a function takes; (n, n_fit) for kernel="precomputed".

        Returns
        -------
        ndarray or Dask array of shape (n,), float64
            For K > 2 classes of shape (n, K): the votes of the pairs of classes, and a part of a vote that ranks equal
            ones; with decision_function_shape="ovo" of shape (n, K (K - 1) / 2), where a score above 0 is for the
            first class of a pair. The scores of Dask rows are a Dask array.
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
        """The slopes of the sigmoids that give probabilities, one a score; empty if there are none. Deprecated."""
        return self._read_sigmoids("A")

    @property
    def probB_(self) -> F64:  # noqa: N802
        """The offsets of the sigmoids that give probabilities, one a score; empty if there are none. Deprecated."""
        return self._read_sigmoids("B")

    def _read_sigmoids(self, name: str) -> F64:
        check_is_fitted(self)
        warnings.warn(
            f"Attribute `prob{name}_` was deprecated by scikit-learn 1.9, and goes when that takes it away; "
            "`model_.info['sigmoids']` has the same numbers",
            FutureWarning,
            stacklevel=3,
        )
        return np.array(self.model_.info.get("sigmoids", {}).get(name, []), np.float64)

    def _count_steps(self, result: Result) -> Any:
        """Return the pair steps, or else the steps, of each problem, (n_problems,), as scikit-learn's SVC does."""
        return np.array(self._count_each(result))

    def _name_options(self) -> dict[str, Any]:
        task, way = settle_multi_class(TrainOptions.task, self.multi_class)
        return {**self._name_kernel(), "task": task, "multi_class": way, "options": self._list_own_options()}
