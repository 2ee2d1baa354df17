"""The dual points of one read: near rows with shares of their own, after every pass, in files, and forged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.options import TrainOptions
from streamsvm.passes import Step
from streamsvm.solvers.keep_dual import State, read_dual_point
from streamsvm.solvers.one_read import solver
from streamsvm.solvers.set_up import set_up
from streamsvm.system.errors import InputError
from streamsvm.system.npz import pack_arrays
from streamsvm.verify.dual_file import NAME
from tests.conftest import Problem, make_problem
from tests.kept_dual_points import LINE_SEARCH, ONE_READ, Kept, keep
from tests.linear_problems import run_steps
from tests.verify.test_verify_dual import LONG, evaluate

WITH_FEW_ROWS = TrainOptions(C=10.0, tol=1e-4, resident_rows=40, options={"acceleration": "one-read"})


def make_steps(problem: Problem) -> list[Step]:
    """All steps of one read that keeps its dual point."""
    source = problem.in_memory()
    fit = set_up(source, WITH_FEW_ROWS, keep_dual=True)
    return run_steps(source, fit.solve(fit.start()))


def check_proof(problem: Problem, step: Step) -> None:
    """The point that is kept proves the bound that is told: D in long double, rounding aside."""
    arrays = {f"0/{name}": value for name, value in vars(read_dual_point(step.state)).items()}
    X, y = problem.dense().astype(LONG), problem.y.astype(LONG)
    D, error = evaluate(arrays, 0, X, y, problem.costs(WITH_FEW_ROWS.C).astype(LONG), 1.0)
    told = step.progress
    assert told.lower_bound is not None
    assert D + error >= told.lower_bound
    assert D - told.lower_bound <= told.rounding_bound + error + 5e-15 * told.objective


def count_cuts(state: State) -> int:
    """How many cuts the bound rests on in which rows have shares of their own."""
    return len(read_dual_point(state).own_cuts)


def test_every_pass_proves_what_it_tells() -> None:
    """Also where the bound rests on several of these cuts, and where it is that of the line search beside."""
    cuts, is_beside = [], []
    for seed in (4, 6):
        problem = make_problem(seed, n=300, d=4, weighted=True)
        for step in make_steps(problem):
            check_proof(problem, step)
            first, other = step.state.inner[0].states
            cuts.append(count_cuts(step.state))
            is_beside.append(other.lower_bound > first.lower_bound)
    assert max(cuts) > 1
    assert any(is_beside)
    assert not all(is_beside)


@pytest.mark.parametrize("most", [1, 2])
def test_cuts_for_which_there_is_no_room_are_dropped(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept then proves what is told all the same, and no state holds more than there is room for."""
    monkeypatch.setattr(solver, "MOST_OWN", most)
    problem = make_problem(4, n=300, d=4, weighted=True)
    steps = make_steps(problem)
    for step in steps:
        check_proof(problem, step)
        state, first = step.state, step.state.inner[0].states[0]
        assert first.n_own.sum() <= most * 40
        assert len(state.own_rows) <= 2 * most * 40
    dropped = [step.state.inner[0].states[0].n_own for step in steps]
    assert any((n_own > 0).sum() < at for at, n_own in enumerate(dropped, start=1))
    assert steps[-1].status == "converged"


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    found = keep(make_problem(13, n=200, d=6, weighted=True), tmp_path, **ONE_READ | {"tol": 1e-3})
    assert len(found.arrays()["0/own_rows"]) > 3
    return found


def test_a_file_that_was_tampered_with_is_refused(kept: Kept) -> None:
    arrays = kept.arrays()
    cuts, stops, rows, shares = (arrays[f"0/own_{name}"] for name in ("cuts", "stops", "rows", "shares"))
    for changes in (
        {"own_rows": rows[::-1].copy()},
        {"own_rows": np.append(rows[:-1], 200)},
        {"own_rows": rows - 200},
        {"own_rows": np.repeat(rows[:1], len(rows))},
        {"own_rows": rows.astype(np.float64)},
        {"own_rows": rows[:-1]},
        {"own_shares": np.append(shares[:-1], 1.0 + 1e-15)},
        {"own_shares": np.append(shares[:-1], -1e-300)},
        {"own_shares": np.full(len(shares), np.nan)},
        {"own_shares": np.full(len(shares), 1.5)},
        {"own_shares": shares[None, :]},
        {"own_cuts": cuts + len(arrays["0/steps"])},
        {"own_stops": stops + 2**40},
        {"own_stops": -stops},
    ):
        kept.forge(**{name: arrays[f"0/{name}"] for name in ("own_cuts", "own_stops", "own_rows", "own_shares")})
        assert kept.verify().agrees
        kept.forge(**changes)
        with pytest.raises(InputError, match=r"dual\.npz: not the dual point of this model and these rows \(.*own_"):
            kept.verify()


def test_any_shares_bound_the_optimum(kept: Kept) -> None:
    """Other shares of the rows, of other rows or at another centre prove something lower; never more than P."""
    random, arrays = np.random.default_rng(0), kept.arrays()
    n_own, bound = len(arrays["0/own_rows"]), kept.result.lower_bound
    assert bound is not None
    changes: list[dict[str, Any]] = [{"own_shares": random.random(n_own)}]
    none = {f"own_{name}": np.empty(0, np.int64) for name in ("cuts", "stops", "rows")}
    changes += [{**none, "own_shares": np.empty(0)}]
    changes += [{"vectors": factor * random.normal(size=arrays["0/vectors"].shape)} for factor in (1e-3, 1.0, 1e300)]
    for change in changes:
        kept.forge(**{name.removeprefix("0/"): value for name, value in arrays.items() if name != "about"} | change)
        found = kept.verify()
        assert found.lower_bound is not None
        assert found.lower_bound < bound
        assert found.relative_gap is not None
        assert not found.agrees


def test_formats(kept: Kept, tmp_path: Path) -> None:
    """A file of format 1, which has no such rows, is still read; one of a later format is refused."""
    old = keep(make_problem(13, n=150, d=5), tmp_path / "old", **LINE_SEARCH)
    arrays = {name: value for name, value in old.arrays().items() if "own_" not in name}
    assert len(arrays) == len(old.arrays()) - 4
    (old.folder / NAME).write_bytes(pack_arrays(arrays | {"about": write_format(old, 1)}))
    assert old.verify().agrees
    assert json.loads(str(kept.arrays()["about"]))["format"] == 2
    (kept.folder / NAME).write_bytes(pack_arrays(kept.arrays() | {"about": write_format(kept, 3)}))
    with pytest.raises(InputError, match="format 3; this version of streamsvm reads the formats 1 and 2"):
        kept.verify()


def write_format(kept: Kept, number: int) -> str:
    """What the file tells about itself, with another number of its format."""
    return json.dumps(json.loads(str(kept.arrays()["about"])) | {"format": number})
