"""Decomposition where rounding counts: certificates at large costs, sums over many passes, and float64 for few rows."""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm import SVC
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.kernels.kernel import Kernel, type_of
from streamsvm.numeric.rows import F64
from streamsvm.passes import Step
from streamsvm.solvers.decomposition import all_active
from streamsvm.solvers.decomposition import solver as decomposition
from streamsvm.solvers.decomposition.state import Decomposition, start_state
from streamsvm.verify.verify import verify
from tests.conftest import Problem
from tests.kernel_problems import KINDS, drive, matrix_of
from tests.solvers.decomposition.test_solver import PROBLEMS, check_certificate


def test_active_rows_in_float64_only_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all rows are one working set of pair steps; what is sent to a pass always is."""
    source: ArrayDataset = PROBLEMS["sparse"].in_memory()
    held: list[type] = []
    for module in (decomposition, all_active):
        improve = module.improve
        note = partial(lambda improve, active, *more: (held.append(type_of(active.X)), improve(active, *more)), improve)
        monkeypatch.setattr(module, "improve", note)
    for working, inner, selection, resident, kind in (
        (200, "smo", "random", 200, np.float64),
        (199, "smo", "random", 200, np.float32),
        (200, "irwls", "random", 200, np.float32),
        (200, "smo", "platt", 200, np.float32),
        (200, "smo", "random", 199, np.float32),
    ):
        sizes = {"working_rows": working, "resident_rows": resident}
        plane = Decomposition((1.0, 1.0), KINDS["rbf"], inner=inner, selection=selection, **sizes)
        solver = decomposition.solve(plane, start_state(source.n_rows))
        request = solver.send(source.take(next(solver).rows))  # type: ignore[union-attr]
        assert held.pop() == kind
        assert isinstance(request, Step) or request.shared[3].data.dtype == np.float64  # type: ignore[union-attr]


@pytest.mark.parametrize("inner", ["smo", "irwls"])
def test_a_certificate_is_true_at_large_costs(inner: str) -> None:
    """Close rows, C = 1e4: float32 kernel values alone would show a gap a hundred times too small."""
    X = np.random.default_rng(5).normal(size=(40, 3)).astype(np.float32) * np.float32(0.02) + np.float32(2.0)
    problem = Problem(X, np.where(np.arange(40) % 2, 1, -1))
    plane = Decomposition((1e4, 1e4), KINDS["rbf"], inner=inner, tol=1e-4, working_rows=8, resident_rows=20)
    check_certificate(problem, plane, drive(problem.in_memory(), plane)[-1], None, 1e-9)


def exact_sums(kernel: Kernel, problem: Problem, alpha: F64) -> F64:
    return matrix_of(problem, kernel) @ (alpha * problem.y)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_sums_stay_true_over_many_passes(kind: str) -> None:
    """They are never computed anew: what float32 rounds must not add up."""
    plane = Decomposition((1.0, 1.0), KINDS["rbf"], tol=1e-7, working_rows=10, resident_rows=20)
    for step in drive(PROBLEMS[kind].in_memory(), plane):
        truth = exact_sums(KINDS["rbf"], PROBLEMS[kind], step.state.alpha)
        assert np.abs(step.state.f - truth).max() <= 1e-6 * (1 + step.state.alpha.sum())


def test_lengths_of_unequal_rows_count_in_what_is_proved() -> None:
    """Ten rows have a tail whose squares float64 loses beside 1; they are no support vectors, and C is large."""
    tail, n_tailed, n_others, gamma, C = 50_000, 10, 30, 30.0, 4e9
    tailed = np.arange(1 + tail), np.r_[1.0, np.full(tail, 1e-8)]
    items = [([0], [-1.0])] * n_others + [tailed] * n_tailed + [([0], [1.0])]
    indices, data = (np.concatenate(part) for part in zip(*items, strict=True))
    indptr = np.cumsum([0, *(len(own) for own, _ in items)])
    X = csr_array((data.astype(np.float32), indices.astype(np.int32), indptr), shape=(len(items), 1 + tail))
    first, has_tail = X[:, [0]].toarray().ravel(), np.diff(indptr) > 1
    y = (first > 0).astype(int)
    model = SVC(kernel="rbf", gamma=gamma, C=C, tol=1e-3).fit(X, y)
    with localcontext(prec=60):
        square, kinds = tail * Decimal(float(np.float32(1e-8))) ** 2, [(-1, False), (1, False), (1, True)]
        coefs = dict.fromkeys(kinds, Decimal(0))
        for row, coef in zip(model.support_, model.dual_coef_.toarray().ravel().tolist(), strict=True):
            coefs[int(first[row]), bool(has_tail[row])] += Decimal(coef)
        sums = {
            x: sum(
                coef * (-Decimal(gamma) * ((x[0] - z[0]) ** 2 + square * (x[1] != z[1]))).exp()
                for z, coef in coefs.items()
            )
            for x in kinds
        }
        objective = sum(coefs[x] * sums[x] for x in kinds) / 2
        for x, count in zip(kinds, (n_others, 1, n_tailed), strict=True):
            objective += Decimal(C) * count * max(0, 1 - x[0] * (sums[x] + Decimal(float(model.intercept_[0]))))
        assert abs(float(objective) - model.objective_) <= model.rounding_bound_
        found = verify(model.model_, ArrayDataset(X, y.astype(np.int32), np.arange(2)), dual=True, threads=1)
        assert abs(float(objective) - found.objective) <= found.rounding_bound <= 1e-3 * found.objective
        assert found.agrees
        assert (float(objective) - model.lower_bound_) / float(objective) <= 1e-3 or model.status_ == "stalled"
