"""pipelines/papers/joachims_2006/: on little data of its own, and what it says without any."""

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

from streamsvm.system.errors import InputError
from tests.pipelines.tables import read_tables

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

STORY = "pipelines.papers.joachims_2006"
PICTURES = ("figure_1", "figure_2", "figures_4_to_6", "figure_7", "figure_8", "figure_9")
NAMES = ["Reuters C11 (stand-in)", "Adult"]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of the pipeline."""
    return lambda name: import_module(f"{STORY}.{name}")


@pytest.fixture
def pipeline(load: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The story with little of everything, and without an environment."""
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    module, problems = load("__main__"), load("problems")
    kept = [one for one in problems.PROBLEMS if one.name in ("Reuters C11", "Adult", "Web")]
    truth = problems.SparseTruth(300, row_items=10, noise=0.01, seed=2)
    kept[0] = replace(kept[0], read=problems.generate(truth, share=0.3), n_rows=400)
    monkeypatch.setattr(module, "PROBLEMS", [replace(one, C=min(one.C, 200.0)) for one in kept])
    monkeypatch.setattr(load("runs"), "SHORT", 0.0)  # nothing is done three times
    monkeypatch.setattr(module, "SMALL_ROWS", 150)
    monkeypatch.setattr(module, "SMALL_SIZES", (60,))
    monkeypatch.setattr(module, "SMALL_PAIR_SIZES", (40,))
    return module


