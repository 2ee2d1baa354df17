"""streamsvm: support-vector machines trained on data larger than memory, with a certificate."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsvm.data.open import open_dataset as open  # noqa: A004
    from streamsvm.estimators.budgeted import BudgetedSVC, BudgetedSVR
    from streamsvm.estimators.kernel import SVC, SVR, NuSVC, NuSVR, OneClassSVM
    from streamsvm.estimators.linear import LinearOneClassSVM, LinearSVC, LinearSVR, RankSVM
    from streamsvm.estimators.loading import load, to_sklearn
    from streamsvm.estimators.logistic import LogisticRegression
    from streamsvm.estimators.tuning import tune
    from streamsvm.ingestion.edit import delete_rows as delete
    from streamsvm.ingestion.readers import ingest
    from streamsvm.ingestion.split import split
    from streamsvm.solvers.options import (
        IRWLS,
        SMO,
        BudgetedSGD,
        CuttingPlane,
        Eigenmap,
        IncompleteCholesky,
        InteriorPoint,
        Newton,
        Nystroem,
        PolynomialMap,
    )

__version__ = "0.2.0"
__all__ = ["LinearOneClassSVM", "LinearSVC", "LinearSVR", "LogisticRegression", "RankSVM"]
__all__ += ["SVC", "SVR", "BudgetedSVC", "BudgetedSVR", "NuSVC", "NuSVR", "OneClassSVM"]
__all__ += ["IRWLS", "SMO", "BudgetedSGD", "CuttingPlane", "InteriorPoint", "Newton"]  # solvers
__all__ += ["Eigenmap", "IncompleteCholesky", "Nystroem", "PolynomialMap"]  # feature maps
__all__ += ["__version__", "delete", "ingest", "load", "open", "split", "to_sklearn", "tune"]

_OPTIONS = ["BudgetedSGD", "CuttingPlane", "IRWLS", "InteriorPoint", "Newton", "SMO"]
_OPTIONS += ["Eigenmap", "IncompleteCholesky", "Nystroem", "PolynomialMap"]
_PLACES = {  # names that streamsvm.estimators does not export
    **{name: ("streamsvm.solvers.options", name) for name in _OPTIONS},
    "open": ("streamsvm.data.open", "open_dataset"),
    "delete": ("streamsvm.ingestion.edit", "delete_rows"),
    "ingest": ("streamsvm.ingestion.readers", "ingest"),
    "split": ("streamsvm.ingestion.split", "split"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import streamsvm` is fast."""
    if name not in __all__:
        raise AttributeError(f"module 'streamsvm' has no attribute {name!r}")
    module, attribute = _PLACES.get(name, ("streamsvm.estimators", name))
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
