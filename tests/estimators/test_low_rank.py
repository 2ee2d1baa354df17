"""SVC(solver="interior-point"): the linear problem of low-rank features, and back to a sum of kernels."""

from __future__ import annotations

import hashlib
import lzma
import signal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

import streamsvm
from streamsvm import SVC, InteriorPoint
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.estimators import kernel as low_rank
from streamsvm.runs import features, on_the_fly
from streamsvm.solvers.options import APPROXIMATIONS
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.conftest import Problem, make_problem, run_python


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("approximation", ["cholesky", "eigen"])
def test_a_high_rank_is_the_kernel_svm(approximation: str, density: float, tmp_path: Path) -> None:
    """Objective and decisions are those of the exact solver; new rows are told from the rows of the expansion alone."""
    problem = make_problem(1, n=300, density=density, weighted=True)
    new = make_problem(2, n=50, density=density)
    exact = SVC(C=2.0, gamma=0.2, tol=1e-6).fit(problem.X, problem.y, problem.weight)
    low = SVC(C=2.0, gamma=0.2, tol=1e-6, solver=InteriorPoint(approximation=approximation, n_components=280))
    low.fit(problem.X, problem.y, problem.weight)
    assert low.status_ == "converged"
    assert low.objective_ == pytest.approx(exact.objective_, rel=2e-3)
    np.testing.assert_allclose(low.decision_function(new.X), exact.decision_function(new.X), atol=0.05)
    assert low.support_vectors_.shape[1] == low.n_features_in_ == problem.X.shape[1]
    assert low.history_[-1]["passes"] <= 2.2 * low.n_iter_
    low.save(tmp_path / "model.npz")
    loaded = streamsvm.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.decision_function(new.X), low.decision_function(new.X))


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_low_ranks(kernel: str, approximation: str) -> None:
    """Every kernel that has features; the certified objective is that of the sum of kernels."""
    problem = make_problem(3, n=200)
    model = SVC(kernel=kernel, gamma=0.3, coef0=1.0, solver=InteriorPoint(approximation=approximation, n_components=20))
    model.fit(problem.X, problem.y)
    assert model.status_ == "converged"
    assert len(model.support_vectors_) <= (80 if approximation == "eigen" else 20)
    losses = np.maximum(0, 1 - problem.y * model.decision_function(problem.X)).sum()
    assert losses < model.objective_ < 200


def test_datasets_and_scalings(tmp_path: Path) -> None:
    """Rows of a scaled dataset are mapped as they are stored; raw rows are scaled by the model."""
    problem = make_problem(4, n=150)
    shifted = Problem(problem.X * 7 + 3, problem.y)
    dataset = shifted.store(tmp_path / "rows", scale="standard", chunk_bytes=1000)
    model = SVC(gamma=0.2, solver=InteriorPoint(n_components=50)).fit(dataset)
    np.testing.assert_allclose(
        np.sort(model.decision_function(shifted.X)), np.sort(model.decision_function(dataset)), atol=1e-3
    )
    assert model.score(dataset) == pytest.approx(model.score(shifted.X, shifted.y), abs=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solver": InteriorPoint(approximation="magic")}, "choose from cholesky, eigen, nystrom"),
        ({"solver": InteriorPoint(n_components=0)}, "option n_components=0: a whole number of at least 1"),
        ({"kernel": "sigmoid"}, "not positive semidefinite"),
        ({"C": -1.0}, "C is -1.0"),
    ],
)
def test_what_is_refused(changes: dict[str, object], message: str) -> None:
    problem = make_problem(5)
    with pytest.raises(InputError, match=message):
        SVC(**{"solver": "interior-point", **changes}).fit(problem.X, problem.y)  # type: ignore[arg-type]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def test_passes_and_bytes_are_those_of_both_parts(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every read of a chunk is counted where none is kept, and the parts of rows by number; the features pass away."""
    monkeypatch.setattr(opening, "ThreadedEngine", lambda source, threads, *_: ThreadedEngine(source, threads))
    dataset, reads = make_problem(6, n=400).store(tmp_path / "rows", chunk_bytes=2000), []
    tiles, take, taken = Dataset.tiles, Dataset.take, []
    monkeypatch.setattr(Dataset, "take", lambda self, rows: taken.append((self.path, rows)) or take(self, rows))
    monkeypatch.setattr(Dataset, "tiles", lambda self, index: reads.append(self.path) or tiles(self, index))
    model = SVC(gamma=0.2, solver=InteriorPoint(n_components=30)).fit(dataset)
    made = reads.count(dataset.path) // dataset.n_chunks
    assert made == 11
    assert model.n_passes_ == model.result_.passes == made + model.history_[-1]["passes"]
    single = sum(dataset.take_bytes(rows) for path, rows in taken if path == dataset.path)
    assert model.result_.read_bytes - model.history_[-1]["read_bytes"] == made * dataset.nbytes + single
    assert single > 0
    assert model.result_.n_features == 6
    assert model.result_.model_sha256 == hashlib.sha256(model.model_.to_bytes()).hexdigest()
    assert list(temporary.iterdir()) == []


