"""Models, the results of training: they score rows in memory and can be saved.

Their files hold arrays and JSON, without pickle, so loading runs no code; every part is checked on loading.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.data.sources.formats import is_table
from streamsvm.kernels import precomputed, stored_parts
from streamsvm.kernels.feature_maps import Features, split_rows, unpack_features
from streamsvm.kernels.kernel import Kernel, add_kernel_sums, compute_kernel_sums, to_float64
from streamsvm.kernels.layouts import match_parts
from streamsvm.models.calibration import check_calibration
from streamsvm.numeric.encoding import Encoding, read_encoding
from streamsvm.numeric.labels import count_pairs, expand, sum_by_class, vote
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, compute_scores, pack_rows, slice_rows
from streamsvm.numeric.stored_types import Scaling, make_rescaling, refuse_overflow, require_width, same_scaling
from streamsvm.problems.problem import Problem
from streamsvm.problems.registry import PROBLEMS, find_problem
from streamsvm.system.display import Shown, describe_certificate
from streamsvm.system.errors import InputError
from streamsvm.system.files import is_remote, to_local_path, write_atomically
from streamsvm.system.npz import pack_arrays, unpack_arrays

FORMAT = 1
OF_FEATURES = "features_"  # prefix of the names of the map's arrays
ENCODED_FORMAT = 2  # for models that encode tables (info["encoding"]), which earlier versions cannot read
Scorer = Callable[[Matrix], F64]
Intercept = float | F64


@dataclass(frozen=True, repr=False, kw_only=True)
class SavedModel(Shown, ABC):
    """The base class of models, which score rows in memory and can be saved.

    A model with a map takes raw rows and maps them; it takes rows of features only if the caller states that the same
    map produced them.

    Attributes
    ----------
    intercept : b, float, or (K,) float64
    classes : the labels, (2,) or (K,), sorted; none for a regression
    scaling : the scaling of the training rows, or None for raw rows
    feature_names : names of the columns of the training rows before any map, or None
    info : how the model was trained: solver, C, status, objective and more
    features : the map that computes the features x (see kernels.feature_maps), or None if the training rows were raw
    """

    intercept: Intercept
    classes: npt.NDArray[Any]
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    features: Features | None = None
    kind: ClassVar[str]
    default_task: ClassVar[str] = "classify"

    def _list_facts(self) -> dict[str, str | None]:
        told, vectors = self.info, getattr(self, "dual_coef", None)
        problem, coef = told.get("problem"), np.asarray(getattr(self, "coef", ()))
        is_sparse = isinstance(problem, dict) and problem.get("penalty") == "l1"
        known = {"objective", "lower_bound"} <= set(told) and told["objective"] is not None
        return {
            "task": self.problem.name,
            "classes": f"{len(self.classes):,}" if len(self.classes) else None,
            "features": f"{self.n_features:,}",
            "support vectors": None if vectors is None else f"{vectors.shape[-1]:,}",
            "weights": f"{np.count_nonzero(coef):,} of {coef.size:,} weights are not 0" if is_sparse else None,
            "map": None if self.features is None else f"{self.n_trained:,} features",
            "scaling": None if self.scaling is None else self.scaling.kind,
            "solver": told.get("solver"),
            "C": str(told["C"]) if "C" in told else None,
            "status": told.get("status"),
            **(describe_certificate(told["objective"], told["lower_bound"]) if known else {}),
        }

    @property
    def problem(self) -> Problem:
        """The problem that the model solves; it defines the meaning of the scores."""
        return find_problem(self.info.get("task", self.default_task))

    @property
    def loss(self) -> str:
        """The name of the loss that the model was trained with."""
        return str(self.info.get("loss", next(iter(PROBLEMS[self.problem.name].losses))))

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of a table's columns as features, before any map; None if the columns are numbers."""
        about = self.info.get("encoding")
        return None if about is None else read_encoding(about)

    @property
    def row_scaling(self) -> Scaling | None:
        """The scaling of raw rows, before any map, or None."""
        return self.scaling if self.features is None else self.features.scaling

    @property
    def score_shape(self) -> tuple[int, ...]:
        """The shape of the scores of a row: () for one score, or (K,)."""
        n_scores = self.problem.count_scores(len(self.classes))
        return () if n_scores == 1 else (n_scores,)

    @property
    @abstractmethod
    def n_trained(self) -> int:
        """The number of features of the training rows, after the map if there is one."""

    @property
    def n_features(self) -> int:
        """The number of features of the rows that the model takes, before the map if there is one."""
        return self.n_trained if self.features is None else self.features.map.d

    def scorer(
        self, n_features: int, scaling: Scaling | None, sparse: bool, features: Features | None = None
    ) -> Scorer:
        """Return a function that computes f for rows of n_features features with this scaling (None: raw rows).

        features: the map that produced the rows, or None for raw rows. Sparse rows may have fewer features than the
        model; the others count as 0. Dense rows must have as many features as the model. Raises InputError for
        unsuitable rows.
        """
        if self.features is None and features is None:
            return refuse_overflow(self._score_rows(n_features, scaling, sparse))
        if self.features is None or (features is not None and features.sha256 != self.features.sha256):
            raise InputError("these features come from another map than that of the model; give the model raw rows")
        score = refuse_overflow(self._score_rows(self.n_trained, None, False))
        if features is not None:
            return score
        known, prepare = self.features, make_rescaling(n_features, scaling, sparse, self.n_features, self.row_scaling)

        def score_mapped(X: Matrix) -> F64:
            rows = prepare(X)
            parts = split_rows(known.map, rows.shape[0])  # in parts, since features may take more memory than rows
            found = [score(known.apply(slice_rows(rows, part))) for part in parts]
            return np.concatenate(found) if found else score(known.apply(rows))

        return score_mapped

    @abstractmethod
    def _score_rows(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return a function that computes f for rows in the space of the training rows, after any map."""

    @abstractmethod
    def to_arrays(self) -> dict[str, Any]:
        """Return the contents of the model's file by name."""

    def _describe(self, **own: Any) -> str:
        """Return the JSON part of the model's file. own: the entries that depend on the kind of model."""
        about = {
            "format": ENCODED_FORMAT if "encoding" in self.info else FORMAT,
            "kind": self.kind,
            "scaling": None if self.scaling is None else self.scaling.kind,
            "feature_names": self.feature_names,
            "info": self.info,
            "n_features": self.n_trained,
            **({} if self.features is None else {"features": self.features.pack()[0]}),
        }
        return json.dumps({**about, "intercept": np.asarray(self.intercept).tolist(), **own})

    def _pack_features(self) -> dict[str, Any]:
        """Return the arrays of the map, with prefixed names."""
        arrays = {} if self.features is None else self.features.pack()[1]
        return {f"{OF_FEATURES}{name}": values for name, values in arrays.items()}

    def decide(self, X: Matrix, scaling: Scaling | None = None) -> F64:
        """Return f(x) for rows in memory, (n,) float64, or (n, K) for K > 2 classes.

        Raw float64 rows are scaled before they are rounded to float32, as the training rows were.
        """
        return self.scorer(X.shape[1], scaling, isinstance(X, CsrRows))(X)

    def to_bytes(self) -> bytes:
        """Return the bytes of the model's file; equal models have equal bytes."""
        packed = pack_arrays(self.to_arrays())
        vars(self)["sha256"] = hashlib.sha256(packed).hexdigest()  # fills the cached property, which callers report
        return packed

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 of the bytes of the model's file, in hexadecimal digits."""
        return hashlib.sha256(pack_arrays(self.to_arrays())).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the model to a file, or to the object at a URL, completely or not at all."""
        content = self.to_bytes()
        if not is_remote(path):
            write_atomically(to_local_path(path), content)
            return
        from streamsvm.data.store.destination import new_file

        with new_file(path) as file:
            file.write(content)


def pack_scaling(scaling: Scaling | None) -> dict[str, F64]:
    """Return the arrays of a scaling; none for raw rows."""
    return {} if scaling is None else {"offset": scaling.offset, "factor": scaling.factor}


@dataclass(frozen=True, repr=False, kw_only=True)
class LinearModel(SavedModel):
    """f(x) = w.x + b for rows that are scaled like the training rows. f(x) > 0 predicts classes[1].

    For K > 2 classes f(x) is K scores, and the largest score predicts its class.

    Attributes
    ----------
    coef : w, (d,) float64, or (K, d)
    """

    coef: F64
    kind: ClassVar[str] = "linear"

    @property
    def n_trained(self) -> int:
        """The number of features of the training rows, after the map if there is one."""
        return int(self.coef.shape[-1])

    def _score_rows(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return a function that computes f for rows in the space of the training rows, after any map."""
        rescale = make_rescaling(n_features, scaling, sparse, self.n_trained, self.scaling)
        w, b = self.weights(n_features, scaling, sparse)

        def score(X: Matrix) -> F64:
            if self.scaling is not None and not isinstance(X, CsrRows) and X.dtype == np.float64:
                return self._score_rows(self.n_trained, self.scaling, False)(rescale(X))
            rows = X.keep_features(n_features) if isinstance(X, CsrRows) else X
            return compute_scores(rows, w) + b if w.ndim > 1 else compute_scores(rows, w[None, :])[:, 0] + b

        return score

    def weights(self, n_features: int, scaling: Scaling | None, sparse: bool) -> tuple[F64, Intercept]:
        """Return weights (.., n_features) and the bias for rows with this scaling.

        Raises InputError for unsuitable rows.
        """
        if not sparse:
            require_width(n_features, self.n_trained)
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
        arrays = {"coef": self.coef, "classes": self.classes, "about": self._describe()}
        return arrays | pack_scaling(self.scaling) | self._pack_features()


@dataclass(frozen=True, repr=False, kw_only=True)
class RankModel(LinearModel):
    """f(x) = w.x; rows of a higher rank have higher scores. classes: the ranks of the training rows. intercept: 0."""

    kind: ClassVar[str] = "rank"
    default_task: ClassVar[str] = "rank"


N_SUPPORT = "n_support"  # key in a model's info: the number of support vectors of each class


@dataclass(frozen=True, repr=False, kw_only=True)
class KernelModel(SavedModel):
    """f(x) = sum_j dual_coef_j k(x, z_j) + b over m support vectors z_j. f(x) > 0 predicts classes[1].

    Attributes
    ----------
    kernel : k
    support_vectors : z_j, (m, d) float32, dense or sparse, scaled like the training rows
    dual_coef : y_j a_j, (m,) float64, or (K, m) for K > 2 classes
    support : the row numbers of the z_j in the data, (m,) int64, ascending; None if they are not rows of the data
    n_support : the number of z_j of each class, (K,) int64, if all pairs of classes were trained. Then the z_j
        are in the order of their classes, dual_coef is (K - 1, m) and intercept has an entry for each pair
        (numeric.labels); the K scores are votes. None for a single problem, or for one problem per class.
    """

    kernel: Kernel
    support_vectors: Matrix
    dual_coef: F64
    support: I64 | None = None
    n_support: I64 | None = None
    kind: ClassVar[str] = "kernel"

    @property
    def n_trained(self) -> int:
        """The number of features of the training rows."""
        return int(self.support_vectors.shape[1])

    @property
    def is_of_known_values(self) -> bool:
        """Whether the kernel is precomputed.

        If so, a row holds kernel values, and `support` has the row numbers of the z_j.
        """
        return self.kernel.name == precomputed.NAME

    def keep_vectors(self, vectors: Matrix) -> Matrix:
        """Return the support vectors to store: none for a precomputed kernel, since their row numbers suffice."""
        return slice_rows(vectors, slice(0, 0)) if self.is_of_known_values else vectors

    def _score_rows(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return a function that computes f for rows like the training rows, as sums over the support vectors."""
        prepare = make_rescaling(n_features, scaling, sparse, self.n_trained, self.scaling)

        def score_part(rows: Matrix, vectors: Matrix) -> F64:
            if self.n_support is not None:
                sums = sum_by_class(self.n_support, rows.shape[0], partial(self._sum_kernels, rows, vectors))
                return vote(sums + self.intercept, len(self.classes))
            if self.dual_coef.ndim > 1 or self.is_of_known_values:
                F = self._sum_kernels(rows, vectors) + self.intercept
                return F if self.dual_coef.ndim > 1 else F[:, 0]
            f = np.full(rows.shape[0], self.intercept)
            add_kernel_sums(self.kernel, rows, vectors, self.dual_coef, f)
            return f

        def score(X: Matrix) -> F64:
            parts = match_parts(to_float64(prepare(X)), self.support_vectors)
            return np.concatenate([score_part(*pair) for _, *pair in parts])

        return score

    def list_pairs(self) -> KernelModel:
        """Return the model with pair scores in place of votes; a score above 0 is for the first class of a pair."""
        if self.n_support is None:
            return self
        coefs, pairs = np.stack(list(expand(self.dual_coef, self.n_support))), np.arange(len(self.intercept))  # type: ignore[arg-type]
        return replace(self, dual_coef=coefs, classes=pairs, n_support=None)

    def _sum_kernels(self, rows: Matrix, vectors: Matrix, block: slice = slice(None)) -> F64:
        """Return sum_j dual_coef_kj k(x_i, z_j), (n, k), over a block of vectors.

        With a precomputed kernel, the rows hold the kernel values.
        """
        coefs = np.atleast_2d(self.dual_coef)[:, block]
        if self.is_of_known_values:
            assert self.support is not None
            W = np.zeros((len(coefs), self.n_trained))
            W[:, self.support[block]] = coefs
            return compute_scores(rows, W)
        own = slice_rows(vectors, slice(*block.indices(vectors.shape[0])))
        return compute_kernel_sums(self.kernel, rows, own, coefs)

    def to_arrays(self) -> dict[str, Any]:
        """Return the contents of the model's file by name."""
        arrays = {"dual_coef": self.dual_coef, "classes": self.classes}
        arrays |= pack_rows(self.support_vectors, "support_vectors") | pack_scaling(self.scaling)
        arrays |= {} if self.support is None else {"support": self.support}
        arrays |= {} if self.n_support is None else {"n_support": self.n_support}
        return arrays | {"about": self._describe(kernel=asdict(self.kernel))} | self._pack_features()


Model = LinearModel | KernelModel
MODELS: dict[str, type[Any]] = {model.kind: model for model in (LinearModel, RankModel, KernelModel)}


def load(path: str | Path) -> Model:
    """Return the model in a file or a run's folder. Loading runs no code in the file.

    The path may also be the URL of a model file or of a run's folder in an object store. Raises InputError if there is
    no model.
    """
    if is_remote(path):
        from streamsvm.data.remote.files import copied, is_object

        given = str(path).rstrip("/")
        url = given if given.endswith(".npz") or is_object(given) else f"{given}/model.npz"
        try:
            with copied(url) as copy:
                return from_arrays(unpack_arrays(copy, url), url)
        except OSError as error:
            raise InputError(f"{url}: {error.strerror or error}") from error
    file = to_local_path(path)
    if (file / "zarr.json").is_file() or (file.is_file() and is_table(file)):
        raise InputError(f"{file}: this holds rows, not a model: name the model first, then the rows")
    if file.is_dir():
        file = file / "model.npz"
    return from_arrays(unpack_arrays(file), file)


def from_arrays(arrays: dict[str, Any], name: str | Path) -> Model:
    """Return the model in a file's arrays. Raises InputError with the name of an invalid part."""
    try:
        return _read_model(arrays)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not a model of streamsvm ({error})") from error


def _read_model(arrays: dict[str, Any]) -> Model:
    """Return the model in a file's arrays after checking every part. Raises ValueError for an unsuitable part."""
    about = read_about(arrays, (FORMAT, ENCODED_FORMAT))
    kind = stored_parts.read_part(about, "kind")
    if kind not in list(MODELS):
        raise ValueError(f"kind is {str(kind)[:40]!r}; linear, rank or kernel is expected")
    d = stored_parts.read_count(about, "n_features", stored_parts.MOST_FEATURES)
    parts = {name.removeprefix(OF_FEATURES): arrays[name] for name in arrays if name.startswith(OF_FEATURES)}
    packed = about.get("features")
    features = None if packed is None else unpack_features(packed, parts)
    if features is not None and features.map.n_features != d:
        raise ValueError(f"n_features is {d}, but the map of the features has {features.map.n_features}")
    info, n_raw = stored_parts.read_info(about), d if features is None else features.map.d
    if ("encoding" in info) != (about["format"] == ENCODED_FORMAT):
        raise ValueError(f"format {about['format']} does not match the encoding")
    if "encoding" in info and read_encoding(info["encoding"]).n_features != n_raw:
        raise ValueError("encoding: its number of features differs from that of the model")
    problem = _find_problem(MODELS[kind], info)
    classes = stored_parts.read_classes(arrays, 2 if problem.has_classes else 0)
    n_scores = problem.count_scores(len(classes))
    check_calibration(info, n_scores)
    lead = () if n_scores == 1 else (n_scores,)
    names, scaling = stored_parts.read_names(about, n_raw), stored_parts.read_scaling(about, arrays, d)
    by_class = stored_parts.read_class_sizes(arrays, "n_support", len(classes)) if "n_support" in arrays else None
    if by_class is not None and kind != KernelModel.kind:
        raise ValueError("n_support belongs only to kernel models")
    shared: dict[str, Any] = {
        "intercept": stored_parts.read_intercept(about, n_scores if by_class is None else count_pairs(len(classes))),
        "classes": classes,
        "scaling": scaling,
        "feature_names": names,
        "info": info,
        "features": features,
    }
    if kind == KernelModel.kind:
        lead = lead if by_class is None else (len(classes) - 1,)
        return KernelModel(**shared, **_read_sums(arrays, about, d, lead, by_class), n_support=by_class)
    model: Model = MODELS[kind](coef=stored_parts.read_floats(arrays, "coef", (*lead, d)), **shared)
    return model


def _read_sums(
    arrays: dict[str, Any], about: dict[str, Any], d: int, lead: tuple[int, ...], by_class: I64 | None
) -> dict[str, Any]:
    """Return the fields of a kernel model; the coefficients have the shape (*lead, m)."""
    kernel, vectors = stored_parts.read_kernel(about), stored_parts.read_rows(arrays, "support_vectors", d)
    m = vectors.shape[0]
    if kernel.name == precomputed.NAME:
        m = np.atleast_1d(stored_parts.read_part(arrays, "support")).size
    if by_class is not None and int(by_class.sum()) != m:
        raise ValueError(f"n_support sums to {by_class.sum()}; there are {m} support vectors")
    n_rows = stored_parts.read_n_rows(stored_parts.read_info(about))
    support = stored_parts.read_row_numbers(arrays, "support", m, n_rows, by_class) if "support" in arrays else None
    if kernel.name == precomputed.NAME and support is not None and support.max(initial=-1) >= d:
        raise ValueError(f"support names row {support.max()}, but a row has {d} kernel values")
    coefs = stored_parts.read_floats(arrays, "dual_coef", (*lead, m))
    return {"kernel": kernel, "support_vectors": vectors, "dual_coef": coefs, "support": support}


def read_about(arrays: Mapping[str, Any], formats: tuple[int, ...]) -> dict[str, Any]:
    """Return the JSON part of a file of arrays. Raises ValueError unless the file has one of these formats."""
    about = json.loads(str(stored_parts.read_part(arrays, "about")))
    if not isinstance(about, dict) or about.get("format") not in formats:
        found, known = about.get("format") if isinstance(about, dict) else about, " and ".join(map(str, formats))
        raise ValueError(f"format {str(found)[:40]}; this version of streamsvm reads the formats {known}")
    return about


def _find_problem(model: type[Model], info: dict[str, Any]) -> Problem:
    """Return the problem of a saved model. Raises ValueError if it is unknown, or has no models of this kind."""
    task = info.get("task", model.default_task)
    if task not in PROBLEMS or model.kind not in find_problem(task).models:
        raise ValueError(f"the task is {str(task)[:40]!r}, which has no models of the kind {model.kind}")
    if "loss" in info and info["loss"] not in list(PROBLEMS[task].losses):
        raise ValueError(f"the loss is {str(info['loss'])[:40]!r}, which the task {task} does not have")
    return find_problem(task)
