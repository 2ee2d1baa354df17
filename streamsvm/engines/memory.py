"""Memory: projected before a run by plain arithmetic, refused if over the budget, measured afterwards.

The budget is for the whole resident memory of a process, the interpreter and its libraries included. Data files are
read, never mapped, so no page of theirs is counted; the libraries' own file pages are reported apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.errors import MemoryBudgetError
from streamsvm.machine import format_bytes

SLACK_BYTES = 48 << 20  # garbage between collections, thread stacks, messages in flight
REMEDY = "use fewer --threads, or ingest with a smaller --chunk-bytes"


@dataclass(frozen=True)
class MemoryPlan:
    """What one process will need. parts: bytes by name; pin_bytes: what is left of the budget for pinned chunks."""

    budget_bytes: int
    parts: dict[str, int]
    pin_bytes: int

    @property
    def projected_bytes(self) -> int:
        """Sum of all parts, pinned chunks included."""
        return sum(self.parts.values()) + self.pin_bytes


def plan_memory(
    budget_bytes: int, base_bytes: int, threads: int, stream_bytes: int, totals_bytes: int, solver_bytes: int,
    data_bytes: int, remedy: str = REMEDY,
) -> MemoryPlan:  # fmt: skip
    """Project a process: base + threads * (stream + 3 totals) + solver + slack; what is left may hold chunks.

    A task that combines holds three totals: two and their sum.

    Raises MemoryBudgetError if that is over the budget without a single pinned chunk; remedy: the knobs that it names.
    """
    parts = {
        "interpreter and libraries": base_bytes,
        f"streaming on {threads} thread{'s' * (threads > 1)}": threads * (stream_bytes + 3 * totals_bytes),
        "solver": solver_bytes,
        "slack": SLACK_BYTES,
    }
    needed = sum(parts.values())
    if needed > budget_bytes:
        listed = ", ".join(f"{name} {format_bytes(value)}" for name, value in parts.items())
        raise MemoryBudgetError(
            f"{format_bytes(needed)} of memory are needed ({listed}) but the budget is {format_bytes(budget_bytes)}: "
            f"raise --memory to at least {format_bytes(needed, up=True)}, {remedy}"
        )
    return MemoryPlan(budget_bytes, parts, min(budget_bytes - needed, int(data_bytes * 1.05) + (1 << 20)))
