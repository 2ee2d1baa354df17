"""Open an engine: first plan its memory, or refuse the run; then start its threads or workers.

The memory of a run is projected by plain arithmetic. The budget covers the whole resident memory of a process,
including the interpreter and libraries. Data files are read and never mapped, so their pages do not count. The file
pages of the libraries are reported separately after a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamsvm.data.rows.source import RowSource, plan_groups
from streamsvm.engines.cluster.tree import JOIN_BYTES, count_levels, count_waiting, find_fan_in
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import ThreadedEngine
from streamsvm.engines.row_states import add_overhead
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import (
    default_budget_bytes,
    default_threads,
    format_bytes,
    give_back_freed_arrays,
    resident_bytes,
)

if TYPE_CHECKING:
    from distributed import Client as Client  # noqa: PLC0414  for modules that must not import distributed themselves

    from streamsvm.engines.cluster.task import Load
else:
    Client = Any  # a name for annotations; runs on threads do without distributed

VARYING_BYTES = 1 << 20  # the memory of interpreter and libraries may differ by this much between two processes
SLACK_BYTES = 48 << 20  # memory for garbage between two collections, the stacks of threads, and messages in flight
REMEDY = "use fewer --threads (n_jobs=... in Python), or ingest with a smaller --chunk-bytes"


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a process will need: the bytes of each part by name, and the bytes of the pinned chunks.

    refusal: the error to raise if the parts alone exceed the budget.
    """

    budget_bytes: int
    parts: dict[str, int]
    pin_bytes: int
    refusal: MemoryBudgetError | None = None

    @property
    def spare_bytes(self) -> int:
        """The bytes of the budget that no part needs."""
        return self.budget_bytes - sum(self.parts.values())

    @property
    def projected_bytes(self) -> int:
        """Sum of all parts and the pinned chunks."""
        return sum(self.parts.values()) + self.pin_bytes

    def require(self) -> MemoryPlan:
        """Return the plan. Raises MemoryBudgetError if it exceeds the budget even without pinned chunks."""
        if self.refusal is not None:
            raise self.refusal
        return self

    def hold_more(self, nbytes: int) -> MemoryPlan:
        """Return the plan with more bytes for the solver, and fewer for chunks if necessary."""
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
    process: str = "this process",
) -> MemoryPlan:
    """Plan the memory of a process: base + threads * (stream + 3 totals) + solver + slack bytes; chunks get the rest.

    A task that combines two totals holds three: both totals and their sum. The message of a refusal names the options
    to change (`remedy`) and a sufficient budget. This budget includes `varying_bytes`, because the need of the process
    is not known exactly. process: the name of the process in the message. base_bytes: the memory that the process
    already holds, including the user's own data.
    """
    parts = {
        "interpreter and libraries": base_bytes,
        f"streaming on {threads} thread{'s' * (threads > 1)}": threads * (stream_bytes + 3 * totals_bytes),
        "solver": solver_bytes,
        "slack": SLACK_BYTES,
    }
    needed, refusal = sum(parts.values()), None
    if needed > budget_bytes:
        others = needed - threads * (stream_bytes + 3 * totals_bytes)
        helps = remedy != REMEDY or others < budget_bytes  # else fewer threads are not enough
        ways = f", {remedy}" if helps else ""
        _, *listed = [f"{name} {format_bytes(value)}" for name, value in parts.items()]
        holds = f"{process} already holds {format_bytes(base_bytes)}: interpreter, libraries and your own data"
        enough = format_bytes(needed + varying_bytes, up=True)
        refusal = MemoryBudgetError(
            f"{format_bytes(needed)} of memory is needed ({holds}; {', '.join(listed)}), but the budget is "
            f"{format_bytes(budget_bytes)}: raise --memory to at least {enough} (memory={enough!r} in Python){ways}",
            needed + varying_bytes,
        )
    return MemoryPlan(budget_bytes, parts, min(budget_bytes - needed, int(data_bytes * 1.05) + (1 << 20)), refusal)


PARTS_BY_ROW = 3  # copies of per-row arrays in a worker: its part, packed and unpacked, and the part of a lost worker
SHARES_OF_STATES = 2  # shares of the row states in a worker: its own, and an equal one taken over from lost workers
IN_MESSAGES = 4  # copies of the totals in transit to and from a worker, packed and unpacked
Opened = tuple[Engine, MemoryPlan]


def is_local(options: TrainOptions, client: Client | None) -> bool:
    """Return whether the passes run on threads of this process, without a cluster."""
    return client is None and options.workers is None and options.scheduler is None


