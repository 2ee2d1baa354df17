"""The listeners of a fit: the log, the terminal, the user's functions, and scikit-learn's callbacks.

A fit is a task of scikit-learn's callbacks (`sklearn.callback`, scikit-learn 1.9), and each step is a task within it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamsvm.runs.results import Event
from streamsvm.system.errors import InputError
from streamsvm.system.reading import Reading

__all__ = ["CallbackSupportMixin", "FitListener", "StepFunction", "to_callback", "with_callbacks"]

try:
    from sklearn.callback import CallbackSupportMixin, FitCallback, with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks
    CallbackSupportMixin, FitCallback = type("CallbackSupportMixin", (), {}), ()

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


LOGGER = logging.getLogger("streamsvm")
READING_SECONDS = 5.0  # seconds between two lines within passes


@dataclass(frozen=True)
class StepFunction:
    """A user's step function, as a callback of the estimator whose scikit-learn hooks do nothing.

    Step functions are stored among the scikit-learn callbacks of the estimator. A search therefore resets them on its
    estimators when it sets its own callbacks.
    """

    function: Callable[[dict[str, Any]], object]

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing before a fit."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing after a fit."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing before a step."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Do nothing after a step, since `FitListener` calls the function."""


def to_callback(given: Any) -> Any:
    """Return a scikit-learn callback unchanged, or wrap a step function as one. Raises InputError for anything else."""
    if isinstance(given, type):
        raise InputError(f"set_callbacks: {given.__name__} is a class; an instance of it is expected")
    if isinstance(given, FitCallback):
        return given
    if not callable(given):
        message = "neither a function that takes a step, nor a scikit-learn callback"
        raise InputError(f"set_callbacks: {type(given).__name__} is {message}")
    return StepFunction(given)


class FitListener:
    """The listener of a fit: it logs each step, prints it if the estimator is verbose, and calls the callbacks.

    scikit-learn's callbacks see the fit and each of its steps as tasks, each begun and ended once. The first step is
    reported only when it ends, since a resumed run may have no steps left.

    estimator: the estimator that is fitted; its callback context is created here. metadata: the arguments of `fit`
    other than X and y; those that are None are left out.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, metadata: dict[str, Any]) -> None:
        self.estimator, self.label_dtype = estimator, getattr(y, "dtype", None)
        self.data = {"X": X, "y": y}
        self.data["metadata"] = {name: values for name, values in metadata.items() if values is not None} or None
        self.fit: Any = None
        self.step: Any = None
        self._shown_at = time.monotonic()
        callbacks = getattr(estimator, "_skl_callbacks", [])
        self.functions = [each.function for each in callbacks if isinstance(each, StepFunction)]
        if len(callbacks) > len(self.functions) or hasattr(estimator, "_parent_callback_ctx"):
            self.fit = estimator._init_callback_context(max_subtasks=None)
            self._report(self.fit, "begin")

    def __call__(self, event: Event) -> bool:
        """Report a step. Return whether a scikit-learn callback requests to stop the fit."""
        line = event.line
        gap = "unknown" if line["relative_gap"] is None else f"{line['relative_gap']:.2e}"
        self._tell(f"pass {line['passes']}: objective {line['objective']:.6g}, gap {gap}")
        for function in self.functions:
            function(dict(line))
        return self.fit is not None and self._end_step(event)

    def show_reading(self, reading: Reading) -> None:
        """Log the progress within a pass at intervals, and print it if the estimator is verbose."""
        if (now := time.monotonic()) - self._shown_at >= READING_SECONDS:
            self._shown_at = now
            self._tell(reading.describe())

    def _tell(self, message: str) -> None:
        """Log a message with the name of the estimator, and print it if the estimator is verbose."""
        message = f"[{type(self.estimator).__name__}] {message}"
        LOGGER.info("%s", message)
        if getattr(self.estimator, "verbose", 0):
            print(message)

    def end(self, model: Any) -> None:
        """Report the end of the fit and its model to scikit-learn's callbacks."""
        if self.fit is not None:
            self._report(self.fit, "end", lambda: model)

    def _end_step(self, event: Event) -> bool:
        """End the task of a step, and begin the next unless the run is over. Return whether a hook stops the run."""
        if self.step is None:
            self._begin_step()
        is_to_end = self._report(self.step, "end", event.make_model)
        if not (event.status or is_to_end):
            self._begin_step()
        return is_to_end

    def _begin_step(self) -> None:
        self.step = self.fit.subcontext(task_name="step")
        self._report(self.step, "begin")

    def _report(self, task: Any, when: str, make_model: Any = None) -> bool:
        made = None if make_model is None else partial(self._list_attributes, make_model)
        tell = getattr(task, f"call_on_fit_task_{when}")
        return tell(estimator=self.estimator, **self.data, reconstruction_attributes=made) is True

    def _list_attributes(self, make_model: Any) -> dict[str, Any]:
        """Return the attributes of a copy of the estimator fitted with the model."""
        fitted = copy(self.estimator)
        fitted._set_model(make_model(), self.label_dtype)
        return vars(fitted)  # type: ignore[no-any-return]
