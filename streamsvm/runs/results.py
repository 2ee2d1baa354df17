"""The result of a training, its possible statuses, and the event after each of its steps.

docs/statuses.md shows the statuses as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from streamsvm.engines.open import MemoryPlan
from streamsvm.models.model import Model
from streamsvm.options import TrainOptions
from streamsvm.solvers.solver import Report
from streamsvm.system.display import Shown, describe_certificate, draw_gaps
from streamsvm.system.errors import say_count
from streamsvm.system.machine import format_bytes


@dataclass(frozen=True)
class Status:
    """A status: the exit code of the command, whether a resumed run has nothing left to do, and the meaning."""

    exit_code: int
    is_final: bool
    meaning: str


STATUSES = {
    "converged": Status(0, True, "The relative gap over all rows is proved to be at most tol, rounding included."),
    "paper_stop": Status(
        0,
        True,
        "The run met the paper's stopping test with the accuracy of `--option epsilon`; the reported gap exceeds tol.",
    ),
    "stationary": Status(
        0,
        True,
        "The kernel is indefinite or `precomputed`, so there is no lower bound. Every row meets its optimality "
        "condition within the tolerance.",
    ),
    "early_stop": Status(
        0,
        True,
        "One of three: the score on the rows of `--eval` has not improved for `--patience` steps; a callback of an "
        "estimator stopped the run; or the model belongs to a fold that calibrates probabilities (such a model may "
        "stop at a larger gap).",
    ),
    "pass_limit": Status(
        3,
        False,
        "The run has made the allowed number of passes. After the epochs of budgeted SGD the exit status is 0.",
    ),
    "time_limit": Status(3, False, "The allowed time has passed."),
    "pair_limit": Status(3, False, "The run has made the allowed number of pair steps (`max_pairs`)."),
    "stalled": Status(3, True, "No step improves P or D any more; `status_reason` gives the reason."),
    "interrupted": Status(1, False, "A signal ended the run. The checkpoint of its last finished step is on disk."),
}
DONE = tuple(name for name, status in STATUSES.items() if status.exit_code == 0)


def describe_status(status: str, report: Report, options: TrainOptions, is_resumed: bool = False) -> str:
    """Return the reason for a status, with its figures; "" if the run has converged."""
    gap, passes = report.relative_gap, say_count(report.passes, "pass")
    proved = "" if gap is None else f" at a gap of {gap:.1e} (tol {options.tol:g})"
    match status:
        case "pass_limit" if report.finished:
            return "the requested number of passes has been made; this solver proves no gap"
        case "pass_limit":
            before = (
                "; it includes the passes before --resume, and a larger --max-passes continues the run" * is_resumed
            )
            return f"the limit of {passes} was reached{proved}{before}"
        case "pair_limit":
            return f"the limit of {say_count(int(options.options['max_pairs']), 'pair step')} was reached{proved}"
        case "early_stop":
            return f"the run was stopped early, after {passes}{proved}"
        case "time_limit":
            return f"the time limit was reached after {passes}{proved}"
        case "interrupted":
            return f"a signal ended the run after {passes}{proved}; its checkpoint is written"
        case "stalled" if report.problems:
            return _describe_stalled_problems(report.problems, options)
        case "stalled" if gap is None:
            return "the steps no longer change the multipliers, and the kernel has no lower bound"
        case "stalled":
            return _describe_stalled(report, report.report_rounding(status) or 0.0, options, proved)
        case "paper_stop":
            return f"the worst cut is violated by at most epsilon; the proved gap is {gap:.1e}"
        case "stationary":
            return "every row meets its condition within the tolerance; an indefinite kernel has no lower bound"
    return ""


def _describe_stalled(report: Report, rounding: float, options: TrainOptions, proved: str) -> str:
    """Describe a stalled run. rounding: how far rounding can move the objective. proved: the proved gap, as text."""
    if report.lower_bound == 0.0 and (report.objective == 0.0 or options.task in NO_FUNCTION):
        told = f"the proved lower bound is 0, and rounding can move the objective, {report.objective:.1e}, by "
        told = (
            f"{told}{rounding:.1e}" if rounding else "the objective is 0, as it is with very small sample weights, too"
        )
        return told + NO_FUNCTION.get(options.task, "")
    share = f"{rounding / report.objective:.1e}" if rounding < report.objective else "all"
    is_more = rounding > options.tol * report.objective
    limit = "more than tol allows" if is_more else "less than tol, so the solver has stopped short"
    return (
        f"neither the objective nor its lower bound improves any more{proved}; rounding can account for {share} of the "
        f"objective, {limit}: scale the features to about 1, or lower C and the weights"
    )


def _describe_stalled_problems(problems: Sequence[dict[str, Any]], options: TrainOptions) -> str:
    """Describe the stalled problems of a run that solves several problems."""
    stalled = [one for one in problems if one["status"] == "stalled"]
    worst = max(stalled, key=lambda one: one["relative_gap"] or 0.0)
    gap, zero = worst["relative_gap"], NO_FUNCTION.get(options.task, "") if worst["lower_bound"] == 0.0 else ""
    least = "" if gap is None else f", whose gap is {gap:.1e} (tol {options.tol:g})"
    return f"{len(stalled)} of {len(problems)} problems stalled, such as {worst.get('label', 'one')}{least}{zero}"


NO_FUNCTION = {  # by task, for tasks with nu in place of C
    "one-class": "; the optimum is 0 if the origin lies among the rows, so no function of this kernel is "
    "positive on them alone; the kernel rbf helps (OneClassSVM, train --kernel rbf)",
    "nu-classify": "; the optimum is 0 if the classes overlap with this nu, so no function of this kernel separates "
    "them; a larger nu helps, or the kernel rbf (train --kernel rbf)",
}


def sum_up_gaps(problems: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the mean gap, the worst gap and its label, and the labels that did not converge.

    None if there are fewer than two problems, or if gaps or labels are missing.
    """
    gaps = [one["relative_gap"] for one in problems]
    if len(gaps) < 2 or None in gaps or "label" not in problems[0]:
        return None
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    return {
        "mean": sum(gaps) / len(gaps),
        "worst": gaps[worst],
        "worst_label": problems[worst]["label"],
        "unproved": [one["label"] for one in problems if one["status"] != "converged"],
    }


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """A trained model, its certificate, and its cost.

    Attributes
    ----------
    model : Model
        The best model found.
    status, status_reason : str
        How the run ended (runs.results), and why; the reason is empty if the run has converged.
    solver : str
        Name of the solver.
    objective, lower_bound : float, float or None
        The primal objective P of the model, and a proved lower bound D on the optimum (None: no proof).
    relative_gap : float or None
        (P - D) / P, or None without a lower bound.
    rounding_bound : float or None
        Bound on the joint rounding error of P and D, or None if the solver has none.
    passes, steps : int
        Full reads of the rows that led to the model (including one for gamma "scale"), and outer iterations. Rows that
        are read again after an interruption count in read_bytes only.
    seconds : float
        Time of the run, including the time before it was resumed and the time of reads for a kept ball.
    read_bytes, scratch_bytes : int
        Bytes that all processes read from storage (including reads for a kept ball) and wrote to files of spooled rows.
    task_seconds : dict of str to float
        Seconds that the tasks of all passes spent on each part (read, verify, compute), summed over all threads and
        workers. The time before the run was resumed is included.
    peak_memory_bytes, projected_memory_bytes : int
        Resident memory of the process that needs the most, as measured and as projected before the run.
    file_page_bytes : int or None
        Resident bytes of mapped files, such as libraries, in this process; None if unknown.
    finished : bool
        Whether the solver ran to its end: it has converged, or made all requested passes.
    n_rows, n_features : int
        Shape of the data.
    n_support_vectors : int or None
        Support vectors of the model, or None for a linear model.
    model_sha256 : str
        SHA-256 of the model's file.
    arithmetic : list of dict
        The processor types and library versions of the processes of the run. The last bits of the model depend on them
        (numeric.compilation).
    problems : list of dict
        If there are several problems, the certificate of each class, label or pair of classes, in order.
    history : list of dict
        One line for each step, as in `history.jsonl`.
    calibration : dict or None
        For a model with probabilities: the method, and the reliability on held-out rows as in `evaluate` (brier_score,
        log_loss, reliability). Each row is scored by a model that was trained without it, and its probability comes
        from a function fitted to the other folds.
    """

    model: Model
    status: str
    status_reason: str
    solver: str
    objective: float
    lower_bound: float | None
    relative_gap: float | None
    rounding_bound: float | None
    passes: int
    steps: int
    seconds: float
    read_bytes: int
    scratch_bytes: int
    task_seconds: dict[str, float]
    peak_memory_bytes: int
    projected_memory_bytes: int
    file_page_bytes: int | None
    finished: bool
    n_rows: int
    n_features: int
    n_support_vectors: int | None
    arithmetic: list[dict[str, str]]
    problems: list[dict[str, Any]]
    history: list[dict[str, Any]]
    calibration: dict[str, Any] | None = None

    @property
    def model_sha256(self) -> str:
        """The SHA-256 of the model's file."""
        return str(self.model.sha256)

    def add_cost(self, seconds: float, read_bytes: int, peak_bytes: int, projected_bytes: int) -> Result:
        """Return the result with the cost of further work on the rows."""
        return replace(
            self,
            seconds=self.seconds + seconds,
            read_bytes=self.read_bytes + read_bytes,
            peak_memory_bytes=max(self.peak_memory_bytes, peak_bytes),
            projected_memory_bytes=max(self.projected_memory_bytes, projected_bytes),
        )

    def _list_facts(self) -> dict[str, str | None]:
        peak, projected = format_bytes(self.peak_memory_bytes), format_bytes(self.projected_memory_bytes)
        return {
            "status": self.status,
            "reason": self.status_reason or None,
            "solver": self.solver,
            **describe_certificate(self.objective, self.lower_bound),
            "passes": f"{self.passes:,}",
            "seconds": f"{self.seconds:.1f}",
            "memory": f"{peak}, projected {projected}",
        }

    def _draw(self) -> str:
        return draw_gaps([line["relative_gap"] for line in self.history if line["relative_gap"] is not None])

    def to_frame(self) -> Any:
        """Return the history as a pandas DataFrame, one row per step. Raises ImportError without pandas."""
        return import_module("pandas").DataFrame(self.history)

    def as_json(self) -> dict[str, Any]:
        """Return the result without its model and history, as `train --json` prints it."""
        facts = {name: value for name, value in vars(self).items() if name not in ("model", "history")}
        facts["model_sha256"] = self.model_sha256
        gaps = sum_up_gaps(self.problems)
        return facts if gaps is None else {**facts, "gaps": gaps}


@dataclass
class Event:
    """The argument of a listener, which is called after each step.

    line: the line of the step in the history. plan: the memory plan of the run. status: the status if the run ends with
    this step, otherwise "". make_model: returns the model of this step. It can be called only during the call of the
    listener, and may read rows.
    """

    line: dict[str, Any]
    plan: MemoryPlan
    status: str = ""
    make_model: Callable[[], Model] | None = None


Listener = Callable[[Event], object]  # returns True to end the run after this step


@dataclass(frozen=True)
class PriorCost:
    """The cost of earlier work on the rows, such as the passes that find a feature map."""

    passes: int = 0
    read_bytes: int = 0
    seconds: float = 0.0
    projected_bytes: int = 0


NO_COST = PriorCost()
