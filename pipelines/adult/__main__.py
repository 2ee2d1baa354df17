"""Adult (a9a): from text to test accuracy, compared with the published figures, as a Markdown table.

    python pipelines/adult.py [--data FOLDER] [--C 0.05] [--work FOLDER]

The data folder holds a9a and a9a.t. The bias is penalised, as the weight of a constant feature, and both trainings run
to a certified relative gap of 1e-3. The exit status is 0 if both converged (and, at C = 0.05, reached the published
objective and accuracy), 1 if not, and 2 without data.
"""

from __future__ import annotations

import argparse
import sys

import streamsvm
from pipelines.data import LIBSVM_PAGE, DataFolder
from pipelines.report import Report
from pipelines.story import add_data_argument, add_work_argument, open_work, run_story
from streamsvm import CuttingPlane
from streamsvm.data.store.dataset import Dataset
from streamsvm.estimators import LinearSVC

PUBLISHED_C, PUBLISHED_OPTIMUM, PUBLISHED_ACCURACY = 0.05, 577.516, 85.0
ACCELERATIONS = {"streamsvm, line search": "line-search", "streamsvm, Algorithm 1 as published": "none"}
MOST_PASSES = 2000


def main() -> int:
    options = parse_arguments()
    return run_story("adult.py", lambda: compare(options))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="adult.py", description="Adult (a9a), from text to test accuracy.")
    add_data_argument(parser)
    parser.add_argument("--C", type=float, default=PUBLISHED_C, help="cost of a row (default: %(default)s)")
    add_work_argument(parser)
    return parser.parse_args()


def compare(options: argparse.Namespace) -> int:
    """Ingest both files, train twice, and return the exit status."""
    folder = DataFolder(options.data)
    files = folder.find_all("a9a", "a9a.t")
    if files is None:
        raise folder.explain_missing(f"a9a and a9a.t from {LIBSVM_PAGE}")
    report = Report()
    with open_work(options.work) as work:
        data = streamsvm.ingest(files[0], work / "a9a.zarr")
        test = streamsvm.ingest(files[1], work / "a9a-test.zarr")
        report.write(f"a9a: {data.n_rows:,} rows to train, {test.n_rows:,} to test, C = {options.C}\n")
        report.begin_table("", "", "status", "passes", "objective", "certified gap", "test accuracy")
        if options.C == PUBLISHED_C:
            optimum, accuracy = f"{PUBLISHED_OPTIMUM:.3f} (optimum)", f"{PUBLISHED_ACCURACY:.1f}%"
            report.add_row("published", "", "", optimum, "", accuracy)
        held = [train(name, options.C, data, test, report) for name in ACCELERATIONS]
    return 0 if all(held) else 1


def train(name: str, C: float, data: Dataset, test: Dataset, report: Report) -> bool:
    """Train, write a row of the table, and return whether the training reached the published figures."""
    model = LinearSVC(C=C, max_passes=MOST_PASSES, solver=CuttingPlane(acceleration=ACCELERATIONS[name])).fit(data)
    accuracy = 100 * model.score(test)
    objective, gap = f"{model.objective_:.3f}", f"{model.gap_:.2e}"
    report.add_row(name, model.status_, str(model.n_passes_), objective, gap, f"{accuracy:.2f}%")
    near = abs(model.objective_ / PUBLISHED_OPTIMUM - 1) <= 1e-3 and abs(accuracy - PUBLISHED_ACCURACY) <= 0.1
    return model.status_ == "converged" and (near or C != PUBLISHED_C)


if __name__ == "__main__":
    sys.exit(main())
