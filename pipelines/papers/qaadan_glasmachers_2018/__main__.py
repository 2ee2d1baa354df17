"""Qaadan and Glasmachers 2018, "Multi-merge budget maintenance": Table 1 and Figures 1 to 5, with the paper's claims.

    python -m pipelines.papers.qaadan_glasmachers_2018 --data FOLDER [--out FOLDER] [--seeds 3] [--small]

The data folder holds, from the LIBSVM site, phishing, w6a and w6a.t, a9a and a9a.t, ijcnn1 and ijcnn1.t, and
skin_nonskin (or the UCI's Skin_NonSkin.txt); missing data are left out. The story prints Markdown; --out saves it, with
pictures (the extra `plots` installs matplotlib). --small uses 2,000 rows of each data set, one seed and fewer M. The
exit status is 0 if the story ran, and 2 without data; the last table shows which published statements hold. Times are
medians over the seeds (training.py describes how they are measured).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from pipelines.data import LIBSVM_PAGE, DataFolder
from pipelines.papers.qaadan_glasmachers_2018.pictures import draw_all
from pipelines.papers.qaadan_glasmachers_2018.problems import PROBLEMS, Problem, Split, read_problem
from pipelines.papers.qaadan_glasmachers_2018.results import Results
from pipelines.papers.qaadan_glasmachers_2018.training import measure, solve_exactly, warm_up
from pipelines.story import make_out, make_paper_parser, open_work, run_story

NAME = "qaadan_glasmachers_2018"
SMALL_ROWS = 2000
SHARES = (0.01, 0.05, 0.1, 0.15, 0.25, 0.5)  # budgets as shares of the number of support vectors of the exact model
TABLE_1 = {  # by budget: seconds of merging and accuracy; first for merging in turn, then by gradient
    120: (10.562, 76.32, 6.042, 76.32),
    600: (27.222, 82.97, 25.982, 83.30),
    1200: (53.362, 83.36, 50.641, 83.69),
    1800: (79.896, 84.04, 75.560, 84.04),
    2500: (109.922, 83.98, 96.686, 83.94),
}
PAPER_C, PAPER_GAMMA = (2.0, 8.0, 32.0), (2.0, 8.0, 32.0)  # the values of C and gamma in Figure 5


def main() -> int:
    parser = make_paper_parser(
        NAME,
        "Table 1 and Figures 1 to 5 of Qaadan and Glasmachers 2018.",
        f"use at most {SMALL_ROWS:,} rows of each data set",
    )
    parser.add_argument("--seeds", type=int, default=3, help="orders of the rows (default: %(default)s)")
    options = parser.parse_args()
    return run_story(NAME, lambda: tell(options))


def tell(options: argparse.Namespace) -> int:
    """Write all tables, and return the exit status."""
    make_out(options.out)
    with open_work(None) as work:
        splits = read_all(DataFolder(options.data), work, SMALL_ROWS if options.small else None)
    results = Results(options.small)
    run_all(splits, results, range(1 if options.small else options.seeds))
    if options.out is not None:
        (options.out / f"{NAME}.md").write_text(results.text)
        draw_all(results, options.out)
    return 0


def read_all(folder: DataFolder, work: Path, most_rows: int | None) -> dict[str, Split]:
    """Return the rows of the problems whose files are available."""
    found = {one.name: read_problem(folder, work, one, most_rows) for one in PROBLEMS}
    splits = {name: split for name, split in found.items() if split is not None}
    if not splits:
        raise folder.explain_missing(f"phishing, w6a, a9a, ijcnn1 and skin_nonskin, with their .t, from {LIBSVM_PAGE}")
    return splits


def run_all(splits: dict[str, Split], results: Results, seeds: range) -> None:
    """Measure everything for which there are data, and print each row of a table when it is complete."""
    problems = {one.name: one for one in PROBLEMS if one.name in splits}
    merges = (2, 3, 5, 10) if results.small else tuple(range(2, 12))
    warm_up()
    results.begin_exact()
    for name, problem in problems.items():
        results.add_exact(problem, *solve_exactly(problem, splits[name]))
    if "adult" in problems:
        compare_merges(problems["adult"], splits["adult"], results, seeds)
    results.begin_figure_1()
    for name in ("adult", "ijcnn1"):
        for budget in (100, 500) if name in problems else ():
            runs = {m: measure(problems[name], splits[name], budget, m, seeds) for m in merges}
            results.add_figure_1(name, budget, runs)
    results.begin_figures_2_3()
    for name, problem in problems.items():
        for share in SHARES:
            budget = max(round(share * results.exact[name].n_support), merges[-1])
            runs = {m: measure(problem, splits[name], budget, m, seeds) for m in merges}
            results.add_figures_2_3(problem, share, budget, runs)
    if "phishing" in problems:
        study_parameters(problems["phishing"], splits["phishing"], results, seeds)
    results.judge()


def compare_merges(problem: Problem, split: Split, results: Results, seeds: range) -> None:
    """Measure Table 1: merging in turn, and by gradient."""
    results.begin_table_1()
    for budget, published in TABLE_1.items():
        turn = measure(problem, split, budget, 3, seeds, "merge")
        gradient = measure(problem, split, budget, 3, seeds, "gradient-merge")
        results.add_table_1(budget, published, turn, gradient)


def study_parameters(problem: Problem, split: Split, results: Results, seeds: range) -> None:
    """Measure Figure 5: each pair of C and gamma, with each budget."""
    results.begin_figure_5()
    for C in PAPER_C:
        for gamma in PAPER_GAMMA:
            one = replace(problem, C=C, gamma=gamma)
            accuracy, n_support = solve_exactly(one, split)
            for share in SHARES:
                budget = max(round(share * n_support), 6)
                runs = {m: measure(one, split, budget, m, seeds) for m in (2, 3, 4, 5)}
                results.add_figure_5(C, gamma, accuracy, n_support, budget, runs)


if __name__ == "__main__":
    sys.exit(main())
