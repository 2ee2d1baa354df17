"""Estimators for scikit-learn. They translate arguments and results; `train` and `predict` do the work."""

from streamsvm.estimators.as_sklearn import to_sklearn
from streamsvm.estimators.budgeted import BudgetedSVC
from streamsvm.estimators.budgeted_regression import BudgetedSVR
from streamsvm.estimators.kernel import SVC
from streamsvm.estimators.kernel_regression import SVR
from streamsvm.estimators.linear import LinearSVC
from streamsvm.estimators.linear_one_class import LinearOneClassSVM
from streamsvm.estimators.loading import load
from streamsvm.estimators.logistic import LogisticRegression
from streamsvm.estimators.nu import NuSVC, NuSVR
from streamsvm.estimators.one_class import OneClassSVM
from streamsvm.estimators.ranking import RankSVM
from streamsvm.estimators.regression import LinearSVR
from streamsvm.estimators.tuning import tune

__all__ = [
    "SVC",
    "SVR",
    "BudgetedSVC",
    "BudgetedSVR",
    "LinearOneClassSVM",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "NuSVC",
    "NuSVR",
    "OneClassSVM",
    "RankSVM",
    "load",
    "to_sklearn",
    "tune",
]
