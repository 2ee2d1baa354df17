"""`LinearSVC`, a linear support-vector classifier."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.data.source import RowSource
from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.classifier import BaseSVC
from streamsvm.estimators.linear_base import BaseLinear
from streamsvm.methods.set_up import set_up
from streamsvm.models.model import LinearModel, Model
from streamsvm.options import ClassWeight, TrainOptions
from streamsvm.problems.registry import find_multi_class

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class LinearSVC(BaseLinear, BaseSVC):
    """Linear support-vector classifier with a certificate, on data of any size.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i max(0, 1 - y_i (w.x_i + b))

    With `loss="squared_hinge"` the maximum is squared. P is minimised with
    C_i = C * class_weight[y_i] * sample_weight_i. Training ends with the status "converged" only if the relative
    duality gap over all rows is proved to be at most `tol`.

    K > 2 classes are K such problems, one against the rest, solved in the same reads of the data: as many as the
    slowest problem takes. class_weight[k] is the weight of the rows of class k in its own problem, in which the other
    rows weigh 1 (as in LIBLINEAR). objective_ and lower_bound_ are sums over the problems.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    loss : {"hinge", "squared_hinge"}, default="hinge"
        The default of scikit-learn's LinearSVC is the squared hinge. It is better where a class is rare or many classes
        are trained one against the rest, since the hinge loss may then choose w = 0 for a class.
    multi_class : {"ovr", "crammer_singer"}, default="ovr"
        How K > 2 classes are trained: one against the rest, or by one problem for all classes,

            P(W) = 1/2 sum_k |w_k|^2 + sum_i C_i max(0, max_{k != y_i} 1 + w_k.x_i - w_{y_i}.x_i)

        where the bias is the weight of a constant feature intercept_scaling of x_i, and C_i has the weight of the row's
        own class. This loss has no other form, so `loss` stays "hinge".
    solver : {"auto", "cutting-plane", "interior-point", "newton"}, default="auto"
        "auto" is cutting planes for the hinge loss, and Newton's method for the squared hinge. Both penalise the bias,
        as LIBLINEAR does. The interior-point method has a free bias (no term in b),
        and reaches gaps of 1e-8 in 13 to 36 iterations of two or three passes, with some thousands of features at most.
    tol : float, default=1e-3
        The relative duality gap, (P - D) / P.
    class_weight : dict, "balanced" or None, default=None
        Factors of C by label. "balanced" is n / (K n_k), where a row counts as much as its sample weight, as in
        scikit-learn's LinearSVC since 1.7.
    intercept_scaling : float, default=1.0
        The scale of the penalised bias; the interior-point method has none.
    fit_intercept : bool, default=True
        Whether there is a bias b. The interior-point method always has one.
    memory : str, int or None, default=None
        The limit of the resident memory of the whole process, in bytes or as text ("2GB"); None is half of the
        machine's memory.
    resident_rows : int, str or None, default=None
        The rows that stay in memory, as a number or a share ("10%"); None is as many as the memory allows.
    n_jobs : int or None, default=None
        The number of threads; None and -1 are all cores.
    client : distributed.Client, str or None, default=None
        The Dask cluster whose workers read the data, or the address of its scheduler.
    checkpoint : path or None, default=None
        The folder of the run. Training goes on from the checkpoint there, which Ctrl-C leaves.
    max_passes : int or None, default=None
        The most reads of all rows, after which the status is "pass_limit" and a ConvergenceWarning is given.
    max_seconds : float or None, default=None
        The most seconds of training, after which the status is "time_limit" and a ConvergenceWarning is given. The pass
        that has begun is finished, a start in memory ends early, and the model is the best one so far.
    acceleration : {"auto", "one-read", "block-ascent", "guided", "line-search", "none"}, default="auto"
        How few reads of the data are made to do: by the exact solution for the rows near the margin (for up to 400
        features), by dual coordinate ascent on one block of the rows after another (for more features, and for arrays
        in memory of up to 256 MiB), by a line search, or by Algorithm 1 of Joachims (2006) as published ("none").
        "auto" chooses by the number of features, the memory, and where the rows are; "guided" is its earlier name. The
        log ("streamsvm", level INFO) tells where
        more memory would save reads.
    scratch : path or None, default=None
        A folder in which one read writes the rows that may change sides, if a second read is expected, so that the
        second read is of these rows alone; for two classes. The files are removed at the end. None is no such files.
    epsilon : float or None, default=None
        The stopping rule of Algorithm 1 in place of `tol`: the violation of the worst cut, as a mean loss. With it,
        "auto" is line search.
    random_state : int or None, default=0
        The seed of the random numbers.
    reduction : {"adaptive-balanced", "adaptive", "fixed", "none"}, default="adaptive-balanced"
        How the interior-point method chooses the number of rows that make its equations.
    rule : {"omega", "distance"}, default="omega"
        How the interior-point method chooses these rows.
    most_rows : int or None, default=None
        The most rows that make its equations (q_U of Jung, O'Leary & Tits); None is all rows.
    max_iter : int, default=-1
        scikit-learn's name of max_passes; -1 is no limit. The smaller one of both holds.
    verbose : int, default=0
        Whether the objective and the gap of each step are printed.
    penalty : {"l2", "l1"}, default="l2"
        1/2 |w|^2, or |w|_1, the sum of absolute weights, which leaves many weights at 0; for the loss squared_hinge. As
        in LIBLINEAR the weight of the constant feature is penalised, too.
    dual : bool or "auto", default="auto"
        Without effect, since every solver finds the same optimum and proves it by both problems; False is refused with
        the hinge loss, as in scikit-learn.
    probability : bool or {"sigmoid", "isotonic", "temperature"}, default=False
        Whether there are `predict_proba` and `predict_log_proba`, and how scores become probabilities; True stands for
        "sigmoid". Five models, each trained on four fifths of the rows, score the other rows, and the function is
        fitted to these scores. The five are trained in the reads of the model of all rows, and their scores take one
        read more.
    feature_map : {"nystrom", "cholesky", "eigen", "polynomial"} or None, default=None
        Learn from features of the rows, which are made in each pass and not stored: an approximation of a kernel by
        `rank` features, or all products of two features. The model takes raw rows, and coef_ has a weight for each
        feature.
    rank : int, default=300
        The number of features that approximate the kernel.
    kernel : {"rbf", "poly", "linear"}, default="rbf"
        The kernel that the features approximate; without feature_map it has no effect.
    gamma : float, "scale" or "auto", default="scale"
    degree : int, default=3
    coef0 : float, default=0.0
        Parameters of the kernel, as in SVC.
    warm_start : bool, default=False
        Whether `fit` starts from the weights of the fit before, if there is one with the same number of features.
        More than two classes start each from its own weights, and new classes anew; if a class is gone, all start anew.
        Nothing is proved by the weights. It has an effect with the hinge loss and cutting planes only, and none with
        multi_class="crammer_singer", with a feature map, and with `checkpoint`, whose folder says where a fit goes on.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (K, d), float64
        The weights. On a scaled dataset they belong to scaled rows; predictions scale raw rows themselves.
    intercept_ : ndarray of shape (1,) or (K,), float64
    classes_ : ndarray of shape (2,) or (K,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)
        Only if the rows had names of columns.
    objective_, lower_bound_, rounding_bound_ : float
        P, a proved lower bound of the optimum, and the most by which rounding can have moved both; None if there is
        none.
    gap_ : float
        The relative duality gap, (objective_ - lower_bound_) / objective_; None if there is no lower bound.
    status_ : str
        "converged", or why training ended otherwise.
    n_iter_, n_passes_ : int
        The steps of the solver, of K > 2 classes those of the class that took the most, and the reads of all rows.
    history_ : list of dict
        The figures of each step.
    result_ : streamsvm.training.loop.Result
    model_ : streamsvm.models.model.LinearModel

    References
    ----------
    Joachims (2006), Training linear SVMs in linear time, KDD.
    Crammer & Singer (2001), On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2.
    Jung, O'Leary & Tits (2008), Adaptive constraint reduction for training support vector machines, ETNA 31.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import LinearSVC
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    >>> model = LinearSVC(C=1.0, tol=1e-3).fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.9
    ('converged', True, True)
    """

    C: float = 1.0
    _: KW_ONLY
    loss: str = "hinge"
    multi_class: str = "ovr"
    solver: str = "auto"
    tol: float = 1e-3
    class_weight: ClassWeight = None
    intercept_scaling: float = 1.0
    memory: str | int | None = None
    resident_rows: int | str | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    acceleration: str = "auto"
    epsilon: float | None = None
    random_state: int | None = 0
    reduction: str = "adaptive-balanced"
    rule: str = "omega"
    most_rows: int | None = None
    fit_intercept: bool = True
    max_iter: int = -1
    verbose: int = 0
    penalty: str = "l2"
    dual: bool | str = "auto"
    probability: bool | str = False
    scratch: str | Path | None = None
    feature_map: str | None = None
    rank: int = 300
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    warm_start: bool = False

    takes_label_sets = True

    def _name_options(self) -> dict[str, Any]:
        return {
            "options": self._list_own_options(),
            "loss": None if self.loss == "hinge" else self.loss,
            "task": find_multi_class(self.multi_class),
        }

    def _find_start(self, source: RowSource, options: TrainOptions) -> Model | None:
        """Return the model of the fit before if a fit may start from it (methods.balls.start_fit)."""
        model, classes = getattr(self, "model_", None), source.classes
        if (
            not self.warm_start
            or self.checkpoint is not None
            or not isinstance(model, LinearModel)
            or model.features is not None
            or source.features
        ):
            return None
        same = classes is not None and len(model.classes) > 0 and set(model.classes.tolist()) <= set(classes.tolist())
        if not same or model.n_trained != source.n_features or model.problem.has_label_sets != source.has_label_sets:
            return None
        fit = set_up(source, options)
        return None if fit.start_at is None and fit.start_each is None else model
