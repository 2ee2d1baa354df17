"""The set-up of the linear SVM by cutting planes.

Two solvers keep rows near the margin in memory: `one-read`, and ascent on blocks. The number of features and the memory
determine which of the two is used, and how many rows it keeps. This module also has the parameters, memory and model of
the ascent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.certificates.double_double import add_exact, start_exact
from streamsvm.data.rows.source import RowSource
from streamsvm.losses.hinge import add_to_totals
from streamsvm.numeric.rounding import add_row_magnitudes
from streamsvm.numeric.row_norms import bound_rows, make_norm, measure_rows
from streamsvm.numeric.rows import Rows, compute_scores_of_parts
from streamsvm.options import BUDGET_SHARE, TrainOptions
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.solvers.cutting_plane import block_ascent, line_search, line_search_setup
from streamsvm.solvers.cutting_plane.block_ascent import MOST_BESIDE, NEWTON_FEATURES, BlockAscent, count_terms
from streamsvm.solvers.cutting_plane.coordinate_ascent import ascend, make_part
from streamsvm.solvers.cutting_plane.cuts import exact_bytes
from streamsvm.solvers.cutting_plane.line_search_setup import TwoSolvers, make_line_search, read_parameters
from streamsvm.solvers.cutting_plane.small_qp import MATRICES, MOST_ROWS, PRODUCTS, ROW_COPIES, can_refine
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows, Linear, minimise_few, search_line
from streamsvm.solvers.one_read import setup as one_read
from streamsvm.solvers.options import CuttingPlane
from streamsvm.solvers.solver import Budget, DualWatch, LinearSolver, Solver, describe_parameters
from streamsvm.system.errors import InputError
from streamsvm.system.files import is_remote

COPIES = 4  # copies of the kept rows while new rows are chosen, and of a block while the next block is read
ROW_VECTORS = 12  # vectors of 8 bytes for each row in memory: labels, costs, shares, distances, orders
NEWTON_VECTORS = 12  # vectors of 8 bytes for each row in memory, if Newton's method takes over
NEWTON_MATRICES = 4  # matrices of all pairs of features
PATH_MATRICES = 7  # replaces NEWTON_MATRICES for few rows, whose w an interior-point method may have to find
SHARES = 6  # vectors of 8 bytes for each row of the source: shares of two states, of a checkpoint, and of the walk
VECTORS = 27  # vectors of the width of w
MOST_FEATURES = 400  # with more features, the matrices of `one-read` cost more than the reads it saves
LEADING = "Few rows are resident, so passes of a line search come first: they take less time than those of one-read."
IN_CACHE = "All rows fit into memory, so passes of a line search come first: they take about {:.2g} s of a processor, "
IN_CACHE += "and one-read about {:.2g} s."
LONG_SECONDS = 1.0  # with all rows in memory, a line search leads only if one read takes longer than this
BY_PRICE = "With all rows in memory, block-ascent takes about {:.2g} s of a processor, and one-read {:.2g} s."
MOST_BYTES = 256 << 20  # the largest arrays in memory for ascent; above, one read is faster, as it uses threads
TOO_MANY_FEATURES = f"The data are read in blocks, because one-read supports at most {MOST_FEATURES} features and the "
TOO_MANY_FEATURES += "rows have {:,}."
NO_SCRATCH = "the option scratch has no effect with acceleration={}, which is used here; remove the option"
NO_ROWS = "The memory limit leaves no room for resident rows, which would reduce the number of reads of the data."


class BlockAscentSolver(LinearSolver):
    """Dual coordinate ascent on one block of the rows at a time, with the rows near the margin kept in memory."""

    name = "cutting-plane"
    compiled: tuple[str, ...] = ("cutting-plane", "ascent")
    n_shares = 1  # number of shares per row
    has_substitutes = True  # whether other methods solve the problem of rows in memory where the ascent is slow

    def __init__(self, source: RowSource, parameters: BlockAscent) -> None:
        self.source, self.parameters, self.bias_feature = source, parameters, parameters.bias_feature
        self.width = source.n_features + 1
        self.starts_warm = parameters.keeps_all  # fits with walks begin together, to share their walks
        about = describe_parameters(parameters, "seed", "chunk_starts")
        self.settings = {"acceleration": "block-ascent", **about}
        self.dual = DualWatch(kind="shares", width=self.width, most_cuts=0, n_rows=source.n_rows)

    def start(self) -> Any:
        """Return the state at w = 0, with all shares 0."""
        return self.parameters.start(self.source.n_features)

    def warm_start(self, before: Any, factor: float) -> Any:
        """Return the initial state for costs `factor` times larger, with the shares of the state `before`."""
        return block_ascent.warm_state(self.parameters, before, factor)

    def solve(self, state: Any) -> Requests:
        """Yield the walks and passes of the solver, step by step."""
        return block_ascent.solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory for the shares of all rows, the kept rows, and a block in a walk."""
        parameters, width = self.parameters, self.width
        row_bytes, sums_bytes = self._find_row_bytes(), self._count_sum_bytes()
        n, keeps_all, kept_bytes = self.source.n_rows, parameters.keeps_all, parameters.kept_rows * row_bytes
        shares_bytes, walk_bytes = 8 * self.n_shares * n, 0
        if not keeps_all:
            block = max(map(parameters.count_rows, parameters.list_blocks()))
            walk_bytes = (COPIES - 1) * kept_bytes + COPIES * block * row_bytes + 2 * sums_bytes + n
        rows_bytes, more_bytes = kept_bytes * (2 if keeps_all else 1), self._count_more_bytes()
        driver = SHARES * shares_bytes + rows_bytes + more_bytes + 8 * VECTORS * width
        turn = 8 * VECTORS * width // 2 + (more_bytes if n <= MOST_ROWS else 0)
        shared = 8 * 4 * width + exact_bytes(width) + (0 if keeps_all else 2 * shares_bytes + kept_bytes)
        return MemoryNeed(driver, turn, sums_bytes if keeps_all else 0, shared, walk_bytes)

    def _find_row_bytes(self) -> int:
        return self.source.nbytes // self.source.n_rows + 8 * ROW_VECTORS

    def _count_sum_bytes(self) -> int:
        """Return the bytes of the sums of a pass."""
        return line_search.totals_bytes(1, self.width) + 16 * self.width + 2 * exact_bytes(self.width)

    def _count_more_bytes(self) -> int:
        """Return the bytes that the ascent's substitutes need: methods for few rows, and for all rows in memory."""
        n, width, more = self.source.n_rows, self.width, 0
        if self.parameters.keeps_all and self.source.n_features <= NEWTON_FEATURES:
            matrices = PATH_MATRICES if n <= MOST_ROWS else NEWTON_MATRICES
            more += 8 * (NEWTON_VECTORS * n + matrices * width**2)
        if n <= MOST_ROWS:
            more += 8 * (MATRICES * n**2 + ROW_COPIES * n * width if can_refine(n, width) else PRODUCTS * n**2)
        return more

    def beside_line_search(self) -> Solver:
        """Add an accompanying line search, which proves the optimum if extreme scales slow this solver down.

        If the ascent has no substitutes and there are few rows, the line search runs from the start, because its passes
        then take almost no time.
        """
        if self._is_wide():
            return self
        alone, parameters = self.has_substitutes or self.source.n_rows > MOST_ROWS, self.parameters
        return TwoSolvers(self, self._make_line_search(alone), parameters.tol, alone, count_terms(parameters))

    def _is_wide(self) -> bool:
        return self.source.n_features > MOST_BESIDE

    def _make_line_search(self, alone: bool) -> Solver:
        return make_line_search(self.source, self.parameters, alone)

    def fit_into(self, budget: Budget, asked: int | str | None) -> Solver | None:
        """Return the solver with the requested resident rows, or as many as fit; return None if too few fit.

        If there are few enough rows for the interior-point method, all of them are always resident.
        """
        n, stream_bytes, whole = self.source.n_rows, self.source.stream_bytes(), self._keep(self.source.n_rows)
        if n <= MOST_ROWS:
            return whole
        if asked is None and BUDGET_SHARE * _held_bytes(whole) + stream_bytes <= budget.spare_bytes:
            return whole
        other_bytes = _held_bytes(self._keep(1)) + stream_bytes
        number = budget.count_rows(n, asked, BUDGET_SHARE * COPIES * self._find_row_bytes(), other_bytes)
        return self._keep(number) if number else None

    def _keep(self, resident_rows: int) -> Solver:
        return type(self)(self.source, replace(self.parameters, resident_rows=resident_rows)).beside_line_search()


