"""Classes in rounds: each problem is what it is side by side with the others, and memory does not grow with them."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.rows.views import HeldOut
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.many import classes
from streamsvm.solvers.set_up import hold_out
from streamsvm.verify.verify import verify
from tests.conftest import run_python
from tests.solvers.many.test_one_against_rest import CHUNKS, LINEAR, ROWS, dataset  # noqa: F401

KINDS = {
    "line-search": replace(LINEAR, options={"acceleration": "line-search"}),
    "block-ascent": replace(LINEAR, options={"acceleration": "block-ascent"}),
    "one read, weights": replace(LINEAR, class_weight={"b": 3.0, "d": 0.5}, resident_rows="30%"),
    "interior-point": replace(LINEAR, solver="interior-point"),
    "squared hinge": replace(LINEAR, loss="squared_hinge"),
    "logistic": replace(LINEAR, loss="logistic"),
}


@pytest.fixture
def in_rounds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets how many problems a round has."""

    def put(size: int) -> None:
        monkeypatch.setattr(classes, "_count_side_by_side", lambda *_: size)

    return put


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", KINDS)
def test_each_problem_is_what_it_is_side_by_side(name: str, size: int, dataset: Dataset, in_rounds: Any) -> None:
    """A budget without a limit leaves the memory for rows out of it, so that the bits are the same."""
    options = replace(KINDS[name], memory_bytes=1 << 40)
    together = train(dataset, options)
    in_rounds(size)
    found = train(dataset, options)
    assert found.status == together.status == "converged"
    assert isinstance(found.model, LinearModel)
    np.testing.assert_array_equal(found.model.coef, together.model.coef)  # type: ignore[union-attr]
    np.testing.assert_array_equal(found.model.intercept, together.model.intercept)  # type: ignore[union-attr]
    assert found.model.classes.tolist() == together.model.classes.tolist()
    # Sums for several problems at once may be rounded otherwise than those for one.
    for mine, theirs in zip(found.problems, together.problems, strict=True):
        for told in ("status", "passes", "steps"):
            assert mine[told] == theirs[told]
        assert mine["objective"] == pytest.approx(theirs["objective"], rel=1e-13)
        assert mine["lower_bound"] == pytest.approx(theirs["lower_bound"], rel=1e-13)
    assert found.objective == pytest.approx(together.objective, rel=1e-13)
    assert found.lower_bound == pytest.approx(together.lower_bound, rel=1e-13)
    assert found.passes > together.passes


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.parametrize("name", ["line-search", "one read, weights", "squared hinge"])
def test_resumed_anywhere_it_has_the_same_bits(name: str, dataset: Dataset, in_rounds: Any, tmp_path: Path) -> None:
    in_rounds(1)
    options = KINDS[name]
    whole = train(dataset, options)
    steps = len(whole.history)
    assert steps >= 4
    for k in range(1, steps):  # the run that was stopped before goes on by one step, and a copy of it to the end
        limited = replace(options, max_passes=whole.history[k - 1]["passes"])
        assert train(dataset, limited, tmp_path / "stopped", resume=True).status == "pass_limit"
        found = train(dataset, options, copytree(tmp_path / "stopped", tmp_path / str(k)), resume=True)
        assert found.model_sha256 == whole.model_sha256
        assert found.problems == whole.problems


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_on_any_engine(dataset: Dataset, in_rounds: Any, client: Client) -> None:
    in_rounds(3)
    options = KINDS["line-search"]
    found = [train(dataset, replace(options, threads=threads)) for threads in (1, 2, 4)]
    found.append(train(dataset, options, client=client))
    assert len({result.model_sha256 for result in found}) == 1


@pytest.mark.parametrize("name", ["line-search", "logistic"])
def test_a_problem_that_has_not_begun_is_told_as_it_is(name: str, dataset: Dataset, in_rounds: Any) -> None:
    """Its model is w = 0, and the objective of the model that is saved counts it."""
    in_rounds(1)
    found = train(dataset, replace(KINDS[name], max_passes=1))
    assert found.status == "pass_limit"
    assert [problem["status"] for problem in found.problems[1:]] == ["", "", ""]
    assert found.history[-1]["waiting_problems"] == (3 if found.problems[0]["status"] == "" else 2)
    assert not np.any(found.model.coef[1:])  # type: ignore[union-attr]
    verified = verify(found.model, dataset)
    assert verified.objective == pytest.approx(found.objective, rel=1e-9)
    assert 0.0 <= found.lower_bound < found.objective  # type: ignore[operator]


LITTLE_MEMORY = """
import sys

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.solvers.set_up import set_up
from streamsvm.options import TrainOptions; from streamsvm.runs.train import train

random, n, d, n_classes = np.random.default_rng(0), 600, 20_000, 40
y = np.arange(n) % n_classes
own = random.integers(0, d // n_classes, (n, 20)) * n_classes + y[:, None]
columns = np.concatenate((own, random.integers(0, d, (n, 20))), axis=1)
ones, limits = np.ones(columns.size, np.float32), np.arange(0, columns.size + 1, 40)
X = csr_array((ones, columns.ravel(), limits), shape=(n, d))
X.sum_duplicates()
source = ArrayDataset(X, y.astype(np.int32), np.arange(n_classes))
options = TrainOptions(threads=1, memory_bytes=700 << 20)
fit = set_up(source, options)
size = fit.settings["side_by_side"]
assert 1 <= size < n_classes
assert f"at most {size} of them side by side" in fit.note
found = train(source, options)
assert found.status == "converged"
assert found.peak_memory_bytes <= found.projected_memory_bytes <= 700 << 20
assert all(problem["relative_gap"] <= 1e-3 for problem in found.problems)
scores = np.concatenate([found.model.decide(source.read(k).X) for k in range(source.n_chunks)])
assert np.mean(scores.argmax(axis=1) == y) > 0.9
try:
    train(source, options, sys.argv[1], keep_dual=True)
except MemoryBudgetError:
    print("dual points are kept side by side")
"""


@pytest.mark.slow("measures memory")
def test_little_memory_is_enough_for_many_classes(tmp_path: Path) -> None:
    """Side by side they ask for gigabytes; in rounds they keep within the budget that was given."""
    ended = run_python(LITTLE_MEMORY, tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "dual points are kept side by side\n"


def test_the_fits_of_a_grid_need_what_a_process_needs_once() -> None:
    """A fit of a grid has a small part of the memory, in which the streams of a whole process would have no room."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(3000, 20)).astype(np.float32), random.integers(0, 5, 3000).astype(np.int32)
    source = ArrayDataset(X, y, np.arange(5))
    view = HeldOut(source, np.arange(3000) % 5 > 0)
    fit = hold_out(view, TrainOptions(threads=1, memory_bytes=2_000_000_000), 30)
    assert "side_by_side" not in fit.settings
