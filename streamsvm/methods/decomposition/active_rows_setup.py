"""How many rows of a source are active, and the memory of active rows and of the tiles of a pass."""

from __future__ import annotations

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes, default_threads
from streamsvm.methods.decomposition.options import OTHER_BYTES
from streamsvm.numeric.kernel_values import BLOCK_COLUMNS
from streamsvm.numeric.kernels import TILE_ROWS, TILE_VALUES
from streamsvm.options import BUDGET_SHARE, TrainOptions, count_resident

ACTIVE_COPIES = 3  # copies of the active rows that exist while they are taken
LEAST_ACTIVE_ROWS = 2048
ACTIVE_SHARE = 5  # one row in 5 is active, if memory allows: measured on Adult, Web and ijcnn1
WHOLE_ROWS = 16_384  # up to so many rows are all active, if all their kernel columns fit into memory
# Long rows (2 KiB or more) are all active as well, if kernel columns for a tenth of them fit into memory: a pass over
# long rows takes longer than computing columns.
WHOLE_BYTES = 2048
WHOLE_SHARE = 10
LEAST_TILE_ROWS = 64  # sparse rows in a dense tile, however many features they use
PRECISE_BYTES = 4 << 20  # rows of so many bytes can always be active in float64: OTHER_BYTES has room for them


def find_spare(source: RowSource, options: TrainOptions, held_bytes: int, active_bytes: int) -> int:
    """Return the bytes of the budget that are left for kernel columns, and for active rows above LEAST_ACTIVE_ROWS.

    held_bytes: what the driver holds of each row; active_bytes: what it holds of an active one besides the row itself.
    The result must not change when a run is resumed, or has more threads. So the other needs of the process are a round
    figure (OTHER_BYTES). If the budget is too small the result is zero, so the message names the least memory needed.
    """
    budget_bytes = options.memory_bytes or default_budget_bytes()
    least = held_bytes * source.n_rows + LEAST_ACTIVE_ROWS * _active_row_bytes(source, active_bytes)
    return max(0, budget_bytes - OTHER_BYTES - least)


def _active_row_bytes(source: RowSource, active_bytes: int) -> int:
    return int((ACTIVE_COPIES + 2) * find_row_bytes(source)) + active_bytes


def count_active(source: RowSource, wanted: int | str | None, spare_bytes: int, active_bytes: int) -> int:
    """Return the largest number of active rows.

    It is the number that was asked for. By default all rows are active if they are few or long, and otherwise a fifth
    of them, as far as the memory allows.
    """
    if wanted is None:
        fit = LEAST_ACTIVE_ROWS + spare_bytes // BUDGET_SHARE // _active_row_bytes(source, active_bytes)
        are_long = find_row_bytes(source) >= WHOLE_BYTES
        most, part = (source.n_rows, WHOLE_SHARE) if are_long else (WHOLE_ROWS, 1)
        if source.n_rows <= min(fit, most) and 4 * source.n_rows**2 // part <= spare_bytes // BUDGET_SHARE:
            return source.n_rows
        return min(source.n_rows, max(LEAST_ACTIVE_ROWS, min(source.n_rows // ACTIVE_SHARE, fit)))
    return count_resident(wanted, source.n_rows)


def count_precise(source: RowSource, resident_rows: int) -> int:
    """Return the largest number of active rows in float64."""
    return min(source.n_rows, max(resident_rows // 2, int(PRECISE_BYTES / find_row_bytes(source)), 2))


def count_pass_threads(source: RowSource, options: TrainOptions) -> int:
    """Return the threads of each task of a pass: more than 1 if this process has fewer tasks than threads."""
    elsewhere = options.workers is not None or options.scheduler is not None
    return 1 if elsewhere else max(1, (options.threads or default_threads()) // len(plan_groups(source)))


def find_row_bytes(source: RowSource) -> float:
    """Return the bytes of a row of the source, on average."""
    return max(1.0, source.nbytes / source.n_rows)


def count_tile_bytes(source: RowSource) -> int:
    """Return the bytes of a tile of rows in dense form and of its kernel values. Long sparse rows make them larger."""
    used = min(source.n_features, LEAST_TILE_ROWS * find_row_bytes(source) / 8) if source.is_sparse else 0
    values = max(TILE_VALUES, LEAST_TILE_ROWS * used)
    return int(8 * BLOCK_COLUMNS * TILE_ROWS + 4 * values + 4 * source.n_features)
