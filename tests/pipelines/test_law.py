"""benchmarks/law.py: made rows are the same whenever they are read, and the search finds the smallest number."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import law
from benchmarks.made_rows import CHUNK_ROWS, LABELS, MadeRows
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import stack_rows
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.conftest import ROOT
from tests.pipelines.tables import read_tables

pytestmark = pytest.mark.slow("is about benchmarks/, not about the package")

N = 2 * CHUNK_ROWS + 1001


@pytest.fixture(scope="module")
def stored() -> ArrayDataset:
    """The made rows in memory."""
    parts = [MadeRows(N).read(index) for index in range(3)]
    X = stack_rows([part.X for part in parts])
    assert isinstance(X, np.ndarray)
    return ArrayDataset(X, np.concatenate([part.y for part in parts if part.y is not None]), LABELS)


def test_made_rows_are_the_same_however_they_are_read(stored: ArrayDataset) -> None:
    made, numbers = MadeRows(N), np.array([N - 1, 3, CHUNK_ROWS, 3])
    taken = made.take(numbers)
    np.testing.assert_array_equal(taken.X, stored.X[numbers])
    np.testing.assert_array_equal(taken.y, stored.y[numbers])
    np.testing.assert_array_equal(stack_rows([tile.X for tile in made.tiles(1)]), stored.X[CHUNK_ROWS : 2 * CHUNK_ROWS])
    np.testing.assert_array_equal(made.column("y"), stored.y)
    np.testing.assert_array_equal(made.class_counts, stored.class_counts)
    np.testing.assert_array_equal(MadeRows(10 * N).read(1).X, made.read(1).X)
    assert not np.array_equal(MadeRows(N, seed=1).read(1).X, made.read(1).X)


def test_made_rows_train_like_rows_in_memory(stored: ArrayDataset) -> None:
    options = TrainOptions(C=1e-3, tol=1e-6, resident_rows="60%", threads=2)
    made, known = train(MadeRows(N), options), train(stored, options)
    assert made.status == known.status == "converged"
    assert made.objective == pytest.approx(known.objective, rel=1e-6)


def test_the_classes_overlap_and_some_labels_are_wrong(stored: ArrayDataset) -> None:
    scores = stored.X @ MadeRows(N).mean
    wrong = np.mean((scores > 0) != (stored.y == 1))
    assert 0.13 < wrong < 0.17, "0.95 * 11.5% + 0.05 * 88.5%"


@pytest.mark.parametrize("start", [10, 400, 5000])
def test_the_smallest_number_that_is_enough_is_found(start: int) -> None:
    found = law.find_smallest(start, lambda number: number >= 400)
    assert 400 <= found <= round(400 * law.STEP)


def test_the_law_is_fitted_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of which n^(1/2) and 4 n^(2/3) are needed."""

    def measure(n: int, resident: int, seed: int, max_passes: int | None = None) -> law.Run:
        enough = (resident >= 40 * n**0.5, resident >= 4 * n ** (2 / 3))
        return law.Run(n, resident, 1.0, 1e-4, enough, 10**9, 1.0)

    monkeypatch.setattr(law, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["law.py", "--picture", str(tmp_path / "law.png")])
    law.main()
    told = capsys.readouterr().out
    needed, shares = read_tables(told)
    assert len(needed) == 2 * len(law.SIZES)
    for rows, goal, resident, ratio, *_ in needed:
        n, number = (float(cell.replace(",", "")) for cell in (rows, resident))
        least = 40 * n**0.5 if goal == law.GOALS[0] else 4 * n ** (2 / 3)
        assert least <= number <= 1.2 * least
        assert float(ratio) == pytest.approx(number / (30 * n) ** (2 / 3), abs=0.006)
    powers = [float(power) for power in re.findall(r"resident rows ~ n\^([\d.]+)", told)]
    assert powers == pytest.approx([0.5, 0.67], abs=0.03)
    assert [row[1] for row in shares] == [f"{round(0.05 * n):,}" for n in law.SIZES]
    assert (tmp_path / "law.png").stat().st_size > 10_000


def test_one_read_is_enough_with_the_rows_that_are_found() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.law", "--largest", "1e5"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    needed, shares = read_tables(done.stdout)
    assert [row[1] for row in needed] == list(law.GOALS)
    for _, goal, _, _, share, reads, gap, *_ in needed:
        assert float(share.rstrip("%")) < 50
        assert 1 <= float(reads) <= 1.01 + float(share.rstrip("%")) / 100, "at most the sample is read twice"
        assert float(gap) <= (1e-3 if goal == law.GOALS[0] else 1e-5)
    assert [row[:2] for row in shares] == [["100,000", "5,000"]]
    assert float(shares[0][3]) > 2, "a twentieth is too few for one read"
