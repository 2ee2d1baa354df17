"""Adult (a9a) from text to test accuracy, beside the published figures, as a Markdown table.

    python pipelines/adult.py [--data FOLDER] [--C 0.05] [--work DIR]

FOLDER holds a9a and a9a.t, or a9a.xz and a9a.t.xz, or has them in a subfolder adult (default: $STREAMSVM_DATA).
The bias is penalised, as a constant feature; both runs go to a certified relative gap of 1e-3. Exit status: 0 if they
converged (at C = 0.05, to the published objective and accuracy), 1 if not, 2 without data.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import streamsvm
from streamsvm.data.dataset import Dataset
from streamsvm.errors import InputError
from streamsvm.estimators import LinearSVC

PUBLISHED_C, PUBLISHED_OPTIMUM, PUBLISHED_ACCURACY = 0.05, 577.516, 85.0
RUNS = {"streamsvm, default": "line-search", "streamsvm, Algorithm 1 as published": "none"}
MOST_PASSES = 2000


def main() -> int:
    options = parse_arguments()
    try:
        train_text, test_text = find_text(options.data, "a9a"), find_text(options.data, "a9a.t")
        if options.work is not None:
            options.work.mkdir(parents=True, exist_ok=True)
        with nullcontext(options.work) if options.work else TemporaryDirectory() as work:
            data = streamsvm.ingest(train_text, Path(work) / "a9a.zarr")
            test = streamsvm.ingest(test_text, Path(work) / "a9a-test.zarr")
            print(f"a9a: {data.n_rows:,} rows to train, {test.n_rows:,} to test, C = {options.C}\n")
            print("| | status | passes | objective | certified gap | test accuracy |\n|---|---|---|---|---|---|")
            if options.C == PUBLISHED_C:
                print(f"| published | | | {PUBLISHED_OPTIMUM:.3f} (optimum) | | {PUBLISHED_ACCURACY:.1f}% |")
            held = [run(name, options.C, data, test) for name in RUNS]
            return 0 if all(held) else 1
    except InputError as error:
        print(f"adult.py: {error}", file=sys.stderr)
        return 2


def run(name: str, C: float, data: Dataset, test: Dataset) -> bool:
    """Train, print a row of the table; return whether it is as published."""
    model = LinearSVC(C=C, acceleration=RUNS[name], max_passes=MOST_PASSES).fit(data)
    accuracy = 100 * model.score(test)
    print(
        f"| {name} | {model.status_} | {model.n_passes_} | {model.objective_:.3f} | {model.gap_:.2e} | "
        f"{accuracy:.2f}% |",
        flush=True,
    )
    near = abs(model.objective_ / PUBLISHED_OPTIMUM - 1) <= 1e-3 and abs(accuracy - PUBLISHED_ACCURACY) <= 0.1
    return model.status_ == "converged" and (near or C != PUBLISHED_C)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Adult (a9a) from text to test accuracy")
    default = os.environ.get("STREAMSVM_DATA")
    parser.add_argument("--data", type=Path, default=default, help="folder of a9a and a9a.t ($STREAMSVM_DATA)")
    parser.add_argument("--C", type=float, default=PUBLISHED_C, help="cost a row (default: 0.05)")
    parser.add_argument("--work", type=Path, help="keep the datasets in this folder (default: a passing one)")
    return parser.parse_args()


def find_text(folder: str | Path | None, name: str) -> Path:
    """Return the file of that name, plain or .xz; InputError, saying where to get it, if there is none."""
    if folder is not None:
        for place in (Path(folder), Path(folder) / "adult"):
            for file in (place / name, place / f"{name}.xz"):
                if file.is_file():
                    return file
    searched = f"in {folder}" if folder is not None else "(--data and $STREAMSVM_DATA name no folder)"
    raise InputError(
        f"{name} not found {searched}: get a9a and a9a.t from the LIBSVM site's page 'LIBSVM Data: Classification "
        "(Binary Class)', put both in one folder, and name it by --data"
    )


if __name__ == "__main__":
    sys.exit(main())
