"""Certified optima on real and generated data: objective, gap, passes, accuracy, memory. Prints a Markdown table.

    STREAMSVM_DATA=FOLDER python benchmarks/optima.py [--quick]

FOLDER holds adult/a9a.xz, adult/a9a.t.xz, covtype/covtype.csv.xz and news20/news20.xz. Every training is a separate
process (`streamsvm train --json`), whose peak memory is measured.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import norm

import streamsvm

# optima by LIBLINEAR to 1e-6, with the bias as a penalised constant feature; None without a published optimum
A9A, COVTYPE = {"0.05": 577.5158}, {"0.01": 3329.187, "1": 309665.83}


def unpack(name: str) -> bytes:
    """Return the decompressed content of a file."""
    return lzma.open(Path(os.environ["STREAMSVM_DATA"]) / f"{name}.xz").read()


def ingest_adult(folder: Path) -> Path:
    """Ingest a9a from svmlight text."""
    (folder / "a9a").write_bytes(unpack("adult/a9a"))
    (folder / "a9a.t").write_bytes(unpack("adult/a9a.t"))
    streamsvm.ingest(folder / "a9a", folder / "a9a.zarr")
    return folder / "a9a.zarr"


def ingest_covtype(folder: Path) -> Path:
    """Ingest covtype: class 1 against the rest, with features divided by their maxima."""
    table = np.loadtxt(io.BytesIO(unpack("covtype/covtype.csv")), delimiter=",", skiprows=1, dtype=np.float32)
    X, y = table[:, :-1], np.where(table[:, -1] == 1, 1, -1)
    streamsvm.ingest(X / np.abs(X).max(axis=0), folder / "covtype.zarr", y)
    return folder / "covtype.zarr"


def ingest_news20(folder: Path) -> Path:
    """Ingest news20: ten classes against the other ten, with rows of length 1."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(io.BytesIO(unpack("news20/news20")), dtype=np.float32)
    X = diags_array(1 / norm(X, axis=1)) @ csr_array(X)
    streamsvm.ingest(csr_array(X), folder / "news20.zarr", np.where(y <= 10, 1, -1))
    return folder / "news20.zarr"


def ingest_text(folder: Path, n: int = 200_000, d: int = 47_000, row_items: int = 86) -> Path:
    """Ingest generated text: words drawn by Zipf's law, rows of length 1, and labels from a noisy linear function."""
    rng = np.random.default_rng(0)
    share = np.cumsum(1 / (np.arange(d) + 30.0))
    words = rng.permutation(d)[np.searchsorted(share / share[-1], rng.random((n, row_items * 10 // 9)))]
    truth = rng.standard_normal(d)
    counts = csr_array(
        (np.ones(words.size, np.float32), words.ravel(), np.arange(0, words.size + 1, words.shape[1])), (n, d)
    )
    counts.sum_duplicates()
    rarity = np.log(n / (1 + np.bincount(counts.indices, minlength=d))).astype(np.float32)
    counts.data = (1 + np.log(counts.data)) * rarity[counts.indices]
    X = csr_array(diags_array(1 / np.maximum(norm(counts, axis=1), 1e-9)) @ counts, dtype=np.float32)
    y = np.where(X @ truth + 0.3 * rng.standard_normal(n) > 0, 1, -1)
    print(f"<!-- generated text: {n:,} rows, {X.nnz / n:.0f} items a row -->")
    streamsvm.ingest(X, folder / "text.zarr", y)
    return folder / "text.zarr"


def train(data: Path, *arguments: str) -> dict[str, Any]:
    """Return the result of a training in a separate process."""
    with tempfile.TemporaryDirectory() as run:
        command = [sys.executable, "-m", "streamsvm", "train", str(data), "--out", f"{run}/run", "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise SystemExit(done.stderr)
        result = json.loads(done.stdout.splitlines()[-1])
        if (test := data.with_name("a9a.t")).exists() and data.stem == "a9a":
            command = [sys.executable, "-m", "streamsvm", "evaluate", f"{run}/run", str(test), "--json"]
            result |= json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return result


def show(name: str, result: dict[str, Any], optimum: float | None) -> None:
    """Print a row."""
    against = "-" if optimum is None else f"{result['objective'] / optimum - 1:+.1e}"
    accuracy = f"{result['accuracy']:.2%}" if "accuracy" in result else "-"
    peak, projected = (f"{result[f'{which}_memory_bytes'] / 1e6:.0f}" for which in ("peak", "projected"))
    print(
        f"| {name} | {result['status']} | {result['objective']:.6g} | {against} | {result['relative_gap']:.1e} "
        f"| {result['passes']} | {accuracy} | {result['seconds']:.2f} | {peak} | {projected} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only a9a by default settings")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| work | status | objective | off the optimum | gap | passes | accuracy | s | peak MB | projected MB |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        adult = ingest_adult(folder)
        show("a9a, C=0.05", train(adult, "--C", "0.05"), A9A["0.05"])
        if quick:
            return
        show("a9a, C=0.05, Algorithm 1", train(adult, "--C", "0.05", "--option", "acceleration=none"), A9A["0.05"])
        covtype = ingest_covtype(folder)
        for C, optimum in COVTYPE.items():
            show(f"covtype class 1, C={C}", train(covtype, "--C", C), optimum)
        show("news20, 10 classes against 10, C=1", train(ingest_news20(folder), "--C", "1"), None)
        show("generated text, C=1", train(ingest_text(folder), "--C", "1"), None)


if __name__ == "__main__":
    main()
