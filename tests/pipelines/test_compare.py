"""pipelines/compare/: what is measured is what is said, and how a training ends is told as it is."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.svm import SVC, LinearSVC

from tests.conftest import make_problem, run_python

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

TRAINERS = """
import numpy as np

def forever(task):
    with task.timing("fit"):
        while True:
            pass

def greedy(task):
    with task.timing("fit"):
        return {"w": np.ones(10**8)}

def absent(task):
    import no_such_package_anywhere

def broken(task):
    raise RuntimeError("not today")

def constant(task):
    with task.timing("read"):
        X, y = task.read()
    with task.timing("fit"):
        pass
    print("optimization finished, #iter = 7")
    return {"w": np.zeros(X.shape[1]), "b": 0.0}
"""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a module of the pipeline."""
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    return lambda name: import_module(f"pipelines.compare.{name}")


@pytest.fixture
def bench(load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A problem of 300 rows in memory or on the disk, and the trainers above."""
    (tmp_path / "odd_trainers.py").write_text(TRAINERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    runs = load("runs")

    def make(memory: int | None = None, limit: int = 60) -> Any:
        folder = tmp_path / f"rows-{memory}"
        write_problem(folder, memory=memory)
        return runs.Bench(folder, limit)

    return make


def write_problem(folder: Path, gamma: float | None = None, memory: int | None = None) -> Any:
    """Write 300 rows for the trainers; return the problem."""
    problems = import_module("pipelines.compare.problems")
    problem = problems.Problem("a9a", "some rows", 0.5, gamma, memory)
    rows = make_problem(1)
    X, y = rows.X, np.where(rows.dense()[:, 0] > 0.7, 1, -1).astype(np.int8)
    problems.write_parts(folder, ((X, y), (X[:50], y[:50])))
    if importlib.util.find_spec("vowpalwabbit") is not None:
        problems.write_text(folder / "rows.vw", X, y)
    (folder / "problem.json").write_text(json.dumps(vars(problem)))
    return problem


def test_objective_of_a_linear_model_is_as_written(load: Callable[[str], Any]) -> None:
    problems, objectives = load("problems"), load("objectives")
    X, y = np.array([[1, 0], [0, 2], [1, 1]], np.float32), np.array([1, -1, 1], np.int8)
    for rows in (X, csr_array(X)):  # scores 0.5, -2.5, -0.5: losses 0.5, 0, 1.5
        worth = objectives.evaluate(problems.Problem("a9a", "", 2.0), {"w": [1, -1], "b": -0.5}, rows, y, (rows, y))
        assert worth.objective == pytest.approx((1 + 1 + 0.25) / 2 + 2 * 2.0)
        assert worth.accuracy == pytest.approx(2 / 3)


def test_objective_of_a_kernel_model_is_that_of_its_dual_at_the_optimum(load: Callable[[str], Any]) -> None:
    """LIBSVM to 1e-8: primal = dual, formed here from its coefficients; and it predicts the same."""
    problems, objectives, child = load("problems"), load("objectives"), load("child")
    rows = make_problem(2, density=0.6)
    model = SVC(C=3.0, gamma=0.3, tol=1e-8).fit(rows.dense(), rows.y)
    vectors, beta = model.support_vectors_, model.dual_coef_[0]
    K = np.exp(-0.3 * ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2))
    dual = np.abs(beta).sum() - beta @ K @ beta / 2
    problem = problems.Problem("a9a-rbf", "", 3.0, gamma=0.3)
    saved = child.pack_kernel(vectors, beta, model.intercept_)
    worth = objectives.evaluate(problem, saved, rows.X, rows.y, (rows.X, rows.y))
    assert worth.objective == pytest.approx(dual, rel=1e-5)
    assert worth.accuracy == model.score(rows.dense(), rows.y)


def test_rows_on_the_disk_are_the_same_as_text(load: Callable[[str], Any]) -> None:
    problems = load("problems")
    X, y = problems.draw_block(3, 40, 5)
    assert X.dtype == np.float32
    assert np.abs(X).max() > 1
    lines = problems.format_block(X, y).decode().splitlines()
    assert len(lines) == 40
    for line, x, label in zip(lines, X, y, strict=True):
        head, cells = line.split("|")
        assert int(head) == label
        pairs = [cell.split(":") for cell in cells.split(" ")[1:]]
        assert [int(place) for place, _ in pairs] == list(range(6))
        np.testing.assert_array_equal(np.array([float(value) for _, value in pairs], np.float32), [*x, 1])


def test_how_a_training_ends_is_told(bench: Callable[..., Any], load: Callable[[str], Any]) -> None:
    """Each in a process of its own; the one that takes all memory only where a limit is set."""
    runs = load("runs")

    def run(name: str, **how: Any) -> Any:
        return bench(**how).run(runs.Trainer(name, "odd_trainers", name, ("1",)), "1")

    assert run("forever", limit=1).status == "over 1 s"
    assert run("greedy", memory=500 * 10**6).status == "out of memory"
    assert run("absent").status == "not installed"
    broken = run("broken")
    assert (broken.status, broken.why) == ("failed", "RuntimeError: not today")
    done = run("constant")
    assert (done.status, done.passes, done.read_bytes) == ("done", 7, 7 * 300 * 6 * 4)
    assert done.objective == pytest.approx(0.5 * 300)
    assert done.peak_bytes > 10**7


# Trains with the last rung of every trainer of one kind, as the children of a comparison do, but in one process.
TRAIN_WITH_ALL = """
import sys
from pathlib import Path
from pipelines.compare import child
from pipelines.compare.runs import TRAINERS

folder, kind = sys.argv[1:]
for place, trainer in enumerate(TRAINERS[kind]):
    out = Path(folder, str(place))
    out.mkdir()
    sys.argv[1:] = [folder, trainer.module, trainer.function, trainer.rungs[-1], "60", str(out)]
    child.main()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By kind, a bench in whose folder every trainer has left its model, and the optima of the problem."""
    found = {}
    for kind, gamma in (("linear", None), ("kernel", 0.3)):
        folder = tmp_path_factory.mktemp(kind) / "rows"
        problem = write_problem(folder, gamma)
        ran = run_python(TRAIN_WITH_ALL, folder, kind)
        assert ran.returncode == 0, ran.stderr
        bench = import_module("pipelines.compare.runs").Bench(folder, 60)
        found[kind] = bench, find_optima(*bench.rows, problem)
    return found


@pytest.mark.parametrize(("kind", "place"), [("linear", k) for k in range(9)] + [("kernel", k) for k in range(7)])
def test_every_trainer_solves_the_problem_that_is_measured(
    kind: str, place: int, trained: dict[str, Any], load: Callable[[str], Any]
) -> None:
    """Its last rung is near the optimum, where a model without a bias is not; gradients are rougher."""
    here, (optimum, without_bias) = trained[kind]
    known = load("runs").TRAINERS[kind]
    assert len(known) == {"linear": 9, "kernel": 7}[kind], "each is tried"
    trainer, out = known[place], here.folder / str(place)
    result = json.loads((out / "result.json").read_text())
    if result["status"] == "not installed":
        pytest.skip(f"{trainer.name}: {result['why']}")
    rough = {"SGD": 0.1, "Incremental": 0.1, "interior": 0.1, "Wabbit": 1, "budgeted": 1}
    most = max([2e-3, *(share for word, share in rough.items() if word in trainer.name)])
    assert result["status"] == "done", result["why"]
    assert without_bias > 1.2 * optimum
    assert (1 - 1e-5) * optimum <= here.evaluate(out / "model.npz").objective <= (1 + most) * optimum


def find_optima(X: Any, y: Any, problem: Any) -> tuple[float, float]:
    """Objectives by scikit-learn to 1e-8, written out: with a bias, and with the linear one's left out."""
    if problem.gamma is not None:
        model = SVC(C=problem.C, gamma=problem.gamma, tol=1e-8).fit(X, y)
        scores, beta = model.decision_function(X), model.dual_coef_[0]
        square = beta @ (scores - model.intercept_)[model.support_]
    else:
        model = LinearSVC(loss="hinge", C=problem.C, tol=1e-8, max_iter=10**6, random_state=0).fit(X, y)
        scores, square = model.decision_function(X), (model.coef_**2).sum() + model.intercept_[0] ** 2
    objective = square / 2 + problem.C * np.maximum(0, 1 - y * scores).sum()
    without = square / 2 + problem.C * np.maximum(0, 1 - y * (scores - model.intercept_)).sum()
    return float(objective), float(without)


def test_ends_by_signals(load: Callable[[str], Any], tmp_path: Path) -> None:
    """A crash is for want of memory only if memory was limited, or if it says so."""
    tell = load("runs").tell_end

    def end(code: int, said: str, limited: bool) -> str:
        status: str = tell(subprocess.CompletedProcess([], code, "", said), tmp_path, 5, limited)[0]
        return status

    assert end(-signal.SIGALRM, "", True) == "over 5 s"
    assert end(-signal.SIGSEGV, "", True) == "out of memory"
    assert end(-signal.SIGSEGV, "", False) == "failed"
    assert end(-signal.SIGABRT, "what(): std::bad_alloc", False) == "out of memory"
    assert end(1, "ValueError: no", True) == "failed"


def test_ladders_are_climbed_in_turn(load: Callable[[str], Any]) -> None:
    """Until one is within 1e-4 or fails; repeated in the same order, but for what took long."""
    runs = load("runs")
    trainers = [runs.Trainer(name, "", "", ("1", "2", "3")) for name in "abc"]
    ends: dict[str, list[Any]] = {"a": [0.1, 1e-5, None], "b": [0.1, None, 0.0], "c": [0.1, 0.01, 0.001]}
    calls: list[str] = []

    def run(trainer: Any, rung: str) -> Any:
        calls.append(trainer.name + rung)
        end = ends[trainer.name][int(rung) - 1]
        if end is None:
            return runs.Run(trainer.name, rung, "failed")
        seconds = 100.0 if calls[-1] == "c2" else 1.0
        return runs.Run(trainer.name, rung, "done", seconds=seconds, objective=1 + end)

    noted: list[Any] = []
    runs.run_all(trainers, 2, run, lambda done: done.objective - 1, noted.append)
    assert calls == ["a1", "b1", "c1", "a2", "b2", "c2", "c3", "a1", "b1", "c1", "a2", "c3"]
    assert len(noted) == len(calls)


def test_a_row_tells_the_first_rung_that_is_near_enough(load: Callable[[str], Any]) -> None:
    """Medians of the seconds, the worst of the objectives, and why a finer rung is missing."""
    tables, runs, problems = load("outcomes"), load("runs"), load("problems")
    done = [("1", 1.0, 100.9), ("2", 2.0, 100.05), ("2", 9.0, 100.05), ("2", 4.0, 100.2), ("3", 8.0, 100.09)]
    found = [runs.Run("x", rung, "done", "", s, 2 * s, 5, 10, 10**6, P, 0.5) for rung, s, P in done]
    found += [runs.Run("x", "4", "over 60 s"), runs.Run("y", "1", "not installed")]
    problem = problems.PROBLEMS[0]
    outcome = tables.Outcome(problem, 10, 2, 80, 60, 100.0, tuple(found))
    cells = [cell.strip() for cell in tables.write_row(outcome, "x").strip("|").split("|")]
    assert cells == ["x", "1 (2)", "8 (16)", "over 60 s", "9e-4", "5", "1.0 MB", "50.00%"]
    missing = [cell.strip() for cell in tables.write_row(outcome, "y").strip("|").split("|")]
    assert missing == ["y", "not installed", *[""] * 6]
