"""Interior point on disk: the same bits on any engine, and after any step that a run was killed at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client

from streamsvm.data.rows.source import plan_groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.conftest import make_problem
from tests.faults.instants import describe
from tests.faults.killed import kill_after
from tests.faults.test_kernel_resume import FIVE_GROUPS

pytestmark = [
    pytest.mark.slow("stops and resumes a solver at every step, on every engine"),
    pytest.mark.usefixtures("many_groups"),
]

OPTIONS = TrainOptions(solver="interior-point", C=2.0, tol=1e-8, threads=1)
SETTINGS = {
    "few rows": replace(OPTIONS, options={"reduction": "fixed", "most_rows": "40", "rule": "omega"}),
    "all rows": replace(OPTIONS, options={"reduction": "none"}),
    "adaptive": OPTIONS,
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder = tmp_path_factory.mktemp("rows")
    dense, sparse = make_problem(5, n=420, weighted=True), make_problem(6, n=420, d=20, density=0.3)
    return {
        "dense": dense.store(folder / "dense", layout="dense", chunk_bytes=1500),
        "sparse": sparse.store(folder / "sparse", layout="sparse", chunk_bytes=3000),
    }


@pytest.mark.parametrize(("name", "layout"), [("few rows", "dense"), ("all rows", "sparse")])
def test_the_same_bits_on_any_engine(
    name: str, layout: str, datasets: dict[str, Dataset], client: Client, tmp_path: Path
) -> None:
    """Each step, not the model only, with other settings than in test_interior_points.py."""
    source, options = datasets[layout], SETTINGS[name]
    assert len(plan_groups(source)) >= 5
    for threads in (1, 2, 4):
        result = train(source, replace(options, threads=threads), out=tmp_path / f"{threads}")
        assert result.status == "converged"
        assert isinstance(result.model, LinearModel)
    train(source, options, out=tmp_path / "client", client=client)
    first = describe(tmp_path / "1")
    for other in ("2", "4", "client"):
        assert describe(tmp_path / other) == first


@pytest.mark.parametrize(("name", "layout"), [("few rows", "dense"), ("adaptive", "sparse")])
def test_killed_after_a_step(name: str, layout: str, datasets: dict[str, Dataset], tmp_path: Path) -> None:
    """kill -9 after the first step, one in the middle and the last but one; then with other threads."""
    source, options = datasets[layout], SETTINGS[name]
    train(source, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    n_steps = len(whole["history"])
    for step in (1, n_steps // 2, n_steps - 1):
        out = tmp_path / f"killed-{step}"
        kill_after(step, source.path, options, out, FIVE_GROUPS)
        assert (out / "checkpoint.npz").exists()
        assert not (out / "model.npz").exists()
        resumed = train(source, replace(options, threads=2), out=out, resume=True)
        assert resumed.steps == n_steps
        assert describe(out) == whole
