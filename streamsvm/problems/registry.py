"""All problems by name. A problem's module is imported when it is needed first, so that a line here costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.errors import InputError

if TYPE_CHECKING:
    from streamsvm.problems.problem import Problem


class Entry(NamedTuple):
    """The place of a problem's record, and the facts about the problem that are needed before it is imported.

    module and record: the module and the name of the record in it. losses: its losses by name, the default one first,
    with the kinds of losses that each belongs to; every method names the kinds that it minimises. "hinge" is C_i max(0,
    1 - y_i f_i), "labels" are smooth losses of each of L labels of a row, "pairs" are hinge losses of pairs of rows,
    "classes" is the loss of K scores of a row (numeric.class_losses), "convex" is any convex function of a row's score
    whose slopes are bounded, "smooth" is one whose second derivatives are, "kinked" is one that can be smoothed
    (numeric.smooth_loss), "squared-tube" is the squared one of a regression, "one-class" is that of scores below an
    offset, and "two-sums" that of margins below one (problems.nu). help: one line for the command line.
    """

    module: str
    record: str
    losses: Mapping[str, tuple[str, ...]]
    help: str

    @property
    def joins_classes(self) -> bool:
        """Whether the losses are of K scores of a row."""
        return any("classes" in kinds for kinds in self.losses.values())

    @property
    def compares_pairs(self) -> bool:
        """Whether the losses are of pairs of rows."""
        return any("pairs" in kinds for kinds in self.losses.values())


PROBLEMS = {  # The first one is the default.
    "classify": Entry(
        "streamsvm.problems.classification",
        "CLASSIFY",
        {"hinge": ("hinge", "convex"), "squared_hinge": ("smooth",), "logistic": ("smooth",)},
        "two classes, or more (see --multi-class)",
    ),
    "crammer-singer": Entry(
        "streamsvm.problems.joint_classification",
        "CRAMMER_SINGER",
        {"crammer_singer": ("classes",)},
        "classes, by one problem for all of them",
    ),
    "multi-label": Entry(
        "streamsvm.problems.multi_label",
        "MULTI_LABEL",
        {"hinge": ("hinge", "convex"), "squared_hinge": ("labels",), "logistic": ("labels",)},
        "any number of labels for each row, each against the rest",
    ),
    "nu-classify": Entry(
        "streamsvm.problems.nu",
        "NU_CLASSIFY",
        {"nu_hinge": ("two-sums",)},
        "two classes or more, with a kernel, where nu is the share of rows within the margin",
    ),
    "nu-regress": Entry(
        "streamsvm.problems.nu",
        "NU_REGRESS",
        {"nu_tube": ("two-sums",)},
        "numbers, with a kernel, where nu is the share of rows outside the tube",
    ),
    "rank": Entry(
        "streamsvm.problems.ranking", "RANK", {"hinge": ("pairs",)}, "pairs of rows of one query, or of all rows"
    ),
    "roc-area": Entry(
        "streamsvm.problems.ranking", "ROC_AREA", {"hinge": ("pairs",)}, "pairs of rows of the two classes"
    ),
    "regress": Entry(
        "streamsvm.problems.regression",
        "REGRESS",
        {"epsilon_insensitive": ("kinked", "convex"), "squared_epsilon_insensitive": ("smooth", "squared-tube")},
        "numbers, by support-vector regression",
    ),
    "one-class": Entry(
        "streamsvm.problems.one_class",
        "ONE_CLASS",
        {"one_class": ("one-class",)},
        "the region where rows lie, without labels, to find novel rows",
    ),
}

PROBABILITIES = ("sigmoid", "isotonic", "temperature")  # how scores become probabilities (numeric.calibration)
MULTI_LABEL = "multi-label"  # the task of rows that have sets of labels
MULTI_CLASS = {"ovr": "classify", "crammer_singer": "crammer-singer"}  # tasks by scikit-learn's names of them


def find_problem(name: str) -> Problem:
    """Return the record of the problem with this name; InputError if there is none."""
    entry = find_entry(name)
    problem: Problem = getattr(import_module(entry.module), entry.record)
    return problem


def find_entry(name: str) -> Entry:
    """Return the entry of the problem with this name; InputError if there is none."""
    if name not in PROBLEMS:
        raise InputError(f"task {name!r}: choose from {', '.join(PROBLEMS)}")
    return PROBLEMS[name]


PENALTIES = ("l2", "l1")
SPARSE = "smooth-l1"  # the kind of smooth losses with the penalty l1


def find_kinds(task: str, loss: str | None = None, penalty: str = "l2") -> tuple[str, ...]:
    """Return the kinds that a loss of a problem belongs to; None is its default loss. InputError if it has no such.

    With the penalty l1 a loss has a kind of its own, since few methods can minimise it.
    """
    losses = find_entry(task).losses
    if loss is not None and loss not in losses:
        raise InputError(f"loss {loss!r}: the task {task} has {', '.join(losses)}")
    kinds = next(iter(losses.values())) if loss is None else losses[loss]
    if penalty == "l2":
        return kinds
    if penalty != "l1":
        raise InputError(f"penalty {penalty!r}: choose from {', '.join(PENALTIES)}")
    if "smooth" not in kinds:
        smooth = [name for name, own in losses.items() if "smooth" in own]
        which = f"choose the loss {' or '.join(smooth)} for it" if smooth else f"the task {task} has no such loss"
        raise InputError(f"penalty 'l1': it is for smooth losses; {which}")
    return (SPARSE,)


def find_multi_class(name: str) -> str:
    """Return the task that trains many classes in the way of this name; InputError if there is none."""
    if name not in MULTI_CLASS:
        raise InputError(f"multi_class {name!r}: choose from {', '.join(MULTI_CLASS)}")
    return MULTI_CLASS[name]


def settle_multi_class(task: str, way: str | None) -> tuple[str, str | None]:
    """Return the task and the way to train many classes; a way that is a problem of its own is the task."""
    own = MULTI_CLASS.get(str(way), "classify")
    return (task, way) if own == "classify" else (own, None)


def name_losses() -> list[str]:
    """Return the names of the losses of all problems."""
    return list(dict.fromkeys(loss for entry in PROBLEMS.values() for loss in entry.losses))
