"""The passes that compute a feature map Phi: the second-order map, or a low-rank approximation of a kernel.

The second-order map (Jung, O'Leary & Tits 2008, (5.1)) is divided by the largest feature of all rows (5.2), which one
pass computes. A rank-r approximation of a kernel matrix K (ibid., section 4) is one of three:

    cholesky   pivoted incomplete Cholesky; each pass adds a block of pivots. The candidates of a block are drawn in
               proportion to their residuals (Chen, Epperly, Tropp & Webber 2022). The pivots are chosen among them
               in memory, the largest remaining residual first.
    nystrom    r rows drawn at random, which takes no pass.
    eigen      the r leading eigenvectors within a Cholesky approximation of rank 4 r; this takes one more pass.

The residual k(x, x) - |Phi(x)|^2 of a row is computed from that row alone, so the pivots do not depend on chunks
or tasks. The matrix of the eigenvectors comes from a sum over all rows, which the engine adds in a fixed tree.
Passes map a few rows at a time, so that a task needs little memory.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.kernels import feature_maps
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, slice_rows
from streamsvm.passes import Progress, Request, Requests, Scan, Step, Take, grows
from streamsvm.system.errors import InputError

BLOCKS = 10  # The pivots are chosen in this many blocks, one pass each.
CANDIDATES = 2  # This many candidates are drawn for each pivot.
EIGEN_SHARE = 4  # The eigenvectors are computed within an approximation of this many times the rank.
# the maximum number of reads of all rows for each map
PASSES = {"polynomial": 1, "nystrom": 0, "cholesky": BLOCKS, "eigen": BLOCKS + 1}


def add_largest_feature(totals: F64, rows: Rows) -> None:
    """Raise totals (1,) to the largest absolute value of a second-order feature before the division of (5.2)."""
    plain = feature_maps.PolynomialMap(int(rows.X.shape[1]))
    for part in feature_maps.split_rows(plain, rows.n_rows):
        totals[0] = max(totals[0], float(np.max(np.abs(plain.apply(slice_rows(rows.X, part))))))


def add_largest_diagonal(totals: F64, rows: Rows, kernel: Kernel) -> None:
    """Raise totals (1,) to the largest k(x, x) of the rows."""
    totals[0] = max(totals[0], float(np.max(feature_maps.measure_diagonal(kernel, rows.X))))


def add_residuals(totals: list[F64], rows: Rows, kernel: Kernel, pivots: Matrix, matrix: F64) -> None:
    """Append the residuals k(x, x) - |Phi(x)|^2 of the rows of a tile, (n,), to the list."""
    feature_map = feature_maps.KernelMap(kernel, pivots, matrix)
    found = feature_maps.measure_diagonal(kernel, rows.X)
    for part in feature_maps.split_rows(feature_map, rows.n_rows):
        found[part] -= np.sum(feature_map.apply(slice_rows(rows.X, part)) ** 2, axis=1)
    totals.append(found)


def add_gram(totals: F64, rows: Rows, kernel: Kernel, pivots: Matrix, matrix: F64) -> None:
    """Add Phi'Phi of the rows of a tile to totals (m, m). Phi (n, m): the features of the rows for all m pivots."""
    feature_map: Any = feature_maps.KernelMap(kernel, pivots, matrix)
    for part in feature_maps.split_rows(feature_map, rows.n_rows):
        features = feature_map.apply(slice_rows(rows.X, part))
        totals += features.T @ features


