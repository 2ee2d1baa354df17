"""Several models in one read: each is what it would be alone, whatever the others are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.runs.tune import train_together
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.conftest import make_problem

LINEAR = TrainOptions(C=1.0, threads=1)
KERNEL = TrainOptions(solver="smo", kernel="rbf", gamma=0.2, resident_rows=60, threads=1)
BUDGETED = TrainOptions(
    solver="budgeted-sgd", kernel="rbf", gamma=0.2, threads=1, options={"budget": "25", "epochs": "2", "replicas": "2"}
)
MANY = [
    LINEAR,
    replace(LINEAR, C=0.01),
    replace(KERNEL, C=3.0),
    BUDGETED,
    replace(BUDGETED, C=0.1, gamma=0.5),
    replace(LINEAR, class_weight={-1: 2.0}),
    replace(LINEAR, max_passes=2),
    replace(BUDGETED, seed=1),
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Some 16 chunks."""
    folder = tmp_path_factory.mktemp("together")
    return make_problem(1, n=600, d=7, weighted=True).store(folder / "rows", layout="dense", chunk_bytes=1000)


def test_each_model_is_what_it_is_alone(dataset: Dataset) -> None:
    together = train_together(dataset, MANY)
    for options, one in zip(MANY, together, strict=True):
        alone = train(dataset, options)
        assert (one.model_sha256, one.status, one.passes) == (alone.model_sha256, alone.status, alone.passes)
        assert (one.objective, one.lower_bound) == (alone.objective, alone.lower_bound)


@pytest.mark.parametrize(
    "family",
    [
        [LINEAR, replace(LINEAR, C=0.1), replace(LINEAR, class_weight={1: 3.0})],
        [BUDGETED, replace(BUDGETED, C=0.1), replace(BUDGETED, gamma=1.0)],
    ],
)
def test_models_share_their_reads(
    dataset: Dataset, family: list[TrainOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No chunk is kept in memory: what is read is what the slowest reads, and rows that are asked for by number."""
    monkeypatch.setattr(opening, "ThreadedEngine", lambda source, threads, *_: opening_engine(source, threads))
    alone = [train(dataset, options).read_bytes for options in family]
    together = max(result.read_bytes for result in train_together(dataset, family))
    assert max(alone) <= together < 1.5 * max(alone) < sum(alone)


def opening_engine(source: Dataset, threads: int) -> object:
    from streamsvm.engines.local import ThreadedEngine

    return ThreadedEngine(source, threads, 0)


def test_the_memory_of_all_is_counted(dataset: Dataset) -> None:
    big = replace(BUDGETED, options={"budget": "20000"})
    needed = train_together(dataset, [LINEAR])[0].projected_memory_bytes
    with pytest.raises(MemoryBudgetError):
        train_together(dataset, [replace(LINEAR, memory_bytes=needed + (1 << 20)), big])


def test_settings_are_checked_before_anything_runs(dataset: Dataset) -> None:
    with pytest.raises(InputError, match="no settings"):
        train_together(dataset, [])
    with pytest.raises(InputError, match="C is -1"):
        train_together(dataset, [LINEAR, replace(LINEAR, C=-1)])
