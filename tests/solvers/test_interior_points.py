"""The interior-point method through `train`, the estimator and the command: bits, memory, options."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_array
from sklearn.svm import SVC as LIBSVM

from streamsvm import InteriorPoint, LinearSVC
from streamsvm.cli.main import main
from streamsvm.data.rows.source import plan_groups
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.conftest import make_problem, run_python

OPTIONS = TrainOptions(solver="interior-point", C=2.0, tol=1e-8, threads=1)
TRAIN = """
import sys, streamsvm
from streamsvm.options import TrainOptions; from streamsvm.runs.train import train
options = TrainOptions(solver="interior-point", C=2.0, tol=1e-8, threads=1)
result = train(streamsvm.open(sys.argv[1]), options)
print(result.projected_memory_bytes, result.peak_memory_bytes)
"""
REDUCTIONS = ({}, {"reduction": "fixed", "most_rows": "150", "rule": "distance"})


@pytest.fixture(scope="module", params=["dense", "sparse"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("rows")
    if request.param == "dense":
        return make_problem(5, n=420, weighted=True).store(folder / "rows", chunk_bytes=1500)
    return make_problem(6, n=420, d=20, density=0.3).store(folder / "rows", layout="sparse", chunk_bytes=1500)


def bits(result: Result) -> tuple[str, list[list[float]]]:
    free = ("seconds", "pass_seconds", "solver_seconds", "read_bytes", "memory_bytes")
    return result.model_sha256, [[v for name, v in line.items() if name not in free] for line in result.history]


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("options", REDUCTIONS)
def test_same_bits_on_any_engine(dataset: Dataset, client: Client, options: dict[str, str]) -> None:
    assert len(plan_groups(dataset)) > 3
    expected = train(dataset, TrainOptions(**{**vars(OPTIONS), "options": options}))
    assert expected.status == "converged"
    threads = train(dataset, TrainOptions(**{**vars(OPTIONS), "options": options, "threads": 3}))
    assert bits(threads) == bits(expected)
    assert bits(train(dataset, TrainOptions(**{**vars(OPTIONS), "options": options}), client=client)) == bits(expected)


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.usefixtures("many_groups")
def test_resumed_after_any_step(dataset: Dataset, tmp_path: Path) -> None:
    """A step makes two or three passes; the limit is looked at between steps."""
    expected = train(dataset, OPTIONS)
    folder = tmp_path / "run"
    for passes in range(1, expected.passes, 3):
        stopped = train(dataset, TrainOptions(**{**vars(OPTIONS), "max_passes": passes}), folder, resume=True)
        assert stopped.status == "pass_limit"
        assert stopped.passes < passes + 3
    resumed = train(dataset, OPTIONS, folder, resume=True)
    assert bits(resumed) == bits(expected)
    with pytest.raises(InputError, match="other settings: reduction"):
        train(dataset, TrainOptions(**{**vars(OPTIONS), "options": {"rule": "distance"}}), folder, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"kernel": "rbf"},
            "kernel rbf: interior-point supports only the linear kernel; map the rows.*, or use the solver smo",
        ),
        ({"resident_rows": 10}, "resident_rows has no effect with interior-point"),
        ({"options": {"epsilon": "1"}}, "'epsilon' is unknown to interior-point"),
        ({"options": {"reduction": "some"}}, "choose from adaptive-balanced, adaptive, fixed, none"),
        ({"options": {"rule": "best"}}, "rule 'best': choose from omega, distance"),
        ({"options": {"most_rows": "0"}}, "a whole number of at least 1"),
        ({"options": {"theta": "-1"}}, "option theta=-1: a positive number"),
        ({"options": {"beta": "0"}}, "option beta=0: a positive number"),
    ],
)
def test_what_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(make_problem(1).in_memory(), TrainOptions(**{**vars(OPTIONS), **changes}))  # type: ignore[arg-type]


def test_too_many_features_name_another_solver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with status 2 and nothing made."""
    X = csr_array(([1.0, 1.0], ([0, 1], [0, 5000])), shape=(2, 5001), dtype=np.float32)
    source = ArrayDataset(X, np.array([0, 1], np.int32), np.array([-1, 1]))
    with pytest.raises(InputError, match=r"5001 features.* at most 5000; use the solver cutting-plane"):
        train(source, OPTIONS)
    rows = tmp_path / "rows.svm"
    rows.write_text("1 5001:1\n-1 1:1\n")
    assert main(["ingest", str(rows), str(tmp_path / "rows.zarr")]) == 0
    status = main(["train", str(tmp_path / "rows.zarr"), "--solver", "interior-point", "--out", str(tmp_path / "run")])
    assert status == 2
    assert "use the solver cutting-plane" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow("measures memory")
