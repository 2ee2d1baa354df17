"""Pairs that are apart whatever was rounded: no score that may be off so far gives one of them a loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.certificates.double_double import measure_losses_exactly
from streamsvm.losses.pairs import Pairs
from streamsvm.solvers.ranking import solver
from streamsvm.solvers.ranking.solver import State, shorten


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), log_missed=st.floats(-12, -2), log_room=st.floats(-14, 1))
def test_apart_by_brute_force(seed: int, log_missed: float, log_room: float) -> None:
    """The worst that can happen to a pair is that both of its scores are off, towards each other."""
    random = np.random.default_rng(seed)
    ranks = random.integers(0, 4, 12).astype(np.int32)
    missed, room = 10.0**log_missed, 10.0**log_room
    scores = ranks * (1.0 + room)  # neighbouring ranks are so far apart
    pairs = Pairs(ranks, np.ones(12), np.array([0, 12]))
    worst = np.min(
        [b - a for a, i in zip(scores, ranks, strict=True) for b, j in zip(scores, ranks, strict=True) if j > i],
        initial=np.inf,
    )
    reach = float(np.max(scores))
    state = replace(State.at_zero(1), largest=np.array([reach]))
    with pytest.MonkeyPatch.context() as patch:  # scores may be off by this share of the largest
        patch.setattr(solver, "bound_score", lambda _: missed / max(reach, 1.0))
        shorter = float(shorten(state, np.ones((1, 1)))[0])
    exact = np.stack((scores, np.zeros(12)), axis=1)
    ((loss, rest, _, of_shorter),) = measure_losses_exactly([exact], pairs, np.array([shorter])).tolist()
    found = loss + rest == 0.0 and shorter < 1.0 and of_shorter == 0.0
    assert not found or worst - 2 * missed >= 1.0
    assert found or room < 20 * (missed + 1e-14) * (1 + scores.max())
