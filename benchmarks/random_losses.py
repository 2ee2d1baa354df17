"""Linear problems of every loss on random data: false certificates, and passes compared with another version.

    python -m benchmarks.random_losses [FIRST LAST] [--only TASK] [--hostile] [--write FILE] [--before FILE]

Each seed from FIRST to LAST - 1 draws a task, a loss, a kind of data (tests.solvers.cutting_plane.
test_against_line_search), a cost, a share of resident rows and a tolerance. P of each model is computed again in long
double, from its definition. A certificate is false if the stored P is not that of the model, or if D exceeds the P of
the model or of a second fit with ten times the accuracy. --write keeps the passes of each seed, and --before compares
them with those kept by another version of streamsvm; seeds that take over one pass more are printed.

--hostile draws hinge losses of 4 to 1,200 rows in memory instead, with costs of 1e-4 to 1e8 and, for a part of the
seeds, weights of 1e-6 to 1e6. A fit may then end at 400 passes or stall; the totals show how many converge.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import CsrRows, to_dense
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import PROBLEMS
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from tests.solvers.cutting_plane.test_against_line_search import KINDS, make_rows

CASES = {
    "hinge": ("classify", "hinge"),
    "squared hinge": ("classify", "squared_hinge"),
    "logistic": ("classify", "logistic"),
    "crammer-singer": ("crammer-singer", None),
    "softmax": ("multinomial", None),
    "rank": ("rank", None),
    "queries": ("rank", None),
    "roc-area": ("roc-area", None),
    "tube": ("regress", "epsilon_insensitive"),
    "squared tube": ("regress", "squared_epsilon_insensitive"),
}
EPSILON = 0.1
Number = np.longdouble


def draw(case: str, kind: str, seed: int, n: int, d: int) -> ArrayDataset:
    """Return random rows with labels, ranks, queries or targets, as the case needs them."""
    rows, rng = make_rows(kind, seed, n, d), np.random.default_rng([7, seed])
    X, y = rows.X, rows.y
    assert y is not None
    score = X[:, 0] if isinstance(X, np.ndarray) else X[:, [0]].toarray().ravel()
    weight = rng.integers(0, 4, n).astype(np.float64) if seed % 3 == 0 else None
    if case in ("tube", "squared tube"):
        return ArrayDataset(X, None, None, weight, target=score + rng.standard_normal(n))
    if case in ("hinge", "squared hinge", "logistic", "roc-area"):
        return ArrayDataset(X, y, np.array([-1, 1]), None if case == "roc-area" else weight)
    n_classes = int(rng.integers(2, 7))
    y = np.argmax(score[:, None] * rng.standard_normal(n_classes) + rng.gumbel(size=(n, n_classes)), axis=1)
    y[:n_classes] = np.arange(n_classes)
    qid = np.sort(rng.integers(0, max(1, n // 8), n)) if case == "queries" else None
    is_rank = case in ("rank", "queries")
    return ArrayDataset(X, y.astype(np.int32), np.arange(n_classes), None if is_rank else weight, qid=qid)


def measure(case: str, source: ArrayDataset, C: float, model: Any) -> float:
    """Return P of a model in long double."""
    rows = source.take(np.arange(source.n_rows))
    X = (to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X).astype(Number)
    costs = Number(C) * (np.ones(source.n_rows) if rows.sample_weight is None else rows.sample_weight).astype(Number)
    W, b = np.atleast_2d(model.coef).astype(Number), np.atleast_1d(model.intercept).astype(Number)
    if case == "softmax" and len(W) == 1:
        case = "logistic"
    if case in ("crammer-singer", "softmax"):
        if len(W) == 1:
            W, b = np.concatenate((-W, W)) / 2, np.concatenate((-b, b)) / 2
        return float(np.sum(W**2) / 2 + np.sum(b**2) / 2 + costs @ of_classes(case, X @ W.T + b, rows.codes))
    scores, square = X @ W[0], np.sum(W**2) / 2
    if case in ("rank", "queries", "roc-area"):
        return float(square + Number(C) * of_pairs(scores, source))
    square, scores = square + b[0] ** 2 / 2, scores + b[0]
    if case in ("tube", "squared tube"):
        misses = np.maximum(0, np.abs(rows.target - scores) - EPSILON)
        return float(square + costs @ (misses if case == "tube" else misses**2))
    margins = np.where(rows.codes == 1, 1, -1) * scores
    missing = np.maximum(0, 1 - margins)
    loss = np.logaddexp(0, -margins) if case == "logistic" else missing if case == "hinge" else missing**2
    return float(square + costs @ loss)


def of_classes(case: str, scores: Any, y: Any) -> Any:
    """Return the losses of rows with K scores, without their costs."""
    own = scores[np.arange(len(y)), y]
    if case == "softmax":
        top = scores.max(axis=1)
        return np.log(np.sum(np.exp(scores - top[:, None]), axis=1)) + (top - own)
    others = 1 + scores - own[:, None]
    others[np.arange(len(y)), y] = 0
    return others.max(axis=1)


def of_pairs(scores: Any, source: ArrayDataset) -> Any:
    """Return the hinge losses of all pairs, scaled to n at w = 0."""
    y, qid = source.y, np.zeros(source.n_rows) if source.qid is None else source.qid
    assert y is not None
    higher = (y[:, None] > y[None, :]) & (qid[:, None] == qid[None, :])
    losses = np.maximum(0, 1 - (scores[:, None] - scores[None, :]))
    return source.n_rows * np.sum(losses[higher]) / np.count_nonzero(higher)


def run_hostile(seed: int) -> tuple[int, str, Result, str]:
    """Return the rows and a description of a problem of hostile costs, its result, and what is wrong with that."""
    random, kind = np.random.default_rng([11, seed]), list(KINDS)[seed % len(KINDS)]
    n, d = random.integers([4, 1], [1_201, 61]).tolist()
    C, tol = 10.0 ** random.uniform(-4, 8), random.choice([1e-3, 1e-5])
    source = draw("hinge", kind, seed, n, d)
    if seed % 7 == 0:
        source.sample_weight = 10.0 ** random.uniform(-6, 6, n)
    limits: dict[str, Any] = {"max_passes": 400, "max_seconds": 60.0}
    result, finer = (train(source, TrainOptions(C=C, tol=own, threads=1, **limits)) for own in (tol, tol / 10))
    told = f"{kind}, {n} rows of {d}, C {C:g}, tol {tol:g}, {result.passes} passes, gap {result.relative_gap:.1e}"
    return n, told, result, judge("hinge", source, C, result, finer)


def judge(case: str, source: ArrayDataset, C: float, result: Result, finer: Result) -> str:
    """Return what is wrong with the certificate of a result ("": nothing), given a more accurate result."""
    P, wrong = measure(case, source, C, result.model), ""
    rounding = 1e-12 * P + 1e-15 + (result.rounding_bound or 0.0)
    if abs(P - result.objective) > rounding:
        wrong += f" P {result.objective} ({P})"
    if result.lower_bound is not None and result.lower_bound > min(P, finer.objective) + rounding:
        wrong += f" D {result.lower_bound} above P {min(P, finer.objective)}"
    return wrong


def run(seed: int, cases: list[str]) -> tuple[str, int, str] | None:
    """Return the problem of a seed, the passes of its fit, and what is wrong with its certificate ("": nothing).

    Return None if this version of streamsvm does not have the task.
    """
    random = np.random.default_rng([11, seed])
    case, kind, n, d = str(random.choice(cases)), str(random.choice(KINDS)), *random.integers([20, 1], [300, 15])
    task, loss = CASES[case]
    if task not in PROBLEMS:
        return None
    source = draw(case, kind, seed, int(n), int(d))
    C, share, tol = 10.0 ** random.uniform(-3, 1.5), random.choice([0.1, 0.3, 1.0]), random.choice([1e-3, 1e-5])
    more: dict[str, Any] = {} if loss is None else {"loss": loss}
    if case not in ("rank", "queries", "roc-area"):
        more["resident_rows"] = max(2, int(share * n))
    if task == "regress":
        more["epsilon"] = EPSILON
    options = {"task": task, "C": C, "threads": 1, **more}
    result, finer = (train(source, TrainOptions(tol=own, **options)) for own in (tol, tol / 10))
    told = f"{case}, {kind}, {n} rows of {d}, C {C:g}, {share:.0%} resident, tol {tol:g}"
    wrong = f"status {result.status}" if result.status != "converged" else ""
    return told, result.passes, wrong + judge(case, source, C, result, finer)


def report_hostile(seeds: range) -> None:
    """Print fits that do not converge or have false certificates; then, by number of rows, the totals."""
    found, n_wrong = dict[str, list[tuple[str, int]]](), 0
    for seed in seeds:
        n, told, result, wrong = run_hostile(seed)
        size = "up to 500 rows" if n <= 500 else "501 to 1,200 rows"
        found.setdefault(size, []).append((result.status, result.passes))
        n_wrong += bool(wrong)
        if wrong or result.status != "converged":
            print(f"seed {seed}, {told}, {result.status}{':' if wrong else ''}{wrong}", flush=True)
    for size, results in sorted(found.items()):
        passes = np.array([taken for status, taken in results if status == "converged"])
        shares = np.percentile(passes, (50, 90, 100), method="higher").tolist()
        print(f"{size}: {len(results)} problems, {len(passes)} converged, passes (median, 90%, most) {shares}")
    print(f"{n_wrong} false certificates")


def main() -> None:
    """Print false certificates, fits without convergence, and seeds with more passes; then the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=300)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--before", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.hostile:
        report_hostile(range(given.first, given.last))
        return
    cases = [given.only] if given.only else list(CASES)
    before = json.loads(given.before.read_text()) if given.before else {}
    passes, n_wrong, n_more, changes = dict[str, int](), 0, 0, list[int]()
    for seed in range(given.first, given.last):
        if (made := run(seed, cases)) is None:
            continue
        told, passes[str(seed)], wrong = made
        change = passes[str(seed)] - before.get(str(seed), passes[str(seed)])
        changes.append(change)
        n_wrong, n_more = n_wrong + bool(wrong), n_more + (change > 1)
        if wrong or change > 1:
            print(f"seed {seed}, {told}: {wrong or f'{change} passes more, {passes[str(seed)]}'}", flush=True)
    print(f"{len(passes)} problems, {sum(passes.values())} passes, {n_wrong} wrong, {n_more} with over one pass more,")
    print(f"{sum(changes)} passes more in all")
    if given.write:
        given.write.write_text(json.dumps(passes))


if __name__ == "__main__":
    main()