def _held_bytes(solver: Solver) -> int:
    need = solver.memory(1)
    return need.driver_bytes + need.walk_bytes


def _set_up_blocks(source: RowSource, options: TrainOptions, own: CuttingPlane, budget: Budget) -> Solver | None:
    """Return the ascent on blocks with the requested resident rows, or as many as fit; return None if too few fit."""
    common = {"seed": options.seed, **read_parameters(source, options, own)}
    starts = tuple(int(start) for start in source.chunk_starts)
    parameters = BlockAscent(resident_rows=source.n_rows, chunk_starts=starts, **common)
    return BlockAscentSolver(source, parameters).fit_into(budget, options.resident_rows)


def _hold_rows(source: RowSource, options: TrainOptions, own: CuttingPlane, budget: Budget) -> Solver | None:
    """Return a solver with the requested resident rows, or as many as fit; return None if too few fit.

    Data with more than MOST_FEATURES features use ascent on blocks. Other data use one read if enough rows fit and
    ascent is not faster. Ascent is faster in three cases: for arrays in memory, unless they are too large for one
    thread; for more than FEW_ROWS stored rows that all fit into memory, if its price is lower; and if few rows can be
    resident, because ascent then needs fewer reads. Ascent holds the shares of all rows. If the shares do not fit into
    memory, one read is used instead, unless its sample would be too small. A pass of a line search takes less time than
    a pass of one read. So a line search comes first if the sample of one read is small, or if one read would take long
    and all rows fit into memory, from which they are read quickly.
    """
    if own.acceleration == "block-ascent" or source.n_features > MOST_FEATURES:
        chosen = _set_up_blocks(source, options, own, budget)
        if chosen is not None and own.acceleration == "one-read":
            chosen.note = TOO_MANY_FEATURES.format(source.n_features)
        return chosen
    seconds, is_free = one_read.weigh_solvers(source), own.acceleration != "one-read"
    is_weighed = is_free and source.on_disk and source.n_rows > one_read.FEW_ROWS
    reason = BY_PRICE.format(*seconds[:2]) if is_weighed else ""
    is_faster = seconds[0] < seconds[1] if is_weighed else not source.on_disk and source.nbytes <= MOST_BYTES
    if is_free and is_faster:
        chosen = _set_up_blocks(source, options, own, budget)
        if chosen is not None and chosen.settings["resident_rows"] == source.n_rows:
            chosen.reason = reason
            return chosen
    parameters = one_read.choose_parameters(source, options, own, budget)
    number = parameters.resident_rows
    is_least = number >= one_read.count_least(source)
    is_short = number < one_read.count_enough(source)
    if is_short and (is_free or not is_least):
        chosen = _set_up_blocks(source, options, own, budget)
        if chosen is not None:
            kept = chosen.settings["resident_rows"]
            chosen.note = one_read.describe_more_rows(source, options, number, kept)
            return chosen
        if not is_least:
            return None
    note = one_read.describe_more_rows(source, options, number, number)
    is_local = not is_remote(source.name)  # each read of a store takes longer than what a line search saves in a pass
    is_long = seconds[1] > LONG_SECONDS and seconds[2] < seconds[1]
    in_cache = is_long and source.on_disk and source.nbytes <= budget.spare_bytes
    leads = (is_short or in_cache) and is_free and own.scratch is None and is_local
    if leads and options.resident_rows is None:  # if the line search fails, its best point makes up for a small sample
        parameters = replace(parameters, resident_rows=min(number, one_read.count_enough(source)))
    solver = one_read.make_solver(source, parameters, note, own.scratch, leads)
    if leads:
        solver.reason = LEADING if is_short else IN_CACHE.format(seconds[2], seconds[1])
    elif seconds[1] <= seconds[0]:  # otherwise the rows do not all fit into memory
        solver.reason = reason
    return solver


