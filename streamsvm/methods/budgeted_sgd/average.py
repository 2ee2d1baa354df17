"""The average of several budgeted models, each trained on a share of the rows, within one budget.

w = (1/R) sum_r w_r, where w_r is the model of replica r (Zinkevich, Weimer, Li & Smola 2010).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from streamsvm.methods.budgeted_sgd.maintenance import choose_table, keep_budget
from streamsvm.methods.budgeted_sgd.state import BIAS, SCALE, VECTORS, BudgetRules, BudgetState, make_state
from streamsvm.numeric.rows import F32


@njit(cache=True, nogil=True)
def _shrink(state: BudgetState, rules: BudgetRules, table: F32) -> None:
    """Maintain the budget until it is kept."""
    no_rows = np.empty((0, state.alpha.size), np.float32)
    while state.counts[VECTORS] > rules.budget:
        keep_budget(state, rules, table, no_rows)


def average_models(states: Sequence[BudgetState], rules: BudgetRules) -> BudgetState:
    """Return the average of the models, reduced to the budget of the rules by their maintenance.

    w and b are averaged. Steps, counts and degradations are added up, so that training goes on with the rate of a
    single stream. Equal input, in the same order, gives equal bits.
    """
    scale = max(float(state.totals[SCALE]) for state in states)
    sizes = [int(state.counts[VECTORS]) for state in states]
    union = make_state(states[0].vectors.shape[0], max(sum(sizes), rules.budget))
    at = 0
    for state, size in zip(states, sizes, strict=True):
        part = slice(at, at + size)
        union.vectors[:, part], union.squares[part] = state.vectors[:, :size], state.squares[:size]
        union.alpha[part] = state.alpha[:size] * (state.totals[SCALE] / (len(states) * scale) if scale > 0 else 0.0)
        at += size
    union.counts[:] = np.sum([state.counts for state in states], axis=0)
    union.totals[:] = np.sum([state.totals for state in states], axis=0)
    union.totals[BIAS] /= len(states)
    union.totals[SCALE] = scale
    _shrink(union, rules, choose_table(rules))
    average = make_state(union.vectors.shape[0], rules.budget)
    slots = average.alpha.size
    average.vectors[:], average.squares[:] = union.vectors[:, :slots], union.squares[:slots]
    average.alpha[:], average.counts[:], average.totals[:] = union.alpha[:slots], union.counts, union.totals
    return average
