"""The folds of a cross-validation: which rows each fit is trained on, and which of them its model has not seen.

If a dataset tells groups of rows that belong together (a donor's cells, a user's clicks), a fold has whole groups. If
groups are times, or have another order, a fold can be what comes after all rows that its fit is trained on.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.data.values import LEAST_GROUP
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.rows import I64
from streamsvm.options import TrainOptions, require_classes
from streamsvm.problems.registry import find_problem

Folds = npt.NDArray[np.uint8]
NEVER = 255  # the number of rows that are held out in no fold
MOST_FOLDS = 254


def draw_folds(source: RowSource, options: TrainOptions, folds: int, forward: bool = False) -> Folds:
    """Return the fold in which each row is held out, (n,), drawn by the seed.

    Each class is split evenly, in rankings whole queries, and where the source tells groups whole groups, so that the
    folds have about as many rows each. forward: the groups are cut in their order into one part more than folds, of
    which the first is held out in no fold (its rows have the number NEVER); see `keep`.

    Raises
    ------
    InputError
        If the rows cannot be split so, or if all rows of a class are held out in one fold.
    """
    if not 2 <= folds <= MOST_FOLDS:
        raise InputError(f"folds is {folds}; from 2 to {MOST_FOLDS} are possible")
    problem = find_problem(options.task)
    if problem.has_classes:
        require_classes(source)
    groups = source.column("groups")
    if groups is None:
        if forward:
            raise InputError(f"{source.name}: folds in order need groups that tell the order, and there are none")
        return problem.draw_folds(source, folds, np.random.default_rng(options.seed))
    if problem.reads_queries and source.column("qid") is not None:
        raise InputError(f"{source.name}: a ranking holds out whole queries: leave the groups out")
    fold = _cut_in_order(source.name, groups, folds) if forward else _share_out(source.name, groups, folds, options)
    if problem.has_classes and not problem.has_label_sets:  # a label may be that of no row
        _require_every_class(source, fold, folds, forward)
    return fold


def keep(fold: Folds, k: int, forward: bool) -> npt.NDArray[np.bool_]:
    """Return which rows fit k is trained on: the rows of all other folds or, with `forward`, of all parts before."""
    return np.asarray((fold == NEVER) | (fold < k) if forward else fold != k)


def _share_out(name: str, groups: I64, folds: int, options: TrainOptions) -> Folds:
    """Put each group, the largest ones first, into the fold that has the fewest rows; the seed orders equal ones."""
    sizes, place = _count_groups(name, groups, folds)
    order = np.random.default_rng(options.seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    filled, chosen = [(0, k) for k in range(folds)], np.empty(len(sizes), np.uint8)
    heapify(filled)
    for group, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        n_rows, k = filled[0]
        chosen[group] = k
        heapreplace(filled, (n_rows + size, k))
    return chosen[place]


def _cut_in_order(name: str, groups: I64, folds: int) -> Folds:
    """Cut the groups in their order into folds + 1 parts of about as many rows each."""
    if groups.min() < LEAST_GROUP:
        raise InputError(f"{name}: its groups are texts, which have no order; folds in order need numbers or times")
    sizes, place = _count_groups(name, groups, folds + 1)
    middles = np.cumsum(sizes) - sizes / 2
    part = (middles * (folds + 1) / len(groups)).astype(np.int64)
    if len(np.unique(part)) <= folds:
        raise InputError(f"{name}: its groups are too large to be cut into {folds + 1} parts of about equal size")
    return np.where(part == 0, NEVER, part - 1).astype(np.uint8)[place]


def _count_groups(name: str, groups: I64, parts: int) -> tuple[I64, npt.NDArray[np.intp]]:
    """Return the rows of each group, by ascending group, and the place of each row's group among them."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < parts:
        raise InputError(
            f"{name}: {say_count(len(sizes), 'group')} cannot be split into {parts} parts: take fewer --folds"
        )
    return sizes.astype(np.int64), place


def _require_every_class(source: RowSource, fold: Folds, folds: int, forward: bool) -> None:
    """InputError if a fit would be trained without one of the classes."""
    y, classes = source.column("y"), require_classes(source)
    assert y is not None
    for k in range(folds):
        missing = np.flatnonzero(np.bincount(y[keep(fold, k, forward)], minlength=len(classes)) == 0)
        if len(missing):
            label = classes[missing[0]]
            raise InputError(
                f"{source.name}: fold {k + 1} would be trained without a row of the class {label}, because of how the "
                "groups share the classes; ask for other folds, or for none by groups"
            )
