"""The statements of Jung, O'Leary and Tits 2008 (section 5), compared with our results: the last table."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.papers.jung_oleary_tits_2008.problems import PROBLEMS
from pipelines.papers.jung_oleary_tits_2008.results import UNREDUCED, Results, Run, Variant, find_exponent
from pipelines.papers.jung_oleary_tits_2008.toy import LEFT_ROWS, Toy

BEST, BY_DISTANCE = ("adaptive-balanced", "omega"), ("adaptive-balanced", "distance")
HARD = ("mushroom", "waveform")  # the problems "which have many support vectors", as the paper says
WITHIN_POINTS = 0.3


def judge(results: Results, toy: Toy) -> None:
    """Write the table of the statements and our results."""
    results.begin_table("What they say, and what was found", "published", "found")
    if results.runs:
        judge_variants(results)
        judge_sweeps(results)
    if results.linear:
        judge_adult(results)
    judge_toy(results, toy)


def spread(values: Iterable[float]) -> str:
    """Return the least and the largest value as text."""
    numbers = list(values)
    return f"{min(numbers):.2f} to {max(numbers):.2f}"


def compare(results: Results, variant: Variant, whole: Variant, measure: str) -> dict[str, float]:
    """Return the ratio of the iterations (or seconds) of `variant` to those of `whole`, for each problem."""
    return {
        name: getattr(runs[variant], measure) / getattr(runs[whole], measure) for name, runs in results.runs.items()
    }


def judge_variants(results: Results) -> None:
    """Write the rows about the variants of Figure 5.1, and about Table 5.1."""
    iterations = [compare(results, (*rule, 1.0), UNREDUCED, "steps") for rule in (BEST, BY_DISTANCE)]
    results.add_row(
        "the number of iterations is insensitive to the choice of rows (5.1b; balanced, either rule)",
        f"iterations / unreduced: omega {spread(iterations[0].values())}, distance {spread(iterations[1].values())}",
    )
    seconds = [compare(results, (*rule, 1.0), UNREDUCED, "seconds") for rule in (BEST, BY_DISTANCE)]
    results.add_row(
        "all reduced ones are faster than the unreduced one (5.1a)",
        f"time / unreduced: omega {tell_each(seconds[0])}; distance {tell_each(seconds[1])}",
    )
    if not results.small:
        same = [p.name for p in PROBLEMS if results.support.get(p.name, ("", ""))[1] == p.on_boundary]
        results.add_row("support vectors on the boundary (Table 5.1)", f"the same on {', '.join(same) or 'none'}")
    hard = {
        name: 1 / ratio
        for name, ratio in compare(results, (*BEST, 1.0), (*BY_DISTANCE, 1.0), "seconds").items()
        if name in HARD
    }
    if hard:
        results.add_row(
            "on hard problems (mushroom, waveform) omega is better than distance (5.1, 5.4)",
            f"time with distance / with omega: {tell_each(hard)}",
        )


def tell_each(ratios: dict[str, float]) -> str:
    """Return a text that lists each problem with its ratio."""
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())


def judge_sweeps(results: Results) -> None:
    """Write the rows about the sweeps over q_U in Figures 5.2, 5.3 and 5.5."""
    share = min(variant[2] for runs in results.runs.values() for variant in runs)
    if "isolet" in results.runs:
        runs = results.runs["isolet"]
        balanced, unbalanced = runs[*BEST, share], runs["adaptive", "omega", share]
        results.add_row(
            "balanced is more consistent where classes are unequal, with a small q_U above all (5.2b)",
            f"isolet, q_U = {share:.0%}: {tell_run(balanced)}; not balanced {tell_run(unbalanced)}",
        )
    for name, said in (
        ("adaptive-balanced", "adaptive: time hardly changes as q_U falls (5.3)"),
        ("fixed", "not adaptive: a large q_U costs more (5.3)"),
    ):
        ratios = compare(results, (name, "omega", 1.0), (name, "omega", 0.25), "seconds")
        results.add_row(said, f"time with q_U = n / with n / 4: {tell_each(ratios)}")
    ends = [one.chosen[-1] / one.n_rows for runs in results.runs.values() if (one := runs[*BEST, 1.0])]
    results.add_row(
        "more rows are left out as the iteration proceeds (5.5)", f"rows used at the end / n: {spread(ends)}"
    )


def tell_run(run: Run) -> str:
    """Return a text with the iterations and the seconds of a run."""
    return f"{run.steps} iterations, {run.seconds:.2f} s" + ("" if run.converged else ", no convergence")


def judge_adult(results: Results) -> None:
    """Write the rows about Adult: Figures 5.6 to 5.8 and Table 5.2."""
    results.add_row(
        "linear: close to linear in n; LIBSVM between linear and cubic (5.6)",
        f"n^{find_exponent(results.linear['CRSVM'])}; LIBSVM n^{find_exponent(results.linear['LIBSVM'])}",
    )
    better = [a.error < b.error for a, b in zip(results.ranks["EIGS"], results.ranks["CHOL"], strict=True)]
    errors = [f"{a.error:.1e} : {b.error:.1e}" for a, b in zip(*results.ranks.values(), strict=True)]
    results.add_row(
        "of a given rank, EIGS is much better than CHOL (5.7a)",
        f"better at {sum(better)} of {len(better)} ranks, errors {', '.join(errors)}",
    )
    growth = {
        method: lines[-1].error / lines[0].error
        for method, lines in results.gaussian.items()
        if lines[0].error and lines[-1].error
    }
    results.add_row(
        "at a given rank, the error of CHOL grows more with n (5.7b)",
        f"error of all rows / of the fewest: {tell_each(growth)}",
    )
    results.add_row(
        "with a proper approximation, as accurate as with the exact kernel (Table 5.2)",
        f"at most {results.find_worst_accuracy():.2f} points from LIBSVM",
    )


def judge_toy(results: Results, toy: Toy) -> None:
    """Write the rows about the toy problem of Figure 5.9."""
    numbers = [int(step.chosen.sum()) for step in toy.steps]
    results.add_row(
        f"toy of {LEFT_ROWS:,} points: rows used fall with the iterations (5.9)",
        f"{len(toy.y):,} points; rows used: {', '.join(f'{number:,}' for number in numbers)}",
    )
    held = int((toy.steps[-1].chosen & toy.on_boundary).sum())
    results.add_row(
        "toy: only support vectors on the boundary are chosen at the end (5.9)",
        f"at the end {numbers[-1]} rows, among them {held} of the {int(toy.on_boundary.sum())} on the boundary",
    )
