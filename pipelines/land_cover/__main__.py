"""Land cover: a forest type predicted from terrain, for held-out rows and for held-out areas, as a Markdown table.

    python pipelines/land_cover.py --data FOLDER [--rows 20000] [--seed 0]

The rows are cells of 30 m in four wilderness areas of Colorado (Covertype). Their features describe terrain and soil,
and the label is whether lodgepole pines grow there. streamsvm and scikit-learn each train a linear SVM, and an SVM on
300 Nystrom features of an RBF kernel. They are compared with the random forest, the usual model for maps. Each model is
measured in two ways: by folds of rows, where the training rows include neighbours of the held-out rows, and by folds of
areas, as if a new place were mapped. The exit status is 0 if the gaps are certified, streamsvm is at most one
percentage point below scikit-learn's model of the same kind, and every model is more than one point better with folds
of rows than with folds of areas; otherwise it is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import streamsvm
from pipelines.data import DataFolder
from pipelines.land_cover.terrain import Split, Terrain, read_terrain, split_by_area, split_by_row
from pipelines.report import Report
from pipelines.story import add_data_argument, run_story
from streamsvm.system.errors import InputError

COST, GAMMA, RANK, TOLERANCE = 0.1, 0.05, 300, 1e-3
LEAST_ROWS, POINT = 1000, 0.01
LINEAR, KERNEL = "linear", f"RBF, {RANK} Nystrom features"


@dataclass(frozen=True)
class Outcome:
    """The mean balanced accuracy for folds of rows and for folds of areas, and the largest certified gap."""

    rows: float
    areas: float
    worst_gap: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="land_cover.py", description="Forest types predicted in new areas.")
    parser.add_argument("--rows", type=int, default=20_000, help="number of rows drawn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws (default: %(default)s)")
    add_data_argument(parser)
    options = parser.parse_args()
    return run_story("land_cover.py", lambda: compare(DataFolder(options.data), options.rows, options.seed))


def compare(data: DataFolder, n_rows: int, seed: int) -> int:
    """Train all, write the table, and return the exit status."""
    if n_rows < LEAST_ROWS:
        raise InputError(f"at least {LEAST_ROWS:,} rows are needed")
    file = data.find("covtype.csv")
    if file is None:
        raise data.explain_missing("covtype.csv, the UCI Machine Learning Repository's Covertype with a header")
    terrain, report = read_terrain(file, n_rows, seed), Report()
    report.write(f"{len(terrain.y):,} rows of {terrain.X.shape[1]} features in 4 areas, {terrain.y.mean():.0%} pines\n")
    report.begin_table("", "", "held-out rows", "held-out areas", "CPU s", "worst certified gap")
    found = {name: measure(name, make, terrain, report) for name, make in list_models(seed).items()}
    pairs = [(found[f"streamsvm, {kind}"], found[f"scikit-learn, {kind}"]) for kind in (LINEAR, KERNEL)]
    is_proved = all(ours.worst_gap <= TOLERANCE for ours, _ in pairs)
    is_as_good = all(ours.rows >= theirs.rows - POINT for ours, theirs in pairs)
    promises = all(each.rows > each.areas + POINT for each in found.values())
    return 0 if is_proved and is_as_good and promises else 1


def list_models(seed: int) -> dict[str, Callable[[], Any]]:
    """Return the functions that make the models, by name."""
    ours: dict[str, Any] = {"C": COST, "loss": "squared_hinge", "tol": TOLERANCE, "random_state": seed}
    features = streamsvm.Nystroem(kernel="rbf", gamma=GAMMA, n_components=RANK)
    nystrom = Nystroem(gamma=GAMMA, n_components=RANK, random_state=seed)
    return {
        f"streamsvm, {LINEAR}": lambda: streamsvm.LinearSVC(**ours),
        f"scikit-learn, {LINEAR}": lambda: LinearSVC(C=COST, random_state=seed),
        f"streamsvm, {KERNEL}": lambda: streamsvm.LinearSVC(**ours, feature_map=features),
        f"scikit-learn, {KERNEL}": lambda: make_pipeline(nystrom, LinearSVC(C=COST, random_state=seed)),
        "scikit-learn, random forest": lambda: RandomForestClassifier(random_state=seed),
    }


def measure(name: str, make: Callable[[], Any], terrain: Terrain, report: Report) -> Outcome:
    """Measure a model by folds of rows and by folds of areas, and write a row of the table."""
    began, gaps = time.process_time(), list[float]()
    rows, areas = (score(make, terrain, splits(terrain), gaps) for splits in (split_by_row, split_by_area))
    seconds = time.process_time() - began
    worst = max(gaps, default=np.nan)
    report.add_row(name, f"{rows:.1%}", f"{areas:.1%}", f"{seconds:.1f}", f"{worst:.1e}" if gaps else "")
    return Outcome(rows, areas, worst)


def score(make: Callable[[], Any], terrain: Terrain, splits: Iterable[Split], gaps: list[float]) -> float:
    """Return the mean balanced accuracy on the held-out rows, and append the certified gaps, if any, to `gaps`."""
    found = []
    for train, held_out in splits:
        with warnings.catch_warnings(), threadpool_limits(1):  # waiting threads would use CPU time
            warnings.simplefilter("ignore")  # scikit-learn warns about LIBLINEAR's limit of iterations
            model = make().fit(terrain.X[train], terrain.y[train])
        if hasattr(model, "gap_"):
            gaps.append(model.gap_)
        found.append(balanced_accuracy_score(terrain.y[held_out], model.predict(terrain.X[held_out])))
    return float(np.mean(found))


if __name__ == "__main__":
    sys.exit(main())
