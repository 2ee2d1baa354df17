"""The command line as a new user meets it: every command, its JSON, its exit status, and what is left on disk."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from distributed import Client

from streamsvm import LinearSVC
from streamsvm.cli.train import sum_up
from tests.commands import Run, data, run, text, trained  # noqa: F401
from tests.conftest import describe_keys, make_problem

KEYS = {
    "status",
    "solver",
    "objective",
    "lower_bound",
    "relative_gap",
    "passes",
    "steps",
    "seconds",
    "read_bytes",
    "peak_memory_bytes",
    "projected_memory_bytes",
    "n_rows",
    "n_features",
    "n_support_vectors",
    "model_sha256",
}
SEVERAL_PASSES = ("--option", "acceleration=line-search")


def test_from_text_to_a_score(run: Run, text: Path, tmp_path: Path) -> None:
    data, out, csv = tmp_path / "d.zarr", tmp_path / "run", tmp_path / "p.csv"
    assert run("ingest", text, data).code == 0
    about = run("info", data, "--verify", "--json")
    assert about.code == 0
    assert {"n_rows": 300, "n_features": 6, "verified_rows": 300}.items() <= about.result.items()
    trained = run("train", data, "--out", out, "--json")
    assert trained.code == 0
    assert run("predict", out, text, "--out", csv).code == 0
    score = run("evaluate", out, text, "--json")
    assert score.code == 0
    truth = [int(line.split()[0]) for line in text.read_text().splitlines()]
    said = [int(line.split(",")[0]) for line in csv.read_text().splitlines()[1:]]
    assert score.result["accuracy"] == pytest.approx(np.mean(np.equal(truth, said)))
    assert score.result["accuracy"] > 0.8


def test_result_of_train(run: Run, data: Path, tmp_path: Path) -> None:
    ran = run("train", data, "--out", tmp_path / "run", "--C", "0.5", "--json")
    result = ran.result
    assert result.keys() >= KEYS
    assert (ran.code, result["status"], result["solver"]) == (0, "converged", "cutting-plane")
    assert (result["n_rows"], result["n_features"], result["n_support_vectors"]) == (300, 6, None)
    gap = (result["objective"] - result["lower_bound"]) / result["objective"]
    assert 0 <= gap <= 1e-3
    assert result["relative_gap"] == pytest.approx(gap)
    history = [json.loads(line) for line in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    assert [line["passes"] for line in history] == list(range(1, result["passes"] + 1))
    assert hashlib.sha256((tmp_path / "run/model.npz").read_bytes()).hexdigest() == result["model_sha256"]
    assert json.loads((tmp_path / "run/result.json").read_text()) == result
    assert len(ran.out.splitlines()) == 1
    assert all(line.startswith("pass ") for line in ran.err.splitlines())


def test_people_read_lines_instead_of_json(run: Run, text: Path, data: Path, tmp_path: Path) -> None:
    trained = run("train", data, "--out", tmp_path / "run")
    assert trained.out.startswith("converged: objective ")
    assert str(tmp_path / "run/model.npz") in trained.out
    told = run("evaluate", tmp_path / "run", text).out
    assert "300 rows" in told
    assert [line.split()[0] for line in told.splitlines()[1:5]] == ["class", "-1", "1", "(mean)"]


def test_a_solver_that_proves_nothing_says_so(trained: Path) -> None:
    found = json.loads((trained / "result.json").read_text())
    result = SimpleNamespace(**{**found, "objective": 1.5, "relative_gap": None, "passes": 3})
    assert sum_up(result, trained).startswith("converged: objective 1.5, nothing proved, 3 passes")


def test_stopped_then_resumed_as_if_never_stopped(run: Run, data: Path, tmp_path: Path) -> None:
    assert run("train", data, "--out", tmp_path / "whole", *SEVERAL_PASSES).code == 0
    stopped = run("train", data, "--out", tmp_path / "run", "--max-passes", "1", "--json", *SEVERAL_PASSES)
    assert (stopped.code, stopped.result["status"], stopped.result["passes"]) == (3, "pass_limit", 1)
    resumed = run("train", data, "--out", tmp_path / "run", "--resume", "--json", *SEVERAL_PASSES)
    assert resumed.code == 0
    assert (tmp_path / "run/model.npz").read_bytes() == (tmp_path / "whole/model.npz").read_bytes()


def test_time_limit_still_gives_a_model_and_an_objective(run: Run, data: Path, tmp_path: Path) -> None:
    ran = run("train", data, "--out", tmp_path / "run", "--max-seconds", "1e-9", "--json", *SEVERAL_PASSES)
    assert (ran.code, ran.result["status"], ran.result["passes"]) == (3, "time_limit", 1)
    assert 0 < ran.result["objective"] <= 300  # the loss of w = 0 is C times the number of rows


def test_a_run_is_resumed_after_its_data_moved(run: Run, data: Path, tmp_path: Path) -> None:
    assert run("train", data, "--out", tmp_path / "run", "--max-passes", "1", *SEVERAL_PASSES).code == 3
    shutil.copytree(data, tmp_path / "moved.zarr")
    assert run("train", tmp_path / "moved.zarr", "--out", tmp_path / "run", "--resume", *SEVERAL_PASSES).code == 0


@pytest.mark.data
def test_adult_from_the_compressed_text(run: Run, data_folder: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "a9a.zarr", tmp_path / "run"
    assert run("ingest", data_folder / "adult/a9a.xz", data).code == 0
    trained = run("train", data, "--out", out, "--C", "0.05", "--json").result
    assert trained["objective"] == pytest.approx(577.5158, rel=1e-3)  # LIBLINEAR's optimum
    assert trained["passes"] <= 30
    tested = run("evaluate", out, data_folder / "adult/a9a.t.xz", "--json").result
    assert tested["accuracy"] == pytest.approx(0.8504, abs=1e-3)


def test_class_weights_reach_the_solver(run: Run, text: Path, data: Path, tmp_path: Path) -> None:
    problem = make_problem(1)
    tilted = run("train", data, "--out", tmp_path / "a", "--class-weight", "1=3,-1=0.5", "--tol", "1e-7", "--json")
    expected = LinearSVC(class_weight={1: 3, -1: 0.5}, tol=1e-7).fit(problem.X, problem.y)
    assert tilted.result["objective"] == pytest.approx(expected.objective_, rel=1e-5)


def test_an_existing_cluster_gives_the_same_bits(
    run: Run, client: Client, data: Path, trained: Path, tmp_path: Path
) -> None:
    with dask.config.set(describe_keys(client.security)):
        ran = run("train", data, "--out", tmp_path / "run", "--scheduler", client.scheduler.address, "--json")
    assert ran.code == 0
    assert (tmp_path / "run/model.npz").read_bytes() == (trained / "model.npz").read_bytes()


def test_standard_input_and_a_closed_pipe(text: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamsvm"]
    with text.open() as rows:
        ran = subprocess.run(
            [*command, "ingest", "-", tmp_path / "d.zarr", "--format", "svmlight"],
            stdin=rows,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ran.returncode, "300 rows of 6 features" in ran.stdout) == (0, True)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        ran = subprocess.run([*command, "info", tmp_path / "d.zarr"], stdout=closed, stderr=-1, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
