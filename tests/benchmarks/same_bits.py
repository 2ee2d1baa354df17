"""The same model bits from any number of threads and worker processes. Prints a Markdown table; exits 1 if they differ.

python tests/benchmarks/same_bits.py [--rows 400000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.sparse import random_array

import streamsvm
from streamsvm.data.ingest_options import IngestOptions
from streamsvm.training.train import TrainOptions, train

RUNS = [TrainOptions(C=1e-3, threads=n) for n in (1, 2, 4)] + [TrainOptions(C=1e-3, workers=n) for n in (1, 2, 4)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    n = parser.parse_args().rows
    rng = np.random.default_rng(0)
    sets = {
        "dense": rng.standard_normal((n, 50), dtype=np.float32),
        "sparse": random_array((n, 2000), density=0.02, rng=rng, dtype=np.float32, format="csr"),
    }
    hashes: dict[str, set[str]] = {}
    print("| rows | engine | passes | model SHA-256 |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for kind, X in sets.items():
            truth = rng.standard_normal(X.shape[1])
            y = np.where(X @ truth + rng.standard_normal(n) > 0, 1, -1)
            options = IngestOptions(chunk_bytes=2 << 20)
            data = streamsvm.ingest(X, Path(name) / f"{kind}.zarr", y, options=options)
            for run in RUNS:
                result = train(data, run)
                hashes.setdefault(kind, set()).add(result.model_sha256)
                engine = f"{run.workers} workers" if run.workers else f"{run.threads} threads"
                print(f"| {kind} | {engine} | {result.passes} | {result.model_sha256[:16]} |", flush=True)
    return int(any(len(different) > 1 for different in hashes.values()))


if __name__ == "__main__":
    sys.exit(main())