@contextmanager
def open_engine(
    source: RowSource,
    options: TrainOptions,
    memory: Callable[[int], MemoryNeed],
    load: Load,
    client: Client | None = None,
    remedy: str = REMEDY,
) -> Iterator[Opened]:
    """Open an engine, yield it with the plan of the process that needs the most memory, and close it at the end.

    A client, a scheduler or a number of workers selects a cluster; otherwise the engine runs threads. options: only
    memory, threads, workers and scheduler have an effect. memory(threads): the memory that a process with that many
    threads needs in addition to the chunks. load: a function that loads the kernels; each worker calls it before its
    first task. Raises MemoryBudgetError before anything is started or read; its message ends with `remedy`. Raises
    InputError for an unusable scheduler.
    """
    give_back_freed_arrays()
    budget_bytes = default_budget_bytes() if options.memory_bytes is None else options.memory_bytes
    planner, threads = Planner(source, memory, budget_bytes, remedy), options.threads or 1
    if is_local(options, client):
        engine, plan = planner.open_threads(options.threads)
        with closing(engine):
            yield engine, plan
        return
    from streamsvm.engines.cluster.open import open_cluster  # loads distributed, which runs on threads do without

    with open_cluster(planner, options, threads, load, client) as opened:
        yield opened


@dataclass(frozen=True)
class Planner:
    """A planner of memory for the processes that carry out passes over a source. memory, remedy: see `open_engine`."""

    source: RowSource
    memory: Callable[[int], MemoryNeed]
    budget_bytes: int
    remedy: str

    @cached_property
    def n_groups(self) -> int:
        """The number of groups of chunks. They are the leaves of the tree of sums."""
        return len(plan_groups(self.source))

    def open_threads(self, asked: int | None) -> tuple[ThreadedEngine, MemoryPlan]:
        """Open an engine of threads, by default one per core, fewer if memory is short. Return it with its plan."""
        if self.n_groups > 1:
            import dask.threaded  # noqa: F401  runs the graph of a pass; loaded before memory is measured
        for threads in range(asked or default_threads(), 0, -1):
            need, source = self.memory(threads), self.source
            held = need.driver_bytes + need.walk_bytes + add_overhead(need.state_bytes)
            held += count_levels(self.n_groups) * need.totals_bytes  # one total waits on each level of the tree
            sizes = source.stream_bytes(), need.totals_bytes, held, source.nbytes if source.on_disk else 0
            plan = plan_memory(self.budget_bytes, resident_bytes(), threads, *sizes, self.remedy)
            if asked or plan.refusal is None:
                break
        plan.require()
        return ThreadedEngine(source, threads, plan.pin_bytes, need.state_bytes), plan

    def plan_driver(self, threads: int) -> MemoryPlan:
        """Plan the memory of this process if workers with this many threads run the tasks."""
        need = self.memory(threads)
        held = need.driver_bytes + 2 * need.shared_bytes + need.gathered_bytes + need.by_row_bytes
        sizes, named = (0, 2 * need.totals_bytes, held, 0), "the driver (this process)"
        return plan_memory(self.budget_bytes, resident_bytes(), 1, *sizes, self.remedy, process=named)

    def plan_worker(
        self,
        n_workers: int,
        base_bytes: int,
        threads: int,
        process: str,
        varying_bytes: int = VARYING_BYTES,
        hands_over: bool = False,
    ) -> MemoryPlan:
        """Plan the memory of a worker. hands_over: whether tasks hand totals to the driver during a pass.

        n_workers: the number of workers, which share the chunks and row states.
        """
        need, source = self.memory(threads), self.source
        held = need.totals_bytes * (count_waiting(self.n_groups, threads, hands_over) + IN_MESSAGES)
        held += JOIN_BYTES if need.totals_bytes and find_fan_in(self.n_groups, need.totals_bytes) > 2 else 0
        held += (2 + threads) * need.shared_bytes + need.walk_bytes + 2 * need.gathered_bytes
        held += PARTS_BY_ROW * need.by_row_bytes // n_workers
        held += add_overhead(share_states(need, n_workers))
        sizes, named = (source.stream_bytes(), need.totals_bytes, held, source.nbytes), (varying_bytes, process)
        return plan_memory(self.budget_bytes, base_bytes, threads, *sizes, self.remedy, *named)


def share_states(need: MemoryNeed, n_workers: int) -> int:
    """Return the bytes of row states that one of `n_workers` workers keeps."""
    return min(need.state_bytes, SHARES_OF_STATES * need.state_bytes // n_workers)
