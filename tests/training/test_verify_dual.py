"""The dual point that a run keeps proves the bound that the run tells, and nothing that is not so."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamsvm.data.dataset import Dataset, open_dataset
from streamsvm.data.readers import ingest
from streamsvm.errors import InputError
from streamsvm.files import pack_arrays, unpack_arrays
from streamsvm.methods.cutting_plane import guided_setup
from streamsvm.models.model import load
from streamsvm.training import verify_dual
from streamsvm.training.dual_file import NAME
from streamsvm.training.train import Result, TrainOptions, train
from streamsvm.training.verify import Verification, verify
from tests.commands import Run, run  # noqa: F401  (a fixture)
from tests.conftest import Problem, make_problem

LONG = np.longdouble
Long = npt.NDArray[np.longdouble]

GUIDED: dict[str, Any] = {}
LINE_SEARCH: dict[str, Any] = {"options": {"acceleration": "line-search", "intercept_scaling": "2"}}
PLAIN: dict[str, Any] = {"options": {"acceleration": "none"}, "tol": 0.02}
INTERIOR: dict[str, Any] = {"solver": "interior-point"}
SOLVERS = {
    "guided": GUIDED,
    "guided-dual": GUIDED,
    "line-search": LINE_SEARCH,
    "none": PLAIN,
    "interior-point": INTERIOR,
}
RANKINGS: dict[str, dict[str, Any]] = {
    "line-search": {},
    "none": {"options": {"acceleration": "none"}, "tol": 0.05},
}


@dataclass(frozen=True)
class Kept:
    """A run that kept its dual point, and its rows."""

    problem: Problem
    data: Dataset
    options: TrainOptions
    folder: Path
    result: Result

    def verify(self) -> Verification:
        """Verify the model that was saved."""
        return verify(load(self.folder), self.data, True, threads=1, dual_file=self.folder / NAME)

    def arrays(self) -> dict[str, Any]:
        """What the file holds."""
        return unpack_arrays(self.folder / NAME)

    def forge(self, **changes: Any) -> None:
        """Write the file with other arrays of the first problem."""
        arrays = self.arrays() | {f"0/{name}": value for name, value in changes.items()}
        (self.folder / NAME).write_bytes(pack_arrays(arrays))


def keep(problem: Problem, folder: Path, **settings: Any) -> Kept:
    folder.mkdir(exist_ok=True)
    data = problem.store(folder / "rows.zarr", chunk_bytes=2000)
    options = TrainOptions(threads=1, **settings)
    return Kept(problem, data, options, folder / "run", train(data, options, folder / "run", keep_dual=True))


def scale(problem: Problem, factor: float) -> Problem:
    return replace(problem, X=problem.X * np.float32(factor))


def read_shares(arrays: dict[str, Any], k: int, X: Long, y: Long, bias_feature: float) -> Long:
    """c_i of problem k, by the formulas: shares as they are, or sums over the cuts."""
    if len(arrays[f"{k}/share"]):
        return np.asarray(arrays[f"{k}/share"], LONG)
    rows = np.column_stack((X, np.full(len(X), LONG(bias_feature))))
    share = np.zeros(len(X), LONG)
    parts = [arrays[f"{k}/{name}"] for name in ("ends", "steps", "multipliers")]
    for (start, end), step, multiplier in zip(*parts, strict=True):
        w = (1 - LONG(step)) * arrays[f"{k}/vectors"][start] + LONG(step) * arrays[f"{k}/vectors"][end]
        share += LONG(multiplier) * (y * (rows @ w) < 1)
    return share


def evaluate(
    arrays: dict[str, Any], k: int, X: Long, y: Long, costs: Long, bias_feature: float | None
) -> tuple[float, float]:
    """D of problem k in long double, and what it changes by if every multiplier is rounded once or twice to float64.

    That is sum_i |dD / d alpha_i| alpha_i 2^-52 and the square of what v changes by. Corrected multipliers are rounded
    in long double only.
    """
    alpha, rows = costs * read_shares(arrays, k, X, y, bias_feature or 0.0), arrays[f"{k}/rows"]
    alpha[rows] += np.sum(arrays[f"{k}/corrections"].astype(LONG), axis=1)
    unit = len(X) * 2.0**-64 if len(rows) else 2.0**-52
    if bias_feature is None:
        up, down = (np.sum(alpha[y == sign]) for sign in (1, -1))
        alpha = alpha * np.where(y > 0, min(up, down) / up, min(up, down) / down)
    v = X.T @ (alpha * y)
    square = v @ v + (LONG(bias_feature or 0.0) * np.sum(alpha * y)) ** 2
    total = np.sum(alpha)
    most = 1 / LONG(arrays[f"{k}/most"])
    best = min(most, total / square) if square > 0 else most
    D = float(best * total - best**2 / 2 * square)
    f = X @ v + (LONG(bias_feature or 0.0) ** 2 * np.sum(alpha * y))
    inner = (alpha > 0) & (alpha < costs)
    free = np.median((y - f)[inner]) if bias_feature is None and inner.any() else LONG(0)
    first = unit * float(alpha @ np.abs(1 - y * (f + free)))
    return D, first + float(np.sum((unit * (alpha @ np.abs(X))) ** 2))


def evaluate_binary(kept: Kept) -> tuple[float, float]:
    X, y = kept.problem.dense().astype(LONG), np.where(kept.problem.y > 0, 1, -1).astype(LONG)
    costs = kept.problem.costs(kept.options.C).astype(LONG)
    free = kept.options.solver == "interior-point"
    bias = None if free else float(kept.options.options.get("intercept_scaling", 1))
    return evaluate(kept.arrays(), 0, X, y, costs, bias)


def agree(kept: Kept, D: float, error: float) -> None:
    """Verification, the independent D and what the run told are one number, rounding aside."""
    found, told = kept.verify(), kept.result
    assert told.status == "converged"
    assert told.lower_bound is not None
    assert told.rounding_bound is not None
    assert found.agrees
    assert found.lower_bound is not None
    own = 5e-15 * told.objective + error
    assert D - own <= found.lower_bound <= D + error
    assert abs(D - told.lower_bound) <= told.rounding_bound + own
    bound = (told.rounding_bound + own) / told.objective
    assert found.relative_gap == pytest.approx(told.relative_gap, abs=bound)


@pytest.fixture
def guide_by_multipliers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver for rows of many features, where it is asked for."""
    if request.getfixturevalue("name") == "guided-dual":
        monkeypatch.setattr(guided_setup, "WIDE", 1)


