"""The points at which the cuts of a ranking were made (see cutting_plane.origins).

Where the driver holds the scores, a step makes its cuts in two passes: the scores at both ends of a segment, and the
sums of rows. So its notes hold the ends and the sums, and the state after it says which step on the segment each cut
belongs to. All other cuts are made at points, which their sums name, or the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamsvm.methods.cutting_plane.origins import Origin
from streamsvm.methods.ranking.histogram_passes import add_histogram_cuts
from streamsvm.methods.ranking.query_passes import CutSums
from streamsvm.methods.ranking.solver import State, add_scores, add_sums
from streamsvm.numeric.rows import F64
from streamsvm.numeric.whole_queries import QuerySums
from streamsvm.requests import Scan

Note = tuple[str, F64]


def note_pass(request: Any, answer: Any) -> Iterator[Note]:
    """Yield the ends of the segment that a pass has scored, or the cuts that it has summed up; else nothing."""
    if isinstance(request, Scan) and request.add is add_scores:
        yield "ends", request.shared[0]
    elif isinstance(request, Scan) and request.add is add_sums:
        yield "cuts", answer


def note_summed_cuts(request: Any, answer: Any) -> Iterator[Origin]:
    """Yield the origins of the cuts that a pass over queries, or by histograms, has summed up; else nothing."""
    sums = answer.sums if isinstance(answer, QuerySums) else answer
    add = getattr(request, "add", None)
    if isinstance(sums, CutSums):
        for w, cut, offset in zip(sums.W, sums.cuts, sums.offsets.tolist(), strict=True):
            yield Origin(cut, offset, w, w, 1.0)
    elif isinstance(add, partial) and add.func is add_histogram_cuts:
        (at, made), (W,) = add.args, request.shared
        for k, one, cut in zip(at, made, sums.cuts, strict=True):
            yield Origin(cut, one.offset, W[k], W[k], 1.0)


def list_origins(notes: Sequence[Note], state: State) -> Iterator[Origin]:
    """Yield the origins of a step's cuts, given the notes of its passes and the state after it.

    The first step scores no rows, as it cuts at w = 0.
    """
    found = dict(notes)
    start, end = found.get("ends", np.zeros((2, len(state.best_w))))
    for cut, (step, offset) in zip(found["cuts"], state.latest, strict=False):
        yield Origin(cut, float(offset), start, end, float(step))
