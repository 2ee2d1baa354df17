"""pipelines/papers/perez_cruz_2000/: on little data of its own; and selection rules that must not stand still."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from streamsvm.kernels.kernel import Kernel
from streamsvm.solvers.decomposition import inner_solvers
from streamsvm.solvers.decomposition.active_set import ActiveSet, ColumnCache, Rounds, improve
from streamsvm.solvers.decomposition.working_set import find_conditions
from tests.conftest import ROOT
from tests.pipelines.tables import read_tables

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

STORY = "pipelines.papers.perez_cruz_2000.__main__"
FILES = ["a1a", "a4a", "a7a", "a9a", "w1a", "w7a", "banana.all.txt", "diabetes", "splice.txt"]
TABLE_2 = [[name, q] for name in ("Adult4", "Splice") for q in ("20", "40", "70")]
TABLE_3 = [  # as published: C, sigma, support vectors, q of svcradit and SVMlight, seconds' ratio
    ("Adult6", 1, 10, 4477, 150, 40, 1.05),
    ("Adult9", 1, 10, 12181, 130, 70, 1.00),
    ("Adult1", 1000, 10, 630, 100, 10, 4.37),
    ("Web1", 5, 10, 224, 100, 10, 0.98),
    ("Web7", 5, 10, 1444, 150, 10, 0.79),
    ("Gauss-M, C = 1", 1, 1, 1736, 70, 10, 3.80),
    ("Gauss-M, C = 100", 100, 1, 1516, 100, 10, 49.50),
    ("Banana 400", 316.2, 1, 80, 40, 70, 2.33),
    ("Banana 4,900", 316.2, 1, 1084, 70, 40, 79.54),
    ("Diabetes", 10, 2, 409, 40, 10, 2.51),
    ("Splice", 1000, 70, 525, 150, 20, 3.50),
]


def run(code: str, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script's main after some code."""
    kept = {name: value for name, value in os.environ.items() if name != "STREAMSVM_DATA"}
    return subprocess.run(
        [sys.executable, "-c", f"import sys, {STORY} as p; {code}; sys.exit(p.main())", *map(str, arguments)],
        env={**kept, "PYTHONPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
        check=False,
    )


def write_text(file: Path, seed: int, n: int = 90) -> None:
    """Rows of four numbers, one of them 0; two classes that overlap."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3))
    y = np.where(X[:, 0] + random.normal(size=n) > 0, "+1", "-1")
    rows = [f"{y[i]} " + " ".join(f"{j + 2}:{X[i, j]:.4f}" for j in range(3)) for i in range(n)]
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(rows) + "\n")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, without Table 2."""
    module = import_module(STORY)
    monkeypatch.setattr(module, "TABLE_2", {})
    return module


def test_every_row_of_the_tables_is_there(tmp_path: Path) -> None:
    for seed, name in enumerate(FILES):
        write_text(tmp_path / f"sets{seed % 2}" / name, seed)
    small = "p.SMALL_ROWS = 80; p.SMALL_SECONDS = 0.3"
    done = run(small, "--data", tmp_path, "--small", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    inner, systems, readings = read_tables(done.stdout)
    assert [row[:2] for row in inner] == TABLE_2
    assert [row[2] for row in inner] == ["1.03", "1.07", "1.13", "1.50", "2.86", "2.65"]
    assert [row[4] for row in inner] == ["1.56", "5.94", "5.00", "4.60", "5.73", "4.44"]
    assert all(int(row[column].replace(",", "")) > 0 for row in inner for column in (8, 9))
    assert {len(row) for row in systems} == {16}
    for row, (name, C, sigma, n_support, q, q_light, ratio) in zip(systems, TABLE_3, strict=True):
        assert row[0] == name
        assert row[2:5] == [f"{C:g}", f"{sigma:g}", f"{n_support:,}"]
        assert row[7:10] == [str(q), str(q_light), f"{ratio:.2f}"]
        assert 5 < int(row[5]) <= int(row[1]) <= 80, "a count, and no difference to all rows'"
    rows_are = {row[0]: row[15] for row in systems}
    assert (rows_are["Adult6"], rows_are["Splice"], rows_are["Adult1"]) == ("drawn from a7a", "drawn from all", "")
    assert rows_are["Gauss-M, C = 1"].startswith("generated")
    assert [row[:2] for row in readings] == [[name, f"{n:,}"] for name, _, _, n, _, _, _ in TABLE_3]
    assert "differ by more" not in done.stdout
    assert (tmp_path / "out" / "perez_cruz_2000.md").read_text() == done.stdout
    assert (tmp_path / "out" / "perez_cruz_2000.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("published", "why", "status", "said"),
    [(1000, "", 1, "the difference is not explained"), (1000, "a reason", 0, "* Adult1: a reason."), (None, "", 0, "")],
)
def test_counts_are_near_or_explained(
    published: int | None,
    why: str,
    status: int,
    said: str,
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from sklearn.svm import SVC

    write_text(tmp_path / "a1a", 3)
    data = script.Data(script.DataFolder(tmp_path), tmp_path, None)
    problem = script.Problem("Adult1", "Adult1", 90, 1, 10, published or 0, (10, 10), (1, 2), why)
    if published is None:
        rows = data.read(problem)
        problem = script.Problem(
            "Adult1", "Adult1", 90, 1, 10, len(SVC(gamma=1 / 200).fit(rows.X, rows.y).support_), (10, 10), (1, 2)
        )
    monkeypatch.setattr(script, "TABLE_3", (problem,))
    monkeypatch.setattr(sys, "argv", ["", "--data", str(tmp_path)])
    assert script.main() == status
    printed = capsys.readouterr().out
    assert said in printed
    assert ("differ by more than 2%" in printed) == bool(said)


def test_a_run_that_its_limit_ends_is_a_bound(script: ModuleType) -> None:
    whole, cut = script.Measured(2.0, 1.0, 5, 7, True), script.Measured(6.0, 1.0, 5, 7, False)
    assert [script.format_ratio(*pair) for pair in ((whole, whole), (cut, whole), (whole, cut), (cut, cut))] == [
        "1.00",
        "> 3.00",
        "< 0.33",
        "",
    ]


def test_inner_solvers_are_timed_and_put_back(script: ModuleType) -> None:
    before = dict(inner_solvers.INNER_SOLVERS)
    one = script.solve(script.draw_gaussians(200), 1, 2, "irwls", "random", 20, None)
    assert one.converged
    assert one.n_rounds > 5
    assert 0 < one.inner_seconds < one.seconds
    assert before == inner_solvers.INNER_SOLVERS


@pytest.mark.parametrize("rule", ["random", "smallest", "largest"])
def test_selection_never_stands_still(rule: str, script: ModuleType) -> None:
    """Rows may violate by less than tol each and by more than tol together: they must be chosen (section 3, step 3)."""
    gaussians = script.draw_gaussians(400)
    y, n = np.where(gaussians.y == 1, 1.0, -1.0), gaussians.n_rows
    active = ActiveSet(gaussians.X, y, np.full(n, 100.0), np.zeros(n), np.zeros(n), np.arange(n))
    rounds = Rounds(Kernel("rbf", gamma=0.5), "smo", rule, 40, 1, 0)
    for tol in (1.0, 0.5, 0.2, 0.1, 0.01):
        improve(active, rounds, ColumnCache.of_size(n, 4 * n * n), tol, 1000)
        assert find_conditions(active.y, active.costs, active.alpha, active.f).violation <= tol


@pytest.mark.data
def test_support_vectors_are_as_many_as_published(data_folder: Path) -> None:
    """Adult1 with C = 1000 and Diabetes: 630 and 409 published, on the very rows."""
    code = "p.TABLE_2 = {}; p.TABLE_3 = [one for one in p.TABLE_3 if one.name in ('Adult1', 'Diabetes')]"
    done = run(code, "--data", data_folder, "--seconds", "2")
    assert done.returncode == 0, done.stderr
    for row in read_tables(done.stdout)[0]:
        assert int(row[5].split(" ")[0]) == pytest.approx(int(row[4]), rel=0.02)
