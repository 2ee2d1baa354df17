"""The types of new donors' cells, predicted from labelled donors, and the types' marker genes, as Markdown tables.

    python pipelines/cells.py [--cells 500] [--seed 0] [--work FOLDER]

The cells are in AnnData's `.h5ad` files. streamsvm ingests the labelled cells (the reference) with their donors as
groups, chooses C by folds of whole donors, and predicts the types of the new donors' cells. For comparison, three
models of scikit-learn predict the same cells: LinearSVC, with a search over the same folds; LogisticRegression; and the
nearest centroid. The marker genes are compared with those found by Welch's t-test of a type against all other cells,
which is scanpy's default. The cells are generated, so their types and marker genes are known. The exit status is 0 if
all gaps are certified, the accuracy on the new donors is within 1% of LinearSVC's, and folds of donors predict this
accuracy to within 5% and at least as well as folds of cells; otherwise it is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.neighbors import NearestCentroid
from sklearn.svm import LinearSVC

import streamsvm
from pipelines.cells.markers import count_found, rank_by_t, rank_by_weight
from pipelines.cells.tissue import Tissue, draw_cells, make_tissue, name_gene
from pipelines.report import Report
from pipelines.story import add_work_argument, open_work, run_story
from streamsvm.system.errors import InputError

N_DONORS, N_NEW = 9, 3  # the donors of the labelled cells, and the new donors
COSTS, FOLDS = (1e-4, 1e-3, 1e-2), 3
LEAST_CELLS = 200
N_SHOWN, N_TYPES_SHOWN = 4, 2  # the numbers of genes per type, and of types, in the table of markers


@dataclass(frozen=True)
class Outcome:
    """The accuracy on the new donors' cells, and the accuracy that cross-validation on the labelled cells predicted."""

    accuracy: float
    foretold: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="cells.py", description="Cell types transferred to new donors.")
    parser.add_argument("--cells", type=int, default=500, help="cells of a donor (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated cells (default: %(default)s)")
    add_work_argument(parser)
    options = parser.parse_args()
    return run_story("cells.py", lambda: compare(options.cells, options.seed, options.work))


def compare(n_cells: int, seed: int, folder: Path | None) -> int:
    """Train all models, write the tables, and return the exit status."""
    if n_cells < LEAST_CELLS:
        raise InputError(f"--cells {n_cells}: at least {LEAST_CELLS} of each donor are needed")
    if find_spec("anndata") is None:
        raise InputError('cells are written as .h5ad by anndata: python -m pip install "streamsvm[anndata]"')
    tissue, report = make_tissue(seed), Report()
    first = 1000 * seed
    with open_work(folder) as work:
        files = work / "reference.h5ad", work / "new-donors.h5ad"
        write_cells(files[0], tissue, range(first, first + N_DONORS), n_cells)
        write_cells(files[1], tissue, range(first + N_DONORS, first + N_DONORS + N_NEW), n_cells)
        report.write(f"{N_DONORS * n_cells:,} cells of {N_DONORS} donors; {N_NEW * n_cells:,} of {N_NEW} new donors\n")
        report.begin_table("", "", "recognised", "mean of types", "folds foretold", "CPU s", "certified gap")
        found, models = train_ours(files, report)
        theirs = train_theirs(files, report)
        show_markers(models[0], files[0], tissue, report)
    is_as_good = abs(found[0].accuracy - theirs.accuracy) <= 0.01
    by_donors, by_cells = (abs(each.foretold - each.accuracy) for each in found[:2])
    is_certified = all(model.gap_ <= 1e-3 for model in models)
    return 0 if is_certified and is_as_good and by_donors <= min(0.05, by_cells) else 1


def write_cells(path: Path, tissue: Tissue, donors: range, n_cells: int) -> None:
    """Write cells as AnnData's `.h5ad`: X is sparse, obs has types and donors, and var has the names of the genes."""
    anndata = import_module("anndata")
    import pandas as pd

    X, types, names = draw_cells(tissue, donors, n_cells)
    obs = pd.DataFrame({"cell_type": types, "donor": names}, index=[f"cell{k}" for k in range(len(types))])
    var = pd.DataFrame(index=[name_gene(number) for number in range(X.shape[1])])
    anndata.AnnData(X, obs=obs, var=var).write_h5ad(path)


