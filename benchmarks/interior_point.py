"""The interior-point method: a1a to a9a compared with LIBSVM, unequal weights, Covertype at three C.

Prints Markdown tables.

    python -m benchmarks.interior_point --data FOLDER [--rounds 3] [--libsvm-rows 50000] [--only-reduction]

The last table has the four problems of pipelines.papers.jung_oleary_tits_2008, without and with the constraint
reduction (C = 1, a gap of 1e-8). Trainings without and with it take turns (A B A B), after one round that is not
counted. With --only-reduction, only this table is printed. FOLDER holds adult/a1a to a9a, web/w8a, ijcnn1/ijcnn1.trn
and covtype/covtype.csv (a header, then features and a class from 1 to 7; all rows, class 1 against the rest, columns
divided by their maxima), and for the last table mushrooms, letter.scale, letter.scale.t, isolet1+2+3+4.csv and
isolet5.csv anywhere below it. Times are CPU seconds on one thread, medians of the rounds, without compilation. LIBSVM
(scikit-learn's SVC with a linear kernel, C=1, tolerance 1e-3, 200 MB of cache) is run once, on files of at most
--libsvm-rows rows; streamsvm is run to gaps of 1e-3 and 1e-6. The exponent is the slope of log seconds against log
rows.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file
from sklearn.svm import SVC

from pipelines.data import DataFolder
from pipelines.papers.jung_oleary_tits_2008.problems import PROBLEMS, read_problem
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train

FILES = ("a1a", "a4a", "a5a", "a7a", "a8a", "a9a")


def measure(source: ArrayDataset, rounds: int, **options: Any) -> tuple[float, Result]:
    """Return the median of the CPU seconds, and the result."""
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        result = train(source, TrainOptions(solver="interior-point", threads=1, **options))
        spent.append(time.process_time() - began)
    return median(spent), result


def show_adult(data: Path, rounds: int, libsvm_rows: int) -> None:
    """Print the table of a1a to a9a."""
    print("| file | rows | ours, 1e-3 | ours, 1e-6 | passes | steps | LIBSVM | ratio to 1e-3 (a9a: >= 10) |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    sizes, seconds = [], []
    for file in FILES:
        X, y = load_svmlight_file(str(data / "adult" / file), n_features=123)
        source = ArrayDataset(csr_array(X.astype(np.float32)), (y > 0).astype(np.int32), np.array([-1, 1]))
        train(source, TrainOptions(solver="interior-point", max_passes=3, threads=1))  # compiles
        loose, _ = measure(source, rounds, tol=1e-3)
        tight, result = measure(source, rounds, tol=1e-6)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # LIBSVM requires int32
        sizes.append(len(y))
        seconds.append((loose, tight))
        libsvm = float("nan")
        if len(y) <= libsvm_rows:
            began = time.process_time()
            SVC(kernel="linear", tol=1e-3, cache_size=200).fit(X, y)
            libsvm = time.process_time() - began
        print(
            f"| {file} | {len(y):,} | {loose:.3f} | {tight:.3f} | {result.passes} | {result.steps} | {libsvm:.2f} "
            f"| {libsvm / loose:.1f} |",
            flush=True,
        )
    exponents = [np.polyfit(np.log(sizes), np.log(spent), 1)[0] for spent in zip(*seconds, strict=True)]
    print(f"\nFitted exponents (<= 1.1): {exponents[0]:.2f} for 1e-3, {exponents[1]:.2f} for 1e-6\n")


def show_weights(data: Path) -> None:
    """Print the table of unequal sample weights: 15,000 rows with weights 10^u, where u is uniform in (-3, 3)."""
    print("| file | C | status | passes with equal weights | with unequal weights |\n|---|---|---|---|---|", flush=True)
    for file in ("adult/a9a", "web/w8a", "ijcnn1/ijcnn1.trn"):
        X, labels = load_svmlight_file(str(data / file))
        rng = np.random.default_rng(0)
        chosen = rng.permutation(len(labels))[:15_000]
        rows, y = csr_array(X[chosen].astype(np.float32)), (labels[chosen] > 0).astype(np.int32)
        sources = [
            ArrayDataset(rows, y, np.array([-1, 1]), sample_weight=weight)
            for weight in (None, 10 ** rng.uniform(-3, 3, len(y)))
        ]
        for C in (0.1, 100.0):
            equal, unequal = [measure(source, 1, C=C, tol=1e-6, max_passes=400)[1] for source in sources]
            print(f"| {file} | {C:g} | {unequal.status} | {equal.passes} | {unequal.passes} |", flush=True)
    print()


def show_covertype(data: Path, rounds: int) -> None:
    """Print the table of Covertype."""
    table = np.loadtxt(data / "covtype" / "covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
    X = np.ascontiguousarray(table[:, :54] / np.maximum(table[:, :54].max(axis=0), 1))
    source = ArrayDataset(X, (table[:, 54] == 1).astype(np.int32), np.array([-1, 1]))
    print(
        "| Covertype, 581,012 rows, C | status | gap | objective | steps | passes a step (<= 2.2) | rows at the end "
        "| largest jitter | processor seconds |\n|---|---|---|---|---|---|---|---|---|"
    )
    steps = []
    for C in (0.01, 1.0, 100.0):
        spent, result = measure(source, rounds, C=C, tol=1e-6)
        steps.append(result.steps)
        jitter = max(line["jitter"] for line in result.history)
        print(
            f"| {C:g} | {result.status} | {result.relative_gap:.1e} | {result.objective:.6g} | {result.steps} "
            f"| {result.passes / result.steps:.2f} | {result.history[-1]['chosen_rows']:,.0f} | {jitter:.0e} "
            f"| {spent:.1f} |",
            flush=True,
        )
    print(f"\nMost steps over least (<= 1.5): {max(steps) / min(steps):.2f}")


def show_reduction(data: Path, rounds: int) -> None:
    """Print the table of the constraint reduction."""
    print(
        "\n| problem | rows | features | steps, all rows | reduced | rows in Q over all rows | CPU s, all rows "
        "| reduced | ratio (>= 2) | ratio of the least |\n|---|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for problem in PROBLEMS:
        source = read_problem(problem, DataFolder(data), None)
        if source is None:
            continue
        spent: dict[str, list[float]] = {"none": [], "adaptive-balanced": []}
        results = {}
        for _ in range(rounds + 1):
            for name, seconds in spent.items():
                once, results[name] = measure(source, 1, tol=1e-8, options={"reduction": name})
                seconds.append(once)
        whole, reduced = (seconds[1:] for seconds in spent.values())
        last, steps = results["adaptive-balanced"], [result.steps for result in results.values()]
        assert all(result.status == "converged" for result in results.values())
        share = sum(float(line["chosen_rows"]) for line in last.history) / (steps[1] * source.n_rows)
        print(
            f"| {problem.name} | {source.n_rows:,} | {source.n_features} | {steps[0]} | {steps[1]} | {share:.2f} "
            f"| {median(whole):.3f} | {median(reduced):.3f} | {median(whole) / median(reduced):.2f} "
            f"| {min(whole) / min(reduced):.2f} |",
            flush=True,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libsvm-rows", type=int, default=50_000)
    parser.add_argument("--only-reduction", action="store_true")
    options = parser.parse_args()
    if not options.only_reduction:
        show_adult(options.data, options.rounds, options.libsvm_rows)
        show_weights(options.data)
        show_covertype(options.data, options.rounds)
    show_reduction(options.data, options.rounds)


if __name__ == "__main__":
    main()
