"""Training that starts from a model that there is: from its weights, or from the ball that was kept beside it.

The ball (methods.cutting_plane.kept_ball) stands for all rows that it was made of. If rows were appended or deleted
since, they are read alone, and P and the lower bound of all rows follow as long as the new optimum lies in the ball.
Otherwise all rows are read, from the weights of the model on. Nothing is taken from the old model on trust but the
ball, which is bound to the fingerprint of its rows and to their costs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.data.changes import Changes, find_changes
from streamsvm.data.source import RowSource
from streamsvm.engines.one_read import answer_all
from streamsvm.engines.opening import Opened
from streamsvm.errors import InputError, MemoryBudgetError, say_count
from streamsvm.files import unpack_arrays, write_arrays
from streamsvm.interrupts import caught
from streamsvm.machine import default_budget_bytes, peak_bytes, resident_bytes
from streamsvm.methods.balls import (
    Ball,
    Finder,
    check_fit,
    choose_ball_settings,
    find_ball,
    make_fit,
    pack_ball,
    read_about,
    set_up_update,
    unpack_ball,
)
from streamsvm.models.model import load
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.training.loop import Training
from streamsvm.training.result import Listener, Result
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.spent import NOTHING, Spent
from streamsvm.training.train import describe, open_for, train

if TYPE_CHECKING:
    from distributed import Client

LOGGER = logging.getLogger("streamsvm")
NAME = "ball.npz"
ALL_ROWS = "All rows are read: {}."


@dataclass(frozen=True)
class _Kept:
    """A ball that fits the rows and costs of a training, its SHA-256, and what has changed since in its rows."""

    ball: Ball
    sha256: str
    changes: Changes


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
    """Train as `train` does, from a model that there is, and keep a ball for the next time.

    Parameters
    ----------
    source, options, out, resume, overwrite, listener, client, **named
        See `train`.
    start_from : str or Path, optional
        A model of the same features and classes: its file, or the folder of its run. The rows may have classes besides,
        which start anew if there are more than two in all. If a ball lies beside it, and the
        rows of the source are those of the ball but for rows that were appended or deleted since, only these are read,
        as long as the new optimum lies in the ball.
    keep_ball : bool, default False
        Whether to keep a ball in `out`. After a training on all rows its centre is the new optimum, which takes one
        more read of all rows, and one for a sample unless the rows are shuffled. `Result` counts their bytes and
        seconds; its passes are those that led to the model. If the ball of the model was enough, its centre stays, and
        nothing more is read.

    Raises
    ------
    InputError
        If the model does not fit, or the ball beside it is damaged or belongs to other rows.
    """
    if keep_ball and out is None:
        raise InputError("the ball is kept in the folder of the run: say where that is to be")
    if start_from is not None and named.get("keep_dual"):
        raise InputError("start_from (--start-from) and the dual point (--keep-dual) do not go together")
    model, spent = None, NOTHING
    if start_from is not None:
        model = load(start_from)
        given = (out, resume, overwrite, keep_ball, listener, client)
        result, spent = _try_update(source, options, Path(start_from), *given)
        if result is not None:
            return result
    named = {"listener": listener, "client": client, "spent": spent, "overwrite": overwrite, **named}
    if keep_ball:
        choose_ball_settings(source, options)  # refuses problems that have no ball
        named["keep_beside"] = partial(_keep_ball, source, options, client)
    return train(source, options, out, resume, start_from=model, **named)


def _try_update(
    source: RowSource, options: TrainOptions, start_from: Path, out: str | Path | None, resume: bool, *given: Any
) -> tuple[Result | None, Spent]:
    """Return the result if a ball lies beside the model and proves it with what has changed; what was spent if not.

    The ball is in memory no longer than this takes, so that a training on all rows has room.
    """
    try:
        kept = _read_ball(start_from, source, options)
        is_update = not resume or _was_update(out)  # an update that was killed is made again: it reads little
        if kept is not None and is_update:
            return _update(source, options, kept, out, resume, *given)
    except MemoryBudgetError as error:
        LOGGER.warning(ALL_ROWS.format(f"the ball and the new rows need more memory ({error})"))
    return None, NOTHING


def _keep_ball(source: RowSource, options: TrainOptions, client: Client | None, out: Path, result: Result) -> Result:
    """Find the ball of a model, write it into the folder of the run, and return the result with the cost."""
    began, settings = time.monotonic(), choose_ball_settings(source, options)
    with open_for(source, options, [[make_fit(source, settings)]], client) as opened:
        engine, plan = opened
        ball = _carry_out(opened, find_ball(source, settings, result.model))
        peak = max(peak_bytes(), *engine.costs.peaks.values(), 0)
    _write_ball(out, ball, pack_ball(ball, settings, source.fingerprint))
    return replace(
        result,
        seconds=result.seconds + time.monotonic() - began,
        read_bytes=result.read_bytes + engine.costs.read_bytes,
        peak_memory_bytes=max(result.peak_memory_bytes, peak),
        projected_memory_bytes=max(result.projected_memory_bytes, plan.projected_bytes),
    )


def _write_ball(out: Path, ball: Ball, packed: dict[str, Any]) -> None:
    """Write a ball, which is packed, into a folder, unless it holds no rows."""
    if len(ball.near.numbers):
        write_arrays(out / NAME, packed)
    else:
        LOGGER.warning("no ball is kept: more rows are equally near to the margin than may be resident")


def _was_update(out: str | Path | None) -> bool:
    """Return whether the run in a folder read the new rows alone, or none has begun there.

    What else is there is refused by RunFolder.
    """
    file = Path(out or "") / "settings.json"
    if out is None or not file.exists():
        return True
    try:
        return "updates" in dict(json.loads(file.read_bytes()))
    except (ValueError, TypeError, RecursionError):
        return False


def _carry_out(opened: Opened, finder: Finder) -> Ball:
    """Return the ball that is found when the requests are answered."""
    answer = None
    try:
        while True:
            (answer,) = answer_all(opened[0], [finder.send(answer)])
    except StopIteration as end:
        ball: Ball = end.value
        return ball


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise an InputError that names the file for what is wrong with its ball."""
    try:
        yield
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: damaged, or no ball ({error}); remove it to read all rows") from error


