"""One read on many random problems: how many passes more than a line search it takes, and whether it is ever wrong.

    python tests/benchmarks/random_problems.py [FIRST LAST]

The problems are of the kinds of tests/methods/cutting_plane/test_against_line_search.py, one for each seed from
FIRST to LAST - 1, with 2% to 100% resident rows and tolerances of 1e-3 and 1e-6. P of each model is computed in long
double. Problems with fewer resident rows than one read is chosen for are left out.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.methods.cutting_plane import one_read_setup
from streamsvm.methods.cutting_plane.one_read_state import OneRead
from streamsvm.methods.cutting_plane.solver import CuttingPlane, solve, start_state
from streamsvm.numeric.rows import F64, CsrRows, to_dense
from tests.linear_problems import run_steps
from tests.methods.cutting_plane.test_against_line_search import KINDS, make_rows

MOST_STEPS = 1000


def evaluate(source: ArrayDataset, C: float, w: F64) -> float:
    """P in long double."""
    rows, own = source.take(np.arange(source.n_rows)), w.astype(np.longdouble)
    X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X
    assert rows.y is not None
    margins = np.where(rows.y == 1, 1, -1) * (X.astype(np.longdouble) @ own[:-1] + own[-1])
    return float(own @ own / 2 + np.longdouble(C) * np.sum(np.maximum(0, 1 - margins)))


def compare(seed: int) -> int | None:
    """Print what is wrong; return how many more passes than a line search one read takes, None if it is left out."""
    random = np.random.default_rng([3, seed])
    kind, n, d = str(random.choice(KINDS)), int(random.integers(10, 400)), int(random.integers(1, 20))
    C, share, tol = 10.0 ** random.uniform(-3, 2), random.choice([0.02, 0.1, 0.3, 1.0]), random.choice([1e-3, 1e-6])
    source, resident = make_rows(kind, seed, n, d), max(2, int(share * n))
    if resident < one_read_setup.count_needed(source):
        return None
    fit, start = one_read_setup.make_fit(source, OneRead((C, C), resident, float(tol))), start_state(source.n_features)
    found = run_steps(source, fit.solve(fit.start()), MOST_STEPS)[-1]
    other = run_steps(source, solve(CuttingPlane((C, C), float(tol)), source.n_features, start), MOST_STEPS)[-1]
    P, progress = evaluate(source, C, found.state.best_w), found.progress
    assert progress.lower_bound is not None
    is_off = abs(P - progress.objective) > 1e-12 * P + progress.rounding_bound
    if is_off or progress.lower_bound > min(P, other.progress.objective) * (1 + 1e-12) or found.status != "converged":
        print(
            f"seed {seed}, {kind}: {found.status}, P {progress.objective} ({P}), D {progress.lower_bound}", flush=True
        )
    return progress.passes - other.progress.passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=3000)
    own = parser.parse_args()
    counts = Counter(compare(seed) for seed in range(own.first, own.last))
    left_out = counts.pop(None, 0)
    print(f"{sum(counts.values())} problems, {left_out} left out")
    print("| passes more than a line search | problems |\n|---|---|")
    for more, number in sorted(counts.items(), key=lambda item: item[0] or 0):
        print(f"| {more} | {number} |")


if __name__ == "__main__":
    main()
