"""Makes a fit from the options of a user: chooses the method, reads and checks its own options, and sets it up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.numbered_rows import NumberedRows
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.altered_rows import alter_rows
from streamsvm.methods.dual_points import keep_dual_point
from streamsvm.methods.feature_map.options import FeatureOptions
from streamsvm.methods.fit import Fit, MapFit
from streamsvm.methods.method import Method
from streamsvm.methods.one_against_one import make_one_against_one
from streamsvm.methods.one_against_rest import make_one_against_rest
from streamsvm.methods.option_fields import read_options
from streamsvm.methods.registry import METHODS, can_solve, find_method, find_method_of_kind
from streamsvm.methods.warm_up import compile_all
from streamsvm.numeric import known_values
from streamsvm.numeric.rows import I64, Rows
from streamsvm.options import TrainOptions, check_costs, check_numbers
from streamsvm.problems.problem import Problem
from streamsvm.problems.registry import MULTI_LABEL, find_kinds, find_problem
from streamsvm.requests import MemoryNeed

MANY_PROBLEMS = 50  # classes for which one method for all is faster than a method for each
# With so many features of dense rows one method for all is faster from three classes on: the Hessian of each class over
# all rows takes d^2 n steps, and float32 curvatures from a share of the rows take a fraction of the time
# (tests/benchmarks/classes_and_features.py). Of sparse rows Hessians of several classes are too large from 1,500 on.
MANY_DENSE_FEATURES, MANY_FEATURES = 400, 1500
MOST_FEATURES = 5000  # of dense rows of two classes; of sparse ones, whose products take less time, it is MANY_FEATURES


def choose_method(options: TrainOptions) -> Method:
    """Return the method that was asked for; InputError if it is unknown or cannot solve the problem."""
    return find_method(options.solver, options.task, options.loss, options.penalty, options.kernel)


def choose_for_many(method: Method, options: TrainOptions, n_problems: int, source: RowSource) -> Method:
    """Return the method for all of several classes at once, if there are many of them or many features.

    It needs no Hessian, and so takes two classes of very many features as well.
    """
    if "smooth" not in method.losses or options.resident_rows is not None:
        return method
    if n_problems == 1:
        most = MANY_FEATURES if source.is_sparse else MOST_FEATURES
        is_wide = source.n_features > most and find_problem(options.task).has_classes
        is_smooth = "smooth" in find_kinds(options.task, options.loss, options.penalty)
        return find_method_of_kind(method.name, "labels") if is_wide and is_smooth else method
    most = MANY_FEATURES if source.is_sparse else MANY_DENSE_FEATURES
    if n_problems < MANY_PROBLEMS and source.n_features < most:
        return method
    return find_method_of_kind(method.name, "labels")


def choose_multi_class(method: Method, options: TrainOptions) -> str:
    """Return how more than two classes are trained; InputError for a way that the method does not have."""
    if options.multi_class not in (None, *method.multi_class):
        others = list(dict.fromkeys(other.name for other in METHODS if options.multi_class in other.multi_class))
        told = f"; choose the solver {' or '.join(others)} for it" if others else ""
        has = " and ".join(method.multi_class)
        raise InputError(f"multi_class {options.multi_class!r}: {method.name} has {has}{told}")
    return options.multi_class or method.multi_class[0]


def read_own_options(options: TrainOptions) -> Any:
    """Return the method's own options, as its dataclass; InputError for an unknown name or a bad value."""
    method = choose_method(options)
    return read_options(method.options, options.options, method.name)


def set_up(source: RowSource, options: TrainOptions, keep_dual: bool = False, n_fits: int = 1) -> Fit:
    """Return the fit that was asked for; it keeps its dual point if `keep_dual`. InputError if it cannot be made.

    n_fits: how many fits, of which this is one, share a process. The memory of the options is the part of this one.
    """
    if options.kernel == known_values.NAME:
        return _set_up_numbered(source, options, keep_dual)
    return _set_up(source, options, keep_dual, n_fits)


def _set_up_numbered(source: RowSource, options: TrainOptions, keep_dual: bool) -> Fit:
    """Return the fit for the rows of a kernel matrix, each of which is told its number."""
    _refuse_what_is_not_for(choose_method(options), options)
    view = NumberedRows(source)
    fit = _set_up(view, options, keep_dual)
    need = partial(_need_numbers, fit, view.n_rows)
    take = partial(_take_labels, source)
    return replace(
        fit,
        memory=need,
        solve=lambda state: alter_rows(fit.solve(state), view.alteration),
        make_model=lambda state, _: fit.make_model(state, take),
    )


def _take_labels(source: RowSource, rows: I64) -> Rows:
    """Return rows that take no memory: a model of known values keeps the numbers of its support vectors alone."""
    y = source.column("y")
    X = np.broadcast_to(np.float32(0.0), (len(rows), source.n_features))
    return Rows(-1, X, None if y is None else y[rows])


