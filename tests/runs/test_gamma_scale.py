"""gamma "scale" is measured by an engine before a method is set up: once for all settings, the same bits anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.rows import source as groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.estimators import BudgetedSVC
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions, make_kernel
from streamsvm.plan.predict import plan_training
from streamsvm.runs.features import make_features
from streamsvm.runs.gamma_scale import measure_gamma
from streamsvm.runs.train import train
from streamsvm.runs.tune import train_together, tune
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError, MemoryBudgetError
from streamsvm.system.files import Lock
from tests.conftest import make_problem

KERNEL = TrainOptions(solver="smo", kernel="rbf", threads=1)
PROBLEMS = {
    "dense": make_problem(1, n=900, d=7, weighted=True),
    "sparse": make_problem(2, n=900, d=40, density=0.2),
}


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SMALLEST_GROUP_BYTES", 1)


@pytest.fixture
def source(tmp_path: Path) -> Dataset:
    return PROBLEMS["dense"].store(tmp_path / "rows", chunk_bytes=2000)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The chunks that are read."""
    chunks: list[int] = []
    for name, done in (("tiles", Dataset.tiles), ("read", Dataset.read)):
        monkeypatch.setattr(Dataset, name, lambda self, index, done=done: chunks.append(index) or done(self, index))
    return chunks


def open_engines(dataset: Dataset, client: Client) -> Iterator[Engine]:
    yield SerialEngine(dataset)
    for threads in (1, 3):
        yield ThreadedEngine(dataset, threads)
    yield ThreadedEngine(dataset, 2, pin_bytes=1 << 20)
    yield DistributedEngine(dataset, client)


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_same_bits_on_any_engine(name: str, client: Client, tmp_path: Path) -> None:
    """And they are right: sums that are rounded once, from all rows."""
    problem = PROBLEMS[name]
    dataset = problem.store(tmp_path / name, chunk_bytes=2000)
    assert len(groups.plan_groups(dataset)) >= 5
    found = []
    for engine in open_engines(dataset, client):
        found.append(measure_gamma(engine))
        engine.close()
    assert len(set(found)) == 1
    X = problem.dense()
    weight = np.ones(len(X)) if problem.weight is None else problem.weight
    count = X.shape[1] * math.fsum(weight)
    mean = math.fsum((weight[:, None] * X).ravel()) / count
    variance = math.fsum((weight[:, None] * (X - mean) ** 2).ravel()) / count
    assert found[0] == pytest.approx(1 / (X.shape[1] * variance), rel=1e-12)


def test_a_training_has_the_number_in_its_settings(source: Dataset, client: Client, tmp_path: Path) -> None:
    """On threads and workers alike, and it is resumed with it."""
    results = [train(source, KERNEL, tmp_path / "run"), train(source, KERNEL, client=client)]
    again = train(source, KERNEL, tmp_path / "run", resume=True)
    given = train(source, TrainOptions(solver="smo", kernel="rbf", gamma=measure_gamma(SerialEngine(source))))
    assert len({result.model_sha256 for result in (*results, again, given)}) == 1


def test_what_a_training_reads_for_gamma_stays_in_memory(source: Dataset, read: list[int]) -> None:
    result = train(source, replace(KERNEL, resident_rows="20%"))
    assert result.passes >= 3
    assert sorted(read) == list(range(source.n_chunks))


def test_a_grid_and_many_trainings_read_once_for_it(source: Dataset, read: list[int]) -> None:
    def count(done: Any) -> int:
        read.clear()
        done()
        return len(read)

    numbers = {"gamma": measure_gamma(SerialEngine(source))}
    many = [KERNEL, TrainOptions(solver="smo", kernel="rbf", C=2.0), TrainOptions(solver="smo", kernel="rbf", gamma=1)]
    known = [TrainOptions(**{**vars(options), **(numbers if options.gamma == "scale" else {})}) for options in many]
    more = count(lambda: train_together(source, many)) - count(lambda: train_together(source, known))
    assert more == source.n_chunks
    scaled = count(lambda: tune(source, KERNEL, (0.5, 1.0), ("scale", 1.0), 2))
    assert scaled == count(lambda: tune(source, KERNEL, (0.5, 1.0), (numbers["gamma"], 1.0), 2)), "they stay in memory"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"memory_bytes": 10 << 20}, MemoryBudgetError),
        ({"C": -1.0}, InputError),
        ({"options": {"selection": "best"}}, InputError),
    ],
)
def test_what_cannot_be_trained_is_refused_before_rows_are_read(
    settings: dict[str, Any], error: type[Exception], source: Dataset, read: list[int]
) -> None:
    asked = TrainOptions(**{**vars(KERNEL), **settings})
    for start in (lambda: train(source, asked), lambda: train_together(source, [asked, asked])):
        with pytest.raises(error):
            start()
    with pytest.raises(error):
        tune(source, asked, (settings.get("C", 1.0),), (), 2)
    assert read == []


