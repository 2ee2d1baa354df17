"""Stories on generated data: what they claim holds on little of it, and their parts agree with brute force."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.peptides.matches import find_q_values, make_matches
from pipelines.peptides.percolator import count_accepted, rescore
from tests.pipelines.test_scripts import read_table

pytestmark = pytest.mark.once


def tell(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    main = importlib.import_module(f"pipelines.{name}.__main__").main
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    status: int = main()
    return status


def test_q_values_are_the_least_rates() -> None:
    random = np.random.default_rng(0)
    scores, is_target = random.permutation(60).astype(float), random.random(60) < 0.6
    found = find_q_values(scores, is_target)

    def rate(limit: float) -> float:
        chosen = scores >= limit
        return min(1.0, (1 + np.sum(chosen & ~is_target)) / max(1, np.sum(chosen & is_target)))

    for score, q in zip(scores, found, strict=True):
        assert q == pytest.approx(min(rate(limit) for limit in scores if limit <= score))


def test_peptides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell("peptides", monkeypatch, "--spectra", "4000", "--seed", "1") == 0
    table = read_table(capsys.readouterr().out)
    counts = {name: int(cells[0].replace(",", "")) for name, cells in table.items() if cells[0][:1].isdigit()}
    assert counts["streamsvm"] > 1.5 * counts["score of the search engine"]


def test_no_match_is_scored_by_a_model_that_has_seen_its_spectrum() -> None:
    matches, seen = make_matches(2, 8000), []

    class Watched:
        def __init__(self, decoy_cost: float, target_cost: float) -> None:
            self.costs = decoy_cost, target_cost

        def fit(self, X: Any, labels: Any) -> Watched:
            self.rows = {row.tobytes() for row in X}
            self.w = np.linalg.lstsq(X, labels, rcond=None)[0]
            return self

        def decision_function(self, X: Any) -> Any:
            seen.append((len(X), sum(row.tobytes() in self.rows for row in X)))
            return (X @ self.w).astype(np.float64)

    scores = rescore(matches, Watched)
    held_out = [pair for pair in seen if pair[0] in {int(np.sum(matches.fold == fold)) for fold in range(3)}]
    assert [known for _, known in held_out] == [0, 0, 0]
    assert count_accepted(scores, matches.is_target) > count_accepted(matches.X[:, 0].astype(float), matches.is_target)


@pytest.mark.parametrize(("name", "arguments"), [("peptides", ["--spectra", "10"]), ("clicks", ["--rows", "10"])])
def test_too_little_data(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell(name, monkeypatch, *arguments) == 2
    assert "are needed" in capsys.readouterr().err


def test_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell("clicks", monkeypatch, "--rows", "4000", "--work", str(tmp_path)) == 0
    table = read_table(capsys.readouterr().out)
    assert len(table) == 6
    with (tmp_path / "clicks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4000
    assert 0.05 < np.mean([float(row["clicked"]) for row in rows]) < 0.5