def train_ours(files: tuple[Path, Path], report: Report) -> tuple[list[Outcome], list[Any]]:
    """Train two SVMs, with C chosen by folds of donors and of cells, and logistic regression; write a row for each.

    The two SVMs have the same cells and the same grid of C. They differ only in the groups that a fold keeps together.
    """
    outcomes, models = [], []
    for name, groups in (("donors", "donor"), ("cells", None)):
        began = time.process_time()
        path = files[0].parent / f"folds-of-{name}.zarr"
        data = streamsvm.ingest(files[0], path, label="cell_type", groups=groups, overwrite=True)
        tuned = streamsvm.tune(data, C=COSTS, folds=FOLDS, task="crammer-singer")
        seconds = time.process_time() - began
        models.append(tuned.estimator)
        shown = f"streamsvm, Crammer-Singer, folds of {name}"
        outcomes.append(add_row(report, shown, models[-1], files[1], seconds, tuned.best.mean))
    began = time.process_time()
    models.append(streamsvm.LogisticRegression(C=1.0).fit(data))
    seconds = time.process_time() - began
    outcomes.append(add_row(report, "streamsvm, logistic, C = 1", models[-1], files[1], seconds))
    return outcomes, models


def train_theirs(files: tuple[Path, Path], report: Report) -> Outcome:
    """Train the other models with all cells in memory; write a row for each, and return LinearSVC's outcome."""
    X, types, donors = read_cells(files[0])
    began = time.process_time()
    chosen = GridSearchCV(LinearSVC(multi_class="crammer_singer"), {"C": COSTS}, cv=GroupKFold(FOLDS))
    chosen.fit(X, types, groups=donors)
    seconds, best = time.process_time() - began, float(chosen.best_score_)
    name = "scikit-learn, LinearSVC, Crammer-Singer, folds of donors"
    outcome = add_row(report, name, chosen, files[1], seconds, best)
    for name, model in (
        ("scikit-learn, LogisticRegression, C = 1", LogisticRegression(max_iter=300)),
        ("scikit-learn, NearestCentroid", NearestCentroid()),
    ):
        began = time.process_time()
        model.fit(X, types)
        add_row(report, name, model, files[1], time.process_time() - began)
    return outcome


def read_cells(path: Path) -> tuple[Any, npt.NDArray[np.str_], npt.NDArray[np.str_]]:
    """Return X, the types of the cells and their donors, in memory."""
    data = import_module("anndata").read_h5ad(path)
    types, donors = (np.asarray(data.obs[name]).astype(str) for name in ("cell_type", "donor"))
    return data.X, types, donors


def add_row(report: Report, name: str, model: Any, new: Path, seconds: float, foretold: float = np.nan) -> Outcome:
    """Predict the types of the new donors' cells, write a row of the table, and return the outcome."""
    X, types, _ = read_cells(new)
    is_ours = hasattr(model, "gap_")
    predicted = model.predict(new if is_ours else X)  # models of streamsvm read the file
    accuracy = float(np.mean(predicted == types))
    shown = ("" if np.isnan(foretold) else f"{foretold:.1%}", f"{seconds:.1f}", f"{model.gap_:.1e}" if is_ours else "")
    report.add_row(name, f"{accuracy:.1%}", f"{balanced_accuracy_score(types, predicted):.1%}", *shown)
    return Outcome(accuracy, foretold)


def show_markers(model: Any, file: Path, tissue: Tissue, report: Report) -> None:
    """Write the share of the true marker genes that weights and t-tests find, and the best genes of some types."""
    X, types, _ = read_cells(file)
    classes = list(map(str, model.classes_))
    ranks = {
        "largest weights of streamsvm": rank_by_weight(model.coef_),
        "Welch's t-test, a type against the others": rank_by_t(X, np.searchsorted(classes, types), len(classes)),
    }
    markers = tissue.markers[[int(name.removeprefix("type")) for name in classes]]
    report.begin_table("Marker genes", "", "of the true ones found", *classes[:N_TYPES_SHOWN])
    for name, found in ranks.items():
        genes = [", ".join(model.feature_names_in_[order[:N_SHOWN]]) for order in found[:N_TYPES_SHOWN]]
        report.add_row(name, f"{count_found(found, markers):.0%}", *genes)


if __name__ == "__main__":
    sys.exit(main())
