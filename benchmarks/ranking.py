"""Rankings: time against n, compared with classification; accuracy, compared with regressions; queries from disk.

    python benchmarks/ranking.py --data FOLDER [--rounds 3] [--only times|measures|passes|queries|histograms]

FOLDER holds covtype/covtype.csv (54 features divided by their maxima, class 1 against the rest), adult/a9a,
ltr_lightgbm/rank.* with their .query files, and wine/winequality-white.csv; a text-like set of 200,000 rows and 47,000
features is generated. Times are CPU seconds on one thread, to a gap of 1e-3, and medians of the rounds, in which
ranking (roc-area) and classification take turns. A pass of ROC area computes either scores or sums; a step makes both
passes. Rows in queries, with five ranks, are generated, and read from disk by two threads. So are 3,000,000 rows of two
classes. The driver either holds their scores or counts them in histograms; these two trainings take turns, each in a
separate process. The table of passes shows the reads, too: the bytes read over the bytes stored, if no chunk stays in
memory. Most of what they exceed the passes by is the sample.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression, Ridge

from pipelines.sparse_rows import SparseTruth
from streamsvm import RankSVM
from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.ingestion.generated import Truth, write_generated
from streamsvm.ingestion.readers import ingest
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions
from streamsvm.problems import ranking as problem_pairs
from streamsvm.problems.ranking import HELD_ROWS, evaluate_ranking
from streamsvm.runs.results import Result
from streamsvm.runs.train import train

SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
LARGE_ROWS = 3_000_000
QUERIES = ((1_000_000, 46, 100, 1.0), (400_000, 136, 120, 3.0), (500_000, 30, 1000, 0.3))
CLASSES = np.array([-1, 1])


def take_turns(source: RowSource, C: float, rounds: int) -> list[tuple[float, Result]]:
    """Return the median CPU seconds and the result, for classification and for ROC area."""
    many = [TrainOptions(C=C, threads=1, task=task) for task in ("classify", "roc-area")]
    spent: list[list[float]] = [[], []]
    results: list[Any] = [None, None]
    for _ in range(rounds):
        for k, options in enumerate(many):
            began = time.process_time()
            results[k] = train(source, options)
            spent[k].append(time.process_time() - began)
    return [(median(seconds), result) for seconds, result in zip(spent, results, strict=True)]


def read_sources(data: Path, work: Path) -> Iterator[tuple[str, float, list[RowSource]]]:
    """Yield the name, the C, and nested parts of each dataset."""
    table = np.loadtxt(data / "covtype" / "covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
    X, y = table[:, :54] / np.maximum(table[:, :54].max(axis=0), 1), (table[:, 54] == 1).astype(np.int32)
    order = np.random.default_rng(0).permutation(len(y))
    parts: list[RowSource] = []
    for size in SIZES:
        rows = np.sort(order[: int(size * len(y))])
        parts.append(ArrayDataset(np.ascontiguousarray(X[rows]), y[rows], CLASSES))
    yield "Covertype", 0.01, parts
    sparse, labels = load_svmlight_file(str(data / "adult" / "a9a"), n_features=123)
    codes = (labels > 0).astype(np.int32)
    order = np.random.default_rng(0).permutation(len(codes))
    parts = []
    for size in SIZES[1:]:
        rows = np.sort(order[: int(size * len(codes))])
        parts.append(ArrayDataset(csr_array(sparse[rows].astype(np.float32)), codes[rows], CLASSES))
    yield "Adult", 0.05, parts
    truth = SparseTruth(47_000, row_items=86)
    yield (
        "text, generated",
        1.0,
        [write_generated(work / f"{n}.zarr", n, truth) for n in (int(size * 200_000) for size in SIZES[1:])],
    )


def show_times(data: Path, rounds: int) -> None:
    """Print the table of times: a row for each number of rows, and the exponents."""
    print(
        "| data | rows | classification: s, passes, ms a pass | ROC area: s, passes, ms a pass | a pass over a pass |"
    )
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for name, C, parts in read_sources(data, Path(work)):
            sizes, seconds = [], []
            for source in parts:
                found = take_turns(source, C, rounds)
                each = [spent / result.passes for spent, result in found]
                shown = [
                    f"{spent:.2f}, {result.passes}, {1e3 * one:.1f}"
                    for (spent, result), one in zip(found, each, strict=True)
                ]
                print(
                    f"| {name}, C={C:g} | {source.n_rows:,} | {shown[0]} | {shown[1]} | {each[1] / each[0]:.2f} |",
                    flush=True,
                )
                sizes.append(source.n_rows)
                seconds.append((found[1][0], each[1]))
            slopes = [np.polyfit(np.log(sizes), np.log(one), 1)[0] for one in zip(*seconds, strict=True)]
            print(f"| {name} | exponent | | {slopes[0]:.2f} (a pass: {slopes[1]:.2f}; <= 1.15) | |", flush=True)


def describe_ranking(name: str, scores: F64, labels: F64, qid: Any) -> None:
    """Print a row of the table of measures."""
    found = evaluate_ranking(np.asarray(scores, np.float64), labels, qid)
    ndcg = [f"{value:.4f}" for value in found["ndcg"].values()] or ["", "", ""]
    cells = [name, f"{found['swapped_pairs']:.4f}", f"{found['kendall_tau']:.4f}", *ndcg]
    print("| " + " | ".join(cells) + " |", flush=True)


def show_measures(data: Path) -> None:
    """Print measures of our rankings of real datasets, and of regressions on the rank. C is the best of five values."""
    head = ["swapped pairs", "Kendall's tau", "NDCG@1", "NDCG@5", "NDCG@10"]
    print("\n| | " + " | ".join(head) + " |\n|---" * 1 + "|---" * len(head) + "|")
    sets = {"LightGBM's ranking example": read_queries(data), "wine quality (white)": read_wine(data)}
    for title, (X, y, qid, X_test, y_test, qid_test) in sets.items():
        print(f"| **{title}**, {X.shape[0]:,} and {X_test.shape[0]:,} rows |" + " |" * len(head))
        C = choose_cost(X, y, qid)
        model = RankSVM(C=C, n_jobs=1).fit(X, y, qid=qid)
        describe_ranking(f"RankSVM, C={C:g}", model.predict(X_test), y_test, qid_test)
        regression = Ridge(alpha=1.0).fit(X, y)
        describe_ranking("scikit-learn Ridge on the rank", np.asarray(regression.predict(X_test)), y_test, qid_test)
        classifier = LogisticRegression(max_iter=2000).fit(X, y)
        expected = classifier.predict_proba(X_test) @ classifier.classes_
        describe_ranking("scikit-learn LogisticRegression, mean rank", expected, y_test, qid_test)
        describe_ranking("the majority rank for all", np.zeros(len(y_test)), y_test, qid_test)


def choose_cost(X: Any, y: F64, qid: Any) -> float:
    """Return the C with the best ranking of the last fifth of the training rows."""
    at = int(0.8 * len(y)) if qid is None else int(np.searchsorted(qid, np.quantile(qid, 0.8)))
    first, last = slice(0, at), slice(at, None)
    ids = (None, None) if qid is None else (qid[first], qid[last])
    costs = (0.001, 0.01, 0.1, 1.0, 10.0)
    fitted = [RankSVM(C=C, n_jobs=1).fit(X[first], y[first], qid=ids[0]) for C in costs]
    return costs[int(np.argmax([model.score(X[last], y[last], qid=ids[1]) for model in fitted]))]


def read_queries(data: Path) -> Any:
    """Return rows, ranks and query ids of the training file and of the test file."""
    found = []
    for part in ("train", "test"):
        X, y = load_svmlight_file(str(data / "ltr_lightgbm" / f"rank.{part}"), n_features=300)
        sizes = np.loadtxt(data / "ltr_lightgbm" / f"rank.{part}.query", dtype=np.int64)
        found += [csr_array(X.astype(np.float32)), y, np.repeat(np.arange(len(sizes)), sizes)]
    return found


def read_wine(data: Path) -> Any:
    """Return training rows (four fifths) and test rows, standardised, without queries."""
    table = pd.read_csv(data / "wine" / "winequality-white.csv", sep=";")
    X, y = table.iloc[:, :-1].to_numpy(np.float64), table["quality"].to_numpy(np.float64)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = ((X - X.mean(axis=0)) / X.std(axis=0))[order], y[order]
    at = len(y) * 4 // 5
    return X[:at], y[:at], None, X[at:], y[at:], None


def make_queries(
    path: Path, n_rows: int, n_features: int, size: int, noise: float, scales: F64 | None = None
) -> Dataset:
    """Write rows in queries of `size`, with ranks from a noisy linear function. scales: those of the features."""
    random = np.random.default_rng(n_features)
    X = random.standard_normal((n_rows, n_features), np.float32)
    X *= 1.0 if scales is None else scales.astype(np.float32)
    truth = X @ random.standard_normal(n_features) / np.sqrt(n_features) + noise * random.standard_normal(n_rows)
    ranks = np.searchsorted(np.quantile(truth, [0.5, 0.75, 0.9, 0.97]), truth)
    return ingest(X, path, ranks, qid=np.arange(n_rows) // size, shuffle=None)


def show_queries(rounds: int) -> None:
    """Print the time and the passes of trainings on rows in queries."""
    print("\n| rows, features, rows of a query, C | CPU s | seconds | passes | P |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for n_rows, n_features, size, noise in QUERIES:
            source = make_queries(Path(work) / "rows.zarr", n_rows, n_features, size, noise)
            for C in (1e-3, 0.1):
                options = TrainOptions(C=C, task="rank", threads=2, memory_bytes=1 << 30)
                spent = []
                for _ in range(rounds):
                    began = time.process_time(), time.perf_counter()
                    result = train(source, options)
                    spent.append((time.process_time() - began[0], time.perf_counter() - began[1]))
                cpu, seconds = np.median(spent, axis=0)
                shown = f"{n_rows:,}, {n_features}, {size}, {C:g} | {cpu:.2f} | {seconds:.2f} | {result.passes}"
                print(f"| {shown} | {result.objective:.6g} |", flush=True)
            shutil.rmtree(source.path)


def store_sources(data: Path, work: Path) -> Iterator[tuple[str, str, tuple[float, ...], Dataset]]:
    """Yield the name, the task, the values of C, and the stored rows of each problem of the table of passes."""
    truth = Truth(40)
    generated = write_generated(work / "generated", 1_200_000, truth)
    yield "generated, 1,200,000 x 40", "roc-area", (0.01, 1.0), generated
    yield "generated, 600,000 x 40", "roc-area", (0.01, 1.0), write_generated(work / "half", 600_000, truth)
    _, _, parts = next(read_sources(data, work))
    rows = parts[-1].take(np.arange(parts[-1].n_rows))
    yield "Covertype", "roc-area", (1.9,), ingest(rows.X, work / "covertype", 2 * rows.codes - 1)
    for name, scales in (("equal", np.ones(46)), ("uneven", np.geomspace(1, 0.1, 46))):
        made = make_queries(work / name, 1_000_000, 46, 50, 1.0, scales)
        yield f"1,000,000 x 46 in 20,000 queries, {name} scales", "rank", (1e-3, 0.1, 10.0), made
    X, y, qid, *_ = read_queries(data)
    yield "LightGBM's ranking example", "rank", (0.01, 1.0), ingest(X, work / "lightgbm", y, qid=qid, shuffle=None)


def make_plain_engine(source: RowSource, threads: int, *_: Any) -> ThreadedEngine:
    """Return an engine that keeps no chunk in memory."""
    return ThreadedEngine(source, threads)


def show_passes(data: Path) -> None:
    """Print the passes, the reads and the CPU seconds of trainings with one thread that keep no chunk in memory."""
    print("\n| data | C | passes | reads | CPU s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for name, task, costs, source in store_sources(data, Path(work)):
            for C in costs:
                with patch.object(
                    opening, "ThreadedEngine", lambda source, threads, *_: ThreadedEngine(source, threads)
                ):
                    train(source, TrainOptions(C=C, task=task, threads=1, max_passes=1))  # compiles
                    began = time.process_time()
                    result = train(source, TrainOptions(C=C, task=task, threads=1))
                    spent = time.process_time() - began
                reads = result.read_bytes / source.nbytes
                print(f"| {name} | {C:g} | {result.passes} | {reads:.1f} | {spent:.2f} |", flush=True)


def train_large(path: Path, C: float, holds_scores: bool) -> None:
    """Train for the area under the ROC curve, with scores in the driver or with histograms; print time and memory."""
    limit = LARGE_ROWS if holds_scores else HELD_ROWS
    options = TrainOptions(C=C, threads=2, task="roc-area", memory_bytes=3 << 30)
    with patch.object(problem_pairs, "HELD_ROWS", limit):
        train(open_dataset(path), replace(options, max_passes=1))  # compiles
        began = time.process_time()
        result = train(open_dataset(path), options)
    print(json.dumps([result.passes, time.process_time() - began, result.peak_memory_bytes, result.relative_gap]))


def show_histograms(rounds: int) -> None:
    """Print a row for each C, with scores in the driver and with histograms."""
    print("\n| C | the driver holds | passes | CPU s of each turn | peak MB, chunks that are kept included | gap |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "rows.zarr"
        write_generated(path, LARGE_ROWS, Truth(40))
        for C in (0.01, 1.0):
            turns: dict[bool, list[Any]] = {True: [], False: []}
            for holds_scores in (True, False) * rounds:
                command = [sys.executable, __file__, "--data", work, "--one", str(path), str(C), str(holds_scores)]
                ended = subprocess.run(command, capture_output=True, text=True, check=True)
                turns[holds_scores].append(json.loads(ended.stdout.splitlines()[-1]))
            for holds_scores, told in turns.items():
                passes, _, _, gap = told[0]
                spent, peak = ", ".join(f"{each[1]:.1f}" for each in told), max(each[2] for each in told)
                way = "all scores" if holds_scores else "histograms"
                print(f"| {C:g} | {way} | {passes} | {spent} | {peak / 1e6:.0f} | {gap:.1e} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("times", "measures", "passes", "queries", "histograms"))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        train_large(Path(options.one[0]), float(options.one[1]), options.one[2] == "True")
        return
    if options.only in (None, "times"):
        show_times(options.data, options.rounds)
    if options.only in (None, "measures"):
        show_measures(options.data)
    if options.only in (None, "passes"):
        show_passes(options.data)
    if options.only in (None, "queries"):
        show_queries(options.rounds)
    if options.only in (None, "histograms"):
        show_histograms(options.rounds)


if __name__ == "__main__":
    main()
