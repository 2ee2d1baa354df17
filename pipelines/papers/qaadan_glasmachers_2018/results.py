"""The results of qaadan_glasmachers_2018 as Markdown tables, and the comparison with the published claims."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median, pstdev

from pipelines.papers.qaadan_glasmachers_2018.problems import Problem
from pipelines.report import Report


@dataclass(frozen=True)
class Run:
    """A run: its accuracy in per cent, its CPU seconds, and the CPU seconds of merging."""

    accuracy: float
    seconds: float
    merging: float


@dataclass(frozen=True)
class Measured:
    """The runs of one setting, one for each seed."""

    runs: list[Run]

    @property
    def accuracy(self) -> float:
        """The mean accuracy."""
        return mean(run.accuracy for run in self.runs)

    @property
    def spread(self) -> float:
        """The standard deviation of the accuracy."""
        return pstdev([run.accuracy for run in self.runs])

    @property
    def seconds(self) -> float:
        """The median of the CPU seconds."""
        return median(run.seconds for run in self.runs)

    @property
    def merging(self) -> float:
        """The median of the CPU seconds of merging."""
        return median(run.merging for run in self.runs)

    def format_accuracy(self) -> str:
        """Return the mean and the standard deviation of the accuracy as text."""
        return f"{self.accuracy:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True)
class Exact:
    """The accuracy of the exact SVM, and its number of support vectors."""

    accuracy: float
    n_support: int


ByMerge = dict[int, Measured]


class Results(Report):
    """All measurements. Tables are printed row by row."""

    def __init__(self, small: bool) -> None:
        super().__init__()
        self.small = small
        self.exact: dict[str, Exact] = {}
        self.table_1: dict[int, tuple[Measured, Measured]] = {}
        self.figure_1: dict[tuple[str, int], ByMerge] = {}
        self.figures_2_3: dict[str, dict[int, ByMerge]] = {}
        self.at_15: dict[str, tuple[Problem, ByMerge]] = {}
        self.figure_5: dict[tuple[float, float], tuple[Exact, dict[int, ByMerge]]] = {}
        if small:
            self.write("These are at most 2,000 rows and one seed; published figures are for all rows.\n")

    def begin_exact(self) -> None:
        """Begin Table 2."""
        self.begin_table(
            "Table 2: the exact SVM", "data", "C", "gamma", "accuracy, published", "ours", "support vectors"
        )

    def add_exact(self, problem: Problem, accuracy: float, n_support: int) -> None:
        """Add a row to Table 2."""
        self.exact[problem.name] = Exact(accuracy, n_support)
        self.add_row(
            problem.name,
            f"{problem.C:g}",
            f"{problem.gamma:g}",
            f"{problem.accuracy:.2f}",
            f"{accuracy:.2f}",
            f"{n_support:,}",
        )

    def begin_table_1(self) -> None:
        """Begin Table 1."""
        self.begin_table(
            "Table 1: M = 3 in two steps (MM-BSGD) and by gradient (MM-GD), adult",
            "B",
            "merging, in turn, published",
            "ours",
            "by gradient, published",
            "ours",
            "by gradient / in turn, published",
            "ours",
            "accuracy in turn, published",
            "ours",
            "by gradient, published",
            "ours",
        )

    def add_table_1(self, budget: int, published: tuple[float, ...], turn: Measured, gradient: Measured) -> None:
        """Add a row to Table 1."""
        self.table_1[budget] = turn, gradient
        ratio = f"{gradient.merging / turn.merging:.2f}" if turn.merging else ""
        self.add_row(
            f"{budget:,}",
            f"{published[0]:.1f} s",
            f"{turn.merging:.3f} s",
            f"{published[2]:.1f} s",
            f"{gradient.merging:.3f} s",
            f"{published[2] / published[0]:.2f}",
            ratio,
            f"{published[1]:.2f}",
            turn.format_accuracy(),
            f"{published[3]:.2f}",
            gradient.format_accuracy(),
        )

    def begin_figure_1(self) -> None:
        """Begin the table of Figure 1."""
        self.begin_table(
            "Figure 1: share of the time that is spent merging (published: up to 45% with M = 2, falling with M)",
            "data",
            "B",
            "M",
            "CPU seconds",
            "time / M = 2",
            "share of merging",
            "accuracy",
        )

    def add_figure_1(self, name: str, budget: int, runs: ByMerge) -> None:
        """Add rows to the table of Figure 1."""
        self.figure_1[name, budget] = runs
        for m, one in runs.items():
            self.add_row(
                name,
                str(budget),
                str(m),
                f"{one.seconds:.3f}",
                f"{one.seconds / runs[2].seconds:.2f}",
                f"{one.merging / one.seconds:.0%}",
                one.format_accuracy(),
            )

    def begin_figures_2_3(self) -> None:
        """Begin the table of Figures 2 and 3."""
        self.begin_table(
            "Figures 2 and 3: accuracy and CPU seconds",
            "data",
            "B",
            "of the vectors",
            "exact, published",
            *[part for m in (2, 3, 5, 10) for part in (f"M = {m}", "s")],
        )

    def add_figures_2_3(self, problem: Problem, share: float, budget: int, runs: ByMerge) -> None:
        """Add a row to the table of Figures 2 and 3."""
        self.figures_2_3.setdefault(problem.name, {})[budget] = runs
        if share == 0.15:
            self.at_15[problem.name] = problem, runs
        cells = [part for m in (2, 3, 5, 10) for part in (runs[m].format_accuracy(), f"{runs[m].seconds:.3f}")]
        self.add_row(problem.name, f"{budget:,}", f"{share:.0%}", f"{problem.accuracy:.2f}", *cells)

    def begin_figure_5(self) -> None:
        """Begin the table of Figure 5."""
        self.begin_table(
            "Figure 5: C and gamma, phishing",
            "C",
            "gamma",
            "exact",
            "support vectors",
            "B",
            *[f"M = {m}" for m in (2, 3, 4, 5)],
        )

    def add_figure_5(self, C: float, gamma: float, accuracy: float, n_support: int, budget: int, runs: ByMerge) -> None:
        """Add a row to the table of Figure 5."""
        exact, by_budget = self.figure_5.setdefault((C, gamma), (Exact(accuracy, n_support), {}))
        by_budget[budget] = runs
        self.add_row(
            f"{C:g}",
            f"{gamma:g}",
            f"{exact.accuracy:.2f}",
            f"{n_support:,}",
            f"{budget:,}",
            *[one.format_accuracy() for one in runs.values()],
        )

    def judge(self) -> None:
        """Write the table of the paper's claims and our results."""
        self.begin_table("What they say, and what was found", "published", "found")
        shares = [one.merging / one.seconds for runs in self.figure_1.values() for m, one in runs.items() if m == 2]
        if shares:
            self.add_row("merging is up to 45% of the time (M = 2)", f"{min(shares):.0%} to {max(shares):.0%}")
            for m, said in ((3, "M = 3 saves 30 to 50% of the time"), (10, "M = 10 is up to five times as fast")):
                ratios = [runs[m].seconds / runs[2].seconds for runs in self.figure_1.values()]
                self.add_row(said, f"time with M = {m} / M = 2: {min(ratios):.2f} to {max(ratios):.2f}")
        for name, (problem, runs) in self.at_15.items():
            worse = [
                m for m, one in runs.items() if one.accuracy < runs[2].accuracy - max(one.spread, runs[2].spread, 0.1)
            ]
            self.add_row(
                f"{name}, B = 15%: as accurate with moderate M; exact {problem.accuracy:.2f}",
                f"M = 2: {runs[2].format_accuracy()} ({runs[2].accuracy - problem.accuracy:+.2f}); worse with M = "
                f"{', '.join(map(str, worse)) or 'none'}",
            )
        if self.table_1:
            ratios = [b.merging / a.merging for a, b in self.table_1.values() if a.merging]
            apart = max(abs(b.accuracy - a.accuracy) for a, b in self.table_1.values())
            if ratios:
                self.add_row(
                    "by gradient is a bit faster than in turn, errors are nearly equal",
                    f"time / in turn {min(ratios):.2f} to {max(ratios):.2f}; accuracy at most {apart:.2f} apart",
                )
