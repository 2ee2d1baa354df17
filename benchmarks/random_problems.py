"""Resident rows on many random problems: excess passes compared with a line search, and wrong certificates.

    python benchmarks/random_problems.py [FIRST LAST]

The problems are of the kinds of tests/solvers/cutting_plane/test_against_line_search.py, one for each seed from
FIRST to LAST - 1, with 2% to 100% resident rows and tolerances of 1e-3 and 1e-6. P of each model is computed in long
double. By default, streamsvm chooses one of two solvers, one read or ascent on blocks; the table has a line for each.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64, CsrRows, to_dense
from streamsvm.options import TrainOptions
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane, LineState, solve
from streamsvm.solvers.set_up import set_up
from tests.linear_problems import run_steps
from tests.solvers.cutting_plane.test_against_line_search import KINDS, make_rows

MOST_STEPS = 1000


def evaluate(source: ArrayDataset, C: float, w: F64) -> float:
    """Return P in long double."""
    rows, own = source.take(np.arange(source.n_rows)), w.astype(np.longdouble)
    X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X
    assert rows.y is not None
    margins = np.where(rows.y == 1, 1, -1) * (X.astype(np.longdouble) @ own[:-1] + own[-1])
    return float(own @ own / 2 + np.longdouble(C) * np.sum(np.maximum(0, 1 - margins)))


def compare(seed: int) -> tuple[str, int]:
    """Print failures and slow runs; return the chosen solver, and its passes minus the passes of a line search."""
    random = np.random.default_rng([3, seed])
    kind, n, d = str(random.choice(KINDS)), int(random.integers(10, 400)), int(random.integers(1, 20))
    C, share, tol = 10.0 ** random.uniform(-3, 2), random.choice([0.02, 0.1, 0.3, 1.0]), random.choice([1e-3, 1e-6])
    source, start = make_rows(kind, seed, n, d), LineState.at_zero(1 + (d if kind != "wide" else n + d))
    fit = set_up(source, TrainOptions(C=C, tol=float(tol), resident_rows=max(2, int(share * n))))
    found = run_steps(source, fit.solve(fit.start()), MOST_STEPS)[-1]
    other = run_steps(source, solve(CuttingPlane((C, C), tol=float(tol)), start), MOST_STEPS)[-1]
    P, progress = evaluate(source, C, found.state.best_w), found.progress
    assert progress.lower_bound is not None
    is_off = abs(P - progress.objective) > 1e-12 * P + progress.rounding_bound
    more = progress.passes - other.progress.passes
    is_false = progress.lower_bound > min(P, other.progress.objective) * (1 + 1e-12)
    if is_off or is_false or found.status != "converged" or more > 1:
        told = f"{found.status}, P {progress.objective} ({P}), D {progress.lower_bound}, {more} passes more"
        print(f"seed {seed}, {kind}, {n} rows of {d}, C {C:g}, {share:.0%} resident, tol {tol:g}: {told}", flush=True)
    return str(fit.settings["acceleration"]), more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=3000)
    own = parser.parse_args()
    counts = Counter(compare(seed) for seed in range(own.first, own.last))
    print("| solver | problems | fewer passes | as many | one more | more |\n|---|---|---|---|---|---|")
    for solver in sorted({solver for solver, _ in counts}):
        mine = Counter[int]()
        for (name, more), number in counts.items():
            mine[max(-1, min(more, 2))] += number * (name == solver)
        print(f"| {solver} | {mine.total()} | {mine[-1]} | {mine[0]} | {mine[1]} | {mine[2]} |")


if __name__ == "__main__":
    main()
