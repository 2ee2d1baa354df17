"""Which fits of a grid begin in the first read, and which wait for another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import streamsvm
from streamsvm.data.rows.source import RowSource
from streamsvm.data.rows.views import HeldOut
from streamsvm.options import TrainOptions
from streamsvm.runs.held_out import draw_folds
from streamsvm.runs.train import open_for, train
from streamsvm.runs.tune import list_fits, make_chains, tune
from streamsvm.solvers.registry import OTHER_BYTES
from streamsvm.solvers.set_up import hold_out
from tests.conftest import make_problem

COSTS = (0.01, 0.1, 1.0)
LINES = {"acceleration": "line-search"}


def make_views(source: RowSource, folds: int) -> list[HeldOut]:
    fold = draw_folds(source, TrainOptions(), folds)
    return [HeldOut(source, fold != k) for k in range(folds)]


def test_fits_by_one_read_share_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them begin in the first read, each with an equal part of the memory, and none waits for another."""
    data = make_problem(3, n=60_000, d=20).store(tmp_path / "rows.zarr", layout="dense", chunk_bytes=1 << 18)
    views = make_views(data, 3)
    grid = [TrainOptions(C=C, memory_bytes=1200 << 20, threads=1) for C in COSTS]
    chains = make_chains(grid, views)
    assert [len(chain) for chain in chains] == [1] * 9
    assert {fit.settings["acceleration"] for chain in chains for _, fit in chain} == {"one-read"}
    alone = hold_out(views[0], grid[0]).settings["resident_rows"]
    shared = {fit.settings["resident_rows"] for chain in chains for _, fit in chain}
    assert max(shared) < alone
    monkeypatch.setattr("streamsvm.engines.open.resident_bytes", lambda: OTHER_BYTES)  # not what tests have loaded
    with open_for(data, grid[0], list_fits(chains), None) as (_, plan):  # refused if it is over the budget
        assert plan.projected_bytes <= 1200 << 20
    medium = [replace(each, memory_bytes=400 << 20) for each in grid]
    waiting = make_chains(medium, views)  # of nine fits side by side, each would have too few rows
    assert [len(chain) for chain in waiting] == [3, 3, 3]
    assert not any(fit.note for chain in waiting for _, fit in chain)
    with open_for(data, medium[0], list_fits(waiting), None) as (_, plan):
        assert plan.projected_bytes <= 400 << 20
    small = make_chains([replace(each, memory_bytes=320 << 20) for each in grid], views)
    assert [len(chain) for chain in small] == [2, 2, 2, 1, 1, 1]
    assert all("resident_rows" not in fit.settings for chain in small for _, fit in chain)


@pytest.mark.parametrize("own", [{"max_cuts": "50"}, {"epsilon": "0.01"}, LINES, {"acceleration": "block-ascent"}])
def test_options_that_are_not_for_one_read_make_chains(own: dict[str, str]) -> None:
    source = make_problem(3, n=240, d=5).in_memory()
    chains = make_chains([TrainOptions(C=C, options=own) for C in COSTS], make_views(source, 2))
    assert [len(chain) for chain in chains] == [2, 2, 1, 1]


@pytest.mark.parametrize("d", [30, 500])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_fit_of_a_grid_is_chosen_as_a_single_fit_is(d: int, classes: int, tmp_path: Path) -> None:
    problem = make_problem(3, n=600, d=d)
    y = problem.y if classes == 2 else np.arange(600) % classes
    data = streamsvm.ingest(problem.X, tmp_path / "rows.zarr", y)
    (view, _) = views = make_views(data, 2)
    chains = make_chains([TrainOptions(C=C) for C in COSTS], views)
    alone = hold_out(view, TrainOptions(C=COSTS[0]), len(COSTS) * len(views))
    assert alone.settings["acceleration"] == ("block-ascent" if d == 500 else "one-read")
    assert chains[0][0][1].settings == alone.settings
    assert [len(chain) for chain in chains] == ([2, 2, 1, 1] if alone.starts_warm else [1] * 6)


def test_the_projection_of_a_grid_is_compared_with_its_peak() -> None:
    """The last training alone needs less memory than the fits of the grid, which the peak of the process includes."""
    source, options = make_problem(3, n=2000, d=50).in_memory(), TrainOptions(threads=1)
    chains = make_chains([replace(options, C=C) for C in COSTS], make_views(source, 4))
    with open_for(source, options, list_fits(chains), None) as (_, plan):
        solver_bytes = plan.parts["solver"]
    found = tune(source, options, COSTS, folds=4).result
    alone = train(source, options)
    assert found.projected_memory_bytes - alone.projected_memory_bytes > solver_bytes / 2
