"""Estimators for scikit-learn. They translate arguments and results; `train` and `predict` do the work."""

import gc
from importlib import import_module
from typing import Any

_PLACES = {
    **dict.fromkeys(("BudgetedSVC", "BudgetedSVR"), "budgeted"),
    **dict.fromkeys(("SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"), "kernel"),
    **dict.fromkeys(("LinearOneClassSVM", "LinearSVC", "LinearSVR", "RankSVM"), "linear"),
    "LogisticRegression": "logistic",
    **dict.fromkeys(("load", "to_sklearn"), "loading"),
    "tune": "tuning",
}
__all__ = [*_PLACES]  # noqa: PLE0604  names that are imported when they are first used


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that a script loads only the modules of its estimators."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    was_enabled = gc.isenabled()
    gc.disable()  # what libraries create stays, so collections would look at it several times and free nothing
    try:
        globals()[name] = found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    finally:
        if not gc.get_freeze_count():  # moves all objects to the oldest generation, without a look at each of them
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
