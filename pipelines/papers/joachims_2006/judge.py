"""The claims of Joachims 2006 (sections 3 and 4), compared with our results: the last table, and the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median

from pipelines.exponents import fit_exponent
from pipelines.papers.joachims_2006.results import Optimum, Results, holds
from pipelines.papers.joachims_2006.runs import ALGORITHM_1, ALGORITHM_2, EPSILON, SEARCH_1, SEARCH_2, Method, Run


def judge(results: Results) -> None:
    """Write the table of the claims and our results."""
    results.begin_table("What he says, and what was found", "published", "found")
    judge_speed(results)
    judge_scaling(results)
    judge_epsilon(results)
    judge_costs(results)
    failures = find_failures(results)
    fine = f"so in all of {len(list(list_checks(results)))} comparisons"
    results.add_row(
        "the objective is not above the optimum, and at most C epsilon below (Theorems 3 and 5); ordinal regression is "
        "the classification of all pairs (Theorem 2)",
        "not: " + "; ".join(failures) if failures else fine,
    )


def list_checks(results: Results) -> Iterator[tuple[str, bool]]:
    """Compare each run with bounds of its optimum from other runs; yield a name, and whether the bounds hold."""
    for name, methods in results.sizes.items():
        most = results.problems[name].C * EPSILON
        for method, other in ((ALGORITHM_1, SEARCH_1), (ALGORITHM_2, SEARCH_2)):
            for run, search in zip(methods[method], methods[other], strict=True):
                told = f"{name}, {method.task}, {run.n_rows:,} rows"
                yield told, holds(run, Optimum(search.objective, search.lower_bound), most)
        whole = methods[ALGORITHM_1][-1]
        least = results.linear[name].objective
        yield f"{name}, LIBLINEAR", least is None or holds(whole, Optimum(least, 0.0), most)
    for name, runs in results.epsilons.items():
        C = results.problems[name].C
        for epsilon, run in runs[ALGORITHM_1].items():
            yield f"{name}, epsilon {epsilon:g}", holds(run, results.optima[name][C], C * epsilon)
    for name, by_cost in results.costs.items():
        for C, run in by_cost[ALGORITHM_1].items():
            yield f"{name}, C {C:g}", holds(run, results.optima[name][C], C * EPSILON)
    for name, lines in results.pairs.items():
        for peer, run in lines:
            yield f"{name}, pairs of {run.n_rows} rows", results.agrees_with_pairs(name, peer, run)


def find_failures(results: Results) -> list[str]:
    """Return the names of the comparisons that fail."""
    return [told for told, good in list_checks(results) if not good]


def spread(values: Iterable[float], digits: int = 2) -> str:
    """Return the least, the largest and the median value as text."""
    numbers = list(values)
    return f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f}, median {median(numbers):.{digits}f}"


def tell_each(values: dict[str, float], digits: int = 1) -> str:
    """Return a text that lists each name with its value."""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


def last(results: Results, method: Method) -> dict[str, Run]:
    """Return the runs on the largest number of rows, by problem."""
    return {name: methods[method][-1] for name, methods in results.sizes.items()}


def judge_speed(results: Results) -> None:
    """Write the rows about the seconds of Table 1."""
    one, two = last(results, ALGORITHM_1), last(results, ALGORITHM_2)
    searched, ranked = last(results, SEARCH_1), last(results, SEARCH_2)
    light = {}
    for name, peers in results.light.items():
        same = next(run for run in results.sizes[name][ALGORITHM_1] if run.n_rows == peers[-1].n_rows)
        light[f"{name} ({same.n_rows:,})"] = peers[-1].seconds / same.seconds
    results.add_row(
        "faster than SVMlight, by 5 to 149 times (Table 1)",
        f"LIBSVM / Algorithm 1 on the most rows that LIBSVM was given: {tell_each(light)}",
    )
    for told, runs in (("Algorithm 1", one), ("line search", searched)):
        ratios = {name: peer.seconds / runs[name].seconds for name, peer in results.linear.items()}
        results.add_row("(ours) today's decomposition", f"LIBLINEAR / {told}, all rows: {tell_each(ratios, 2)}")
    results.add_row(
        "ordinal regression is somewhat slower than classification: 1.5 to 6.5 times (Table 1)",
        f"{tell_each({name: two[name].seconds / one[name].seconds for name in one})} times",
    )
    results.add_row(
        "(ours) line search instead of the master's minimiser",
        f"passes / iterations of Algorithm 1: {spread(searched[n].passes / one[n].iterations for n in one)}; CPU time "
        f"{spread(searched[n].seconds / one[n].seconds for n in one)}; of Algorithm 2, steps "
        f"{spread(ranked[n].iterations / two[n].iterations for n in one)}, CPU time "
        f"{spread(ranked[n].seconds / two[n].seconds for n in one)}",
    )
    growth = {
        name: fit_exponent((run.n_rows, peer.seconds) for peer, run in lines) for name, lines in results.pairs.items()
    }
    results.add_row(
        "as a classification of pairs ordinal regression ends at some 4,000 rows, and takes n^3.4 (4.1, 4.2)",
        f"all pairs by LIBLINEAR: n^{spread(growth.values())}",
    )


def judge_scaling(results: Results) -> None:
    """Judge the growth with n in Figures 1 and 2."""

    def fit(method: Method, what: str) -> dict[str, float]:
        return {
            name: fit_exponent((run.n_rows, getattr(run, what)) for run in methods[method])
            for name, methods in results.sizes.items()
        }

    results.add_row("CPU time grows as n^0.8 (Figure 1, left)", f"n^p, p: {tell_each(fit(ALGORITHM_1, 'seconds'), 2)}")
    light = {
        name: fit_exponent((peer.n_rows, peer.seconds) for peer in peers if peer.converged)
        for name, peers in results.light.items()
        if sum(peer.converged for peer in peers) > 1
    }
    results.add_row("SVMlight's as n^1.7 (Figure 1, second)", f"LIBSVM: {tell_each(light, 2)}")
    chosen = {
        name: fit_exponent((one.run.n_rows, one.run.seconds) for one in lines) for name, lines in results.chosen.items()
    }
    results.add_row("with the best C for each n roughly as n (Figure 1, third)", tell_each(chosen, 2))
    results.add_row("ordinal regression: slightly steeper (Figure 1, right)", tell_each(fit(ALGORITHM_2, "seconds"), 2))
    results.add_row(
        "iterations do not grow with n, for some problems they fall (Figure 2)",
        f"n^p, p: {tell_each(fit(ALGORITHM_1, 'iterations'), 2)}",
    )
    one, two = last(results, ALGORITHM_1), last(results, ALGORITHM_2)
    results.add_row(
        "ordinal regression: virtually as many iterations (4.2)",
        f"Algorithm 2 / 1: {tell_each({name: two[name].iterations / one[name].iterations for name in one}, 2)}",
    )


def judge_epsilon(results: Results) -> None:
    """Judge the sweep over epsilon in Figures 4 to 7."""
    runs = {name: methods[ALGORITHM_1] for name, methods in results.epsilons.items()}
    for least, most in ((0.0, 0.01), (0.01, 1.0)):
        apart = {
            name: max(
                (abs(run.performance - by[EPSILON].performance) for e, run in by.items() if least < e <= most),
                default=0.0,
            )
            for name, by in runs.items()
        }
        said = ("up to epsilon = 0.01 performance is within half a point", "beyond, it is less reliable")[least > 0]
        results.add_row(f"{said} (Figure 4)", f"points, at most: {tell_each(apart, 2)}")
    for what, said in (
        ("iterations", "iterations grow as 1 / epsilon^0.3 (Figure 5; the bound: ^2)"),
        ("seconds", "CPU time as 1 / epsilon^0.4 (Figure 6)"),
    ):
        exponents = {name: -fit_exponent((e, getattr(run, what)) for e, run in by.items()) for name, by in runs.items()}
        results.add_row(said, f"1 / epsilon^p, p: {tell_each(exponents, 2)}")
    falls = {
        name: all(a >= b - 2e-5 for a, b in pairwise(d))
        for name, by in runs.items()
        if (d := [results.distance(name, run) for run in by.values()])
    }
    results.add_row(
        "the distance to the optimum falls with epsilon (Figure 7, right)", f"on {sum(falls.values())} of {len(falls)}"
    )


def judge_costs(results: Results) -> None:
    """Judge the sweep over C in Figures 7 to 9."""
    spans = []
    for name, methods in results.costs.items():
        distances = [100 * results.distance(name, run, C) for C, run in methods[ALGORITHM_1].items()]
        spans.append(f"{name} {min(distances):.2g} to {max(distances):.2g}")
    results.add_row("0.1 to 1% below the optimum for all C, epsilon = 0.001 (Figure 7, left)", "%: " + ", ".join(spans))
    for method in (ALGORITHM_1, ALGORITHM_2):
        exponents = {
            name: fit_exponent((C, run.iterations) for C, run in methods[method].items())
            for name, methods in results.costs.items()
        }
        said = "ordinal regression: similarly" if method == ALGORITHM_2 else "iterations grow as C^0.5"
        results.add_row(f"{said} (Figure 8; the bound: C)", f"C^p, p: {tell_each(exponents, 2)}")
    exponents = {
        name: fit_exponent((C, run.seconds) for C, run in methods[ALGORITHM_1].items())
        for name, methods in results.costs.items()
    }
    results.add_row("time grows less than C, but for excessive C (Figure 9)", f"C^p, p: {tell_each(exponents, 2)}")
    lost = {
        name: sum(run.seconds < peer.seconds for peer, run in lines.values())
        for name, lines in results.light_costs.items()
    }
    of = len(next(iter(results.light_costs.values())))
    n = next(iter(next(iter(results.light_costs.values())).values()))[1].n_rows
    results.add_row(
        "faster than SVMlight for every C (Figure 9)",
        f"than LIBSVM on {n:,} rows, at so many of {of} C: {tell_each(dict(lost), 0)}",
    )
