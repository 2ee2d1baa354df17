"""Joachims 2006, "Training linear SVMs in linear time": Table 1 and Figures 1, 2 and 4 to 9, with the paper's claims.

    python -m pipelines.papers.joachims_2006 --data FOLDER [--out FOLDER] [--small]

The data folder holds covtype.csv (the UCI's covtype.data with a line of names), and a9a, a9a.t, w8a and w8a.t of the
LIBSVM site; missing data are left out. Reuters, Arxiv and KDD04 are generated stand-ins (problems.py). The story prints
Markdown; --out saves it, with pictures (the extra `plots` installs matplotlib). --small uses 512 rows of each data set.
The exit status is 0 if the theorems hold: at the stopping rule of the paper, the objective is never above the optimum
and at most C epsilon below it, and Algorithm 2 has the same optimum as the classification of all pairs. It is 1 if the
theorems do not hold, and 2 without data.

Algorithm 1 is `--option acceleration=none --option epsilon=0.001`, and Algorithm 2 is the same with `--task roc-area`.
The C of the paper is n times the C of streamsvm. The line search is an acceleration of streamsvm, with the same
stopping rule. SVMlight is no longer available; scikit-learn's LIBSVM and LIBLINEAR take its place. Times are CPU
seconds of one thread. Sweeps over epsilon and C use SWEPT_ROWS rows.
"""

from __future__ import annotations

import argparse
import sys

from pipelines.data import DataFolder
from pipelines.papers.joachims_2006.judge import find_failures, judge
from pipelines.papers.joachims_2006.pictures import draw_all
from pipelines.papers.joachims_2006.problems import PROBLEMS, Split, read_problem
from pipelines.papers.joachims_2006.results import Chosen, Optimum, Results
from pipelines.papers.joachims_2006.runs import (
    ALGORITHM_1,
    ALGORITHM_2,
    SEARCH_1,
    SEARCH_2,
    Peer,
    Run,
    Trainer,
    fit_liblinear,
    fit_libsvm,
    fit_pairs,
)
from pipelines.story import make_out, make_paper_parser, run_story

NAME = "joachims_2006"
SMALL_ROWS = 512
SIZES, SMALL_SIZES = (1024, 4096, 16_384, 65_536), (128,)
SWEPT_ROWS = 4096  # the number of rows in Figures 4 to 9
LIGHT_ROWS, LIGHT_SECONDS = 2048, 10.0  # LIBSVM's rows in the sweep over C, and its time limit
PAIR_SIZES, SMALL_PAIR_SIZES = (128, 256, 512), (128, 256)
EPSILONS, SMALL_EPSILONS = (0.1, 0.01, 1e-3, 1e-4), (0.1, 0.01, 1e-3)
COSTS, SMALL_COSTS = (1e2, 1e3, 1e4, 1e5, 1e6), (1e2, 1e3, 1e4)

Splits = dict[str, Split]


def main() -> int:
    options = make_paper_parser(
        NAME,
        "Table 1 and Figures 1, 2 and 4 to 9 of Joachims 2006.",
        f"use at most {SMALL_ROWS:,} rows of each data set, and fewer settings",
    ).parse_args()
    return run_story(NAME, lambda: tell(options))


def tell(options: argparse.Namespace) -> int:
    """Write all tables, and return the exit status."""
    make_out(options.out)
    splits = read_all(DataFolder(options.data), SMALL_ROWS if options.small else None)
    results = run_all(splits, options.small)
    if options.out is not None:
        (options.out / f"{NAME}.md").write_text(results.text)
        draw_all(results, options.out)
    return 1 if find_failures(results) else 0


def read_all(data: DataFolder, most_rows: int | None) -> Splits:
    """Return the available real data sets and the stand-ins, in the paper's order."""
    read = {p.name: read_problem(p, data, most_rows) for p in PROBLEMS if p.files}
    if not any(read.values()):
        raise data.explain_missing(
            "a9a, a9a.t, w8a and w8a.t from the LIBSVM site's page 'LIBSVM Data: Classification', or Covertype from "
            "the UCI, as covtype.csv with a line of names"
        )
    read |= {p.name: read_problem(p, data, most_rows) for p in PROBLEMS if not p.files}
    return {p.name: split for p in PROBLEMS if (split := read[p.name]) is not None}


