"""Qaadan & Glasmachers 2018, "Multi-merge budget maintenance": Table 1 and Figures 1 to 5, beside what they say.

    python pipelines/papers/qaadan_2018.py --data FOLDER [--out FOLDER] [--seeds 3] [--small]

FOLDER holds, plain or .xz, itself or in subfolders, of the LIBSVM site: phishing, w6a and w6a.t, a9a and a9a.t, ijcnn1
and ijcnn1.t, skin_nonskin (or the UCI's Skin_NonSkin.txt); data that are missing are left out. Prints Markdown; --out
keeps it, with pictures (needs matplotlib: the extra `plots`). --small: 2,000 rows of each, one seed, fewer M. Exit
status: 0 if it ran, 2 without data; what holds of the published statements is said in the last table.

One epoch, one thread, CPU seconds, medians of the seeds; a seed is an order of the rows. The share of merging is not
taken with a clock inside of it: the seconds of one maintenance, repeated on the trained model, times their number.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from numba import njit
from qaadan_pictures import draw_all
from qaadan_problems import PROBLEMS, Problem, Split, read_problem
from qaadan_results import Measured, Results, Run
from scipy.sparse import csr_array

from streamsvm import SVC
from streamsvm.errors import InputError
from streamsvm.methods.budgeted_sgd.budget import Maintenance, learn_rows, make_rules
from streamsvm.methods.budgeted_sgd.maintenance import keep_budget
from streamsvm.methods.budgeted_sgd.merging import build_table
from streamsvm.methods.budgeted_sgd.state import MAINTAINED, VECTORS, BudgetRules, BudgetState, make_state, read_model
from streamsvm.numeric.kernels import add_kernel_sums
from streamsvm.numeric.rows import F32, CsrRows

SMALL_ROWS = 2000
SHARES = (0.01, 0.05, 0.1, 0.15, 0.25, 0.5)  # of the exact model's support vectors
TABLE_1 = {  # B: merging seconds and accuracy, in turn; the same, by gradient
    120: (10.562, 76.32, 6.042, 76.32),
    600: (27.222, 82.97, 25.982, 83.30),
    1200: (53.362, 83.36, 50.641, 83.69),
    1800: (79.896, 84.04, 75.560, 84.04),
    2500: (109.922, 83.98, 96.686, 83.94),
}
PAPER_C, PAPER_GAMMA = (2.0, 8.0, 32.0), (2.0, 8.0, 32.0)  # of Figure 5
REPEATS = 200


def main() -> int:
    options = parse_arguments()
    try:
        if options.out is not None:
            import matplotlib  # noqa: F401  before minutes of work, not after

            options.out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as work:
            splits = read_all(options.data, Path(work), SMALL_ROWS if options.small else None)
        results = Results(options.small)
        run_all(splits, results, range(1 if options.small else options.seeds))
    except ImportError:
        print('qaadan_2018.py: --out draws with matplotlib: python -m pip install "streamsvm[plots]"', file=sys.stderr)
        return 2
    except InputError as error:
        print(f"qaadan_2018.py: {error}", file=sys.stderr)
        return 2
    if options.out is not None:
        (options.out / "qaadan_2018.md").write_text(results.text)
        draw_all(results, options.out)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Qaadan & Glasmachers 2018, Table 1 and Figures 1 to 5")
    default = os.environ.get("STREAMSVM_DATA")
    parser.add_argument(
        "--data", type=Path, default=default and Path(default), help="folder of the text files ($STREAMSVM_DATA)"
    )
    parser.add_argument("--out", type=Path, help="keep the tables and the pictures in this folder")
    parser.add_argument("--seeds", type=int, default=3, help="orders of the rows (default: 3)")
    parser.add_argument("--small", action="store_true", help=f"at most {SMALL_ROWS:,} rows of each data set")
    return parser.parse_args()


def read_all(folder: Path | None, work: Path, most_rows: int | None) -> dict[str, Split]:
    """Rows of the problems whose files are there."""
    found = {} if folder is None else {one.name: read_problem(folder, work, one, most_rows) for one in PROBLEMS}
    splits = {name: split for name, split in found.items() if split is not None}
    if not splits:
        raise InputError(
            f"no data {f'in {folder}' if folder else '(--data and $STREAMSVM_DATA name no folder)'}: get phishing, "
            "w6a, a9a, ijcnn1 and skin_nonskin, with their .t, from the LIBSVM site's page 'LIBSVM Data: "
            "Classification (Binary Class)'; name their folder by --data"
        )
    return splits


def run_all(splits: dict[str, Split], results: Results, seeds: range) -> None:
    """Measure everything there are data for; tables are printed as they come."""
    problems = {one.name: one for one in PROBLEMS if one.name in splits}
    merges = (2, 3, 5, 10) if results.small else tuple(range(2, 12))
    warm_up()
    results.begin_exact()
    for name, problem in problems.items():
        results.add_exact(problem, *solve_exactly(problem, splits[name]))
    if "adult" in problems:
        results.begin_table_1()
        for budget, published in TABLE_1.items():
            kinds: tuple[Maintenance, Maintenance] = ("merge", "gradient-merge")
            pair = [measure(problems["adult"], splits["adult"], budget, 3, seeds, kind) for kind in kinds]
            results.add_table_1(budget, published, pair[0], pair[1])
    results.begin_figure_1()
    for name in ("adult", "ijcnn1"):
        for budget in (100, 500) if name in problems else ():
            runs = {m: measure(problems[name], splits[name], budget, m, seeds) for m in merges}
            results.add_figure_1(name, budget, runs)
    results.begin_figures_2_3()
    for name, problem in problems.items():
        for share in SHARES:
            budget = max(round(share * results.exact[name].n_support), merges[-1])
            results.add_figures_2_3(
                problem, share, budget, {m: measure(problem, splits[name], budget, m, seeds) for m in merges}
            )
    if "phishing" in problems:
        study_parameters(problems["phishing"], splits["phishing"], results, seeds)
    results.judge()


def study_parameters(problem: Problem, split: Split, results: Results, seeds: range) -> None:
    """Figure 5."""
    results.begin_figure_5()
    for C in PAPER_C:
        for gamma in PAPER_GAMMA:
            one = replace(problem, C=C, gamma=gamma)
            accuracy, n_support = solve_exactly(one, split)
            for share in SHARES:
                budget = max(round(share * n_support), 6)
                runs = {m: measure(one, split, budget, m, seeds) for m in (2, 3, 4, 5)}
                results.add_figure_5(C, gamma, accuracy, n_support, budget, runs)


def solve_exactly(problem: Problem, split: Split) -> tuple[float, int]:
    """Accuracy of the exact SVM, and its support vectors."""
    model = SVC(C=problem.C, gamma=problem.gamma, n_jobs=1).fit(to_scipy(split.X), split.y)
    return 100.0 * float(model.score(to_scipy(split.X_test), split.y_test)), len(model.dual_coef_[0])


def to_scipy(X: F32 | CsrRows) -> F32 | csr_array:
    """Rows as estimators take them."""
    return csr_array((X.data, X.indices, X.indptr), shape=X.shape) if isinstance(X, CsrRows) else X


def measure(
    problem: Problem, split: Split, budget: int, merge: int, seeds: range, maintenance: Maintenance = "merge"
) -> Measured:
    """One epoch with each seed."""
    return Measured([train_once(problem, split, budget, merge, seed, maintenance) for seed in seeds])


def train_once(problem: Problem, split: Split, budget: int, merge: int, seed: int, maintenance: Maintenance) -> Run:
    """Accuracy, CPU seconds, and those of merging."""
    n = len(split.y)
    rules = make_rules(problem.kernel, budget, merge, maintenance, regularisation=1 / (n * problem.C), period=n)
    state, order = make_state(split.n_features, budget), np.random.default_rng(seed).permutation(n)
    cost = np.ones(n)
    start = time.process_time()
    learn_rows(state, rules, split.X, split.y, cost, order)
    seconds = time.process_time() - start
    vectors, coef, bias = read_model(state)
    scores = np.full(len(split.y_test), bias)
    columns = vectors if not isinstance(split.X, CsrRows) else from_dense(vectors)
    add_kernel_sums(problem.kernel, split.X_test, columns, coef, scores)
    accuracy = 100.0 * float(np.mean(np.where(scores > 0, 1.0, -1.0) == split.y_test))
    return Run(accuracy, seconds, int(state.counts[MAINTAINED]) * time_maintenance(state, rules))


def from_dense(vectors: F32) -> CsrRows:
    """Sparse rows."""
    X = csr_array(vectors)
    return CsrRows(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64), X.shape[1])


def time_maintenance(state: BudgetState, rules: BudgetRules) -> float:
    """Return CPU seconds of one maintenance of a model that is full."""
    if state.counts[MAINTAINED] == 0:
        return 0.0
    model = BudgetState._make(part.copy() for part in state)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        maintain_often(model, rules, build_table(), REPEATS)
        seconds.append((time.process_time() - start) / REPEATS)
    return median(seconds)


@njit
def maintain_often(state: BudgetState, rules: BudgetRules, table: F32, repeats: int) -> None:
    """Bring a model back to its budget, again and again: what was freed is taken for vectors that were added."""
    no_rows = np.empty((0, state.alpha.size), np.float32)
    for _ in range(repeats):
        state.counts[VECTORS] = rules.budget + 1
        keep_budget(state, rules, table, no_rows)


def warm_up() -> None:
    """Compile."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)).astype(np.float32), rng.choice([-1.0, 1.0], 60)
    for rows in (X, from_dense(X)):
        split = Split(rows, y, rows, y)
        for maintenance in ("merge", "gradient-merge"):
            train_once(replace(PROBLEMS[0], gamma=1.0), split, 10, 3, 0, maintenance)


if __name__ == "__main__":
    sys.exit(main())
