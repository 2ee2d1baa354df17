"""scikit-learn estimators; they translate, and leave the work to train and predict."""

from streamsvm.estimators.budgeted import BudgetedSVC
from streamsvm.estimators.kernel import SVC
from streamsvm.estimators.linear import LinearSVC
from streamsvm.estimators.loading import load
from streamsvm.estimators.ranking import RankSVM
from streamsvm.estimators.tuning import tune

__all__ = ["SVC", "BudgetedSVC", "LinearSVC", "RankSVM", "load", "tune"]
