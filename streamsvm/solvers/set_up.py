"""The setup of a `Solver` from user options: choose the solver, read and check its own options, and create it.

All compiled functions are loaded from the cache, or compiled, before memory is measured and tasks run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.data.rows.views import HeldOut, NumberedRows
from streamsvm.kernels import precomputed
from streamsvm.models.model import Model
from streamsvm.numeric.compilation import load_or_compile
from streamsvm.numeric.rows import I64, CsrRows, Matrix, Rows, compute_scores, make_canonical_rows, take_rows
from streamsvm.options import TrainOptions, check_costs, check_numbers, count_resident
from streamsvm.problems.problem import Problem
from streamsvm.problems.registry import MULTI_LABEL, MULTINOMIAL, find_kinds, find_problem
from streamsvm.solvers.many.classes import make_one_against_one, make_one_against_rest
from streamsvm.solvers.many.transformed import OnTransformedRows
from streamsvm.solvers.options import read_options
from streamsvm.solvers.registry import AUTO, SOLVERS, SolverRecord, can_solve, find_first, find_solver
from streamsvm.solvers.solver import Budget, Solver, TakeRows, share_memory
from streamsvm.system import deadline
from streamsvm.system.errors import InputError

ALL_MODELS = ("cutting-plane", "ranking", "kernel-sums", "smo")  # the groups that score and evaluate any kind of model
FEATURE_MAPS = "feature-map"  # the group of the feature maps, which have no solver record
FEATURE_MAP = "streamsvm.solvers.feature_map.setup"
LAYOUTS = ("dense", "sparse")
LIBRARY_BYTES = 96 << 20  # of scikit-learn and others, which a process with rows in memory has usually imported


def compile_all(groups: Sequence[str], is_sparse: bool | None = None) -> None:
    """Load groups of compiled functions from numba's cache. A child process first compiles missing functions.

    is_sparse: whether to load the functions for sparse rows or those for dense rows; None loads both.
    """
    layouts = LAYOUTS if is_sparse is None else [LAYOUTS[is_sparse]]
    load_or_compile(tuple(f"{group}/{layout}" for layout in layouts for group in groups), run_kernels)


def run_kernels(name: str) -> None:
    """Call the functions of a group on two rows. name: the group and the layout, such as "cutting-plane/dense"."""
    group, _, layout = name.partition("/")
    X: Matrix = np.eye(2, dtype=np.float32)
    if layout == "sparse":
        X = CsrRows(np.ones(2, np.float32), np.arange(2, dtype=np.int32), np.arange(3), 2)
        make_canonical_rows(X)
    take_rows(X, np.arange(2))
    compute_scores(X, np.zeros((1, 2)))
    places = [record.solver for record in SOLVERS if group in record.groups]
    for place in [FEATURE_MAP] if group == FEATURE_MAPS else places:
        import_module(place.partition(":")[0]).run_kernels(group, Rows(0, X, np.arange(2, dtype=np.int32)))


MANY_PROBLEMS = 50  # From this many classes on, one solver for all is faster than a solver for each.
# With three or more classes and at least this many dense features, one solver for all is faster: the Hessian of a class
# over all rows takes d^2 n operations; float32 curvatures from a share of the rows take a fraction of this time
# (benchmarks/classes_and_features.py). With 1,500 or more sparse features, Hessians of several classes are too large.
MANY_DENSE_FEATURES, MANY_FEATURES = 400, 1500
# With two classes and more dense features than this, the solver for all classes is used, too. The limit for sparse
# rows, whose products are faster, is MANY_FEATURES.
MOST_FEATURES = 5000


def choose_solver(options: TrainOptions) -> SolverRecord:
    """Return the record of the requested solver; raise InputError if it is unknown or does not fit the problem."""
    return find_solver(options.solver, options.task, options.loss, options.penalty, options.kernel)


def choose_for_many(record: SolverRecord, options: TrainOptions, n_problems: int, source: RowSource) -> SolverRecord:
    """Return the record of the solver for all classes at once if there are many classes or features; else `record`.

    The solver for all classes needs no Hessian. It is therefore also used for two classes with very many features, or
    with fewer rows than features. A regression whose loss has kinks is trained by cutting planes if it has fewer rows
    than features, or at most as many resident rows.
    """
    kinds = find_kinds(options.task, options.loss, options.penalty)
    # Fewer rows than features take less memory than a Hessian, so a limit on resident rows is pointless.
    has_few_rows = n_problems == 1 and source.n_features > max(source.n_rows, MANY_DENSE_FEATURES)
    is_kinked = "kinked" in record.losses and "kinked" in kinds and options.kernel in (None, "linear")
    if options.solver == AUTO and is_kinked and (has_few_rows or _has_few_resident(source, options)):
        return find_solver("cutting-plane", options.task, options.loss, options.penalty)
    if "smooth" not in record.losses or (options.resident_rows is not None and not has_few_rows):
        return record
    if n_problems == 1:
        most = MANY_FEATURES if source.is_sparse else MOST_FEATURES
        is_wide = (has_few_rows or source.n_features > most) and find_problem(options.task).has_classes
        is_for_all = is_wide and "smooth" in kinds
    else:
        most = MANY_FEATURES if source.is_sparse else MANY_DENSE_FEATURES
        is_for_all = n_problems >= MANY_PROBLEMS or source.n_features >= most
    return next(own for own in SOLVERS if own.name == record.name and "labels" in own.losses) if is_for_all else record


def _has_few_resident(source: RowSource, options: TrainOptions) -> bool:
    """Return whether at most as many rows are resident as there are features, and not all rows."""
    count = source.n_rows if options.resident_rows is None else count_resident(options.resident_rows, source.n_rows)
    return count < source.n_rows and count <= source.n_features


def choose_multi_class(record: SolverRecord, options: TrainOptions) -> str:
    """Return the scheme for more than two classes; raise InputError if the solver lacks the requested scheme."""
    if options.multi_class not in (None, *record.multi_class):
        others = list(dict.fromkeys(other.name for other in SOLVERS if options.multi_class in other.multi_class))
        told = f"; choose the solver {' or '.join(others)} for it" if others else ""
        has = " and ".join(record.multi_class)
        raise InputError(f"multi_class {options.multi_class!r}: {record.name} supports {has}{told}")
    return options.multi_class or record.multi_class[0]


def read_own_options(options: TrainOptions) -> Any:
    """Return the solver's own options as a dataclass; raise InputError if a name or a value is invalid."""
    record = choose_solver(options)
    return read_options(record.options, options.options, record.name)


