"""Budgeted SGD: accuracy, the effect of M, Nyström features, ten million rows from disk, replicas. Prints Markdown.

    python benchmarks/budgeted_sgd.py --data FOLDER [--only accuracy merges nystroem stream replicas]
        [--seeds 5] [--rows 10000000] [--work FOLDER]

FOLDER holds the files that pipelines/papers/qaadan_glasmachers_2018/ lists. Each training makes one epoch on one
thread. CPU seconds (time.process_time) are medians over the seeds; accuracies are means ± standard deviations. `stream`
and `replicas` generate --rows rows of 32 features in --work (by default a temporary folder), and train on them as
`streamsvm train` does: `stream` within 700 MB, `replicas` on one worker process for each replica. Both measure wall
seconds, so no other programs should run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import mean, median, pstdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

import streamsvm
from streamsvm.ingestion.generated import Truth, write_generated
from streamsvm.kernels.kernel import Kernel
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.solvers.budgeted_sgd.maintenance import make_state
from streamsvm.solvers.budgeted_sgd.solver import learn_rows, make_rules

sys.path.insert(0, str(Path(__file__).parents[1]))

from pipelines.data import DataFolder, to_scipy
from pipelines.papers.qaadan_glasmachers_2018.problems import PROBLEMS, Problem, Split, read_problem
from pipelines.papers.qaadan_glasmachers_2018.training import measure, solve_exactly, time_maintenance, warm_up
from pipelines.report import format_head

PARTS = ("accuracy", "merges", "nystroem", "stream", "replicas")
FEATURES, STREAM_BUDGET, STREAM_GAMMA = 32, 1000, 0.05
MEMORY_BYTES = 700_000_000  # less than the rows take, so that not all chunks stay in memory


def main() -> None:
    """Print the tables of --only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    warm_up()
    with threadpool_limits(1), TemporaryDirectory(dir=options.work) as work:
        folder = Path(work)
        seeds = range(options.seeds)
        if {"accuracy", "merges", "nystroem"} & set(options.only):
            found = {one: read_problem(DataFolder(options.data), folder, one, None) for one in PROBLEMS}
            splits = {one: split for one, split in found.items() if split is not None}
            for part, compare in (
                ("accuracy", compare_exact),
                ("merges", compare_merges),
                ("nystroem", compare_nystroem),
            ):
                if part in options.only:
                    compare(splits, seeds)
        if {"stream", "replicas"} & set(options.only):
            data = write_generated(folder / "rows.zarr", options.rows, Truth(FEATURES, noise=0.05))
            if "stream" in options.only:
                follow_stream(data)
            if "replicas" in options.only:
                compare_replicas(data)


def write_head(*cells: str) -> None:
    """Print the head of a table."""
    print(f"\n{format_head(*cells)}", flush=True)


def compare_exact(splits: dict[Problem, Split], seeds: range) -> None:
    """Compare budgeted SGD with the exact SVM. The budget is 15% of the number of support vectors of the exact SVM."""
    write_head("data", "exact, published", "exact, ours", "B", "M", "accuracy", "off the published", "CPU s")
    for problem, split in splits.items():
        exact, n_support = solve_exactly(problem, split)
        budget = round(0.15 * n_support)
        for m in (2, 3):
            one = measure(problem, split, budget, m, seeds)
            print(
                f"| {problem.name} | {problem.accuracy:.2f} | {exact:.2f} | {budget} | {m} | {one.format_accuracy()} "
                f"| {one.accuracy - problem.accuracy:+.2f} | {one.seconds:.3f} |",
                flush=True,
            )


def compare_merges(splits: dict[Problem, Split], seeds: range) -> None:
    """Print time and accuracy against M, at two budgets."""
    write_head("data", "B", "M", "CPU s", "time / M = 2", "share of merging", "accuracy")
    for problem, split in splits.items():
        for budget in (100, 500):
            runs = {m: measure(problem, split, budget, m, seeds) for m in (2, 3, 4, 5, 10)}
            for m, one in runs.items():
                print(
                    f"| {problem.name} | {budget} | {m} | {one.seconds:.3f} | {one.seconds / runs[2].seconds:.2f} "
                    f"| {one.merging / one.seconds:.0%} | {one.format_accuracy()} |",
                    flush=True,
                )