@pytest.mark.usefixtures("guide_by_multipliers")
@pytest.mark.parametrize("density", [1.0, 0.3], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", SOLVERS)
def test_two_classes(tmp_path: Path, name: str, density: float) -> None:
    kept = keep(make_problem(1, n=200, d=6, density=density, weighted=True), tmp_path, **SOLVERS[name])
    agree(kept, *evaluate_binary(kept))


@pytest.mark.usefixtures("guide_by_multipliers")
@pytest.mark.parametrize("name", SOLVERS)
def test_high_costs_and_long_rows(tmp_path: Path, name: str) -> None:
    problem = scale(make_problem(2, n=200, d=6, weighted=True), 1e3)
    kept = keep(problem, tmp_path, C=1e6, **SOLVERS[name])
    agree(kept, *evaluate_binary(kept))


@pytest.mark.usefixtures("guide_by_multipliers")
@pytest.mark.parametrize("name", ["guided-dual"])
def test_resident_rows_that_are_few(tmp_path: Path, name: str) -> None:
    kept = keep(make_problem(3, n=300, d=40), tmp_path, resident_rows=60, **SOLVERS[name])
    agree(kept, *evaluate_binary(kept))


def test_a_proof_in_twice_the_precision(tmp_path: Path) -> None:
    kept = keep(scale(make_problem(4, n=100, d=4), 1e3), tmp_path, C=1e6, tol=1e-9, solver="interior-point")
    agree(kept, *evaluate_binary(kept))


@pytest.mark.parametrize("name", ["guided", "line-search", "interior-point"])
def test_more_classes_than_two(tmp_path: Path, name: str) -> None:
    problem = make_problem(6, n=200, d=5)
    codes = np.where(problem.dense()[:, 1] > 0.5, 2, problem.y > 0)
    kept = keep(replace(problem, y=codes), tmp_path, class_weight={2: 3.0}, **SOLVERS[name])
    X, D, error = problem.dense().astype(LONG), 0.0, 0.0
    bias = None if name == "interior-point" else float(kept.options.options.get("intercept_scaling", 1))
    for k in range(3):
        y = np.where(codes == k, 1, -1).astype(LONG)
        costs = np.where((codes == k) & (k == 2), 3.0, 1.0).astype(LONG)
        of_class = evaluate(kept.arrays(), k, X, y, costs, bias)
        D, error = D + of_class[0], error + of_class[1]
    agree(kept, D, error)


def evaluate_pairs(
    kept: Kept, weights: Long, same_query: npt.NDArray[np.bool_], pair_cost: float
) -> tuple[float, float]:
    """D of a ranking by all of its pairs, in long double, and what it changes by if its multipliers are rounded."""
    X, ranks, arrays = kept.problem.dense().astype(LONG), kept.problem.y, kept.arrays()
    coefs, sizes, total = np.zeros(len(X), LONG), np.zeros(len(X), LONG), LONG(0)
    is_pair = same_query & (ranks[:, None] > ranks[None, :])
    parts = [arrays[f"0/{name}"] for name in ("ends", "steps", "multipliers")]
    for (start, end), step, multiplier in zip(*parts, strict=True):
        s = X @ ((1 - LONG(step)) * arrays["0/vectors"][start] + LONG(step) * arrays["0/vectors"][end])
        alpha = LONG(pair_cost) * LONG(multiplier) * weights * (is_pair & (s[:, None] - s[None, :] < 1))
        coefs += alpha.sum(axis=1) - alpha.sum(axis=0)
        sizes += alpha.sum(axis=1) + alpha.sum(axis=0)
        total += alpha.sum()
    v = X.T @ coefs
    best = min(LONG(1), total / (v @ v))
    error = 2.0**-52 * float(total + np.abs(v) @ (np.abs(X).T @ sizes))
    return float(best * total - best**2 / 2 * (v @ v)), error


@pytest.mark.parametrize("few_scores", [False, True], ids=["at once", "cut by cut"])
@pytest.mark.parametrize("density", [1.0, 0.4], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", RANKINGS)
def test_roc_area(tmp_path: Path, name: str, density: float, few_scores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if few_scores:
        monkeypatch.setattr(verify_dual, "SCORE_BYTES", 1)
    kept = keep(
        make_problem(7, n=120, d=5, density=density, weighted=True), tmp_path, task="roc-area", **RANKINGS[name]
    )
    v = np.asarray(kept.problem.weight, LONG)
    both = np.outer(v, v)
    total = both[kept.problem.y[:, None] > kept.problem.y[None, :]].sum()
    agree(kept, *evaluate_pairs(kept, both, np.ones((120, 120), bool), float(v.sum() / total)))


@pytest.mark.parametrize("factor", [1.0, 1e3])
def test_ranks_within_queries(tmp_path: Path, factor: float) -> None:
    problem, random = make_problem(8, n=120, d=5), np.random.default_rng(8)
    ranks, qid = random.integers(0, 4, 120), np.repeat(np.arange(12), 10)
    ranked = scale(replace(problem, y=ranks), factor)
    data = ingest(ranked.X, tmp_path / "rows.zarr", ranks, qid=qid, shuffle=None, chunk_bytes=2000)
    options = TrainOptions(threads=1, task="rank", C=1.0 if factor == 1.0 else 1e6)
    result = train(data, options, tmp_path / "run", keep_dual=True)
    kept, same = Kept(ranked, data, options, tmp_path / "run", result), qid[:, None] == qid[None, :]
    n_pairs = int((same & (ranks[:, None] > ranks[None, :])).sum())
    agree(kept, *evaluate_pairs(kept, np.ones((120, 120), LONG), same, options.C * 120 / n_pairs))


@pytest.mark.usefixtures("guide_by_multipliers")
@pytest.mark.parametrize("name", [*SOLVERS, "roc-area"])
def test_model_and_history_are_the_same_without_it(tmp_path: Path, name: str) -> None:
    settings = {**SOLVERS, "roc-area": {"task": "roc-area"}}[name]
    kept = keep(make_problem(9, n=150, d=6), tmp_path, **settings)
    other = train(kept.data, kept.options, tmp_path / "other")
    assert (tmp_path / "other" / "model.npz").read_bytes() == (kept.folder / "model.npz").read_bytes()
    passing = ("seconds", "read_bytes", "memory_bytes")
    with_it, without = (
        [{name: value for name, value in line.items() if name not in passing} for line in history]
        for history in (kept.result.history, other.history)
    )
    assert with_it == without


@pytest.mark.usefixtures("guide_by_multipliers")
@pytest.mark.parametrize("name", [*SOLVERS, "roc-area", "several"])
def test_a_resumed_run_keeps_the_same_bytes(tmp_path: Path, name: str) -> None:
    settings = {**SOLVERS, "roc-area": {"task": "roc-area"}, "several": GUIDED}[name]
    problem = make_problem(10, n=200, d=6)
    if name == "several":
        problem = replace(problem, y=np.arange(200) % 3)
    kept = keep(problem, tmp_path, **settings)
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
    with pytest.raises(InputError, match="float32 in 1 dimensions"):
        by_cuts.verify()


def test_a_file_of_others_is_refused(by_cuts: Kept, by_rows: Kept, tmp_path: Path) -> None:
    file, content = by_cuts.folder / NAME, (by_cuts.folder / NAME).read_bytes()
    file.write_bytes((by_rows.folder / NAME).read_bytes())
    with pytest.raises(InputError, match="kept for another model"):
        by_cuts.verify()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="damaged or not of streamsvm"):
        by_cuts.verify()
    file.write_bytes(content)
    other = replace(by_cuts.problem, X=-np.asarray(by_cuts.problem.X)).store(tmp_path / "other.zarr")
    with pytest.raises(InputError, match="kept for another data"):
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


def test_the_command(by_cuts: Kept, run: Run) -> None:  # noqa: F811
    data, folder = by_cuts.data.path, by_cuts.folder
    told = run("verify", folder, data, "--dual", "--json")
    assert told.code == 0
    assert told.result["relative_gap"] == pytest.approx(by_cuts.result.relative_gap)
    assert run("verify", folder / "model.npz", data, "--dual").code == 0
    by_cuts.forge(multipliers=by_cuts.arrays()["0/multipliers"] / 2)
    told = run("verify", folder, data, "--dual")
    assert told.code == 1
    assert "it does NOT prove" in told.out
    assert "is NOT" not in told.out
    by_cuts.forge(multipliers=np.full(3, np.nan))
    assert run("verify", folder, data, "--dual").code == 2
    assert run("verify", folder, data).code == 0


def test_a_run_that_is_asked_for_it(by_cuts: Kept, run: Run, tmp_path: Path) -> None:  # noqa: F811
    data, out = by_cuts.data.path, tmp_path / "asked"
    assert run("train", data, "--out", out, "--keep-dual", "--max-passes", "1").code == 3
    assert run("verify", out, data, "--dual").code == 0
    again = run("train", data, "--out", out, "--resume")
    assert again.code == 2
    assert "keep_dual" in again.err
    assert run("train", data, "--out", out, "--overwrite").code == 0
    assert not (out / NAME).exists()
    assert run("train", data, "--plan", "--keep-dual").code == 0
    for solver in ("smo", "budgeted-sgd"):
        refused = run("train", data, "--out", tmp_path / solver, "--keep-dual", "--solver", solver)
        assert refused.code == 2
        assert "leave --keep-dual out" in refused.err
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


def test_a_bound_from_cuts_that_cancel(tmp_path: Path) -> None:
    """Cuts of 1e13 that leave 1e-3 in w: the square of what they have lost counts, though w itself is almost 0."""
    random = np.random.default_rng(33)
    X = (1e7 * random.normal(size=(10, 1))).astype(np.float32)
    y = np.where(random.random(10) < 0.5, 1, -1)
    y[:2] = -1, 1
    weight = 10.0 ** random.uniform(-6, 6, size=10)
    kept = keep(Problem(X, y, weight), tmp_path, options={"acceleration": "line-search"})
    D, error = evaluate_binary(kept)
    assert kept.result.lower_bound is not None
    assert kept.result.lower_bound <= D + error
    assert kept.verify().agrees
