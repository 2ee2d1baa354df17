"""What a grid of settings came to: the score of every setting, and the model of the best one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvm.training.train import Result


@dataclass(frozen=True)
class Trial:
    """A setting, the share of held-out rows (or pairs) that are right in each fold, and its longest fit's passes."""

    C: float
    gamma: float | None
    scores: tuple[float, ...]
    converged: bool
    passes: int

    @property
    def mean(self) -> float:
        """Mean score of the folds."""
        return float(np.mean(self.scores))


@dataclass(frozen=True)
class Tuning:
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

    def as_json(self) -> dict[str, Any]:
        """Return the tuning without the model, as `tune --json` prints it."""
        trials = [{**vars(trial), "mean": trial.mean} for trial in self.trials]
        grid = {"passes": self.passes, "read_bytes": self.read_bytes, "seconds": self.seconds}
        return {**self.result.as_json(), "C": self.best.C, "gamma": self.best.gamma, "trials": trials, "grid": grid}
