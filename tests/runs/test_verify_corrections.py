"""Corrections of multipliers, which are kept with the dual point, prove the bound that rests on them, and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.certificates.dual_points import limit_corrections
from streamsvm.runs.records import flatten, restore
from streamsvm.runs.train import train
from streamsvm.solvers.interior_point.state import read_point, start_state
from streamsvm.system.errors import InputError
from streamsvm.system.npz import pack_arrays, unpack_arrays
from streamsvm.verify.dual_file import NAME
from tests.conftest import Problem, make_problem
from tests.kept_dual_points import INTERIOR, Kept, keep
from tests.verify.test_verify_dual import agree, evaluate_binary, scale


def make_far_rows(density: float = 1.0) -> Problem:
    """Rows whose multipliers no float64 holds well enough: D is a small part of P without corrections."""
    return scale(make_problem(2, n=200, d=6, density=density, weighted=True), 1e3)


@pytest.fixture
def by_rows(tmp_path: Path) -> Kept:
    return keep(make_problem(12, n=150, d=5, weighted=True), tmp_path / "by_rows", **INTERIOR)


@pytest.fixture
def corrected(tmp_path: Path) -> Kept:
    return keep(make_far_rows(), tmp_path / "corrected", C=1e6, **INTERIOR)


@pytest.mark.parametrize("density", [1.0, 0.5], ids=["dense", "sparse"])
def test_the_bound_rests_on_what_is_kept(tmp_path: Path, density: float) -> None:
    kept = keep(make_far_rows(density), tmp_path, C=1e6, **INTERIOR)
    agree(kept, *evaluate_binary(kept))


def test_without_the_corrections_the_bound_is_not_proved(corrected: Kept) -> None:
    arrays = corrected.arrays()
    assert len(arrays["0/rows"])
    corrected.forge(corrections=np.zeros_like(arrays["0/corrections"]))
    assert not corrected.verify().agrees


def forge_at_random(kept: Kept, random: np.random.Generator, most: float) -> None:
    """Keep shares up to `most` and corrections within the bounds, each of two numbers of which one is tiny."""
    share, rows = most * random.random(150), np.flatnonzero(random.random(150) < 0.4)
    alpha, highest = (kept.problem.costs(1.0) * one for one in (share, np.full(150, most)))
    size = random.uniform(-alpha, highest - alpha)[rows]
    pairs = np.stack((size, 1e-17 * random.normal(size=len(rows)) * np.abs(size)), axis=1)
    kept.forge(share=share, most=np.float64(most), rows=rows, corrections=pairs)


@pytest.mark.parametrize("most", [0.5, 0.65, 1.0])
def test_a_point_with_corrections_is_that_of_long_double(by_rows: Kept, most: float) -> None:
    random = np.random.default_rng(5)
    for _ in range(5):
        forge_at_random(by_rows, random, most)
        D, error = evaluate_binary(by_rows)
        found = by_rows.verify()
        assert found.lower_bound is not None
        assert found.lower_bound == pytest.approx(D, abs=error + 1e-13 * abs(D))
        assert found.lower_bound <= D + error


def test_forged_corrections_are_refused(corrected: Kept) -> None:
    arrays = corrected.arrays()
    rows, pairs = arrays["0/rows"], arrays["0/corrections"]
    forged: list[tuple[dict[str, Any], str]] = [
        ({"rows": rows + 1}, "not among the 200 rows"),
        ({"rows": rows - 1}, "not among the 200 rows"),
        ({"rows": rows[::-1].copy()}, "not among|ascending"),
        ({"rows": np.maximum(rows, 3)}, "ascending"),
        ({"rows": rows[1:]}, "199 rows with corrections"),
        ({"corrections": pairs * np.nan}, "not finite"),
        ({"corrections": np.where(pairs == pairs[7], np.inf, pairs)}, "not finite"),
        ({"corrections": pairs[:, :1]}, "rows with corrections"),
        ({"corrections": pairs.astype(np.float32)}, "float32"),
        ({"share": arrays["0/share"][:0]}, "not among the 0 rows"),
        *(({"most": np.float64(value)}, "most is|most holds") for value in (0.0, 0.49, 1.01, -1.0, np.nan)),
        ({"most": np.float64(0.9)}, "beyond its bounds"),
    ]
    for changes, message in forged:
        corrected.forge(**changes)
        with pytest.raises(InputError, match=rf"dual\.npz: not the dual point .*({message})"):
            corrected.verify()
        (corrected.folder / NAME).write_bytes(pack_arrays(arrays))


def test_corrections_beyond_the_costs_prove_nothing_that_is_not_so(by_rows: Kept) -> None:
    """Multipliers above their costs would prove any bound of separable rows."""
    random, rows = np.random.default_rng(7), np.arange(150)
    share, told = by_rows.arrays()["0/share"], by_rows.result
    for size in (1e-3, 1.0, 1e6, 1e300):
        for sign in (random.choice([-1.0, 1.0], 150), np.ones(150), -np.ones(150)):
            pairs = (size * sign)[:, None] * random.random((150, 2))
            by_rows.forge(share=share, rows=rows, corrections=pairs)
            found = by_rows.verify()
            assert found.lower_bound is not None
            assert found.lower_bound <= told.objective * (1 + 1e-14)


def test_limited_corrections_are_feasible() -> None:
    random = np.random.default_rng(8)
    alpha, highest = random.random(4000), np.full(4000, 1.0)
    pairs = 10.0 ** random.uniform(-20, 20, (4000, 2)) * random.choice([-1.0, 1.0], (4000, 2))
    first, second = (one.astype(np.longdouble) for one in limit_corrections(alpha, highest, pairs))
    total = alpha + first + second
    assert (total >= 0).all()
    assert (total <= 1 + 2.0**-50).all()


def test_shares_above_one_keep_all_their_digits() -> None:
    random = np.random.default_rng(9)
    shares, state = 1.7 * random.random(30), replace(start_state(30, 2), corrections=random.normal(size=(4, 2)))
    state = replace(state, corrected_rows=np.array([1, 5, 6, 29]))
    point = read_point(state, shares)
    assert point.share.max() == point.most < 1.0
    np.testing.assert_array_equal(2 * point.share, shares)
    np.testing.assert_array_equal(2 * point.corrections, state.corrections)
    np.testing.assert_array_equal(point.rows, state.corrected_rows)


def test_a_resumed_run_keeps_the_same_bytes(corrected: Kept, tmp_path: Path) -> None:
    for passes in (2, 10, corrected.result.passes - 1, None):
        options = replace(corrected.options, max_passes=passes, threads=2)
        train(corrected.data, options, tmp_path / "stopped", resume=passes != 2, keep_dual=True)
    for name in (NAME, "model.npz"):
        assert (tmp_path / "stopped" / name).read_bytes() == (corrected.folder / name).read_bytes()


def test_a_state_with_corrections_is_saved_and_checked() -> None:
    start = start_state(30, 2)
    state = replace(start, corrected_rows=np.array([3, 29]), corrections=np.array([[1.0, 1e-20], [-2.0, 0.0]]))
    saved = {name: np.asarray(value) for name, value in flatten(state).items()} | {"sums": np.zeros((6, 2))}
    again = restore(start, saved, 30)
    np.testing.assert_array_equal(again.corrected_rows, state.corrected_rows)
    np.testing.assert_array_equal(again.corrections, state.corrections)
    with pytest.raises(ValueError, match="corrected_rows"):
        restore(start, saved | {"corrected_rows": np.array([3, 30])}, 30)
    with pytest.raises(ValueError, match="corrections"):
        restore(start, saved | {"corrections": np.zeros((3, 2))}, 30)


@pytest.mark.parametrize("keep_dual", [False, True])
def test_a_checkpoint_from_before_the_corrections_is_resumed(by_rows: Kept, tmp_path: Path, keep_dual: bool) -> None:
    out = tmp_path / "old"
    train(by_rows.data, replace(by_rows.options, max_passes=5), out, keep_dual=keep_dual)
    added = ("corrected_rows", "corrections", "rows", "most")
    arrays = unpack_arrays(out / "checkpoint.npz")
    old = {name: value for name, value in arrays.items() if name.split("/")[-1] not in added}
    assert len(old) == len(arrays) - (5 if keep_dual else 2)
    (out / "checkpoint.npz").write_bytes(pack_arrays({n: v for n, v in old.items() if not n.endswith("magnitudes")}))
    with pytest.raises(InputError, match="not a checkpoint of this version of streamsvm"):
        train(by_rows.data, by_rows.options, out, resume=True, keep_dual=keep_dual)
    (out / "checkpoint.npz").write_bytes(pack_arrays(old))
    train(by_rows.data, by_rows.options, out, resume=True, keep_dual=keep_dual)
    for name in ("model.npz", NAME) if keep_dual else ("model.npz",):
        assert (out / name).read_bytes() == (by_rows.folder / name).read_bytes()


def test_a_file_from_before_the_corrections_is_verified(by_rows: Kept) -> None:
    old = {name: value for name, value in by_rows.arrays().items() if name not in ("0/most", "0/rows", "0/corrections")}
    (by_rows.folder / NAME).write_bytes(pack_arrays(old))
    assert by_rows.verify().agrees
