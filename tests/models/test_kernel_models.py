"""Kernel models: scores by the formula, whatever the rows' layout and scaling; saved whole, loaded without pickle."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import KernelModel, from_arrays, load
from streamsvm.models.predict import predict
from streamsvm.numeric.rows import F32, F64, CsrRows, Matrix
from streamsvm.numeric.stored_types import Scaling
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.conftest import make_problem
from tests.kernel_problems import KINDS, compute_matrix, to_csr

D, M = 5, 30
RANDOM = np.random.default_rng(0)
VECTORS = (RANDOM.normal(size=(M, D)) * (RANDOM.random((M, D)) < 0.6)).astype(np.float32)
COEF = RANDOM.normal(size=M)
ROWS = (RANDOM.normal(size=(40, D)) * (RANDOM.random((40, D)) < 0.6)).astype(np.float32)
SCALINGS: dict[str, Scaling | None] = {
    "none": None,
    "minmax": Scaling("minmax", RANDOM.normal(size=D), RANDOM.uniform(0.5, 2, size=D)),
    "standard": Scaling("standard", RANDOM.normal(size=D), RANDOM.uniform(0.5, 2, size=D)),
    "maxabs": Scaling("maxabs", np.zeros(D), RANDOM.uniform(0.5, 2, size=D)),
}


def make_model(kind: str = "rbf", layout: str = "dense", scaling: str = "none") -> KernelModel:
    vectors: Matrix = to_csr(VECTORS) if layout == "sparse" else VECTORS
    names = tuple("abcde") if layout == "dense" else None
    classes = np.array(["no", "yes"])
    return KernelModel(
        kernel=KINDS[kind],
        support_vectors=vectors,
        dual_coef=COEF,
        intercept=0.25,
        classes=classes,
        scaling=SCALINGS[scaling],
        feature_names=names,
        info={"C": 2.0},
    )


def expect(model: KernelModel, raw: F64) -> F64:
    scaled = raw if model.scaling is None else (raw - model.scaling.offset) * model.scaling.factor
    return compute_matrix(model.kernel, scaled, VECTORS.astype(np.float64)) @ COEF + 0.25


def as_layout(X: F32 | F64, layout: str) -> Matrix:
    return to_csr(X) if layout == "sparse" else X.astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("vectors", ["dense", "sparse"])
def test_scores_are_the_formula(kind: str, layout: str, vectors: str) -> None:
    """In float64: to its rounding, alone or in company."""
    model = make_model(kind, vectors)
    scores = model.decide(as_layout(ROWS, layout))
    np.testing.assert_allclose(scores, expect(model, ROWS.astype(float)), rtol=1e-11, atol=1e-11)
    alone = [model.decide(as_layout(ROWS[i : i + 1], layout))[0] for i in range(len(ROWS))]
    np.testing.assert_allclose(scores, alone, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("vectors", ["dense", "sparse"])
@pytest.mark.parametrize("of_model", SCALINGS)
@pytest.mark.parametrize("of_rows", SCALINGS)
def test_rows_are_scored_however_they_are_scaled(of_rows: str, of_model: str, vectors: str, layout: str) -> None:
    model, scaling = make_model("rbf", vectors, of_model), SCALINGS[of_rows]
    rows = ROWS.astype(float) if scaling is None else (ROWS - scaling.offset) * scaling.factor
    scores = model.decide(as_layout(rows, layout), scaling)
    np.testing.assert_allclose(scores, expect(model, ROWS.astype(float)), atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("vectors", ["dense", "sparse"])
@pytest.mark.parametrize("d", [1, D - 2])
def test_sparse_rows_may_have_fewer_features(kind: str, scaling: str, vectors: str, d: int) -> None:
    """The missing features are zeros before they are scaled."""
    model = make_model(kind, vectors, scaling)
    known: F64 = np.zeros((6, D))
    rows: F32 = np.random.default_rng(d).normal(size=(6, d)).astype(np.float32)
    known[:, :d] = rows
    np.testing.assert_allclose(model.decide(to_csr(rows)), expect(model, known), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("vectors", ["dense", "sparse"])
@pytest.mark.parametrize(("d", "layout"), [(D - 1, "dense"), (D + 1, "dense"), (D + 1, "sparse")])
def test_other_rows_must_have_the_same_features(vectors: str, d: int, layout: str) -> None:
    with pytest.raises(InputError, match=f"the rows have {d} features, but the model was trained on {D} features"):
        make_model("rbf", vectors).decide(as_layout(np.zeros((1, d), np.float32), layout))


@pytest.mark.parametrize("vectors", ["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_without_support_vectors_there_is_the_bias(kind: str, vectors: str) -> None:
    none: Matrix = to_csr(VECTORS[:0]) if vectors == "sparse" else VECTORS[:0]
    model = replace(make_model(kind), support_vectors=none, dual_coef=COEF[:0])
    for layout in ("dense", "sparse"):
        np.testing.assert_array_equal(model.decide(as_layout(ROWS, layout)), 0.25)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("vectors", ["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_comes_back_to_the_same_bits(kind: str, vectors: str, scaling: str, tmp_path: Path) -> None:
    model = make_model(kind, vectors, scaling)
    model.save(tmp_path / "model.npz")
    for path in (tmp_path, tmp_path / "model.npz"):
        loaded = load(path)
        assert isinstance(loaded, KernelModel)
        assert loaded.to_bytes() == model.to_bytes()
        assert loaded.kernel == model.kernel
        assert (loaded.feature_names, loaded.info, loaded.n_features) == (model.feature_names, model.info, D)
        for layout in ("dense", "sparse"):
            rows = as_layout(ROWS, layout)
            assert loaded.decide(rows).tobytes() == model.decide(rows).tobytes()


class Bomb:
    """Goes off when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a model file ran code",)


