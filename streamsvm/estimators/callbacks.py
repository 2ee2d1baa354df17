"""Who is told of the steps of a fit: the log, the terminal, functions of the user, and callbacks of scikit-learn.

A fit is a task of scikit-learn's callbacks (`sklearn.callback`, scikit-learn 1.9), and each step is a task within it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamsvm.errors import InputError
from streamsvm.training.result import Event

__all__ = ["CallbackSupportMixin", "Listeners", "StepFunction", "listen", "to_callback", "with_callbacks"]

try:
    from sklearn.callback import CallbackSupportMixin, FitCallback, with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks
    CallbackSupportMixin, FitCallback = type("CallbackSupportMixin", (), {}), ()

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


LOGGER = logging.getLogger("streamsvm")

Callback = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class StepFunction:
    """A function of a step among the callbacks of an estimator. It has scikit-learn's hooks, which do nothing."""

    function: Callback

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing before a fit."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing after a fit."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing before a step."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Do nothing after a step, since `Listeners` calls the function."""


def to_callback(given: Any) -> Any:
    """Return a callback of scikit-learn as it is, and a function of a step with the hooks of one; InputError else."""
    if isinstance(given, type):
        raise InputError(f"set_callbacks: {given.__name__} is a class; an instance of it is expected")
    if isinstance(given, FitCallback):
        return given
    if not callable(given):
        told = "neither a function of a step nor a callback of scikit-learn"
        raise InputError(f"set_callbacks: {type(given).__name__} is {told}")
    return StepFunction(given)


class StepTasks:
    """The tasks of a fit for scikit-learn's callbacks: the fit, and one for each step, each begun and ended once.

    The first step is told when it ends, since a run that goes on from a checkpoint may have no steps left.

    estimator: the one that is fitted, whose context is made here. data: X, y and metadata, which the hooks are told.
    label_dtype: the type of the labels given to `fit`.
    """

    def __init__(self, estimator: Any, data: dict[str, Any], label_dtype: Any) -> None:
        self.estimator, self.data, self.label_dtype = estimator, data, label_dtype
        self.root, self.step = estimator._init_callback_context(max_subtasks=None), None
        self._tell(self.root, "begin")

    def end_step(self, event: Event) -> bool:
        """End the task of a step, and begin the next one unless the run is over. Return whether a hook ends the run."""
        if self.step is None:
            self._begin_step()
        is_to_end = self._tell(self.step, "end", event.make_model)
        if not (event.status or is_to_end):
            self._begin_step()
        return is_to_end

    def end(self, model: Any) -> None:
        """End the task of the fit."""
        self._tell(self.root, "end", lambda: model)

    def _begin_step(self) -> None:
        self.step = self.root.subcontext(task_name="step")
        self._tell(self.step, "begin")

    def _tell(self, task: Any, when: str, make_model: Any = None) -> bool:
        made = None if make_model is None else partial(self._list_attributes, make_model)
        tell = getattr(task, f"call_on_fit_task_{when}")
        return tell(estimator=self.estimator, **self.data, reconstruction_attributes=made) is True

    def _list_attributes(self, make_model: Any) -> dict[str, Any]:
        """Return the attributes that make a copy of the estimator one that has the model."""
        fitted = copy(self.estimator)
        fitted._take_model(make_model(), self.label_dtype)
        attributes: dict[str, Any] = vars(fitted)
        return attributes


@dataclass(frozen=True)
class Listeners:
    """Called after each step. name: of the estimator. is_verbose: whether steps are printed; INFO logs them anyway.

    functions: what to call with the line of the step. tasks: of scikit-learn's callbacks, or None if there are none.
    """

    name: str
    is_verbose: bool
    functions: tuple[Callback, ...]
    tasks: StepTasks | None = None

    def __call__(self, event: Event) -> bool:
        """Tell them of a step. Return whether one of scikit-learn's callbacks asks for the end of the fit."""
        line = event.line
        gap = line["relative_gap"]
        shown = "unknown" if gap is None else f"{gap:.2e}"
        told = f"[{self.name}] pass {line['passes']}: objective {line['objective']:.6g}, gap {shown}"
        LOGGER.info("%s", told)
        if self.is_verbose:
            print(told)
        for function in self.functions:
            function(dict(line))
        return self.tasks is not None and self.tasks.end_step(event)

    def end(self, model: Any) -> None:
        """Tell scikit-learn's callbacks of the end of the fit, and of its model."""
        if self.tasks is not None:
            self.tasks.end(model)


def listen(estimator: Any, X: Any, y: Any, metadata: dict[str, Any]) -> Listeners:
    """Return who is told of the steps of a fit. metadata: what the fit takes beside X and y; None is left out."""
    callbacks = getattr(estimator, "_skl_callbacks", [])
    functions = tuple(each.function for each in callbacks if isinstance(each, StepFunction))
    tasks = None
    if len(callbacks) > len(functions) or hasattr(estimator, "_parent_callback_ctx"):
        told = {name: values for name, values in metadata.items() if values is not None}
        data = {"X": X, "y": y, "metadata": told or None}
        tasks = StepTasks(estimator, data, getattr(y, "dtype", None))
    return Listeners(type(estimator).__name__, bool(getattr(estimator, "verbose", 0)), functions, tasks)