def _need_numbers(fit: Fit, n_rows: int, threads: int) -> MemoryNeed:
    """Return the memory of the fit and of the numbers of the rows, of which tasks are sent their part."""
    need = fit.memory(threads)
    return replace(need, driver_bytes=need.driver_bytes + 8 * n_rows, shared_bytes=need.shared_bytes + 8 * n_rows)


def _set_up(source: RowSource, options: TrainOptions, keep_dual: bool, n_fits: int = 1) -> Fit:
    problem, method = find_problem(options.task), choose_method(options)
    n_problems = problem.count_problems(source)
    method = choose_for_many(method, options, n_problems, source)
    own, options = read_options(method.options, options.options, method.name), replace(options, solver=method.name)
    check_numbers(options)
    options = replace(options, C=float(options.C))  # compiled functions take no int beyond 64 bits
    check_costs(source, options)
    choose_multi_class(method, options)
    _refuse_what_is_not_for(method, options)
    _require_labels_of(problem, source, method)
    if options.class_weight is not None and not problem.has_class_costs:
        raise InputError(f"class_weight: the task {options.task} has no costs by class; leave it out")
    if options.epsilon is not None and not problem.has_epsilon:
        raise InputError(f"epsilon: the task {options.task} has no tube around a target; leave it out")
    if options.nu is not None and not problem.has_nu:
        raise InputError(f"nu: the task {options.task} has no share of rows outside; leave it out")
    make = partial(_set_up_with, method, own, keep_dual)
    if n_problems > 1 and not method.solves_all:
        if choose_multi_class(method, options) == "ovo":
            fit = make_one_against_one(source, options, make, method.process_bytes)
        else:
            may_take_rounds = method.kernels == ("linear",) and not keep_dual
            fit = make_one_against_rest(source, options, make, method.process_bytes, may_take_rounds, n_fits)
    else:
        fit = make(source, options)
    if method.kernels == ("linear",):  # so its model is linear, with weights and a bias for each problem
        return replace(fit, model_bytes=8 * (source.n_features + 1) * n_problems)
    return fit


def settle_task(source: RowSource, options: TrainOptions) -> TrainOptions:
    """Return the options with the task of rows that have sets of labels, if these are classified."""
    if source.has_label_sets and options.task == TrainOptions.task:
        return replace(options, task=MULTI_LABEL)
    return options


def _require_labels_of(problem: Problem, source: RowSource, method: Method) -> None:
    """Raise InputError if the rows have sets of labels and the problem has none, or the other way round."""
    if problem.has_label_sets and not source.has_label_sets:
        raise InputError(f"{source.name}: its rows have no sets of labels, which the task {problem.name} is for")
    if source.has_label_sets and problem.needs_labels and not problem.has_label_sets:
        raise InputError(f"{source.name}: its rows have sets of labels; the task {problem.name} is for one label a row")
    if problem.has_label_sets and method.kernels != ("linear",):
        raise InputError(f"solver {method.name}: rows with sets of labels are trained by methods for linear models")


def set_up_map(source: RowSource, options: FeatureOptions, kernel_options: TrainOptions) -> MapFit:
    """Return the feature map that was asked for, of the kernel of kernel_options; InputError if it cannot be made."""
    from streamsvm.methods.feature_map import setup

    return setup.set_up(source, options, kernel_options)


def _set_up_with(method: Method, own: Any, keep_dual: bool, source: RowSource, options: TrainOptions) -> Fit:
    compile_all(method.compiled_for_set_up, source.is_sparse)
    fit = method.set_up(source, options, own)
    return keep_dual_point(fit) if keep_dual else fit


def _say_kernels(method: Method, options: TrainOptions) -> str:
    """Return what is told of a kernel that the method does not take: the kernels that it takes, or a solver for it."""
    if method.kernels != ("linear",):
        return f"kernel {options.kernel!r}: choose from {', '.join(method.kernels)}"
    told = f"kernel {options.kernel}: {method.name} is for the linear one; map the rows with `streamsvm features`"
    kinds = find_kinds(options.task, options.loss, options.penalty)
    for other in METHODS:
        if can_solve(other, kinds) and len(other.kernels) > 1:
            named = "" if options.kernel in other.kernels else f", which takes {', '.join(other.kernels)}"
            return f"{told}, or use the solver {other.name}{named}"
    return told


def _refuse_what_is_not_for(method: Method, options: TrainOptions) -> None:
    """Raise InputError for a kernel that the method does not take, or for resident rows if it holds none."""
    if options.kernel not in method.kernels:
        raise InputError(_say_kernels(method, options))
    if options.resident_rows is not None and "resident_rows" not in method.reads:
        raise InputError(f"resident rows are not for {method.name}, which holds none; leave them out")
