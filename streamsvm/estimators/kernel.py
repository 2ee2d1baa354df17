"""Kernel support-vector classifier, as a scikit-learn estimator."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.dataset import Dataset, open_dataset
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVC
from streamsvm.estimators.inputs import open_source
from streamsvm.models.model import KernelModel, LinearModel
from streamsvm.numeric.feature_maps import KernelMap
from streamsvm.numeric.kernels import fold
from streamsvm.numeric.rows import F64, CsrRows
from streamsvm.options import TrainOptions, check_numbers
from streamsvm.training.features import FeatureOptions, make_features
from streamsvm.training.train import train

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
        self.dual_coef_ = np.atleast_2d(model.dual_coef)

    @property
    def coef_(self) -> F64:
        """Weights of a linear kernel, (1, d) or (K, d): formed when they are asked for, of however many features."""
        check_is_fitted(self)
        if self.model_.kernel.name != "linear":
            raise AttributeError("coef_ is there for kernel='linear' only")
        return np.stack([fold(self.model_.support_vectors, coef) for coef in self.dual_coef_])


def unfold(model: LinearModel) -> KernelModel:
    """Return the kernel expansion that w is for features T' k(Z, x): coefficients T w; of K classes, T W'."""
    features = model.features
    assert features is not None
    assert isinstance(features.map, KernelMap)
    return KernelModel(
        kernel=features.map.kernel,
        support_vectors=features.map.rows,
        dual_coef=model.coef @ features.map.matrix.T,
        intercept=model.intercept,
        classes=model.classes,
        scaling=features.scaling,
        feature_names=features.feature_names,
        info={name: value for name, value in model.info.items() if name != "problem"},  # that is of the features
    )


class SVC(KernelSVC):
    """Kernel support-vector classifier, with a certificate, on data of any size.

        P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    C_i = C * class_weight[y_i] * sample_weight_i; the bias is free, as in LIBSVM. Training stops when the relative
    duality gap over all rows is at most `tol`, and says "converged" in `status_` only then. More than two classes: one
    against the rest, as in LinearSVC (scikit-learn's SVC takes one against one); they share the memory.

    Parameters: C, kernel ("linear": x.z, "rbf": exp(-gamma |x - z|^2), "poly": (gamma x.z + coef0)^degree, "sigmoid":
    tanh(gamma x.z + coef0), which may stall where it is indefinite), gamma ("scale": 1 / (features * variance of all
    values), for which the rows are read once more; "auto": 1 / features; or a number), degree, coef0, solver ("smo",
    "irwls", or "interior-point", below), selection of working sets ("second-order", "largest", "smallest", "random",
    "chunking" or "platt"), inner ("qp": a QP library in place of the solver's own steps), working_rows (of a working
    set), tol, class_weight (None, a dict, or "balanced", as in LinearSVC), memory, resident_rows (rows in memory, or
    their share, "10%"; None: all of up to 16,384, or of long ones, else a fifth, as many as fit), n_jobs, client,
    checkpoint, max_passes, random_state: as in LinearSVC.

    solver="interior-point" solves the linear problem of features that approximate the kernel (Jung, O'Leary & Tits
    2008, section 4): approximation ("cholesky": pivoted incomplete; "eigen": leading eigenvectors within one;
    "nystrom": random rows) of a rank (300). They are written once, 4 * rank bytes a row, to a passing dataset in the
    folder for temporary files, or to `checkpoint`, where they stay for a fit that resumes. n_passes_ and read_bytes
    count the passes that made them (cholesky 11, eigen 12, nystrom 1); history_ and max_passes do not. Its gap is that
    of the approximate problem; the model is a sum of kernels of as many rows (four times as many for "eigen"), none of
    which need be support vectors. Features are float32: gaps below 1e-6 mean little.

    fit takes what LinearSVC takes. Fitted: support_vectors_ (m, d), dual_coef_ (1, m), y_j a_j; intercept_ (1,), coef_
    (1, d) for the linear kernel (K rows for K > 2 classes, over the support vectors of all); classes_, n_features_in_,
    n_iter_, n_passes_, objective_, lower_bound_, gap_, status_, history_, result_, model_. On a dataset that is scaled,
    support vectors are scaled rows.
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
        options, began = self._options(), time.monotonic()
        check_numbers(options)
        with open_source(self, X, y, sample_weight) as source, self._open_folder() as folder:
            dataset, projected, read = self._make_features(source, options, folder / "features.zarr")
            seconds, passes = time.monotonic() - began, dataset.meta["passes"]
            linear, resume = replace(options, kernel="linear", options={}), self.checkpoint is not None
            result = train(dataset, linear, out=self.checkpoint, resume=resume, client=self.client)
        if result.status == "interrupted":
            raise KeyboardInterrupt(f"the checkpoint is in {self.checkpoint}: fit again to go on")
        assert isinstance(result.model, LinearModel)
        model = unfold(result.model)
        self._take_model(model, getattr(y, "dtype", None))
        self.result_ = replace(
            result, model=model, passes=result.passes + passes, seconds=result.seconds + seconds,
            read_bytes=result.read_bytes + read,
            projected_memory_bytes=max(projected, result.projected_memory_bytes), n_features=model.n_features,
            model_sha256=hashlib.sha256(model.to_bytes()).hexdigest(),
        )  # fmt: skip
        self.history_, self.n_iter_, self.n_passes_ = result.history, result.steps, self.result_.passes
        return self

    @contextmanager
    def _open_folder(self) -> Iterator[Path]:
        """Open the folder of the features: the checkpoint's, in which they stay, or one that passes away."""
        if self.checkpoint is None:
            with TemporaryDirectory(prefix="streamsvm") as folder:
                yield Path(folder)
            return
        try:
            Path(self.checkpoint).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.checkpoint}: cannot be written: {error.strerror}") from error
        yield Path(self.checkpoint)

    def _make_features(self, source: RowSource, options: TrainOptions, path: Path) -> tuple[Dataset, int, int]:
        """Return the features, the projected memory, and the bytes that were read for them.

        Features that an earlier fit made are taken if they are the same; InputError if they are of other rows or
        settings.
        """
        which = FeatureOptions(self.approximation, self.rank, options.seed)
        made_by = {"data": source.fingerprint, **asdict(which), **self._name_kernel()}
        if path.exists():
            dataset = open_dataset(path)
            if dataset.meta.get("made_by") != json.loads(json.dumps(made_by)):
                raise InputError(f"{path}: features of other rows or settings; choose another checkpoint")
            return dataset, 0, 0
        resume = self.checkpoint is not None
        made = make_features(source, path, which, options, made_by=made_by, resume=resume, client=self.client)
        return made.dataset, made.projected_memory_bytes, made.read_bytes

    def _name_options(self) -> dict[str, Any]:
        options = {"selection": self.selection, "inner": self.inner, "working_rows": self.working_rows}
        given = {name: str(value) for name, value in options.items() if value is not None}
        return {**self._name_kernel(), "options": given}
