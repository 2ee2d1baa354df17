"""Pairs of classes, as one against one trains them, and what their scores say of a row.

The pairs are (0, 1), (0, 2), .., (0, K - 1), (1, 2), .., as in LIBSVM; a score above 0 is a vote for the first class.
Row r of the coefficients (K - 1, m) of a support vector of class c is that in the pair of c and another class, where
the other classes are counted in their order: r for those before c, r + 1 for those after it. So sv_coef is laid out in
LIBSVM, and dual_coef_ in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from streamsvm.numeric.rows import F64, I64

LARGEST_CONFIDENCE = 3.0  # The sum of a class's scores is brought between -1/3 and 1/3, so that no vote is outweighed.


def count_pairs(n_classes: int) -> int:
    """Return the number of pairs of classes."""
    return n_classes * (n_classes - 1) // 2


def list_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Return the pairs of classes in their order."""
    return [(first, second) for first in range(n_classes) for second in range(first + 1, n_classes)]


def find_blocks(n_support: I64) -> list[slice]:
    """Return where the support vectors of each class are, given how many each class has."""
    ends = np.cumsum(n_support)
    return [slice(int(end - n), int(end)) for n, end in zip(n_support, ends, strict=True)]


def sum_by_class(n_support: I64, n_rows: int, add_up: Callable[[slice], F64]) -> F64:
    """Return the sums of all pairs without intercepts, (n_rows, pairs).

    add_up: returns the sums (n_rows, K - 1) over the support vectors of a class, with each row of their coefficients.
    """
    K = len(n_support)
    found, place = np.zeros((n_rows, count_pairs(K))), {pair: k for k, pair in enumerate(list_pairs(K))}
    for code, block in enumerate(find_blocks(n_support)):
        if block.start == block.stop:
            continue
        sums = add_up(block)
        for other in range(K):
            if other != code:
                found[:, place[min(code, other), max(code, other)]] += sums[:, other - (other > code)]
    return found


def expand(dual_coef: F64, n_support: I64) -> Iterator[F64]:
    """Yield the coefficients of each pair over all support vectors, (m,), from those of `sum_by_class`."""
    blocks = find_blocks(n_support)
    for first, second in list_pairs(len(n_support)):
        coef = np.zeros(dual_coef.shape[1])
        coef[blocks[first]] = dual_coef[second - 1, blocks[first]]
        coef[blocks[second]] = dual_coef[first, blocks[second]]
        yield coef


def vote(scores: F64, n_classes: int) -> F64:
    """Return the votes for each class, (n, K), from the scores of all pairs, (n, pairs).

    Added is s / (3 (|s| + 1)), where s is the sum of the scores in favour of the class less that of those against it:
    it decides among classes with equally many votes. So does scikit-learn's decision_function_shape="ovr".
    """
    votes, sums = np.zeros((len(scores), n_classes)), np.zeros((len(scores), n_classes))
    for k, (first, second) in enumerate(list_pairs(n_classes)):
        own = scores[:, k]
        votes[:, first] += own >= 0
        votes[:, second] += own < 0
        sums[:, first] += own
        sums[:, second] -= own
    return np.asarray(votes + sums / (LARGEST_CONFIDENCE * (np.abs(sums) + 1)))


def choose_by_votes(scores: F64, n_classes: int) -> I64:
    """Return the code of the first class with most votes, (n,), as LIBSVM does; a score of 0 is for the second one."""
    votes = np.zeros((len(scores), n_classes), np.int64)
    for k, (first, second) in enumerate(list_pairs(n_classes)):
        votes[:, first] += scores[:, k] > 0
        votes[:, second] += scores[:, k] <= 0
    found: I64 = np.argmax(votes, axis=1)
    return found
