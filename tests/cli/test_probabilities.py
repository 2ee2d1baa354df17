"""`train --probabilities` and `predict --probabilities`: what they write, the same on workers, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import zarr

from streamsvm.cli.command import main
from streamsvm.models.model import load
from streamsvm.models.probabilities import find_probabilities
from tests.conftest import Problem

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(300, 3)).astype(np.float32)
Y = np.where(X[:, 0] + RANDOM.normal(size=300) > 0.3, 1, -1)


@pytest.fixture
def data(tmp_path: Path) -> str:
    Problem(X, Y).store(tmp_path / "rows.zarr", chunk_bytes=1000)
    return str(tmp_path / "rows.zarr")


def test_trained_predicted_and_the_same_on_workers(data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", data, "--out", str(run), "--probabilities", "sigmoid"]) == 0
    model, told = load(run), json.loads((run / "result.json").read_text())
    expected = find_probabilities(model, model.decide(np.ascontiguousarray(X)))
    assert told["passes"] == 2  # the training and its folds, and the scores
    assert abs(float(np.mean(expected[:, 1])) - float(np.mean(Y == 1))) < 0.03
    assert main(["predict", str(run), data, "--out", str(tmp_path / "p.csv"), "--probabilities"]) == 0
    with (tmp_path / "p.csv").open() as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["label", "score", "probability -1", "probability 1"]
    table = np.array(lines[1:], np.float64)
    np.testing.assert_allclose(table[:, 2] + table[:, 3], 1.0, atol=1e-8)
    np.testing.assert_allclose(np.sort(table[:, 3]), np.sort(expected[:, 1]), rtol=1e-6)
    assert main(["predict", str(run), data, "--out", str(tmp_path / "p.zarr"), "--probabilities"]) == 0
    stored = np.asarray(zarr.open_group(str(tmp_path / "p.zarr"), mode="r")["probability"])
    np.testing.assert_allclose(stored, table[:, 2:], rtol=1e-7)
    others = tmp_path / "others"
    assert main(["train", data, "--out", str(others), "--probabilities", "sigmoid", "--workers", "2"]) == 0
    assert (others / "model.npz").read_bytes() == (run / "model.npz").read_bytes()


def test_a_run_gets_its_sigmoids_when_it_is_resumed(data: str, tmp_path: Path) -> None:
    whole, later = str(tmp_path / "whole"), str(tmp_path / "later")
    assert main(["train", data, "--out", whole, "--probabilities", "sigmoid"]) == 0
    assert main(["train", data, "--out", later]) == 0
    assert main(["train", data, "--out", later, "--resume", "--probabilities", "sigmoid"]) == 0
    assert Path(later, "model.npz").read_bytes() == Path(whole, "model.npz").read_bytes()


def test_models_of_the_logistic_loss_have_probabilities(data: str, tmp_path: Path) -> None:
    run, out = str(tmp_path / "run"), tmp_path / "p.csv"
    assert main(["train", data, "--out", run, "--loss", "logistic"]) == 0
    assert main(["predict", run, data, "--out", str(out), "--probabilities"]) == 0
    score, below, above = np.loadtxt(out, delimiter=",", skiprows=1, usecols=(1, 2, 3)).T
    np.testing.assert_allclose(above, 1 / (1 + np.exp(-score)), rtol=1e-6)
    np.testing.assert_allclose(below, 1 - above, atol=1e-8)


def test_refused_before_anything_is_trained(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    asked = ["train", data, "--out", run, "--probabilities", "sigmoid"]
    assert main([*asked, "--task", "roc-area"]) == 2
    assert "probabilities are for classes, and the task is roc-area" in capsys.readouterr().err
    assert main([*asked, "--solver", "budgeted-sgd"]) == 2
    assert "budgeted-sgd cannot be trained on folds" in capsys.readouterr().err
    assert not Path(run).exists()
    assert main(["train", data, "--out", run]) == 0
    capsys.readouterr()
    assert main(["predict", run, data, "--out", str(tmp_path / "p.csv"), "--probabilities"]) == 2
    assert "the model has no probabilities: train with --probabilities sigmoid" in capsys.readouterr().err
    assert main(["predict", run, data, "--out", str(tmp_path / "p.npy"), "--probabilities"]) == 2
    assert not (tmp_path / "p.csv").exists()