def run_all(splits: Splits, small: bool) -> Results:
    """Measure everything, and print each row of a table when it is complete."""
    results, trainer = Results(small), Trainer({})
    results.problems = {name: split.problem for name, split in splits.items()}
    warm_up(splits)
    sizes, pair_sizes = (SMALL_SIZES, SMALL_PAIR_SIZES) if small else (SIZES, PAIR_SIZES)
    for name, split in splits.items():
        scale_rows(name, split, sizes, trainer, results)
    results.write_classes(splits)
    results.write_ranks(splits)
    results.write_sizes(sizes)
    for name, split in splits.items():
        results.pairs[name] = [
            (fit_pairs(split, n, split.problem.C), trainer.run(split, ALGORITHM_2, n)) for n in pair_sizes
        ]
        sweep_epsilon(name, split, trainer, results)
        sweep_costs(name, split, trainer, results)
        choose_costs(name, split, trainer, results)
    results.write_chosen()
    results.write_pairs()
    results.write_epsilons()
    results.write_costs()
    judge(results)
    return results


def warm_up(splits: Splits) -> None:
    """Compile the functions that the trainings use, for dense and for sparse rows."""
    for split in splits.values():
        for method in (ALGORITHM_1, SEARCH_1, ALGORITHM_2, SEARCH_2):
            Trainer({}).run(split, method, 256, 10.0)


def scale_rows(name: str, split: Split, sizes: tuple[int, ...], trainer: Trainer, results: Results) -> None:
    """Measure Table 1 and Figures 1 and 2. LIBSVM trains on no more rows than it can handle in a short time."""
    all_sizes = [n for n in sizes if n < len(split.y)] + [len(split.y)]
    results.sizes[name] = {
        method: [trainer.run(split, method, n) for n in all_sizes]
        for method in (ALGORITHM_1, SEARCH_1, ALGORITHM_2, SEARCH_2)
    }
    results.linear[name] = fit_liblinear(split, len(split.y), split.problem.C)
    light: list[Peer] = []
    for n in all_sizes:
        if light and light[-1].seconds * (n / light[-1].n_rows) ** 2 > LIGHT_SECONDS:
            break
        light.append(fit_libsvm(split, n, split.problem.C))
    results.light[name] = light


def sweep_epsilon(name: str, split: Split, trainer: Trainer, results: Results) -> None:
    """Measure Figures 4, 5, 6, and 7 (right)."""
    results.epsilons[name] = {
        method: {
            epsilon: trainer.run(split, method, SWEPT_ROWS, epsilon=epsilon)
            for epsilon in (SMALL_EPSILONS if results.small else EPSILONS)
        }
        for method in (ALGORITHM_1, SEARCH_1)
    }


def sweep_costs(name: str, split: Split, trainer: Trainer, results: Results) -> None:
    """Measure Figures 7 (left), 8 and 9. LIBSVM trains on few rows."""
    costs, n, few = (
        SMALL_COSTS if results.small else COSTS,
        min(SWEPT_ROWS, len(split.y)),
        min(LIGHT_ROWS, len(split.y)),
    )
    results.costs[name] = {
        method: {C: trainer.run(split, method, n, C) for C in costs} for method in (ALGORITHM_1, SEARCH_1, ALGORITHM_2)
    }
    results.light_costs[name] = {C: (fit_libsvm(split, few, C), trainer.run(split, ALGORITHM_1, few, C)) for C in costs}
    searched = results.costs[name][SEARCH_1] | {split.problem.C: min(results.epsilons[name][SEARCH_1].items())[1]}
    results.optima[name] = {C: find_optimum(split, C, run) for C, run in searched.items()}


def find_optimum(split: Split, C: float, searched: Run) -> Optimum:
    """Bound the minimum of P by the line search, and by LIBLINEAR with a hundredth of its default tolerance."""
    objective = fit_liblinear(split, searched.n_rows, C, 1e-3).objective
    assert objective is not None
    return Optimum(min(objective, searched.objective), searched.lower_bound)


def choose_costs(name: str, split: Split, trainer: Trainer, results: Results) -> None:
    """Measure Figure 1 (middle right): the C with the best result on the test rows."""
    results.chosen[name] = []
    most = min(SWEPT_ROWS, len(split.y))
    for n in (most // 4, most) if results.small else (most // 16, most // 4, most):
        runs = {C: trainer.run(split, ALGORITHM_1, n, C) for C in results.costs[name][ALGORITHM_1]}
        best = max(runs, key=lambda C: runs[C].performance)
        results.chosen[name].append(Chosen(best, runs[best]))


if __name__ == "__main__":
    sys.exit(main())
