"""All problems by name. Their modules are imported when they are needed, so that a line here costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.errors import InputError

if TYPE_CHECKING:
    from streamsvm.problems.problem import Problem


class Entry(NamedTuple):
    """Where the record of a problem is, and what is to be known before it is imported.

    losses: the kinds of losses that its loss belongs to; a method says which kinds it minimises. "hinge" is
    C_i max(0, 1 - y_i f_i), "pairs" are hinges of pairs of rows, and "convex" is any convex function of a row's score.
    """

    module: str
    record: str
    losses: tuple[str, ...]
    help: str


PROBLEMS = {  # the default one first
    "classify": Entry(
        "streamsvm.problems.classification", "CLASSIFY", ("hinge", "convex"), "two classes, or one against the rest"
    ),
    "rank": Entry("streamsvm.problems.ranking", "RANK", ("pairs",), "pairs of rows of one query, or of all rows"),
    "roc-area": Entry("streamsvm.problems.ranking", "ROC_AREA", ("pairs",), "pairs of rows of the two classes"),
}


def find_problem(name: str) -> Problem:
    """Return the problem; InputError if there is none of this name."""
    entry = find_entry(name)
    problem: Problem = getattr(import_module(entry.module), entry.record)
    return problem


def find_entry(name: str) -> Entry:
    """Return the line of the problem; InputError if there is none of this name."""
    if name not in PROBLEMS:
        raise InputError(f"task {name!r}: choose from {', '.join(PROBLEMS)}")
    return PROBLEMS[name]
