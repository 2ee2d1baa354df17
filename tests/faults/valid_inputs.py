"""Valid inputs of every kind, small, each made of a generator's state alone."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from streamsvm.kernels.feature_maps import Features, KernelMap, PolynomialMap
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel, LinearModel, RankModel
from streamsvm.numeric.stored_types import Scaling, as_matrix

Random = random.Random


def make_svmlight(rng: Random) -> bytes:
    """Rows, some of them with query ids or comments."""
    qid, lines = rng.random() < 0.3, []
    for i in range(rng.randrange(1, 25)):
        columns = sorted(rng.sample(range(1, 30), rng.randrange(0, 8)))
        items = " ".join(f"{j}:{rng.choice((1, 0.5, -3.25, 1e-7, rng.random(), rng.gauss(0, 100)))}" for j in columns)
        comment = rng.choice(("", "", " # a 1:2", "#"))
        lines.append(f"{rng.choice((-1, 1, '+1', 2.5))} {f'qid:{i // 3} ' if qid else ''}{items}{comment}")
    return ("\n".join(lines) + rng.choice(("\n", ""))).encode()


def make_csv(rng: Random) -> bytes:
    """Label and three features, with or without a header; numbers or words as labels, quoted by chance."""
    words, lines = rng.random() < 0.5, []
    if rng.random() < 0.6:
        lines.append(rng.choice(("y,a,b,c", "label,0,1,2", '"y","a b","c","d"', "target,é,b,c")))
    for _ in range(rng.randrange(2, 25)):
        label = rng.choice(("u", "v", '"w"', '"x\ny"', '"1,2"', '"q""r"')) if words else str(rng.randrange(3))
        cells = [rng.choice((f"{rng.gauss(0, 9)}", "1", "-2.5e-3", f'"{rng.random()}"', " 7 ")) for _ in range(3)]
        lines.append(",".join((label, *cells)))
    return ("\n".join(lines) + rng.choice(("\n", ""))).encode()


def make_matrix(rng: Random) -> Any:
    shape = (rng.randrange(1, 12), rng.randrange(1, 6))
    X = np.random.default_rng(rng.randrange(2**32)).normal(size=shape) * 10.0 ** rng.randrange(-3, 4)
    return np.asarray(X.astype(rng.choice(("f4", "f8", "i4", "f2", "u1", "b1", ">f8"))), order=rng.choice("CF"))


def make_npy(rng: Random) -> bytes:
    packed = io.BytesIO()
    with np.errstate(all="ignore"):
        np.save(packed, make_matrix(rng))
    return packed.getvalue()


def make_npz(rng: Random) -> bytes:
    """X dense or sparse, with labels, weights and query ids by chance."""
    packed = io.BytesIO()
    with np.errstate(all="ignore"):
        X = make_matrix(rng)
    n = len(X)
    more = {"y": np.arange(n) % 2, "sample_weight": np.ones(n), "qid": np.arange(n) // 2}
    given = {name: values for name, values in more.items() if rng.random() < 0.5}
    if rng.random() < 0.5:
        rows = sparse.csr_array(np.asarray(X, np.float64) * (np.arange(X.size).reshape(X.shape) % 3 == 0))
        parts = {
            "data": rows.data,
            "indices": rows.indices,
            "indptr": rows.indptr,
            "shape": rows.shape,
            "format": b"csr",
        }
        given |= {name: np.asarray(part) for name, part in parts.items()}
    else:
        given["X"] = X
    (np.savez_compressed if rng.random() < 0.5 else np.savez)(packed, **given)
    return packed.getvalue()


def make_parquet(rng: Random) -> bytes:
    """A label and some columns, each of any type."""
    n, columns = rng.randrange(1, 40), {}
    numbers = np.random.default_rng(rng.randrange(2**32))
    for j in range(rng.randrange(1, 5)):
        values = numbers.normal(size=n) * 10
        choice = rng.randrange(12)
        columns[f"c{j}"] = (
            pa.array(values.astype(np.int64))
            if choice < 2
            else pa.array(values.astype(np.float32))
            if choice < 4
            else pa.array(values > 0)
            if choice == 4
            else pa.array(values.astype(np.float16))
            if choice == 5
            else pa.array(values).dictionary_encode()
            if choice == 6
            else pa.array([None, *values[1:].tolist()])
            if choice == 7 and rng.random() < 0.3
            else pa.array([str(v) for v in values])
            if choice == 8 and rng.random() < 0.3
            else pa.array([[v] for v in values])
            if choice == 9 and rng.random() < 0.3
            else pa.array(values)
        )
    label = numbers.integers(0, 3, n)
    columns["y"] = pa.array(label if rng.random() < 0.5 else [f"é{v}" for v in label.tolist()])
    packed = io.BytesIO()
    options: dict[str, Any] = {
        "compression": rng.choice(("none", "snappy", "zstd", "gzip")),
        "use_dictionary": rng.random() < 0.5,
        "write_page_checksum": rng.random() < 0.5,
        "data_page_version": rng.choice(("1.0", "2.0")),
        "row_group_size": rng.choice((5, 1000)),
    }
    pq.write_table(pa.table(columns), packed, **options)
    return packed.getvalue()


def make_model(rng: Random) -> bytes:
    """A model of each kind: linear, rank, kernel; of two classes or three; dense, sparse or mapped; scaled or not."""
    numbers, d, m = np.random.default_rng(rng.randrange(2**32)), 4, 5
    info = {
        "C": 1.0,
        "solver": "smo",
        "task": "classify",
        "version": "0",
        "status": "converged",
        "objective": 2.0,
        "lower_bound": 1.0,
    }
    scaling = (
        Scaling("standard", numbers.normal(size=d), numbers.uniform(0.5, 2, size=d)) if rng.random() < 0.3 else None
    )
    names = tuple("abcd") if rng.random() < 0.3 else None
    vectors = numbers.normal(size=(m, d)).astype(np.float32)
    kernel = Kernel(rng.choice(("linear", "rbf", "poly", "sigmoid")), 0.5)
    three = rng.random() < 0.3
    lead, intercept = ((3,), numbers.normal(size=3)) if three else ((), 0.5)
    classes = np.arange(3) if three else np.array(rng.choice((["no", "yes"], [-1, 1], [0.5, 1.5])))
    kind = rng.randrange(6)
    if kind < 2:
        return LinearModel(
            coef=numbers.normal(size=(*lead, d)),
            intercept=intercept,
            classes=classes,
            scaling=scaling,
            feature_names=names,
            info=info,
        ).to_bytes()
    if kind == 2:
        return RankModel(
            coef=numbers.normal(size=d),
            intercept=0.0,
            classes=np.arange(4),
            scaling=scaling,
            feature_names=names,
            info=info,
        ).to_bytes()
    if kind == 3:
        made: Any = KernelMap(kernel, vectors, np.eye(m)) if rng.random() < 0.5 else PolynomialMap(d, 2.0)
        coef = numbers.normal(size=(*lead, made.n_features))
        return LinearModel(
            coef=coef,
            intercept=intercept,
            classes=classes,
            feature_names=names,
            info=info,
            features=Features(made, scaling),
        ).to_bytes()
    rows = as_matrix(sparse.csr_array(vectors)) if kind == 4 else vectors
    return KernelModel(
        kernel=kernel,
        support_vectors=rows,
        dual_coef=numbers.normal(size=(*lead, m)),
        intercept=intercept,
        classes=classes,
        scaling=scaling,
        feature_names=names,
        info=info,
    ).to_bytes()


MAKERS: dict[str, tuple[Callable[[Random], bytes], str]] = {
    "svmlight": (make_svmlight, ".svm"),
    "csv": (make_csv, ".csv"),
    "npy": (make_npy, ".npy"),
    "npz": (make_npz, ".npz"),
    "parquet": (make_parquet, ".parquet"),
    "model": (make_model, ".npz"),
}
