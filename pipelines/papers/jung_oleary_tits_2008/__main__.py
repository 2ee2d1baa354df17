"""Section 5 of Jung, O'Leary & Tits 2008, which rows an interior-point method needs: Figures 5.1 to 5.9 and its tables.

    python pipelines/papers/jung_2008.py --data FOLDER [--out FOLDER] [--small]

FOLDER holds, plain or .xz, itself or in subfolders: mushrooms, letter.scale and letter.scale.t of the LIBSVM site,
ISOLET in isolet1+2+3+4.csv and isolet5.csv, and a1a to a9a with their test files a1a.t to a9a.t; what is missing is
left out. Prints Markdown; --out keeps it, with pictures (needs matplotlib: the extra `plots`). --small: 500 rows of
each, four variants, a1a and a4a, 5,000 test rows. Exit status: 0 if all variants of Figure 5.1 found the same optimum,
to 1e-6, and, but for --small, the approximations of Table 5.2 are within 0.3 point of LIBSVM; 1 if not; 2 without data.

A gap of 1e-8 (with a Gaussian kernel: 1e-6), C = 1, CPU seconds, one thread. The scan of the paper has no figures, and
of the tables only some numbers of Table 5.1; what its text says of the figures is in the last table, beside what was
found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from jung_adult import measure_adult
from jung_judge import WITHIN_POINTS, judge
from jung_pictures import draw_all
from jung_problems import ADULT, PROBLEMS, Problem, read_adult, read_problem
from jung_results import UNREDUCED, Results, Run, Variant
from jung_steps import follow_steps, tell_support
from jung_toy import Toy, solve_toy

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.errors import InputError
from streamsvm.methods.interior_point.constraint_reduction import RULES, Flags
from streamsvm.methods.interior_point.solver import InteriorPoint
from streamsvm.numeric.rows import F64
from streamsvm.training.train import TrainOptions, train

SMALL_ROWS, SMALL_TEST_ROWS, SMALL_ADULT = 500, 5000, ("a1a", "a4a")
REDUCTIONS = ("adaptive-balanced", "adaptive", "fixed")
FIXED_SHARE = 0.25  # q_U of the fixed ones in Figure 5.1
SHARES, SMALL_SHARES = (0.05, 0.1, 0.25, 0.5, 1.0), (0.25, 1.0)
TOL = 1e-8

Found = list[tuple[Problem, ArrayDataset]]


def main() -> int:
    options = parse_arguments()
    try:
        if options.out is not None:
            import matplotlib  # noqa: F401  before minutes of work, not after

            options.out.mkdir(parents=True, exist_ok=True)
        results, toy = run_all(options.data, options.small)
    except ImportError:
        print('jung_2008.py: --out draws with matplotlib: python -m pip install "streamsvm[plots]"', file=sys.stderr)
        return 2
    except InputError as error:
        print(f"jung_2008.py: {error}", file=sys.stderr)
        return 2
    if options.out is not None:
        (options.out / "jung_2008.md").write_text(results.text)
        draw_all(results, toy, options.out)
    return 0 if holds(results) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Jung, O'Leary & Tits 2008, Tables 5.1, 5.2 and Figures 5.1 to 5.9")
    default = os.environ.get("STREAMSVM_DATA")
    parser.add_argument(
        "--data", type=Path, default=default and Path(default), help="folder of the text files ($STREAMSVM_DATA)"
    )
    parser.add_argument("--out", type=Path, help="keep the tables and the pictures in this folder")
    parser.add_argument("--small", action="store_true", help=f"{SMALL_ROWS} rows of each, four variants, a1a and a4a")
    return parser.parse_args()


def holds(results: Results) -> bool:
    """Whether all that is checked is so."""
    same = all(results.agrees(name, variant) for name in results.runs for variant in results.compared)
    return same and (results.small or results.find_worst_accuracy() <= WITHIN_POINTS)


def run_all(data: Path | None, small: bool) -> tuple[Results, Toy]:
    """Measure everything there are data for; tables are printed as they come."""
    read = {} if data is None else {p.name: read_problem(p, data, SMALL_ROWS if small else None) for p in PROBLEMS}
    found = [(problem, rows) for problem in PROBLEMS if (rows := read.get(problem.name)) is not None]
    names, most = (SMALL_ADULT, SMALL_TEST_ROWS) if small else (ADULT, None)
    adult = [one for name in names if data is not None and (one := read_adult(name, data, most)) is not None]
    if not adult and not any(problem.files for problem, _ in found):
        raise InputError(
            f"no data {f'in {data}' if data else '(--data and $STREAMSVM_DATA name no folder)'}: get mushrooms, "
            "letter.scale, letter.scale.t and a1a to a9a, with their .t, from the LIBSVM site's page 'LIBSVM Data: "
            "Classification', and ISOLET from the UCI; name their folder by --data"
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
    """Figure 5.1."""
    for variant in (UNREDUCED, ("adaptive-balanced", "omega", 1.0)):
        solve(found[0][1], variant)  # compiles
    rules = RULES[:1] if results.small else RULES
    variants = [(name, rule, FIXED_SHARE if name == "fixed" else 1.0) for name in REDUCTIONS for rule in rules]
    variants += [("adaptive-balanced", "distance", 1.0)] if results.small else []
    results.compared = [UNREDUCED, *variants]
    results.begin_figure_1()
    for problem, rows in found:
        for variant in results.compared:
            results.add_run(problem.name, variant, solve(rows, variant))


def sweep_most_rows(found: Found, results: Results) -> None:
    """Figures 5.2 to 5.4; what Figure 5.1 has is not done again."""
    shares = SMALL_SHARES if results.small else SHARES
    results.begin(
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
    """Table 5.1."""
    results.begin_support()
    for problem, rows in found:
        *_, (last, _) = follow_steps(rows, InteriorPoint((1.0, 1.0), TOL))
        support, on_boundary = tell_support(last.state)
        y = last.state.y
        results.add_support(problem, rows.n_features, (count_sides(support, y), count_sides(on_boundary, y)))


def count_sides(rows: Flags, y: F64) -> str:
    """Return the number of rows, and of these the ones of class + and -."""
    return f"{rows.sum():,} ({rows[y > 0].sum():,}/{rows[y < 0].sum():,})"


def solve(rows: ArrayDataset, variant: Variant) -> Run:
    """Train; CPU seconds."""
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
