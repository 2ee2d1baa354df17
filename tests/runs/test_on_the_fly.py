"""Features that are made in each pass: the model of stored features, the same bits everywhere, and when resumed."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.kernel_approximation import Nystroem
from sklearn.svm import LinearSVC as Liblinear

from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import engine
from streamsvm.engines.local import ThreadedEngine
from streamsvm.kernels.feature_maps import KernelMap
from streamsvm.models.model import LinearModel, load
from streamsvm.numeric.rows import CsrRows, to_dense
from streamsvm.options import TrainOptions
from streamsvm.plan import predict
from streamsvm.plan.predict import plan_rows
from streamsvm.runs.features import make_features
from streamsvm.runs.on_the_fly import open_rows
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.solvers.options import MAPS, FeatureOptions
from streamsvm.system.errors import InputError, MemoryBudgetError
from streamsvm.verify.verify import verify
from tests.commands import Run, run  # noqa: F401
from tests.conftest import Problem, make_problem, run_python
from tests.kernel_problems import KINDS, ask_for

N = 400
PROBLEMS = {
    "dense": make_problem(11, n=N, d=6, weighted=True),
    "sparse": make_problem(12, n=N, d=9, density=0.4),
}
LINE = {"acceleration": "line-search"}  # many passes, each with its sums


def store(problem: Problem, folder: Path, **options: Any) -> Dataset:
    return problem.store(folder / "rows.zarr", chunk_bytes=2000, **options)


def ask(**others: Any) -> TrainOptions:
    return ask_for(KINDS["rbf"], **others)


def train_on_features(
    source: Dataset, features: FeatureOptions, options: TrainOptions, client: Client | None = None
) -> Result:
    with open_rows(source, features, options, client=client) as rows:
        return train(rows.source, rows.options, client=client, **rows.arguments)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", MAPS)
def test_the_model_is_that_of_stored_features(name: str, problem: str, tmp_path: Path) -> None:
    """Both are certified, for the same problem; the scaling of the dataset is within the map."""
    source = store(PROBLEMS[problem], tmp_path, scale="maxabs")
    features, options = FeatureOptions(name, 25, seed=2), ask(tol=1e-5, threads=1)
    made = make_features(source, tmp_path / "features.zarr", features, options)
    stored = train(made.dataset, replace(options, kernel="linear"))
    found = train_on_features(source, features, options)
    assert found.status == stored.status == "converged"
    assert found.objective == pytest.approx(stored.objective, rel=2e-5)
    assert found.lower_bound is not None
    assert found.lower_bound <= stored.objective * (1 + 1e-9)
    assert found.model.features is not None
    assert made.dataset.features is not None
    assert found.model.features.sha256 == made.dataset.features.sha256
    assert found.passes == made.dataset.meta["passes"] - 1 + stored.passes
    X = PROBLEMS[problem].X  # raw rows, which both models scale and map
    rows = X if isinstance(X, np.ndarray) else CsrRows(X.data, X.indices, X.indptr.astype(np.int64), X.shape[1])
    np.testing.assert_allclose(found.model.decide(rows), stored.model.decide(rows), atol=0.02)


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("settings", [{}, {"options": LINE}, {"loss": "logistic"}])
def test_the_same_bits_on_threads_and_workers(
    settings: dict[str, Any], problem: str, client: Client, tmp_path: Path
) -> None:
    """Of map and model. The rows that the driver holds, or takes by number, are those that workers map."""
    source, found = store(PROBLEMS[problem], tmp_path), []
    for threads, workers in ((1, None), (2, None), (4, None), (None, client)):
        options = ask(threads=threads, resident_rows=None if settings.get("options") else 150, **settings)
        result = train_on_features(source, FeatureOptions("cholesky", 30, seed=1), options, client=workers)
        assert result.status == "converged"
        found.append(result.model_sha256)
    assert set(found) == {found[0]}


@pytest.mark.usefixtures("many_groups")
def test_the_map_travels_once(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not with each task: the source is the result of one task in each of the two phases."""
    sent: list[Any] = []
    submit, get = client.submit, client.get

    def note(function: Any, *arguments: Any, **others: Any) -> Any:
        sent.append((function, arguments))
        return submit(function, *arguments, **others)

    def note_tasks(graph: Any, *others: Any, **named: Any) -> Any:
        sent.extend((function, arguments) for function, *arguments in graph.values())
        return get(graph, *others, **named)

    monkeypatch.setattr(client, "submit", note)
    monkeypatch.setattr(client, "get", note_tasks)
    source = store(PROBLEMS["dense"], tmp_path)
    result = train_on_features(source, FeatureOptions("nystrom", 30), ask(options=LINE), client=client)
    assert result.passes > 3
    held = [arguments[0] for function, arguments in sent if function is engine._hold]
    assert len([each for each in held if isinstance(each, tuple) and hasattr(each[0], "tiles")]) == 2
    others = [each for function, given in sent if function is not engine._hold for each in given]
    assert len(others) > result.passes
    assert not any(hasattr(each, "tiles") for each in others)