def set_up(source: RowSource, options: TrainOptions, keep_dual: bool = False, n_fits: int = 1) -> Solver:
    """Return the requested solver; raise InputError if it cannot be created.

    keep_dual: whether the solver keeps its dual point. n_fits: the number of solvers that share a process;
    options.memory_bytes is the memory for this solver alone.
    """
    check_numbers(options)
    with deadline.limit(options.max_seconds):  # The setup may read sample weights.
        if options.kernel == precomputed.NAME:
            _refuse_unfit(choose_solver(options), options)
            view = NumberedRows(source)
            return OnKernelMatrix(view, _set_up(view, options, keep_dual))
        return _set_up(source, options, keep_dual, n_fits)


class OnKernelMatrix(OnTransformedRows):
    """A solver for the rows of a precomputed kernel matrix, in which each row is identified by its number.

    Tasks receive the numbers of their rows. The model keeps only the numbers of its support vectors.
    """

    def __init__(self, view: NumberedRows, inner: Solver) -> None:
        super().__init__(inner, view.transform, 8 * view.n_rows, 8 * view.n_rows)
        self.view = view

    def make_model(self, state: Any, take: TakeRows) -> Model:  # noqa: ARG002
        """Return the model, which identifies its support vectors by number."""
        return self.inner.make_model(state, self._take_labels)

    def _take_labels(self, rows: I64) -> Rows:
        """Return the rows with labels only. X is a broadcast zero, which takes no memory."""
        source = self.view.source
        y = source.column("y")
        X = np.broadcast_to(np.float32(0.0), (len(rows), source.n_features))
        return Rows(-1, X, None if y is None else y[rows])


