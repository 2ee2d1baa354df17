"""Kernel support-vector classifier, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.features import make_kernel_map, write_features
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVC
from streamsvm.estimators.inputs import open_source
from streamsvm.models import KernelModel, LinearModel
from streamsvm.numeric.feature_maps import KernelMap
from streamsvm.numeric.kernels import fold
from streamsvm.numeric.rows import CsrRows
from streamsvm.options import check_numbers, make_kernel
from streamsvm.train import train

if TYPE_CHECKING:
    from distributed import Client


class KernelSVC(BaseSVC):
    """A classifier whose model is a sum of kernels."""

    kernel: str
    gamma: float | str
    degree: int
    coef0: float

    def _name_kernel(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kernel", "gamma", "degree", "coef0")}

    def _take_model(self, model: KernelModel, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        X = model.support_vectors
        self.support_vectors_ = csr_array((X.data, X.indices, X.indptr), X.shape) if isinstance(X, CsrRows) else X
        self.dual_coef_ = model.dual_coef[None, :]
        self.__dict__.pop("coef_", None)
        if model.kernel.name == "linear":
            self.coef_ = np.atleast_2d(fold(X, model.dual_coef))


def unfold(feature_map: KernelMap, model: LinearModel, source: RowSource) -> KernelModel:
    """Return the kernel expansion that w is for features T' k(Z, x): coefficients T w."""
    return KernelModel(
        kernel=feature_map.kernel,
        support_vectors=feature_map.rows,
        dual_coef=feature_map.matrix @ model.coef,
        intercept=model.intercept,
        classes=model.classes,
        scaling=source.scaling,
        feature_names=source.feature_names,
        info=model.info,
    )


class SVC(KernelSVC):
    """Kernel support-vector classifier for two classes, with a certificate, on data of any size.

        P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    C_i = C * class_weight[y_i] * sample_weight_i; the bias is free, as in LIBSVM. Training stops when the relative
    duality gap over all rows is at most `tol`, and says "converged" in `status_` only then.

    Parameters: C, kernel ("linear": x.z, "rbf": exp(-gamma |x - z|^2), "poly": (gamma x.z + coef0)^degree, "sigmoid":
    tanh(gamma x.z + coef0), which may stall where it is indefinite), gamma ("scale": 1 / (features * variance of all
    values), for which the rows are read once more; "auto": 1 / features; or a number), degree, coef0, solver ("smo",
    "irwls", or "interior-point", below), selection of working sets ("second-order", "largest", "smallest", "random",
    "chunking" or "platt"), inner ("qp": a QP library in place of the solver's own steps), working_rows (of a working
    set), tol, class_weight (None, a dict, or "balanced", as in LinearSVC), memory, resident_rows (rows in memory, or
    their share, "10%"; None: all of up to 16,384, or of long ones, else a fifth, as many as fit), n_jobs, client,
    checkpoint, max_passes, random_state: as in LinearSVC.

    solver="interior-point" solves the linear problem of features that approximate the kernel (Jung, O'Leary & Tits
    2008, section 4), written to a passing dataset: approximation ("cholesky": pivoted incomplete; "eigen": leading
    eigenvectors within one; "nystrom": random rows) of a rank (300). Its gap is that of the approximate problem; the
    model is a sum of kernels of as many rows (four times as many for "eigen"), none of which need be support vectors.
    Features are float32: gaps below 1e-6 mean little.

    fit takes what LinearSVC takes. Fitted: support_vectors_ (m, d), dual_coef_ (1, m), y_j a_j; intercept_ (1,), coef_
    (1, d) for the linear kernel; classes_, n_features_in_, n_iter_, n_passes_, objective_, lower_bound_, gap_, status_,
    history_, result_, model_. On a dataset that is scaled, support vectors are scaled rows.
    """

    def __init__(
        self, C: float = 1.0, *, kernel: str = "rbf", gamma: float | str = "scale", degree: int = 3, coef0: float = 0.0,
        solver: str = "smo", selection: str = "second-order", inner: str | None = None, working_rows: int | None = None,
        tol: float = 1e-3, class_weight: Any = None, memory: str | int | None = None,
        resident_rows: int | str | None = None, n_jobs: int | None = None, client: Client | None = None,
        checkpoint: str | Path | None = None, max_passes: int | None = None, random_state: int | None = 0,
        approximation: str = "cholesky", rank: int = 300,
    ) -> None:  # fmt: skip
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.selection = selection
        self.inner = inner
        self.working_rows = working_rows
        self.tol = tol
        self.class_weight = class_weight
        self.memory = memory
        self.resident_rows = resident_rows
        self.n_jobs = n_jobs
        self.client = client
        self.checkpoint = checkpoint
        self.max_passes = max_passes
        self.random_state = random_state
        self.approximation = approximation
        self.rank = rank

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train; see the class. ValueError (InputError) for bad data and settings."""
        if self.solver != "interior-point":
            return super().fit(X, y, sample_weight)
        if self.checkpoint is not None:
            raise InputError("the features of interior-point pass away: there is no checkpoint of it")
        options = self._options()
        check_numbers(options)
        with open_source(self, X, y, sample_weight) as source, TemporaryDirectory(prefix="streamsvm") as folder:
            kernel = make_kernel(source, options)
            feature_map = make_kernel_map(source, kernel, self.approximation, self.rank, options.seed)
            dataset = write_features(source, feature_map, Path(folder) / "features.zarr")
            result = train(dataset, replace(options, kernel="linear", options={}), client=self.client)
            assert isinstance(result.model, LinearModel)
            model = unfold(feature_map, result.model, source)
        self._take_model(model, getattr(y, "dtype", None))
        self.result_, self.history_ = replace(result, model=model), result.history
        self.n_iter_, self.n_passes_ = result.steps, result.passes
        return self

    def _name_options(self) -> dict[str, Any]:
        options = {"selection": self.selection, "inner": self.inner, "working_rows": self.working_rows}
        given = {name: str(value) for name, value in options.items() if value is not None}
        return {**self._name_kernel(), "options": given}
