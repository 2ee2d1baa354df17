"""The set-up of Crammer-Singer with kernels: settings, memory and model for the rows of a source.

All classes form one problem, which is solved by decomposition into active sets of rows.
"""

from __future__ import annotations

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.kernels import kernel as kernels
from streamsvm.losses.classes import add_line_losses, multiply_shares
from streamsvm.models.model import KernelModel
from streamsvm.numeric.rows import F64, Rows, take_rows
from streamsvm.options import TrainOptions, make_kernel
from streamsvm.passes import MemoryNeed, Requests
from streamsvm.problems.classification import CRAMMER_SINGER
from streamsvm.solvers.crammer_singer.kernel_active_set import BLOCK_COLUMNS, count_jump_rows, judge_rows, visit_rows
from streamsvm.solvers.crammer_singer.kernel_solver import ClassDecomposition, State, solve, start_state
from streamsvm.solvers.decomposition.setup import choose_active, count_tile_bytes, find_row_bytes, need_memory
from streamsvm.solvers.decomposition.solver import ESCALATION_ROWS
from streamsvm.solvers.decomposition.state import FLOAT64_ROWS
from streamsvm.solvers.options import ClassDecompositionOptions
from streamsvm.solvers.solver import Budget, Solver, TakeRows, describe_parameters, make_kernel_model
from streamsvm.system.errors import InputError

NOT_TOLD = ("threads", "pass_threads", "seed", "class_costs")
ROW_VECTORS, CLASS_VECTORS = 16, 14  # 8-byte numbers that the driver holds per row: ROW_VECTORS + K CLASS_VECTORS
ACTIVE_VECTORS, ACTIVE_CLASS_VECTORS = 8, 10  # the same for each active row, in addition
JUMP_TABLES = 5  # arrays of the interior-point method, each as large as K kernel matrices of a working set
WORKING_ROWS = 2048  # smaller sets need more rounds: with 512 rows, letter (C = 10) takes three times as long


class ClassDecompositionSolver(Solver):
    """Decomposition into active sets of rows, for all classes at once."""

    name, compiled = "smo", ("smo-classes",)

    def __init__(
        self, source: RowSource, options: TrainOptions, own: ClassDecompositionOptions, budget: Budget
    ) -> None:
        told = CRAMMER_SINGER.tell_loss(source, options)
        self.source = source
        active = choose_active(source, options, own.cache_bytes, budget, _count_held_bytes(len(told["class_costs"])))
        kernel = make_kernel(source, options)
        if kernel.name == "poly" and kernel.degree == 1 and kernel.coef0 < 0:
            raise InputError(
                f"coef0 is {kernel.coef0:g}: with a negative constant in all kernel values there is no lower bound; "
                "remove coef0 (the option intercept_scaling adds a positive constant)"
            )
        self.parameters = ClassDecomposition(
            class_costs=tuple(told["class_costs"]),
            kernel=kernel,
            bias_feature=own.intercept_scaling,
            working_rows=own.working_rows or min(active["resident_rows"], WORKING_ROWS),
            **active,
        )
        self.settings = {"task": options.task, **told, **describe_parameters(self.parameters, *NOT_TOLD)}

    def start(self) -> State:
        """Return the state in which all shares are 0."""
        return start_state(self.source.n_rows, self.parameters.n_classes, self.parameters.is_definite)

    def solve(self, state: State) -> Requests:
        """Yield the requests of the steps."""
        return solve(self.parameters, state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory that the solver needs.

        The driver holds the shares and sums of two states, the sums found by a pass, and the arrays of a proof. Every
        task holds the kernel values of a tile of rows with a block of active rows.
        """
        settings, source, K = self.parameters, self.source, self.parameters.n_classes
        active = min(source.n_rows, settings.resident_rows)
        working = min(active, max(settings.working_rows, ESCALATION_ROWS))
        tile = count_tile_bytes(source) + 16 * kernels.TILE_ROWS * min(active, kernels.SUMMED_COLUMNS)
        matrices = 16 * working**2 + 8 * JUMP_TABLES * K * min(working, count_jump_rows(K)) ** 2
        walk = threads * (settings.pass_threads * tile + int(2 * FLOAT64_ROWS * find_row_bytes(source)))
        turn, weights = matrices + settings.threads * tile, 16 * K * source.n_features
        return need_memory(source, settings, _count_held_bytes(K), 8 * (K + 3), turn, walk, weights)

    def make_model(self, state: State, take: TakeRows) -> KernelModel:
        """Return the model. With two classes, its one score is the second class's score minus the first class's."""
        parameters, source = self.parameters, self.source
        chosen = np.flatnonzero(np.any(state.share > 0.0, axis=1) & (state.costs > 0.0))
        alpha = multiply_shares(state.share[chosen], state.y[chosen], state.costs[chosen]).T
        coefs: F64 = alpha[1] - alpha[0] if parameters.n_classes == 2 else np.ascontiguousarray(alpha)
        biases = parameters.constant * np.sum(coefs, axis=-1)
        intercept = float(biases) if parameters.n_classes == 2 else biases
        return make_kernel_model(source, parameters.kernel, take(chosen).X, coefs, intercept, source.classes, chosen)


def _count_held_bytes(n_classes: int) -> tuple[int, int]:
    """Return the bytes that the driver holds for each row, and the further bytes that it holds for each active row.

    The features of active rows are not included.
    """
    of_row = 8 * (ROW_VECTORS + CLASS_VECTORS * n_classes)
    return of_row, 8 * (ACTIVE_VECTORS + ACTIVE_CLASS_VECTORS * n_classes) + 8 * BLOCK_COLUMNS


def run_kernels(group: str, rows: Rows) -> None:  # noqa: ARG001
    """Call every compiled function with float32 and with float64 rows."""
    y, ones, coefs = np.arange(2, dtype=np.int32), np.ones(2), np.ones((2, 2))
    kernels.add_moments([], rows, coefs)
    for columns in (rows.X, kernels.to_float64(rows.X)):
        kernels.compute_squares(columns, np.float64)
        kernels.combine_rows(take_rows(columns, np.arange(2)), ones)
        for name in ("rbf", "poly", "linear"):
            kernels.add_kernel_sums(kernels.Kernel(name), rows.X, columns, ones, np.zeros(2))
            K = kernels.compute_kernel(kernels.Kernel(name), columns)
            visit_rows(K, y, ones, np.zeros((2, 2)), np.zeros((2, 2)), np.arange(2), 0.0)
    for name in ("rbf", "linear"):
        kernels.prove_kernel_sums(kernels.Kernel(name), kernels.to_float64(rows.X), kernels.to_float64(rows.X), coefs)
    add_line_losses(coefs, coefs, y, ones, ones, np.zeros(2))
    judge_rows(np.zeros((2, 2)), y, ones, np.zeros((2, 2)))
