"""Cuts below a convex loss, and the master problem over them: what Algorithms 1 and 2 of Joachims 2006 share.

A cut says that the loss at any w is at least b_c - w.a_c; the costs are absorbed in a_c and b_c. The master problem

    min_w  1/2 |w|^2 + max(0, max_c b_c - w.a_c),      dual: max_z b'z - 1/2 z'Gz,  z >= 0, sum z <= 1,  w = sum z_c a_c

has a dual value that is a lower bound of P. Cuts that have been inactive for long are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

import numpy as np

from streamsvm.numeric.master_qp import solve_master
from streamsvm.numeric.rows import F64, I64

IDLE_STEPS = 40  # a cut that has been inactive for so many steps is dropped
STUCK_STEPS = 30  # neither bound has moved for so many steps: rounding is the limit
MASTER_SHARE = 0.05  # the master is solved to this share of the gap that is left or wanted


@dataclass
class CutState:
    """What a cutting-plane solver knows. best_w, master_w: (width,); cuts: (m, width); offsets, z, idle: (m,)."""

    best_w: F64
    master_w: F64
    cuts: F64
    offsets: F64 = field(default_factory=lambda: np.empty(0))
    z: F64 = field(default_factory=lambda: np.empty(0))
    gram: F64 = field(default_factory=lambda: np.empty((0, 0)))
    idle: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    objective: float = float("inf")
    lower_bound: float = 0.0
    slack: float = 0.0
    passes: int = 0
    stuck: int = 0
    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "best_w": ("d",), "cuts": ("m", "d"), "offsets": ("m",), "z": ("m",), "gram": ("m", "m"), "idle": ("m",),
    }  # fmt: skip


S = TypeVar("S", bound=CutState)


def most_cuts(width: int) -> int:
    """Cuts kept at once: 500, fewer where they would be more than 128 MiB, at least 64."""
    return int(np.clip((128 << 20) // (8 * width), 64, 500))


def cut_bytes(width: int, cuts: int) -> int:
    """Memory of so many cuts while they are copied, and of their products."""
    return 8 * width * 2 * cuts + 2 * 8 * cuts**2 + master_bytes(cuts)


def master_bytes(cuts: int) -> int:
    """Memory of solving the master problem: matrices of the cuts."""
    return 4 * 8 * cuts**2


def add_cuts(state: S, cuts: F64, offsets: F64, most: int) -> S:
    """Add those cuts that differ from the one before; drop the longest idle ones where there are more than `most`."""
    differs = np.concatenate(([True], np.any(np.diff(cuts, axis=0) != 0, axis=1)))
    cuts, offsets = cuts[differs], offsets[differs]
    keep = state.idle <= IDLE_STEPS
    if (excess := int(keep.sum()) + len(cuts) - most) > 0:
        expendable = np.lexsort((state.z, -state.idle))
        keep[expendable[keep[expendable]][:excess]] = False
    m = int(keep.sum())
    both = np.empty((m + len(cuts), cuts.shape[1]))  # the cuts may be most of the driver's memory: copied once
    old = np.take(state.cuts, np.flatnonzero(keep), axis=0, out=both[:m], mode="clip")
    both[m:] = cuts
    none = np.zeros(len(cuts))
    return replace(
        state,
        cuts=both,
        offsets=np.concatenate((state.offsets[keep], offsets)),
        z=np.concatenate((state.z[keep], none)),
        idle=np.concatenate((state.idle[keep], none.astype(np.int64))),
        gram=extend_products(state.gram[np.ix_(keep, keep)], old, cuts),
    )


def extend_products(gram: F64, old: F64, new: F64) -> F64:
    """Return the products of old cuts and new ones, given those of the old."""
    across = new @ old.T
    return np.block([[gram, across.T], [across, new @ new.T]])


def drop_cuts(state: S) -> S:
    """Return a state that holds no memory to speak of."""
    none = np.empty(0)
    cuts, gram, idle = state.cuts[:0].copy(), np.empty((0, 0)), np.empty(0, np.int64)
    return replace(state, cuts=cuts, offsets=none, z=none, gram=gram, idle=idle)


def minimise_master(state: S, tol: float) -> S:
    """Solve the master problem; its minimiser and the lower bound are the state's."""
    wanted = MASTER_SHARE * max(state.objective - state.lower_bound, tol * state.objective)
    solution = solve_master(state.gram, state.offsets, state.z, wanted)
    return replace(
        state,
        z=solution.z,
        master_w=solution.z @ state.cuts,
        lower_bound=min(max(state.lower_bound, solution.value), state.objective),  # equal but for rounding at most
        slack=max(0.0, float(np.max(state.offsets - state.gram @ solution.z))),
        idle=np.where(solution.z > 0, 0, state.idle + 1),
    )


def scale_costs(state: S, factor: float, tol: float) -> S:
    """Return the state from which to go on where all costs are so many times larger: the cuts stay cuts, scaled."""
    half = float(state.best_w @ state.best_w) / 2
    none = np.zeros(len(state.z))
    scaled = replace(
        state, cuts=factor * state.cuts, offsets=factor * state.offsets, gram=factor**2 * state.gram, z=none,
        idle=none.astype(np.int64), objective=half + factor * (state.objective - half), lower_bound=0.0, slack=0.0,
        passes=0, stuck=0,
    )  # fmt: skip
    return minimise_master(scaled, tol)


def count_pass(state: S, before: S, passes: int) -> S:
    """Count passes since the state before, and whether they have moved a bound."""
    moved = state.objective < before.objective or state.lower_bound > before.lower_bound * (1 + 1e-12)
    return replace(state, passes=before.passes + passes, stuck=0 if moved else before.stuck + 1)


def find_status(state: CutState, tol: float, epsilon: float | None, violation: float) -> str | None:
    """Converged: by the relative gap or, with epsilon, by the paper's stop, the violation of the worst cut."""
    if epsilon is None:
        done = state.objective - state.lower_bound <= tol * state.objective
    else:
        done = violation <= epsilon and state.passes > 1
    return "converged" if done else "stalled" if state.stuck >= STUCK_STEPS else None
