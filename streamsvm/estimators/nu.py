"""`NuSVC` and `NuSVR`, in which nu takes the place of C and of epsilon."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.kernel import SVC
from streamsvm.estimators.libsvm_like import LibsvmLike
from streamsvm.estimators.regression import BaseSVR
from streamsvm.options import ClassWeight
from streamsvm.problems.nu import NU_CLASSIFY, NU_REGRESS

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class NuSVC(SVC):
    """Kernel support-vector classifier with a share of support vectors and a certificate, on data of any size.

        min 1/2 |w|^2 - N rho + sum_i C_i max(0, rho - y_i (w.phi(x_i) + b)),   N = nu sum_i C_i

    over w, b and rho, with C_i = class_weight[y_i] * sample_weight_i, as in LIBSVM, whose NuSVC does not know
    class_weight. The model is (w.phi(x) + b) / rho. `objective_` is 1/2 |w|^2 of the multipliers,

        w = sum_i a_i y_i phi(x_i),   0 <= a_i <= C_i,   sum_i a_i = N,   sum_i y_i a_i = 0,

    as LIBSVM minimises it (before it divides by rho^2), and `lower_bound_` is a proved lower bound of its minimum, over
    all rows (see docs/certificate.md). Training ends with the status "converged" only if the relative gap of both is
    proved to be at most `tol`. More than two classes are trained one against one, as by SVC. If a pair of classes
    meets, w is 0 at the optimum, and no relative gap can be proved: the status then is "stalled". This happens where nu
    is too small for a kernel that does not separate the classes.

    Parameters
    ----------
    nu : float, default=0.5
        The largest share of rows with a margin below rho, and the least share of support vectors, in (0, 1]. InputError
        if it is above twice the share of the smaller class (of its C_i), in any pair of classes.
    kernel, gamma, degree, coef0 : as in SVC
    selection : {"second-order", "largest", "smallest", "random", "chunking"}, default="second-order"
        How the rows of working sets are chosen. SMO solves them; pairs of rows are of one class.
    working_rows, tol, class_weight, memory, resident_rows : as in SVC
    n_jobs, client, checkpoint, max_passes, max_seconds, random_state, verbose : as in LinearSVC
    max_iter : as in SVC
    probability : bool or {"sigmoid", "isotonic", "temperature"}, default=False
        As in LinearSVC.
    decision_function_shape, break_ties, multi_class : as in SVC

    Attributes
    ----------
    support_vectors_, support_, n_support_, intercept_, coef_, n_iter_, fit_status_, shape_fit_, class_weight_
        As in SVC.
    dual_coef_ : ndarray of shape (1, m) or (K - 1, m), float64, or a sparse array if the rows are sparse
        y_j a_j / rho, as in scikit-learn; in the form of SVC.
    classes_, n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_passes_ : as in LinearSVC

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

    C = 1.0
    solver = "smo"
    inner = None

    nu: float = 0.5
    _: KW_ONLY
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    selection: str = "second-order"
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

    def _name_options(self) -> dict[str, Any]:
        return {**super()._name_options(), "task": NU_CLASSIFY.name, "multi_class": self.multi_class, "nu": self.nu}


@with_parameters
class NuSVR(LibsvmLike, BaseSVR):
    """Support-vector regression with a share of rows outside the tube and a certificate, on data of any size.

        P(w, b, epsilon) = 1/2 |w|^2 + nu (sum_i C_i) epsilon + sum_i C_i max(0, |y_i - (w.phi(x_i) + b)| - epsilon)

    P is minimised over epsilon >= 0 as well, with C_i = C * sample_weight_i and a free bias, as in LIBSVM. Training
    ends with the status "converged" only if the relative duality gap over all rows is proved to be at most `tol`.

    Parameters
    ----------
    nu : float, default=0.5
        The largest share of rows outside the tube, and the least share of support vectors, in (0, 1].
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    kernel, gamma, degree, coef0 : as in SVC
    selection : {"second-order", "largest", "smallest", "random", "chunking"}, default="second-order"
        How the rows of working sets are chosen. SMO solves them.
    working_rows, tol, memory, resident_rows : as in SVC
    n_jobs, client, checkpoint, max_passes, max_seconds, random_state, verbose : as in LinearSVC
    max_iter : as in SVC

    Attributes
    ----------
    support_vectors_, support_, n_support_, dual_coef_, intercept_, coef_ : as in SVR
    n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_ : as in LinearSVC

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

    solver = "smo"
    inner = None

    nu: float = 0.5
    C: float = 1.0
    _: KW_ONLY
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    selection: str = "second-order"
    working_rows: int | None = None
    tol: float = 1e-3
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

    def _name_options(self) -> dict[str, Any]:
        own = {"task": NU_REGRESS.name, "nu": self.nu, "options": self._list_own_options()}
        return {**self._name_kernel(), **own}
