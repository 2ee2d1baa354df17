"""All problems by name; the module of a problem is imported on first use, so an entry here costs nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.system.errors import InputError, require_known

if TYPE_CHECKING:
    from streamsvm.problems.problem import Problem


class Entry(NamedTuple):
    """The facts about a problem that are needed before it is imported.

    module: the module of this package that defines the problem, as a constant with the problem's name. losses: the
    losses of the problem by name, the default first; each has the kinds of loss to which it belongs. The record of a
    solver lists the kinds that the solver minimises. help: one line for the command line. kernel: the default kernel,
    for solvers that support it; None: the default of the solver.

    The kinds are "hinge", C_i max(0, 1 - y_i f_i); "labels", smooth losses of each of L labels of a row; "pairs", hinge
    losses of pairs of rows; "classes" and "softmax", losses of K scores of a row (losses.classes, losses.softmax);
    "convex", any convex function of a row's score with bounded slopes; "smooth", one with bounded second derivatives;
    "kinked", one that can be smoothed (losses.convex); "squared-tube", the squared loss of a regression; "one-class",
    the loss of scores below an offset; and "two-sums", the loss of margins below an offset (problems.nu).
    """

    module: str
    losses: Mapping[str, tuple[str, ...]]
    help: str
    kernel: str | None = None

    def has_kind(self, kind: str) -> bool:
        """Return whether one of the losses of the problem is of this kind."""
        return any(kind in kinds for kinds in self.losses.values())


PROBLEMS = {  # The first one is the default.
    "classify": Entry(
        "classification",
        {"hinge": ("hinge", "convex"), "squared_hinge": ("smooth",), "logistic": ("smooth",)},
        "two classes, or more (see --multi-class)",
    ),
    "crammer-singer": Entry(
        "classification", {"crammer_singer": ("classes",)}, "classes, by a single problem for all of them"
    ),
    "multinomial": Entry("classification", {"softmax": ("softmax",)}, "classes, by multinomial logistic regression"),
    "multi-label": Entry(
        "classification",
        {"hinge": ("hinge", "convex"), "squared_hinge": ("labels",), "logistic": ("labels",)},
        "any number of labels for each row, each against the rest",
    ),
    "nu-classify": Entry(
        "nu",
        {"nu_hinge": ("two-sums",)},
        "two classes or more, with a kernel, where nu is the share of rows within the margin",
        "rbf",
    ),
    "nu-regress": Entry(
        "nu",
        {"nu_tube": ("two-sums",)},
        "numbers, with a kernel, where nu is the share of rows outside the tube",
        "rbf",
    ),
    "rank": Entry("ranking", {"hinge": ("pairs",)}, "pairs of rows of one query, or of all rows"),
    "roc-area": Entry("ranking", {"hinge": ("pairs",)}, "pairs of rows of the two classes"),
    "regress": Entry(
        "regression",
        {"epsilon_insensitive": ("kinked", "convex"), "squared_epsilon_insensitive": ("smooth", "squared-tube")},
        "numbers, by support-vector regression",
    ),
    "one-class": Entry(
        "nu", {"one_class": ("one-class",)}, "the region where rows lie, without labels, to find novel rows", "rbf"
    ),
}

PROBABILITIES = ("sigmoid", "isotonic", "temperature")  # the maps from scores to probabilities (models.calibration)
MULTI_LABEL = "multi-label"  # the task for rows that have sets of labels
MULTINOMIAL, SOFTMAX = "multinomial", "softmax"  # the task with one logistic problem for all classes, and its loss
MULTI_CLASS = {  # tasks by their names in scikit-learn
    "ovr": "classify",
    "crammer_singer": "crammer-singer",
    MULTINOMIAL: MULTINOMIAL,
}


_resolve = cache(resolve_name)


def find_problem(name: str) -> Problem:
    """Return the problem with this name. Raises InputError if there is none."""
    module = find_entry(name).module
    problem: Problem = _resolve(f"streamsvm.problems.{module}:{name.upper().replace('-', '_')}")
    return problem


def find_entry(name: str) -> Entry:
    """Return the entry of the problem with this name. Raises InputError if there is none."""
    require_known("task", name, PROBLEMS)
    return PROBLEMS[name]


PENALTIES = ("l2", "l1")
SPARSE = "smooth-l1"  # the kind of a smooth loss that is combined with the penalty l1


def find_kinds(task: str, loss: str | None = None, penalty: str = "l2") -> tuple[str, ...]:
    """Return the kinds of a problem's loss.

    loss: None for the default loss. Raises InputError if the problem does not have the loss.

    With the penalty l1, smooth losses have a separate kind, since few solvers can minimise them.
    """
    losses = find_entry(task).losses
    if loss is not None and loss not in losses:
        others = [name_task(other) for other, entry in PROBLEMS.items() if loss in entry.losses]
        told = f"; {loss} is a loss of {' and '.join(others)}" * bool(others)
        raise InputError(f"loss {loss!r}: the losses of the task {task} are {', '.join(losses)}{told}")
    kinds = next(iter(losses.values())) if loss is None else losses[loss]
    if penalty == "l2":
        return kinds
    require_known("penalty", penalty, PENALTIES)
    if task == MULTINOMIAL:
        remedy = "train each class against the rest (--multi-class ovr --loss logistic, or multi_class='ovr' in Python)"
        raise InputError(f"penalty {penalty!r}: no solver supports it for the multinomial problem; {remedy}")
    if "smooth" not in kinds:
        smooth = [name for name, own in losses.items() if "smooth" in own]
        which = f"choose the loss {' or '.join(smooth)}" if smooth else f"the task {task} has none"
        raise InputError(f"penalty 'l1' requires a smooth loss: {which}")
    return (SPARSE,)


def find_multi_class(name: str, known: Collection[str]) -> str:
    """Return the task for this name of a multi-class scheme. Raises InputError unless it is one of the known names."""
    require_known("multi_class", name, known)
    return MULTI_CLASS[name]


def settle_multi_class(task: str, way: str | None) -> tuple[str, str | None]:
    """Return the task and the multi-class scheme; a scheme that is itself a task replaces the task."""
    own = MULTI_CLASS.get(str(way), "classify")
    return (task, way) if own == "classify" else (own, None)


def name_task(task: str) -> str:
    """Return the option of the command line that chooses a task."""
    way = next((way for way, own in MULTI_CLASS.items() if own == task != next(iter(PROBLEMS))), None)
    return f"--task {task}" if way is None else f"--multi-class {way}"


def name_losses() -> list[str]:
    """Return the names of the losses of all problems."""
    return list(dict.fromkeys(loss for entry in PROBLEMS.values() for loss in entry.losses))
