"""Labels in the form that solvers use: signs and costs of two classes, pairs of classes, and sets of labels.

The pairs are (0, 1), (0, 2), .., (0, K - 1), (1, 2), .., as in LIBSVM; a score above 0 is a vote for the first class.
For a support vector of class c, row r of the coefficients (K - 1, m) belongs to the pair of c and class r if r < c, or
of c and class r + 1 otherwise. sv_coef of LIBSVM and dual_coef_ of scikit-learn have the same layout.

A set of labels has a bit for each label, the first label in the lowest bit of the first byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64, I64, Flags, Rows


def read_labels(class_costs: Any, codes: Any, weight: F64 | None) -> tuple[F64, F64]:
    """Return y_i, -1 or +1, and C_i, (n,) each; C_i is the cost of the row's class, times the row's weight if any."""
    costs = np.asarray(class_costs, np.float64)[codes]
    return np.where(codes == 1, 1.0, -1.0), costs if weight is None else costs * weight


Bits = npt.NDArray[np.uint8]
COUNTED_ROWS = 4096  # rows whose bits are unpacked at a time


def count_bytes(n_labels: int) -> int:
    """Return the bytes of a set of labels."""
    return -(-n_labels // 8)


def pack_sets(has: Any) -> Bits:
    """Return an indicator matrix (n, L) as bits, (n, L/8)."""
    return np.packbits(has, axis=1, bitorder="little")


def unpack_sets(bits: Bits, n_labels: int) -> Flags:
    """Return bits as an indicator matrix, (n, L)."""
    return np.unpackbits(bits, axis=1, count=n_labels, bitorder="little").view(np.bool_)


def find_label(bits: Bits, code: int) -> Flags:
    """Return flags (n,): whether a row has the label with this code."""
    return (bits[:, code // 8] >> (code % 8) & 1).astype(np.bool_)


def pick_labels(bits: Bits, places: npt.NDArray[Any]) -> Flags:
    """Return the indicator matrix of the labels at these places, (n, k); no row has a label whose place is -1."""
    if not len(places):
        return np.zeros((len(bits), 0), np.bool_)
    found = np.where(places >= 0, bits[:, places // 8] >> (places % 8).astype(np.uint8) & 1, 0)
    return found.astype(np.bool_)


def sum_labels(bits: Bits, n_labels: int, weight: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
    """Return the sum of the weights of the rows that have each label, (L,). weight: None counts the rows."""
    total = np.zeros(n_labels)
    for at in range(0, len(bits), COUNTED_ROWS):
        has = unpack_sets(bits[at : at + COUNTED_ROWS], n_labels)
        total += np.sum(has, axis=0) if weight is None else weight[at : at + COUNTED_ROWS] @ has
    return total


def count_labels(rows: Rows, counts: I64) -> None:
    """Add to `counts` the number of rows of each class, or, for sets of labels, the number of rows with each label."""
    if rows.y is not None:
        counts += np.bincount(rows.y, minlength=len(counts))
    if rows.label_sets is not None:
        counts += sum_labels(rows.label_sets, len(counts), None).astype(np.int64)


LARGEST_CONFIDENCE = 3.0  # The sum of a class's scores is mapped to between -1/3 and 1/3, so it never outweighs a vote.


def count_pairs(n_classes: int) -> int:
    """Return the number of pairs of classes."""
    return n_classes * (n_classes - 1) // 2


def list_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Return the pairs of classes in order."""
    return [(first, second) for first in range(n_classes) for second in range(first + 1, n_classes)]


def find_blocks(n_support: I64) -> list[slice]:
    """Return the slice of each class's support vectors. n_support (K,): their number for each class."""
    ends = np.cumsum(n_support)
    return [slice(int(end - n), int(end)) for n, end in zip(n_support, ends, strict=True)]


def sum_by_class(n_support: I64, n_rows: int, add_up: Callable[[slice], F64]) -> F64:
    """Return the scores of all pairs without intercepts, (n_rows, pairs).

    add_up: a function that returns the sums (n_rows, K - 1) over a slice of support vectors, one for each row of their
    coefficients.
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
    """Yield the coefficients of each pair over all support vectors, (m,). dual_coef (K - 1, m): as described above."""
    blocks = find_blocks(n_support)
    for first, second in list_pairs(len(n_support)):
        coef = np.zeros(dual_coef.shape[1])
        coef[blocks[first]] = dual_coef[second - 1, blocks[first]]
        coef[blocks[second]] = dual_coef[first, blocks[second]]
        yield coef


def vote(scores: F64, n_classes: int) -> F64:
    """Return the votes for each class, (n, K), from the scores of all pairs, (n, pairs).

    To break ties, s / (3 (|s| + 1)) is added, where s is the sum of the scores for the class minus the sum of the
    scores against it. scikit-learn's decision_function_shape="ovr" does the same.
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
    """Return the code of the first class with the most votes, (n,), as in LIBSVM.

    A score of 0 is a vote for the second class of its pair.
    """
    votes = np.zeros((len(scores), n_classes), np.int64)
    for k, (first, second) in enumerate(list_pairs(n_classes)):
        votes[:, first] += scores[:, k] > 0
        votes[:, second] += scores[:, k] <= 0
    found: I64 = np.argmax(votes, axis=1)
    return found
