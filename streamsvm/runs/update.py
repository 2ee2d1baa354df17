"""Training that starts from an existing model: from its weights, or from the ball kept next to it.

The ball (solvers.one_read.kept_ball) represents all the rows from which it was made. If rows were appended or deleted
since the ball was made, only these rows are read. P and the lower bound over all rows follow, provided that the new
optimum lies in the ball. Otherwise a training on all rows starts from the weights of the model. Only the ball is
trusted, not the rest of the old model. The file of the ball stores the fingerprint and the costs of its rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from streamsvm.data.rows.source import RowSource
from streamsvm.data.store.edits import Changes, find_changes
from streamsvm.engines.open import Client
from streamsvm.models.model import load, read_about
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.runs.folder import RunFolder, read_settings, write_result
from streamsvm.runs.results import NO_COST, Listener, PriorCost, Result
from streamsvm.runs.train import EXCLUSIVE, NEEDS_FOLDER, Training, describe, drive, open_for, train
from streamsvm.solvers.one_read.kept_ball import Ball
from streamsvm.solvers.one_read.setup import make_solver
from streamsvm.solvers.one_read.state import OneRead
from streamsvm.solvers.start_from import Update, check_fit, choose_ball_settings, find_ball, pack_ball, unpack_ball
from streamsvm.system import deadline
from streamsvm.system.errors import InputError, MemoryBudgetError, say_count
from streamsvm.system.interrupts import caught
from streamsvm.system.machine import default_budget_bytes, peak_bytes, resident_bytes
from streamsvm.system.npz import unpack_arrays, write_arrays

LOGGER = logging.getLogger("streamsvm")
NAME, FORMATS = "ball.npz", (1, 2)
ALL_ROWS = "All rows are read: {}."


# A usable ball, its SHA-256, the changes to its rows since it was made, and the settings with which it was made
Kept = tuple[Ball, str, Changes, OneRead]


def train_from(
    source: RowSource,
    options: TrainOptions,
    out: str | Path | None = None,
    start_from: str | Path | None = None,
    keep_ball: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener = lambda _: None,
    client: Client | None = None,
    **named: Any,
) -> Result:
    """Train as `train` does, optionally starting from an existing model, and optionally keep a ball for updates.

    Parameters
    ----------
    source, options, out, resume, overwrite, listener, client, **named
        See `train`.
    start_from : str or Path, optional
        A model with the same features and classes: its file, or the folder of its run. If there are more than two
        classes in all, the rows may have new classes, which start as in a training without a model. If a ball lies next
        to the model, and rows were only appended or deleted since, only these rows are read, provided that the new
        optimum lies in the ball.
    keep_ball : bool, default False
        Whether to keep a ball in `out`. After a training on all rows, its centre is the new optimum. Making the ball
        takes one more read of all rows, and another one for a sample unless the rows are shuffled. `Result` counts the
        bytes and seconds of these reads, but not the passes. If the old ball was sufficient, its centre stays and
        nothing more is read.

    Raises
    ------
    InputError
        If the model does not fit the rows, or the ball next to it is damaged or belongs to other rows.
    """
    if keep_ball and out is None:
        raise InputError(NEEDS_FOLDER.format("keep_ball (--keep-ball) writes the ball"))
    if start_from is not None and named.get("keep_dual"):
        raise InputError(EXCLUSIVE)
    model, spent = None, NO_COST
    if start_from is not None:
        model = load(start_from)
        given = Path(start_from), out, resume, overwrite, keep_ball, listener, client
        try:
            result, spent = _update(source, options, *given)
        except MemoryBudgetError as error:
            result = None
            LOGGER.warning(ALL_ROWS.format(f"the ball and the new rows need more memory ({error})"))
        if result is not None:
            return result
    named = {"listener": listener, "client": client, "spent": spent, "overwrite": overwrite, **named}
    if keep_ball:
        choose_ball_settings(source, options)  # raises InputError for problems without a ball
        named["keep_beside"] = partial(_keep_ball, source, options, client)
    return train(source, options, out, resume, start_from=model, **named)


def _keep_ball(source: RowSource, options: TrainOptions, client: Client | None, out: Path, result: Result) -> Result:
    """Make the ball of a model, write it to the folder of the run, and return the result with the cost added."""
    began, settings = time.monotonic(), choose_ball_settings(source, options)
    with open_for(source, options, [[make_solver(source, settings)]], client) as (engine, plan):
        with deadline.limit(options.max_seconds):
            (ball,) = drive(engine, [find_ball(source, settings, result.model)])
        peak = max(peak_bytes(), *engine.costs.peaks.values(), 0)
    _write_ball(out, ball, pack_ball(ball, settings, source.fingerprint))
    return result.add_cost(time.monotonic() - began, engine.costs.read_bytes, peak, plan.projected_bytes)


def _write_ball(out: Path, ball: Ball, packed: dict[str, Any]) -> None:
    """Write the arrays of a ball to the folder of a run. If the ball holds no rows, log a warning instead."""
    if len(ball.near.numbers):
        write_arrays(out / NAME, packed)
    else:
        LOGGER.warning(
            "no ball is kept: too many rows have the same distance from the margin to hold all of them in memory"
        )


def _was_update(out: str | Path | None) -> bool:
    """Return True if the run in a folder is an update, which reads only changed rows, or if no run has begun there.

    RunFolder refuses a folder with other contents.
    """
    if out is None or not (Path(out) / "settings.json").exists():
        return True
    try:
        return "updates" in read_settings(Path(out))
    except InputError:
        return False


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Convert errors from unpacking a ball into an InputError that names its file."""
    try:
        yield
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: damaged, or not a ball ({error}); remove it to read all rows") from error