LEFT = {"drive": [], "write_mapped": [".features.zarr.passes.npz"], "train": ["features.zarr"]}


@pytest.mark.parametrize("where", LEFT)
def test_ctrl_c_leaves_no_features(
    where: str, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But with a checkpoint, once they are whole, they stay for the next fit, which has the bits of one fit."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    problem, settings = make_problem(7), {"gamma": 0.2, "solver": InteriorPoint(n_components=30)}
    with monkeypatch.context() as patch:
        patch.setattr({"drive": on_the_fly, "train": low_rank}.get(where, features), where, interrupt)
        for checkpoint in (None, tmp_path / "run"):
            with pytest.raises(KeyboardInterrupt):
                SVC(**settings, checkpoint=checkpoint).fit(problem.X, problem.y)  # type: ignore[arg-type]
    assert list(temporary.iterdir()) == []
    assert [path.name for path in (tmp_path / "run").iterdir()] == LEFT[where]
    whole = SVC(**settings).fit(problem.X, problem.y)  # type: ignore[arg-type]
    resumed = SVC(**settings, checkpoint=tmp_path / "run").fit(problem.X, problem.y)  # type: ignore[arg-type]
    assert resumed.result_.model_sha256 == whole.result_.model_sha256
    assert resumed.n_passes_ == whole.n_passes_


KILLED = """
import os, signal, sys
import numpy as np
from streamsvm.runs import folder as run_folder
from streamsvm import SVC, InteriorPoint
from streamsvm.data.open import open_dataset
from streamsvm.engines.local import ThreadedEngine

run_folder.CHECKPOINT_SECONDS, run_folder.MOST_CHECKPOINT_SHARE = 0.0, float("inf")
path, checkpoint, place, number = sys.argv[1:]
holder, name = (ThreadedEngine, "scan") if place == "pass" else (run_folder.RunFolder, "save")
done, count = getattr(holder, name), iter(range(1000))

def kill(*given, **named):
    if next(count) == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    return done(*given, **named)

setattr(holder, name, kill)
SVC(gamma=0.2, solver=InteriorPoint(n_components=30), tol=1e-6, checkpoint=checkpoint).fit(open_dataset(path))
"""


@pytest.mark.slow("trains several times")
def test_killed_and_fitted_again_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the fourth pass that makes features, in the last one, and after some steps; the map is made once."""
    dataset = make_problem(8, n=500).store(tmp_path / "rows", chunk_bytes=3000)
    settings = {"gamma": 0.2, "solver": InteriorPoint(n_components=30), "tol": 1e-6}
    whole = SVC(**settings).fit(dataset)  # type: ignore[arg-type]
    for place, number in (("pass", 3), ("pass", 10), ("step", 3)):
        run = tmp_path / f"{place}-{number}"
        ended = run_python(KILLED, dataset.path, run, place, number)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert (run / "features.zarr").exists() == (place == "step")
        with monkeypatch.context() as patch:
            if place == "step":
                assert len((run / "history.jsonl").read_text().splitlines()) >= 3
                patch.setattr(features, "find_map", lambda *_, **__: pytest.fail("the map was made again"))
            resumed = SVC(**settings, checkpoint=run).fit(dataset)  # type: ignore[arg-type]
        assert resumed.result_.model_sha256 == whole.result_.model_sha256
        assert (resumed.n_passes_, resumed.n_iter_) == (whole.n_passes_, whole.n_iter_)
        assert not list(run.glob(".*partial"))


def test_a_checkpoint_of_other_rows_or_settings_is_refused(tmp_path: Path) -> None:
    problem, other = make_problem(9), make_problem(10)
    own = InteriorPoint(n_components=20)
    settings: dict[str, Any] = {"gamma": 0.2, "solver": own, "checkpoint": tmp_path / "run"}
    first = SVC(**settings).fit(problem.X, problem.y)
    wider = InteriorPoint(n_components=21)
    for changes, rows in (({"solver": wider}, problem), ({"gamma": 0.3}, problem), ({}, other)):
        with pytest.raises(InputError, match=r"features\.zarr: these features belong to other rows or settings"):
            SVC(**{**settings, **changes}).fit(rows.X, rows.y)
    again = SVC(**settings).fit(problem.X, problem.y)
    assert again.result_.model_sha256 == first.result_.model_sha256


def test_the_solver_of_the_features_has_its_options() -> None:
    problem = make_problem(12, n=300)
    for own, most in (({"reduction": "none"}, 300), ({"reduction": "fixed", "most_rows": 40}, 40)):
        model = SVC(gamma=0.2, solver=InteriorPoint(n_components=20, **own)).fit(problem.X, problem.y)  # type: ignore[arg-type]
        assert model.status_ == "converged"
        assert most - 5 <= model.history_[-1]["chosen_rows"] <= most
    with pytest.raises(InputError, match="option 'n_components' is unknown to interior-point"):
        streamsvm.LinearSVC(solver=InteriorPoint(n_components=20)).fit(problem.X, problem.y)


def test_memory_of_making_features_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(11, n=3000)
    with pytest.raises(MemoryBudgetError, match=r"but the budget is 50\.0 MB: raise .* a lower --rank"):
        SVC(solver="interior-point", memory="50MB").fit(problem.X, problem.y)
    monkeypatch.setattr("streamsvm.solvers.feature_map.setup.ROW_VECTORS", (1 << 33) // (8 * len(problem.X)))
    model = SVC(memory="12GB", solver=InteriorPoint(n_components=10)).fit(problem.X, problem.y)
    assert 1 << 33 < model.result_.projected_memory_bytes < 12 * 10**9


@pytest.mark.data
def test_adult(data_folder: Path, tmp_path: Path) -> None:
    """a1a: as accurate as the exact kernel SVM, to 0.3 point."""
    pairs = []
    for name in ("a1a", "a1a.t"):
        (tmp_path / name).write_bytes(lzma.decompress((data_folder / "adult" / f"{name}.xz").read_bytes()))
        X, y = load_svmlight_file(str(tmp_path / name), n_features=123)
        pairs.append((X, y))
    (X, y), (X_test, y_test) = pairs
    exact = SVC(gamma=1 / 123).fit(X, y).score(X_test, y_test)
    for approximation, rank in (("cholesky", 300), ("eigen", 64)):
        model = SVC(gamma=1 / 123, solver=InteriorPoint(approximation=approximation, n_components=rank)).fit(X, y)
        assert model.score(X_test, y_test) == pytest.approx(exact, abs=0.003)
