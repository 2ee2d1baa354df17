"""pipelines/papers/jung_oleary_tits_2008/: on little data of its own, and what it says without any."""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC as LIBSVM

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.solvers.interior_point.equations import Reduction
from streamsvm.solvers.interior_point.solver import InteriorPoint
from tests.conftest import make_problem
from tests.pipelines.tables import read_tables

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

STORY = "pipelines.papers.jung_oleary_tits_2008"
PICTURES = ("figure_5_1", "figures_5_2_to_5_4", "figure_5_5", "figure_5_6", "figure_5_7", "figure_5_8", "figure_5_9")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of the pipeline."""
    return lambda name: import_module(f"{STORY}.{name}")


@pytest.fixture
def pipeline(load: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The story with one of its problems, and without an environment."""
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    module = load("__main__")
    monkeypatch.setattr(module, "PROBLEMS", module.PROBLEMS[:1])
    return module


@pytest.fixture
def run(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Its exit status with these arguments."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["jung_oleary_tits_2008", *map(str, arguments)])
        status: int = pipeline.main()
        return status

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Mushrooms of three attributes (2 + 3 + 1 columns), a1a and a4a with their test files, two of them packed."""
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    codes = np.stack([random.integers(0, 2, 80), random.integers(0, 3, 80), np.zeros(80, int)], axis=1)
    codes[:3, 1], codes[:2, 0] = (0, 1, 2), (0, 1)
    labels = np.where(codes[:, 1] + random.integers(0, 2, 80) > 1, 2, 1)
    lines = [f"{y} {a + 1}:1 {b + 3}:1 {c + 6}:1" for y, (a, b, c) in zip(labels, codes, strict=True)]
    (folder / "mushrooms").write_text("\n".join(lines) + "\n")
    for name, n in (("a1a", 60), ("a1a.t", 20), ("a4a", 90), ("a4a.t", 20)):
        lines = [f"{'+1' if i % 2 else '-1'} {i % 2 + 1}:1 {i % 7 + 3}:1" for i in range(n)]
        text = ("\n".join(lines) + "\n").encode()
        packed = name.startswith("a4a")
        (folder / (name + ".xz" * packed)).write_bytes(lzma.compress(text) if packed else text)
    return folder


def test_every_table_and_picture_is_there(
    run: Callable[..., int], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three attributes are 10 features; the same optimum for all; the toy is always there."""
    assert run("--data", data, "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "out" / "jung_oleary_tits_2008.md").read_text() == printed
    for name in PICTURES:
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    variants, sweeps, iterations, support, linear, by_rank, by_rows, gaussian, accuracies, said = read_tables(printed)
    assert [row[:3] for row in variants] == [["mushroom", "80", "10"]] * 7
    assert len({row[-1] for row in variants}) == 1
    assert [len(row) for row in sweeps] == [8] * 6
    assert [row[1:3] for row in iterations][:2] == [["none", "100%"], ["adaptive-balanced", "100%"]]
    assert [row[1:3] + row[5:6] for row in support] == [["276", "10", "52 (31/21)"]]
    for table in (linear, by_rows, gaussian, accuracies):
        assert [row[:2] for row in table[:2]] == [["a1a", "60"], ["a4a", "90"]]
    assert [row[0] for row in by_rank] == ["16", "32", "64", "128", "300"]
    assert [row[2:] for row in accuracies] == [["100.00", "100.00 (+0.00)", "100.00 (+0.00)"]] * 2
    assert said[-2][1].startswith("1,727 points; rows used: 1,727, ")


@pytest.mark.parametrize(("share", "status"), [(0.5e-6, 0), (2e-6, 1)])
def test_a_variant_that_ends_elsewhere_is_told(
    share: float,
    status: int,
    run: Callable[..., int],
    pipeline: Any,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = pipeline.solve

    def solve(rows: ArrayDataset, variant: tuple[str, str, float]) -> Any:
        right = found(rows, variant)
        return replace(right, objective=right.objective * (1 + share * (variant[0] == "fixed")))

    monkeypatch.setattr(pipeline, "ADULT", ())
    monkeypatch.setattr(pipeline, "solve", solve)
    assert run("--data", data) == status
    assert capsys.readouterr().out.count("(!) |") == 2 * status


@pytest.mark.parametrize(("points", "status"), [(0.2, 0), (0.4, 1)])
def test_an_accuracy_that_is_not_libsvms_is_told(
    points: float,
    status: int,
    run: Callable[..., int],
    load: Any,
    pipeline: Any,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = load("adult").fit_libsvm

    def fit(adult: Any) -> Any:
        right = found(adult)
        return replace(right, accuracy=right.accuracy - points)

    monkeypatch.setattr(pipeline, "PROBLEMS", ())
    monkeypatch.setattr(load("adult"), "fit_libsvm", fit)
    assert run("--data", data) == status
    assert f"100.00 (+{points:.2f})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"), [("mushrooms", b"1 no:1\n"), ("a1a", b"1 200:1\n"), ("a4a.t.xz", b"not packed")]
)
def test_files_that_cannot_be_read(
    name: str, content: bytes, run: Callable[..., int], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / name).write_bytes(content)
    assert run("--data", data) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"jung_oleary_tits_2008: {data / name} cannot be read: ")


@pytest.mark.parametrize("name", ["adaptive-balanced", "none"])
def test_rows_that_are_told_of_are_those_of_the_equations(name: str, load: Any) -> None:
    """X_Q' W X_Q written out is what the solver has; the support vectors are LIBSVM's."""
    problem = make_problem(7, n=120, d=4)
    settings = InteriorPoint((1.0, 1.0), 1e-11, Reduction(name))
    module = load("steps")
    sizes = []
    for step, numbers, chosen in module.follow_steps(problem.in_memory(), settings):
        state = step.state
        _, s, t, xi, r = numbers[:5]
        weights = 1.0 / (s / t + xi / r)
        X = problem.dense()[chosen]
        np.testing.assert_allclose(np.triu(state.gram), np.triu((weights[chosen, None] * X).T @ X), rtol=1e-5)
        sizes.append(int(chosen.sum()))
    assert step.status == "converged"
    assert sizes[0] == 120
    assert (sizes[-1] < 60) == (name == "adaptive-balanced")
    exact = LIBSVM(kernel="linear", C=1.0, tol=1e-9).fit(problem.X, problem.y)
    support, on_boundary = module.tell_support(numbers)
    np.testing.assert_array_equal(np.flatnonzero(support), np.sort(exact.support_))
    inside = np.abs(exact.dual_coef_[0]) < 1 - 1e-6
    np.testing.assert_array_equal(np.flatnonzero(on_boundary), np.sort(exact.support_[inside]))


def test_the_toy_is_that_of_the_paper(load: Any) -> None:
    """An ellipse with a gap; features of which the scalar product is (x.z)^2."""
    module = load("toy")
    points, y = module.draw_points()
    assert points.shape == (1727, 2)
    assert np.abs(points).max() <= 1
    heights = np.einsum("ni,ij,nj->n", points, module.ELLIPSE, points)
    assert heights[y > 0].max() < 0.85
    assert heights[y < 0].min() > 1.15
    features = module.map_points(points)
    np.testing.assert_allclose(features[:9] @ features[:9].T, (points[:9] @ points[:9].T) ** 2)
    toy = module.solve_toy()
    assert int(toy.steps[-1].chosen.sum()) < 20
    assert toy.on_boundary.any()


def test_errors_and_exponents(load: Any) -> None:
    """The largest sum of a row of |K - Phi Phi'|, over |K|'s, with K written out; n^1.5."""
    adult, results = load("adult"), load("results")
    X = np.random.default_rng(1).random((30, 5)).astype(np.float32)
    rows = ArrayDataset(X, np.zeros(30, np.int32), None)
    feature_map = adult.find_map(rows, "cholesky", 3)
    K = np.exp(-adult.GAMMA * ((X[:, None] - X) ** 2).sum(axis=2))
    rest = np.abs(K - adult.map_rows(rows, feature_map) @ adult.map_rows(rows, feature_map).T)
    expected = rest.sum(axis=1).max() / K.sum(axis=1).max()
    assert expected > 1e-4
    assert adult.measure_error(rows, feature_map) == pytest.approx(expected, rel=1e-3)
    lines = [results.Trained("", n, 1e-6 * n**1.5) for n in (10, 100, 1000)]
    assert results.find_exponent(lines) == "1.50"
