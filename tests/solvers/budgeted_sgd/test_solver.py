"""The order in which budgeted SGD meets the rows, what a state keeps, and how replicas become one model."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Step, Take, Walk
from streamsvm.solvers.budgeted_sgd import solver as budgeted_sgd
from streamsvm.solvers.budgeted_sgd.maintenance import (
    DEGRADATION,
    GRADIENT_ERROR,
    MAINTAINED,
    STEPS,
    VECTORS,
    make_state,
    pack_models,
    unpack_models,
)
from streamsvm.solvers.budgeted_sgd.solver import (
    BudgetedSGD,
    Carry,
    State,
    draw_orders,
    estimate_objective,
    learn_buffer,
    learn_rows,
    learn_rows_of_stream,
    read_current,
    read_vectors,
    solve,
    start_state,
)
from streamsvm.system.npz import pack_arrays, unpack_arrays
from tests.conftest import Problem, make_problem

DENSE = make_problem(1, n=300, d=6, weighted=True)
SETTINGS = BudgetedSGD(
    C=2.0,
    class_weights=(0.5, 3.0),
    kernel=Kernel("rbf", 0.2),
    n_rows=300,
    n_features=6,
    n_chunks=24,
    buffer_chunks=3,
    budget=20,
    epochs=2,
    seed=7,
)


def dense_rows(problem: Problem = DENSE) -> Rows:
    return Rows(0, np.asarray(problem.X), (problem.y > 0).astype(np.int32), problem.weight)


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_chunk_comes_once_an_epoch(replicas: int) -> None:
    """In shares of equal size, whole buffers first, in another order every epoch and for every seed."""
    settings = replace(SETTINGS, n_chunks=23, replicas=replicas)
    assert settings.shares_chunks
    orders = draw_orders(settings, 0)
    assert len(orders) == replicas
    assert sorted(chunk for order in orders for buffer in order for chunk in buffer) == list(range(23))
    assert all(len(buffer) == 3 for order in orders for buffer in order[:-1])
    sizes = [sum(map(len, order)) for order in orders]
    assert max(sizes) - min(sizes) <= 1
    assert orders == draw_orders(settings, 0)
    assert orders != draw_orders(settings, 1)
    assert orders != draw_orders(replace(settings, seed=8), 0)


def test_replicas_share_rows_where_chunks_are_few() -> None:
    """All meet every chunk, and each learns rows that no other does."""
    settings = replace(SETTINGS, n_chunks=5, replicas=3, budget=400, class_weights=(1.0, 1.0))
    assert not settings.shares_chunks
    orders = draw_orders(settings, 0)
    assert orders[0] == orders[1] == orders[2]
    assert sorted(chunk for buffer in orders[0] for chunk in buffer) == list(range(5))
    blank, rows, found = make_state(6, 400), dense_rows(replace(DENSE, weight=None)), []
    for replica in range(3):
        *_, (carry, _) = learn_buffer(settings, 0, Carry(blank, replica, 0), rows)
        assert carry.model.counts[STEPS] == 100
        found.append({tuple(x) for x in carry.model.vectors[:, : carry.model.counts[VECTORS]].T.tolist()})
    assert all(len(vectors) > 20 for vectors in found)
    assert not found[0] & found[1] | found[0] & found[2] | found[1] & found[2]


def test_a_buffer_is_learned_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, labels and costs belong together; parts of a buffer change nothing; carry and rows stay as they are."""
    rows, blank = dense_rows(), make_state(6, 20)
    rows.X.flags.writeable = blank.vectors.flags.writeable = False  # type: ignore[union-attr]
    *_, (whole, _) = learn_buffer(SETTINGS, 1, Carry(blank, 0, 5), rows)
    order = np.random.default_rng((7, 1, 0, 5)).permutation(300)
    y, cost = np.where(DENSE.y > 0, 1.0, -1.0), DENSE.costs(1.0, 0.5, 3.0)
    plain = make_state(6, 20)
    learn_rows(plain, SETTINGS.rules, np.array(rows.X), y, cost, order, 16)
    monkeypatch.setattr(budgeted_sgd, "LEARNED_ROWS", 64)
    parts, sizes = zip(
        *((carry.buffer, n) for carry, n in learn_buffer(SETTINGS, 1, Carry(blank, 0, 5), rows)), strict=True
    )
    *_, (other, _) = learn_buffer(SETTINGS, 1, Carry(blank, 0, 6), rows)
    assert parts == (6,) * 6
    assert sizes == (0, 64, 64, 64, 64, 44)
    assert blank.counts[STEPS] == 0
    assert_same_bits(whole.model, plain)
    assert other.model.alpha.tobytes() != plain.alpha.tobytes()


