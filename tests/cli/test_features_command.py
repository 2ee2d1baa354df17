"""`streamsvm features`, and what becomes of models that are trained on its datasets."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import streamsvm
from streamsvm import LinearSVC
from streamsvm.cli.progress import RowCounter
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.kernels import feature_maps
from streamsvm.kernels.feature_maps import PolynomialMap
from streamsvm.models.model import LinearModel, load
from streamsvm.models.score import score
from streamsvm.runs import features
from streamsvm.runs.features import make_features
from streamsvm.solvers.options import FeatureOptions
from tests.commands import Run, data, run, text, trained  # noqa: F401
from tests.conftest import ROOT, Problem, make_problem
from tests.kernel_problems import KINDS, ask_for, compute_matrix

F64 = np.ndarray[Any, np.dtype[np.float64]]


def scores_of(model: Any, rows: Any) -> F64:
    return np.concatenate([part.scores for part in score(load(model), rows)])


def write_out(x: F64) -> F64:
    """(5.1) without its divisor, a row at a time."""
    d, root = len(x), np.sqrt(2.0)
    pairs = [root * x[i] * x[j] for i in range(d) for j in range(i + 1, d)]
    return np.array([*(x**2), *pairs, *(root * x), 1.0])


def test_the_page_s_three_commands(run: Run, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (ROOT / "docs" / "solvers" / "feature_maps.md").read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("$ streamsvm features "))
    commands = [line.split("#")[0].split()[2:] for line in lines[first : first + 3]]
    assert [command[0] for command in commands] == ["features", "train", "evaluate"]
    monkeypatch.chdir(tmp_path)
    shutil.copy(text, "held-out.svm")
    assert run("ingest", text, "rows.zarr").code == 0
    for command in commands:
        ran = run(*command)
        assert ran.code == 0, ran.err
    assert float(re.findall(r"accuracy (\S+) on 300 rows", ran.out)[0]) > 0.8


@pytest.mark.parametrize("name", ["cholesky", "eigen", "nystrom", "polynomial"])
def test_what_it_writes_and_tells(run: Run, data: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "features.zarr"
    about = () if name == "polynomial" else ("--rank", 40, "--gamma", 0.3)
    told = run("features", data, out, "--map", name, "--json", *about).result
    found, X = open_dataset(out), np.asarray(open_dataset(data).take(np.arange(300)).X, np.float64)
    phi = np.asarray(found.take(np.arange(300)).X, np.float64)
    assert (told["n_rows"], told["n_features"]) == phi.shape == (300, 28 if name == "polynomial" else 40)
    assert told["passes"] == {"cholesky": 11, "eigen": 12, "nystrom": 1, "polynomial": 2}[name]
    assert told["peak_memory_bytes"] > 0
    assert told["map_sha256"] == found.features.sha256  # type: ignore[union-attr]
    if name == "polynomial":
        assert told["trace_error"] is None
    else:
        K = compute_matrix(KINDS["rbf"], X, X)
        assert told["trace_error"] == pytest.approx(np.trace(K - phi @ phi.T) / np.trace(K), abs=1e-6)
    np.testing.assert_array_equal(found.take(np.arange(300)).y, open_dataset(data).take(np.arange(300)).y)
    shown = run("info", out, "--verify").out
    assert f"made by   a {'polynomial' if name == 'polynomial' else 'kernel'} map: features of" in shown
    assert "all 300 rows verified" in shown


def test_people_read_lines(run: Run, data: Path, tmp_path: Path) -> None:
    ran = run("features", data, tmp_path / "f.zarr", "--rank", "5")
    assert "300 rows of 5 features" in ran.out
    assert "trace error" in ran.out
    assert "trace error" not in run("features", data, tmp_path / "p.zarr", "--map", "polynomial").out


@pytest.mark.parametrize(("density", "scale"), [(1.0, "none"), (1.0, "standard"), (0.2, "maxabs")])
@pytest.mark.parametrize("method", ["cutting-plane", "interior-point", "smo"])
def test_models_take_raw_rows(run: Run, tmp_path: Path, method: str, density: float, scale: str) -> None:
    """The scores of raw rows are w.Phi(x) + b of the rows scaled first, as they are of the features themselves."""
    problem = make_problem(3, n=200, density=density)
    rows = Problem(problem.X * np.float32(3), problem.y)
    dataset = rows.store(tmp_path / "rows.zarr", scale=scale, chunk_bytes=1000)
    assert dataset.is_sparse == (density < 1)
    assert run("features", dataset.path, tmp_path / "f.zarr", "--map", "polynomial").code == 0
    assert run("train", tmp_path / "f.zarr", "--solver", method, "--out", tmp_path / "run").code == 0
    model, X = load(tmp_path / "run"), rows.dense()
    X = X if dataset.scaling is None else (X - dataset.scaling.offset) * dataset.scaling.factor
    assert isinstance(model.features.map, PolynomialMap)  # type: ignore[union-attr]
    phi = np.array([write_out(x) for x in X.astype(np.float32).astype(float)])
    largest = np.abs(phi).max()
    if isinstance(model, LinearModel):
        expected = phi / largest @ model.coef + model.intercept
    else:
        vectors = np.asarray(model.support_vectors, np.float64)
        expected = phi / largest @ vectors.T @ model.dual_coef + model.intercept
    known = scores_of(tmp_path / "run", tmp_path / "f.zarr")
    np.testing.assert_allclose(known, expected, atol=1e-4)
    np.testing.assert_allclose(scores_of(tmp_path / "run", dataset), known, atol=1e-4)
    np.save(tmp_path / "raw.npy", rows.dense())
    assert run("predict", tmp_path / "run", tmp_path / "raw.npy", "--out", tmp_path / "p.csv").code == 0
    written = [float(line.split(",")[1]) for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    np.testing.assert_allclose(written, known, atol=1e-4)
    accuracy = [run("evaluate", tmp_path / "run", tmp_path / name, "--json").result for name in ("rows.zarr", "f.zarr")]
    assert accuracy[0] == accuracy[1]


def test_estimators(data: Path, tmp_path: Path) -> None:
    """n_features_in_ is that of raw rows; a model that was saved maps them as well."""
    source = open_dataset(data)
    made = make_features(source, tmp_path / "f.zarr", FeatureOptions("nystrom", 20), ask_for(KINDS["rbf"])).dataset
    model, X = LinearSVC().fit(made), np.asarray(source.take(np.arange(300)).X)
    assert model.n_features_in_ == 6
    assert model.coef_.shape == (1, 20)
    np.testing.assert_allclose(model.decision_function(X), model.decision_function(made), atol=1e-4)
    assert model.score(source) == model.score(made)
    with pytest.raises(ValueError, match="20 features, but LinearSVC is expecting 6"):
        model.predict(np.zeros((2, 20)))
    model.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_names_are_those_of_raw_rows(run: Run, tmp_path: Path) -> None:
    """Columns of a table are found by name, whatever their order."""
    problem, names = make_problem(4, d=3), ["a", "b", "c"]
    table = np.column_stack([problem.X, problem.y])
    np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header="a,b,c,y", comments="", fmt="%.9g")
    np.savetxt(tmp_path / "other.csv", table[:, [2, 0, 1]], delimiter=",", header="c,a,b", comments="", fmt="%.9g")
    assert run("ingest", tmp_path / "rows.csv", tmp_path / "d.zarr", "--label", "y", "--shuffle", "no").code == 0
    assert run("features", tmp_path / "d.zarr", tmp_path / "f.zarr", "--map", "polynomial").code == 0
    assert run("train", tmp_path / "f.zarr", "--out", tmp_path / "run").code == 0
    assert load(tmp_path / "run").feature_names == tuple(names)
    found = scores_of(tmp_path / "run", tmp_path / "other.csv")
    np.testing.assert_allclose(found, scores_of(tmp_path / "run", tmp_path / "f.zarr"), atol=1e-5)


def test_rows_of_another_map_are_refused(run: Run, data: Path, trained: Path, tmp_path: Path) -> None:
    """Even where the numbers of features agree: rank 6 of 6 features."""
    for name, seed in (("f", 0), ("g", 1)):
        made = run("features", data, tmp_path / f"{name}.zarr", "--map", "nystrom", "--rank", 6, "--seed", seed)
        assert made.code == 0
    assert run("train", tmp_path / "f.zarr", "--out", tmp_path / "run").code == 0
    for model, rows in ((tmp_path / "run", "g.zarr"), (trained, "f.zarr")):
        for command in (("evaluate",), ("predict", "--out", tmp_path / "p.csv")):
            ran = run(command[0], model, tmp_path / rows, *command[1:])
            assert ran.code == 2
            assert "these features come from another map than that of the model; give the model raw rows" in ran.err
    assert not (tmp_path / "p.csv").exists()
    raw, known = scores_of(tmp_path / "run", data), scores_of(tmp_path / "run", tmp_path / "f.zarr")
    np.testing.assert_allclose(raw, known, atol=1e-4)
    assert np.ptp(known) > 0.1


@pytest.mark.parametrize(("after", "kept"), [(0, set()), (16, {".f.zarr.passes.npz"}), (-1, {".f.zarr.passes.npz"})])
def test_ctrl_c_leaves_what_it_says(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, kept: set[str]
) -> None:
    """At the first rows, nothing; while pivots are found, and at the last rows that are written, finished passes."""
    calls: list[int] = []
    add = RowCounter.add

    def note(self: RowCounter, n: int) -> None:
        calls.append(n)
        add(self, n)

    monkeypatch.setattr(RowCounter, "add", note)
    assert run("features", data, tmp_path / "whole.zarr", "--rank", 20).code == 0
    shutil.rmtree(tmp_path / "whole.zarr")
    at, calls[:] = range(len(calls))[after], []

    def interrupt(_: Any, n: int) -> None:
        calls.append(n)
        if len(calls) > at:
            names = {re.sub("[0-9a-f]{8}", "*", path.name) for path in tmp_path.iterdir()}
            assert names == {".f.zarr.lock", ".f.zarr.*.partial", *kept}
            raise KeyboardInterrupt

    monkeypatch.setattr(RowCounter, "add", interrupt)
    ran = run("features", data, tmp_path / "f.zarr", "--rank", 20)
    assert (ran.code, ("nothing was left behind" in ran.err)) == (1, not kept)
    assert all(name in ran.err for name in kept)
    assert {path.name for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("name", ["cholesky", "eigen", "polynomial"])
def test_the_same_bits_again_and_on_more_threads(
    data: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BLAS is left one thread; other chunks: the same pivots, and the same features to rounding."""
    made: list[Dataset] = []

    def watch(done: Callable[..., Any]) -> Callable[..., Any]:
        def check(*given: Any) -> Any:
            assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
            return done(*given)

        return check

    for place, part in ((feature_maps, "make_cholesky_map"), (feature_maps, "truncate"), (features, "_add_mapped")):
        monkeypatch.setattr(place, part, watch(getattr(place, part)))
    for threads in (1, 2):
        with threadpool_limits(threads):
            path = tmp_path / f"{threads}.zarr"
            settings = ask_for(KINDS["rbf"], threads=threads)
            made.append(make_features(open_dataset(data), path, FeatureOptions(name, 30), settings).dataset)
    assert made[0].fingerprint == made[1].fingerprint
    rows = open_dataset(data).take(np.arange(300))
    other = Problem(np.asarray(rows.X), np.asarray(open_dataset(data).classes)[rows.y]).store(tmp_path / "o.zarr")
    assert other.n_chunks < open_dataset(data).n_chunks
    again = make_features(other, tmp_path / "f.zarr", FeatureOptions(name, 30), ask_for(KINDS["rbf"])).dataset
    maps = [dataset.features.map for dataset in (made[0], again)]  # type: ignore[union-attr]
    if name != "polynomial":
        np.testing.assert_array_equal(maps[0].rows, maps[1].rows)  # type: ignore[union-attr]
    phi = [np.asarray(dataset.take(np.arange(300)).X, np.float64) for dataset in (made[0], again)]
    np.testing.assert_allclose(phi[0] @ phi[0].T, phi[1] @ phi[1].T, atol=1e-5)
