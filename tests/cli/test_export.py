"""`streamsvm export`: what it says, what it refuses, and that it replaces nothing unasked."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm import ingest
from streamsvm.models.exports.formats import FORMATS
from streamsvm.models.model import LinearModel
from tests.commands import Run, data, run, text, trained  # noqa: F401


@pytest.mark.parametrize("to", FORMATS)
def test_a_file_is_replaced_only_if_asked(to: str, run: Run, trained: Path, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnx")
    out = tmp_path / "model.txt"
    out.write_text("mine")
    refused = run("export", trained, "--to", to, "--out", out)
    assert (refused.code, out.read_text()) == (2, "mine")
    assert "--overwrite" in refused.err
    assert run("export", trained, "--to", to, "--out", out, "--overwrite").code == 0
    assert run("export", trained / "model.npz", "--to", to, "--out", tmp_path / "other").code == 0
    assert out.read_bytes() == (tmp_path / "other").read_bytes() != b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.txt", "other"]


@pytest.mark.parametrize("name", ["model.npz", "result.json", "checkpoint.npz"])
def test_the_run_is_not_replaced(name: str, run: Run, trained: Path) -> None:
    before = (trained / name).read_bytes()
    ran = run("export", trained, "--to", "json", "--out", trained / name, "--overwrite")
    assert ran.code == 2
    assert "is read by this command" in ran.err
    assert (trained / name).read_bytes() == before


def test_bad_places_and_models(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"no model")
    for arguments, told in [
        ([trained, "--to", "json", "--out", tmp_path / "bad.npz" / "out"], "bad.npz: is a file, so it cannot contain"),
        ([trained, "--to", "json", "--out", tmp_path], "is a folder"),
        ([tmp_path / "bad.npz", "--to", "json", "--out", tmp_path / "out"], "bad.npz"),
        ([tmp_path / "none", "--to", "json", "--out", tmp_path / "out"], "no such file"),
        ([trained, "--to", "pmml", "--out", tmp_path / "out"], "invalid choice"),
    ]:
        ran = run("export", *arguments)
        assert ran.code == 2, arguments
        assert told in ran.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "to", "told"),
    [
        (["--kernel", "rbf"], "libsvm", "a kernel rbf of scaled rows"),
        (["--kernel", "rbf"], "liblinear", "has no weights; choose --to libsvm"),
        (["--kernel", "rbf"], "csv", "has no weights"),
        (["--map", "nystrom", "--rank", "5"], "liblinear", "no format of `export` can hold the feature map"),
        (["--map", "nystrom", "--rank", "5"], "json", "no format of `export` can hold the feature map"),
    ],
)
def test_what_no_file_can_hold_is_refused(
    options: list[str], to: str, told: str, run: Run, text: Path, tmp_path: Path
) -> None:
    ingest(text, tmp_path / "rows.zarr", scale="standard")
    assert run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run", *options).code == 0
    ran = run("export", tmp_path / "run", "--to", to, "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert not (tmp_path / "out").exists()


def test_pairs_of_classes_have_no_weights(run: Run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(90, 3)).astype(np.float32)
    ingest(X, tmp_path / "rows.zarr", np.argmax(X, axis=1))
    out, folder = tmp_path / "out", tmp_path / "run"
    assert run("train", tmp_path / "rows.zarr", "--out", folder, "--solver", "smo", "--kernel", "linear").code == 0
    assert "--multi-class ovr" in run("export", folder, "--to", "csv", "--out", out).err
    told = run("export", folder, "--to", "libsvm", "--out", out)
    assert "most votes" in told.out


@pytest.mark.parametrize("to", ["liblinear", "libsvm"])
def test_texts_become_numbers_and_the_command_says_which(to: str, run: Run, tmp_path: Path) -> None:
    model, out = LinearModel(coef=np.ones(2), intercept=0.5, classes=np.array(["no\x1b[2J", "yes"])), tmp_path / "out"
    model.save(tmp_path / "model.npz")
    ran = run("export", tmp_path / "model.npz", "--to", to, "--out", out)
    assert "0 is no\\x1b[2J, 1 is yes" in ran.out
    assert "label 1 0\n" in out.read_text()


@pytest.mark.parametrize("classes", [[0.5, 1.5], [0, 2**31]])
def test_numbers_that_are_no_labels_are_numbered(classes: list[float], run: Run, tmp_path: Path) -> None:
    LinearModel(coef=np.ones(2), intercept=0.5, classes=np.array(classes)).save(tmp_path / "model.npz")
    ran = run("export", tmp_path / "model.npz", "--to", "liblinear", "--out", tmp_path / "out")
    assert "numbered in their order" in ran.out


@pytest.mark.parametrize("to", ["liblinear", "libsvm", "csv"])
def test_probabilities_that_are_left_out_are_told(to: str, run: Run, data: Path, tmp_path: Path) -> None:
    assert run("train", data, "--out", tmp_path / "run", "--probabilities", "isotonic").code == 0
    assert "the probabilities are omitted" in run("export", tmp_path / "run", "--to", to, "--out", tmp_path / "m").out


@pytest.mark.parametrize("to", FORMATS)
def test_sets_of_labels(to: str, run: Run, tmp_path: Path) -> None:
    """LIBLINEAR and LIBSVM would choose one label for each row."""
    if to == "onnx":
        pytest.importorskip("onnx")
    info = {"task": "multi-label", "loss": "logistic"}
    LinearModel(coef=np.eye(3, 2), intercept=np.zeros(3), classes=np.array(["a", "b", "c"]), info=info).save(
        tmp_path / "model.npz"
    )
    ran, out = run("export", tmp_path / "model.npz", "--to", to, "--out", tmp_path / "out"), tmp_path / "out"
    assert ran.code == (2 if to.startswith("lib") else 0), ran.err
    if to.startswith("lib"):
        assert "predicts sets of labels" in ran.err
    if to == "csv":
        assert out.read_text().splitlines()[0] == "feature,weight a,weight b,weight c"
    if to == "json":
        assert "whose scores are above 0" in out.read_text()
