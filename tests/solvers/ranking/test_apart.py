"""Pairs that are apart whatever was rounded: no score that may be off so far gives one of them a loss."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.losses.pairs import Pairs
from streamsvm.solvers.ranking.solver import _is_apart


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
    found = _is_apart(np.stack((scores, np.zeros(12)), axis=1), pairs, missed)
    assert not found or worst - 2 * missed >= 1.0
    assert found or room < 20 * (missed + 1e-14) * (1 + scores.max())
