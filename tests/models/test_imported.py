"""Model files of LIBLINEAR are read with its scores, are starting points, and are refused if they are damaged."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm import LinearOneClassSVM, LinearSVC, LinearSVR
from streamsvm.models.exports.export import export
from streamsvm.models.exports.libsvm import read_model_file
from streamsvm.models.model import LinearModel, load
from streamsvm.system.errors import InputError
from tests.commands import Run, run  # noqa: F401
from tests.models.exports.trained import Task, as_others_take, compare, score

FILE = "solver_type L2R_L2LOSS_SVC\nnr_class 2\nlabel 3 -1\nnr_feature 2\nbias 10\nw\n0.5 \n-2 \n0.25 \n"
OF_ONE_CLASS = "solver_type ONECLASS_SVM\nnr_class 2\nnr_feature 1\nbias -1\nrho 0.5\nw\n1 \n"


@pytest.mark.parametrize("bias", ["-1", "0.5"])
@pytest.mark.parametrize("solver", ["0", "3", "5"])
@pytest.mark.parametrize("task", [Task(), Task(4, sparse=True)], ids=str)
def test_scores_are_those_of_liblinear(task: Task, solver: str, bias: str, tmp_path: Path) -> None:
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    X, y, _ = task.make()
    other = liblinear.train(y.tolist(), X.astype(np.float64), f"-s {solver} -B {bias} -q")
    liblinear.save_model(str(tmp_path / "model.txt"), other)
    model = read_model_file(tmp_path / "model.txt")
    assert model.classes.tolist() == sorted(other.get_labels())
    _, _, values = liblinear.predict([], as_others_take(task), other, "-q")
    if task.n_classes > 2:
        order = [other.get_labels().index(label) for label in model.classes.tolist()]
        compare(np.array(values)[:, order], score(model, task), task)
    else:
        sign = 1 if other.get_labels()[0] == max(other.get_labels()) else -1
        compare(sign * np.array(values), score(model, task), task)


@pytest.mark.parametrize("labels", [("3 -1", 1.0), ("-1 3", -1.0)])
def test_a_file_by_hand(labels: tuple[str, float], tmp_path: Path) -> None:
    """The bias is the last weight times the value of its feature, and the larger label has the scores above 0."""
    (tmp_path / "m").write_text(FILE.replace("3 -1", labels[0]))
    model = read_model_file(tmp_path / "m")
    assert (model.classes.tolist(), model.intercept, model.info["loss"]) == ([-1, 3], labels[1] * 2.5, "squared_hinge")
    np.testing.assert_array_equal(model.coef, labels[1] * np.array([0.5, -2.0]))


@pytest.mark.parametrize(
    "fitted",
    [
        LinearSVC(multi_class="crammer_singer"),
        LinearSVR(loss="squared_epsilon_insensitive"),
        LinearSVR(),
        LinearOneClassSVM(nu=0.3),
    ],
    ids=str,
)
def test_other_problems_are_imported_as_estimators(fitted: Any, tmp_path: Path) -> None:
    X, y, _ = Task(4).make()
    fitted.fit(X, y)
    export(fitted.model_, tmp_path / "m", "liblinear")
    read_model_file(tmp_path / "m").save(tmp_path / "m.npz")
    again = streamsvm.load(tmp_path / "m.npz")
    assert (type(again), again.status_, again.objective_, again.gap_) == (type(fitted), None, None, None)
    for name in {"loss", "multi_class"} & fitted.get_params().keys():
        assert again.get_params()[name] == fitted.get_params()[name]
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_two_classes_of_the_joint_problem_become_one_score(tmp_path: Path) -> None:
    """LIBLINEAR keeps a score for each of two classes; the score here is that of the larger label minus the other."""
    file = FILE.replace("L2R_L2LOSS_SVC", "MCSVM_CS").replace("0.5 \n-2 \n0.25 ", "0.5 1\n-2 3\n0.25 0.5")
    (tmp_path / "m").write_text(file)
    model = read_model_file(tmp_path / "m")
    np.testing.assert_array_equal(model.coef, [-0.5, -5.0])
    assert (model.classes.tolist(), model.intercept) == ([-1, 3], -2.5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_is_exported_is_imported(n_classes: int, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shape = () if n_classes == 2 else (n_classes,)
    coef, b = random.normal(size=(*shape, 5)), random.normal(size=shape)
    model = LinearModel(
        coef=coef, intercept=b if shape else float(b), classes=np.arange(n_classes), info={"loss": "logistic"}
    )
    export(model, tmp_path / "m", "liblinear")
    again = read_model_file(tmp_path / "m")
    np.testing.assert_array_equal(again.coef, coef)
    np.testing.assert_array_equal(again.intercept, b)


def test_a_training_starts_from_it(run: Run, tmp_path: Path) -> None:
    """The optimum of the same problem is proved sooner from there than from 0, and the model is certified then."""
    X, y, _ = Task().make()
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    rows = tmp_path / "rows.zarr"
    assert run("ingest", tmp_path / "rows.npz", rows, "--scale", "minmax").code == 0
    given = ["--C", "10", "--option", "acceleration=line-search", "--tol", "1e-4"]
    cold = run("train", rows, "--out", tmp_path / "cold", "--json", *given).result
    assert run("export", tmp_path / "cold", "--to", "liblinear", "--out", tmp_path / "m").code == 0
    said = run("import", tmp_path / "m", "--out", tmp_path / "m.npz")
    assert (said.code, "2 classes and 6 features, without a certificate" in said.out) == (0, True)
    assert "objective" not in load(tmp_path / "m.npz").info
    assert run("verify", tmp_path / "m.npz", rows).code == 2
    warm = run("train", rows, "--out", tmp_path / "w", "--json", "--start-from", tmp_path / "m.npz", *given).result
    assert warm["status"] == cold["status"] == "converged"
    assert warm["passes"] < cold["passes"]
    assert json.loads((tmp_path / "w" / "result.json").read_text())["relative_gap"] <= 1e-4


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("L2R_L2LOSS_SVC", "L2R_L2LOSS", "solver_type is 'L2R_L2LOSS'"),
        ("label 3 -1", "label 3 3", "different labels"),
        ("label 3 -1", "label 3", "different labels"),
        ("label 3 -1", "label 3 x", "'x'"),
        ("nr_feature 2", "nr_feature 3", "line 4 after w"),
        ("nr_feature 2", "nr_feature 1", "more lines after the weights"),
        ("nr_feature 2", "nr_feature 99999999999", "nr_feature"),
        ("nr_feature 2\n", "", "nr_feature is missing"),
        ("bias 10", "bias nan", "bias"),
        ("bias 10", "bias", "'bias' where one of"),
        ("bias 10", "bias 10\nbias 10", "'bias 10' where one of"),
        ("-2", "inf", "not finite"),
        ("-2", "-2 1", "has 2 numbers; 1 are expected"),
        ("0.5", "half", "line 1 after w has 'half' where a number is expected"),
        ("bias 10", "bias 10 0", "'bias 10 0' where bias and one value"),
        (FILE, OF_ONE_CLASS.replace("rho 0.5\n", ""), "rho is missing"),
        (FILE, OF_ONE_CLASS.replace("rho 0.5", "rho nan"), "rho is not finite"),
        (FILE, OF_ONE_CLASS.replace("rho 0.5", "rho 0.5 1"), "0.5 1"),
        ("\nw\n", "\n", "where one of"),
        ("solver_type", "svm_type c_svc\nsolver_type", "svm_type"),
        ("solver_type", "é", "not text"),
        (FILE, "", "where one of"),
    ],
)
def test_other_files_are_refused(old: str, new: str, told: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "m").write_text(FILE.replace(old, new), encoding="utf-8")
    ran = run("import", tmp_path / "m", "--out", tmp_path / "m.npz")
    assert ran.code == 2
    assert told in ran.err
    assert not (tmp_path / "m.npz").exists()


def test_nothing_is_replaced_unasked(run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "m", tmp_path / "m.npz"
    source.write_text(FILE)
    out.write_text("mine")
    assert run("import", source, "--out", out).code == 2
    assert out.read_text() == "mine"
    assert run("import", source, "--out", source, "--overwrite").code == 2
    assert source.read_text() == FILE
    assert run("import", source, "--out", out, "--overwrite").code == 0
    assert run("import", tmp_path / "none", "--out", tmp_path / "new").code == 2
    with pytest.raises(InputError, match="cannot be read"):
        read_model_file(tmp_path)
