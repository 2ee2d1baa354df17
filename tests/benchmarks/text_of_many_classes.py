"""Text of many classes and features: squared hinge, one class against the rest, beside scikit-learn's LinearSVC.

    python -m tests.benchmarks.text_of_many_classes [--rows 9619] [--features 55197] [--classes 105] [--memory 1GB]

The text is generated: words by Zipf's law, 15% of them from 600 words of the row's class, weighted by tf-idf, rows of
length 1. Ours is trained from disk in a process of its own; scikit-learn's in this one, with all rows in memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC as Liblinear

import streamsvm

WORDS, OWN_WORDS, OWN_SHARE, LEAST_WORDS, SPREAD = 163, 600, 0.15, 20, 0.4


def make_text(n: int, d: int, n_classes: int, seed: int = 0) -> tuple[csr_array, npt.NDArray[np.int64]]:
    """Return the rows and their classes."""
    rng = np.random.default_rng(seed)
    y, shares = rng.integers(0, n_classes, n), 1 / (np.arange(d) + 10.0)
    limits = np.cumsum(shares / shares.sum())
    own_words = [rng.permutation(d)[:OWN_WORDS] for _ in range(n_classes)]
    words = []
    for label in y.tolist():
        m = max(LEAST_WORDS, int(rng.lognormal(np.log(WORDS), SPREAD)))
        found, own = np.searchsorted(limits, rng.random(m)), rng.random(m) < OWN_SHARE
        found[own] = own_words[label][rng.integers(0, OWN_WORDS, int(own.sum()))]
        words.append(np.minimum(found, d - 1))
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in words])))
    counts = csr_matrix((np.ones(indptr[-1]), np.concatenate(words), indptr), shape=(n, d))
    counts.sum_duplicates()
    return csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts), dtype=np.float32), y


def train(path: Path, memory: str) -> dict[str, Any]:
    """Return the result of a training in a process of its own, with its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out, given = str(path.parent / "run"), ("--loss", "squared_hinge", "--memory", memory, "--json")
    command = [sys.executable, "-m", "streamsvm", "train", str(path), "--out", out, *given]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    result["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=9619)
    parser.add_argument("--features", type=int, default=55_197)
    parser.add_argument("--classes", type=int, default=105)
    parser.add_argument("--memory", default="1GB")
    options = parser.parse_args()
    X, y = make_text(options.rows, options.features, options.classes)
    with tempfile.TemporaryDirectory() as folder:
        streamsvm.ingest(X, Path(folder) / "text.zarr", y)
        found = train(Path(folder) / "text.zarr", options.memory)
    wide = csr_matrix((X.data.astype(np.float64), X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)
    began = time.process_time()
    Liblinear(C=1.0).fit(wide, y)
    theirs = time.process_time() - began
    peak, projected = found["peak_memory_bytes"] / 1e6, found["projected_memory_bytes"] / 1e6
    gaps = found["gaps"]
    print(
        "| status | proved | mean gap | worst gap | passes | CPU s | peak | projected | LIBLINEAR: CPU s |\n"
        + "|---" * 9
        + "|"
    )
    print(
        f"| {found['status']} | {options.classes - len(gaps['unproved'])} | {gaps['mean']:.1e} | {gaps['worst']:.1e} | "
        f"{found['passes']} | {found['cpu']:.1f} | {peak:.0f} MB | {projected:.0f} MB | {theirs:.1f} |"
    )


if __name__ == "__main__":
    main()
