"""Joachims 2006, "Training linear SVMs in linear time": Table 1 and Figures 1, 2 and 4 to 9, beside what he says.

    python pipelines/papers/joachims_2006.py --data FOLDER [--out FOLDER] [--small]

FOLDER holds, plain or .xz, itself or in subfolders: covtype.csv (the UCI's covtype.data with a line of names), and a9a,
a9a.t, w8a and w8a.t of the LIBSVM site; what is missing is left out. Reuters, Arxiv and KDD04 are generated stand-ins
(joachims_problems.py). Prints Markdown; --out keeps it, with pictures (needs matplotlib: the extra `plots`). --small:
512 rows of each. Exit status: 0 if the theorems hold (the objective of the paper's stop is never above the optimum
and at most C epsilon below it; Algorithm 2's is that of a classification of all pairs), 1 if not, 2 without data.

Algorithm 1 is `--option acceleration=none --option epsilon=0.001`, Algorithm 2 that with `--task roc-area`; the paper's
C is n times ours. Line search is what streamsvm does by itself, with the same stop. SVMlight is not to be had: LIBSVM
and LIBLINEAR (scikit-learn's) stand for it. CPU seconds, one thread; of sweeps over epsilon and C some rows (SWEPT).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from joachims_judge import find_failures, judge
from joachims_pictures import draw_all
from joachims_problems import PROBLEMS, Split, read_problem
from joachims_results import Chosen, Optimum, Results
from joachims_runs import (
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

from streamsvm.errors import InputError

SMALL_ROWS = 512
SIZES, SMALL_SIZES = (1024, 4096, 16_384, 65_536), (128,)
SWEPT = 4096  # rows of Figures 4 to 9
LIGHT_ROWS, LIGHT_SECONDS = 2048, 10.0  # LIBSVM by C; and what it may take by rows, foreseen as n^2
PAIR_SIZES, SMALL_PAIR_SIZES = (128, 256, 512), (128, 256)
EPSILONS, SMALL_EPSILONS = (0.1, 0.01, 1e-3, 1e-4), (0.1, 0.01, 1e-3)
COSTS, SMALL_COSTS = (1e2, 1e3, 1e4, 1e5, 1e6), (1e2, 1e3, 1e4)

Splits = dict[str, Split]


def main() -> int:
    options = parse_arguments()
    try:
        if options.out is not None:
            import matplotlib  # noqa: F401  before minutes of work, not after

            options.out.mkdir(parents=True, exist_ok=True)
        splits = read_all(options.data, SMALL_ROWS if options.small else None)
        results = run_all(splits, options.small)
    except ImportError:
        print('joachims_2006.py: --out draws: python -m pip install "streamsvm[plots]"', file=sys.stderr)
        return 2
    except InputError as error:
        print(f"joachims_2006.py: {error}", file=sys.stderr)
        return 2
    if options.out is not None:
        (options.out / "joachims_2006.md").write_text(results.text)
        draw_all(results, options.out)
    return 1 if find_failures(results) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Joachims 2006, Table 1 and Figures 1, 2 and 4 to 9")
    default = os.environ.get("STREAMSVM_DATA")
    parser.add_argument(
        "--data", type=Path, default=default and Path(default), help="folder of the text files ($STREAMSVM_DATA)"
    )
    parser.add_argument("--out", type=Path, help="keep the tables and the pictures in this folder")
    parser.add_argument("--small", action="store_true", help=f"at most {SMALL_ROWS:,} rows of each, and fewer settings")
    return parser.parse_args()


def read_all(data: Path | None, most_rows: int | None) -> Splits:
    """Rows of the real sets that are there, and the stand-ins, in the paper's order."""
    read = {p.name: read_problem(p, data, most_rows) for p in PROBLEMS if p.files}
    if not any(read.values()):
        raise InputError(
            f"no data {f'in {data}' if data else '(--data and $STREAMSVM_DATA name no folder)'}: get a9a, a9a.t, w8a "
            "and w8a.t from the LIBSVM site's page 'LIBSVM Data: Classification', or Covertype from the UCI, as "
            "covtype.csv with a line of names; name their folder by --data"
        )
    read |= {p.name: read_problem(p, None, most_rows) for p in PROBLEMS if not p.files}
    return {p.name: split for p in PROBLEMS if (split := read[p.name]) is not None}


def run_all(splits: Splits, small: bool) -> Results:
    """Measure everything; tables are printed as they come."""
    results, trainer = Results(small), Trainer({})
    results.problems = {name: split.problem for name, split in splits.items()}
    warm_up(splits)
    sizes, pair_sizes = (SMALL_SIZES, SMALL_PAIR_SIZES) if small else (SIZES, PAIR_SIZES)
    for name, split in splits.items():
        scale_rows(name, split, sizes, trainer, results)
    results.write_table_1(splits)
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
    """Compile, for rows of either kind."""
    for split in splits.values():
        for method in (ALGORITHM_1, SEARCH_1, ALGORITHM_2, SEARCH_2):
            Trainer({}).run(split, method, 256, 10.0)


def scale_rows(name: str, split: Split, sizes: tuple[int, ...], trainer: Trainer, results: Results) -> None:
    """Table 1, Figures 1 and 2; LIBSVM as far as it will not take long."""
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
    """Figures 4, 5, 6 and 7, right."""
    results.epsilons[name] = {
        method: {
            epsilon: trainer.run(split, method, SWEPT, epsilon=epsilon)
            for epsilon in (SMALL_EPSILONS if results.small else EPSILONS)
        }
        for method in (ALGORITHM_1, SEARCH_1)
    }


def sweep_costs(name: str, split: Split, trainer: Trainer, results: Results) -> None:
    """Figures 7, left, 8 and 9; LIBSVM on few rows."""
    costs, n, few = SMALL_COSTS if results.small else COSTS, min(SWEPT, len(split.y)), min(LIGHT_ROWS, len(split.y))
    results.costs[name] = {
        method: {C: trainer.run(split, method, n, C) for C in costs} for method in (ALGORITHM_1, SEARCH_1, ALGORITHM_2)
    }
    results.light_costs[name] = {C: (fit_libsvm(split, few, C), trainer.run(split, ALGORITHM_1, few, C)) for C in costs}
    searched = results.costs[name][SEARCH_1] | {split.problem.C: min(results.epsilons[name][SEARCH_1].items())[1]}
    results.optima[name] = {C: find_optimum(split, C, run) for C, run in searched.items()}


def find_optimum(split: Split, C: float, searched: Run) -> Optimum:
    """Bounds of the least P: the line search's, and LIBLINEAR's P, of a tolerance that is a hundredth of its own."""
    objective = fit_liblinear(split, searched.n_rows, C, 1e-3).objective
    assert objective is not None
    return Optimum(min(objective, searched.objective), searched.lower_bound)


def choose_costs(name: str, split: Split, trainer: Trainer, results: Results) -> None:
    """Figure 1, middle right."""
    results.chosen[name] = []
    most = min(SWEPT, len(split.y))
    for n in (most // 4, most) if results.small else (most // 16, most // 4, most):
        runs = {C: trainer.run(split, ALGORITHM_1, n, C) for C in results.costs[name][ALGORITHM_1]}
        best = max(runs, key=lambda C: runs[C].performance)
        results.chosen[name].append(Chosen(best, runs[best]))


if __name__ == "__main__":
    sys.exit(main())
