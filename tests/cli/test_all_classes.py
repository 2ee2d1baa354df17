"""`--multi-class` multinomial and crammer_singer: trained, resumed, judged and verified; contradictions are refused."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.class_problems import make_classes
from tests.commands import Run, run  # noqa: F401

JOINT, MARGINS = (("--multi-class", way) for way in ("multinomial", "crammer_singer"))
KERNEL = ("--kernel", "rbf", "--gamma", "0.1", "--resident-rows", "30%", "--option", "intercept_scaling=2")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    make_classes(2, n=600, d=5, n_classes=4).store(folder / "rows.zarr")
    return folder / "rows.zarr"


def test_from_training_to_predictions(run: Run, rows: Path, tmp_path: Path) -> None:
    out, written = tmp_path / "run", tmp_path / "p.csv"
    assert run("train", rows, "--plan", *JOINT).code == 0
    trained = run("train", rows, "--out", out, *JOINT, "--class-weight", "3=2", "--json")
    assert trained.code == 0
    assert trained.result["relative_gap"] <= 1e-3
    assert run("verify", out, rows).code == 0
    assert "multinomial" in run("info", out).out
    judged = run("evaluate", out, rows, "--json").result
    assert judged["accuracy"] > 0.5
    assert 0.0 < judged["log_loss"] < 1.2
    assert run("predict", out, rows, "--out", written, "--probabilities").code == 0
    with written.open() as file:
        header, *lines = list(csv.reader(file))
    assert header[5:] == [f"probability {k}" for k in range(4)]
    table = np.array(lines, np.float64)
    odds = np.exp(table[:, 1:5] - table[:, 1:5].max(axis=1, keepdims=True))
    np.testing.assert_allclose(table[:, 5:], odds / odds.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(table[:, 0], np.argmax(table[:, 5:], axis=1))
    assert run("report", out).code == 0
    (tmp_path / "m.json").unlink(missing_ok=True)
    assert run("export", out, "--to", "json", "--out", tmp_path / "m.json").code == 0
    assert "the probabilities of the classes are the softmax of the scores" in (tmp_path / "m.json").read_text()


@pytest.mark.parametrize("own", [(), KERNEL], ids=["linear", "kernel"])
def test_from_training_to_predictions_by_margins(own: tuple[str, ...], run: Run, rows: Path, tmp_path: Path) -> None:
    out, given = tmp_path / "run", (*MARGINS, *own)
    assert run("train", rows, "--out", out, *given, "--max-passes", "1", "--tol", "1e-9").code == 3
    resumed = run("train", rows, "--out", out, *given, "--resume", "--tol", "1e-4", "--json")
    assert resumed.code == 2  # another tolerance
    trained = run("train", rows, "--out", out, *given, "--overwrite", "--class-weight", "3=2", "--json")
    assert trained.code == 0
    assert trained.result["relative_gap"] <= 1e-3
    assert run("verify", out, rows, *(["--dual"] if own else [])).code == 0
    assert run("evaluate", out, rows, "--json").result["accuracy"] > 0.5
    assert run("predict", out, rows, "--out", tmp_path / "labels.npy").code == 0
    assert set(np.load(tmp_path / "labels.npy").tolist()) <= {0, 1, 2, 3}
    assert run("report", out).code == 0


def test_a_run_that_was_stopped_is_resumed_to_the_same_bits(run: Run, tmp_path: Path) -> None:
    make_classes(5, n=3000, d=8, n_classes=4).store(tmp_path / "rows.zarr")
    given = ("train", tmp_path / "rows.zarr", *JOINT, "--resident-rows", "10%", "--tol", "1e-6", "--out")
    assert run(*given, tmp_path / "a").code == 0
    assert run(*given, tmp_path / "b", "--max-passes", "2").code == 3
    assert run(*given, tmp_path / "b", "--resume").code == 0
    assert (tmp_path / "a" / "model.npz").read_bytes() == (tmp_path / "b" / "model.npz").read_bytes()


@pytest.mark.parametrize("way", ["sigmoid", "isotonic", "temperature"])
def test_probabilities_can_be_calibrated(way: str, run: Run, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained = run("train", rows, "--out", out, *JOINT, "--probabilities", way, "--json")
    assert trained.code == 0
    assert trained.result["calibration"]["method"] == way
    assert run("evaluate", out, rows, "--json").result["log_loss"] < 1.2


def test_a_grid_is_judged_by_the_log_loss(run: Run, rows: Path, tmp_path: Path) -> None:
    asked = (*JOINT, "--C", "0.001,1", "--folds", "3", "--scoring", "neg_log_loss")
    found = run("tune", rows, "--out", tmp_path / "run", *asked, "--json").result
    assert found["C"] == 1
    assert [trial["mean"] < 0.0 for trial in found["trials"]] == [True, True]


def test_two_classes_are_one_logistic_problem(run: Run, tmp_path: Path) -> None:
    make_classes(2, n=100, n_classes=2).store(tmp_path / "rows.zarr")
    files = []
    for name, asked in (("a", JOINT), ("b", ("--loss", "logistic"))):
        assert run("train", tmp_path / "rows.zarr", "--out", tmp_path / name, *asked).code == 0
        files.append((tmp_path / name / "model.npz").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("way", "more", "reason"),
    [
        (JOINT, ["--task", "rank"], "not allowed with argument --multi-class"),
        (JOINT, ["--loss", "logistic"], "of the task multinomial are softmax; logistic is a loss of --task classify"),
        (JOINT, ["--penalty", "l1"], "train each class against the rest (--multi-class ovr --loss logistic"),
        (JOINT, ["--kernel", "rbf"], "supports only the linear kernel; map the rows with `streamsvm features`"),
        (JOINT, ["--solver", "newton"], "the loss softmax of --multi-class multinomial; use --solver cutting"),
        (JOINT, ["--keep-dual"], "no dual point is kept for this task"),
        (MARGINS, ["--loss", "hinge"], "the losses of the task crammer-singer are crammer_singer"),
        (MARGINS, ["--kernel", "sigmoid"], "or use the solver smo, which supports linear, rbf, poly, precomputed"),
        (MARGINS, ["--kernel", "rbf", "--solver", "cutting-plane"], "supports only the linear kernel"),
        (MARGINS, ["--solver", "irwls"], "use --solver cutting-plane or smo"),
        (MARGINS, ["--kernel", "rbf", "--option", "selection=platt"], "option 'selection' is unknown"),
        (MARGINS, ["--keep-dual"], "no dual point is kept for this task"),
    ],
)
def test_what_contradicts_it_is_refused(
    run: Run, rows: Path, tmp_path: Path, way: tuple[str, ...], more: list[str], reason: str
) -> None:
    ran = run("train", rows, "--out", tmp_path / "run", *way, *more)
    assert ran.code == 2
    assert reason in ran.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("task", "option"), [("crammer-singer", "crammer_singer"), ("multinomial", "multinomial")])
def test_it_is_not_a_task(task: str, option: str, run: Run, rows: Path, tmp_path: Path) -> None:
    ran = run("train", rows, "--out", tmp_path / "run", "--task", task)
    assert (ran.code, f"argument --task: invalid choice: '{task}' (choose from" in ran.err) == (2, True)
    assert f"--multi-class {option}" in run("train", "--help-solver", "cutting-plane").out


def test_the_loss_alone_names_its_option(run: Run, rows: Path, tmp_path: Path) -> None:
    ran = run("train", rows, "--out", tmp_path / "run", "--loss", "softmax")
    assert (ran.code, "softmax is a loss of --multi-class multinomial" in ran.err) == (2, True)
