"""The dual point that a run keeps proves the bound that the run tells: every solver, against long double."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamsvm.certificates.dual_points import find_active
from streamsvm.ingestion.readers import ingest
from streamsvm.numeric.rows import compute_scores
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.verify import ranking
from tests.conftest import Problem, make_problem
from tests.kept_dual_points import SOLVERS, Kept, keep

LONG = np.longdouble
Long = npt.NDArray[np.longdouble]

RANKINGS: dict[str, dict[str, Any]] = {
    "line-search": {},
    "none": {"options": {"acceleration": "none"}, "tol": 0.05},
}


def scale(problem: Problem, factor: float) -> Problem:
    return replace(problem, X=problem.X * np.float32(factor))


def read_shares(arrays: dict[str, Any], k: int, X: Long, y: Long, bias_feature: float) -> Long:
    """c_i of problem k, by the formulas: shares as they are, or sums over the cuts.

    A line search ends where the margin of a row is 1, and rounding says on which side the row is: both are feasible, so
    the program may choose for it. Where rows have shares of their own, it says so for all rows that are so near.
    """
    if len(arrays[f"{k}/share"]):
        return np.asarray(arrays[f"{k}/share"], LONG)
    rows = np.column_stack((X, np.full(len(X), LONG(bias_feature))))
    share = np.zeros(len(X), LONG)
    vectors, ends, steps = (arrays[f"{k}/{name}"] for name in ("vectors", "ends", "steps"))
    scores = compute_scores(X.astype(np.float32), vectors)
    chosen = find_active(scores, vectors[:, -1] * bias_feature, np.asarray(y, np.float64), ends, steps)
    for cut, multiplier in enumerate(arrays[f"{k}/multipliers"]):
        step, (start, end) = LONG(steps[cut]), ends[cut]
        w = (1 - step) * vectors[start] + step * vectors[end]
        margin, size = y * (rows @ w), np.abs(rows) @ (np.abs(vectors[start]) + np.abs(vectors[end]))
        is_sure = np.abs(margin - 1) > 1e-14 * size
        in_cut = np.where(is_sure, margin < 1, chosen[:, cut]).astype(LONG)
        for place, (rows_of_cut, shares_of_cut) in list_own_shares(arrays, k).items():
            if place == cut:
                in_cut[rows_of_cut] = shares_of_cut
                assert is_sure[np.setdiff1d(np.arange(len(X)), rows_of_cut)].all()
        share += LONG(multiplier) * in_cut
    return share


def list_own_shares(arrays: dict[str, Any], k: int) -> dict[int, tuple[Any, Any]]:
    """The rows with shares of their own, and these shares, by the place of their cut."""
    cuts, stops, rows, shares = (arrays[f"{k}/own_{name}"] for name in ("cuts", "stops", "rows", "shares"))
    parts = zip(np.split(rows, stops[:-1]), np.split(shares, stops[:-1]), strict=True)
    return dict(zip(cuts.tolist(), parts, strict=True)) if len(cuts) else {}


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


@pytest.mark.parametrize("density", [1.0, 0.3], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", SOLVERS)
def test_two_classes(tmp_path: Path, name: str, density: float) -> None:
    kept = keep(make_problem(1, n=200, d=6, density=density, weighted=True), tmp_path, **SOLVERS[name])
    agree(kept, *evaluate_binary(kept))


@pytest.mark.parametrize("name", SOLVERS)
def test_high_costs_and_long_rows(tmp_path: Path, name: str) -> None:
    problem = scale(make_problem(2, n=200, d=6, weighted=True), 1e3)
    kept = keep(problem, tmp_path, C=1e6, **SOLVERS[name])
    agree(kept, *evaluate_binary(kept))


def test_resident_rows_that_are_few(tmp_path: Path) -> None:
    kept = keep(make_problem(3, n=600, d=40), tmp_path, resident_rows=120, **SOLVERS["block-ascent"])
    agree(kept, *evaluate_binary(kept))


def test_a_proof_in_twice_the_precision(tmp_path: Path) -> None:
    kept = keep(scale(make_problem(4, n=100, d=4), 1e3), tmp_path, C=1e6, tol=1e-9, solver="interior-point")
    agree(kept, *evaluate_binary(kept))


@pytest.mark.parametrize("name", ["one-read", "block-ascent", "line-search", "interior-point"])
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
        monkeypatch.setattr(ranking, "SCORE_BYTES", 1)
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
