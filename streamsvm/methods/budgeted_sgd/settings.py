"""The settings of a training by stochastic gradient descent, as the solver takes them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.methods.budgeted_sgd.budget import Maintenance, make_rules
from streamsvm.methods.budgeted_sgd.state import BudgetRules
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64

LEAST_CHUNKS_PER_REPLICA = 8  # with fewer chunks, the replicas' shares of the rows would differ too much


@dataclass(frozen=True)
class BudgetedSGD:
    """Settings of a training.

    C: the cost of a row. class_weights: c_i of the classes coded 0 and 1, before sample weights.
    n_rows: n of lambda = 1 / (n C). n_chunks: chunks of the data; buffer_chunks: chunks of a buffer.
    budget, merge, maintenance, free_bias: see `make_rules`. pack_rows: rows of a pack. threads: of the driver, which
    estimates P.
    tube: epsilon of a regression, or None for classes; is_squared: whether its loss is squared; numbers: the target
    that each code of a label stands for, empty if the rows have targets. bias_start, bias_unit: b before the first
    step, and the unit of its steps (`solver.aim_bias`).
    """

    C: float
    class_weights: tuple[float, float]
    kernel: Kernel
    n_rows: int
    n_features: int
    n_chunks: int
    is_sparse: bool = False
    buffer_chunks: int = 1
    budget: int = 500
    merge: int = 2
    maintenance: Maintenance = "merge"
    free_bias: bool = False
    epochs: int = 1
    pack_rows: int = 64
    replicas: int = 1
    threads: int = 1
    seed: int = 0
    tube: float | None = None
    is_squared: bool = False
    numbers: F64 = field(default_factory=lambda: np.empty(0), compare=False)
    bias_start: float = 0.0
    bias_unit: float = 1.0

    @property
    def replica_budget(self) -> int:
        """The budget of each replica."""
        return max(1, self.budget // self.replicas)

    @property
    def rules(self) -> BudgetRules:
        """The rules by which each replica is trained."""
        regularisation = 1.0 / (self.n_rows * self.C)
        return make_rules(
            self.kernel,
            self.replica_budget,
            self.merge,
            self.maintenance,
            regularisation=regularisation,
            free_bias=self.free_bias,
            period=self.n_rows,
            replicas=self.replicas,
            tube=self.tube,
            is_squared=self.is_squared,
            bias_unit=self.bias_unit,
        )

    @property
    def shares_chunks(self) -> bool:
        """Whether each replica learns chunks of its own, instead of a share of the rows of every chunk."""
        return self.n_chunks >= LEAST_CHUNKS_PER_REPLICA * self.replicas