def _read_ball(model: Path, source: RowSource, options: TrainOptions) -> _Kept | None:
    """Return the ball beside a model if it fits; None if there is none, or if its costs are others, which is said."""
    path = (model if model.is_dir() else model.parent) / NAME
    if not path.exists():
        return None
    if path.stat().st_size > (options.memory_bytes or default_budget_bytes()) - resident_bytes():
        raise MemoryBudgetError(f"{path} is larger than the memory that is left")
    arrays = unpack_arrays(path)
    with _naming(path):
        if read_about(arrays).get("format") == 1:
            LOGGER.warning(ALL_ROWS.format(f"{path} does not record what bounds the rounding of its sums"))
            return None
        ball, about = unpack_ball(arrays)
    changes = find_changes(source, about["fingerprint"])
    if changes is None:
        raise InputError(
            f"{path}: was kept for other rows than those of {source.name}, or than those that it had before it was "
            "edited; remove it to read all rows"
        )
    if source.classes is not None and len(source.classes) > 2:
        LOGGER.warning(ALL_ROWS.format("the rows have a new class, and the ball that was kept is of two"))
        return None
    with _naming(path):
        check_fit(ball, source, changes.n_before)
    settings = choose_ball_settings(source, options)
    if about["class_costs"] != list(settings.class_costs) or about["bias_feature"] != settings.bias_feature:
        LOGGER.warning(ALL_ROWS.format("the ball that was kept is for other costs (C, class weights, the bias)"))
        return None
    return _Kept(ball, about["sha256"], changes)


def _update(
    source: RowSource,
    options: TrainOptions,
    kept: _Kept,
    out: str | Path | None,
    resume: bool,
    overwrite: bool,
    keep_ball: bool,
    listener: Listener,
    client: Client | None,
) -> tuple[Result | None, Spent]:
    """Return the result if the changed rows and the ball prove it, and what was spent otherwise."""
    began, found, changes = time.monotonic(), list[Ball](), kept.changes
    if why := _tell_why_not(kept):
        LOGGER.warning(ALL_ROWS.format(why))
        return None, NOTHING
    settings = choose_ball_settings(source, options)
    fit = set_up_update(changes, settings, kept.ball, kept.sha256, found)
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
            LOGGER.warning(ALL_ROWS.format("the new optimum is not proved to lie in the ball that was kept"))
            return None, Spent(0, opened[0].costs.read_bytes, time.monotonic() - began)
        counts = {"new row": changes.n_new, "deleted row": changes.n_gone}
        read = " and ".join(say_count(count, what) for what, count in counts.items() if count)
        is_one = changes.n_new + changes.n_gone == 1
        LOGGER.info(f"{read} {'was' if is_one else 'were'} read; the other {changes.n_old:,} are known from the ball.")
        if folder:
            packed = pack_ball(found[0], settings, source.fingerprint) if keep_ball else None
            _write_update(folder, training, result, found[0], packed)
    return result, NOTHING


def _tell_why_not(kept: _Kept) -> str:
    """Return why a ball is of no use after what has changed, or "" if it may be of use."""
    changes, near = kept.changes, kept.ball.near
    if not changes.n_new + changes.n_gone:
        return "no rows were appended or deleted since the ball was kept"
    is_left = not changes.n_gone or (near.radius > 0.0 and changes.renumber(near.numbers)[0].any())
    return "" if is_left else "of the ball that was kept nothing is left without the rows that were deleted"


def _write_update(
    folder: RunFolder, training: Training, result: Result, ball: Ball, packed: dict[str, Any] | None
) -> None:
    """Write the run of an update into its folder, with its ball if that is packed to be kept."""
    training.run = folder
    folder.take_over()  # if an update was there, it had the same settings, and is made again
    folder.overwrite = True
    folder.begin(training.state, training.source.n_rows)
    for line in training.history:
        folder.record(line)
    training.save()
    if packed is not None:  # before the model, with which the run is complete
        _write_ball(Path(folder.path), ball, packed)
    folder.finish(result.model.to_bytes(), result.as_json())