def _read_ball(model: Path, source: RowSource, options: TrainOptions) -> Kept | None:
    """Return the ball next to a model; None if there is none or, with a warning, if it cannot be used."""
    path = (model if model.is_dir() else model.parent) / NAME
    if not path.exists():
        return None
    if path.stat().st_size > (options.memory_bytes or default_budget_bytes()) - resident_bytes():
        raise MemoryBudgetError(f"{path} is larger than the remaining memory")
    arrays = unpack_arrays(path)
    with _naming(path):
        if read_about(arrays, FORMATS)["format"] == 1:
            LOGGER.warning(ALL_ROWS.format(f"{path} has no bound on the rounding of its sums"))
            return None
        ball, about = unpack_ball(arrays)
    changes = find_changes(source, about["fingerprint"])
    if changes is None:
        raise InputError(
            f"{path}: was kept for other rows: neither the rows of {source.name} nor its rows before an edit; remove "
            "it to read all rows"
        )
    if source.classes is not None and len(source.classes) > 2:
        LOGGER.warning(ALL_ROWS.format("the rows have a new class, but the kept ball is for two classes"))
        return None
    with _naming(path):
        check_fit(ball, source, changes.n_before)
    settings = choose_ball_settings(source, options)
    if about["class_costs"] != list(settings.class_costs) or about["bias_feature"] != settings.bias_feature:
        LOGGER.warning(ALL_ROWS.format("the kept ball was made for other costs (C, class weights, the bias)"))
        return None
    return ball, about["sha256"], changes, settings


def _update(
    source: RowSource,
    options: TrainOptions,
    start_from: Path,
    out: str | Path | None,
    resume: bool,
    overwrite: bool,
    keep_ball: bool,
    listener: Listener,
    client: Client | None,
) -> tuple[Result | None, PriorCost]:
    """Return the result if the ball next to the model and the changed rows prove it; otherwise None and the cost.

    The ball is in memory only during this call, which leaves room for a training on all rows.
    """
    began, found, kept = time.monotonic(), list[Ball](), _read_ball(start_from, source, options)
    if kept is None or (resume and not _was_update(out)):  # a killed update is repeated, since it reads little
        return None, NO_COST
    ball, sha256, changes, settings = kept
    if why := _refuse_ball(ball, changes):
        LOGGER.warning(ALL_ROWS.format(why))
        return None, NO_COST
    fit = Update(changes, settings, ball, sha256, found)
    folder = None if out is None else RunFolder(out, describe(source, options, fit), resume, overwrite)
    with (
        caught(),
        one_blas_thread(),
        closing(folder) if folder else nullcontext(),
        open_for(changes.view(), options, [[fit]], client) as opened,
    ):
        training = Training(source, options, fit, *opened, None, listener)
        result = training.carry_out()
        if result.status != "converged":
            LOGGER.warning(ALL_ROWS.format("the new optimum is not proved to lie in the kept ball"))
            return None, PriorCost(0, opened[0].costs.read_bytes, time.monotonic() - began)
        counts = {"new row": changes.n_new, "deleted row": changes.n_gone}
        read = " and ".join(say_count(count, what) for what, count in counts.items() if count)
        is_one = changes.n_new + changes.n_gone == 1
        LOGGER.info(f"{read} {'was' if is_one else 'were'} read; the other {changes.n_old:,} are known from the ball.")
        if folder:
            packed = pack_ball(found[0], settings, source.fingerprint) if keep_ball else None
            _write_update(folder, training, result, found[0], packed)
    return result, NO_COST


def _refuse_ball(ball: Ball, changes: Changes) -> str:
    """Return why a ball cannot be used after the changes to its rows, or "" if it may be usable."""
    near = ball.near
    if not changes.n_new + changes.n_gone:
        return "no rows were appended or deleted since the ball was kept"
    is_left = not changes.n_gone or (near.radius > 0.0 and changes.renumber(near.numbers)[0].any())
    return "" if is_left else "the deleted rows leave nothing of the kept ball"


def _write_update(
    folder: RunFolder, training: Training, result: Result, ball: Ball, packed: dict[str, Any] | None
) -> None:
    """Write the run of an update, and its packed ball if there is one, to the folder."""
    training.run = folder
    folder.acquire()  # replaces an interrupted update, which had the same settings
    folder.overwrite = True
    folder.begin(training.state, training.source.n_rows)
    for line in training.history:
        folder.record(line)
    training.save()
    if packed is not None:  # write the ball before the model, which completes the run
        _write_ball(folder.path, ball, packed)
    write_result(folder.path, result.model.to_bytes(), result.as_json())