@pytest.fixture
def run(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Its exit status with these arguments."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["joachims_2006", *map(str, arguments)])
        status: int = pipeline.main()
        return status

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Covertype's 54 columns and a line of names, packed; Adult's two files; Web is missing."""
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    X = random.integers(0, 250, (240, 54)) * (random.random((240, 54)) < 0.3)
    y = np.where(X[:, 0] + X[:, 1] + random.integers(0, 90, 240) > 120, 1, random.integers(2, 8, 240))
    lines = [",".join(map(str, (*row, label))) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    (folder / "covtype.csv.xz").write_bytes(lzma.compress(("names\n" + "\n".join(lines) + "\n").encode()))
    for name, n in (("a9a", 200), ("a9a.t", 80)):
        columns = [np.sort(random.choice(123, 9, replace=False)) + 1 for _ in range(n)]
        signs = ["+1" if row[0] + random.integers(0, 9) < 18 else "-1" for row in columns]
        rows = [f"{s} " + " ".join(f"{j}:1" for j in row) for s, row in zip(signs, columns, strict=True)]
        (folder / name).write_text("\n".join(rows) + "\n")
    return folder


def test_every_table_and_picture_is_there(
    run: Callable[..., int], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Web has no file; Reuters is a stand-in, and said to be one."""
    assert run("--data", data, "--small", "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "out" / "joachims_2006.md").read_text() == printed
    for name in PICTURES:
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    classes, ranks, sizes, chosen, pairs, by_epsilon, by_cost, said = read_tables(printed)
    for table in (classes, ranks, chosen, pairs):
        assert [row[0] for row in table] == NAMES
    assert [row[1:4] for row in classes] == [["804,414", "150", "300"], ["32,562", "150", "123"]]
    assert [row[1] for row in sizes] == [
        "Algorithm 1",
        "line search",
        "Algorithm 2",
        "line search, ranks",
        "LIBSVM",
    ] * 2
    assert [row[-1] for row in pairs] == ["yes"] * 2
    assert [len(by_epsilon), len(by_cost)] == [5 * 2, 8 * 2]
    assert {row[1] for row in by_epsilon + by_cost} == {"150"}
    assert said[-1][1] == f"so in all of {2 * (2 * 2 + 1 + 3 + 3 + 1)} comparisons"
    assert "(!)" not in printed


@pytest.mark.parametrize(
    ("method", "change", "told"),
    [
        ("ALGORITHM_1", 1.2, "Adult, classify, 60 rows; Adult, classify, 150 rows; Adult, LIBLINEAR; Adult, epsilon"),
        ("ALGORITHM_1", 0.5, "Adult, classify, 60 rows; Adult, classify, 150 rows; Adult, epsilon"),
        ("ALGORITHM_2", 1.2, "Adult, roc-area, 60 rows; Adult, roc-area, 150 rows; Adult, pairs of 40 rows"),
    ],
)
def test_objectives_that_break_a_theorem_are_told(
    method: str,
    change: float,
    told: str,
    run: Callable[..., int],
    load: Any,
    pipeline: Any,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = load("runs")
    train_once = runs.train_once

    def train_wrongly(split: Any, used: Any, *arguments: Any) -> Any:
        right = train_once(split, used, *arguments)
        return replace(right, lower_bound=right.lower_bound * (change if used == getattr(runs, method) else 1))

    monkeypatch.setattr(runs, "train_once", train_wrongly)
    monkeypatch.setattr(pipeline, "PROBLEMS", pipeline.PROBLEMS[1:])
    assert run("--data", data, "--small") == 1
    assert f"| not: {told}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a9a", b"1 no:1\n", "a9a cannot be read: "),
        ("a9a.t", b"1 200:1\n", "a9a.t cannot be read: "),
        ("a9a.t", b"+1 3:1\n", "Adult: the rows of a9a and a9a.t must be of two classes"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, content: bytes, said: str, run: Callable[..., int], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / name).write_bytes(content)
    assert run("--data", data, "--small") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("joachims_2006: ")
    assert said in told.err


def test_the_rows_are_as_it_says(load: Any, data: Path) -> None:
    """Nine tenths to train on, columns up to 1; text of norm 1, and 3% positive; at most so many rows."""
    problems = load("problems")
    by_name = {one.name: one for one in problems.PROBLEMS}
    covertype = problems.read_problem(by_name["Covertype 1"], problems.DataFolder(data), None)
    assert (len(covertype.y), len(covertype.y_test)) == (216, 24)
    assert max(covertype.X.max(), covertype.X_test.max()) == 1
    assert 0.2 < covertype.density < 0.35
    split = problems.read_problem(replace(by_name["Reuters C11"], n_rows=4000), problems.DataFolder(None), None)
    assert split.X.shape == (4000, 47_236)
    assert split.density == pytest.approx(0.0016, rel=0.02)
    assert np.concatenate((split.y, split.y_test)).mean() == pytest.approx(0.03, abs=0.005)
    np.testing.assert_allclose(np.sqrt((split.X**2).sum(axis=1)), 1, rtol=1e-5)
    assert problems.read_problem(by_name["Web"], problems.DataFolder(data), None) is None
    assert len(problems.read_problem(by_name["Adult"], problems.DataFolder(data), 50).y) == 50
    (data / "covtype.csv.xz").write_bytes(b"not packed")
    with pytest.raises(InputError, match=r"covtype\.csv\.xz cannot be read: "):
        problems.read_problem(by_name["Covertype 1"], problems.DataFolder(data), None)


def test_both_algorithms_solve_what_the_peers_solve(pipeline: Any, load: Any, data: Path) -> None:
    """C of the paper is n times LIBLINEAR's; Algorithm 2 and all pairs written out have one optimum."""
    runs, problems = load("runs"), load("problems")
    split = problems.read_problem(pipeline.PROBLEMS[1], problems.DataFolder(data), None)
    one = runs.train_once(split, runs.ALGORITHM_1, 100, 40.0, 1e-6)
    assert one.objective == pytest.approx(runs.fit_liblinear(split, 100, 40.0, 1e-6).objective, rel=1e-4)
    two = runs.train_once(split, runs.ALGORITHM_2, 100, 40.0, 1e-6)
    X, y = split.X[:100].toarray(), split.y[:100]
    peer = runs.fit_pairs(split, 100, 40.0)
    assert two.objective == pytest.approx(peer.objective, rel=1e-3)
    assert two.lower_bound <= peer.objective
    w = runs.train(split.first(100), runs.TrainOptions(C=0.4, task="rank", tol=1e-6, threads=1)).model.coef.ravel()
    losses = [max(0.0, 1 - w @ (a - b)) for a in X[y == 1] for b in X[y == 0]]
    assert two.objective == pytest.approx(w @ w / 2 + 40 * float(np.mean(losses)), rel=1e-4)


def test_measures(load: Any) -> None:
    """Break-even: of the three highest of three positives two are positive; n^1.5; bounds that hold."""
    runs, results, problems = load("runs"), load("results"), load("problems")
    scores, y = np.array([3.0, 2.0, 1.0, -1.0, -2.0]), np.array([1, 0, 1, 1, 0])
    by_name = {one.name: one for one in problems.PROBLEMS}
    assert runs.tell_performance(by_name["Reuters C11"], scores, y) == pytest.approx(200 / 3)
    assert runs.tell_performance(by_name["Adult"], scores, y) == pytest.approx(60)
    assert results.fit_exponent((n, 1e-6 * n**1.5) for n in (10, 100, 1000)) == pytest.approx(1.5)
    run = runs.Run(10, 1.0, 5, 5, 101.0, 99.0, True, 90.0, 90.0)
    optimum = results.Optimum(100.0, 99.9)
    assert results.holds(run, optimum, 1.0)
    assert not results.holds(run, optimum, 0.5)
    assert results.holds(replace(run, converged=False), optimum, 0.5)
    assert not results.holds(replace(run, lower_bound=100.1, converged=False), optimum, 1.0)
