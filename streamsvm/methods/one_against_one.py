"""One against one: K classes make K (K - 1) / 2 problems of two classes, and one read of the data serves all of them.

Each problem has the rows of its two classes alone, so that all problems together have (K - 1) n rows. A row of class k
has C_i = C * class_weight[k] * sample_weight_i in every problem, as in LIBSVM. Each problem votes for a class, and the
class with the most votes is that of a row (numeric.pairs_of_classes). Knerr, Personnaz & Dreyfus (1990), Single-layer
learning revisited; Hsu & Lin (2002), A comparison of methods for multiclass support vector machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from streamsvm.data.class_pairs import PairOfClasses
from streamsvm.data.source import RowSource
from streamsvm.data.view import ONE, REST
from streamsvm.machine import default_budget_bytes
from streamsvm.methods.fit import Fit, TakeRows
from streamsvm.methods.many_problems import State
from streamsvm.methods.one_against_rest import join_fits, note_rows
from streamsvm.models.model import KernelModel
from streamsvm.numeric.pairs_of_classes import list_pairs
from streamsvm.numeric.rows import I64, take_rows
from streamsvm.options import TrainOptions, compute_class_factors


def make_one_against_one(
    source: RowSource, options: TrainOptions, make: Callable[[RowSource, TrainOptions], Fit], process_bytes: int
) -> Fit:
    """Return the fit of all pairs of classes; `make` makes the fit of two classes, and its InputError is raised."""
    factors, y = compute_class_factors(source, options), source.column("y")
    assert y is not None
    views = [PairOfClasses(source, y, *pair) for pair in list_pairs(len(factors))]
    budget_bytes, n_rows = options.memory_bytes or default_budget_bytes(), sum(view.n_rows for view in views)
    spare_bytes = max(0, budget_bytes - process_bytes)
    parts = []
    for view in views:
        weights = {label: float(factors[view.codes[label]]) for label in (REST, ONE)}
        own_bytes = min(budget_bytes, process_bytes) + spare_bytes * view.n_rows // n_rows
        parts.append(make(view, replace(options, class_weight=weights, memory_bytes=own_bytes)))
    fit = join_fits(views, parts, partial(_make_model, source, views, parts))
    return replace(fit, settings={**fit.settings, "multi_class": "ovo"})


def _make_model(
    source: RowSource, views: Sequence[PairOfClasses], parts: Sequence[Fit], state: State, take: TakeRows
) -> KernelModel:
    """Return the models of all pairs as one, whose support vectors are in the order of their classes."""
    chosen: list[I64] = []
    pairs = zip(parts, state.problems, strict=True)
    models = [part.make_model(one, partial(note_rows, chosen, take)) for part, one in pairs]
    numbers = [view.alteration.number(rows) for view, rows in zip(views, chosen, strict=True)]
    support = np.unique(np.concatenate(numbers))
    taken = take(support)
    assert taken.y is not None
    order = np.argsort(taken.y, kind="stable")
    place = np.argsort(order)
    K = len(np.asarray(source.classes))
    dual_coef = np.zeros((K - 1, len(support)))
    for view, model, mine in zip(views, models, numbers, strict=True):
        assert isinstance(model, KernelModel)
        second, first = view.codes.tolist()
        of_first = model.dual_coef > 0
        at = place[np.searchsorted(support, mine)]
        dual_coef[second - 1, at[of_first]] = model.dual_coef[of_first]
        dual_coef[first, at[~of_first]] = model.dual_coef[~of_first]
    first_model = models[0]
    assert isinstance(first_model, KernelModel)
    vectors = first_model.keep_vectors(taken.X)
    return replace(
        first_model,
        support_vectors=vectors if vectors.shape[0] == 0 else take_rows(vectors, order),
        dual_coef=dual_coef,
        intercept=np.array([model.intercept for model in models]),
        classes=np.asarray(source.classes),
        support=support[order],
        n_support=np.bincount(taken.y, minlength=K),
    )