def set_up(source: RowSource, options: TrainOptions, own: CuttingPlane, budget: Budget) -> Solver:
    """Return a solver with resident rows if enough rows fit, unless the options request another solver."""
    asked_for_stop = own.epsilon is not None or own.max_cuts is not None
    acceleration, note = own.acceleration, ""
    if acceleration == "auto" and asked_for_stop:
        acceleration = "line-search"
    if acceleration not in ("line-search", "none"):
        if asked_for_stop:
            raise InputError(
                f"epsilon and max_cuts cannot be used with acceleration={acceleration}: choose line-search"
            )
        chosen = _hold_rows(source, options, own, budget)
        if chosen is not None and own.scratch is not None and chosen.scratch is None:
            raise InputError(NO_SCRATCH.format(chosen.settings["acceleration"]))
        if chosen is not None:
            return chosen
        acceleration, note = "line-search", NO_ROWS
    if own.scratch is not None:
        raise InputError(NO_SCRATCH.format(acceleration))
    if options.resident_rows is not None:
        raise InputError(
            f"resident rows cannot be used with acceleration={acceleration}: choose auto, or omit resident_rows"
        )
    common = {"epsilon": own.epsilon, "max_cuts": own.max_cuts, **read_parameters(source, options, own)}
    parameters = line_search.CuttingPlane(accelerated=acceleration == "line-search", **common)
    return line_search_setup.LineSearchSolver(source, parameters, note)


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions of one group: "one-read", "ascent", or any other name for cuts and losses."""
    data = HingeRows(rows, np.ones(2), np.ones(2), 1.0)
    if group == "one-read":
        norm = make_norm(rows, 1.0)
        measure_rows(norm, rows, 1.0)
        bound_rows(norm.bound_by_squares(), rows, 1.0)
        minimise_few(data, Linear(np.zeros(3), 0.0), 1.0, np.zeros(3))
        search_line(-1.0, 1.0, *np.ones((4, 2)), 1.0)
        return
    if group == "ascent":
        part = make_part(rows, np.ones(2), 1.0, np.zeros(2))
        ascend([part], 1.0, np.zeros(3), 0.0, 0.0, 1, (0,))
        data.add_products(np.arange(2), np.ones(2))
        minimise_few(data, Linear(np.zeros(3), 0.0), 1.0, np.zeros(3))
        return
    add_to_totals(line_search.start_totals(1, 3), rows, np.zeros((2, 3)), np.ones(2), np.ones(1), 1.0)
    compute_scores_of_parts(rows.X, np.zeros((1, 2)), np.zeros(2, np.int64), np.array([0, 2]))
    line_search.add_points(line_search.start_points(2, 3), rows, np.zeros((2, 3)), np.ones(2), 1.0)
    add_row_magnitudes(np.zeros(3), np.zeros(3), rows.X, np.ones(2))
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), np.ones(2))
