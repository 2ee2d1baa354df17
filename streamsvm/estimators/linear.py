"""Linear support-vector classifier, as a scikit-learn estimator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.estimators.base import BaseSVC
from streamsvm.models.model import LinearModel

if TYPE_CHECKING:
    from distributed import Client


SOLVER_OPTIONS = {  # by default: a solver refuses others that it does not have
    "acceleration": "guided", "intercept_scaling": 1.0, "epsilon": None, "reduction": "adaptive-balanced",
    "rule": "omega", "most_rows": None,
}  # fmt: skip


class LinearSVC(BaseSVC):
    """Linear support-vector classifier, with a certificate, on data of any size.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i max(0, 1 - y_i (w.x_i + b))

    C_i = C * class_weight[y_i] * sample_weight_i. More than two classes: one against the rest, K such problems in one
    read of the data, as many reads as the slowest takes; class_weight[k] is that of the class' own rows in its problem,
    where the rest weigh 1 (as in LIBLINEAR); objective_ and lower_bound_ are sums. Cutting planes penalise the bias, as
    LIBLINEAR does; for solver="interior-point" it is free (no term in b): gaps of 1e-8 in 13 to 36 iterations of two
    passes, or three, with some thousands of features at most (Jung, O'Leary & Tits 2008). Training stops when the
    relative duality gap over all rows is at most `tol`, and says "converged" in `status_` only then. On a dataset that
    is scaled, coef_ and intercept_ belong to scaled rows; predictions scale raw rows themselves.

    Parameters: C, solver ("cutting-plane", "interior-point"), tol, class_weight (None, a dict, or "balanced":
    n / (K n_k), where a row counts as much as its sample weight, as in scikit-learn's LinearSVC since 1.7),
    intercept_scaling, memory ("2GB": the whole resident memory of a process; None: half of the machine's), n_jobs
    (threads; None: all cores), client (a Dask Client), checkpoint (a folder: training goes on from what is there,
    Ctrl-C leaves it), max_passes,
    acceleration ("guided": by resident_rows of them in memory, a number or a share like "10%"; "line-search"; "none":
    Algorithm 1 of Joachims 2006), epsilon (its stop; not for "guided"), random_state (a seed); of interior-point:
    reduction ("adaptive-balanced", "adaptive", "fixed", "none"), rule ("omega" or "distance") and most_rows, which of
    the rows make its equations (q_U of the paper; None: all).

    fit takes a Dataset or the path of one (y=None), NumPy, SciPy sparse, pandas, or Dask (written to a passing dataset
    chunk by chunk, never held whole). Fitted: coef_ (1, d) or (K, d), intercept_ (1,) or (K,), classes_,
    n_features_in_, n_iter_, n_passes_, objective_, lower_bound_, gap_, status_, history_, result_, model_.
    """

    def __init__(
        self, C: float = 1.0, *, solver: str = "cutting-plane", tol: float = 1e-3, class_weight: Any = None,
        intercept_scaling: float = 1.0, memory: str | int | None = None, resident_rows: int | str | None = None,
        n_jobs: int | None = None, client: Client | None = None, checkpoint: str | Path | None = None,
        max_passes: int | None = None, acceleration: str = "guided", epsilon: float | None = None,
        random_state: int | None = 0, reduction: str = "adaptive-balanced", rule: str = "omega",
        most_rows: int | None = None,
    ) -> None:  # fmt: skip
        self.C = C
        self.solver = solver
        self.tol = tol
        self.class_weight = class_weight
        self.intercept_scaling = intercept_scaling
        self.memory = memory
        self.resident_rows = resident_rows
        self.n_jobs = n_jobs
        self.client = client
        self.checkpoint = checkpoint
        self.max_passes = max_passes
        self.acceleration = acceleration
        self.epsilon = epsilon
        self.random_state = random_state
        self.reduction = reduction
        self.rule = rule
        self.most_rows = most_rows

    def _name_options(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in SOLVER_OPTIONS}
        return {"options": {name: str(value) for name, value in given.items() if value != SOLVER_OPTIONS[name]}}

    def _take_model(self, model: LinearModel, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        self.coef_ = np.atleast_2d(model.coef)
