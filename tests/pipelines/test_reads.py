"""pipelines/compare/reads.py: reads are bytes, proved gaps hold, and distances are those from the optimum."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from pipelines.compare import curves, reads
from pipelines.compare.problems import Part, Problem, draw_block
from tests.pipelines.tables import read_tables

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

PROBLEM = Problem("generated", "some rows", 0.01)


@pytest.fixture(scope="module")
def rows() -> Part:
    """Overlapping classes."""
    return draw_block(1, 6000, 12)


@pytest.fixture(scope="module")
def optimum(rows: Part) -> float:
    """The least objective, by scikit-learn."""
    X, y = rows[0].astype(np.float64), rows[1]
    model = LinearSVC(loss="hinge", C=PROBLEM.C, tol=1e-9, max_iter=10**6, random_state=0).fit(X, y)
    hinge = np.maximum(0, 1 - y * model.decision_function(X)).sum()
    return float((model.coef_**2).sum() / 2 + model.intercept_[0] ** 2 / 2 + PROBLEM.C * hinge)


def test_a_proof_counts_every_byte_that_it_reads(rows: Part, tmp_path: Path, optimum: float) -> None:
    """A pass of line search is one read, since no chunk is kept; one read counts the sample, too."""
    data = curves.store(rows, tmp_path / "rows.zarr")
    line_search, low = curves.prove(curves.Proof("", "line-search", most_passes=5), PROBLEM, data)
    assert line_search.reads == (1, 2, 3, 4, 5)
    one_read, high = curves.prove(curves.Proof("", "one-read", "60%"), PROBLEM, data)
    assert 1 <= one_read.reads[0] < 1.6
    assert one_read.gaps[-1] <= curves.TOL
    assert low <= high <= (1 + 1e-7) * optimum <= (1 + 1e-5) * high


def test_a_distance_is_that_of_the_model_from_the_optimum(rows: Part, optimum: float) -> None:
    def fit(problem: Problem, part: Part, n: int) -> curves.Model:
        return {"w": np.zeros(12), "b": 0.0} if n == 1 else curves.fit_liblinear(problem, part, n)

    curve = curves.descend(curves.Descent("", fit, (1, 500)), PROBLEM, rows, optimum)
    assert curve.gaps[0] == pytest.approx(PROBLEM.C * 6000 / optimum - 1), "no weights: every row costs C"
    assert -1e-6 < curve.gaps[1] < 1e-4
    assert not curve.is_proved


def test_gradients_come_nearer(rows: Part, optimum: float) -> None:
    curve = curves.descend(curves.Descent("", curves.fit_sgd, (1, 20)), PROBLEM, rows, optimum)
    assert -1e-6 < curve.gaps[1] < curve.gaps[0]
    assert curve.gaps[1] < 0.01


def test_a_gap_is_reached_when_it_stays() -> None:
    curve = curves.Curve("", False, (1, 2, 3, 4), (0.5, 0.05, 0.2, 0.01))
    assert [curve.reach(gap) for gap in (1, 0.3, 0.1, 0.001)] == [1, 2, 4, None]


def test_markers_thin_out() -> None:
    marks = reads.find_marks(tuple(map(float, range(1, 101))))
    assert marks[:11] == [*range(10), 12]
    assert len(marks) < 25


def test_the_story_draws_every_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    monkeypatch.setattr(reads, "SMALL_ROWS", 4000)
    monkeypatch.setattr(sys, "argv", ["reads", "--small", "--out", str(tmp_path / "out"), "--data", str(tmp_path)])
    assert reads.main() == 0
    told = capsys.readouterr()
    (table,) = read_tables(told.out)
    assert [row[1] for row in table] == [way.name for way in (*reads.PROOFS, *reads.DESCENTS)]
    assert [row[2] for row in table] == ["the gap"] * len(reads.PROOFS) + ["nothing"] * 2
    assert told.err.count("is left out: no ") == 2
    assert (tmp_path / "out" / "reads.md").read_text() == told.out
    assert (tmp_path / "out" / "reads.png").stat().st_size > 10_000
