"""Models meet datasets with labels of every kind: each command ends well, or names the dataset and the reason."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import streamsvm
from streamsvm import NuSVC, NuSVR, OneClassSVM
from streamsvm.cli.main import main
from streamsvm.models.model import KernelModel, LinearModel, load
from tests.commands import Run, run  # noqa: F401

DATA = {"two": [], "classes": [], "numbers": ["--regression"], "queries": [], "none": [], "sets": ["--multi-label"]}
MODELS = {
    "hinge": ("two", ""),
    "logistic": ("two", "--loss logistic"),
    "kernel": ("two", "--kernel rbf"),
    "nu": ("two", "--task nu-classify --kernel rbf"),
    "rest": ("classes", ""),
    "crammer-singer": ("classes", "--multi-class crammer_singer"),
    "kernel classes": ("classes", "--kernel rbf"),
    "regression": ("numbers", "--task regress"),
    "kernel regression": ("numbers", "--task regress --kernel rbf"),
    "ranking": ("queries", "--task rank"),
    "one class": ("none", "--task one-class --kernel rbf"),
    "label sets": ("sets", "--task multi-label"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of each kind of labels, of the same 60 rows."""
    folder, random = tmp_path_factory.mktemp("labels"), np.random.default_rng(5)
    X = random.normal(size=(60, 3))
    labels = {"two": X[:, 0] > 0, "classes": np.digitize(X[:, 0], (-1, 0, 1)), "numbers": X[:, 0], "none": X[:, 0] * 0}
    for name, y in labels.items():
        dump_svmlight_file(X, y, str(folder / f"{name}.svm"), zero_based=False)
    ranks, ids = np.digitize(X[:, 0], (-1, 0)), np.repeat(np.arange(6), 10)
    dump_svmlight_file(X, ranks, str(folder / "queries.svm"), zero_based=False, query_id=ids)
    sets = (",".join(str(j) for j in range(3) if row[j] > 0) for row in X)
    rows = (" ".join(f"{j + 1}:{value}" for j, value in enumerate(row)) for row in X)
    (folder / "sets.svm").write_text("".join(f"{each} {row}\n" for each, row in zip(sets, rows, strict=True)))
    np.save(folder / "none.npy", X)
    for name, options in DATA.items():
        source = folder / ("none.npy" if name == "none" else f"{name}.svm")
        assert main(["ingest", str(source), str(folder / f"{name}.zarr"), *options]) == 0
    return folder


def test_one_class_models_have_one_default_kernel(run: Run, folder: Path) -> None:
    kernel = ("--task", "one-class", "--nu", "0.1", "--out", folder / "default")
    assert run("train", folder / "none.zarr", *kernel).code == 0
    ours, theirs = load(folder / "default"), OneClassSVM(nu=0.1).fit(folder / "none.zarr").model_
    assert isinstance(ours, KernelModel)
    assert ours.kernel == theirs.kernel
    np.testing.assert_array_equal(ours.dual_coef, theirs.dual_coef)
    linear = ("--task", "one-class", "--solver", "cutting-plane", "--out", folder / "linear")
    assert run("train", folder / "none.zarr", *linear).code in (0, 3)
    assert isinstance(load(folder / "linear"), LinearModel)


@pytest.mark.parametrize(
    ("task", "rows", "estimator"), [("nu-classify", "two", NuSVC()), ("nu-regress", "numbers", NuSVR())]
)
def test_nu_models_have_the_default_kernel_of_the_classes(
    run: Run, folder: Path, task: str, rows: str, estimator: NuSVC | NuSVR
) -> None:
    assert run("train", folder / f"{rows}.zarr", "--task", task, "--out", folder / task).code == 0
    ours, theirs = load(folder / task), estimator.fit(folder / f"{rows}.zarr").model_
    assert isinstance(ours, KernelModel)
    assert ours.kernel == theirs.kernel
    np.testing.assert_array_equal(ours.dual_coef, theirs.dual_coef)


def test_the_kernel_of_degree_0_is_a_constant(run: Run, folder: Path) -> None:
    assert (
        run("train", folder / "two.zarr", "--kernel", "poly", "--degree", "0", "--out", folder / "constant").code == 0
    )
    scores = streamsvm.load(folder / "constant").decision_function(np.eye(3))
    np.testing.assert_array_equal(scores, scores[[0, 0, 0]])


@pytest.mark.parametrize("name", MODELS)
def test_no_model_meets_labels_that_end_it_with_a_traceback(run: Run, folder: Path, name: str) -> None:
    own, options = MODELS[name]
    assert run("train", folder / f"{own}.zarr", "--out", folder / name, *options.split()).code == 0
    for data in DATA:
        rows = folder / f"{data}.zarr"
        assert run("predict", folder / name, rows, "--out", folder / "p.csv").code == 0
        verified, evaluated = run("verify", folder / name, rows), run("evaluate", folder / name, rows)
        started = run("train", rows, "--out", folder / "again", "--overwrite", "--start-from", folder / name)
        for ran in (verified, evaluated):
            assert ran.code != 2 or f"{data}.zarr: " in ran.err
        assert started.code in (0, 2, 3)
        assert (verified.code == 0) == (data == own or name == "one class")
