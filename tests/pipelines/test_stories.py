"""Stories on generated data: what they claim holds on little of it, and their parts agree with brute force."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

from pipelines.cells.markers import count_found, rank_by_t, rank_by_weight
from pipelines.cells.tissue import draw_donor, make_tissue, normalise
from pipelines.embeddings.vectors import make_embeddings
from pipelines.land_cover.terrain import AREAS, read_terrain, split_by_area, split_by_row
from pipelines.peptides.matches import find_q_values, make_matches
from pipelines.peptides.percolator import count_accepted, rescore
from tests.pipelines.test_scripts import read_table

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")


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


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("peptides", ["--spectra", "10"]),
        ("clicks", ["--rows", "10"]),
        ("cells", ["--cells", "10"]),
        ("embeddings", ["--rows", "10"]),
        ("land_cover", ["--rows", "10"]),
    ],
)
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


def test_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    anndata = pytest.importorskip("anndata", reason="the story writes .h5ad")
    assert tell("cells", monkeypatch, "--cells", "200", "--work", str(tmp_path)) == 0
    table, markers = (read_table(part) for part in capsys.readouterr().out.split("Marker genes"))
    foretold = {name: float(cells[2].rstrip("%")) for name, cells in table.items() if cells[2].endswith("%")}
    assert (
        foretold["streamsvm, Crammer-Singer, folds of cells"]
        > 5 + foretold["streamsvm, Crammer-Singer, folds of donors"]
    ), "folds of cells know the donors"
    shares = [float(cells[0].rstrip("%")) for name, cells in markers.items() if cells[0].endswith("%")]
    assert shares[0] > shares[1] > 10
    cells = anndata.read_h5ad(tmp_path / "reference.h5ad")
    assert cells.shape == (1800, 1500)
    assert sorted(set(cells.obs["donor"])) == [f"donor{k}" for k in range(9)]


def test_cells_without_anndata(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("pipelines.cells.__main__.find_spec", lambda _: None)
    assert tell("cells", monkeypatch) == 2
    assert "streamsvm[anndata]" in capsys.readouterr().err


def test_marker_genes_are_ranked_as_scipy_s_t_test_ranks_them() -> None:
    tissue = make_tissue(0)
    counts, types = draw_donor(tissue, 1, 400)
    X = normalise(counts)
    np.testing.assert_allclose(np.expm1(X.toarray()).sum(axis=1), 1e4, rtol=1e-4)
    dense, ranks = X.toarray().astype(np.float64), rank_by_t(X, types, 3)
    for number in range(3):
        expected = ttest_ind(dense[types == number], dense[types != number], equal_var=False).statistic
        best = np.argsort(-np.nan_to_num(expected), kind="stable")[:20]
        assert ranks[number, :20].tolist() == best.tolist()
    assert rank_by_weight(np.array([[0.0, 2.0, 1.0]])).tolist() == [[1, 2, 0]]
    assert count_found(np.array([[1, 2, 0]]), np.array([[0, 1]])) == 0.5


def test_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--rows", "2000", "--labels", "4", "--work", str(tmp_path))
    assert tell("embeddings", monkeypatch, *arguments) == 0
    table = read_table(capsys.readouterr().out)
    losses = {name: float(cells[0]) for name, cells in table.items() if cells[0][:1].isdigit()}
    assert losses["the probabilities that the labels were drawn of"] == min(losses.values())
    assert losses["streamsvm, float16"] == losses["streamsvm, float32"]
    assert np.load(tmp_path / "embeddings.npy").dtype == np.float16


def test_labels_of_embeddings_are_as_frequent_as_their_probabilities() -> None:
    drawn = make_embeddings(0, 20_000, 8, 5)
    np.testing.assert_allclose(drawn.Y.mean(axis=0), drawn.probabilities.mean(axis=0), atol=0.015)


def write_cover(path: Path, n: int) -> np.ndarray:
    """Write rows as Covertype has them, and return them."""
    random = np.random.default_rng(0)
    terrain, area, soil = random.integers(0, 3000, (n, 10)), random.integers(0, 4, n), random.integers(0, 40, n)
    table = np.column_stack([terrain, np.eye(4)[area], np.eye(40)[soil], random.integers(1, 8, n)])
    np.savetxt(path, table, fmt="%d", delimiter=",", header=",".join(f"c{j}" for j in range(55)), comments="")
    return table


def test_areas_are_held_out_whole_and_are_no_features(tmp_path: Path) -> None:
    table = write_cover(tmp_path / "covtype.csv", 300)
    terrain = read_terrain(tmp_path / "covtype.csv", 200, 0)
    assert terrain.X.shape == (200, 50)
    np.testing.assert_allclose(terrain.X[:, :10].mean(axis=0), 0, atol=1e-5)
    drawn = np.random.default_rng(0).permutation(300)[:200]
    np.testing.assert_array_equal(terrain.y, table[drawn, -1] == 2)
    np.testing.assert_array_equal(terrain.X[:, 10:], table[drawn, 14:54])
    by_area, by_row = list(split_by_area(terrain)), list(split_by_row(terrain))
    for area, (train, held_out) in enumerate(by_area):
        assert set(terrain.area[held_out]) == {area} == {0, 1, 2, 3} - set(terrain.area[train])
    for splits in (by_area, by_row):
        assert sorted(np.concatenate([held_out for _, held_out in splits])) == list(range(200))
        assert all(len(np.intersect1d(*split)) == 0 for split in splits)
    assert [len(held_out) for _, held_out in by_row] == [len(held_out) for _, held_out in by_area]
    assert all(len(set(terrain.area[held_out])) == len(AREAS) for _, held_out in by_row)


def test_land_cover_needs_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell("land_cover", monkeypatch, "--data", str(tmp_path)) == 2
    assert "covtype.csv" in capsys.readouterr().err
    (tmp_path / "covtype.csv").write_text("a,b\n1,2\n")
    assert tell("land_cover", monkeypatch, "--data", str(tmp_path)) == 2
    assert "2 columns, but Covertype has 55" in capsys.readouterr().err


@pytest.mark.data
def test_land_cover(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The story's exit status says that gaps are certified and that areas are harder than rows, of each model."""
    assert tell("land_cover", monkeypatch, "--rows", "4000") == 0
    assert len(read_table(capsys.readouterr().out)) >= 5
