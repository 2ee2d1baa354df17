"""Section 5 of Jung, O'Leary and Tits 2008: the rows that an interior-point method needs (Figures 5.1 to 5.9, tables).

    python -m pipelines.papers.jung_oleary_tits_2008 --data FOLDER [--out FOLDER] [--small]

The data folder holds mushrooms, letter.scale and letter.scale.t of the LIBSVM site, ISOLET in isolet1+2+3+4.csv and
isolet5.csv, and a1a to a9a with their test files a1a.t to a9a.t; missing data are left out. The story prints Markdown;
--out saves it, with pictures (the extra `plots` installs matplotlib). --small uses 500 rows of each data set, four
variants, a1a and a4a, and 5,000 test rows. The exit status is 0 if all variants of Figure 5.1 found the same optimum to
within 1e-6, and (except with --small) the accuracies of Table 5.2 are within 0.3 points of LIBSVM's. Otherwise it is 1,
and without data 2.

Trainings run to a gap of 1e-8 (1e-6 with a Gaussian kernel), with C = 1, on one thread; times are CPU seconds. In the
scan of the paper, the figures and some numbers of Table 5.1 are missing. The last table therefore compares the paper's
statements about the figures with our results.
"""

from __future__ import annotations

import argparse
import sys
import time

from pipelines.data import DataFolder
from pipelines.papers.jung_oleary_tits_2008.adult import measure_adult
from pipelines.papers.jung_oleary_tits_2008.judge import WITHIN_POINTS, judge
from pipelines.papers.jung_oleary_tits_2008.pictures import draw_all
from pipelines.papers.jung_oleary_tits_2008.problems import ADULT, PROBLEMS, Problem, read_adult, read_problem
from pipelines.papers.jung_oleary_tits_2008.results import UNREDUCED, Results, Run, Variant
from pipelines.papers.jung_oleary_tits_2008.steps import follow_steps, tell_support
from pipelines.papers.jung_oleary_tits_2008.toy import Toy, solve_toy
from pipelines.story import make_out, make_paper_parser, run_story
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64, Flags
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.interior_point.solver import InteriorPoint
from streamsvm.solvers.interior_point.steps import Y
from streamsvm.solvers.options import InteriorPointOptions, name_options

NAME = "jung_oleary_tits_2008"
SMALL_ROWS, SMALL_TEST_ROWS, SMALL_ADULT = 500, 5000, ("a1a", "a4a")
REDUCTIONS = ("adaptive-balanced", "adaptive", "fixed")
FIXED_SHARE = 0.25  # q_U (the most rows in Q) of the variants "fixed" in Figure 5.1, as a share of all rows
SHARES, SMALL_SHARES = (0.05, 0.1, 0.25, 0.5, 1.0), (0.25, 1.0)
TOL = 1e-8

Found = list[tuple[Problem, ArrayDataset]]


def main() -> int:
    options = make_paper_parser(
        NAME,
        "Section 5 of Jung, O'Leary and Tits 2008: tables and figures.",
        f"use {SMALL_ROWS} rows of each data set, four variants, a1a and a4a",
    ).parse_args()
    return run_story(NAME, lambda: tell(options))


def tell(options: argparse.Namespace) -> int:
    """Write all tables, and return the exit status."""
    make_out(options.out)
    results, toy = run_all(DataFolder(options.data), options.small)
    if options.out is not None:
        (options.out / f"{NAME}.md").write_text(results.text)
        draw_all(results, toy, options.out)
    return 0 if holds(results) else 1


def holds(results: Results) -> bool:
    """Return whether all checks hold."""
    same = all(results.agrees(name, variant) for name in results.runs for variant in results.compared)
    return same and (results.small or results.find_worst_accuracy() <= WITHIN_POINTS)