def test_options_read_no_rows(source: Dataset, read: list[int]) -> None:
    with pytest.raises(InputError, match="gamma is 'scale'"):
        make_kernel(source, KERNEL)
    assert read == []


def test_the_first_chunk_of_a_stream_tells() -> None:
    problem = make_problem(3, n=200)
    scaled, given = (BudgetedSVC(gamma=gamma, expected_rows=200) for gamma in ("scale", 1 / (6 * problem.X.var())))
    for model in (scaled, given):
        model.partial_fit(problem.X, problem.y, classes=[-1, 1])
    assert scaled.model_.kernel.gamma == pytest.approx(given.model_.kernel.gamma, rel=1e-5)


def test_the_folder_is_checked_before_rows_are_read(source: Dataset, read: list[int], tmp_path: Path) -> None:
    """A run that is there, other settings, and places where no folder can be."""
    out = tmp_path / "run"
    train(source, KERNEL, out)
    (tmp_path / "file").write_bytes(b"")
    read.clear()
    (tmp_path / "busy").mkdir()
    with Lock(tmp_path / "busy", tmp_path / "busy" / ".lock"):
        for options, place, resume, message in (
            (KERNEL, out, False, "already holds a run"),
            (replace(KERNEL, tol=1e-5), out, True, "other settings: tol was 0.001, now 1e-05"),
            (replace(KERNEL, kernel="poly"), out, True, "other settings: kernel was"),
            (KERNEL, tmp_path / "file" / "run", False, "cannot be written"),
            (KERNEL, tmp_path / "busy", False, "busy"),
        ):
            with pytest.raises(InputError, match=message):
                train(source, options, place, resume=resume)
    assert read == []
    train(source, replace(KERNEL, gamma=0.5), tmp_path / "other")
    with pytest.raises(InputError, match="kernel was"):  # the rows must tell that it is another gamma
        train(source, KERNEL, tmp_path / "other", resume=True)


