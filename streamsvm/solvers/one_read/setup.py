"""The setup of `one-read` for the rows of a source: the number of resident rows, memory, and model."""

from __future__ import annotations

from dataclasses import replace

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions, count_driver_threads
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.solvers.cutting_plane import smoothed_newton
from streamsvm.solvers.cutting_plane.cuts import cut_bytes, most_cuts
from streamsvm.solvers.cutting_plane.line_search import LEADING_PASSES, totals_bytes
from streamsvm.solvers.cutting_plane.line_search_setup import TwoSolvers, make_line_search, read_parameters
from streamsvm.solvers.cutting_plane.smoothed_newton import PARTS
from streamsvm.solvers.one_read.solver import LINE_POINTS, MOST_OWN, solve
from streamsvm.solvers.one_read.state import GROUP_SHARE, HELD_SHARE, OneRead, State, start_state
from streamsvm.solvers.one_read.trust_region import INNER_STEPS, KEPT_POINTS, POINTS, TILE_ROWS
from streamsvm.solvers.options import CuttingPlane
from streamsvm.solvers.solver import Budget, DualWatch, FirstSample, LinearSolver, Solver, describe_parameters
from streamsvm.system.machine import format_bytes

ROW_VECTORS = 24  # vectors of 8 bytes for each row of a problem in memory
MATRICES = 6 + 2 * PARTS  # matrices (width, width): norms, Newton's matrix in parts, and sums of these parts
HELD = 6  # a group may take this many times its kept rows while it is read: more rows, and copies of some
SHARE = 10  # at least one row in SHARE is resident if memory allows
ROWS_A_FEATURE = 8  # with fewer resident rows per feature, the sample's minimiser is too far away
LAW_SHARE = 0.13  # a share of (n d)^(2/3) rows: with fewer resident rows, ascent on blocks takes fewer reads
SMALL_ROWS = 3000  # at least this many rows are resident if memory allows, so that small data takes one pass
COPIES = GROUP_SHARE + 1  # copies of the resident rows when a pass ends: the gathered rows, and the rows chosen
MORE_ROWS = "{:,} rows are kept in memory. With {:,} rows{}, the data would be read fewer times."
MORE_MEMORY = ", which need {} more memory"
THREADS = 8  # memory is reserved for the totals of this many threads, whatever the machine has
STREAMS = 2  # memory is also reserved for this many streams of rows
FEW_ROWS = 20_000  # with fewer rows, both `one_read` and ascent take a fraction of a second
ASCENT_ROW, ASCENT_NUMBER = 1e-6, 8e-9  # seconds of ascent for each row, and for each number in the rows
NEWTON_ROW, NEWTON_WIDTH = 2.5e-10, 100  # seconds for each row of the sample: NEWTON_ROW d (d + NEWTON_WIDTH)
FIXED, PASS_ROW, PASS_NUMBER = 0.03, 1e-7, 2.5e-9  # seconds of one read: in all, for each row, and for each number
LINE_ROW, LINE_NUMBER = 2e-8, 1.2e-9  # seconds of a pass of a line search for each row, and for each number
MEMORY_SHARE = 1.5  # two thirds of the spare memory are for resident rows, including the rows in the totals


