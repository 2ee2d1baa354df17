"""The memory plan: a run's memory is projected by plain arithmetic, and refused if it exceeds the budget.

The budget is for the whole resident memory of a process, interpreter and libraries included. Data files are read and
never mapped, so their pages do not count; the file pages of the libraries are reported separately after a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamsvm.errors import MemoryBudgetError
from streamsvm.machine import format_bytes

VARYING_BYTES = 1 << 20  # the interpreter and the libraries do not take the same memory in every process
SLACK_BYTES = 48 << 20  # garbage between two collections, stacks of threads, messages in flight
REMEDY = "use fewer --threads, or ingest with a smaller --chunk-bytes"


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that one process will need: bytes of each part by its name, and of the chunks that it will pin."""

    budget_bytes: int
    parts: dict[str, int]
    pin_bytes: int

    @property
    def spare_bytes(self) -> int:
        """The bytes of the budget that no part needs."""
        return self.budget_bytes - sum(self.parts.values())

    @property
    def projected_bytes(self) -> int:
        """Sum of all parts and the pinned chunks."""
        return sum(self.parts.values()) + self.pin_bytes

    def hold_more(self, nbytes: int) -> MemoryPlan:
        """Return the plan of the process if the solver holds more, which takes the place of chunks."""
        parts = {**self.parts, "solver": self.parts["solver"] + nbytes}
        return replace(self, parts=parts, pin_bytes=min(self.pin_bytes, self.spare_bytes - nbytes))


def plan_memory(
    budget_bytes: int,
    base_bytes: int,
    threads: int,
    stream_bytes: int,
    totals_bytes: int,
    solver_bytes: int,
    data_bytes: int,
    remedy: str = REMEDY,
    varying_bytes: int = VARYING_BYTES,
) -> MemoryPlan:
    """Plan a process of base + threads * (stream + 3 totals) + solver + slack bytes; what is left may hold chunks.

    A task that combines two totals holds three of them, since their sum is the third. Raises MemoryBudgetError, which
    names the options to change as `remedy` says, if the plan exceeds the budget without a single pinned chunk. The
    budget that it asks for is larger by varying_bytes, which the process may need beside what is known of it.
    """
    parts = {
        "interpreter and libraries": base_bytes,
        f"streaming on {threads} thread{'s' * (threads > 1)}": threads * (stream_bytes + 3 * totals_bytes),
        "solver": solver_bytes,
        "slack": SLACK_BYTES,
    }
    needed = sum(parts.values())
    if needed > budget_bytes:
        others = needed - threads * (stream_bytes + 3 * totals_bytes)
        helps = remedy != REMEDY or others < budget_bytes  # what is not streamed may exceed the budget by itself
        ways = f", {remedy}" if helps else ""
        listed = ", ".join(f"{name} {format_bytes(value)}" for name, value in parts.items())
        raise MemoryBudgetError(
            f"{format_bytes(needed)} of memory are needed ({listed}) but the budget is {format_bytes(budget_bytes)}: "
            f"raise --memory to at least {format_bytes(needed + varying_bytes, up=True)}{ways}",
            needed + varying_bytes,
        )
    return MemoryPlan(budget_bytes, parts, min(budget_bytes - needed, int(data_bytes * 1.05) + (1 << 20)))
