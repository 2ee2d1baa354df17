"""The visit of a row sets its shares to their optimum: compared with all faces of the set of shares, one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from streamsvm.numeric.rows import F64, Rows
from streamsvm.solvers.crammer_singer.block_ascent import SMALL, ClassPart, make_part


def find_best(lead: F64, y: int, size: float) -> F64:
    """The shares of the other classes that maximise lead.c - size / 2 (|c|^2 + (sum c)^2), in all faces."""
    others = [k for k in range(len(lead)) if k != y]
    best, found = 0.0, np.zeros(len(lead))
    for n in range(1, len(others) + 1):
        for face in map(list, combinations(others, n)):
            free = np.linalg.solve(size * (np.eye(n) + 1.0), lead[face])
            full = (lead[face] - np.mean(lead[face])) / size + 1.0 / n
            for c in (free, full):
                value = lead[face] @ c - size / 2 * (c @ c + c.sum() ** 2)
                if c.min() >= 0 and c.sum() <= 1 + 1e-12 and value > best:
                    best, found = value, np.zeros(len(lead))
                    found[face] = c
    return found


@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(8))
def test_a_visit_finds_the_best_shares_of_a_row(seed: int, size: float) -> None:
    """The other rows have left weights V; the row has some shares already."""
    random, K = np.random.default_rng(seed), 2 + seed % 4
    x = random.normal(size=3).astype(np.float32)
    x *= np.sqrt(size) / np.linalg.norm(x)
    y, others = np.array([seed % K], np.int32), random.normal(size=(3, K))
    start = random.dirichlet(np.ones(K + 1))[None, :K].copy()
    start[0, y[0]] = 0.0
    start[0, y[0]] = start.sum()
    part = make_part(Rows(0, x[None, :], y), np.ones(K), 0.0, start)
    alpha = np.where(np.arange(K) == y[0], start[0], -start[0])
    V = np.concatenate((others + np.outer(x, alpha), np.zeros((1, K))))
    part.visit(np.zeros(len(part.order), np.uint32), 0.0, V, np.inf)
    scores = x.astype(np.float64) @ others
    lead = 1.0 + scores - scores[y[0]]
    expected = find_best(lead, int(y[0]), float(part.squares[0]))
    after = part.share[0].copy()
    assert after[y[0]] == pytest.approx(expected.sum(), abs=1e-6)
    after[y[0]] = 0.0
    assert np.allclose(after, expected, atol=1e-6)
    alpha = np.where(np.arange(K) == y[0], part.share[0], -part.share[0])
    assert np.allclose(V[:3], others + np.outer(x, alpha), atol=1e-6)


def find_violations(part: ClassPart, V: F64) -> F64:
    """The largest v_k minus the smallest v_k of a class whose share can fall, for each row."""
    scores = part.rows.X.astype(np.float64) @ V[:-1]
    own = np.take_along_axis(scores, part.y[:, None].astype(np.int64), axis=1)
    leads, is_own = 1.0 + scores - own, np.arange(scores.shape[1]) == part.y[:, None]
    leads[is_own] = 0.0
    can_fall = np.where(is_own, part.share < 1.0, part.share > 0.0)
    violations: F64 = leads.max(axis=1) - np.where(can_fall, leads, np.inf).min(axis=1)
    return violations


@pytest.mark.parametrize("limit", [0.9, 1.5])
def test_rows_with_small_violations_leave_the_ascent_once_no_violation_exceeds_the_margin(limit: float) -> None:
    """The rows are orthogonal, so that a visit of one does not change the violations of the others."""
    X, y = np.eye(12, dtype=np.float32), np.arange(12, dtype=np.int32) % 3
    is_own = np.arange(3) == y[:, None]
    part, V = make_part(Rows(0, X, y), np.ones(3), 0.0, np.where(is_own, 0.8, 0.4), SMALL), np.zeros((13, 3))
    V[:12][is_own] = 1.0  # v_k is 0 for each class of each row
    V[np.arange(12), (y + 1) % 3] += np.geomspace(1e-3, 1.0, 12) * limit  # the violations
    violations, before = find_violations(part, V), part.share.copy()
    seen = part.visit(np.arange(12, dtype=np.uint32), 0.0, V, limit)
    stays = (violations >= SMALL * limit) | (limit > 1.0)
    assert np.sum(stays) == (12 if limit > 1.0 else 7)
    assert part.order[: seen.n_left].tolist() == np.flatnonzero(stays).tolist()
    assert np.array_equal((part.share != before).any(axis=1), stays)
