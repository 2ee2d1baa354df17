"""Model files that do not hold what they should: an InputError that names file and part, in bounded memory and time."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import streamsvm
from streamsvm.kernels.feature_maps import Features, KernelMap, PolynomialMap
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel, LinearModel, from_arrays, load
from streamsvm.numeric.stored_types import Scaling, as_matrix
from streamsvm.system.errors import InputError
from tests.conftest import run_python

D, M = 4, 6
RANDOM = np.random.default_rng(0)
SCALING = Scaling("minmax", RANDOM.normal(size=D), RANDOM.uniform(0.5, 2, size=D))
VECTORS = RANDOM.normal(size=(M, D)).astype(np.float32)
CLASSES = np.array(["no", "yes"])
INFO = {"C": 1.0, "solver": "smo", "status": "converged", "objective": 1.0, "lower_bound": 0.5}
ROWS = INFO | {"problem": {"class_costs": [1.0, 1.0], "n_rows": 3 * M}}
MAP = Features(KernelMap(Kernel("rbf"), VECTORS, np.eye(M), "nystrom"), SCALING)
MODELS: dict[str, Any] = {
    "linear": LinearModel(
        coef=RANDOM.normal(size=D),
        intercept=0.25,
        classes=CLASSES,
        scaling=SCALING,
        feature_names=tuple("abcd"),
        info=INFO,
    ),
    "three": LinearModel(coef=RANDOM.normal(size=(3, D)), intercept=np.ones(3), classes=np.arange(3), info=INFO),
    "dense": KernelModel(
        kernel=Kernel("rbf"),
        support_vectors=VECTORS,
        dual_coef=np.ones(M),
        intercept=0.25,
        classes=CLASSES,
        scaling=SCALING,
        info=ROWS,
        support=np.arange(0, 3 * M, 3),
    ),
    "pairs": KernelModel(
        kernel=Kernel("rbf"),
        support_vectors=VECTORS,
        dual_coef=np.ones((2, M)),
        intercept=np.ones(3),
        classes=np.arange(3),
        info=ROWS,
        support=np.array([0, 3, 1, 4, 2, 5]),
        n_support=np.array([2, 2, 2]),
    ),
    "sparse": KernelModel(
        kernel=Kernel("poly"),
        support_vectors=as_matrix(csr_array(VECTORS)),
        dual_coef=np.ones(M),
        intercept=0.25,
        classes=CLASSES,
        info=INFO,
    ),
    "mapped": LinearModel(coef=RANDOM.normal(size=M), intercept=0.25, classes=CLASSES, info=INFO, features=MAP),
    "squared": LinearModel(
        coef=RANDOM.normal(size=15),
        intercept=0.25,
        classes=CLASSES,
        info=INFO,
        features=Features(PolynomialMap(D, 2.0)),
    ),
}


def changed(name: str, part: str, value: Any) -> dict[str, Any]:
    """Arrays of a model with another value for an array, or for an entry of its description ("kernel.gamma")."""
    arrays = MODELS[name].to_arrays()
    if part in arrays:
        return arrays | {part: value}
    about = json.loads(arrays["about"])
    *path, last = part.split(".")
    inner = about
    for step in path:
        inner = inner[step]
    inner[last] = value
    return arrays | {"about": json.dumps(about)}


WRONG = [
    ("linear", "kind", "tree"),
    ("linear", "kind", ["linear"]),
    ("linear", "format", 2),
    ("linear", "about", "[1]"),
    ("linear", "about", "[" * 100_000),
    ("linear", "coef", np.full(D, np.nan)),
    ("linear", "coef", np.full(D, np.inf)),
    ("linear", "coef", np.ones(D, np.float32)),
    ("linear", "coef", np.ones((1, D))),
    ("linear", "coef", np.ones(D + 1)),
    ("linear", "coef", np.array(["a"] * D)),
    ("linear", "coef", np.ones(D, ">f8")),
    ("linear", "coef", np.ones(())),
    ("linear", "intercept", "1"),
    ("linear", "intercept", None),
    ("linear", "intercept", float("nan")),
    ("linear", "intercept", [1.0]),
    ("linear", "intercept", 10**400),
    ("linear", "intercept", True),
    ("linear", "classes", np.array(["no"])),
    ("linear", "classes", np.array(["no", "no"])),
    ("linear", "classes", np.array([["no", "yes"]])),
    ("linear", "classes", np.array([0.0, np.nan])),
    ("linear", "classes", np.array([0j, 1j])),
    ("linear", "classes", np.array(3)),
    ("linear", "scaling", "log"),
    ("linear", "scaling", 3),
    ("linear", "offset", np.ones(D - 1)),
    ("linear", "offset", np.full(D, np.inf)),
    ("linear", "factor", np.zeros(D)),
    ("linear", "factor", np.full(D, np.nan)),
    ("linear", "feature_names", ["a", "b"]),
    ("linear", "feature_names", [1, 2, 3, 4]),
    ("linear", "feature_names", "abcd"),
    ("linear", "n_features", 3),
    ("linear", "n_features", -1),
    ("linear", "n_features", 4.0),
    ("linear", "n_features", True),
    ("linear", "info", []),
    ("linear", "info.C", "1"),
    ("linear", "info.objective", float("inf")),
    ("linear", "info.status", 3),
    ("linear", "info.lower_bound", [0.5]),
    ("three", "intercept", [1.0, 2.0]),
    ("three", "intercept", [1.0, 2.0, float("inf")]),
    ("three", "intercept", 1.0),
    ("three", "coef", np.ones((2, D))),
    ("three", "coef", np.full((3, D), np.nan)),
    ("dense", "dual_coef", np.full(M, np.nan)),
    ("dense", "dual_coef", np.ones(M + 1)),
    ("dense", "dual_coef", np.ones((1, M))),
    ("dense", "support", np.zeros(M, np.int64)),
    ("dense", "support", np.arange(M)[::-1]),
    ("dense", "support", np.arange(-1, M - 1)),
    ("dense", "support", np.arange(M + 1)),
    ("dense", "support", np.arange(M, dtype=np.float64)),
    ("dense", "support", np.arange(2 * M + 1, 3 * M + 1)),
    ("dense", "info.problem.n_rows", 3 * M - 3),
    ("dense", "info.problem.n_rows", "18"),
    ("dense", "info.problem.n_rows", 2.0**60),
    ("pairs", "support", np.array([0, 3, 1, 3, 2, 5])),
    ("pairs", "support", np.array([0, 3, 1, 4, 2, 3 * M])),
    ("dense", "support_vectors", VECTORS[0]),
    ("dense", "support_vectors", VECTORS[:, :2]),
    ("dense", "support_vectors", np.full((M, D), np.nan, np.float32)),
    ("dense", "support_vectors", VECTORS.astype(int)),
    ("dense", "kernel.gamma", -1.0),
    ("dense", "kernel.gamma", float("nan")),
    ("dense", "kernel.gamma", "scale"),
    ("dense", "kernel.degree", 2.5),
    ("dense", "kernel.degree", 0),
    ("dense", "kernel.degree", 10**9),
    ("dense", "kernel.coef0", float("inf")),
    ("dense", "kernel.name", "cosine"),
    ("dense", "kernel.name", ["rbf"]),
    ("dense", "kernel", "rbf"),
    ("dense", "kernel", {"name": "rbf"}),
    ("dense", "n_features", 2**31),
    ("sparse", "indices", np.zeros(M * D, np.int64)),
    ("sparse", "indices", np.full(M * D, D, np.int32)),
    ("sparse", "indptr", np.arange(0, M * D + 1, D, dtype=np.uint64)),
    ("sparse", "indptr", np.zeros(M + 1, np.int64)),
    ("sparse", "indptr", np.arange(0, M * D + 1, D, dtype=np.int64)[::-1]),
    ("sparse", "data", np.full(M * D, np.inf, np.float32)),
    ("sparse", "data", VECTORS),
    ("sparse", "n_features", 3),
    ("mapped", "features.map", "eigen"),
    ("mapped", "features.d", 5),
    ("mapped", "features", [1]),
    ("mapped", "features_matrix", np.full((M, M), np.nan)),
    ("mapped", "features_matrix", np.ones((M, 2))),
    ("mapped", "features_rows", VECTORS.astype(str)),
    ("mapped", "features_factor", np.ones(2)),
    ("mapped", "features.approximation", "magic"),
    ("mapped", "features.kernel.gamma", -1.0),
    ("squared", "features.largest", 0),
    ("squared", "features.largest", "2"),
    ("squared", "features.d", 2**31 - 1),
    ("squared", "features.d", 3),
]


NAMED_BY = {  # the part of the file that does not fit to what was changed
    ("linear", "format"): "format 2",
    ("linear", "about"): "format|recursion",
    ("linear", "n_features"): "coef|n_features|feature_names",
    ("dense", "info.problem.n_rows"): "n_rows|15 rows",
    ("sparse", "n_features"): "indices",
    ("sparse", "data"): "support_vectors",
    ("mapped", "features_matrix"): "n_features|matrix",
    ("mapped", "features.d"): "offset",
    ("squared", "features.d"): "n_features",
}


@pytest.mark.parametrize(("name", "part", "value"), WRONG)
def test_every_part_is_checked(name: str, part: str, value: Any, tmp_path: Path) -> None:
    """Whatever is wrong is named, with the file: not found out by compiled code, or by a user of the scores."""
    np.savez(tmp_path / "m.npz", **changed(name, part, value))
    for read in (load, streamsvm.load):
        with pytest.raises(InputError, match=r"m\.npz: .* (of|by) streamsvm \(") as caught:
            read(tmp_path / "m.npz")
        wanted = NAMED_BY.get((name, part), part.removeprefix("features_").rpartition(".")[2])
        assert re.search(wanted, str(caught.value).partition(" streamsvm (")[2])


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_whole_are_read(name: str, tmp_path: Path) -> None:
    MODELS[name].save(tmp_path / "m.npz")
    assert load(tmp_path / "m.npz").to_bytes() == MODELS[name].to_bytes()


def test_items_of_one_column_are_added_up() -> None:
    twice = {
        "data": np.repeat(VECTORS.ravel() / 2, 2),
        "indices": np.tile(np.repeat(np.arange(D, dtype=np.int32), 2), M),
    }
    arrays = MODELS["sparse"].to_arrays() | twice | {"indptr": np.arange(0, 2 * M * D + 1, 2 * D)}
    X = as_matrix(csr_array(VECTORS))
    np.testing.assert_array_equal(from_arrays(arrays, "m").decide(X), MODELS["sparse"].decide(X))


def pack(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    width = 2 if version == (1, 0) else 4
    return b"\x93NUMPY" + bytes(version) + (len(text)).to_bytes(width, "little") + text.encode()


def claim(shape: str, descr: str = "'<f8'") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")


HEADERS = {
    "huge": claim("(1000000000000,)"),
    "more than 64 bits": claim("(9" + "0" * 30 + ",)"),
    "negative": claim("(-1,)"),
    "not whole": claim("(1.5,)"),
    "truth": claim("(True,)"),
    "no tuple": claim("3"),
    "deep": claim("(" * 4000),
    "many dimensions": claim("(" + "1," * 100 + ")"),
    "code": claim("__import__('os').getcwd()"),
    "open": claim("(3,"),
    "objects": claim("(3,)", "'|O'"),
    "wide objects": claim("(3,)", "[('a', '|O')]"),
    "no type": claim("(3,)", "'x9'"),
    "number as type": claim("(3,)", "8"),
    "list as type": claim("(3,)", "[]"),
    "python 2": claim("(3L,)"),
    "glued": claim("(3if 1else 2,)"),
    "escape": claim(r"'\d'"),
    "no keys": header("{}"),
    "no dict": header("3"),
    "long": header("{" + " " * 20_000 + "}"),
    "version": header("{}", (9, 0)),
    "truncated": claim("(3,)")[:20],
    "blanks in front": header(" " + claim("(3,)")[10:].decode()),
    "other blanks": header(claim("(3,)")[10:].decode() + "\x0b"),
    "empty": b"",
    "short": claim("(3,)") + bytes(8),
    "more": claim("(1,)") + bytes(80),
    "not npy": b"hello world",
}


@pytest.mark.parametrize("what", HEADERS)
def test_headers_that_claim_what_is_not_there(what: str, tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(pack({"coef.npy": HEADERS[what]}))
    with pytest.raises(InputError, match=r"m\.npz: damaged, or not written by streamsvm \(coef: "):
        load(tmp_path / "m.npz")


def same_twice() -> bytes:
    with pytest.warns(UserWarning, match="Duplicate name"):
        return pack_twice()


def pack_twice() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for _ in range(2):
            archive.writestr("coef.npy", claim("(0,)"))
    return buffer.getvalue()


ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "compressed": (lambda: pack({"coef.npy": claim("(0,)")}, zipfile.ZIP_DEFLATED), "is compressed"),
    "twice": (same_twice, "two arrays have the same name"),
    "other file": (lambda: pack({"coef.txt": b"1"}), "is not an array"),
    "other data in front": (lambda: b"hello" + pack({"coef.npy": claim("(0,)")}), "other data precede its arrays"),
    "no archive": (lambda: b"hello", "not a zip file"),
}


@pytest.mark.parametrize("what", ARCHIVES)
def test_archives_that_streamsvm_does_not_write(what: str, tmp_path: Path) -> None:
    make, reason = ARCHIVES[what]
    (tmp_path / "m.npz").write_bytes(make())
    with pytest.raises(InputError, match=f"m.npz: damaged, or not written by streamsvm .*{reason}"):
        load(tmp_path / "m.npz")


LIMITED = """
import json, resource, sys
import numpy as np
from scipy.sparse import csr_array
import streamsvm
from streamsvm.solvers.set_up import ALL_MODELS, compile_all
compile_all(ALL_MODELS)
before, said = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
for path in sys.argv[1:]:
    try:
        model = streamsvm.load(path)
        row = csr_array((np.ones(1, np.float32), [3], [0, 1]), shape=(1, model.n_features_in_))
        said.append(model.decision_function(row).tolist())
    except streamsvm.system.errors.InputError as error:
        said.append(str(error))
