"""Classification by one problem for all classes (Crammer & Singer 2001, J. Machine Learning Research 2).

    P(W) = 1/2 sum_k |w_k|^2 + sum_i C_i max(0, max_{k != y_i} 1 + w_k.x_i - w_{y_i}.x_i)

C_i = C * class_weight[y_i] * sample_weight_i, and the constant feature, whose weight is the bias, is a part of x_i. The
highest score tells the class. Two classes have w_1 = -w_2 at the optimum, so their model has one score, 2 w_2.x.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamsvm.data.source import RowSource
from streamsvm.options import TrainOptions, compute_class_factors
from streamsvm.problems.classification import CLASSIFY


def count_one(_: Any) -> int:
    """Return 1: there is one problem for all classes."""
    return 1


def tell_loss(source: RowSource, options: TrainOptions) -> dict[str, Any]:
    """Return the loss and the costs of the classes, as they are told in settings and models."""
    costs = options.C * compute_class_factors(source, options)
    return {"loss": "crammer_singer", "class_costs": costs.tolist()}


CRAMMER_SINGER = replace(
    CLASSIFY,
    name="crammer-singer",
    models=("linear", "kernel"),
    count_problems=count_one,
    make_loss=None,
    tell_loss=tell_loss,
    read_losses=None,
)
