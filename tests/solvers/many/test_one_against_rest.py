"""Many classes: each problem is solved as it would be alone, to the bit; all of them in one read of the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from distributed import Client
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC as Liblinear

from streamsvm.data.rows.views import OneVsRest
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import KernelModel, LinearModel
from streamsvm.options import TrainOptions
from streamsvm.runs.gamma_scale import resolve_gammas
from streamsvm.runs.train import train
from streamsvm.solvers.registry import KERNEL_OTHER_BYTES
from streamsvm.solvers.registry import OTHER_BYTES as PROCESS_BYTES
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.solver import share_memory
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.conftest import F64

LINEAR = TrainOptions(C=0.5, threads=1)
KERNEL = TrainOptions(solver="smo", kernel="rbf", gamma=0.2, threads=1, multi_class="ovr")
BUDGETED = TrainOptions(
    solver="budgeted-sgd", kernel="rbf", gamma=0.2, threads=1, options={"budget": "25", "epochs": "2", "replicas": "2"}
)
SOLVERS = {
    "cutting-plane": replace(LINEAR, options={"acceleration": "line-search"}),
    "cutting-plane, blocks": replace(LINEAR, options={"acceleration": "block-ascent"}),
    "cutting-plane, one read": LINEAR,
    "cutting-plane, weights": replace(LINEAR, class_weight={"b": 3.0, "d": 0.5}, resident_rows="30%"),
    "interior-point": replace(LINEAR, solver="interior-point"),
    "smo, all active": KERNEL,
    "smo": replace(KERNEL, resident_rows=120),
    "smo, linear": replace(KERNEL, kernel="linear", resident_rows=60),
    "irwls": replace(KERNEL, solver="irwls", resident_rows=120),
    "budgeted-sgd": BUDGETED,
}


@dataclass(frozen=True)
class Classes:
    """Rows (float32, dense or CSR), codes of four classes, the last one of which is rare, and weights."""

    X: Any
    y: npt.NDArray[np.int32]
    weight: F64
    names = np.array(["a", "b", "c", "d"])

    def store(self, path: Path, **options: Any) -> Dataset:
        return ingest(self.X, path, self.names[self.y], sample_weight=self.weight, shuffle=None, **options)

    def one_against_rest(self, code: int, path: Path, **options: Any) -> Dataset:
        return ingest(self.X, path, (self.y == code).astype(int), sample_weight=self.weight, shuffle=None, **options)


def make_classes(seed: int, n: int = 480, d: int = 6, density: float = 1.0) -> Classes:
    """Clouds that overlap, sorted by class: most chunks have one or two of them."""
    random = np.random.default_rng(seed)
    y = np.sort(random.choice(4, n, p=[0.4, 0.3, 0.28, 0.02])).astype(np.int32)
    X = (random.normal(size=(4, d))[y] + random.normal(size=(n, d))) * (random.random((n, d)) < density)
    values = X.astype(np.float32)
    return Classes(csr_array(values) if density < 1 else values, y, random.choice([0.5, 1.0, 2.0], n))


ROWS = make_classes(1)
CHUNKS: dict[str, Any] = {"layout": "dense", "chunk_bytes": 720}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """16 chunks."""
    return ROWS.store(tmp_path_factory.mktemp("classes") / "rows", **CHUNKS)


@pytest.fixture(scope="module")
def relabelled(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    """The same chunks, once for each class."""
    folder = tmp_path_factory.mktemp("relabelled")
    return [ROWS.one_against_rest(code, folder / str(code), **CHUNKS) for code in range(4)]


def weigh(options: TrainOptions, code: int) -> TrainOptions:
    """A class' weight is that of its own rows; the rest weighs one."""
    weights: Any = options.class_weight or {}
    return replace(options, class_weight={1: weights.get("abcd"[code], 1.0)})