def test_an_interrupted_measurement_leaves_nothing(
    source: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        assert (tmp_path / "run").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("streamsvm.runs.gamma_scale.measure_gamma", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(source, KERNEL, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_engine_measures_and_trains(source: Dataset, without_pins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept in memory here: bytes are reads, and the one that measures is told like the others."""
    opened: list[Any] = []
    monkeypatch.setattr(opening, "ThreadedEngine", lambda *given: opened.append(ThreadedEngine(*given)) or opened[-1])
    tuning = tune(source, replace(KERNEL, resident_rows=100), (0.5, 1.0), ("scale", 1.0), 2)
    known = tune(source, replace(KERNEL, resident_rows=100), (0.5, 1.0), (tuning.trials[0].gamma or 0.0, 1.0), 2)
    assert len(opened) == 4, "one for each grid, and one for its last training"
    assert tuning.trials == known.trials
    assert tuning.passes == known.passes + 1
    assert tuning.read_bytes == known.read_bytes + source.nbytes
    train_together(source, [KERNEL, replace(KERNEL, C=2.0)])
    assert len(opened) == 5


@pytest.mark.parametrize("classes", [2, 3])
def test_its_read_is_a_pass(source: Dataset, classes: int, read: list[int], tmp_path: Path, without_pins: None) -> None:
    """Nothing is kept in memory here. The steps are those with the number, and each tells of one pass more."""
    asked = replace(KERNEL, resident_rows=100)
    if classes > 2:
        problem = PROBLEMS["dense"]
        y = np.where(problem.X[:, 0] > 1, 2, problem.y)  # type: ignore[index]
        source = ingest(problem.X, tmp_path / "many", y, sample_weight=problem.weight, shuffle=None, chunk_bytes=2000)
    given = replace(asked, gamma=measure_gamma(SerialEngine(source)))
    read.clear()
    found = train(source, asked)
    assert len(read) == found.passes * source.n_chunks
    known = train(source, given)
    assert (found.passes, found.read_bytes) == (known.passes + 1, known.read_bytes + source.nbytes)
    assert found.model.to_bytes() == known.model.to_bytes()
    told = [(line["passes"], line["read_bytes"], line["objective"]) for line in known.history]
    assert [(line["passes"], line["read_bytes"], line["objective"]) for line in found.history] == [
        (passes + 1, n_bytes + source.nbytes, objective) for passes, n_bytes, objective in told
    ]
    together = train_together(source, [asked, replace(given, C=2.0)])
    assert [one.passes for one in together] == [
        one.passes for one in map(partial(train, source), [asked, replace(given, C=2.0)])
    ]


def test_limits_count_it(source: Dataset, tmp_path: Path) -> None:
    """And a run that they stopped goes on to the passes of one that was not stopped, though it reads once more."""
    asked = replace(KERNEL, resident_rows=100)
    stopped = train(source, replace(asked, max_passes=3), tmp_path / "run")
    assert (stopped.passes, stopped.steps) == (3, 2)
    assert stopped.status_reason.startswith("the limit of 3 passes was reached")
    whole, resumed = train(source, asked), train(source, asked, tmp_path / "run", resume=True)
    assert (resumed.passes, resumed.model_sha256) == (whole.passes, whole.model_sha256)
    assert [line["passes"] for line in resumed.history] == [line["passes"] for line in whole.history]


def test_one_pass_is_too_few_for_it(source: Dataset, read: list[int]) -> None:
    """One pass is one pass: it is refused before a read, and suffices with a number for gamma."""
    with pytest.raises(InputError, match=r"max_passes is 1, but gamma 'scale' alone takes a pass: allow 2 passes"):
        train(source, replace(KERNEL, max_passes=1))
    assert not read
    assert train(source, replace(KERNEL, max_passes=1, gamma=0.1, tol=1e-12)).passes == 1


@pytest.mark.parametrize(("name", "n_passes"), [("cholesky", 12), ("nystrom", 2), ("polynomial", 2)])
def test_features_count_it(
    name: str, n_passes: int, source: Dataset, read: list[int], tmp_path: Path, without_pins: None
) -> None:
    """The polynomial map has no gamma."""
    made = make_features(source, tmp_path / "features", FeatureOptions(name, 20), TrainOptions(kernel="rbf", threads=1))
    assert made.dataset.meta["passes"] == len(read) / source.n_chunks == n_passes


def test_a_plan_counts_it(source: Dataset) -> None:
    for asked in (KERNEL, replace(KERNEL, solver="budgeted-sgd", options={"epochs": "2", "budget": "20"})):
        plan, result = plan_training(source, asked), train(source, asked)
        assert plan.count_passes() == (result.passes,) * 3
        assert plan.as_json()["passes"] == result.passes


def test_a_grid_s_folder_is_locked_before_rows_are_read(source: Dataset, read: list[int], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be written"):
        tune(source, KERNEL, (0.5, 1.0), (), 2, tmp_path / "file" / "run")
    (tmp_path / "busy").mkdir()
    with Lock(tmp_path / "busy", tmp_path / "busy" / ".lock"), pytest.raises(InputError, match="busy"):
        tune(source, KERNEL, (0.5, 1.0), (), 2, tmp_path / "busy")
    assert read == []


def test_two_names_of_one_gamma_are_one_setting(source: Dataset) -> None:
    gamma = measure_gamma(SerialEngine(source))
    found = tune(source, KERNEL, (0.5,), ("scale", gamma, 1 / source.n_features, "auto"), 2)
    assert sorted(trial.gamma or 0.0 for trial in found.trials) == sorted((gamma, 1 / source.n_features))
