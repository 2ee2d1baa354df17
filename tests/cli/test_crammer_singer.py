"""`--multi-class crammer_singer`: models are trained, resumed, judged and verified; what contradicts it is refused."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.class_problems import make_classes
from tests.commands import Run, run  # noqa: F401

JOINT = ("--multi-class", "crammer_singer")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    make_classes(2, n=600, d=5, n_classes=4).store(folder / "rows.zarr")
    return folder / "rows.zarr"


KERNEL = ("--kernel", "rbf", "--gamma", "0.1", "--resident-rows", "30%", "--option", "intercept_scaling=2")


@pytest.mark.parametrize("own", [(), KERNEL], ids=["linear", "kernel"])
def test_from_training_to_predictions(own: tuple[str, ...], run: Run, rows: Path, tmp_path: Path) -> None:
    out, given = tmp_path / "run", (*JOINT, *own)
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


def test_it_is_not_a_task(run: Run, rows: Path, tmp_path: Path) -> None:
    ran = run("train", rows, "--out", tmp_path / "run", "--task", "crammer-singer")
    assert ran.code == 2
    assert "argument --task: invalid choice: 'crammer-singer' (choose from" in ran.err
    assert "--multi-class crammer_singer" in run("train", "--help-solver", "cutting-plane").out


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--task", "rank"], "not allowed with argument --multi-class"),
        (["--loss", "hinge"], "the losses of the task crammer-singer are crammer_singer"),
        (["--kernel", "sigmoid"], "or use the solver smo, which supports linear, rbf, poly, precomputed"),
        (["--kernel", "rbf", "--solver", "cutting-plane"], "supports only the linear kernel"),
        (["--solver", "irwls"], "use --solver cutting-plane or smo"),
        (["--kernel", "rbf", "--option", "selection=platt"], "option 'selection' is unknown"),
        (["--keep-dual"], "no dual point is kept for this task"),
    ],
)
def test_what_contradicts_it_is_refused(run: Run, rows: Path, tmp_path: Path, more: list[str], reason: str) -> None:
    ran = run("train", rows, "--out", tmp_path / "run", *JOINT, *more)
    assert ran.code == 2
    assert reason in ran.err
    assert not (tmp_path / "run").exists()
