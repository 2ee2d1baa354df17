"""`train --probabilities` and `predict --probabilities`: what they write, the same on workers, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import zarr

import streamsvm
from streamsvm.cli.main import main
from streamsvm.models.evaluate import find_probabilities
from streamsvm.models.model import load
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


@pytest.mark.parametrize("way", ["isotonic", "temperature"])
def test_other_ways(way: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["train", data, "--out", str(run), "--probabilities", way, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["calibration"]
    assert told["method"] == way
    assert told["brier_score"] < 0.25
    assert main(["evaluate", str(run), data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["brier_score"] == pytest.approx(told["brier_score"], rel=0.1)
    assert found["log_loss"] < 0.7
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert f"{way}: Brier score {told['brier_score']:.4f}, log loss {told['log_loss']:.4f}" in page
    chart = page[page.index("Reliability of the probabilities") :]
    dots = chart[: chart.index("</svg>")].count('class="dot"')
    assert dots == len(told["reliability"]) + 2  # and the ends of the line of true probabilities


def test_the_best_of_a_grid_has_probabilities_in_the_reads_of_its_training(data: str, tmp_path: Path) -> None:
    out, alone = tmp_path / "tuned", tmp_path / "alone"
    asked = ["--probabilities", "isotonic"]
    assert main(["tune", data, "--C", "0.1,1", "--folds", "2", "--out", str(out), *asked]) == 0
    told = json.loads((out / "tuning.json").read_text())
    assert main(["train", data, "--C", str(told["C"]), "--out", str(alone), *asked]) == 0
    assert (out / "model.npz").read_bytes() == (alone / "model.npz").read_bytes()
    assert told["calibration"]["method"] == "isotonic"
    assert told["passes"] == json.loads((alone / "result.json").read_text())["passes"]


def test_a_logistic_model_that_was_calibrated_is_loaded(data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", data, "--out", str(run), "--loss", "logistic", "--probabilities", "isotonic"]) == 0
    model, loaded = load(run), streamsvm.load(run)
    expected = find_probabilities(model, model.decide(np.ascontiguousarray(X)))
    assert isinstance(loaded, streamsvm.LogisticRegression)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(loaded.predict_log_proba(X), np.log(expected))


def test_refused_before_anything_is_trained(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    asked = ["train", data, "--out", run, "--probabilities", "sigmoid"]
    assert main([*asked, "--task", "roc-area"]) == 2
    assert "probabilities need classes, but the task roc-area" in capsys.readouterr().err
    assert main([*asked, "--solver", "budgeted-sgd"]) == 2
    assert "budgeted-sgd cannot be trained on folds" in capsys.readouterr().err
    assert main([*asked, "--task", "one-class", "--kernel", "rbf", "--solver", "smo"]) == 2
    assert "probabilities need classes, but the task one-class" in capsys.readouterr().err
    assert main([*asked, "--solver", "budgeted-sgd", "--plan"]) == 2
    assert "budgeted-sgd cannot be trained on folds" in capsys.readouterr().err
    assert not Path(run).exists()
    assert main(["train", data, "--out", run]) == 0
    capsys.readouterr()
    assert main(["predict", run, data, "--out", str(tmp_path / "p.csv"), "--probabilities"]) == 2
    assert "the model has no probabilities: train with --probabilities sigmoid" in capsys.readouterr().err
    assert main(["predict", run, data, "--out", str(tmp_path / "p.npy"), "--probabilities"]) == 2
    assert not (tmp_path / "p.csv").exists()
