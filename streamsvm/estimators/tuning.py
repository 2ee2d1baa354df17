"""`tune`: cross-validation of a grid of settings, with the best setting as a fitted estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.engines.open import Client
from streamsvm.estimators.inputs import choose_calibration, connected, open_source, warn_about_queries
from streamsvm.estimators.linear import LinearSVC, LinearSVR, RankSVM
from streamsvm.estimators.loading import make_estimator
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.runs.tune import AXES, Tuning
from streamsvm.runs.tune import tune as tune_source
from streamsvm.solvers.options import OptionSet
from streamsvm.system.errors import InputError
from streamsvm.system.machine import parse_bytes


@dataclass(frozen=True, repr=False)
class Tuned(Tuning):
    """The result of `tune`.

    Attributes
    ----------
    trials : tuple of Trial
        One for each setting: C, gamma, others (loss, epsilon, nu, class_weight, if they were varied), scores (of the
        held-out rows, by fold), mean, std and standard_error of the scores, converged, and passes.
    best : Trial
        The trial with the best mean; among equal means, the one with the smallest C.
    estimator : LinearSVC, SVC, BudgetedSVC or RankSVM
        The best setting, fitted to all rows.
    scoring : str
        The name of the measure of the scores; greater is better.
    ideal_score : float
        The best value that the measure can have: 0 for errors (neg_...), and 1 otherwise.
    result : streamsvm.runs.results.Result
        The result of training the estimator.
    passes, read_bytes, seconds : int, int, float
        The costs of the grid and its evaluation, without the cost of `result`. For a resumed grid, passes counts all
        reads of the data; read_bytes and seconds count only the last part.
    cv_results_ : dict of str to ndarray
        The trials by column, named as in scikit-learn's GridSearchCV. There are no times of single fits, since all fits
        share the reads.
    """

    estimator: Any

    @property
    def cv_results_(self) -> dict[str, Any]:
        """The trials by column; see the class."""
        scores = np.array([trial.scores for trial in self.trials])
        means = scores.mean(axis=1)
        params = [trial.params for trial in self.trials]
        columns: dict[str, Any] = {
            f"param_{name}": np.ma.array([each[name] for each in params], dtype=object) for name in params[0]
        }
        by_fold = {f"split{k}_test_score": scores[:, k] for k in range(scores.shape[1])}
        rank = np.array([1 + int(np.sum(means > mean)) for mean in means], np.int32)
        totals = {"mean_test_score": means, "std_test_score": scores.std(axis=1), "rank_test_score": rank}
        return {**columns, "params": params, **by_fold, **totals}


def tune(
    X: Any,
    y: Any = None,
    *,
    C: Sequence[float] = (1.0,),
    gamma: Sequence[float | str] = (),
    folds: int = 5,
    sample_weight: Any = None,
    qid: Any = None,
    groups: Any = None,
    forward: bool = False,
    scoring: str | None = None,
    probability: bool | str = False,
    memory: str | int | None = None,
    out: str | Path | None = None,
    client: Client | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> Tuned:
    """Cross-validate a grid of settings, and fit the best one to all rows.

    All fits of the grid share each read of the data. The fold of a row does not depend on the setting. For rows with
    sets of labels, settings are compared by F1 over all decisions, scikit-learn's "f1_micro", and all labels share one
    setting.

    Parameters
    ----------
    X, y, sample_weight, qid : as in the `fit` of LinearSVC, LinearSVR, SVC and RankSVM
    C : sequence of float, default=(1.0,)
        The costs to try. Leave it out where nu takes the place of C, as in NuSVC.
    gamma : sequence of float or str, default=()
        The values of gamma to try; if it is empty, gamma may be one of `settings`.
    folds : int, default=5
    groups : array-like of shape (n,), default=None
        Texts, times or whole numbers; rows of equal value form a group, and a fold consists of whole groups. A dataset
        has its own groups if it was ingested with them.
    forward : bool, default=False
        Whether the groups are split in their order, so that each fold comes after all rows that its fit is trained on.
        This is for times and other ordered groups.
    scoring : str or None, default=None
        The measure of held-out rows that chooses the best setting, by the name of scikit-learn's scorer: for classes,
        "accuracy" (the default), "balanced_accuracy", "matthews_corrcoef", "f1_macro" and the other averages of f1,
        precision and recall, with two classes also "roc_auc", "average_precision", "f1", "precision" and "recall" (of
        the second class), and with the logistic loss "neg_log_loss" and "neg_brier_score"; for sets of labels,
        "f1_micro" (the default), the other averages, and "accuracy" of whole sets; for regression,
        "neg_mean_absolute_error" (the default), "neg_mean_squared_error", "neg_root_mean_squared_error" and "r2"; for
        a ranking, "ordered_pairs" (the default), "kendall_tau", "ndcg@1", "ndcg@5", "ndcg@10", and with two ranks
        "roc_auc". Every row counts once, whatever its weight.
    probability : bool or {"sigmoid", "isotonic", "temperature"}, default=False
        Whether the best model has probabilities, as in LinearSVC.
    memory : str, int or None, default=None
        The limit on the memory of the whole process, as in LinearSVC.
    out : path or None, default=None
        The folder of the grid and of the last training.
    client : distributed.Client, str or None, default=None
        The Dask cluster whose workers read the data, or the address of its scheduler.
    resume : bool, default=False
        Whether to resume a stopped grid in `out`.
    overwrite : bool, default=False
        Whether to replace a grid in `out`.
    **settings
        Other fields of streamsvm.options.TrainOptions: solver (a name, or an object such as CuttingPlane), kernel,
        task, tol, class_weight, seed and more. If loss, epsilon, nu or class_weight is a list, each of its values is
        tried.

    Returns
    -------
    Tuned

    Raises
    ------
    InputError
        A ValueError, for unsuitable data and settings.

    Examples
    --------
    >>> import numpy as np
    >>> import streamsvm
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    >>> tuned = streamsvm.tune(X, y, C=[0.01, 1.0], folds=3)
    >>> len(tuned.trials), tuned.best.mean > 0.9, tuned.estimator.score(X, y) > 0.9
    (2, True, True)
    """
    if isinstance(solver := settings.get("solver"), OptionSet):
        own = {name: str(value) for name, value in solver.list_given().items()}
        given = settings.get("options", {})
        for name in own.keys() & given.keys():
            raise InputError(f"option {name}={given[name]} and solver={solver!r}: set {name} in one of the two places")
        settings |= {"solver": solver.name, "options": {**own, **given}}
    axes = {name: settings.pop(name) for name in AXES if isinstance(settings.get(name), list | tuple)}
    try:
        options = TrainOptions(memory_bytes=None if memory is None else parse_bytes(memory, "memory"), **settings)
    except TypeError as error:
        raise InputError(f"tune: {error}") from None
    kind: Any = LinearSVC if find_problem(options.task).predicts_labels else RankSVM
    kind = kind if find_problem(options.task).has_classes else LinearSVR
    like = kind(client=client, checkpoint=out)
    with connected(like), open_source(like, X, y, sample_weight, qid, groups) as source:
        warn_about_queries(source, options.task)
        how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "others": axes, "forward": forward}
        how |= {"probabilities": choose_calibration(probability), "scoring": scoring}
        found = tune_source(source, options, C, gamma, folds, out, like.client, **how)
    estimator = make_estimator(found.result.model)
    estimator._warn_of_limit(found.result)
    return Tuned(**vars(found), estimator=estimator)
