"""Percolator's rounds (Kall et al., Nature Methods 4, 2007), in three folds (Granholm et al., BMC Bioinf. 13, 2012).

In each round, the targets with a q-value of at most 1% count as right matches, and a linear SVM with the squared hinge
loss separates them from the decoys; its scores give the q-values of the next round. Each match is scored by a model
trained on the two other folds. The costs of targets and of decoys are chosen separately, by the number of accepted
targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.peptides.matches import Matches, find_q_values
from streamsvm.system.errors import InputError

ROUNDS, FOLDS = 3, 3
ACCEPTED = 0.01  # the largest q-value of an accepted match
COSTS = (0.1, 1.0, 10.0)  # the costs of a target that are tried
RATIOS = (1.0, 3.0, 10.0)  # the ratios of the cost of a decoy to the cost of a target that are tried

Scores = npt.NDArray[np.float64]
MakeModel = Callable[[float, float], Any]  # makes an estimator, given the costs of a decoy and of a target


def rescore(matches: Matches, make_model: MakeModel) -> Scores:
    """Return the scores of all matches. Each match is scored by a model that was trained without its spectrum."""
    scores = np.empty(len(matches.X))
    for fold in range(FOLDS):
        held_out = matches.fold == fold
        model = train_rounds(matches, np.flatnonzero(~held_out), make_model)
        found = model.decision_function(matches.X[held_out])
        scores[held_out] = normalise(found, matches.is_target[held_out])
    return scores


def train_rounds(matches: Matches, rows: npt.NDArray[np.intp], make_model: MakeModel) -> Any:
    """Carry out all rounds on some rows, and return the model of the last round. The first round chooses the costs."""
    X, is_target = matches.X[rows], matches.is_target[rows]
    scores: Scores = X[:, 0].astype(np.float64)
    costs, model = (1.0, 1.0), None
    for number in range(ROUNDS):
        chosen = ~is_target | (find_q_values(scores, is_target) <= ACCEPTED)
        labels = np.where(is_target[chosen], 1, -1)
        if labels.max() < 0:
            raise InputError("no target has a q-value of 1% or less, so there is nothing to learn from")
        if number == 0:
            trials = [(make_model(*pair).fit(X[chosen], labels), pair) for pair in list_costs()]
            model, costs = max(trials, key=lambda trial: count_accepted(trial[0].decision_function(X), is_target))
        else:
            model = make_model(*costs).fit(X[chosen], labels)
        scores = model.decision_function(X)
    return model


def list_costs() -> Iterator[tuple[float, float]]:
    """Yield all pairs of costs to try: of a decoy, and of a target."""
    for cost in COSTS:
        for ratio in RATIOS:
            yield ratio * cost, cost


def count_accepted(scores: Scores, is_target: npt.NDArray[np.bool_]) -> int:
    """Return the number of targets with a q-value of at most 1%."""
    return int(np.count_nonzero(is_target & (find_q_values(scores, is_target) <= ACCEPTED)))


def normalise(scores: Scores, is_target: npt.NDArray[np.bool_]) -> Scores:
    """Scale the scores of a fold: 0 is the score at which the q-value is 1%, and -1 is the median of the decoys."""
    accepted = scores[is_target & (find_q_values(scores, is_target) <= ACCEPTED)]
    limit, median = accepted.min() if len(accepted) else scores.max(), np.median(scores[~is_target])
    return (scores - limit) / (limit - median)  # type: ignore[no-any-return]
