"""Model files of LIBSVM are read with its scores, may be starting points, and may be damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm import SVC, SVR, NuSVR, OneClassSVM
from streamsvm.models.exports.export import export
from streamsvm.models.exports.libsvm import read_model_file
from streamsvm.numeric.labels import list_pairs
from streamsvm.system.errors import InputError
from tests.commands import Run, run
from tests.models.exports.trained import Task, as_others_take, compare, score, train

__all__ = ["run"]

FILE = (
    "svm_type c_svc\nkernel_type linear\nnr_class 2\ntotal_sv 2\nrho 0.5\nlabel 3 -1\nnr_sv 1 1\nSV\n"
    "2 1:0.5 3:-1 \n-1 1:1 2:4 \n"
)
OF_THREE = (
    "svm_type c_svc\nkernel_type linear\nnr_class 3\ntotal_sv 3\nrho 0.5 1 2\nlabel 3 -1 2\nnr_sv 1 1 1\nSV\n"
    "1 1 1:1\n-1 1 2:1\n-1 -1 3:1\n"
)


@pytest.mark.parametrize("kind", ["0", "1"])
@pytest.mark.parametrize("sparse", [False, True])
def test_scores_are_those_of_libsvm(kind: str, sparse: bool, tmp_path: Path) -> None:
    libsvm = pytest.importorskip("libsvm.svmutil")
    task = Task(sparse=sparse)
    X, y, _ = task.make()
    other = libsvm.svm_train(y.tolist(), X.astype(np.float64), f"-s {kind} -t 0 -q")
    libsvm.svm_save_model(str(tmp_path / "model.txt"), other)
    other = libsvm.svm_load_model(str(tmp_path / "model.txt"))  # the file has rounded numbers
    model = read_model_file(tmp_path / "model.txt")
    _, _, values = libsvm.svm_predict([], as_others_take(task), other, "-q")
    sign = 1 if other.get_labels()[0] == max(other.get_labels()) else -1
    compare(sign * np.array(values), score(model, task), task)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid"])
def test_pairs_of_classes_in_any_order(kernel: str, tmp_path: Path) -> None:
    """The classes are sorted, and pairs whose classes change places change the signs of their scores."""
    X, y, _ = Task(4).make()
    fitted = SVC(kernel=kernel, gamma=0.1, coef0=0.5, degree=2, tol=1e-6, decision_function_shape="ovo").fit(X, y)
    export(fitted.model_, tmp_path / "m", "libsvm")
    text, labels = (tmp_path / "m").read_text(), [7, -2, 9, 4]
    (tmp_path / "m").write_text(text.replace("label " + " ".join(map(str, fitted.classes_.tolist())), "label 7 -2 9 4"))
    read_model_file(tmp_path / "m").save(tmp_path / "m.npz")
    again = streamsvm.load(tmp_path / "m.npz").set_params(decision_function_shape="ovo")
    assert (type(again), again.kernel, again.classes_.tolist(), again.gap_) == (SVC, kernel, sorted(labels), None)
    renamed = np.array(labels)[np.searchsorted(fitted.classes_, fitted.predict(X))]
    np.testing.assert_array_equal(again.predict(X), renamed)
    places, theirs = {pair: k for k, pair in enumerate(list_pairs(4))}, fitted.decision_function(X)
    for k, (first, second) in enumerate(list_pairs(4)):
        p, q = labels.index(sorted(labels)[first]), labels.index(sorted(labels)[second])
        sign = 1.0 if p < q else -1.0
        found = again.decision_function(X)[:, k]
        np.testing.assert_allclose(found, sign * theirs[:, places[min(p, q), max(p, q)]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fitted", [SVC(gamma=0.1), SVR(gamma=0.1), NuSVR(), OneClassSVM(kernel="poly")], ids=str)
def test_one_score_with_a_kernel(fitted: Any, tmp_path: Path) -> None:
    X, y, _ = Task().make()
    fitted.fit(X, y)
    export(fitted.model_, tmp_path / "m", "libsvm")
    model = read_model_file(tmp_path / "m")
    model.save(tmp_path / "m.npz")
    kind = SVR if isinstance(fitted, NuSVR) else type(fitted)  # nothing tells them apart in a fitted model
    assert type(streamsvm.load(tmp_path / "m.npz")) is kind
    np.testing.assert_allclose(streamsvm.load(tmp_path / "m.npz").predict(X), fitted.predict(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("labels", "sign"), [("3 -1", 1.0), ("-1 3", -1.0)])
def test_a_file_by_hand(labels: str, sign: float, tmp_path: Path) -> None:
    (tmp_path / "m").write_text(FILE.replace("3 -1", labels, 1))
    model = read_model_file(tmp_path / "m")
    assert (model.classes.tolist(), model.intercept, model.info["loss"]) == ([-1, 3], sign * -0.5, "hinge")
    assert model.info["solver"] == "libsvm c_svc"
    np.testing.assert_array_equal(model.coef, sign * np.array([0.0, -4.0, -2.0]))


def test_a_training_starts_from_it(run: Run, tmp_path: Path) -> None:
    libsvm = pytest.importorskip("libsvm.svmutil")
    task = Task()
    X, y, _ = task.make()
    libsvm.svm_save_model(str(tmp_path / "m"), libsvm.svm_train(y.tolist(), X.astype(np.float64), "-t 0 -q -e 1e-6"))
    ran = run("import", tmp_path / "m", "--out", tmp_path / "start.npz")
    assert ran.code == 0, ran.err
    assert "a linear model of 2 classes and 6 features, without a certificate" in ran.out
    alone = json.loads((train(task, tmp_path) / "result.json").read_text())
    options = ("--start-from", tmp_path / "start.npz", "--out", tmp_path / "from-start", "--json")
    started = run("train", tmp_path / "rows.zarr", *options).result
    assert started["status"] == "converged"
    assert started["objective"] == pytest.approx(alone["objective"], rel=2e-3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("linear", "rbf", "gamma is missing"),
        ("linear", "rbf\ngamma -1", "gamma is -1.0"),
        ("linear", "precomputed", "a precomputed kernel has no support vectors that another program could use"),
        ("c_svc", "svc", "it is svc with the kernel linear; c_svc, nu_svc"),
        ("nr_class 2", "nr_class 3", "label does not list nr_class different labels"),
        (FILE, OF_THREE.replace("nr_sv 1 1 1", "nr_sv 1 1 2"), "nr_sv does not give"),
        (FILE, OF_THREE.replace("1 1 1:1", "1 1:1"), "line 1 after SV has '1:1' where a number"),
        ("rho 0.5", "rho 0.5 1", "rho does not have one number"),
        ("label 3 -1", "label 3 3", "label does not list nr_class different labels"),
        ("label 3 -1\n", "", "label is missing"),
        ("rho 0.5\n", "", "rho is missing"),
        ("rho 0.5", "rho inf", "a number is not finite"),
        ("1:0.5", "0:0.5", "line 1 after SV has '0:0.5'"),
        ("2:4", "2", "line 2 after SV has '2'"),
        ("1:0.5", "1:x", "line 1 after SV has '1:x'"),
        ("-1 1:1 2:4 \n", "", "total_sv is 2, but the file has 1 support vector"),
        ("linear", "linear rbf", "'kernel_type linear rbf' where kernel_type and one value"),
        ("SV\n", "", "where one of svm_type"),
        ("2 1:0.5 3:-1 \n-1 1:1 2:4 \n", "", "there are no support vectors"),
    ],
)
def test_damaged_files_are_refused(run: Run, old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_model_file(tmp_path / "m")
    ran = run("import", tmp_path / "m", "--out", tmp_path / "start.npz")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert {path.name for path in tmp_path.iterdir()} == {"m"}