def assert_same_bits(left: Any, right: Any) -> None:
    for name in left._fields:
        assert getattr(left, name).tobytes() == getattr(right, name).tobytes(), name


def drive(problem: Problem, settings: BudgetedSGD, state: State | None = None) -> list[Step]:
    """Every step, on rows in chunks of 13."""
    source = problem.in_memory()
    source.chunk_starts = np.append(np.arange(0, source.n_rows, 13), source.n_rows)
    assert source.n_chunks == settings.n_chunks
    engine, steps = SerialEngine(source), []
    solver = solve(settings, np.arange(source.n_rows), state or start_state(settings))
    request = next(solver)
    while True:
        if isinstance(request, Step):
            steps.append(request)
            if request.status:
                return steps
            request = solver.send(None)
        else:
            assert isinstance(request, Take | Walk)
            request = solver.send(answer(engine, request))


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_every_step_is_a_place_to_go_on_from(replicas: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Within an epoch, too: what was saved and loaded gives the same bits; 4 replicas share rows, 2 share chunks."""
    monkeypatch.setattr(budgeted_sgd, "SEGMENT_BUFFERS", 2)
    settings = replace(SETTINGS, replicas=replicas)
    assert settings.shares_chunks == (replicas < 4)
    whole = drive(DENSE, settings)
    assert len(whole) == {1: 8, 2: 4, 4: 8}[replicas]
    assert [step.status for step in whole] == [None] * (len(whole) - 1) + ["pass_limit"]
    for at, step in enumerate(whole[:-1]):
        file = tmp_path / f"{at}.npz"
        file.write_bytes(pack_arrays({part.name: getattr(step.state, part.name) for part in fields(State)}))
        saved = {name: value if value.ndim else value.item() for name, value in unpack_arrays(file).items()}
        rest = drive(DENSE, settings, State(**saved))
        assert [found.progress for found in rest] == [expected.progress for expected in whole[at + 1 :]]
        assert [found.figures for found in rest] == [expected.figures for expected in whole[at + 1 :]]
        assert rest[-1].state.models.tobytes() == whole[-1].state.models.tobytes()


def test_rows_are_counted_once_however_many_replicas() -> None:
    """Over the epochs: each began where all others had, which must not count again."""
    for replicas in (1, 2, 4):
        steps = drive(DENSE, replace(SETTINGS, replicas=replicas, epochs=3))
        ends = [step for step in steps if step.state.buffer == 0]
        assert [step.figures["rows"] for step in ends] == [300, 600, 900]
        assert [step.progress.passes for step in ends] == [1, 2, 3]
        model = read_current(SETTINGS, steps[-1].state)
        assert 0 < model.counts[MAINTAINED] <= model.counts[2] <= 900


def test_replicas_are_averaged() -> None:
    """f is the mean of the replicas' f, where the budget has room for all their vectors."""
    settings = replace(SETTINGS, replicas=2, budget=700, free_bias=True)
    solver = solve(settings, np.arange(300), start_state(settings))
    next(solver)
    walk = solver.send(dense_rows())
    assert isinstance(walk, Walk)
    assert (walk.before, walk.after) == ([[], []], [[], []])
    carries = []
    for carry in walk.carries:
        *_, (after, _) = walk.step(carry, dense_rows())
        carries.append(after)
    step = solver.send(carries)
    assert isinstance(step, Step)
    grid = np.random.default_rng(0).normal(size=(50, 6))

    def score(model: Any, scale: float) -> Any:
        vectors, coef, bias = read_vectors(settings, model)
        distances = ((grid[:, None, :] - np.asarray(vectors)[None]) ** 2).sum(axis=2)
        return scale * (np.exp(-0.2 * distances) @ coef + bias)

    parts = [score(carry.model, 0.5) for carry in carries]
    assert np.abs(parts[0] - parts[1]).max() > 0.1
    np.testing.assert_allclose(score(read_current(settings, step.state), 1.0), sum(parts), rtol=1e-5, atol=1e-5)


def test_the_objective_of_a_sample_of_all_rows_is_exact() -> None:
    step = drive(DENSE, SETTINGS)[-1]
    vectors, coef, bias = read_vectors(SETTINGS, read_current(SETTINGS, step.state))
    Z, X = np.asarray(vectors, np.float64), DENSE.dense()
    gram = np.exp(-0.2 * ((Z[:, None] - Z[None]) ** 2).sum(axis=2))
    f = np.exp(-0.2 * ((X[:, None] - Z[None]) ** 2).sum(axis=2)) @ coef + bias
    costs = DENSE.costs(2.0, 0.5, 3.0)
    expected = 0.5 * coef @ gram @ coef + costs @ np.maximum(0, 1 - DENSE.y * f)
    assert step.progress.objective == pytest.approx(expected, rel=1e-4)
    assert step.progress.lower_bound is None
    half = Rows(-1, X[::2].astype(np.float32), (DENSE.y > 0).astype(np.int32)[::2])
    exact = 0.5 * coef @ gram @ coef + 2 * np.sum(
        (2.0 * np.where(DENSE.y > 0, 3.0, 0.5) * np.maximum(0, 1 - DENSE.y * f))[::2]
    )
    assert estimate_objective(SETTINGS, read_current(SETTINGS, step.state), half) == pytest.approx(exact, rel=1e-4)


def test_a_weight_is_a_cost() -> None:
    """Sample weights of 2 and class weights of 2 are the same, to the bit, and no sample weights are ones."""
    plain = replace(DENSE, weight=None)
    doubled = replace(SETTINGS, class_weights=(2.0, 2.0))
    ones = replace(SETTINGS, class_weights=(1.0, 1.0))
    by_class = drive(plain, doubled)[-1].state
    by_row = drive(replace(DENSE, weight=np.full(300, 2.0)), ones)[-1].state
    assert by_class.models.tobytes() == by_row.models.tobytes()
    assert by_class.models.tobytes() != drive(plain, ones)[-1].state.models.tobytes()
    y, cost = read_labels(SETTINGS.class_weights, (rows := dense_rows()).y, rows.sample_weight)
    np.testing.assert_array_equal(cost, DENSE.costs(1.0, 0.5, 3.0))
    np.testing.assert_array_equal(y, DENSE.y)


def test_figures_tell_what_maintenance_costs() -> None:
    step = drive(DENSE, SETTINGS)[-1]
    model = read_current(SETTINGS, step.state)
    assert step.figures["degradation"] == model.totals[DEGRADATION] / model.counts[MAINTAINED]
    assert step.figures["gradient_error"] == model.totals[GRADIENT_ERROR] / 600
    assert step.figures["n_support_vectors"] == model.counts[VECTORS] <= 20
    assert step.figures["degradation"] > 0
    assert step.figures["gradient_error"] > 0


def test_a_stream_goes_on_as_one() -> None:
    """Chunk after chunk, each in an order of its own; the state before is left alone."""
    settings = replace(SETTINGS, n_chunks=1)
    first = start_state(settings)
    before = first.models.tobytes()
    state = learn_rows_of_stream(settings, learn_rows_of_stream(settings, first, dense_rows()), dense_rows())
    assert (state.buffer, first.models.tobytes()) == (2, before)
    (model,) = unpack_models(state.models)
    *_, (carry, _) = learn_buffer(settings, 0, Carry(make_state(6, 20), 0, 0), dense_rows())
    *_, (carry, _) = learn_buffer(settings, 0, carry, dense_rows())
    assert_same_bits(model, carry.model)


def test_models_are_packed_and_unpacked() -> None:
    models = [make_state(5, 3), make_state(5, 3)]
    for k, part in enumerate(part for model in models for part in model):
        part[...] = np.arange(part.size).reshape(part.shape) + k
    for found, expected in zip(unpack_models(pack_models(models)), models, strict=True):
        assert_same_bits(found, expected)
        assert all(part.flags.c_contiguous and part.flags.aligned and part.flags.owndata for part in found)
