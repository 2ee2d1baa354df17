"""All runs of a problem, and a table of the cost with which each trainer comes near the proved optimum."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from pipelines.compare.problems import Problem
from pipelines.compare.runs import TARGETS, Run
from pipelines.report import format_head, format_row
from streamsvm.system.machine import format_bytes

HEAD = (
    "trainer",
    *(f"to {target:.0e}, s (CPU s)".replace("e-0", "e-") for target in TARGETS),
    "nearest",
    "passes",
    "peak memory",
    "accuracy",
)


@dataclass(frozen=True)
class Rung:
    """A training that was run several times: the medians of the seconds, and the worst objective."""

    run: Run
    seconds: float
    cpu_seconds: float
    suboptimality: float


@dataclass(frozen=True)
class Outcome:
    """All runs of a problem.

    Attributes
    ----------
    n_rows, n_features, row_bytes : int
        Size of the training rows.
    limit : int
        The time limit of one training, in seconds.
    lower_bound : float
        Proved lower bound of the objective.
    """

    problem: Problem
    n_rows: int
    n_features: int
    row_bytes: int
    limit: int
    lower_bound: float
    runs: tuple[Run, ...]

    def save(self, folder: Path) -> None:
        """Save the outcome as JSON."""
        (folder / f"{self.problem.key}.json").write_text(json.dumps(asdict(self), indent=1))

    @property
    def best(self) -> float:
        """The least objective of all runs."""
        return min((run.objective for run in self.runs if run.objective is not None), default=float("nan"))

    def trainers(self) -> list[str]:
        """Return the trainers in the order of their first runs."""
        return list(dict.fromkeys(run.trainer for run in self.runs if run.trainer != "reference"))

    def suboptimality(self, run: Run) -> float:
        """Return (P - D*) / D*, where D* is the proved lower bound."""
        return float("inf") if run.objective is None else run.objective / self.lower_bound - 1

    def ladder(self, trainer: str) -> list[Rung]:
        """Return the rungs that ended with a model, from coarse to fine."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            if run.trainer == trainer and run.status == "done":
                found.setdefault(run.rung, []).append(run)
        return [
            Rung(
                runs[0],
                median(run.seconds or 0 for run in runs),
                median(run.cpu_seconds or 0 for run in runs),
                max(self.suboptimality(run) for run in runs),
            )
            for runs in found.values()
        ]


def load_outcomes(folder: Path, problems: Iterable[Problem]) -> list[Outcome]:
    """Return the outcomes that this call and earlier calls have saved in the folder."""
    found = []
    for problem in problems:
        file = folder / f"{problem.key}.json"
        if file.exists():
            told = json.loads(file.read_text())
            runs = tuple(Run(**run) for run in told["runs"])
            found.append(Outcome(**{**told, "problem": problem, "runs": runs}))
    return found


def write_table(outcome: Outcome) -> str:
    """Return a heading, a description of the training rows, and the table with a row for each trainer."""
    problem = outcome.problem
    limit = "" if problem.memory is None else f"; cold cache, memory limit {format_bytes(problem.memory)}"
    lines = [
        f"\n### {problem.title}\n",
        f"{outcome.n_rows:,} rows of {outcome.n_features:,} features, {format_bytes(outcome.row_bytes)}{limit}; "
        f"at most {outcome.limit} s a training. "
        f"Proved optimum: at least {outcome.lower_bound:.8g}, and at most {outcome.best:.8g} "
        f"({outcome.best / outcome.lower_bound - 1:.0e} above).\n",
        format_head(*HEAD),
    ]
    return "\n".join([*lines, *(write_row(outcome, trainer) for trainer in outcome.trainers())])


def write_row(outcome: Outcome, trainer: str) -> str:
    """Return the row of a trainer: for each target, the seconds of the first rung that reaches it.

    Passes, memory and accuracy are taken from the first rung that reaches 1e-3, or else from the best rung.
    """
    ladder = outcome.ladder(trainer)
    ends = [run for run in outcome.runs if run.trainer == trainer and run.status != "done"]
    told = "" if not ends else ends[0].status
    if not ladder:
        return format_row(trainer, told, *[""] * (len(HEAD) - 2))
    cells = [write_reach(ladder, target) or told for target in TARGETS]
    nearest = min(ladder, key=lambda rung: rung.suboptimality)
    shown = next((rung for rung in ladder if rung.suboptimality <= TARGETS[1]), nearest)
    run = shown.run
    assert run.peak_bytes is not None
    assert run.accuracy is not None
    cells += [
        f"{nearest.suboptimality:.0e}".replace("e-0", "e-"),
        "" if run.passes is None else f"{run.passes:,}",
        format_bytes(run.peak_bytes),
        f"{100 * run.accuracy:.2f}%",
    ]
    return format_row(trainer, *cells)


def write_reach(ladder: list[Rung], target: float) -> str:
    """Return the seconds of the first rung that reaches the target; an empty text if none does."""
    for rung in ladder:
        if rung.suboptimality <= target:
            return f"{rung.seconds:.3g} ({rung.cpu_seconds:.3g})"
    return ""
