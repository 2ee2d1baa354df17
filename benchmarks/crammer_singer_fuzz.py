"""Crammer-Singer on random problems with extreme scales: prints all false certificates and long runs.

    python -m benchmarks.crammer_singer_fuzz [FIRST LAST]

A problem is drawn with each seed from FIRST to LAST - 1: 10 to 400 rows, dense or sparse, with 1 to 20 features and 2
to 7 classes. Features and weights have scales from 1e-6 to 1e6, and C is from 1e-6 to 1e8. Some rows are repeated,
zero, or nearly parallel. Each problem is trained with all rows in memory, on blocks of a third of the rows, and by line
search alone. P of each model is computed in long double. A certificate is false if P differs from the reported P by
more than the reported rounding, or if a lower bound is above the P of any of the three models.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.sources import in_memory
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane import setup

WAYS: dict[str, dict[str, Any]] = {
    "memory": {"resident_rows": "100%"},
    "blocks": {"resident_rows": "30%"},
    "line-search": {"options": {"acceleration": "line-search"}},
}
MOST_SECONDS = 20.0


def make(seed: int) -> tuple[ArrayDataset, float]:
    """Return the rows and the C of the problem with this seed."""
    random = np.random.default_rng([16, seed])
    n, d, K = int(random.integers(10, 400)), int(random.integers(1, 21)), int(random.integers(2, 8))
    K, kind = min(K, n), random.choice(["plain", "parallel", "repeated", "weights", "features", "both", "sparse"])
    y = np.concatenate((np.arange(K), random.integers(0, K, n - K))).astype(np.int32)
    X = 2.0 * random.normal(size=(K, d))[y] + random.normal(size=(n, d))
    weight = np.ones(n)
    if kind == "parallel":
        X = X * 1e-3 + 10.0 ** random.uniform(0, 4)
    if kind == "repeated":
        X[random.random(n) < 0.5] = X[0]
        X[random.random(n) < 0.1] = 0.0
    if kind in ("weights", "both"):
        weight = 10.0 ** random.uniform(-6, 6, n)
        weight[random.random(n) < 0.1] = 0.0
    if kind in ("features", "both"):
        X *= 10.0 ** random.uniform(-6, 6, d)
    rows: Any = X.astype(np.float32)
    if kind == "sparse":
        rows = csr_array(np.where(random.random((n, d)) < 0.3, rows, np.float32(0)))
    C = 10.0 ** (random.uniform(-6, 8) if random.random() < 0.5 else random.uniform(-3, 2))
    return ArrayDataset(rows, y, np.arange(K), sample_weight=weight), C


def evaluate(source: ArrayDataset, C: float, model: Any) -> float:
    """Return P in long double."""
    rows = source.take(np.arange(source.n_rows))
    assert rows.y is not None
    assert rows.sample_weight is not None
    X: Any = rows.X
    if not isinstance(X, np.ndarray):
        X = csr_array((X.data, X.indices, X.indptr), shape=X.shape).toarray()
    W = np.column_stack((np.atleast_2d(model.coef), np.atleast_1d(model.intercept))).astype(np.longdouble)
    W = W if len(W) > 1 else np.concatenate((-W, W)) / 2
    scores = X.astype(np.longdouble) @ W[:, :-1].T + W[:, -1]
    every = np.arange(source.n_rows)
    leads = 1 + scores - scores[every, rows.y][:, None]
    leads[every, rows.y] = 0
    return float(np.sum(W**2) / 2 + np.sum(np.longdouble(C) * rows.sample_weight * np.max(leads, axis=1)))


def run(source: ArrayDataset, options: TrainOptions) -> tuple[Result, float]:
    """Return the result and CPU seconds."""
    began = time.process_time()
    return train(source, options), time.process_time() - began


def try_one(seed: int) -> list[str]:
    """Train on one problem.

    Print false certificates, and runs that are long or have not converged; return all statuses.
    """
    source, C = make(seed)
    tol, limit = 1e-3 if seed % 3 else 1e-6, MOST_SECONDS
    options = TrainOptions(task="crammer-singer", C=C, tol=tol, threads=1, max_seconds=limit)
    found = {way: run(source, replace(options, **own)) for way, own in WAYS.items()}
    objectives = {way: evaluate(source, C, result.model) for way, (result, _) in found.items()}
    for way, (result, seconds) in found.items():
        P, rounding, D = objectives[way], result.rounding_bound or 0.0, result.lower_bound
        assert D is not None
        is_false = abs(P - result.objective) > rounding + 1e-14 * P or min(objectives.values()) * (1 + 1e-14) < D
        if is_false or seconds > MOST_SECONDS or result.status != "converged":
            told = "FALSE" if is_false else result.status
            print(
                f"{seed} {way}: {told}, P {result.objective} ({P}), D {D}, rounding {rounding:.1e}, gap "
                f"{result.relative_gap:.1e}, {result.passes} passes, {seconds:.1f} s, C {C:.1e}, {source.n_rows} rows",
                flush=True,
            )
    return [f"{way}: {result.status}" for way, (result, _) in found.items()]


def main() -> None:
    """Try all problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=300)
    own = parser.parse_args()
    in_memory.CHUNK_BYTES = 1000
    setup.MOST_ROWS = 1  # so that few rows are trained on blocks as well
    endings = Counter(ending for seed in range(own.first, own.last) for ending in try_one(seed))
    for ending, number in sorted(endings.items()):
        print(ending, number)


if __name__ == "__main__":
    main()
