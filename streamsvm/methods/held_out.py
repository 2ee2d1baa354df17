"""A fit on a part of the rows: the rows that are held out are read like the others, and have weight 0."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from streamsvm.data.source import RowSource
from streamsvm.data.view import Flags, Kept
from streamsvm.methods.altered_rows import alter_rows
from streamsvm.methods.fit import Fit
from streamsvm.methods.set_up import set_up
from streamsvm.options import TrainOptions
from streamsvm.requests import MemoryNeed, Solver


def hold_out(source: RowSource, options: TrainOptions, kept: Flags) -> Fit:
    """Return a fit on the rows whose flag in `kept` (n,) is true; its engine reads all rows of the source."""
    view = Kept(source, kept)
    fit = set_up(view, options)
    return replace(fit, memory=partial(_need_memory, fit, source.n_rows), solve=partial(_solve, fit, view))


def _need_memory(fit: Fit, n_rows: int, threads: int) -> MemoryNeed:
    """Return the memory of the fit, with one more byte a row, because tasks are sent the flags of the rows."""
    need = fit.memory(threads)
    return replace(need, shared_bytes=need.shared_bytes + n_rows)


def _solve(fit: Fit, view: Kept, state: Any) -> Solver:
    return alter_rows(fit.solve(state), view.alteration)
