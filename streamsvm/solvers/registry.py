"""The records of all solvers: the facts about them that do not depend on data.

A solver that solves several kinds of problems in different ways has a record for each. To add a solver, write a module
with a subclass of `solvers.solver.Solver`, and add a record. The class is called with (source, options, own, budget),
where `own` holds the solver's own options, read and checked. The module's `run_kernels(group, rows)` has to call every
compiled function on two rows, dense or sparse. The module is imported when first needed, so a record costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from streamsvm.problems.registry import PROBLEMS, SPARSE, find_kinds, name_task
from streamsvm.solvers import options as own_options
from streamsvm.solvers.options import ALWAYS, WITH_ACTIVE_ROWS, Words
from streamsvm.system.errors import InputError

if TYPE_CHECKING:
    from streamsvm.data.rows.source import RowSource
    from streamsvm.options import TrainOptions
    from streamsvm.solvers.solver import Solver


OTHER_BYTES = 288 << 20  # interpreter, libraries, slack
KERNEL_OTHER_BYTES = 448 << 20  # the same plus streaming and working sets; measurements with two threads were lower


@dataclass(frozen=True)
class SolverRecord:
    """The facts about a solver that users, the command line and training need.

    Parameters
    ----------
    name
        The name by which users choose it: `--solver`, `TrainOptions.solver`.
    losses
        The kinds of losses that it minimises; problems.registry lists the kinds of each problem's loss.
    solver
        The class of its `Solver`, or a function that chooses one: "package.module:name".
    own
        The frozen dataclass of its own options (solvers.options); None for the attribute `Options` of the class.
    kernels
        The names of the kernels that it supports, the default first.
    multi_class
        The schemes for more than two classes, the default first: "ovr", each against the rest, or "ovo", all pairs.
    process_bytes
        The memory that it leaves for the process itself when it chooses the number of rows to hold. The problems of
        many classes count it once.
    reads
        Which of the settings `tol` and `resident_rows` it reads, each with the values of its own options with which it
        does so (empty: always). The command line rejects the other setting.
    takes_numbered_rows
        Whether the rows of its passes have their row numbers, so that some of them can be held out.
    passes
        How `--plan` predicts its passes: from a run on a sample, from the requested epochs (its own options have
        `epochs` and `replicas`), or not at all, unless its settings show that all rows are resident.
    compiled
        The groups of compiled functions that its `run_kernels` accepts (solvers.set_up); empty for a single group with
        the solver's name.
    compiled_for_set_up
        The groups whose functions the setup itself calls, before the first step.
    keeps_dual
        Whether its fits can keep the dual point behind their lower bound (solvers.keep_dual).
    """

    name: str
    losses: tuple[str, ...]
    solver: str
    own: type[Any] | None = None
    kernels: tuple[str, ...] = ("linear",)
    multi_class: tuple[str, ...] = ("ovr",)
    process_bytes: int = 0
    reads: Mapping[str, Words] = field(default_factory=lambda: {"tol": ALWAYS})
    takes_numbered_rows: bool = True
    passes: Literal["sampled", "epochs", "unknown"] = "sampled"
    compiled: tuple[str, ...] = ()
    compiled_for_set_up: tuple[str, ...] = ()
    keeps_dual: bool = False

    @property
    def options(self) -> type[Any]:
        """The dataclass of the options that only this solver has."""
        own: type[Any] = self.own or resolve_name(self.solver).Options
        return own

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the solver's compiled functions."""
        return self.compiled or (self.name,)

    def set_up(self, source: RowSource, options: TrainOptions, own: Any) -> Solver:
        """Return the solver, ready for the rows of a source; raise InputError if it cannot train on them."""
        from streamsvm.solvers.solver import Budget

        solver: Solver = _resolve(self.solver)(source, options, own, Budget.of(options, self.process_bytes))
        return solver


