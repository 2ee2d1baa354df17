"""Trainers of the kernel problem: each returns a sum of Gaussian kernels, and b.

SVMs solve min 1/2 |w|^2 + C sum hinge with a free bias. The other trainers look for a function of the same space with
few vectors; it is measured by the same objective. Rows are sparse; intelex gets dense rows, on which it is fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.compare.child import Task, pack_kernel
from pipelines.compare.problems import Part

CACHE_MB = 2000
Model = dict[str, Any]


def fit_ours(task: Task, estimator: Any) -> Model:
    """Fit to a few rows first, so that the time to load compiled code is not measured; then fit to all rows."""
    X, y = task.read()
    estimator.fit(X[:500], y[:500])
    with task.timing("fit"):
        estimator.fit(X, y)
    task.told |= {"passes": estimator.n_passes_, "lower_bound": estimator.lower_bound_}
    return pack_kernel(estimator.support_vectors_, to_dense(estimator.dual_coef_), estimator.intercept_)


def fit_smo(task: Task) -> Model:
    from streamsvm import SVC

    assert task.problem.gamma is not None
    return fit_ours(task, SVC(C=task.problem.C, gamma=task.problem.gamma, tol=float(task.rung), n_jobs=2))


def fit_irwls(task: Task) -> Model:
    from streamsvm import SVC

    assert task.problem.gamma is not None
    model = SVC(C=task.problem.C, gamma=task.problem.gamma, solver="irwls", tol=float(task.rung), n_jobs=2)
    return fit_ours(task, model)


def fit_budgeted(task: Task) -> Model:
    """Train budgeted SGD for two epochs. The rung is the budget."""
    from streamsvm import BudgetedSVC

    assert task.problem.gamma is not None
    model = BudgetedSVC(
        C=task.problem.C, gamma=task.problem.gamma, budget=int(task.rung), epochs=2, fit_intercept=True, n_jobs=2
    )
    return fit_ours(task, model)


def fit_peer(task: Task, estimator: Any, part: Part) -> Model:
    X, y = part
    with task.timing("fit"):
        estimator.fit(X, y)
    return pack_kernel(estimator.support_vectors_, to_dense(estimator.dual_coef_), estimator.intercept_)


def to_dense(array: Any) -> Any:
    return array.toarray() if hasattr(array, "toarray") else array


def fit_svc(task: Task) -> Model:
    from sklearn.svm import SVC

    estimator = SVC(C=task.problem.C, gamma=task.problem.gamma, tol=float(task.rung), cache_size=CACHE_MB)
    return fit_peer(task, estimator, task.read())


def fit_intelex(task: Task) -> Model:
    from sklearnex.svm import SVC

    X, y = task.read()
    estimator = SVC(C=task.problem.C, gamma=task.problem.gamma, tol=float(task.rung), cache_size=CACHE_MB)
    return fit_peer(task, estimator, (to_dense(X), y))


def fit_libsvm(task: Task) -> Model:
    from libsvm.svmutil import svm_parameter, svm_problem, svm_train
    from scipy.sparse import csr_matrix

    X, y = task.read()
    rows = svm_problem(y.astype(np.float64), csr_matrix(X))
    settings = f"-s 0 -t 2 -g {task.problem.gamma} -c {task.problem.C} -e {task.rung} -m {CACHE_MB} -q"
    with task.timing("fit"):
        model = svm_train(rows, svm_parameter(settings))
    sign = model.get_labels()[0]  # the class that LIBSVM treats as positive
    beta = sign * np.array([coefficients[0] for coefficients in model.get_sv_coef()])
    chosen = np.array(model.get_sv_indices()) - 1
    return pack_kernel(X[chosen], beta, -sign * model.rho[0])


def fit_nystroem(task: Task) -> Model:
    """Draw landmarks, and train for twenty epochs of averaged stochastic gradients.

    The rung is the number of landmarks.
    """
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import SGDClassifier

    X, y = task.read()
    features = Nystroem(gamma=task.problem.gamma, n_components=int(task.rung), random_state=0)
    alpha = 1 / (task.problem.C * len(y))
    learner = SGDClassifier("hinge", alpha=alpha, max_iter=20, tol=None, average=True, random_state=0)
    with task.timing("fit"):
        learner.fit(features.fit_transform(X), y)
    beta = features.normalization_.T @ learner.coef_.ravel()
    return pack_kernel(features.components_, beta, learner.intercept_)
