"""nu-SVC and nu-SVR: nu, a share of the rows, takes the place of C in classification, of epsilon in regression.

    min over w, b, rho    1/2 |w|^2 - N rho + sum_i C_i max(0, rho - y_i (w.phi(x_i) + b))

    C_i = class_weight[y_i] * sample_weight_i,   N = nu sum_i C_i

At most the share nu of the rows have a margin below rho, and at least the share nu are support vectors, where a row
counts as much as its C_i. The model is (w.phi(x) + b) / rho, so that its margin is 1. Its multipliers, divided by rho,
are those of an SVM with C = 1 / rho. Two classes have such multipliers if the costs C_i of each sum to N / 2 at least.
K > 2 classes make K (K - 1) / 2 problems of two classes, each with the same nu.

nu-SVR has the C of an SVM, and minimises over epsilon as well:

    min over w, b, epsilon >= 0    1/2 |w|^2 + N epsilon + sum_i C_i max(0, |t_i - (w.phi(x_i) + b)| - epsilon)

    C_i = C * sample_weight_i,   N = nu sum_i C_i

At most the share nu of the rows lie outside the tube, and at least the share nu are support vectors.

Source: Schoelkopf, Smola, Williamson & Bartlett 2000, "New support vector algorithms", Neural Computation 12.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.options import TrainOptions, compute_class_costs
from streamsvm.problems.classification import CLASSIFY
from streamsvm.problems.one_class import read_nu, read_share
from streamsvm.problems.regression import REGRESS, read_numbers

ROUNDED_SHARE = 1e-12  # a nu above the largest one by no more than this share is that one, but for rounding


def tell_loss(source: RowSource, options: TrainOptions) -> dict[str, Any]:
    """Return the loss of two classes as it is told in settings and models; InputError for a nu that is infeasible."""
    nu, costs = read_nu(options), compute_class_costs(source, options)
    sums = source.sum_weights()
    assert sums is not None
    totals = np.multiply(costs, sums)
    largest = 2 * float(np.min(totals)) / float(np.sum(totals)) if np.sum(totals) > 0.0 else 0.0
    if nu > largest * (1.0 + ROUNDED_SHARE):
        names = " and ".join(map(str, np.asarray(source.classes).tolist()))
        raise InputError(
            f"{source.name}: nu is {nu:g}, which is infeasible: for the classes {names} it is at most {largest:.6g}, "
            "twice the share of the smaller one"
        )
    return {"loss": "nu_hinge", "class_costs": list(costs), "nu": nu}


def tell_tube(source: RowSource, options: TrainOptions) -> dict[str, Any]:
    """Return the loss of nu-SVR as it is told in settings and models; InputError for rows without targets."""
    read_numbers(source)
    return {"loss": "nu_tube", "row_cost": float(options.C), "nu": read_share(options)}


NU_REGRESS = replace(
    REGRESS,
    name="nu-regress",
    models=("kernel",),
    has_epsilon=False,
    has_nu=True,
    make_loss=None,
    tell_loss=tell_tube,
    read_losses=None,
)
NU_CLASSIFY = replace(
    CLASSIFY,
    name="nu-classify",
    models=("kernel",),
    has_nu=True,
    make_loss=None,
    tell_loss=tell_loss,
    read_losses=None,
)
