"""All problems by name. A problem's module is imported when it is needed first, so that a line here costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.errors import InputError

if TYPE_CHECKING:
    from streamsvm.problems.problem import Problem


class Entry(NamedTuple):
    """The place of a problem's record, and the facts about the problem that are needed before it is imported.

    module and record: the module and the name of the record in it. losses: the kinds of losses that its loss belongs
    to; every method names the kinds that it minimises. "hinge" is C_i max(0, 1 - y_i f_i), "pairs" are hinge losses of
    pairs of rows, and "convex" is any convex function of a row's score. help: one line for the command line.
    """

    module: str
    record: str
    losses: tuple[str, ...]
    help: str

    @property
    def compares_pairs(self) -> bool:
        """Whether the losses are of pairs of rows."""
        return "pairs" in self.losses


PROBLEMS = {  # The first one is the default.
    "classify": Entry(
        "streamsvm.problems.classification", "CLASSIFY", ("hinge", "convex"), "two classes, or one against the rest"
    ),
    "rank": Entry("streamsvm.problems.ranking", "RANK", ("pairs",), "pairs of rows of one query, or of all rows"),
    "roc-area": Entry("streamsvm.problems.ranking", "ROC_AREA", ("pairs",), "pairs of rows of the two classes"),
}


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