_resolve = cache(resolve_name)  # looked up again for each of many problems
DECOMPOSITION = SolverRecord(
    name="smo",
    losses=("hinge", "kinked", "one-class", "two-sums"),
    own=own_options.DecompositionOptions,
    solver="streamsvm.solvers.decomposition.setup:DecompositionSolver",
    kernels=("linear", "rbf", "poly", "sigmoid", "precomputed"),
    multi_class=("ovo", "ovr"),
    process_bytes=KERNEL_OTHER_BYTES,
    compiled=("smo", "linear-sums", "kernel-sums", "platt"),
    reads={"tol": ALWAYS, "resident_rows": {"selection": WITH_ACTIVE_ROWS}},
    passes="unknown",
)
NEWTON = SolverRecord(
    name="newton",
    losses=("smooth", "kinked"),
    own=own_options.NewtonOptions,
    solver="streamsvm.solvers.newton.setup:set_up",
    process_bytes=OTHER_BYTES,
    compiled=("newton", "newton-kinks"),
    reads={"tol": ALWAYS, "resident_rows": ALWAYS},
)
CUTTING_PLANE = SolverRecord(
    name="cutting-plane",
    losses=("hinge",),
    own=own_options.CuttingPlane,
    solver="streamsvm.solvers.cutting_plane.setup:set_up",
    process_bytes=OTHER_BYTES,
    compiled=("cutting-plane", "ascent", "one-read"),
    reads={"tol": ALWAYS, "resident_rows": ALWAYS},
)
SOLVERS = [
    replace(CUTTING_PLANE, keeps_dual=True),
    SolverRecord(
        name="cutting-plane",
        losses=("pairs",),
        own=own_options.RankingOptions,
        solver="streamsvm.solvers.ranking.setup:set_up",
        keeps_dual=True,
        compiled=("ranking", "ranking-histograms"),
        compiled_for_set_up=("ranking",),  # The setup counts pairs.
    ),
    replace(
        NEWTON,
        losses=("labels",),
        own=own_options.Newton,
        solver="streamsvm.solvers.label_newton.setup:LabelNewtonSolver",
        compiled=("label-newton",),
        reads={"tol": ALWAYS},
    ),
    NEWTON,
    replace(NEWTON, losses=(SPARSE,), solver="streamsvm.solvers.newton.setup:L1NewtonSolver", compiled=("l1-newton",)),
    replace(
        CUTTING_PLANE,
        losses=("convex",),
        own=own_options.AnyLossOptions,
        solver="streamsvm.solvers.cutting_plane.line_search_setup:AnyLossSolver",
        compiled=("any-loss",),
        reads={"tol": ALWAYS},
    ),
    replace(
        CUTTING_PLANE,
        losses=("classes",),
        own=own_options.CrammerSingerOptions,
        solver="streamsvm.solvers.crammer_singer.setup:set_up",
        compiled=("crammer-singer",),
    ),
    replace(
        CUTTING_PLANE,
        losses=("softmax",),
        own=own_options.NewtonOptions,
        solver="streamsvm.solvers.softmax.setup:SoftmaxSolver",
        compiled=("softmax",),
    ),
    DECOMPOSITION,
    replace(DECOMPOSITION, name="irwls", losses=("hinge", "kinked", "one-class"), compiled=("irwls",)),
    replace(
        DECOMPOSITION,
        losses=("classes",),
        own=own_options.ClassDecompositionOptions,
        solver="streamsvm.solvers.crammer_singer.kernel_setup:ClassDecompositionSolver",
        kernels=("linear", "rbf", "poly", "precomputed"),
        multi_class=("ovr",),
        compiled=("smo-classes",),
        reads={"tol": ALWAYS, "resident_rows": ALWAYS},
    ),
    replace(
        CUTTING_PLANE,
        losses=("one-class",),
        own=own_options.OneClassOptions,
        solver="streamsvm.solvers.one_class.setup:OneClassSolver",
        compiled=("one-class",),
        passes="unknown",
    ),
    SolverRecord(
        name="budgeted-sgd",
        losses=("hinge", "kinked", "squared-tube"),
        own=own_options.BudgetedSGD,
        solver="streamsvm.solvers.budgeted_sgd.setup:set_up",
        compiled=("budgeted-sgd", "budgeted-removal", "budgeted-average"),
        kernels=("rbf", "linear", "poly", "sigmoid"),
        reads={},  # It proves no gap that could be compared with a tolerance.
        takes_numbered_rows=False,
        passes="epochs",
    ),
    SolverRecord(
        name="interior-point",
        losses=("hinge",),
        own=own_options.InteriorPointOptions,
        solver="streamsvm.solvers.interior_point.setup:InteriorPointSolver",
        keeps_dual=True,
    ),
]
AUTO = "auto"  # the name for the first solver that minimises the loss, preferably one that supports the kernel


def name_solvers() -> list[str]:
    """Return the names of all solvers, the default first."""
    return list(dict.fromkeys(record.name for record in SOLVERS))


def can_solve(record: SolverRecord, losses: tuple[str, ...]) -> bool:
    """Return whether the solver minimises a loss of these kinds."""
    return bool(set(record.losses) & set(losses))


def find_first(name: str, losses: tuple[str, ...]) -> SolverRecord | None:
    """Return the record to which a name refers for a loss of these kinds; None if there is none."""
    return next((record for record in SOLVERS if record.name == name and can_solve(record, losses)), None)


def find_solver(
    name: str, task: str, loss: str | None = None, penalty: str = "l2", kernel: str | None = None
) -> SolverRecord:
    """Return the record with this name for a loss of a task; raise InputError if there is none.

    "auto" is the first solver for the loss that supports the kernel. If no solver for the loss supports it, "auto" is
    the first solver for the loss. kernel: None for any kernel.
    """
    kinds = find_kinds(task, loss, penalty)
    named = [record for record in SOLVERS if name in (record.name, AUTO)]
    if name == AUTO and kernel is not None:
        named.sort(key=lambda record: kernel not in record.kernels)
    if not named:
        raise InputError(f"solver {name!r}: choose from {', '.join([AUTO, *name_solvers()])}")
    for record in named:
        if can_solve(record, kinds):
            return record
    losses = PROBLEMS[task].losses
    asked = f"{loss or next(iter(losses))} of {name_task(task)}" + f" with --penalty {penalty}" * (penalty != "l2")
    able = dict.fromkeys(record.name for record in SOLVERS if can_solve(record, kinds))
    others = [other for other, own in losses.items() if any(can_solve(record, own) for record in named)]
    instead = f", or --loss {' or '.join(others)}, which it supports" if others else ""
    raise InputError(f"solver {name} does not support the loss {asked}; use --solver {' or '.join(able)}{instead}")


def can_keep_dual(name: str, task: str, loss: str | None, penalty: str) -> bool:
    """Return whether the solver with this name can keep its dual point for this problem."""
    record = find_first(name, find_kinds(task, loss, penalty))
    return record is not None and record.keeps_dual