@pytest.mark.slow("trains each problem alone, too")
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.usefixtures("many_groups")
def test_each_problem_is_what_it_is_alone(name: str, dataset: Dataset, relabelled: list[Dataset]) -> None:
    options = SOLVERS[name]
    together = train(dataset, options)
    alone = [train(rows, weigh(options, code)) for code, rows in enumerate(relabelled)]
    model = together.model
    assert model.classes.tolist() == ["a", "b", "c", "d"]
    for code, one in enumerate(alone):
        assert model.intercept[code] == one.model.intercept
        if isinstance(model, LinearModel):
            np.testing.assert_array_equal(model.coef[code], one.model.coef)
        else:
            assert isinstance(model, KernelModel)
            chosen = np.flatnonzero(model.dual_coef[code])
            own = one.model.dual_coef != 0
            np.testing.assert_array_equal(model.dual_coef[code][chosen], one.model.dual_coef[own])
            np.testing.assert_array_equal(model.support_vectors[chosen], one.model.support_vectors[own])
    assert together.objective == pytest.approx(sum(one.objective for one in alone), rel=1e-14)
    if together.lower_bound is not None:
        assert together.status == "converged"
        assert together.lower_bound == pytest.approx(sum(one.lower_bound for one in alone), rel=1e-14)
    if name != "interior-point":  # of which a step is two passes, or three
        assert together.passes == max(one.passes for one in alone)
    assert together.history[-1]["open_problems"] == 0
    assert together.n_support_vectors == (None if isinstance(model, LinearModel) else len(model.support_vectors))


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.usefixtures("many_groups", "workers_import_tests")
def test_the_same_bits_for_any_number_of_threads_and_workers(name: str, dataset: Dataset, client: Client) -> None:
    one = train(dataset, SOLVERS[name]).model_sha256
    assert train(dataset, replace(SOLVERS[name], threads=3)).model_sha256 == one
    assert train(dataset, replace(SOLVERS[name], threads=None), client=client).model_sha256 == one


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.parametrize("name", ["cutting-plane", "interior-point", "smo", "budgeted-sgd"])
def test_stopped_and_gone_on_as_if_never_stopped(name: str, dataset: Dataset, tmp_path: Path) -> None:
    whole = train(dataset, SOLVERS[name], out=tmp_path / "whole")
    most = 1 if name == "budgeted-sgd" else whole.passes - 2
    stopped = train(dataset, replace(SOLVERS[name], max_passes=most), out=tmp_path / "run")
    assert stopped.status == "pass_limit"
    assert stopped.model_sha256 != whole.model_sha256
    resumed = train(dataset, SOLVERS[name], out=tmp_path / "run", resume=True)
    assert (resumed.model_sha256, resumed.passes, resumed.steps) == (whole.model_sha256, whole.passes, whole.steps)
    with pytest.raises(InputError, match="cannot be resumed with other settings"):
        train(dataset, replace(SOLVERS[name], class_weight={"a": 9.0}), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["cutting-plane", "interior-point", "smo, all active", "budgeted-sgd"])
