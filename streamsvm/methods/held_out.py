"""A fit on a part of the rows: the rows that are held out are read like the others, and have weight 0."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from streamsvm.data.view import Kept
from streamsvm.methods.altered_rows import alter_rows
from streamsvm.methods.fit import Fit, share_memory
from streamsvm.methods.set_up import choose_method, set_up
from streamsvm.options import TrainOptions
from streamsvm.requests import MemoryNeed, Solver


def hold_out(view: Kept, options: TrainOptions, n_fits: int = 1) -> Fit:
    """Return a fit on the rows that a view keeps, one of `n_fits` that share the memory.

    Its engine reads all rows of the source below the view.
    """
    fit = set_up(view, share_memory(options, n_fits, choose_method(options).process_bytes), n_fits=n_fits)
    return replace(fit, memory=partial(_need_memory, fit, view.n_rows), solve=partial(_solve, fit, view))


def _need_memory(fit: Fit, n_rows: int, threads: int) -> MemoryNeed:
    """Return the memory of the fit, with one more byte a row, because tasks are sent the flags of the rows."""
    need = fit.memory(threads)
    return replace(need, shared_bytes=need.shared_bytes + n_rows)


def _solve(fit: Fit, view: Kept, state: Any) -> Solver:
    return alter_rows(fit.solve(state), view.alteration)
