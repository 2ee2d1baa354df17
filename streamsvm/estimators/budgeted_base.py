"""The base class of kernel estimators of bounded size, which learn a stream of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from streamsvm import __version__
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.engines.serial import SerialEngine
from streamsvm.errors import InputError
from streamsvm.estimators.kernel_base import KernelSVM
from streamsvm.interrupts import caught
from streamsvm.methods.budgeted_sgd.setup import Stream, make_stream
from streamsvm.methods.budgeted_sgd.solver import State
from streamsvm.methods.one_against_rest import join_models, share_options, view_classes
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.training.statistics import settle_gamma


class BudgetedSVM(KernelSVM):  # type: ignore[misc]
    """The base class of kernel estimators of bounded size, which learn a stream of rows."""

    solver = "budgeted-sgd"
    tol = 1e-3  # TrainOptions asks for a tolerance, but this solver has no gap to compare with it
    resident_rows = None
    fit_intercept: bool
    expected_rows: int | None
    _stream: list[tuple[Stream, State]]

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None) -> Self:
        """Train anew; a stream of `partial_fit` ends."""
        self.__dict__.pop("_stream", None)
        return super()._fit(X, y, sample_weight, qid)

    def _learn(self, chunk: ArrayDataset, y: Any) -> Self:
        """Learn a chunk of a stream, the first one or the next, and set the fitted attributes."""
        stream = self._stream if hasattr(self, "_stream") else self._start_stream(chunk)
        with caught(), one_blas_thread():
            parts = zip(stream, self._view_problems(chunk), strict=True)
            self._stream = [(problem, problem.learn_chunk(view, state)) for (problem, state), view in parts]
        models = [problem.fit.make_model(state, chunk.take) for problem, state in self._stream]
        model: Any = models[0] if len(models) == 1 else join_models(models, np.asarray(chunk.classes), [], chunk.take)
        about: dict[str, Any] = {
            "solver": self.solver,
            "task": self._options().task,
            "C": float(self.C),
            "version": __version__,
        }
        told = self._stream[0][0].fit.settings
        if "tube" in told:  # `load` makes the estimator from these
            about["problem"] = {name: told[name] for name in ("loss", "tube")}
        about |= {"status": "pass_limit", "objective": sum(state.objective for _, state in self._stream)}
        self._take_model(replace(model, info={**about, "lower_bound": None}), getattr(y, "dtype", None))
        return self

    def _start_stream(self, chunk: ArrayDataset) -> list[tuple[Stream, State]]:
        """Return what learns each problem, and its first state: one problem for two classes, else one a class."""
        for name in ("result_", "history_", "n_iter_", "n_passes_"):  # they belong to an earlier fit
            self.__dict__.pop(name, None)
        if self.class_weight == "balanced":
            raise InputError("class_weight 'balanced' needs all rows; give a stream's weights by label")
        make = partial(make_stream, expected_rows=self.expected_rows)
        options = settle_gamma(SerialEngine(chunk), self._options())
        views = self._view_problems(chunk)
        each = [options] if len(views) == 1 else share_options(chunk, options)
        problems = [make(view, its) for view, its in zip(views, each, strict=True)]
        return [(problem, problem.fit.start()) for problem in problems]

    def _view_problems(self, chunk: ArrayDataset) -> Sequence[Any]:
        """Return the rows as each of the problems of many classes sees them, or as they are for a single problem."""
        return view_classes(chunk) if chunk.classes is not None and len(chunk.classes) > 2 else [chunk]

    def _name_options(self) -> dict[str, Any]:
        own = self._list_own_options()
        own.pop("epsilon", None)  # cutting planes have an option of this name, which is their stop
        bias = {"bias": "free" if self.fit_intercept else "none"}
        return {**self._name_kernel(), "options": {**own, **bias}}
