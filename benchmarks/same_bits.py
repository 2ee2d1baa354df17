"""Test that the model has the same bits with any number of threads or workers, and that memory stays as projected.

    python -m benchmarks.same_bits [--rows 200000] [--kinds dense sparse ...] [--threads 1 2 4 8 16]
        [--workers 2]

Prints a Markdown table, and exits with 1 if models of the same rows differ, or if a peak is above its projection.
Each run is a process of its own, of a few passes with a line search. Its memory budget is the minimum of the plan plus
SPARE_BYTES for kept chunks, which is too little for all chunks; the margin of the plan is therefore the only reserve.
The peak is the peak of the process that needs the most memory, as in `result.json`; `beyond base` is the peak or the
projection without the interpreter and the libraries. A row has 200 dense features, or 2,000 features of which 2% are
not zero. Chunks are streamed, or have 8 MiB and are decoded whole (lz4). The kind "made" has three times as many rows;
benchmarks/made_rows.py generates them as they are read, in chunks of 26 MB. On few cores, not all threads reach their
memory peaks at the same time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import random_array

import streamsvm
from benchmarks.made_rows import MadeRows
from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import RowSource
from streamsvm.engines.open import MemoryPlan
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import MemoryBudgetError

FEATURES, PASSES = 200, 6
SPARE_BYTES = 50_000_000
CHUNK_BYTES = {"crc32c": 2 << 20, "lz4": 8 << 20}
KINDS = {"dense": "crc32c", "dense, lz4": "lz4", "sparse": "crc32c", "sparse, lz4": "lz4", "made": ""}
HEAD = "| rows | engine | passes | peak, MB | projected | peak beyond base | projected beyond base | model SHA-256 |"


def make_rows(folder: Path, kind: str, n_rows: int) -> None:
    """Write rows of two overlapping classes."""
    random = np.random.default_rng(0)
    X: Any = random.standard_normal((n_rows, FEATURES), dtype=np.float32)
    if kind.startswith("sparse"):
        X = random_array((n_rows, 2000), density=0.02, rng=random, dtype=np.float32, format="csr")
    y = np.where(X @ random.standard_normal(X.shape[1]) + random.standard_normal(n_rows) > 0, 1, -1)
    options = IngestOptions(chunk_bytes=CHUNK_BYTES[KINDS[kind]], codec=KINDS[kind])
    streamsvm.ingest(X, folder / kind, y, options=options)


def run_one(kind: str, folder: Path, n_rows: int, threads: int, workers: int) -> None:
    """Train with the least memory that the plan allows; print the passes, the memory, and the hash of the model."""
    source: RowSource = MadeRows(3 * n_rows, 0, FEATURES) if kind == "made" else open_dataset(folder / kind)
    asked: dict[str, Any] = {"max_passes": PASSES, "tol": 1e-6}
    asked |= {"workers": workers} if workers else {"threads": threads}
    asked |= {"options": {"acceleration": "line-search"}, "C": 100 / n_rows}
    try:
        train(source, TrainOptions(memory_bytes=1, **asked))
    except MemoryBudgetError as error:
        budget = error.needed_bytes + SPARE_BYTES
    plans: list[MemoryPlan] = []
    result = train(source, TrainOptions(memory_bytes=budget, **asked), listener=lambda event: plans.append(event.plan))
    base = plans[0].parts["interpreter and libraries"]
    print(json.dumps([result.passes, result.peak_memory_bytes, plans[0].projected_bytes, base, result.model_sha256]))


def measure(kind: str, folder: Path, n_rows: int, threads: int, workers: int) -> tuple[str, bool]:
    """Train in a separate process, and print a line.

    Return the hash of the model, and whether the peak was as projected.
    """
    one = [kind, str(folder), *map(str, (n_rows, threads, workers))]
    command = [sys.executable, "-m", "benchmarks.same_bits", "--one", *one]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{kind}: {ended.stderr[-1000:]}")
    passes, peak, projected, base, model = json.loads(ended.stdout.splitlines()[-1])
    engine = f"{workers} workers" if workers else f"{threads} threads"
    shown = " | ".join(f"{each / 1e6:.0f}" for each in (peak, projected, peak - base, projected - base))
    print(f"| {kind} | {engine} | {passes} | {shown} | {model[:16]} |", flush=True)
    return model, peak <= projected


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--workers", type=int, nargs="*", default=[2])
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        run_one(asked.one[0], Path(asked.one[1]), *map(int, asked.one[2:]))
        return 0
    good = True
    print(HEAD, "|" + "---|" * (HEAD.count("|") - 1), sep="\n")
    with tempfile.TemporaryDirectory() as name:
        for kind in asked.kinds:
            if kind != "made":
                make_rows(Path(name), kind, asked.rows)
            engines = [(n, 0) for n in asked.threads] + [(0, n) for n in asked.workers]
            told = [measure(kind, Path(name), asked.rows, *engine) for engine in engines]
            good &= len({model for model, _ in told}) == 1 and all(kept for _, kept in told)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
