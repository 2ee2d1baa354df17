"""Models: decision values by the formula, whatever the rows' layout and scaling; saved whole, loaded without pickle."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm.models.model import LinearModel, from_arrays, load
from streamsvm.numeric.rows import CsrRows
from streamsvm.numeric.stored_types import Scaling, as_matrix
from streamsvm.system.errors import InputError

D = 4
NAMES = ("a", "b", "c", "d")
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(5, D)).astype(np.float32)
MODEL = LinearModel(
    coef=RANDOM.normal(size=D),
    intercept=0.25,
    classes=np.array(["no", "yes"]),
    scaling=Scaling("minmax", RANDOM.normal(size=D), RANDOM.uniform(0.5, 2, size=D)),
    feature_names=NAMES,
    info={"C": 2.0},
)
RAW = replace(MODEL, scaling=None)
OTHER = Scaling("standard", RANDOM.normal(size=D), RANDOM.uniform(0.5, 2, size=D))


def scale(rows: npt.NDArray[np.float64], scaling: Scaling) -> npt.NDArray[np.float32]:
    return ((rows - scaling.offset) * scaling.factor).astype(np.float32)


def sparse(rows: npt.NDArray[np.float32]) -> CsrRows:
    matrix = as_matrix(csr_array(rows))
    assert isinstance(matrix, CsrRows)
    return matrix


def assert_same(left: LinearModel, right: LinearModel) -> None:
    assert left.to_bytes() == right.to_bytes()
    np.testing.assert_array_equal(left.coef, right.coef)
    np.testing.assert_array_equal(left.classes, right.classes)
    assert (left.intercept, left.feature_names, left.info) == (right.intercept, right.feature_names, right.info)


def test_decision_values_are_w_x_plus_b() -> None:
    expected = X.astype(np.float64) @ MODEL.coef + 0.25
    np.testing.assert_allclose(RAW.decide(X), expected, rtol=1e-12)
    np.testing.assert_allclose(RAW.decide(sparse(X)), expected, rtol=1e-12)


@pytest.mark.parametrize("rows_scaling", [None, MODEL.scaling, OTHER])
def test_rows_are_scored_however_they_are_scaled(rows_scaling: Scaling | None) -> None:
    rows = X if rows_scaling is None else scale(X.astype(np.float64), rows_scaling)
    assert MODEL.scaling is not None
    expected = (X - MODEL.scaling.offset) * MODEL.scaling.factor @ MODEL.coef + 0.25
    np.testing.assert_allclose(MODEL.decide(rows, rows_scaling), expected, atol=1e-5)
    raw_weights = X.astype(np.float64) @ RAW.coef + 0.25
    np.testing.assert_allclose(RAW.decide(rows, rows_scaling), raw_weights, atol=1e-5)


@pytest.mark.parametrize("model", [RAW, MODEL])
@pytest.mark.parametrize("d", [2, D])
def test_sparse_rows_may_have_fewer_features(model: LinearModel, d: int) -> None:
    rows = RANDOM.normal(size=(3, d)).astype(np.float32)
    known = np.zeros((3, D), np.float32)
    known[:, :d] = rows
    np.testing.assert_allclose(model.decide(sparse(rows)), model.decide(known), rtol=1e-9)


@pytest.mark.parametrize("model", [RAW, MODEL])
def test_rows_of_more_features_are_refused_and_dense_rows_of_fewer(model: LinearModel) -> None:
    dense = {d: np.zeros((1, d), np.float32) for d in (D - 1, D + 1)}
    for d, rows in ((D - 1, dense[D - 1]), (D + 1, dense[D + 1]), (D + 1, sparse(dense[D + 1]))):
        with pytest.raises(InputError, match=f"the rows have {d} features, but the model was trained on {D} features"):
            model.decide(rows)


@pytest.mark.parametrize("model", [MODEL, RAW, replace(RAW, feature_names=None, classes=np.array([-1.5, 2.0]))])
def test_what_is_saved_comes_back(tmp_path: Path, model: LinearModel) -> None:
    model.save(tmp_path / "model.npz")
    assert_same(load(str(tmp_path / "model.npz")), model)
    assert_same(load(tmp_path), model)  # a run's folder
    np.testing.assert_array_equal(load(tmp_path).decide(X), model.decide(X))
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_the_same_model_gives_the_same_bytes() -> None:
    again = replace(MODEL, coef=MODEL.coef.copy())
    assert again.to_bytes() == MODEL.to_bytes()
    assert replace(MODEL, intercept=0.5).to_bytes() != MODEL.to_bytes()


def test_saving_leaves_the_old_file_whole_if_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MODEL.save(tmp_path / "model.npz")

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("streamsvm.system.files.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        RAW.save(tmp_path / "model.npz")
    assert_same(load(tmp_path / "model.npz"), MODEL)


class Bomb:
    """Goes off when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a model file ran code",)


def test_loading_runs_no_code(tmp_path: Path) -> None:
    np.savez(tmp_path / "bomb.npz", **{**MODEL.to_arrays(), "coef": np.array([Bomb()], dtype=object)})
    with pytest.raises(InputError, match=r"bomb\.npz: damaged, or not written by streamsvm"):
        load(tmp_path / "bomb.npz")


@pytest.mark.parametrize("name", ["missing.npz", "."])
def test_no_model_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"about": json.dumps({"format": 99})}, "format 99; this version of streamsvm reads the formats 1"),
        ({"about": "{"}, "not a model of streamsvm"),
        ({"about": "3"}, "not a model of streamsvm"),
        ({"about": json.dumps({"format": 1, "scaling": "minmax"})}, "not a model of streamsvm"),
    ],
)
def test_other_formats(change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays({**RAW.to_arrays(), **change}, "m.npz")


@given(st.data())
def test_a_damaged_file_is_refused_or_says_the_same(data: st.DataObject) -> None:
    content = bytearray(MODEL.to_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    opened = zipfile.ZipFile
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.system.npz.ZipFile", lambda _: opened(io.BytesIO(bytes(content))))
        with suppress(InputError):
            assert_same(load("m.npz"), MODEL)  # the damage was in what no one reads: a time, an attribute