def run_all(data: DataFolder, small: bool) -> tuple[Results, Toy]:
    """Measure everything for which there are data, and print each row of a table when it is complete."""
    read = {p.name: read_problem(p, data, SMALL_ROWS if small else None) for p in PROBLEMS}
    found = [(problem, rows) for problem in PROBLEMS if (rows := read[problem.name]) is not None]
    names, most = (SMALL_ADULT, SMALL_TEST_ROWS) if small else (ADULT, None)
    adult = [one for name in names if (one := read_adult(name, data, most)) is not None]
    if not adult and not any(problem.files for problem, _ in found):
        raise data.explain_missing(
            "mushrooms, letter.scale, letter.scale.t and a1a to a9a, with their .t, from the LIBSVM site's page "
            "'LIBSVM Data: Classification', and ISOLET from the UCI"
        )
    results = Results(small)
    if found:
        compare_variants(found, results)
        sweep_most_rows(found, results)
        results.write_figure_5()
        count_support(found, results)
    if adult:
        measure_adult(adult, results)
    toy = solve_toy()
    judge(results, toy)
    return results, toy


def compare_variants(found: Found, results: Results) -> None:
    """Measure Figure 5.1."""
    for variant in (UNREDUCED, ("adaptive-balanced", "omega", 1.0)):
        solve(found[0][1], variant)  # the first call compiles
    rules = name_options(InteriorPointOptions)["rule"].words
    rules = rules[:1] if results.small else rules
    variants = [(name, rule, FIXED_SHARE if name == "fixed" else 1.0) for name in REDUCTIONS for rule in rules]
    variants += [("adaptive-balanced", "distance", 1.0)] if results.small else []
    results.compared = [UNREDUCED, *variants]
    results.begin_figure_1()
    for problem, rows in found:
        for variant in results.compared:
            results.add_run(problem.name, variant, solve(rows, variant))


def sweep_most_rows(found: Found, results: Results) -> None:
    """Measure Figures 5.2 to 5.4. Runs of Figure 5.1 are not repeated."""
    shares = SMALL_SHARES if results.small else SHARES
    results.begin_table(
        "Figures 5.2 to 5.4: iterations / CPU seconds, by q_U as a share of the rows; (!): no convergence",
        "data",
        "variant",
        "rule",
        *(f"{share:.0%}" for share in shares),
    )
    for problem, rows in found:
        known = results.runs[problem.name]
        variants = [(*variant[:2], share) for variant in results.compared[1:] for share in shares]
        results.add_sweep(problem.name, shares, {one: known.get(one) or solve(rows, one) for one in variants})


def count_support(found: Found, results: Results) -> None:
    """Measure Table 5.1."""
    results.begin_support()
    for problem, rows in found:
        *_, (_, numbers, _) = follow_steps(rows, InteriorPoint((1.0, 1.0), TOL))
        support, on_boundary = tell_support(numbers)
        y = numbers[Y]
        results.add_support(problem, rows.n_features, (count_sides(support, y), count_sides(on_boundary, y)))


def count_sides(rows: Flags, y: F64) -> str:
    """Return the number of the given rows, and how many of them are of class + and of class -."""
    return f"{rows.sum():,} ({rows[y > 0].sum():,}/{rows[y < 0].sum():,})"


def solve(rows: ArrayDataset, variant: Variant) -> Run:
    """Train, and measure the CPU seconds."""
    reduction, rule, share = variant
    options = {"reduction": reduction, "rule": rule}
    if share < 1:
        options["most_rows"] = str(max(2, int(share * rows.n_rows)))
    began = time.process_time()
    result = train(rows, TrainOptions(solver="interior-point", tol=TOL, threads=1, options=options))
    seconds = time.process_time() - began
    chosen, mu = ([float(line[key]) for line in result.history] for key in ("chosen_rows", "mu"))
    return Run(
        result.steps, seconds, result.objective, result.status == "converged", rows.n_rows, rows.n_features, chosen, mu
    )


if __name__ == "__main__":
    sys.exit(main())