def compare_nystroem(splits: dict[Problem, Split], seeds: range) -> None:
    """Compare ijcnn1 at B = 500 with linear SGD on Nyström features, for several numbers of components."""
    write_head("ijcnn1", "B or components", "CPU s to train", "accuracy")
    problem = next(one for one in splits if one.name == "ijcnn1")
    split = splits[problem]
    for m in (2, 4):
        one = measure(problem, split, 500, m, seeds)
        print(f"| BudgetedSVC, M = {m} | 500 | {one.seconds:.3f} | {one.format_accuracy()} |", flush=True)
    X, X_test = to_scipy(split.X), to_scipy(split.X_test)
    for n_components in (50, 100, 200, 500, 1000):
        accuracies, seconds = [], []
        for seed in seeds:
            start = time.process_time()
            nystroem = Nystroem(gamma=problem.gamma, n_components=n_components, random_state=seed)
            features = nystroem.fit_transform(X)
            alpha = 1 / (problem.C * len(split.y))
            linear = SGDClassifier(alpha=alpha, max_iter=1, tol=None, average=True, random_state=seed)
            linear.fit(features, split.y)
            seconds.append(time.process_time() - start)
            accuracies.append(100.0 * linear.score(nystroem.transform(X_test), split.y_test))
        print(
            f"| Nystroem + SGDClassifier | {n_components} | {median(seconds):.3f} "
            f"| {mean(accuracies):.2f} ± {pstdev(accuracies):.2f} |",
            flush=True,
        )


def follow_stream(data: streamsvm.Dataset) -> None:
    """Print the memory after each tenth of the rows, the rows per second, and the seconds of each part of the work."""
    began = time.process_time()
    result = train_on(data, 1, threads=1, memory_bytes=MEMORY_BYTES)
    spent = time.process_time() - began
    write_head("rows learned", "seconds", "resident memory, MB")
    for tenth in range(1, 11):
        line = next(one for one in result.history if one["rows"] >= tenth * data.n_rows // 10)
        print(f"| {line['rows']:,} | {line['seconds']:.1f} | {line['memory_bytes'] / 1e6:.1f} |", flush=True)
    start = time.perf_counter()
    for index in range(data.n_chunks):
        data.read(index)
    reading = time.perf_counter() - start
    last = result.history[-1]
    merging = last["maintenances"] * time_of_merge(data)
    write_head("rows/s", "seconds", "CPU s", "of them merging", "reading alone", "violations", "maintenances")
    print(
        f"| {data.n_rows / result.seconds:,.0f} | {result.seconds:.1f} | {spent:.1f} | {merging:.1f} "
        f"| {reading:.1f} | {last['violations']:,} | {last['maintenances']:,} |"
    )


def time_of_merge(data: streamsvm.Dataset) -> float:
    """Return the seconds of one budget maintenance of a full model of these data."""
    rows = data.take(np.arange(min(data.n_rows, 20_000)))
    rules = make_rules(
        Kernel("rbf", gamma=STREAM_GAMMA), STREAM_BUDGET, 2, regularisation=1 / data.n_rows, period=data.n_rows
    )
    state, order = make_state(FEATURES, STREAM_BUDGET), np.arange(rows.n_rows)
    learn_rows(state, rules, rows.X, np.where(rows.y == 1, 1.0, -1.0), np.ones(rows.n_rows), order)
    return time_maintenance(state, rules)


def train_on(data: streamsvm.Dataset, replicas: int, **given: Any) -> Result:
    """Train for one epoch."""
    options = TrainOptions(
        C=1.0,
        solver="budgeted-sgd",
        kernel="rbf",
        gamma=STREAM_GAMMA,
        options={"budget": str(STREAM_BUDGET), "merge": "2", "replicas": str(replicas)},
        **given,
    )
    return train(data, options)


def compare_replicas(data: streamsvm.Dataset) -> None:
    """Compare two replicas on two workers with one replica on one worker. The accuracy is measured on new rows."""
    n_test = 20_000
    truth = Truth(FEATURES, noise=0.05)
    blocks = truth.make_blocks(data.n_rows + n_test)
    *_, last = blocks
    X_test, y_test = last.X[-n_test:], last.y[-n_test:]
    write_head("replicas", "workers", "rows/s", "ratio", "accuracy")
    first = None
    for replicas, workers in ((1, 1), (2, 2)):
        result = train_on(data, replicas, workers=workers)
        rate = data.n_rows / result.seconds
        first = first or rate
        model = result.model
        predicted = model.decide(X_test) > 0
        print(
            f"| {replicas} | {workers} | {rate:,.0f} | {rate / first:.2f} | {100 * np.mean(predicted == y_test):.2f} |"
        )


if __name__ == "__main__":
    main()
