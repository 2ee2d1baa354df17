"""The results of joachims_2006, and their Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.exponents import fit_exponent
from pipelines.papers.joachims_2006.problems import Problem, Split
from pipelines.papers.joachims_2006.runs import (
    ALGORITHM_1,
    ALGORITHM_2,
    EPSILON,
    MOST_ITERATIONS,
    SEARCH_1,
    SEARCH_2,
    Method,
    Peer,
    Run,
)
from pipelines.report import Report

NAMES = {
    ALGORITHM_1: "Algorithm 1",
    SEARCH_1: "line search",
    ALGORITHM_2: "Algorithm 2",
    SEARCH_2: "line search, ranks",
}


@dataclass(frozen=True)
class Optimum:
    """An upper and a lower bound on the minimum of P."""

    objective: float
    lower_bound: float


@dataclass(frozen=True)
class Chosen:
    """The C with the best result on the test rows, and the run with this C."""

    C: float
    run: Run


class Results(Report):
    """All measurements, by the name of the problem. Tables are printed row by row."""

    def __init__(self, small: bool) -> None:
        super().__init__()
        self.small = small
        self.problems: dict[str, Problem] = {}
        self.sizes: dict[str, dict[Method, list[Run]]] = {}
        self.light: dict[str, list[Peer]] = {}
        self.linear: dict[str, Peer] = {}
        self.chosen: dict[str, list[Chosen]] = {}
        self.pairs: dict[str, list[tuple[Peer, Run]]] = {}
        self.epsilons: dict[str, dict[Method, dict[float, Run]]] = {}
        self.costs: dict[str, dict[Method, dict[float, Run]]] = {}
        self.optima: dict[str, dict[float, Optimum]] = {}
        self.light_costs: dict[str, dict[float, tuple[Peer, Run]]] = {}
        if small:
            self.write("These are few rows of each data set; published figures are for all rows.\n")

    def write_classes(self, splits: Mapping[str, Split]) -> None:
        """Write the half of Table 1 about classification, with the results of section 4.1 for Adult and Web."""
        self.begin_table(
            "Table 1, classification: CPU seconds (iterations)",
            "data",
            "n, published",
            "ours",
            "features",
            "not 0",
            "C",
            "SVMperf, published",
            "Algorithm 1",
            "line search",
            "SVMlight, published",
            "LIBLINEAR",
            "test rows, Algorithm 1",
            "LIBLINEAR",
        )
        for name, split in splits.items():
            one, search, peer = *(self.sizes[name][method][-1] for method in (ALGORITHM_1, SEARCH_1)), self.linear[name]
            published, problem = split.problem.published, split.problem
            self.add_row(
                problem.label,
                f"{published.n_rows:,}",
                f"{one.n_rows:,}",
                f"{split.X.shape[1]:,}",
                f"{split.density:.2%}",
                f"{problem.C:,.0f}",
                f"{published.perf:,.1f}",
                tell_run(one),
                tell_run(search),
                "" if published.light is None else f"{published.light:,.1f}",
                tell_peer(peer),
                f"{one.performance:.2f}",
                f"{peer.performance or 0:.2f}",
            )

    def write_ranks(self, splits: Mapping[str, Split]) -> None:
        """Write the half of Table 1 about ordinal regression with two ranks."""
        self.begin_table(
            "Table 1, ordinal regression with two ranks: CPU seconds (iterations)",
            "data",
            "n",
            "SVMperf, published",
            "Algorithm 2",
            "line search",
            "ranks / classes, published",
            "Algorithm 2 / 1",
            "of an iteration",
            "test ROC area, Algorithm 1",
            "Algorithm 2",
        )
        for name, split in splits.items():
            runs = {method: lines[-1] for method, lines in self.sizes[name].items()}
            one, two = runs[ALGORITHM_1], runs[ALGORITHM_2]
            ranks, perf = split.problem.published.ranks, split.problem.published.perf
            self.add_row(
                split.problem.label,
                f"{two.n_rows:,}",
                "" if ranks is None else f"{ranks:,.1f}",
                tell_run(two),
                tell_run(runs[SEARCH_2]),
                "" if ranks is None else f"{ranks / perf:.1f}",
                f"{two.seconds / one.seconds:.1f}",
                f"{two.seconds * one.iterations / (one.seconds * two.iterations):.1f}",
                f"{one.area:.2f}",
                f"{two.area:.2f}",
            )

    def write_sizes(self, sizes: Sequence[int]) -> None:
        """Write the table of Figures 1 and 2. The last column has the number of rows in Table 1."""
        heads = [f"{n:,}" for n in sizes]
        self.begin_table(
            "Figures 1 and 2: CPU seconds (iterations), by number of rows",
            "data",
            "method",
            *heads,
            "all",
            "seconds ~ n^",
            "iterations ~ n^",
        )
        for name, methods in self.sizes.items():
            for method, runs in methods.items():
                cells = {run.n_rows: tell_run(run) for run in runs[:-1]}
                self.add_row(
                    self.problems[name].label,
                    NAMES[method],
                    *(cells.get(n, "") for n in sizes),
                    tell_run(runs[-1]),
                    tell_exponent((run.n_rows, run.seconds) for run in runs),
                    tell_exponent((run.n_rows, run.iterations) for run in runs),
                )
            peers = {peer.n_rows: tell_peer(peer) for peer in self.light[name]}
            self.add_row(
                self.problems[name].label,
                "LIBSVM",
                *(peers.get(n, "") for n in sizes),
                "",
                tell_exponent((peer.n_rows, peer.seconds) for peer in self.light[name]),
                "",
            )

    def write_chosen(self) -> None:
        """Write the table of Figure 1 (middle right)."""
        sizes = [one.run.n_rows for one in max(self.chosen.values(), key=len)]
        self.begin_table(
            "Figure 1, middle right: CPU seconds with the C (first) that is best on the test rows",
            "data",
            *(f"{n:,}" for n in sizes),
            "seconds ~ n^",
        )
        for name, chosen in self.chosen.items():
            cells = [f"{one.C:g}: {one.run.seconds:.2f}" for one in chosen]
            self.add_row(
                self.problems[name].label,
                *cells,
                *[""] * (len(sizes) - len(cells)),
                tell_exponent((one.run.n_rows, one.run.seconds) for one in chosen),
            )

    def write_pairs(self) -> None:
        """Write the table that compares Algorithm 2 with a classification of all pairs (the paper's OP4)."""
        self.begin_table(
            "Ordinal regression as classification of all pairs (OP4, LIBLINEAR), beside Algorithm 2: CPU seconds",
            "data",
            "n",
            "pairs",
            "Algorithm 2",
            "objective, pairs",
            "Algorithm 2",
            "at most C epsilon apart",
        )
        for name, lines in self.pairs.items():
            for peer, run in lines:
                self.add_row(
                    self.problems[name].label,
                    str(run.n_rows),
                    tell_peer(peer),
                    f"{run.seconds:.3f}",
                    f"{peer.objective:.6g}",
                    f"{run.lower_bound:.6g}",
                    "yes" if self.agrees_with_pairs(name, peer, run) else "no (!)",
                )

    def agrees_with_pairs(self, name: str, peer: Peer, run: Run) -> bool:
        """Return whether Algorithm 2 has found the optimum of OP4 to within C epsilon.

        The objective of Algorithm 2 is never above the optimum. It may be further below only if a run has not
        converged.
        """
        assert peer.objective is not None
        ended = peer.converged and run.converged
        return holds(run, Optimum(peer.objective, peer.objective if ended else 0.0), self.problems[name].C * EPSILON)

    def write_epsilons(self) -> None:
        """Write the table of Figures 4 to 7 (right)."""
        epsilons = list(next(iter(self.epsilons.values()))[ALGORITHM_1])
        self.begin_table(
            "Figures 4 to 7, by epsilon", "data", "rows", "what", *(f"{e:g}" for e in epsilons), "~ epsilon^"
        )
        for name, methods in self.epsilons.items():
            runs = methods[ALGORITHM_1]
            performance = [f"{run.performance - runs[EPSILON].performance:+.2f}" for run in runs.values()]
            self._write_line(name, "iterations", {e: run.iterations for e, run in runs.items()})
            self._write_line(name, "CPU seconds", {e: run.seconds for e, run in runs.items()})
            self._write_line(name, "line search, passes", {e: run.passes for e, run in methods[SEARCH_1].items()})
            rows = f"{runs[EPSILON].n_rows:,}"
            self.add_row(self.problems[name].label, rows, "test rows, points more than at 0.001", *performance, "")
            self._write_line(name, "below the optimum", {e: self.distance(name, run) for e, run in runs.items()})

    def write_costs(self) -> None:
        """Write the table of Figures 7 (left) to 9."""
        costs = list(next(iter(self.costs.values()))[ALGORITHM_1])
        self.begin_table(
            f"Figures 7 to 9, by C (at most {MOST_ITERATIONS:,} iterations)",
            "data",
            "rows",
            "what",
            *(f"{C:g}" for C in costs),
            "~ C^",
        )
        for name, methods in self.costs.items():
            for method, what in ((ALGORITHM_1, "Algorithm 1"), (ALGORITHM_2, "Algorithm 2")):
                runs = methods[method]
                self._write_line(name, f"{what}, iterations", {C: run.iterations for C, run in runs.items()})
                self._write_line(name, f"{what}, CPU seconds", {C: run.seconds for C, run in runs.items()})
            self._write_line(name, "line search, passes", {C: run.passes for C, run in methods[SEARCH_1].items()})
            runs = methods[ALGORITHM_1]
            self._write_line(name, "below the optimum", {C: self.distance(name, run, C) for C, run in runs.items()})
            lines = self.light_costs[name]
            n = next(iter(lines.values()))[0].n_rows
            self._write_line(name, "Algorithm 1, CPU seconds", {C: run.seconds for C, (_, run) in lines.items()}, n)
            self._write_line(name, "LIBSVM, CPU seconds", {C: peer.seconds for C, (peer, _) in lines.items()}, n)

    def _write_line(self, name: str, what: str, values: dict[float, float], n: int | None = None) -> None:
        """Write a row of a sweep."""
        n = n or self.epsilons[name][ALGORITHM_1][EPSILON].n_rows
        self.add_row(
            self.problems[name].label,
            f"{n:,}",
            what,
            *(f"{value:,}" if isinstance(value, int) else f"{value:.2g}" for value in values.values()),
            tell_exponent(values.items()) if "below" not in what else "",
        )

    def distance(self, name: str, run: Run, C: float = 0.0) -> float:
        """Return (P* - objective) / P*, as in Figure 7. C: the C of the run; 0 stands for the C of the problem."""
        optimum = self.optima[name][C or self.problems[name].C]
        return (optimum.objective - run.lower_bound) / optimum.objective


def holds(run: Run, optimum: Optimum, most: float) -> bool:
    """Return whether a run satisfies Theorems 3 and 5, up to the error of the master problem.

    The theorems say that the objective is not above the optimum and, if the run has converged, at most C epsilon below.
    """
    off = 1e-6 * optimum.objective
    near = run.lower_bound >= optimum.lower_bound - 1.1 * most - off
    return run.lower_bound <= optimum.objective + off and (near or not run.converged)


def tell_run(run: Run) -> str:
    """Return the cell of a run: CPU seconds (iterations). (!) marks a run that did not converge."""
    return f"{run.seconds:.2f} ({run.iterations:,})" + ("" if run.converged else " (!)")


def tell_peer(peer: Peer) -> str:
    """Return the cell of a run: CPU seconds. > marks a run that ended at its limit of iterations."""
    return ("" if peer.converged else "> ") + f"{peer.seconds:.2f}"


def tell_exponent(points: Iterable[tuple[float, float]]) -> str:
    """Fit the exponent of the points, and return it as text."""
    return f"{fit_exponent(points):.2f}"