def test_all_are_read_at_once(
    name: str, dataset: Dataset, relabelled: list[Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No chunk is kept in memory; each problem asks for its own single rows, which are not counted here."""
    monkeypatch.setattr(opening, "ThreadedEngine", lambda source, threads, *_: ThreadedEngine(source, threads))
    if name != "smo, all active":  # which takes all rows, once
        monkeypatch.setattr(Dataset, "take_bytes", lambda *_: 0)
    alone = [train(rows, weigh(SOLVERS[name], code)).read_bytes for code, rows in enumerate(relabelled)]
    together = train(dataset, SOLVERS[name]).read_bytes
    assert max(alone) <= together <= 1.2 * max(alone) < sum(alone)


def test_gamma_is_found_in_one_read(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is that of two classes."""
    read: list[int] = []
    for name, done in (("tiles", Dataset.tiles), ("read", Dataset.read)):
        monkeypatch.setattr(Dataset, name, lambda self, index, done=done: read.append(index) or done(self, index))
    settled = resolve_gammas(SerialEngine(dataset), [replace(KERNEL, gamma="scale", C=C) for C in (1.0, 2.0)])
    fit = set_up(dataset, settled[1])
    assert sorted(read) == list(range(dataset.n_chunks))
    weight = np.repeat(ROWS.weight[:, None], 6, axis=1)
    mean = np.average(ROWS.X.astype(float), weights=weight)
    variance = np.average((ROWS.X.astype(float) - mean) ** 2, weights=weight)
    assert fit.settings["kernel"]["gamma"] == pytest.approx(1 / (6 * variance), rel=1e-6)


@pytest.mark.parametrize("density", [1.0, 0.5])
@pytest.mark.parametrize("weights", [None, {"a": 2.0, "d": 10.0}, "balanced"])
def test_it_is_the_one_against_rest_of_liblinear(weights: Any, density: float) -> None:
    rows = make_classes(3, density=density)
    source = ArrayDataset(rows.X, rows.y, rows.names, rows.weight)
    model = train(source, TrainOptions(C=0.2, tol=1e-8, class_weight=weights)).model
    liblinear = Liblinear(loss="hinge", C=0.2, tol=1e-9, max_iter=10**7, random_state=0, class_weight=weights)
    liblinear.fit(rows.X, rows.names[rows.y], sample_weight=rows.weight)
    np.testing.assert_allclose(model.coef, liblinear.coef_, atol=2e-4)
    np.testing.assert_allclose(model.intercept, liblinear.intercept_, atol=2e-4)
    chosen, theirs = (  # where two classes have w = 0 and one intercept, rounding decides
        np.argmax(np.round(scores, 3), axis=1)
        for scores in (model.decide(source.read(0).X), liblinear.decision_function(rows.X))
    )
    assert np.mean(chosen == theirs) >= 0.99


@pytest.mark.parametrize("name", ["cutting-plane", "smo", "budgeted-sgd", "interior-point"])
def test_a_class_may_occur_once(name: str, tmp_path: Path) -> None:
    y = np.where(np.arange(480) == 77, 3, ROWS.y % 3).astype(np.int32)
    source = replace(ROWS, y=y).store(tmp_path / "rows", **CHUNKS)
    result = train(source, replace(SOLVERS[name], C=100.0, class_weight={"d": 50.0}))
    assert result.status in ("converged", "pass_limit")
    assert result.model.classes.tolist() == ["a", "b", "c", "d"]


def test_whatever_is_refused_for_two_classes_is_refused(dataset: Dataset) -> None:
    for options, message in (
        (
            replace(LINEAR, solver="cutting-plane", kernel="rbf"),
            "kernel rbf: cutting-plane supports only the linear kernel",
        ),
        (replace(LINEAR, class_weight={"e": 2.0}), "class_weight names 'e'; the classes are a, b, c and d"),
        (replace(LINEAR, class_weight="heavy"), "class_weight 'heavy'"),
        (replace(LINEAR, C=-1), "C is -1"),
        (replace(KERNEL, gamma=-1.0), "gamma is -1"),
        (replace(KERNEL, options={"budget": "3"}), "option 'budget' is unknown"),
    ):
        with pytest.raises(InputError, match=message):
            train(dataset, options)


@pytest.mark.parametrize("name", SOLVERS)
def test_the_memory_of_all_is_counted(name: str, dataset: Dataset, relabelled: list[Dataset]) -> None:
    several = set_up(dataset, SOLVERS[name]).memory(1)
    one = set_up(relabelled[0], weigh(SOLVERS[name], 0)).memory(1)
    assert (several.totals_bytes, several.shared_bytes) == (4 * one.totals_bytes, 4 * one.shared_bytes)
    assert several.driver_bytes > one.driver_bytes
    assert several.walk_bytes >= one.walk_bytes
    with pytest.raises(MemoryBudgetError):
        train(dataset, replace(SOLVERS[name], memory_bytes=1 << 20))


@pytest.mark.parametrize("budget", [1 << 28, 2 << 30, 8 << 30])
def test_problems_share_what_the_budget_leaves(budget: int) -> None:
    """What any process needs is there once."""
    options = TrainOptions(memory_bytes=budget)
    share = share_memory(options, 5, KERNEL_OTHER_BYTES).memory_bytes
    assert share is not None
    assert 0 <= budget - min(budget, KERNEL_OTHER_BYTES) - 5 * (share - min(budget, KERNEL_OTHER_BYTES)) < 5
    assert share_memory(options, 1, KERNEL_OTHER_BYTES) == options


def test_problems_that_take_turns_share_what_a_step_needs(tmp_path: Path) -> None:
    """Not as many times as there are classes: the matrices of a master problem are there once."""
    X = np.random.default_rng(0).standard_normal((60, 4))
    dataset, options = ingest(X, tmp_path / "rows.zarr", np.arange(60) % 5), TrainOptions(threads=1)
    one, several = (set_up(source, options).memory(1) for source in (OneVsRest(dataset, 0), dataset))
    held = one.driver_bytes - one.turn_bytes
    assert several.driver_bytes == 5 * held + one.turn_bytes
    assert one.turn_bytes > held


@pytest.mark.parametrize("n_classes", [2, 5, 20])
def test_resident_rows_of_many_classes_fit_into_the_budget(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process needs is left once, however many the classes. The 12 million rows need not exist."""
    y = (np.arange(1000) % n_classes).astype(np.int32)
    source = ArrayDataset(np.zeros((1000, 64), np.float32), y, np.arange(n_classes))
    source.n_rows, source.nbytes = 12_000_000, 12_000_000 * 256
    monkeypatch.setattr("streamsvm.solvers.one_read.setup.plan_groups", lambda _: [[0]] * 128)
    need = set_up(source, TrainOptions(threads=2, memory_bytes=1_450_000_000)).memory(2)
    assert need.driver_bytes + 6 * need.totals_bytes + PROCESS_BYTES <= 1_450_000_000
