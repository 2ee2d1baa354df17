"""Histograms of scores: the weights of the rows of each rank, bucket by bucket, whose size does not grow with the rows.

    bucket of row i = floor(2^p s_i)

Successive buckets are a page, which is held if a row falls into it: a few scores that are far from all others take a
page each. Where the pages become too many, p is made smaller by one, which makes one bucket of two. Since 2^p is a
power of two, no number is rounded on the way to its bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64, I32, I64

PAGE_BITS = 6
PAGE = 1 << PAGE_BITS  # buckets of a page
MOST_CELLS = 1 << 17  # the most buckets of all ranks together
FINEST = 40  # the largest p
MEASURE_BYTES = 8 * 24 * MOST_CELLS  # memory while a histogram is measured, the histograms that wait for it included
SPREAD = -7046029254386353131  # 2^64 times the golden ratio, with a sign: products with it, modulo 2^64, are spread
EXACT_BITS = 52  # A bucket whose number has more bits than these would have no exact limits.


@dataclass
class Histogram:
    """The rows of each bucket, summed up.

    exponent: p. pages (k,): the numbers of the pages, ascending; page q holds the buckets 64 q to 64 q + 63. moments
    (k, 64, ranks, 3): sum v_i, sum v_i e_i and sum v_i e_i^2 of the rows in each bucket of each page, by their ranks,
    where e_i is the score of row i minus the middle of its bucket. The three sums of a bucket are side by side.
    """

    exponent: int
    pages: I64
    moments: F64

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return int(self.moments.shape[2])

    @property
    def buckets(self) -> I64:
        """The numbers of all buckets of all pages, ascending."""
        return (self.pages[:, np.newaxis] * PAGE + np.arange(PAGE)).ravel()


def start_histogram(n_ranks: int, exponent: int = FINEST) -> Histogram:
    """Return the histogram of no rows."""
    return Histogram(exponent, np.empty(0, np.int64), np.zeros((0, PAGE, n_ranks, 3)))


def choose_exponent(scores: F64, n_ranks: int) -> int:
    """Return the p with which rows with such scores fill at most half of the pages that there may be."""
    _, size = math.frexp(float(np.max(np.abs(scores))))
    exponent = min(FINEST, EXACT_BITS - size)
    pages = np.floor(2.0**exponent * scores).astype(np.int64) >> PAGE_BITS
    return exponent - _count_levels(pages, max(2, _count_most_pages(n_ranks) // 2))


def histogram_bytes(n_ranks: int) -> int:
    """Return the most bytes of a histogram, while it is copied."""
    return 2 * 24 * _count_most_pages(n_ranks) * n_ranks * PAGE


def add_scores(histogram: Histogram, scores: F64, ranks: I32, weight: F64) -> None:
    """Add rows with these scores, ranks and weights v, (n,) each, in place. Rows of weight 0 take no pages."""
    _, size = math.frexp(float(np.max(np.abs(scores), initial=0.0, where=weight > 0.0)))
    _coarsen(histogram, max(0, histogram.exponent + size - EXACT_BITS))
    while len(scores):
        left, scale = np.empty(len(scores), np.int64), 2.0**histogram.exponent
        places = index_pages(histogram.pages)
        left = left[: _add_rows(scores, ranks, weight, scale, histogram.pages, places, histogram.moments, left)]
        scores, ranks, weight = scores[left], ranks[left], weight[left]
        if len(left):
            _add_pages(histogram, np.floor(scale * scores).astype(np.int64) >> PAGE_BITS)


def combine_histograms(left: Histogram, right: Histogram) -> Histogram:
    """Return the histogram of the rows of both as a new one."""
    whole, other = replace(left), replace(right)  # what follows puts new arrays in the place of theirs
    for each in (whole, other):
        _coarsen(each, each.exponent - min(left.exponent, right.exponent))
    _add_pages(whole, other.pages)
    _coarsen(other, other.exponent - whole.exponent)
    whole.moments[np.searchsorted(whole.pages, other.pages)] += other.moments
    return whole


def index_pages(pages: I64) -> I32:
    """Return the places of pages in a hash table with open addressing: the number of a page, or -1 where none is."""
    places = np.full(1 << (4 * len(pages)).bit_length(), -1, np.int32)
    _index_pages(pages, places)
    return places


def _count_most_pages(n_ranks: int) -> int:
    return MOST_CELLS // (PAGE * n_ranks)


def _count_levels(pages: I64, most: int) -> int:
    """Return by how much p has to be smaller, so that no more than so many of these pages are left."""
    pages, levels = np.sort(pages), 0
    while np.count_nonzero(np.diff(pages)) >= most:
        pages, levels = pages >> 1, levels + 1
    return levels


def _add_pages(histogram: Histogram, pages: I64) -> None:
    """Add empty pages where they are missing; if there would be too many, make p smaller, for these pages as well."""
    levels = _count_levels(np.union1d(histogram.pages, pages), _count_most_pages(histogram.n_ranks))
    _coarsen(histogram, levels)
    found, before = np.union1d(histogram.pages, pages >> levels), histogram.moments
    histogram.moments = np.zeros((len(found), *before.shape[1:]))
    histogram.moments[np.searchsorted(found, histogram.pages)] = before
    histogram.pages = found


def _coarsen(histogram: Histogram, by: int) -> None:
    """Make p smaller by so much."""
    if by and len(histogram.pages):
        wide = histogram.buckets >> by
        shift = 2.0**-histogram.exponent * (histogram.buckets + 0.5 - 2.0**by * (wide + 0.5))[:, np.newaxis]
        weights, first, second = np.moveaxis(histogram.moments.reshape(-1, histogram.n_ranks, 3), 2, 0)
        moved = np.stack((weights, first + shift * weights, second + shift * (2.0 * first + shift * weights)), axis=2)
        starts = np.flatnonzero(np.diff(wide, prepend=wide[0] - 1))
        histogram.pages = np.unique(wide >> PAGE_BITS)
        at = np.searchsorted(histogram.pages, wide[starts] >> PAGE_BITS) * PAGE + (wide[starts] & (PAGE - 1))
        moments = np.zeros((len(histogram.pages) * PAGE, histogram.n_ranks, 3))
        moments[at] = np.add.reduceat(moved, starts, axis=0)
        histogram.moments = moments.reshape(-1, PAGE, histogram.n_ranks, 3)
    histogram.exponent -= by


@register_jitable
def _mix(page: int, n_places: int) -> int:
    """Return the place where a page is looked for first; n_places is a power of two."""
    return ((page * SPREAD) >> 32) & (n_places - 1)


@njit(cache=True, nogil=True)
def _index_pages(pages: I64, places: I32) -> None:
    """Write the number of each page to its place, or to the next that is free (-1)."""
    for k in range(pages.size):
        place = _mix(pages[k], places.size)
        while places[place] >= 0:
            place = (place + 1) & (places.size - 1)
        places[place] = k


@register_jitable
def _find_page(pages: I64, places: I32, page: int) -> int:
    """Return the number of a page among all of them, or -1."""
    place = _mix(page, places.size)
    while places[place] >= 0 and pages[places[place]] != page:
        place = (place + 1) & (places.size - 1)
    return int(places[place])


@njit(cache=True, nogil=True)
def _add_rows(
    scores: F64, ranks: I32, weight: F64, scale: float, pages: I64, places: I32, moments: F64, left: I64
) -> int:
    """Add the rows that have a page. Write the numbers of the others to left (n,), and return how many there are."""
    n_left = 0
    for i in range(scores.size):
        if weight[i] == 0.0:
            continue
        bucket = math.floor(scale * scores[i])
        at = _find_page(pages, places, bucket >> PAGE_BITS)
        if at < 0:
            left[n_left] = i
            n_left += 1
            continue
        rank, place, beside = ranks[i], bucket & (PAGE - 1), scores[i] - (bucket + 0.5) / scale
        moments[at, place, rank, 0] += weight[i]
        moments[at, place, rank, 1] += weight[i] * beside
        moments[at, place, rank, 2] += weight[i] * beside**2
    return n_left


@njit(cache=True, nogil=True)
def look_up(
    scores: F64, ranks: I32, weight: F64, scale: float, pages: I64, places: I32, table: F64, found: F64, seen: F64
) -> int:
    """Write the entry of a table (k, 64, ranks) for each row to found (n,), and add the row's weight to seen there.

    places: of the pages, from index_pages. Return for how many rows there is an entry.
    """
    for i in range(scores.size):
        found[i] = 0.0
        if weight[i] == 0.0:
            continue
        bucket = math.floor(scale * scores[i])
        at = _find_page(pages, places, bucket >> PAGE_BITS)
        if at < 0:
            return i
        found[i] = table[at, bucket & (PAGE - 1), ranks[i]]
        seen[at, bucket & (PAGE - 1), ranks[i]] += weight[i]
    return scores.size