def test_matrices_are_projected(tmp_path: Path) -> None:
    """1,500 features: 18 MB a matrix; a budget that does not hold them is refused before anything runs."""
    problem = make_problem(2, n=50, d=1500, density=0.01)
    dataset = problem.store(tmp_path / "rows")
    with pytest.raises(InputError, match="the budget is"):
        train(dataset, TrainOptions(**{**vars(OPTIONS), "memory_bytes": 250_000_000}))
    done = run_python(TRAIN, dataset.path)  # this process may have grown
    projected, peak = map(int, done.stdout.split())
    assert projected > 5 * 8 * 1500**2
    assert peak <= projected


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_the_estimator_agrees_with_libsvm(density: float) -> None:
    problem = make_problem(3, n=250, d=8, density=density, weighted=True)
    model = LinearSVC(C=0.7, solver="interior-point", tol=1e-10, class_weight={1: 2.0}).fit(
        problem.X, problem.y, problem.weight
    )
    kept = problem.weight > 0
    reference = LIBSVM(C=0.7, kernel="linear", tol=1e-8, class_weight={1: 2.0})
    reference.fit(problem.dense()[kept], problem.y[kept], problem.weight[kept])
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4)
    assert model.status_ == "converged"
    assert model.gap_ <= 1e-10
    assert model.n_passes_ == 2 * model.n_iter_ - 1 or model.n_passes_ <= 2.2 * model.n_iter_


def test_the_bias_is_free() -> None:
    """Rows far from the origin: moving all of them changes the bias alone. A penalised bias would change w."""
    problem = make_problem(4, n=200, d=3)
    near, far = (
        LinearSVC(solver="interior-point", tol=1e-9).fit(problem.X + np.float32(shift), problem.y) for shift in (0, 8)
    )
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-3)
    assert far.intercept_[0] == pytest.approx(near.intercept_[0] - 8 * near.coef_.sum(), abs=1e-2)
    with pytest.raises(InputError, match="'intercept_scaling' is unknown to interior-point"):
        LinearSVC(solver="interior-point", intercept_scaling=2.0).fit(problem.X, problem.y)


def test_options_of_the_estimator() -> None:
    problem = make_problem(5, n=300)
    estimator = LinearSVC(solver=InteriorPoint(reduction="fixed", rule="distance", most_rows=50)).fit(
        problem.X, problem.y
    )
    same = TrainOptions(solver="interior-point", options={"reduction": "fixed", "rule": "distance", "most_rows": "50"})
    assert estimator.result_.model_sha256 == train(problem.in_memory(), same).model_sha256


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_problem(6).store(tmp_path / "rows")
    arguments = ["--solver", "interior-point", "--tol", "1e-8", "--option", "rule=distance", "--json"]
    assert main(["train", str(data.path), "--out", str(tmp_path / "run"), *arguments]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["solver"], told["status"]) == ("interior-point", "converged")
    assert 0 <= told["relative_gap"] <= 1e-8
    line = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    assert {"mu", "residual", "chosen_rows", "step_length", "jitter"} <= set(line)


@pytest.mark.data
def test_adult(a9a: Dataset) -> None:
    """Iterations depend little on C, passes are two an iteration, nearly; few rows are used at the end."""
    results = [train(a9a, TrainOptions(solver="interior-point", C=C, tol=1e-8)) for C in (0.01, 1.0, 100.0)]
    steps = [result.steps for result in results]
    assert max(steps) <= 1.5 * min(steps)
    for result in results:
        assert result.status == "converged"
        assert result.passes <= 2.2 * result.steps
        assert result.history[-1]["chosen_rows"] < 0.1 * a9a.n_rows