def test_resumed_while_the_map_is_looked_for(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What finished passes have found is in the folder of the run; the model has the bits of one never stopped."""
    source, passes, scan = store(PROBLEMS["dense"], tmp_path), list[int](), ThreadedEngine.scan

    def lose(self: ThreadedEngine, request: Any) -> Any:
        passes.append(1)
        if len(passes) == 4:
            raise ConnectionError("the connection is lost")
        return scan(self, request)

    command = ("train", source.path, "--map", "cholesky", "--rank", 30, "--gamma", 0.3, "--json", "--out")
    whole = run(*command, tmp_path / "whole").result
    with monkeypatch.context() as patch:
        patch.setattr(ThreadedEngine, "scan", lose)
        assert run(*command, tmp_path / "run").code == 1
    assert (tmp_path / "run" / "map.npz").exists()
    assert not (tmp_path / "run" / "model.npz").exists()
    made = list[int]()
    monkeypatch.setattr(ThreadedEngine, "scan", lambda self, request: made.append(1) or scan(self, request))  # type: ignore[func-returns-value]
    resumed = run(*command, tmp_path / "run", "--resume").result
    assert resumed["model_sha256"] == whole["model_sha256"]
    assert resumed["passes"] == whole["passes"] == len(made) + 3


def test_resumed_while_the_model_is_trained(run: Run, tmp_path: Path) -> None:
    """The map is made from what was kept, without a pass; another rank is refused."""
    source = store(PROBLEMS["sparse"], tmp_path)
    command: tuple[Any, ...] = ("train", source.path, "--map", "cholesky", "--gamma", 0.3, "--json")
    command += ("--option", "acceleration=line-search", "--tol", "1e-4", "--out")
    whole = run(*command, tmp_path / "whole", "--rank", 30).result
    stopped = run(*command, tmp_path / "run", "--rank", 30, "--max-passes", whole["passes"] - 3)
    assert (stopped.code, stopped.result["status"]) == (3, "pass_limit")
    ran = run(*command, tmp_path / "run", "--rank", 31, "--resume")
    assert (ran.code, "rank was 30, now 31" in ran.err) == (2, True)
    resumed = run(*command, tmp_path / "run", "--rank", 30, "--resume").result
    assert resumed["model_sha256"] == whole["model_sha256"]
    assert (resumed["passes"], resumed["steps"]) == (whole["passes"], whole["steps"])
    replaced = run(*command, tmp_path / "run", "--rank", 31, "--overwrite").result
    assert replaced["model_sha256"] != whole["model_sha256"]


def test_liblinear_on_the_features_of_scikit_learn() -> None:
    """Nystroem on the same rows makes features of the same products, whose optimum is the same."""
    problem = PROBLEMS["dense"]
    source, C = problem.in_memory(), 0.7
    result = train_on_features(source, FeatureOptions("nystrom", 40, seed=3), ask(C=C, tol=1e-4))
    model = result.model
    assert isinstance(model, LinearModel)
    assert model.features is not None
    found = model.features.map
    assert isinstance(found, KernelMap)
    Z = found.rows if isinstance(found.rows, np.ndarray) else to_dense(found.rows)
    nystroem = Nystroem(gamma=KINDS["rbf"].gamma, n_components=len(Z), random_state=0).fit(Z)
    X, costs = nystroem.transform(problem.dense()), problem.costs(C)
    peer = Liblinear(C=1.0, loss="hinge", tol=1e-8, max_iter=1_000_000).fit(X, problem.y, sample_weight=costs)
    w, b = peer.coef_[0], peer.intercept_[0]
    optimum = 0.5 * (w @ w + b * b) + costs @ np.maximum(0.0, 1.0 - problem.y * (X @ w + b))
    assert result.lower_bound is not None
    assert result.lower_bound <= optimum * (1 + 1e-5)
    assert result.objective == pytest.approx(optimum, rel=2e-4)
    np.testing.assert_allclose(model.decide(np.asarray(problem.X)), X @ w + b, atol=0.05)


def test_verified_with_raw_rows(run: Run, tmp_path: Path) -> None:
    """P, and D from the dual point; rows that are scaled differently are refused."""
    source = store(PROBLEMS["dense"], tmp_path, scale="standard")
    assert (
        run("train", source.path, "--map", "nystrom", "--rank", 30, "--keep-dual", "--out", tmp_path / "run").code == 0
    )
    told = run("verify", tmp_path / "run", source.path, "--dual", "--json")
    assert (told.code, told.result["objective_agrees"], told.result["lower_bound_agrees"]) == (0, True, True)
    model = load(tmp_path / "run")
    (tmp_path / "raw").mkdir()
    with pytest.raises(InputError, match="scaled differently"):
        verify(model, store(PROBLEMS["dense"], tmp_path / "raw"))
    (tmp_path / "wide").mkdir()
    with pytest.raises(InputError, match="the rows have 7 features, but the model was trained on 6 features"):
        verify(model, store(make_problem(1, d=7), tmp_path / "wide"))


def test_a_grid_shares_the_map(tmp_path: Path) -> None:
    """Folds and costs share every read, and the map is found once."""
    source = store(PROBLEMS["dense"], tmp_path)
    with open_rows(source, FeatureOptions("nystrom", 30), ask(threads=1)) as rows:
        tuning = tune(rows.source, rows.options, [0.01, 1.0], folds=3, out=tmp_path / "grid")
    assert len(tuning.trials) == 2
    assert tuning.result.model.features is not None
    assert tuning.best.mean > 0.7


def test_a_grid_from_the_command_line(run: Run, tmp_path: Path) -> None:
    """The map has the gamma that is asked for, and the sigmoids are fitted to scores of mapped rows."""
    source = store(PROBLEMS["dense"], tmp_path)
    command = ("tune", source.path, "--map", "nystrom", "--rank", 20, "--C", "0.1,1", "--folds", 2, "--out")
    more = "--gamma", 0.07, "--probabilities", "sigmoid"
    assert run(*command, tmp_path / "grid", *more).code == 0
    model = load(tmp_path / "grid")
    assert model.features is not None
    assert isinstance(model.features.map, KernelMap)
    assert model.features.map.kernel.gamma == 0.07
    assert run("evaluate", tmp_path / "grid", source.path, "--json").result["brier_score"] < 0.25
    ran = run(*command, tmp_path / "other", "--gamma", "0.1,0.2")
    assert (ran.code, "all fits share one map" in ran.err) == (2, True)


@pytest.mark.parametrize("lost", [4, 14])
def test_a_grid_is_resumed_with_its_map(lost: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost while the map is looked for, or while the fits go on: no pass that looks for it is made again."""
    source, passes, scan = store(PROBLEMS["dense"], tmp_path), list[int](), ThreadedEngine.scan

    def lose(self: ThreadedEngine, request: Any) -> Any:
        passes.append(1)
        if len(passes) == lost:
            raise ConnectionError("the connection is lost")
        return scan(self, request)

    command: tuple[Any, ...] = ("tune", source.path, "--map", "cholesky", "--rank", 30, "--gamma", 0.3, "--json")
    command += ("--option", "acceleration=line-search", "--C", "0.1,1", "--folds", 2, "--out")
    made = list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(ThreadedEngine, "scan", lambda self, request: made.append(1) or scan(self, request))  # type: ignore[func-returns-value]
        whole = run(*command, tmp_path / "whole").result
    with monkeypatch.context() as patch:
        patch.setattr(ThreadedEngine, "scan", lose)
        assert run(*command, tmp_path / "run").code == 1
        assert run(*command, tmp_path / "run", "--resume", "--rank", 29).code == 2
        assert (tmp_path / "run" / "grid" / "map.npz").exists()
        before = len(passes)
        resumed = run(*command, tmp_path / "run", "--resume").result
    assert resumed["model_sha256"] == whole["model_sha256"]
    assert len(passes) - before == len(made) - min(lost - 1, 10)  # ten passes find the map
    assert run(*command, tmp_path / "run").code == 2
    assert run(*command, tmp_path / "run", "--overwrite").result["model_sha256"] == whole["model_sha256"]


BAD = {
    "a kernel method": (["--map", "nystrom", "--solver", "smo"], "solver smo: evaluates kernels itself"),
    "a large rank": (["--map", "eigen", "--rank", N + 1], f"rank (n_components in Python) is {N + 1}; "),
    "no map": (["--rank", 5], "--rank has no effect without --map; remove it, or choose a --map"),
    "a rank of products": (["--map", "polynomial", "--rank", 5], "--rank has no effect with --map polynomial"),
    "a kernel of products": (["--map", "polynomial", "--gamma", 1], "--gamma has no effect with --map polynomial"),
    "degree": (["--map", "nystrom", "--degree", 2], "--degree has no effect with --kernel rbf"),
    "no gamma": (["--map", "nystrom", "--gamma", -1], "gamma is -1.0; it must be at least 0"),
    "sigmoid": (["--map", "nystrom", "--kernel", "sigmoid"], "the kernel sigmoid has no features"),
    "cost": (["--map", "nystrom", "--C", -1], "C is -1.0; it must be positive"),
    "memory": (["--map", "nystrom", "--memory", "20MB"], "of memory is needed"),
    "option": (["--map", "nystrom", "--option", "foo=1"], "option 'foo' is unknown"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_done_is_refused_before_rows_are_read(
    case: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = store(PROBLEMS["dense"], tmp_path)
    for name in ("tiles", "read", "take"):
        monkeypatch.setattr(Dataset, name, lambda *_: pytest.fail("the rows were touched"))
    arguments, reason = BAD[case]
    ran = run("train", source.path, "--out", tmp_path / "run", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert reason in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.zarr"]


def test_features_are_not_mapped_again(tmp_path: Path) -> None:
    source = store(PROBLEMS["dense"], tmp_path)
    made = make_features(source, tmp_path / "f.zarr", FeatureOptions("nystrom", 20), ask()).dataset
    with pytest.raises(InputError, match="these rows are already features"):
        train_on_features(made, FeatureOptions("nystrom", 10), ask())
    with pytest.raises(MemoryBudgetError):
        train_on_features(source, FeatureOptions("nystrom", 10), ask(memory_bytes=1))


@pytest.mark.parametrize("name", MAPS)
def test_a_plan_tells_what_mapping_costs(name: str, run: Run, tmp_path: Path) -> None:
    """And the passes that find the map, without making them."""
    source = store(PROBLEMS["sparse"], tmp_path)
    rank = () if name == "polynomial" else ("--rank", 30)
    planned = run("train", source.path, "--map", name, *rank, "--plan", "--json").result
    counted = {"polynomial": 1, "nystrom": 1, "cholesky": 11, "eigen": 12}[name]  # those of kernels measure gamma
    assert planned["passes"] == counted + 1
    assert planned["passes_from"].endswith("find the map")
    assert "Mapping a row takes" in planned["note"]
    assert planned["note"].endswith("mapping in each pass is faster.")  # all rows stay in memory
    assert plan_rows(source, None, TrainOptions()).passes.about == 1


@pytest.mark.parametrize(("seconds", "pin_bytes", "verdict"), [(1e-4, 0, "would"), (1e-4, 1e12, "is"), (1e-8, 0, "is")])
def test_the_plan_says_which_is_faster(seconds: float, pin_bytes: float, verdict: str) -> None:
    """A million rows of 100 features, read ten times; what stays in memory is mapped once."""
    source = SimpleNamespace(n_rows=1_000_000, n_features=100, nbytes=424_000_000)
    options = TrainOptions(threads=2)
    plan: Any = SimpleNamespace(
        source=source, options=options, memory=SimpleNamespace(pin_bytes=pin_bytes), count_passes=lambda: (8, 10, 12)
    )
    said = predict._compare(plan, seconds)
    assert said.endswith("this would be faster." if verdict == "would" else "mapping in each pass is faster.")
    told = "takes 450 s" in said or "takes 7.5 min" in said  # 9 passes of 50 s on two threads
    assert told == (verdict == "would")


PEAK = """
import re, sys
from streamsvm.data.open import open_dataset
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import parse_bytes, peak_bytes, reset_peak
from streamsvm.solvers.set_up import FEATURE_MAPS, compile_all
from streamsvm.options import TrainOptions
from streamsvm.solvers.options import FeatureOptions
from streamsvm.runs.on_the_fly import open_rows
from streamsvm.runs.train import train

path, acceleration = sys.argv[1:]
source, features = open_dataset(path), FeatureOptions("nystrom", 400)
compile_all([FEATURE_MAPS, "cutting-plane", "one-read"])
options = dict(kernel="rbf", gamma=0.01, threads=2, options={"acceleration": acceleration}, max_passes=3)
budget, result = 1, None
while result is None:  # what the map needs, and then what the training needs
    try:
        reset_peak()
        with open_rows(source, features, TrainOptions(memory_bytes=budget, **options)) as rows:
            result = train(rows.source, rows.options, **rows.arguments)
    except MemoryBudgetError as refusal:
        budget = parse_bytes(re.search(r"--memory to at least ([^ ,]+)", str(refusal))[1]) + (4 << 20)
print(budget, result.projected_memory_bytes, peak_bytes(), 4 * 400 * source.n_rows)
"""


@pytest.mark.slow("measures the memory of trainings in processes of their own")
@pytest.mark.parametrize(("acceleration", "density"), [("one-read", 1.0), ("line-search", 0.3)])
def test_the_peak_stays_below_the_projection(tmp_path: Path, acceleration: str, density: float) -> None:
    """In a process of its own; the features are much larger than the memory."""
    source = make_problem(7, n=300_000, d=20, density=density).store(tmp_path / "d.zarr", chunk_bytes=1_000_000)
    ended = run_python(PEAK, source.path, acceleration)
    assert ended.returncode == 0, ended.stderr
    budget, projected, peak, nbytes = map(int, ended.stdout.split())
    assert peak <= projected <= budget < nbytes
