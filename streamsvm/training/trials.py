"""What a grid of settings came to: the score of every setting, and the model of the best one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from streamsvm.shown import Shown
from streamsvm.training.train import Result

IN_TUNING = ("status", "objective", "lower bound", "gap")  # of the training on all rows


@dataclass(frozen=True)
class Trial:
    """A setting, its measure on the held-out rows of each fold, and its longest fit's passes.

    The measure is the share of rows (or pairs) that are right, F1 of sets of labels, or minus the mean absolute error.

    others: by name, what else differs between the settings of the grid (loss, epsilon, nu, class_weight).
    """

    C: float
    gamma: float | None
    scores: tuple[float, ...]
    converged: bool
    passes: int
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        """The setting by name, as scikit-learn's searches tell it."""
        return {"C": self.C, **({} if self.gamma is None else {"gamma": self.gamma}), **self.others}

    @property
    def mean(self) -> float:
        """Mean score of the folds."""
        return float(np.mean(self.scores))


@dataclass(frozen=True, repr=False)
class Tuning(Shown):
    """The trials of a grid, the best of them (the smallest C, if several are), and `result`, its training on all rows.

    passes, read_bytes and seconds are the costs of the trials and their scores, the read for gamma="scale" included,
    without the training on all rows. A resumed grid counts all its passes, but only the bytes and seconds since it was
    resumed.
    """

    trials: tuple[Trial, ...]
    best: Trial
    result: Result
    passes: int
    read_bytes: int
    seconds: float

    def _list_facts(self) -> dict[str, str | None]:
        best = ", ".join(f"{name} {value}" for name, value in self.best.params.items())
        return {
            "best": f"{best}, mean score {self.best.mean:.4f}",
            "trials": f"{len(self.trials):,}",
            "passes": f"{self.passes:,}",
            **{name: value for name, value in self.result._list_facts().items() if name in IN_TUNING},
        }

    def to_frame(self) -> Any:
        """Return the trials as a frame of pandas: a row for each setting, with its mean and the score of each fold.

        ImportError without pandas.
        """
        pandas = import_module("pandas")
        rows = []
        for trial in self.trials:
            by_fold = {f"fold {k}": score for k, score in enumerate(trial.scores)}
            told = {"mean": trial.mean, **by_fold, "converged": trial.converged, "passes": trial.passes}
            rows.append({**trial.params, **told})
        return pandas.DataFrame(rows)

    def as_json(self) -> dict[str, Any]:
        """Return the tuning without the model, as `tune --json` prints it."""
        trials = [{**_as_json(trial), "mean": trial.mean} for trial in self.trials]
        problem = self.result.model.problem
        grid = {
            "passes": self.passes,
            "read_bytes": self.read_bytes,
            "seconds": self.seconds,
            "measure": problem.measure,
            "error": problem.error,
            "best_score": problem.best_score,
        }
        best = {"C": self.best.C, "gamma": self.best.gamma, **self.best.others}
        return {**self.result.as_json(), **best, "trials": trials, "grid": grid}


def _as_json(trial: Trial) -> dict[str, Any]:
    known = {name: value for name, value in vars(trial).items() if name != "others"}
    return {**known, **trial.others}