@pytest.mark.parametrize("part", ["support_vectors", "dual_coef"])
def test_loading_runs_no_code(part: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "bomb.npz", **{**make_model().to_arrays(), part: np.array([Bomb()], dtype=object)})
    with pytest.raises(InputError, match=r"bomb\.npz: damaged, or not written by streamsvm"):
        load(tmp_path / "bomb.npz")


def change_about(model: KernelModel, **change: object) -> dict[str, object]:
    return {"about": json.dumps(json.loads(model.to_arrays()["about"]) | change)}


SPARSE = make_model("rbf", "sparse")
INDICES = SPARSE.to_arrays()["indices"]
INDPTR = SPARSE.to_arrays()["indptr"]


@pytest.mark.parametrize(
    "change",
    [
        change_about(SPARSE, kernel={"name": "cosine"}),
        change_about(SPARSE, kernel={"nom": "rbf"}),
        change_about(SPARSE, n_features=int(INDICES.max())),
        {"dual_coef": COEF[:-1]},
        {"indices": np.where(np.arange(len(INDICES)) == 3, -1, INDICES).astype(np.int32)},
        {"indices": INDICES[:-1]},
        {"indptr": INDPTR + 1},
        {"indptr": INDPTR[::-1].copy()},
        {"indptr": INDPTR[:0]},
        {"indptr": np.where(np.arange(len(INDPTR)) == 3, 10**9, INDPTR)},
    ],
)
def test_contents_that_do_not_fit_are_refused(change: dict[str, object]) -> None:
    """Compiled code would read outside of its arrays."""
    with pytest.raises(InputError, match=r"m\.npz: not a model of streamsvm"):
        from_arrays({**SPARSE.to_arrays(), **change}, "m.npz")


@pytest.mark.parametrize("part", ["dual_coef", "classes", "data", "indptr", "about"])
def test_parts_that_are_missing(part: str) -> None:
    arrays = SPARSE.to_arrays()
    del arrays[part]
    with pytest.raises(InputError, match="not a model of streamsvm"):
        from_arrays(arrays, "m.npz")


@given(st.data())
def test_a_damaged_file_is_refused_or_says_the_same(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from((make_model(scaling="minmax"), SPARSE)))
    content = bytearray(model.to_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    opened = zipfile.ZipFile
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.system.npz.ZipFile", lambda _: opened(io.BytesIO(bytes(content))))
        with suppress(InputError):
            assert load("m.npz").to_bytes() == model.to_bytes()  # the damage was in what no one reads


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("scale", ["none", "minmax", "standard", "maxabs"])
def test_files_and_datasets_are_scored_alike(layout: str, scale: str, tmp_path: Path) -> None:
    """Raw rows of a file, and stored ones that were scaled as they came in, by a model trained on these."""
    if layout == "sparse" and scale in ("minmax", "standard"):
        pytest.skip("such rows are stored dense")
    problem = make_problem(1, n=250, d=8, density=0.5 if layout == "sparse" else 1.0)
    dataset = problem.store(tmp_path / "rows", layout=layout, scale=scale, chunk_bytes=2000)
    options = TrainOptions(solver="smo", kernel="rbf", gamma=0.2, threads=1)
    model = train(dataset, options).model
    assert isinstance(model, KernelModel)
    assert isinstance(model.support_vectors, CsrRows) == (layout == "sparse")
    text = tmp_path / "rows.svm"
    text.write_text(
        "".join(
            f"{label:+d} " + " ".join(f"{j + 1}:{value:.9g}" for j, value in enumerate(x) if value) + "\n"
            for x, label in zip(problem.dense(), problem.y, strict=True)
        )
    )
    stored, from_text = evaluate(model, dataset), evaluate(model, text)
    assert stored == from_text
    assert stored["n_rows"] == 250
    assert stored["accuracy"] > 0.8
    scores = []
    for name, data in (("a", dataset), ("b", text)):
        assert predict(model, data, tmp_path / f"{name}.csv") == 250
        scores.append(np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1))
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-5)
    scaling = dataset.scaling
    raw = problem.dense()
    rows = raw if scaling is None else (raw - scaling.offset) * scaling.factor
    vectors = model.support_vectors
    dense = np.zeros(vectors.shape)
    if isinstance(vectors, CsrRows):
        dense[np.repeat(np.arange(vectors.shape[0]), np.diff(vectors.indptr)), vectors.indices] = vectors.data
    else:
        dense[:] = vectors
    expected = compute_matrix(model.kernel, rows, dense) @ model.dual_coef + model.intercept
    np.testing.assert_allclose(scores[0][:, 1], expected, atol=2e-5)
