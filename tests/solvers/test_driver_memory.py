"""The driver holds what `driver_bytes` says, measured where it holds most: as cuts are added, and saved."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields, replace

import numpy as np

from streamsvm.files import pack_arrays
from streamsvm.solvers.cuts import add_cuts, minimise_master
from streamsvm.solvers.cutting_plane import CuttingPlane, State, start_state, start_totals

D, M = 50_000, 64


def full_state(random: np.random.Generator) -> State:
    """As many cuts as are kept at once."""
    cuts = random.standard_normal((M, D + 1))
    return replace(
        start_state(D), cuts=cuts, offsets=np.ones(M), z=np.zeros(M), idle=np.zeros(M, np.int64), gram=cuts @ cuts.T,
        objective=100.0, passes=5,
    )  # fmt: skip


def test_a_step_and_a_checkpoint_take_what_is_planned() -> None:
    settings, random = CuttingPlane((1.0, 1.0), max_cuts=M), np.random.default_rng(0)
    totals = start_totals(settings.cut_points(D), D + 1)  # planned with the passes
    totals.gradients[:] = random.standard_normal(totals.gradients.shape)
    tracemalloc.start()
    try:
        before = full_state(random)
        tracemalloc.reset_peak()
        cuts = np.cumsum(totals.gradients, axis=0)[:4]
        after = minimise_master(add_cuts(before, cuts, np.ones(4), M), 1e-3)
        stepping = tracemalloc.get_traced_memory()[1]
        assert len(after.cuts) == len(before.cuts) == M
        del before
        tracemalloc.reset_peak()
        pack_arrays({part.name: getattr(after, part.name) for part in fields(after)})
        saving = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(stepping, saving) <= settings.driver_bytes(D)
