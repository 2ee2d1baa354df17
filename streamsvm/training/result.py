"""What comes back of a training: its result at the end, and an event after each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from streamsvm.engines.memory import MemoryPlan
from streamsvm.machine import format_bytes
from streamsvm.models.model import Model
from streamsvm.shown import Shown, draw_gaps, tell_certificate
from streamsvm.training.gaps import sum_up_gaps


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """A trained model, its certificate, and what it cost.

    Attributes
    ----------
    model : Model
        The best model that the solver found.
    status, status_reason : str
        How the run ended (training.statuses), and a sentence with the reason; it is empty if the run has converged.
    solver : str
        Name of the method.
    objective, lower_bound : float, float or None
        The primal objective P of the model, and a proved lower bound D of the optimum (None: nothing is proved).
    relative_gap : float or None
        (P - D) / P, or None without a lower bound.
    rounding_bound : float or None
        The most by which rounding can have moved P and D together, or None if the solver bounds no rounding.
    passes, steps : int
        Full reads of the rows that led to the model, the one for gamma "scale" included, and outer iterations. What
        an interrupted run has to read once more is in read_bytes alone.
    seconds : float
        Time of the run, the parts before it was resumed included, and the read for a ball that is kept.
    read_bytes, scratch_bytes : int
        Bytes read from storage, also for a ball, and written to files for rows that are set aside, by all processes.
    task_seconds : dict of str to float
        Seconds of the tasks of all passes, the sum of all threads and workers: read, verify and compute, also
        before the run was resumed.
    peak_memory_bytes, projected_memory_bytes : int
        Resident memory of the process that needed the most, as measured and as projected before the run.
    file_page_bytes : int or None
        Resident bytes of mapped files, such as libraries, in this process; None if the system does not tell.
    finished : bool
        Whether nothing cut the solver short: it has converged, or made the passes that it was told to make.
    n_rows, n_features : int
        Shape of the data.
    n_support_vectors : int or None
        Support vectors of the model, or None for a linear model.
    model_sha256 : str
        SHA-256 of the model's file.
    arithmetic : list of dict
        The processor and the versions of the libraries that add, on which the last bits of the model depend, of the
        processes of the run; each kind once (numeric.arithmetic).
    problems : list of dict
        Of many classes or labels, the certificate of the problem of each, or of each pair in their order.
    history : list of dict
        One line for each step, as in `history.jsonl`.
    calibration : dict or None
        Of a model with probabilities: how true they are of rows that were held out, as `evaluate` tells it
        (brier_score, log_loss, reliability), and the method. Those rows have scores of models that have not seen them,
        and the function from scores to probabilities is fitted to the rows of the other folds.
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

    def _list_facts(self) -> dict[str, str | None]:
        peak, projected = format_bytes(self.peak_memory_bytes), format_bytes(self.projected_memory_bytes)
        return {
            "status": self.status,
            "reason": self.status_reason or None,
            "solver": self.solver,
            **tell_certificate(self.objective, self.lower_bound),
            "passes": f"{self.passes:,}",
            "seconds": f"{self.seconds:.1f}",
            "memory": f"{peak}, projected {projected}",
        }

    def _draw(self) -> str:
        return draw_gaps([line["relative_gap"] for line in self.history if line["relative_gap"] is not None])

    def to_frame(self) -> Any:
        """Return the history as a frame of pandas, with a row for each step. ImportError without pandas."""
        pandas = import_module("pandas")
        return pandas.DataFrame(self.history)

    def as_json(self) -> dict[str, Any]:
        """Return the result without model and history: the object that `train --json` prints."""
        told = {name: value for name, value in vars(self).items() if name not in ("model", "history")}
        told["model_sha256"] = self.model_sha256
        gaps = sum_up_gaps(self.problems)
        return told if gaps is None else {**told, "gaps": gaps}


@dataclass
class Event:
    """What a listener is told after each step.

    line: the step's line of the history. plan: the memory plan of the run. status: how the run ends with this step, or
    an empty text. make_model: returns the model of this step while the listener is called; it may read rows.
    """

    line: dict[str, Any]
    plan: MemoryPlan
    status: str = ""
    make_model: Callable[[], Model] | None = None


Listener = Callable[[Event], object]  # it returns True to end the run with this step