def choose_parameters(source: RowSource, options: TrainOptions, own: CuttingPlane, budget: Budget) -> OneRead:
    """Return the parameters with the requested number of resident rows, or as many as fit into memory."""
    common = {"seed": options.seed, "sets_aside": own.scratch is not None, **read_parameters(source, options, own)}
    common["threads"] = count_driver_threads(options)
    parameters = OneRead(resident_rows=0, **common)
    need = make_solver(source, parameters).memory(1)
    other_bytes = need.driver_bytes + 3 * THREADS * need.totals_bytes + STREAMS * source.stream_bytes()

    def count(wanted: int, row_bytes: int) -> int:
        return budget.count_rows(source.n_rows, options.resident_rows, row_bytes, other_bytes, wanted)

    wanted = max(source.n_rows // SHARE, SMALL_ROWS, count_enough(source), round(_count_by_law(source)))
    number = count(wanted, _find_resident_bytes(source, COPIES + 1))
    if number <= HELD_SHARE * source.n_rows:  # the first sample is then not held, which leaves memory for more rows
        wanted = max(number, min(wanted, int(HELD_SHARE * source.n_rows)))
        number = count(wanted, _find_resident_bytes(source, COPIES))
    return replace(parameters, resident_rows=number)


def count_enough(source: RowSource) -> int:
    """Return the number of resident rows with which `one-read` takes no more reads than ascent on blocks.

    The result is at most the number of rows. The number of rows needed for a single read grows with (n d)^(2/3)
    (docs/solvers/one_read.md).
    """
    return min(source.n_rows, max(count_least(source), round(LAW_SHARE * _count_by_law(source))))


def count_least(source: RowSource) -> int:
    """Return the least number of resident rows for a useful sample: ROWS_A_FEATURE rows for each entry of w."""
    return ROWS_A_FEATURE * (source.n_features + 1)


def _count_by_law(source: RowSource) -> float:
    return float(float(source.n_rows * source.n_features) ** (2 / 3))


def weigh_solvers(source: RowSource) -> tuple[float, float, float]:
    """Return about how many seconds of a processor three solvers take if all rows fit into memory.

    The solvers are ascent on blocks, `one_read`, and the first passes of a leading line search. The first two read the
    data once. The time of ascent grows with the numbers in the rows. One read takes less time for each row, but solves
    the problem of a sample by matrices (d, d). The rows of a line search stay in the operating system's cache of files
    after the first of its passes (benchmarks/defaults.py).
    """
    n, d = source.n_rows, source.n_features
    numbers = source.nbytes / 4 / (2 if source.is_sparse else 1)
    sample = min(n, max(n / SHARE, SMALL_ROWS, _count_by_law(source)))
    ascent = ASCENT_ROW * n + ASCENT_NUMBER * numbers
    one_read = FIXED + NEWTON_ROW * sample * d * (d + NEWTON_WIDTH) + PASS_ROW * n + PASS_NUMBER * numbers
    return ascent, one_read, LEADING_PASSES[0] * (LINE_ROW * n + LINE_NUMBER * numbers)


def describe_more_rows(source: RowSource, options: TrainOptions, resident_rows: int, kept: int) -> str:
    """Return a note on how many more resident rows, and how much more memory, would save reads; "" if none would.

    resident_rows: the number of rows that fits for `one-read`. kept: the number of rows kept by the solver that was
    chosen.
    """
    enough = count_enough(source)
    if kept >= enough:
        return ""
    more_bytes = (enough - resident_rows) * _find_resident_bytes(source, COPIES + 1)
    is_known = options.resident_rows is None and resident_rows > 0  # if no rows fit, even more memory may be missing
    more = MORE_MEMORY.format(format_bytes(more_bytes)) if is_known else ""
    return MORE_ROWS.format(kept, enough, more)


class OneReadSolver(LinearSolver):
    """The solver that selects the rows near the margin in one read, and solves the problem of these rows exactly."""

    name, compiled, n_starts = "cutting-plane", ("one-read",), 1

    def __init__(self, source: RowSource, parameters: OneRead, note: str, scratch: str | None) -> None:
        self.source, self.parameters, self.bias_feature = source, parameters, parameters.bias_feature
        self.note, self.scratch, width = note, scratch, source.n_features + 1
        # "sets_aside" is absent in the runs of earlier versions
        left_out = ("seed", "threads", *(() if parameters.sets_aside else ("sets_aside",)))
        self.settings = {"acceleration": "one-read", **describe_parameters(parameters, *left_out)}
        self.dual = DualWatch("cuts", width, most_cuts(width), n_own=MOST_OWN * parameters.resident_rows)
        self.sample = FirstSample(parameters.resident_rows, parameters.holds_sample(source.n_rows))

    def start(self) -> State:
        """Return the state at w = 0."""
        source = self.source
        return start_state(self.parameters, source.n_rows, source.n_features, source.is_shuffled)

    def start_at(self, w: F64) -> State:
        """Return the initial state. Its first centre is w, unless the sample shows that w is far from the optimum."""
        return replace(self.start(), best_w=w, centre=w, points=w[None, :])

    def solve(self, state: State) -> Requests:
        """Yield the passes of the solver, step by step."""
        return solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:  # noqa: ARG002
        """Return the memory of the solver and of its resident rows."""
        n, parameters = self.source.n_rows, self.parameters
        copies = COPIES + parameters.holds_sample(n)
        return need_memory(self.source, parameters, parameters.resident_rows / n, copies)


def make_solver(
    source: RowSource, parameters: OneRead, note: str = "", scratch: str | None = None, leads: bool = False
) -> Solver:
    """Return the solver with an accompanying line search, and with a note for users.

    scratch: the folder for rows set aside. The line search reads all rows, so with a scratch folder it waits until the
    solver is slow. leads: whether the line search runs first, alone (line_search.LEADING_PASSES).
    """
    first = OneReadSolver(source, parameters, note, scratch)
    alone = parameters.sets_aside
    return TwoSolvers(first, make_line_search(source, parameters, alone), parameters.tol, alone, leads=leads)


def need_memory(source: RowSource, parameters: OneRead, share: float, copies: int) -> MemoryNeed:
    """Return the memory of passes over a source; copies: the number of copies of the resident rows.

    share: the number of resident rows divided by the number of rows read. Each group keeps GROUP_SHARE times this
    fraction of its rows.
    """
    width, row_bytes = source.n_features + 1, _find_row_bytes(source)
    rows_bytes, group_rows = parameters.resident_rows * row_bytes, source.n_rows // len(plan_groups(source))
    sample_cuts = KEPT_POINTS + 2 * INNER_STEPS
    cuts_bytes = cut_bytes(width, most_cuts(width))
    turn_bytes = cut_bytes(width, most_cuts(width) + sample_cuts) - cuts_bytes
    turn_bytes += 8 * width * (3 * sample_cuts + 4 * (POINTS + 3)) + 32 * TILE_ROWS * (KEPT_POINTS + 1)
    turn_bytes += 8 * (ROW_VECTORS * parameters.resident_rows + MATRICES * width**2)
    turn_bytes += smoothed_newton.count_bytes(parameters.resident_rows, width)
    driver_bytes = copies * rows_bytes + cuts_bytes + turn_bytes
    totals = sums_bytes(width) + HELD * (int(group_rows * share) + 1) * row_bytes
    shared = 8 * 2 * ((POINTS + 7) * width + width**2)  # twice, since passes of several fits in one read copy these
    return MemoryNeed(driver_bytes, turn_bytes, totals, shared, gathered_bytes=GROUP_SHARE * rows_bytes)


def sums_bytes(width: int) -> int:
    """Return the bytes of one task's totals, without the kept rows."""
    return 2 * totals_bytes(LINE_POINTS, width) + 8 * (POINTS + 4) * (width + 2)


def _find_row_bytes(source: RowSource) -> int:
    return source.nbytes // source.n_rows + 64


def _find_resident_bytes(source: RowSource, copies: int) -> int:
    """Return the bytes per resident row: its copies, and its part of the problems and of the totals."""
    held = 3 * THREADS * HELD / len(plan_groups(source))
    row_bytes = _find_row_bytes(source)
    own = 8 * ROW_VECTORS + (copies + held) * row_bytes
    sent = GROUP_SHARE * row_bytes  # bytes of a row that workers send to the driver
    return round(max(MEMORY_SHARE * own, own + sent))
