"""--multi-class and --kernel precomputed on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from streamsvm.ingestion.readers import ingest
from tests.commands import Run, run
from tests.solvers.many.test_one_against_rest import make_classes

__all__ = ["run"]

ROWS = make_classes(4, n=200)
SMO = ["--solver", "smo", "--json"]


@pytest.mark.parametrize(("way", "problems"), [(None, 6), ("ovo", 6), ("ovr", 4)])
def test_each_way_has_its_problems(run: Run, way: str | None, problems: int, tmp_path: Path) -> None:
    ingest(ROWS.X, tmp_path / "rows.zarr", ROWS.names[ROWS.y])
    given = [] if way is None else ["--multi-class", way]
    trained = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", "--kernel", "rbf", *SMO, *given)
    assert (trained.code, len(trained.result["problems"])) == (0, problems)
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    assert told["objective"] == pytest.approx(sum(one["objective"] for one in told["problems"]), rel=1e-12)
    assert run("verify", tmp_path / "run", tmp_path / "rows.zarr", "--dual").code == 0
    assert run("predict", tmp_path / "run", tmp_path / "rows.zarr", "--out", tmp_path / "out.csv").code == 0
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert header == "label,score a,score b,score c,score d"


def test_probabilities_and_a_grid_of_pairs(run: Run, tmp_path: Path) -> None:
    ingest(ROWS.X, tmp_path / "rows.zarr", np.array(["a", "b", "c"])[np.arange(200) % 3])
    given = ["--kernel", "rbf", *SMO]
    trained = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", *given, "--probabilities")
    assert trained.code == 0
    measured = run("evaluate", tmp_path / "run", tmp_path / "rows.zarr", "--json").result
    assert 0 < measured["log_loss"] < np.log(3) + 0.1
    tuned = run("tune", tmp_path / "rows.zarr", "--out", tmp_path / "grid", "--C", "0.1,1", "--folds", "3", *given)
    assert tuned.code == 0


def test_unsuitable_ways_are_refused(run: Run, tmp_path: Path) -> None:
    ingest(ROWS.X, tmp_path / "rows.zarr", ROWS.names[ROWS.y])
    refused = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", "--multi-class", "ovo")
    assert (refused.code, "cutting-plane supports ovr" in refused.err) == (2, True)
    refused = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", *SMO, "--kernel", "precomputed")
    assert (refused.code, "X.shape[0] should be equal to X.shape[1]" in refused.err) == (2, True)
    numbered = np.column_stack((np.arange(1, len(ROWS.X) + 1), ROWS.X @ ROWS.X.T))
    ingest(numbered, tmp_path / "numbered.zarr", ROWS.names[ROWS.y], shuffle=None)
    refused = run("train", tmp_path / "numbered.zarr", "--out", tmp_path / "run", *SMO, "--kernel", "precomputed")
    assert (refused.code, "omit the row numbers of LIBSVM's format: sed 's/ 0:[0-9]*//'" in refused.err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_a_kernel_matrix_from_a_file(run: Run, tmp_path: Path) -> None:
    K = ROWS.X @ ROWS.X.T
    ingest(K, tmp_path / "rows.zarr", ROWS.names[ROWS.y], shuffle=None)
    given = ["--kernel", "precomputed", *SMO]
    trained = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", *given)
    assert (trained.code, trained.result["status"], trained.result["lower_bound"]) == (0, "stationary", None)
    measured = run("evaluate", tmp_path / "run", tmp_path / "rows.zarr", "--json").result
    assert measured["accuracy"] > 0.5
    refused = run("verify", tmp_path / "run", tmp_path / "rows.zarr")
    assert (refused.code, "cannot be recomputed" in refused.err) == (2, True)
