"""Which fits of a grid begin in the first read, and which wait for another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamsvm.data.rows.source import RowSource
from streamsvm.data.rows.views import HeldOut
from streamsvm.options import TrainOptions
from streamsvm.runs.held_out import draw_folds
from streamsvm.runs.train import open_for
from streamsvm.runs.tune import list_fits, make_chains
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
    small = make_chains([replace(each, memory_bytes=320 << 20) for each in grid], views)
    assert [len(chain) for chain in small] == [2, 2, 2, 1, 1, 1]
    assert all("resident_rows" not in fit.settings for chain in small for _, fit in chain)


@pytest.mark.parametrize("own", [{"max_cuts": "50"}, {"epsilon": "0.01"}, LINES, {"acceleration": "block-ascent"}])
def test_options_that_are_not_for_one_read_make_chains(own: dict[str, str]) -> None:
    source = make_problem(3, n=240, d=5).in_memory()
    chains = make_chains([TrainOptions(C=C, options=own) for C in COSTS], make_views(source, 2))
    assert [len(chain) for chain in chains] == [2, 2, 1, 1]