print(json.dumps([(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, *said]))
"""


@pytest.mark.slow("measures memory in a process of its own")
def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """Half a GB of zeros in half a MB; and a claim of 2^31 - 1 features by support vectors that have four."""
    archive = zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("coef.npy", "w", force_zip64=True) as file:
        file.write(claim("(67108864,)"))
        for _ in range(512):
            file.write(bytes(1 << 20))
    expected = []
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        np.savez(tmp_path / f"{kernel}.npz", **(MODELS["sparse"].to_arrays() | {"about": changed_kernel(kernel)}))
        narrow = replace(MODELS["sparse"], kernel=Kernel(kernel))
        expected.append(narrow.decide(as_matrix(csr_array(np.eye(D, dtype=np.float32)[3:]))).tolist())
    paths = [tmp_path / f"{name}.npz" for name in ("bomb", "linear", "poly", "rbf", "sigmoid")]
    ended = run_python(LIMITED, *paths)
    assert ended.returncode == 0, ended.stderr
    taken, said, *scores = json.loads(ended.stdout)
    assert "coef.npy is compressed" in said
    assert scores == expected
    assert taken < 100


def changed_kernel(kernel: str) -> str:
    about = json.loads(MODELS["sparse"].to_arrays()["about"])
    return json.dumps(about | {"n_features": 2**31 - 1, "kernel": about["kernel"] | {"name": kernel}})


@pytest.mark.parametrize("name", ["linear", "sparse", "mapped"])
def test_scores_that_overflow_are_no_scores(name: str) -> None:
    """Of a model whose numbers are finite, but so large that products of them are not."""
    large = {"linear": {"coef": np.full(D, 1e308)}, "sparse": {"dual_coef": np.full(M, 1e308)}}
    given = large.get(name, {"features_matrix": np.full((M, M), 1e308)})
    model = from_arrays(MODELS[name].to_arrays() | given, "m")
    with pytest.raises(InputError, match="overflow float"):
        model.decide(VECTORS if name == "mapped" else VECTORS * np.float32(100))
