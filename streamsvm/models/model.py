"""Models, the results of training. Their files are arrays and JSON, without pickle, so that loading runs no code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError, say_count
from streamsvm.models.model_file import check_encoding, find_saved_problem, read_about, read_features, unpack_model
from streamsvm.models.saved_model import Intercept, SavedModel, Scorer, describe, pack_features, pack_scaling
from streamsvm.numeric import known_values
from streamsvm.numeric import saved_parts as saved
from streamsvm.numeric.calibration import check_calibration
from streamsvm.numeric.compact import match_layouts
from streamsvm.numeric.feature_maps import Features
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.many_kernel_sums import compute_kernel_sums
from streamsvm.numeric.pairs_of_classes import count_pairs, expand, sum_by_class, vote
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, keep_features, pack_rows, slice_rows
from streamsvm.numeric.scaling import Scaling, make_rescaling, same_scaling


@dataclass(frozen=True, repr=False)
class LinearModel(SavedModel):
    """f(x) = w.x + b for rows that are scaled as the training rows. f(x) > 0 predicts classes[1].

    For K > 2 classes f(x) is K scores, and the largest score predicts its class.

    Attributes
    ----------
    coef : w, (d,) float64, or (K, d)
    intercept : b, float, or (K,) float64
    classes : the labels, (2,) or (K,), sorted; none for a regression
    scaling : the scaling of the training rows, or None for raw rows
    feature_names : names of the columns of the training rows before any map, or None
    info : how the model was trained: solver, C, status, objective and more
    features : the map whose features x are (see numeric.feature_maps), or None
    """

    coef: F64
    intercept: Intercept
    classes: npt.NDArray[Any]
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    features: Features | None = None
    kind: ClassVar[str] = "linear"

    @property
    def n_trained(self) -> int:
        """The number of features of the training rows, after the map if there is one."""
        return int(self.coef.shape[-1])

    def _score_rows(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return a function that computes f for rows like the training rows, without a map."""
        known = min(n_features, self.n_trained) if sparse else n_features
        w, b = self.weights(known, scaling, sparse)
        rescale = make_rescaling(n_features, scaling, sparse, self.n_trained, self.scaling)

        def score(X: Matrix) -> F64:
            if self.scaling is not None and not isinstance(X, CsrRows) and X.dtype == np.float64:
                return self._score_rows(self.n_trained, self.scaling, False)(rescale(X))
            rows = keep_features(X, known) if isinstance(X, CsrRows) else X
            return compute_scores(rows, w) + b if w.ndim > 1 else compute_scores(rows, w[None, :])[:, 0] + b

        return score

    def weights(self, n_features: int, scaling: Scaling | None, sparse: bool) -> tuple[F64, Intercept]:
        """Return weights (.., n_features) and the bias for rows with this scaling; InputError for unsuitable rows."""
        if not sparse and n_features != self.n_trained:
            raise InputError(f"rows of {say_count(n_features, 'feature')}; the model was trained on {self.n_trained:,}")
        if same_scaling(scaling, self.scaling):
            w, b = self.coef, self.intercept
        else:
            w, b = self.scaling.to_raw(self.coef, self.intercept) if self.scaling else (self.coef, self.intercept)
            if scaling is not None:
                known = min(self.n_trained, n_features)
                part = Scaling(scaling.kind, scaling.offset[:known], scaling.factor[:known])
                head, b = part.from_raw(w[..., :known], b)
                w = np.concatenate((head, w[..., known:]), axis=-1)
        fitted = np.zeros((*w.shape[:-1], n_features))
        fitted[..., : min(self.n_trained, n_features)] = w[..., :n_features]
        return fitted, b

    def to_arrays(self) -> dict[str, Any]:
        """Return the contents of the model's file by name."""
        about = describe(self, self.kind) | {"intercept": np.asarray(self.intercept).tolist()}
        arrays = {"coef": self.coef, "classes": self.classes, "about": json.dumps(about)}
        return arrays | pack_scaling(self.scaling) | pack_features(self.features)


@dataclass(frozen=True, repr=False)
class RankModel(LinearModel):
    """f(x) = w.x; rows of a higher rank have higher scores. classes: the ranks of the training rows. intercept: 0."""

    kind: ClassVar[str] = "rank"
    default_task: ClassVar[str] = "rank"


