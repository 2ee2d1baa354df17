"""Files of dual points: the same bytes however a run went, and nothing that is forged proves what is not so."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.open import open_dataset
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from streamsvm.system.npz import pack_arrays
from streamsvm.verify.dual_file import NAME
from streamsvm.verify.verify import verify
from tests.commands import Run, run  # noqa: F401
from tests.conftest import Problem, make_problem
from tests.kept_dual_points import BLOCK_ASCENT, INTERIOR, LINE_SEARCH, ONE_READ, SOLVERS, Kept, keep


@pytest.mark.parametrize("name", [*SOLVERS, "roc-area"])
def test_model_and_history_are_the_same_without_it(tmp_path: Path, name: str) -> None:
    settings = {**SOLVERS, "roc-area": {"task": "roc-area"}}[name]
    kept = keep(make_problem(9, n=150, d=6), tmp_path, **settings)
    other = train(kept.data, kept.options, tmp_path / "other")
    assert (tmp_path / "other" / "model.npz").read_bytes() == (kept.folder / "model.npz").read_bytes()
    passing = ("seconds", "pass_seconds", "solver_seconds", "read_bytes", "memory_bytes")
    with_it, without = (
        [{name: value for name, value in line.items() if name not in passing} for line in history]
        for history in (kept.result.history, other.history)
    )
    assert with_it == without


@pytest.mark.parametrize("name", [*SOLVERS, "roc-area", "several", "several-one-read"])
def test_a_resumed_run_keeps_the_same_bytes(tmp_path: Path, name: str) -> None:
    more = {"roc-area": {"task": "roc-area"}, "several": BLOCK_ASCENT, "several-one-read": ONE_READ}
    settings = {**SOLVERS, **more}[name]
    problem = make_problem(10, n=200, d=6)
    if name.startswith("several"):
        problem = replace(problem, y=np.arange(200) % 3)
    kept = keep(problem, tmp_path, **settings)
    assert kept.result.passes > 2 or "one-read" not in name
    for passes in (2, 5, None):
        options = replace(kept.options, max_passes=passes, threads=2)
        train(kept.data, options, tmp_path / "stopped", resume=passes != 2, keep_dual=True)
    assert (tmp_path / "stopped" / NAME).read_bytes() == (kept.folder / NAME).read_bytes()


@pytest.fixture
def by_cuts(tmp_path: Path) -> Kept:
    return keep(make_problem(11, n=150, d=5), tmp_path / "by_cuts", tol=1e-5, **LINE_SEARCH)


@pytest.fixture
def by_rows(tmp_path: Path) -> Kept:
    return keep(make_problem(12, n=150, d=5), tmp_path / "by_rows", **INTERIOR)


def test_a_multiplier_beyond_its_bounds_is_refused(by_cuts: Kept, by_rows: Kept) -> None:
    share, multipliers = by_rows.arrays()["0/share"], by_cuts.arrays()["0/multipliers"]
    for value in (1.0 + 1e-15, -1e-300, np.nan, np.inf):
        changed = share.copy()
        changed[7] = value
        by_rows.forge(share=changed)
        with pytest.raises(InputError, match=r"dual\.npz: not the dual point .*(beyond its bounds|not finite)"):
            by_rows.verify()
    for changed in (1.001 * multipliers / multipliers.sum(), -multipliers, multipliers[1:]):
        by_cuts.forge(multipliers=changed)
        with pytest.raises(InputError, match=r"dual\.npz: not the dual point .*multipliers"):
            by_cuts.verify()


def test_a_point_by_cuts_cannot_claim_small_shares(by_cuts: Kept) -> None:
    """Twice its multipliers would count as feasible, and a bound above the optimum as proved."""
    arrays = by_cuts.arrays()
    by_cuts.forge(most=np.float64(0.5), multipliers=0.55 * arrays["0/multipliers"])
    with pytest.raises(InputError, match=r"dual\.npz: not the dual point .*most is 0\.5"):
        by_cuts.verify()


def test_places_that_lead_out_of_the_vectors_are_refused(by_cuts: Kept) -> None:
    arrays = by_cuts.arrays()
    for name, value in {
        "ends": arrays["0/ends"] + len(arrays["0/vectors"]),
        "steps": arrays["0/steps"] + 1.0,
        "vectors": arrays["0/vectors"][:, 1:],
        "share": np.full(149, 0.5),
    }.items():
        original = arrays[f"0/{name}"]
        by_cuts.forge(**{name: value})
        with pytest.raises(InputError, match=r"dual\.npz: not the dual point"):
            by_cuts.verify()
        by_cuts.forge(**{name: original})
    by_cuts.forge(steps=arrays["0/steps"].astype(np.float32))
    with pytest.raises(InputError, match=r"float32 in 1 dimension\b"):
        by_cuts.verify()


def test_a_file_of_others_is_refused(by_cuts: Kept, by_rows: Kept, tmp_path: Path) -> None:
    file, content = by_cuts.folder / NAME, (by_cuts.folder / NAME).read_bytes()
    file.write_bytes((by_rows.folder / NAME).read_bytes())
    with pytest.raises(InputError, match="it belongs to another model"):
        by_cuts.verify()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="damaged, or not written by streamsvm"):
        by_cuts.verify()
    file.write_bytes(content)
    other = replace(by_cuts.problem, X=-np.asarray(by_cuts.problem.X)).store(tmp_path / "other.zarr")
    with pytest.raises(InputError, match="it belongs to another data"):
        verify(load(by_cuts.folder), other, True, threads=1, dual_file=file)
    file.unlink()
    with pytest.raises(InputError, match=r"no such file.*--keep-dual"):
        by_cuts.verify()


def test_any_feasible_point_bounds_the_optimum(by_cuts: Kept, by_rows: Kept) -> None:
    """Points drawn at random prove something lower, which is then not what the run told; never more than P."""
    random, arrays = np.random.default_rng(0), by_cuts.arrays()
    for factor in (0.0, 1e-3, 1.0, 1e3, 1e300):
        by_rows.forge(share=random.random(150))
        by_cuts.forge(vectors=factor * random.normal(size=arrays["0/vectors"].shape))
        for kept in (by_rows, by_cuts):
            found = kept.verify()
            assert found.lower_bound is not None
            assert kept.result.lower_bound is not None
            assert found.lower_bound <= kept.result.lower_bound
            assert not found.agrees


def test_the_command(by_cuts: Kept, run: Run) -> None:
    data, folder = by_cuts.data.path, by_cuts.folder
    told = run("verify", folder, data, "--dual", "--json")
    assert told.code == 0
    assert told.result["relative_gap"] == pytest.approx(by_cuts.result.relative_gap)
    assert run("verify", folder / "model.npz", data, "--dual").code == 0
    by_cuts.forge(multipliers=by_cuts.arrays()["0/multipliers"] / 2)
    told = run("verify", folder, data, "--dual")
    assert told.code == 1
    assert "does NOT prove" in told.out
    assert "DIFFERS" not in told.out
    by_cuts.forge(multipliers=np.full(3, np.nan))
    assert run("verify", folder, data, "--dual").code == 2
    assert run("verify", folder, data).code == 0


def test_a_run_that_is_asked_for_it(by_cuts: Kept, run: Run, tmp_path: Path) -> None:
    data, out = by_cuts.data.path, tmp_path / "asked"
    asked = ("--keep-dual", "--max-passes", "1", "--option", "acceleration=line-search")
    assert run("train", data, "--out", out, *asked).code == 3
    assert run("verify", out, data, "--dual").code == 0
    again = run("train", data, "--out", out, "--resume", "--option", "acceleration=line-search")
    assert again.code == 2
    assert "keep_dual" in again.err
    assert run("train", data, "--out", out, "--overwrite").code == 0
    assert not (out / NAME).exists()
    assert run("train", data, "--plan", "--keep-dual").code == 0
    for solver in ("smo", "budgeted-sgd"):
        refused = run("train", data, "--out", tmp_path / solver, "--keep-dual", "--solver", solver)
        assert refused.code == 2
        assert "remove --keep-dual" in refused.err
    with pytest.raises(InputError, match="folder of the run"):
        train(open_dataset(data), TrainOptions(), keep_dual=True)


def test_a_forged_bound_is_told(by_cuts: Kept) -> None:
    """A model that tells a higher bound than the point that comes with it proves."""
    model = load(by_cuts.folder)
    bound = model.info["lower_bound"] + 1e-6 * model.info["objective"]
    forged = replace(model, info=model.info | {"lower_bound": bound})
    forged.save(by_cuts.folder / "model.npz")
    about = json.loads(str(by_cuts.arrays()["about"]))
    about["model_sha256"] = hashlib.sha256(forged.to_bytes()).hexdigest()
    (by_cuts.folder / NAME).write_bytes(pack_arrays(by_cuts.arrays() | {"about": json.dumps(about)}))
    found = by_cuts.verify()
    assert found.lower_bound == pytest.approx(model.info["lower_bound"], rel=1e-12)
    assert not found.agrees


def test_a_point_of_which_a_small_part_is_best(tmp_path: Path) -> None:
    """1e-21 of multipliers at their bounds proves an optimum of 1e-17: what is rounded of the whole does not count."""
    X = np.array([[-1.0, 0.1], [-0.8, 0.2], [1.0, -0.3], [0.9, 0.1], [1.2, 0.2]], np.float32) * np.float32(1e8)
    kept = keep(Problem(X, np.array([-1, -1, 1, 1, 1])), tmp_path, C=8e3, tol=0.5, **INTERIOR)
    kept.forge(share=np.array([0.0, 1.0, 0.0, 1.0, 0.0]))
    bound = kept.verify().lower_bound
    assert bound is not None
    assert 0.5 * kept.result.objective < bound <= kept.result.objective