def _set_up(source: RowSource, options: TrainOptions, keep_dual: bool, n_fits: int = 1) -> Solver:
    problem, record = find_problem(options.task), choose_solver(options)
    n_problems = problem.count_problems(source)
    chosen, record = record, choose_for_many(record, options, n_problems, source)
    if record is not chosen:
        options = replace(options, resident_rows=None)
    own, options = read_options(record.options, options.options, record.name), replace(options, solver=record.name)
    own_bytes = 0 if source.on_disk else source.nbytes + LIBRARY_BYTES  # All fits share the user's own rows.
    memory_bytes = max(1, Budget.of(options).total_bytes - own_bytes // n_fits)
    options = replace(options, C=float(options.C), memory_bytes=memory_bytes)  # No int is over 64 bits.
    check_costs(source, options)
    way = choose_multi_class(record, options)
    _refuse_unfit(record, options)
    _require_labels_of(problem, source, record)
    for name, is_read, what in (
        ("class_weight", problem.has_class_costs, "costs by class"),
        ("epsilon", problem.has_epsilon, "tube around a target"),
        ("nu", problem.has_nu, "share of rows outside"),
    ):
        if getattr(options, name) is not None and not is_read:
            raise InputError(f"{name}: the task {options.task} has no {what}; omit {name}")

    def make(source: RowSource, options: TrainOptions) -> Solver:
        compile_all(record.compiled_for_set_up, source.is_sparse)
        solver = record.set_up(source, options, own)
        if not keep_dual:
            return solver
        from streamsvm.solvers.keep_dual import KeepDual  # loads compiled functions of all solvers

        return KeepDual(solver)

    if n_problems > 1 and "labels" not in record.losses:  # A "labels" solver solves all problems itself.
        if way == "ovo":
            solver = make_one_against_one(source, options, make, record.process_bytes)
        else:
            may_take_rounds = record.kernels == ("linear",) and not keep_dual
            solver = make_one_against_rest(source, options, make, record.process_bytes, may_take_rounds, n_fits)
    else:
        solver = make(source, options)
    if record.kernels == ("linear",):  # The model is then linear, with weights and a bias for each problem.
        solver.model_bytes = 8 * (source.n_features + 1) * n_problems
    return solver


def settle_task(source: RowSource, options: TrainOptions) -> TrainOptions:
    """Return the options with the task that suits the labels of the rows.

    For sets of labels, the task classification becomes the multi-label task. For two classes, the multinomial task
    becomes the logistic loss of a single score, as in scikit-learn. Raises InputError if the requested solver supports
    only the first of these two.
    """
    if source.has_label_sets and options.task == TrainOptions.task:
        return replace(options, task=MULTI_LABEL)
    n_classes = 0 if source.classes is None or source.has_label_sets else len(source.classes)
    if n_classes == 2 and options.task == MULTINOMIAL:
        settled = replace(options, task=TrainOptions.task, loss="logistic")
        kinds = find_kinds(settled.task, settled.loss)
        if find_first(options.solver, find_kinds(MULTINOMIAL)) and not find_first(options.solver, kinds):
            raise InputError(
                f"{source.name}: the rows have two classes, which are one problem with the logistic loss. The solver "
                f"{options.solver} trains the multinomial problem of more than two classes only; choose the solver auto"
            )
        return settled
    return options


def _require_labels_of(problem: Problem, source: RowSource, record: SolverRecord) -> None:
    """Raise InputError unless rows and problem agree on whether a row has one label or a set of labels."""
    if problem.has_label_sets and not source.has_label_sets:
        raise InputError(
            f"{source.name}: its rows do not have sets of labels, which the task {problem.name} requires; "
            "choose another task"
        )
    if source.has_label_sets and problem.needs_labels and not problem.has_label_sets:
        raise InputError(
            f"{source.name}: its rows have sets of labels; the task {problem.name} requires one label per row: "
            "choose the task multi-label"
        )
    if problem.has_label_sets and record.kernels != ("linear",):
        raise InputError(
            f"solver {record.name}: rows with sets of labels require a solver for linear models; choose auto"
        )


def _explain_kernels(record: SolverRecord, options: TrainOptions) -> str:
    """Return the message for an unsupported kernel: the kernels that the solver supports, or another solver."""
    if record.kernels != ("linear",):
        return f"kernel {options.kernel!r}: choose from {', '.join(record.kernels)}"
    told = f"kernel {options.kernel}: {record.name} supports only the linear kernel; "
    told += "map the rows with `streamsvm features`"
    kinds = find_kinds(options.task, options.loss, options.penalty)
    for other in SOLVERS:
        if can_solve(other, kinds) and len(other.kernels) > 1:
            named = "" if options.kernel in other.kernels else f", which supports {', '.join(other.kernels)}"
            return f"{told}, or use the solver {other.name}{named}"
    return told


def _refuse_unfit(record: SolverRecord, options: TrainOptions) -> None:
    """Raise InputError if the solver does not support the kernel, or holds no rows although resident_rows is given."""
    if options.kernel not in record.kernels:
        raise InputError(_explain_kernels(record, options))
    if options.resident_rows is not None and "resident_rows" not in record.reads:
        raise InputError(f"resident_rows has no effect with {record.name}, which holds no rows; omit resident_rows")


def hold_out(view: HeldOut, options: TrainOptions, n_fits: int = 1) -> Solver:
    """Return a solver for the rows that a view does not hold out. `n_fits` such solvers share the memory.

    The engine reads all rows of the underlying source. Held-out rows get the weight 0. Tasks receive a flag of one byte
    for each row.
    """
    solver = set_up(view, share_memory(options, n_fits, choose_solver(options).process_bytes), n_fits=n_fits)
    return OnTransformedRows(solver, view.transform, shared_bytes=view.n_rows)
