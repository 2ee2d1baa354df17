"""streamsvm: support-vector machines trained on data larger than memory, with a certificate."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsvm.data.delete import delete_rows as delete
    from streamsvm.data.open_dataset import open_dataset as open  # noqa: A004
    from streamsvm.data.readers import ingest
    from streamsvm.estimators import (
        SVC,
        SVR,
        BudgetedSVC,
        BudgetedSVR,
        LinearOneClassSVM,
        LinearSVC,
        LinearSVR,
        LogisticRegression,
        NuSVC,
        NuSVR,
        OneClassSVM,
        RankSVM,
        load,
        to_sklearn,
        tune,
    )

__version__ = "0.2.0"
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
    "__version__",
    "delete",
    "ingest",
    "load",
    "open",
    "to_sklearn",
    "tune",
]

_PLACES = {
    "open": ("streamsvm.data.open_dataset", "open_dataset"),
    "delete": ("streamsvm.data.delete", "delete_rows"),
    "ingest": ("streamsvm.data.readers", "ingest"),
    "LinearSVC": ("streamsvm.estimators", "LinearSVC"),
    "LinearSVR": ("streamsvm.estimators", "LinearSVR"),
    "LogisticRegression": ("streamsvm.estimators", "LogisticRegression"),
    "SVC": ("streamsvm.estimators", "SVC"),
    "SVR": ("streamsvm.estimators", "SVR"),
    "BudgetedSVC": ("streamsvm.estimators", "BudgetedSVC"),
    "BudgetedSVR": ("streamsvm.estimators", "BudgetedSVR"),
    "LinearOneClassSVM": ("streamsvm.estimators", "LinearOneClassSVM"),
    "NuSVR": ("streamsvm.estimators", "NuSVR"),
    "NuSVC": ("streamsvm.estimators", "NuSVC"),
    "OneClassSVM": ("streamsvm.estimators", "OneClassSVM"),
    "RankSVM": ("streamsvm.estimators", "RankSVM"),
    "load": ("streamsvm.estimators", "load"),
    "to_sklearn": ("streamsvm.estimators", "to_sklearn"),
    "tune": ("streamsvm.estimators", "tune"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import streamsvm` is fast."""
    if name not in _PLACES:
        raise AttributeError(f"module 'streamsvm' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
