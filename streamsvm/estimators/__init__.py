"""Estimators for scikit-learn. They translate arguments and results; `train` and `predict` do the work."""

from streamsvm.estimators.budgeted import BudgetedSVC, BudgetedSVR
from streamsvm.estimators.kernel import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from streamsvm.estimators.linear import LinearOneClassSVM, LinearSVC, LinearSVR, LogisticRegression, RankSVM
from streamsvm.estimators.loading import load, to_sklearn
from streamsvm.estimators.tuning import tune

__all__ = ["LinearOneClassSVM", "LinearSVC", "LinearSVR", "LogisticRegression", "RankSVM"]
__all__ += ["SVC", "SVR", "BudgetedSVC", "BudgetedSVR", "NuSVC", "NuSVR", "OneClassSVM"]
__all__ += ["load", "to_sklearn", "tune"]