@dataclass(frozen=True, repr=False)
class KernelModel(SavedModel):
    """f(x) = sum_j dual_coef_j k(x, z_j) + b over m support vectors z_j. f(x) > 0 predicts classes[1].

    Attributes
    ----------
    kernel : k
    support_vectors : z_j, (m, d) float32, dense or sparse, scaled as the training rows
    dual_coef : y_j a_j, (m,) float64, or (K, m) for K > 2 classes
    intercept, classes, scaling, feature_names, info, features : see LinearModel
    support : the numbers of the rows z_j in the data, (m,) int64, ascending; None if they are no rows of the data
    n_support : how many of the z_j are of each class, (K,) int64, if all pairs of classes were trained. Then the z_j
        are in the order of their classes, dual_coef is (K - 1, m) and intercept has an entry for each pair
        (numeric.pairs_of_classes); the K scores are votes. None for one problem, or one for each class.
    """

    kernel: Kernel
    support_vectors: Matrix
    dual_coef: F64
    intercept: Intercept
    classes: npt.NDArray[Any]
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    features: Features | None = None
    support: I64 | None = None
    n_support: I64 | None = None
    kind: ClassVar[str] = "kernel"

    @property
    def n_trained(self) -> int:
        """The number of features of the training rows."""
        return int(self.support_vectors.shape[1])

    @property
    def is_of_known_values(self) -> bool:
        """Whether rows hold their own kernel values, so that the numbers in `support` stand for the z_j."""
        return self.kernel.name == known_values.NAME

    def keep_vectors(self, vectors: Matrix) -> Matrix:
        """Return support vectors as the model keeps them: none where their numbers are enough."""
        return slice_rows(vectors, slice(0, 0)) if self.is_of_known_values else vectors

    def _score_rows(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return a function that computes f for rows like the training rows, as sums over the support vectors."""
        prepare = make_rescaling(n_features, scaling, sparse, self.n_trained, self.scaling)

        def score(X: Matrix) -> F64:
            rows, vectors = to_float64(prepare(X)), self.support_vectors
            if not self.is_of_known_values:
                rows, vectors = match_layouts(rows, vectors)
            if self.n_support is not None:
                return vote(self._score_pairs(rows, vectors, self.n_support), len(self.classes))
            if self.dual_coef.ndim > 1 or self.is_of_known_values:
                F = self._sum_kernels(rows, vectors, np.atleast_2d(self.dual_coef)) + self.intercept
                return F if self.dual_coef.ndim > 1 else F[:, 0]
            f = np.full(rows.shape[0], self.intercept)
            add_kernel_sums(self.kernel, rows, vectors, self.dual_coef, f)
            return f

        return score

    def list_pairs(self) -> KernelModel:
        """Return a model whose scores are those of all pairs of classes; above 0 is for the first class of a pair."""
        assert self.n_support is not None
        coefs, pairs = np.stack(list(expand(self.dual_coef, self.n_support))), np.arange(len(self.intercept))  # type: ignore[arg-type]
        return replace(self, dual_coef=coefs, classes=pairs, n_support=None)

    def _score_pairs(self, rows: Matrix, vectors: Matrix, n_support: I64) -> F64:
        """Return the scores of all pairs, (n, pairs), a class's support vectors at a time."""

        def add_up(block: slice) -> F64:
            return self._sum_kernels(rows, vectors, self.dual_coef[:, block], block)

        return sum_by_class(n_support, rows.shape[0], add_up) + self.intercept

    def _sum_kernels(self, rows: Matrix, vectors: Matrix, coefs: F64, block: slice = slice(None)) -> F64:
        """Return sum_j coefs_kj k(x_i, z_j), (n, k), over a block of support vectors; known values are x_i's own."""
        if self.is_of_known_values:
            assert self.support is not None
            W = np.zeros((len(coefs), self.n_trained))
            W[:, self.support[block]] = coefs
            return compute_scores(rows, W)
        own = slice_rows(vectors, slice(*block.indices(vectors.shape[0])))
        return compute_kernel_sums(self.kernel, rows, own, coefs)

    def to_arrays(self) -> dict[str, Any]:
        """Return the contents of the model's file by name."""
        intercept = np.asarray(self.intercept).tolist()
        about = describe(self, self.kind) | {"intercept": intercept, "kernel": asdict(self.kernel)}
        arrays = {"dual_coef": self.dual_coef, "classes": self.classes}
        arrays |= pack_rows(self.support_vectors, "support_vectors") | pack_scaling(self.scaling)
        arrays |= {} if self.support is None else {"support": self.support}
        arrays |= {} if self.n_support is None else {"n_support": self.n_support}
        return arrays | {"about": json.dumps(about)} | pack_features(self.features)


Model = LinearModel | KernelModel


def load(path: str | Path) -> Model:
    """Return the model of a file or of a run's folder. No code in the file is run. InputError if there is no model.

    The path may be the URL of an object store. Then it is the model's file if it ends in .npz, and else a run's folder.
    """
    return from_arrays(*unpack_model(path))


def from_arrays(arrays: dict[str, Any], name: str | Path) -> Model:
    """Return the model of a file's contents; InputError, which names the unsuitable part, if they are no model."""
    try:
        return _read_model(arrays)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not a model of streamsvm ({error})") from error


def _read_model(arrays: dict[str, Any]) -> Model:
    """Return the model of a file's contents after checking every part; ValueError for an unsuitable part."""
    about, kind = read_about(arrays)
    d = saved.read_count(about, "n_features", saved.MOST_FEATURES)
    features = read_features(arrays, about.get("features"))
    if features is not None and features.map.n_features != d:
        raise ValueError(f"n_features is {d}, but the map of the features has {features.map.n_features}")
    info = saved.read_info(about)
    check_encoding(about, info, d if features is None else features.map.d)
    problem = find_saved_problem(kind, info, (RankModel if kind == RankModel.kind else LinearModel).default_task)
    classes = saved.read_classes(arrays, 2 if problem.has_classes else 0)
    n_scores = problem.count_scores(len(classes))
    check_calibration(info, n_scores)
    lead = () if n_scores == 1 else (n_scores,)
    names = saved.read_names(about, d if features is None else features.map.d)
    scaling = saved.read_scaling(about, arrays, d)
    by_class = saved.read_class_sizes(arrays, "n_support", len(classes)) if "n_support" in arrays else None
    if by_class is not None and kind != "kernel":
        raise ValueError("n_support is for kernel models")
    n_intercepts = n_scores if by_class is None else count_pairs(len(classes))
    shared = (saved.read_intercept(about, n_intercepts), classes, scaling, names, info, features)
    if kind != "kernel":
        return (RankModel if kind == "rank" else LinearModel)(saved.read_floats(arrays, "coef", (*lead, d)), *shared)
    lead = lead if by_class is None else (len(classes) - 1,)
    return _read_kernel_model(arrays, about, d, lead, shared, by_class)


def _read_kernel_model(
    arrays: dict[str, Any],
    about: dict[str, Any],
    d: int,
    lead: tuple[int, ...],
    shared: tuple[Any, Any, Any, Any, Any, Any],
    by_class: I64 | None,
) -> KernelModel:
    """Return a sum of kernels; `shared` are the parts of all models, and `lead` comes before m in the coefficients."""
    kernel, vectors = saved.read_kernel(about), saved.read_rows(arrays, "support_vectors", d)
    m = vectors.shape[0]
    if kernel.name == known_values.NAME:
        m = np.atleast_1d(saved.read_part(arrays, "support")).size
    if by_class is not None and int(by_class.sum()) != m:
        raise ValueError(f"n_support sums to {by_class.sum()}; there are {m} support vectors")
    n_rows = saved.read_n_rows(saved.read_info(about))
    support = saved.read_row_numbers(arrays, "support", m, n_rows, by_class) if "support" in arrays else None
    if kernel.name == known_values.NAME and support is not None and support.max(initial=-1) >= d:
        raise ValueError(f"support names row {support.max()}, but a row has {d} kernel values")
    return KernelModel(kernel, vectors, saved.read_floats(arrays, "dual_coef", (*lead, m)), *shared, support, by_class)