@dataclass(frozen=True)
class Settings:
    """The settings of a map: its kind, and the data from which it is computed.

    name: cholesky, nystrom, eigen or polynomial; polynomial ignores rank, seed and kernel. data: the name of the
    dataset in messages. n_rows, n_features: the numbers of rows and features of the dataset. rank: the number of
    features of the map. seed: the seed of the random numbers. kernel: the kernel to approximate.
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
        """The largest number of pivots. Pivots are rows from whose kernel values with x the map computes Phi(x)."""
        return min(self.n_rows, self.rank * (EIGEN_SHARE if self.name == "eigen" else 1))


@dataclass
class State:
    """The state of a run, which checkpoints save unchanged.

    passes: the number of reads of all rows so far. largest: the divisor of the second-order features, or the largest
    k(x, x). pivots: row numbers of the pivots in the order they were chosen. candidates: row numbers drawn for the next
    block; empty once the pivots are complete. left: the sum of all residuals, trace(K - Phi Phi'). gram (m, m): Phi'Phi
    over all rows for the m pivots; empty until computed. random: the state of the random number generator, as JSON.
    """

    random: str
    passes: int = 0
    largest: float = 0.0
    left: float = 0.0
    pivots: I64 = grows("p", dtype=np.int64)
    candidates: I64 = grows("c", dtype=np.int64)
    gram: F64 = grows("m", "m")
    row_numbers: ClassVar = ("pivots", "candidates")

    def check(self) -> None:
        """Raise ValueError if no run can have saved this state."""
        try:
            _restore_random(self.random)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"random is not the state of a random number generator ({error})") from error
        if len(self.gram) not in (0, len(self.pivots)) or self.passes < 0:
            raise ValueError("passes, pivots and gram do not match")


def start_state(settings: Settings) -> State:
    """Return the state before the first pass."""
    return State(_save_random(np.random.default_rng(settings.seed)))


def solve(settings: Settings, state: State) -> Requests:
    """Compute the map. Every `Step` carries the whole state, and a run resumed from it gives the same bits."""
    if settings.name == "polynomial" and not state.passes:
        largest = yield Scan(partial(np.zeros, 1), add_largest_feature, np.maximum)  # the divisor of (5.2)
        state = replace(state, passes=1, largest=float(largest[0]))
    elif settings.name == "nystrom":
        drawn = _restore_random(state.random).permutation(settings.n_rows)[: settings.rank]
        state = replace(state, pivots=np.sort(drawn))
    elif settings.name != "polynomial":
        state = yield from _find_pivots(settings, state)
    if settings.name == "eigen" and not len(state.gram):
        feature_map = yield from _take_map(settings.kernel, state.pivots)
        shared = (settings.kernel, feature_map.rows, feature_map.matrix)
        gram = yield Scan(partial(np.zeros, (len(state.pivots),) * 2), add_gram, operator.add, shared)
        state = replace(state, passes=state.passes + 1, gram=gram)
    yield _step(state, "done")


def make_map(settings: Settings, state: State, pivots: Matrix) -> feature_maps.FeatureMap:
    """Return the map of a finished state; pivots: the rows with the numbers `state.pivots`."""
    if settings.name == "polynomial":
        return feature_maps.PolynomialMap(settings.n_features, state.largest)
    make = feature_maps.make_nystrom_map if settings.name == "nystrom" else feature_maps.make_cholesky_map
    feature_map = make(settings.kernel, pivots)
    if not feature_map.matrix.shape[1]:
        raise InputError(f"{settings.data}: the kernel is zero on all rows that were drawn")
    if settings.name == "eigen":
        feature_map = feature_maps.truncate(feature_map, state.gram, settings.rank)
    return replace(feature_map, approximation=settings.name)


def _find_pivots(settings: Settings, state: State) -> Generator[Request | Step, Any, State]:
    """Choose pivots block by block; the candidates of the first block are drawn at random."""
    kernel, rank = settings.kernel, settings.n_pivots
    block = max(1, -(-rank // BLOCKS))
    if not state.passes:
        largest = yield Scan(partial(np.full, 1, -np.inf), add_largest_diagonal, np.maximum, (kernel,))
        rng = _restore_random(state.random)
        drawn = np.sort(rng.permutation(settings.n_rows)[: CANDIDATES * block])
        state = State(_save_random(rng), passes=1, largest=float(largest[0]), candidates=drawn)
        yield _step(state)
    feature_map = (yield from _take_map(kernel, state.pivots)) if len(state.pivots) else None
    while len(state.candidates):
        taken, pivots = (yield Take(state.candidates)).X, state.pivots
        least, number = feature_maps.LEAST_PIVOT * state.largest, min(block, rank - len(pivots))
        residual = feature_maps.compute_block(kernel, taken, taken)
        if feature_map is not None:
            features = feature_map.apply(taken)
            residual -= features @ features.T
        chosen = feature_maps.choose_pivots(residual, number, least)
        pivots = np.concatenate((pivots, state.candidates[chosen]))
        if len(chosen):
            feature_map = yield from _take_map(kernel, pivots)
        if feature_map is None:
            raise InputError(f"{settings.data}: the kernel is zero on all rows that were drawn")
        if len(pivots) >= rank or (len(chosen) < block and len(pivots) > len(chosen)):
            return replace(state, pivots=pivots, candidates=state.candidates[:0])
        shared = (kernel, feature_map.rows, feature_map.matrix)
        residuals = np.concatenate((yield Scan(list, add_residuals, operator.add, shared)))
        state = _draw_candidates(replace(state, pivots=pivots), residuals, CANDIDATES * block)
        yield _step(state)
    return state


def _take_map(kernel: Kernel, pivots: I64) -> Generator[Request | Step, Any, feature_maps.KernelMap]:
    return feature_maps.make_cholesky_map(kernel, (yield Take(pivots)).X)


def _draw_candidates(state: State, residuals: F64, number: int) -> State:
    """Draw the next candidates in proportion to the residuals; draw none if all residuals are zero."""
    rng, residuals = _restore_random(state.random), np.maximum(residuals, 0.0)
    whole, wanted = np.sum(residuals), min(number, int(np.count_nonzero(residuals)))
    candidates = state.candidates[:0]
    if wanted:
        candidates = np.sort(rng.choice(len(residuals), wanted, replace=False, p=residuals / whole))
    return replace(state, passes=state.passes + 1, left=float(whole), candidates=candidates, random=_save_random(rng))


def _step(state: State, status: str | None = None) -> Step:
    return Step(state, Progress(state.left, None, state.passes), status)


def _save_random(rng: np.random.Generator) -> str:
    return json.dumps(rng.bit_generator.state)


def _restore_random(text: str) -> np.random.Generator:
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(text)
    return rng
