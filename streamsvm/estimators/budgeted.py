"""Kernel classifier of bounded size, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from threadpoolctl import threadpool_limits

from streamsvm import __version__
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.engines.serial import SerialEngine
from streamsvm.errors import InputError
from streamsvm.estimators.inputs import check_chunk
from streamsvm.estimators.kernel import KernelSVC
from streamsvm.interrupts import caught
from streamsvm.methods.budgeted_sgd.setup import BudgetedModels, make_stream
from streamsvm.methods.budgeted_sgd.solver import State
from streamsvm.methods.one_against_rest import join_models, make_each, view_class
from streamsvm.training.statistics import settle_gamma

if TYPE_CHECKING:
    from distributed import Client


class BudgetedSVC(KernelSVC):
    """Kernel classifier with at most `budget` support vectors a class, by one shuffled stream of the rows.

        P(w, b) = 1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    c_i = class_weight[y_i] * sample_weight_i. Two classes are one problem of `budget` vectors; more are one against the
    rest, as in LinearSVC, each with its own vectors, learned from the same rows in the same order. For data so large
    that the support vectors of an exact SVM would not fit: memory and the time of a row do not grow with the rows.
    Nothing is proved: `status_` is "pass_limit" after the epochs asked for, lower_bound_ and gap_ are None, objective_
    is an estimate from up to 1,024 rows.

    Parameters: C, budget, merge (support vectors that become one where the budget is exceeded; more is faster, less
    exact), kernel, gamma, degree, coef0 (as in SVC; "merge" and "gradient-merge" are for "rbf"), maintenance ("merge",
    "gradient-merge", "projection" or "removal"), epochs, pack (rows met at once; changes nothing but the time),
    replicas (R models of budget / R learn side by side on shares of the rows, on as many threads or workers; the model
    is their average), fit_intercept (a free bias; without, b = 0), expected_rows (for partial_fit alone: n of lambda =
    1 / (n C), over which the rate of learning falls, to begin anew; None: the rows of the first call), class_weight,
    memory, n_jobs, client, checkpoint, max_passes, random_state: as in LinearSVC.

    fit takes what LinearSVC takes. Fitted: as SVC.
    """

    solver = "budgeted-sgd"
    tol = 1e-3  # nobody looks at it: there is no gap
    resident_rows = None
    _stream: list[tuple[BudgetedModels, State]]

    def __init__(
        self, C: float = 1.0, *, budget: int = 500, merge: int = 2, kernel: str = "rbf", gamma: float | str = "scale",
        degree: int = 3, coef0: float = 0.0, maintenance: str = "merge", epochs: int = 1, pack: int = 64,
        replicas: int = 1, fit_intercept: bool = False, expected_rows: int | None = None, class_weight: Any = None,
        memory: str | int | None = None, n_jobs: int | None = None, client: Client | None = None,
        checkpoint: str | Path | None = None, max_passes: int | None = None, random_state: int | None = 0,
    ) -> None:  # fmt: skip
        self.C = C
        self.budget = budget
        self.merge = merge
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.maintenance = maintenance
        self.epochs = epochs
        self.pack = pack
        self.replicas = replicas
        self.fit_intercept = fit_intercept
        self.expected_rows = expected_rows
        self.class_weight = class_weight
        self.memory = memory
        self.n_jobs = n_jobs
        self.client = client
        self.checkpoint = checkpoint
        self.max_passes = max_passes
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train anew; see the class. ValueError (InputError) for bad data and settings."""
        self.__dict__.pop("_stream", None)
        return super().fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn the rows of one chunk of a stream, in an order drawn by the seed; classes: all, at the first call.

        Settings are those of the first call: so are lambda = 1 / (expected_rows C) and gamma="scale". After `fit`, or
        `load`, a new stream begins. ValueError (InputError) for bad data and settings.
        """
        first = not hasattr(self, "_stream")
        if first and classes is None and not hasattr(self, "classes_"):
            raise InputError("classes must be passed on the first call to partial_fit")
        known = classes if first and classes is not None else self.classes_
        chunk = check_chunk(self, X, y, known, sample_weight, reset=first)
        stream = self._start_stream(chunk) if first else self._stream
        seen = [chunk] if len(stream) == 1 else [view_class(chunk, code) for code in range(len(stream))]
        with caught(), threadpool_limits(1):
            learned = [
                (algorithm, algorithm.learn_chunk(view, state))
                for (algorithm, state), view in zip(stream, seen, strict=True)
            ]
        self._stream = learned
        models = [algorithm.make_model(chunk, state, chunk.take) for algorithm, state in self._stream]
        model: Any = models[0] if len(models) == 1 else join_models(models, [], chunk.take)
        about = {"solver": self.solver, "C": float(self.C), "version": __version__, "status": "pass_limit"}
        info = {**about, "objective": sum(state.objective for _, state in self._stream), "lower_bound": None}
        self._take_model(replace(model, info=info), getattr(y, "dtype", None))
        return self

    def _start_stream(self, chunk: ArrayDataset) -> list[tuple[BudgetedModels, State]]:
        """Return what learns each of the problems of many classes, or the one of two, and that it knows nothing yet."""
        for name in ("result_", "history_", "n_iter_", "n_passes_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if self.class_weight == "balanced":
            raise InputError("class_weight 'balanced' needs all rows; give a stream's weights by label")
        make = partial(make_stream, expected_rows=self.expected_rows)
        options = settle_gamma(SerialEngine(chunk), self._options())
        several = chunk.classes is not None and len(chunk.classes) > 2
        algorithms = [make(chunk, options)] if not several else [one for _, one in make_each(chunk, options, make)]
        return [(algorithm, algorithm.start_state(chunk)) for algorithm in algorithms]

    def _name_options(self) -> dict[str, Any]:
        names = ("budget", "merge", "maintenance", "epochs", "pack", "replicas")
        given = {name: str(getattr(self, name)) for name in names}
        return {**self._name_kernel(), "options": {**given, "bias": "free" if self.fit_intercept else "none"}}
