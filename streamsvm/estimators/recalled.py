"""What a model's file holds of its training: the same after `load` as after `fit`."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.models.model import KernelModel, Model
from streamsvm.numeric.rows import F64, I64
from streamsvm.problems.registry import find_entry

N_SUPPORT = "n_support"  # in the info of a model


def find_class_factors(model: Model) -> F64 | None:
    """Return the factor of C of each class, (K,); None for a model without classes, and if its file does not tell.

    The costs of two classes, and of a joint problem, are one a class. Problem k of K has those of the rest and of class
    k, and a pair of classes those of its second and of its first class, the pairs (0, 1), (0, 2), .. first.
    """
    K, problem = len(model.classes), model.info.get("problem")
    if not model.problem.has_classes or model.problem.has_label_sets or not isinstance(problem, dict):
        return None
    try:
        costs = np.asarray(problem["class_costs"], np.float64) / float(model.info["C"])
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    if isinstance(model, KernelModel) and model.n_support is not None and costs.shape == (K * (K - 1) // 2, 2):
        return np.append(costs[0, 1], costs[: K - 1, 0])
    return costs if costs.shape == (K,) else costs[:, 1] if costs.shape == (K, 2) else None


def count_support(model: KernelModel) -> I64 | None:
    """Return the number of support vectors of each class, (K,), or of all if there are no classes, (1,).

    The class of a vector is that of its positive coefficient; if one has none, `fit` notes the counts.
    None for centres that are no rows, and if nothing tells it.
    """
    if not model.problem.has_classes:
        return np.array([model.dual_coef.shape[-1]])
    if model.support is None or model.n_support is not None:
        return model.n_support
    told, most = model.info.get(N_SUPPORT), model.dual_coef.shape[-1]
    if isinstance(told, list) and len(told) == len(model.classes) and all(n in range(most + 1) for n in told):
        return np.array(told, np.int64)
    coef = model.dual_coef if model.dual_coef.ndim > 1 else np.stack((-model.dual_coef, model.dual_coef))
    return np.bincount(np.argmax(coef, axis=0), minlength=len(coef)) if (coef.max(axis=0) > 0).all() else None


def recall_parameters(model: Model) -> dict[str, Any]:
    """Return parameters of the training beside the kernel, as far as the file holds them and they are no defaults."""
    found, factors, problem = dict[str, Any](), find_class_factors(model), model.info.get("problem")
    if isinstance(problem, dict) and problem.get("bias_feature"):  # 0 stands for no bias
        found["intercept_scaling"] = problem["bias_feature"]
    if factors is not None and np.any(factors != 1.0):
        found["class_weight"] = dict(zip(model.classes.tolist(), factors.tolist(), strict=True))
    found |= {name: model.info[name] for name in ("approximation", "rank") if name in model.info}
    if isinstance(model, KernelModel) and model.support is not None and model.dual_coef.ndim > 1:
        is_joint = find_entry(model.problem.name).joins_classes
        found |= {} if is_joint or model.n_support is not None else {"multi_class": "ovr"}
    return found
