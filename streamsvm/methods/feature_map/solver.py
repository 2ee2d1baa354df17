"""The passes that find a feature map: products Phi(x).Phi(z) are those of second order, or approximate a kernel.

The second-order map (Jung, O'Leary & Tits 2008, (5.1)) is divided by the largest feature of all rows (5.2), which one
pass finds. An approximation of a kernel matrix K by rank r (ibid., section 4) is one of three:

    cholesky   pivoted incomplete Cholesky; each pass adds a block of pivots. The candidates of a block are drawn in
               proportion to their residuals (Chen, Epperly, Tropp & Webber 2022). The pivots are chosen among them
               in memory, the largest remaining residual first.
    nystrom    r rows that are drawn at random; this takes no pass.
    eigen      the r leading eigenvectors within a Cholesky approximation of rank 4 r; this takes one more pass.

The residual k(x, x) - |Phi(x)|^2 of a row is computed from that row alone, so any chunks and tasks find the same
pivots. The matrix of the eigenvectors is made from a sum over all rows, which the engine adds up in its fixed tree.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.errors import InputError
from streamsvm.methods.feature_map.passes import (
    add_gram,
    add_largest_diagonal,
    add_largest_feature,
    add_residuals,
    join_residuals,
)
from streamsvm.numeric.feature_maps import (
    LEAST_PIVOT,
    FeatureMap,
    KernelMap,
    PolynomialMap,
    choose_pivots,
    compute_block,
    make_cholesky_map,
    make_nystrom_map,
    truncate,
)
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64, I64, Matrix
from streamsvm.requests import Progress, Request, Scan, Solver, Step, Take

BLOCKS = 10  # The pivots are found in so many blocks, one pass each.
CANDIDATES = 2  # So many candidates are drawn for each pivot.
EIGEN_SHARE = 4  # The eigenvectors are found within an approximation of so many times the rank.
PASSES = {"polynomial": 1, "nystrom": 0, "cholesky": BLOCKS, "eigen": BLOCKS + 1}  # reads that find a map, at most


@dataclass(frozen=True)
class Settings:
    """Which map is made of which rows.

    name: cholesky, nystrom, eigen or polynomial; the last one does not read rank, seed and kernel. data: the name of
    the dataset in messages.
    """

    name: str
    data: str
    n_rows: int
    n_features: int
    rank: int = 0
    seed: int = 0
    kernel: Kernel = field(default_factory=Kernel)

    @property
    def n_pivots(self) -> int:
        """The largest number of pivots: rows whose kernel values with a row x make up Phi(x)."""
        return min(self.n_rows, self.rank * (EIGEN_SHARE if self.name == "eigen" else 1))


def _no_rows() -> I64:
    return np.empty(0, np.int64)


@dataclass
class State:
    """All that changes from step to step; it is saved as it is.

    passes: reads of all rows so far. largest: the divisor of the second-order features, or the largest k(x, x).
    pivots: numbers of the pivots in the order in which they were chosen. candidates: numbers of the rows that were
    drawn for the next block; empty once the pivots are complete. left: the sum of all residuals, trace(K - Phi Phi').
    gram (m, m): Phi'Phi over all rows for the m pivots; empty until it is known. random: the state of the random
    number generator, as JSON.
    """

    random: str
    passes: int = 0
    largest: float = 0.0
    left: float = 0.0
    pivots: I64 = field(default_factory=_no_rows)
    candidates: I64 = field(default_factory=_no_rows)
    gram: F64 = field(default_factory=lambda: np.empty((0, 0)))

    shapes: ClassVar = {"pivots": ("p",), "candidates": ("c",), "gram": ("m", "m")}
    row_numbers: ClassVar = ("pivots", "candidates")

    def check(self) -> None:
        """Raise ValueError for a state that no run can have saved."""
        try:
            _restore_random(self.random)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"random is no state of random numbers ({error})") from error
        if len(self.gram) not in (0, len(self.pivots)) or self.passes < 0:
            raise ValueError("passes, pivots and gram do not go together")


def start_state(settings: Settings) -> State:
    """Return the state before the first pass."""
    return State(_save_random(np.random.default_rng(settings.seed)))


def solve(settings: Settings, state: State) -> Solver:
    """Find the map; every `Step` carries the whole state, and a run that goes on from it finds the same bits."""
    if settings.name == "polynomial":
        state = yield from _find_largest(state)
    elif settings.name == "nystrom":
        state = _draw_pivots(settings, state)
    else:
        state = yield from _find_pivots(settings, state)
    if settings.name == "eigen":
        state = yield from _add_up_gram(settings, state)
    yield _step(state, "done")


def make_map(settings: Settings, state: State, pivots: Matrix) -> FeatureMap:
    """Return the map of a finished state; pivots: the rows that its numbers `state.pivots` name."""
    if settings.name == "polynomial":
        return PolynomialMap(settings.n_features, state.largest)
    make = make_nystrom_map if settings.name == "nystrom" else make_cholesky_map
    feature_map = make(settings.kernel, pivots)
    if settings.name == "eigen":
        feature_map = truncate(feature_map, state.gram, settings.rank)
    return replace(feature_map, approximation=settings.name)


def _find_largest(state: State) -> Generator[Request, Any, State]:
    """Find the largest second-order feature, the divisor of (5.2)."""
    if state.passes:
        return state
    largest = yield Scan(partial(np.zeros, 1), add_largest_feature, np.maximum)
    return replace(state, passes=1, largest=float(largest[0]))


def _draw_pivots(settings: Settings, state: State) -> State:
    """Draw the rows of a Nyström approximation."""
    rng = _restore_random(state.random)
    return replace(state, pivots=np.sort(rng.permutation(settings.n_rows)[: settings.rank]))


def _find_pivots(settings: Settings, state: State) -> Generator[Request, Any, State]:
    """Choose pivots block by block; the candidates of the first block are drawn at random."""
    kernel, rank = settings.kernel, settings.n_pivots
    block = max(1, -(-rank // BLOCKS))
    if not state.passes:
        state = yield from _begin(settings, state, CANDIDATES * block)
        yield _step(state)
    feature_map = (yield from _take_map(kernel, state.pivots)) if len(state.pivots) else None
    while len(state.candidates):
        taken, pivots = (yield Take(state.candidates)).X, state.pivots
        chosen = _choose(kernel, taken, feature_map, min(block, rank - len(pivots)), LEAST_PIVOT * state.largest)
        pivots = np.concatenate((pivots, state.candidates[chosen]))
        if len(chosen):
            feature_map = yield from _take_map(kernel, pivots)
        if feature_map is None:
            raise InputError(f"{settings.data}: the kernel is zero on all rows that were drawn")
        if len(pivots) >= rank or (len(chosen) < block and len(pivots) > len(chosen)):
            return replace(state, pivots=pivots, candidates=_no_rows())
        shared = (kernel, feature_map.rows, feature_map.matrix)
        residuals = np.concatenate((yield Scan(list, add_residuals, join_residuals, shared)))
        state = _draw_candidates(replace(state, pivots=pivots), residuals, CANDIDATES * block)
        yield _step(state)
    return state


def _begin(settings: Settings, state: State, number: int) -> Generator[Request, Any, State]:
    """Find the largest k(x, x), and draw the candidates of the first block."""
    rng = _restore_random(state.random)
    scan = Scan(partial(np.full, 1, -np.inf), add_largest_diagonal, np.maximum, (settings.kernel,))
    largest = float((yield scan)[0])
    candidates = np.sort(rng.permutation(settings.n_rows)[: min(settings.n_rows, number)])
    return replace(state, passes=1, largest=largest, candidates=candidates, random=_save_random(rng))


def _take_map(kernel: Kernel, pivots: I64) -> Generator[Request, Any, KernelMap]:
    return make_cholesky_map(kernel, (yield Take(pivots)).X)


def _choose(kernel: Kernel, taken: Matrix, feature_map: KernelMap | None, number: int, least: float) -> I64:
    """Return the places of the new pivots among the candidates `taken`."""
    residual = compute_block(kernel, taken, taken)
    if feature_map is not None:
        features = feature_map.apply(taken)
        residual -= features @ features.T
    return choose_pivots(residual, number, least)


def _draw_candidates(state: State, residuals: F64, number: int) -> State:
    """Draw the next candidates in proportion to the residuals; draw none if all residuals are zero."""
    rng, residuals = _restore_random(state.random), np.maximum(residuals, 0.0)
    whole, left = np.sum(residuals), int(np.count_nonzero(residuals))
    candidates = _no_rows()
    if left:
        wanted = min(number, len(residuals), left)
        candidates = np.sort(rng.choice(len(residuals), wanted, replace=False, p=residuals / whole))
    return replace(state, passes=state.passes + 1, left=float(whole), candidates=candidates, random=_save_random(rng))


def _add_up_gram(settings: Settings, state: State) -> Generator[Request, Any, State]:
    """Add up Phi'Phi over all rows."""
    if len(state.gram):
        return state
    feature_map = yield from _take_map(settings.kernel, state.pivots)
    shared = (settings.kernel, feature_map.rows, feature_map.matrix)
    gram = yield Scan(partial(np.zeros, (len(state.pivots),) * 2), add_gram, operator.add, shared)
    return replace(state, passes=state.passes + 1, gram=gram)


def _step(state: State, status: str | None = None) -> Step:
    return Step(state, Progress(state.left, None, state.passes), status)


def _save_random(rng: np.random.Generator) -> str:
    return json.dumps(rng.bit_generator.state)


def _restore_random(text: str) -> np.random.Generator:
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(text)
    return rng
