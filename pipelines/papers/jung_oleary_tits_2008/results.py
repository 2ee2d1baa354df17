"""The results of jung_oleary_tits_2008, and their Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pipelines.exponents import fit_exponent
from pipelines.papers.jung_oleary_tits_2008.problems import Problem
from pipelines.report import Report

UNREDUCED = ("none", "omega", 1.0)
Variant = tuple[str, str, float]  # the reduction, the rule, and q_U as a share of all rows


@dataclass(frozen=True)
class Run:
    """A solved linear problem: CPU seconds, and for each step the number of rows in Q, and mu."""

    steps: int
    seconds: float
    objective: float
    converged: bool
    n_rows: int
    n_features: int
    chosen: list[float]
    mu: list[float]

    @property
    def used(self) -> float:
        """The share of the rows that formed the equations, as a mean over the steps."""
        return float(np.mean(self.chosen)) / self.n_rows


@dataclass(frozen=True)
class Trained:
    """A training on Adult by one method.

    Attributes
    ----------
    training, making : float
        CPU seconds of the training, and of computing the features.
    accuracy : float or None
        Share of test rows classified correctly, in per cent.
    error : float or None
        Relative error of the kernel matrix given by the features.
    """

    name: str
    n_rows: int
    training: float
    making: float = 0.0
    steps: int | None = None
    accuracy: float | None = None
    error: float | None = None

    @property
    def seconds(self) -> float:
        """The CPU seconds of the training and of computing the features."""
        return self.making + self.training


@dataclass(frozen=True)
class Ranked:
    """An approximation of a given rank: its error, and the CPU seconds for it."""

    rank: int
    error: float
    seconds: float


class Results(Report):
    """All measurements. Tables are printed row by row."""

    def __init__(self, small: bool) -> None:
        super().__init__()
        self.small = small
        self.runs: dict[str, dict[Variant, Run]] = {}
        self.compared: list[Variant] = [UNREDUCED]  # the variants of Figure 5.1
        self.support: dict[str, tuple[str, str]] = {}
        self.linear: dict[str, list[Trained]] = {}
        self.gaussian: dict[str, list[Trained]] = {}
        self.ranks: dict[str, list[Ranked]] = {}
        self.ranked_rows = 0
        if small:
            self.write("These are few rows of each data set; published figures are for all rows.\n")

    def begin_figure_1(self) -> None:
        """Begin the table of Figure 5.1."""
        self.begin_table(
            "Figure 5.1: variants beside the unreduced method (published: about as many iterations, less time)",
            "data",
            "rows",
            "features",
            "variant",
            "rule",
            "q_U",
            "iterations",
            "more",
            "CPU seconds",
            "time / unreduced",
            "rows used, mean",
            "objective",
        )

    def add_run(self, name: str, variant: Variant, run: Run) -> None:
        """Add a row to the table of Figure 5.1. (!) marks a run with another optimum, or without convergence."""
        of_problem = self.runs.setdefault(name, {})
        of_problem[variant] = run
        whole = of_problem[UNREDUCED]
        self.add_row(
            name,
            f"{run.n_rows:,}",
            str(run.n_features),
            *variant[:2],
            f"{variant[2]:.0%}",
            str(run.steps),
            f"{run.steps / whole.steps - 1:+.0%}",
            f"{run.seconds:.2f}",
            f"{run.seconds / whole.seconds:.2f}",
            f"{run.used:.0%}",
            f"{run.objective:.8g}" + ("" if self.agrees(name, variant) else " (!)"),
        )

    def agrees(self, name: str, variant: Variant) -> bool:
        """Return whether a run has the objective of the run without reduction, to within 1e-6."""
        run, whole = self.runs[name][variant], self.runs[name][UNREDUCED]
        return run.converged and abs(run.objective / whole.objective - 1) <= 1e-6

    def add_sweep(self, name: str, shares: Iterable[float], runs: dict[Variant, Run]) -> None:
        """Add the rows of Figures 5.2 to 5.4: iterations / CPU seconds for each q_U."""
        self.runs[name] |= runs
        for reduction, rule in dict.fromkeys(variant[:2] for variant in runs):
            cells = []
            for share in shares:
                run = runs[reduction, rule, share]
                cells.append(f"{run.steps} / {run.seconds:.2f}" + ("" if run.converged else " (!)"))
            self.add_row(name, reduction, rule, *cells)

    def write_figure_5(self) -> None:
        """Write the table of Figure 5.5."""
        self.begin_table("Figure 5.5: iteration: rows used, mu", "data", "variant", "q_U", *[""] * 7)
        for name, runs in self.runs.items():
            for variant, run in runs.items():
                if variant[:2] != ("adaptive-balanced", "omega") and variant != UNREDUCED:
                    continue
                at = range(0, run.steps, max(1, -(-run.steps // 7)))
                cells = [f"{k + 1}: {run.chosen[k]:,.0f}, {run.mu[k]:.0e}" for k in at]
                self.add_row(name, variant[0], f"{variant[2]:.0%}", *cells, *[""] * (7 - len(cells)))

    def begin_support(self) -> None:
        """Begin Table 5.1."""
        self.begin_table(
            "Table 5.1: support vectors (+/-); published numbers of four digits are lost in the scan",
            "data",
            "features, published",
            "ours",
            "all, published",
            "ours",
            "on the boundary, published",
            "ours",
        )

    def add_support(self, problem: Problem, n_features: int, ours: tuple[str, str]) -> None:
        """Add a row to Table 5.1."""
        self.support[problem.name] = ours
        self.add_row(
            problem.name,
            str(problem.n_features),
            str(n_features),
            problem.support,
            ours[0],
            problem.on_boundary,
            ours[1],
        )

    def write_figure_6(self) -> None:
        """Write the table of Figure 5.6."""
        ours, theirs = self.linear["CRSVM"], self.linear["LIBSVM"]
        self.begin_table(
            "Figure 5.6: Adult, linear, CPU seconds", "data", "rows", "CRSVM", "iterations", "LIBSVM", "LIBSVM / CRSVM"
        )
        for a, b in zip(ours, theirs, strict=True):
            self.add_row(
                a.name,
                f"{a.n_rows:,}",
                f"{a.seconds:.2f}",
                str(a.steps),
                f"{b.seconds:.2f}",
                f"{b.seconds / a.seconds:.1f}",
            )
        self.add_row("exponent", "", find_exponent(ours), "", find_exponent(theirs), "")

    def write_figure_7(self) -> None:
        """Write the tables of Figure 5.7."""
        names = list(self.ranks)
        heads = [f"{name}, {what}" for name in names for what in ("error", "CPU seconds")]
        self.begin_table(f"Figure 5.7a, c: approximations of K by rank, {self.ranked_rows:,} rows", "rank", *heads)
        for together in zip(*self.ranks.values(), strict=True):
            self.add_row(
                str(together[0].rank), *(x for one in together for x in (f"{one.error:.1e}", f"{one.seconds:.2f}"))
            )
        methods = [method for method in self.gaussian if "+" in method]
        heads = [f"{method}, {what}" for method in methods for what in ("error", "CPU seconds")]
        self.begin_table(
            "Figure 5.7b, d: by number of rows (the error is of at most 2,048 rows)", "data", "rows", *heads
        )
        for lines in zip(*(self.gaussian[method] for method in methods), strict=True):
            cells = (x for one in lines for x in (f"{one.error:.1e}", f"{one.making:.2f}"))
            self.add_row(lines[0].name, f"{lines[0].n_rows:,}", *cells)

    def write_figure_8(self) -> None:
        """Write the table of Figure 5.8."""
        methods = list(self.gaussian)
        self.begin_table(
            "Figure 5.8: Adult, Gaussian kernel, CPU seconds (features + training)", "data", "rows", *methods
        )
        for lines in zip(*self.gaussian.values(), strict=True):
            cells = (
                f"{one.seconds:.2f}" + (f" ({one.making:.2f} + {one.training:.2f})" if one.making else "")
                for one in lines
            )
            self.add_row(lines[0].name, f"{lines[0].n_rows:,}", *cells)
        self.add_row("exponent", "", *(find_exponent(lines) for lines in self.gaussian.values()))

    def write_table_2(self) -> None:
        """Write Table 5.2: accuracies, and their differences from LIBSVM's accuracy."""
        self.begin_table(
            "Table 5.2: percent of test rows correct (the published figures are lost in the scan)",
            "data",
            "rows",
            *self.gaussian,
        )
        for lines in zip(*self.gaussian.values(), strict=True):
            exact = lines[0].accuracy
            if exact is not None:
                cells = (f"{one.accuracy:.2f} ({one.accuracy - exact:+.2f})" for one in lines[1:] if one.accuracy)
                self.add_row(lines[0].name, f"{lines[0].n_rows:,}", f"{exact:.2f}", *cells)

    def find_worst_accuracy(self) -> float:
        """Return the largest difference of an approximation's accuracy from LIBSVM's, in percentage points."""
        known = {
            method: {one.name: one.accuracy for one in lines if one.accuracy is not None}
            for method, lines in self.gaussian.items()
        }
        exact = known.get("LIBSVM", {})
        return max((abs(ours[name] - exact[name]) for ours in known.values() for name in exact), default=0.0)


def find_exponent(lines: list[Trained]) -> str:
    """Fit CPU seconds ~ n^p, and return p as text."""
    return f"{fit_exponent((one.n_rows, one.seconds) for one in lines):.2f}"
