"""The layouts in which a hostile problem is fitted, grids of settings, and sequences of edits of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import streamsvm
from streamsvm.estimators.loading import make_estimator
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.problems import ranking as problem_pairs
from streamsvm.runs.update import train_from
from tests.faults.hostile_problems import Hostile

CHUNK_BYTES = 2000
HELD_ROWS = 40  # of "histograms": the pairs of more rows are counted by histograms
ROW_LIMIT = 1 << 20  # streamsvm's own

# A problem, the name of the layout, the rows that `verify` reads, and a function that fits. A grid's problem is known
# after the fit only, so that the function returns problem and model.
Attempt = tuple[str, Any, Callable[[], tuple[Hostile, Any]]]


def list_attempts(case: Hostile, folder: Path) -> Iterator[Attempt]:
    """Ways to fit a problem."""
    problem_pairs.HELD_ROWS = HELD_ROWS if case.loss == "histograms" else ROW_LIMIT
    if case.loss == "edits":
        yield from _edit(case, folder)
        return
    for number, layout in enumerate(case.layouts):
        rows, given = _lay_out(case, layout, folder / f"{number}.zarr")
        make = _tune if case.loss == "tune" else _fit
        yield layout, rows, partial(make, case, layout, given)


def _lay_out(case: Hostile, layout: str, path: Path) -> tuple[Any, dict[str, Any]]:
    """Rows in memory or a path, and the arguments of `fit`."""
    if "stored" in layout:
        store(case, layout, path)
        return path, {"X": path}
    rows = csr_array(case.X) if "sparse" in layout else case.X.astype(case.dtype)
    labels = {} if case.y is None else {"y": case.y}
    return rows, {"X": rows, "sample_weight": case.weight, **labels}


def store(case: Hostile, layout: str, path: Path, **more: Any) -> None:
    """Write a dataset of several chunks, or append to it."""
    rows = csr_array(case.X) if "sparse" in layout else case.X.astype(case.dtype)
    if not more:
        more = {"layout": "sparse" if "sparse" in layout else "dense", "chunk_bytes": CHUNK_BYTES}
        more |= {"regression": True} if case.family.labels == "numbers" else {}
    ingest(rows, path, case.y, sample_weight=case.weight, shuffle=None, **more)


def _fit(case: Hostile, layout: str, given: dict[str, Any]) -> tuple[Hostile, Any]:
    passes = 300 if case.is_kernel else 2000
    named = {"memory": "2GB", "max_passes": passes, "n_jobs": 3 if "threads" in layout else 1, **case.parameters}
    estimator = case.family.estimator(**named)
    if "few resident" in layout and case.holds_rows:
        estimator.set_params(resident_rows=max(2, len(case.X) // 4))
    return case, estimator.fit(**given)


def _tune(case: Hostile, layout: str, given: dict[str, Any]) -> tuple[Hostile, Any]:
    """The best of three costs."""
    costs = [case.parameters["C"] * factor for factor in (0.1, 1.0, 10.0)]
    settings = {name: case.parameters[name] for name in ("tol", "loss")}
    threads = 3 if "threads" in layout else 1
    tuned = streamsvm.tune(**given, C=costs, folds=3, memory="2GB", threads=threads, max_passes=2000, **settings)
    assert all(np.isfinite(trial.mean) for trial in tuned.trials)
    return replace(case, parameters={**case.parameters, "C": tuned.best.C}), tuned.estimator


def _edit(case: Hostile, folder: Path) -> Iterator[Attempt]:
    """Append, delete, relabel: after each, a training from the model and the ball before, and one from scratch."""
    rng, path, start = np.random.default_rng(case.seed), folder / "rows.zarr", None
    layout, n_new = case.layouts[1], len(case.X) // 10
    now = case.take(np.append(np.arange(len(case.X) - n_new - 1), len(case.X) - 1))
    store(now, layout, path)
    for number, name in enumerate(("ingest", "append", "delete", "relabel", "append")):
        added = case.take(np.arange(0, 0))
        if name == "append":
            added = case.take(len(case.X) - 1 - rng.permutation(n_new) - 1)
        elif number:  # the first and the last row stay, so that both classes do
            gone = 1 + rng.choice(len(now.X) - 2, size=n_new, replace=False)
            streamsvm.delete(path, gone)
            added = now.take(gone).relabel() if name == "relabel" else added
            now = now.take(np.delete(np.arange(len(now.X)), gone))
        if len(added.X):
            store(added, layout, path, append=True)
            now = now.join(added)
        run = folder / f"{number}"
        yield f"{layout}, {name}", path, partial(_update, now, path, run, start)
        if start is not None:
            yield f"{layout}, {name}, scratch", path, partial(_update, now, path, folder / f"{number} new", None)
        start = run


def _update(case: Hostile, path: Path, run: Path, start: Path | None) -> tuple[Hostile, Any]:
    options = TrainOptions(
        C=case.parameters["C"],
        tol=case.tol,
        threads=1,
        memory_bytes=2 << 30,
        max_passes=500,
        resident_rows="60%",
        options={"acceleration": "one-read"},
    )
    before = start if start is not None and (start / "model.npz").exists() else None
    result = train_from(streamsvm.open(path), options, run, start_from=before, keep_ball=True, overwrite=True)
    return case, make_estimator(result.model)
