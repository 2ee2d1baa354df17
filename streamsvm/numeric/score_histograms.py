"""Histograms of scores: the weights of the rows of each rank, bucket by bucket, whose size does not grow with the rows.

    bucket of row i = floor(2^p s_i)

Successive buckets are a page, which is held if a row falls into it: a few scores that are far from all others take a
page each. Where the pages become too many, p is made smaller by one, which makes one bucket of two. Since 2^p is a
power of two, no number is rounded on the way to its bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64, I32, I64

PAGE_BITS = 6
PAGE = 1 << PAGE_BITS  # buckets of a page
MOST_CELLS = 1 << 17  # buckets of all ranks together
FINEST = 20  # p is not larger
EXACT_BITS = 52  # a number of a bucket with more bits would not be exact


@dataclass
class Histogram:
    """The rows' weights and scores, summed up in each bucket.

    exponent: p. pages (k,): the numbers of the pages, ascending; page q holds the buckets 64 q to 64 q + 63. weights
    and sums, (k, ranks, 64): sum v_i and sum v_i s_i of the rows of each rank in each bucket of each page.
    """

    exponent: int
    pages: I64
    weights: F64
    sums: F64

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        n_ranks: int = self.weights.shape[1]
        return n_ranks

    def copy(self) -> Histogram:
        """Return a histogram of the same rows, whose weights and sums are arrays of its own."""
        return Histogram(self.exponent, self.pages, self.weights.copy(), self.sums.copy())


def start_histogram(n_ranks: int, exponent: int = FINEST) -> Histogram:
    """Return the histogram of no rows."""
    return Histogram(exponent, np.empty(0, np.int64), np.zeros((0, n_ranks, PAGE)), np.zeros((0, n_ranks, PAGE)))


def choose_exponent(scores: F64, n_ranks: int) -> int:
    """Return the p with which rows with such scores fill at most half of the pages that there may be."""
    _, size = math.frexp(float(np.max(np.abs(scores))))
    exponent = min(FINEST, EXACT_BITS - size)
    pages = np.floor(2.0**exponent * scores).astype(np.int64) >> PAGE_BITS
    while len(pages := np.unique(pages)) > _count_most_pages(n_ranks) // 2:
        pages, exponent = pages >> 1, exponent - 1
    return exponent


def histogram_bytes(n_ranks: int) -> int:
    """Return the most bytes of a histogram, while it is copied."""
    return 2 * 16 * _count_most_pages(n_ranks) * n_ranks * PAGE


def add_scores(histogram: Histogram, scores: F64, ranks: I32, weight: F64) -> None:
    """Add rows with these scores, ranks and weights v, (n,) each, in place."""
    if not len(scores):
        return
    _, size = math.frexp(float(np.max(np.abs(scores))))
    _coarsen(histogram, max(0, histogram.exponent + size - EXACT_BITS))
    done = 0
    while True:
        given = scores, ranks, weight, done, 2.0**histogram.exponent
        done = _add_rows(*given, histogram.pages, histogram.weights, histogram.sums)
        if done == len(scores):
            return
        buckets = np.floor(2.0**histogram.exponent * scores[done:]).astype(np.int64)
        _add_pages(histogram, buckets >> PAGE_BITS)


def combine_histograms(left: Histogram, right: Histogram) -> Histogram:
    """Return the histogram of the rows of both as a new one."""
    both = left.copy(), right.copy()
    _coarsen(both[0], left.exponent - min(left.exponent, right.exponent))
    _coarsen(both[1], right.exponent - min(left.exponent, right.exponent))
    _add_pages(both[0], both[1].pages)
    _coarsen(both[1], both[1].exponent - both[0].exponent)
    at = np.searchsorted(both[0].pages, both[1].pages)
    both[0].weights[at] += both[1].weights
    both[0].sums[at] += both[1].sums
    return both[0]


def _count_most_pages(n_ranks: int) -> int:
    return MOST_CELLS // (PAGE * n_ranks)


def _add_pages(histogram: Histogram, pages: I64) -> None:
    """Add empty pages where they are missing; if there would be too many, make p smaller, for these pages as well."""
    found = np.union1d(histogram.pages, pages)
    while len(found) > _count_most_pages(histogram.n_ranks):
        _coarsen(histogram, 1)
        found = np.unique(found >> 1)
    at = np.searchsorted(found, histogram.pages)
    for name in ("weights", "sums"):
        before = getattr(histogram, name)
        setattr(histogram, name, np.zeros((len(found), *before.shape[1:])))
        getattr(histogram, name)[at] = before
    histogram.pages = found


def _coarsen(histogram: Histogram, by: int) -> None:
    """Make p smaller by so much."""
    for _ in range(by):
        pages, at = np.unique(histogram.pages >> 1, return_inverse=True)
        half = histogram.pages & 1
        for name in ("weights", "sums"):
            before = getattr(histogram, name)
            pairs = before.reshape(len(before), histogram.n_ranks, PAGE // 2, 2).sum(axis=3)
            after = np.zeros((len(pages), histogram.n_ranks, 2, PAGE // 2))
            after[at, :, half] = pairs
            setattr(histogram, name, after.reshape(len(pages), histogram.n_ranks, PAGE))
        histogram.pages, histogram.exponent = pages, histogram.exponent - 1


@register_jitable
def find_page(pages: I64, page: int, at: int) -> int:
    """Return the place of a page among all of them, ascending, or -1; `at` is a place where it may be."""
    if at >= 0 and pages[at] == page:
        return at
    low, high = 0, pages.size
    while low < high:
        middle = (low + high) // 2
        if pages[middle] < page:
            low = middle + 1
        else:
            high = middle
    return low if low < pages.size and pages[low] == page else -1


@njit(cache=True, nogil=True)
def _add_rows(
    scores: F64, ranks: I32, weight: F64, first: int, scale: float, pages: I64, weights: F64, sums: F64
) -> int:
    """Add rows from the first on, and return the number of the first row whose page is missing."""
    at = -1
    for i in range(first, scores.size):
        bucket = math.floor(scale * scores[i])
        at = find_page(pages, bucket >> PAGE_BITS, at)
        if at < 0:
            return i
        weights[at, ranks[i], bucket & (PAGE - 1)] += weight[i]
        sums[at, ranks[i], bucket & (PAGE - 1)] += weight[i] * scores[i]
    return scores.size


@njit(cache=True, nogil=True)
def look_up(scores: F64, ranks: I32, scale: float, pages: I64, table: F64, found: F64) -> int:
    """Write the entry of a table (k, ranks, 64) for each row to found (n,); return for how many rows there is one."""
    at = -1
    for i in range(scores.size):
        bucket = math.floor(scale * scores[i])
        at = find_page(pages, bucket >> PAGE_BITS, at)
        if at < 0:
            return i
        found[i] = table[at, ranks[i], bucket & (PAGE - 1)]
    return scores.size
