"""The folder of a run, with its settings, history, checkpoint, model and result.

All files but the history appear whole or not at all, and one process at a time writes to the folder (locks.Lock).
Content reaches the disk before anything that relies on it: the lines of the history before the checkpoint that counts
them, and each file before it gets its name. So a run can be resumed, or begun anew, wherever a process or a machine
stops.

settings.json    what was asked for; `--resume` refuses to go on with other settings
history.jsonl    a line for each step
checkpoint.npz   the solver's whole state after a step (arrays, no pickle)
model.npz        the model
result.json      the object that `--json` prints
dual.npz         the dual point, if it was asked for (training.dual_file)
map.npz          what the passes have found that look for a feature map, if there is one (training.on_the_fly)
folds/           the runs of the folds whose scores give probabilities, if there are any (training.calibrate)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from streamsvm.errors import InputError, WriteError, say_count
from streamsvm.files import remove_partials, sync_folder, unpack_arrays, write_arrays, write_atomically
from streamsvm.locks import Lock
from streamsvm.numeric.arithmetic import Arithmetic, list_kinds
from streamsvm.training.folder_checks import (
    FOLDS,
    LOCK,
    check_empty,
    check_place,
    compare_settings,
    read_arithmetic,
    remove_if_empty,
)
from streamsvm.training.states import flatten, list_added, restore

S = TypeVar("S")

CHECKPOINT_SECONDS = 10.0
MOST_CHECKPOINT_SHARE = 0.05  # largest share of the time that goes into checkpoints, since the state may be large
TASKS = {"read", "verify", "compute"}  # whose seconds a checkpoint has (engines.task_seconds)
NO_LINES = ""  # the digest of an empty history
MODEL_FILE, RESULT_FILE, MAP_FILE = "model.npz", "result.json", "map.npz"
# In the order in which they are removed: a model is never left beside the checkpoint or the settings of another run.
RUN_FILES = (
    "tuning.json",
    "tuning.html",
    "report.html",
    RESULT_FILE,
    "dual.npz",
    "ball.npz",
    MODEL_FILE,
    "checkpoint.npz",
    "history.jsonl",
    MAP_FILE,
    "settings.json",
)


@dataclass(frozen=True)
class Saved(Generic[S]):
    """What a resumed run goes on from: the state after the last step, the history, and status and seconds so far.

    task_seconds: those of the tasks of all passes, by the names of engines.task_seconds; none in older checkpoints.
    """

    state: S
    history: list[dict[str, Any]]
    status: str
    seconds: float
    task_seconds: dict[str, float]


class RunFolder:
    """The folder of one run, new or resumed. `take_over` locks it until `close`; before that, nothing is written.

    Parameters
    ----------
    path : str or Path
        The folder.
    settings : dict
        What was asked for, as JSON. A run is resumed with the same settings only.
    resume : bool
        Whether to go on from a checkpoint that is there. Otherwise a run that is there is refused or replaced.
    overwrite : bool, default False
        Whether to replace a run that is there. Its files are removed; files with other names stay.
    lock : Lock, optional
        The lock of a caller who writes to this folder already, and has checked what it holds.
    n_beside : int, default 1
        Number of runs that go on side by side, and share the time for checkpoints.
    is_settled : bool, default True
        Whether the settings are final. Otherwise the kernel's gamma has yet to be measured, and `settle` gives them.
    on_written : callable, optional
        Called with the names of files that were written and belong together, in the order in which they count.
    """

    def __init__(
        self,
        path: str | Path,
        settings: dict[str, Any],
        resume: bool,
        overwrite: bool = False,
        lock: Lock | None = None,
        n_beside: int = 1,
        is_settled: bool = True,
        on_written: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self.path, self.settings, self.resume, self.overwrite = Path(path), settings, resume, overwrite
        self._lock, self._owns_lock, self._on_written = lock, lock is None, on_written
        self._last_save, self._save_cost, self._share = time.monotonic(), 0.0, MOST_CHECKPOINT_SHARE / n_beside
        self._digests, self._is_new, self._is_settled = [NO_LINES], False, is_settled
        self.arithmetic: list[Arithmetic] = []
        self._check()

    @property
    def lock(self) -> Lock | None:
        """The lock of the folder, once it is taken over."""
        return self._lock

    def settle(self, settings: dict[str, Any]) -> None:
        """Take the final settings. Raises InputError if the run that is to be resumed had others."""
        self.settings, self._is_settled = settings, True
        self._check()

    def begin(self, start: S, n_rows: int | None = None, arithmetic: Sequence[Arithmetic] = ()) -> Saved[S] | None:
        """Make and lock the folder, and return what was saved there, or None without a checkpoint.

        `start` is the state that a new run starts from, and n_rows the number of rows of its data. `arithmetic` is that
        of the processes, and is added to that of the processes of the run before. Raises InputError if the checkpoint
        cannot be of such a run.
        """
        self.take_over()
        path = self.path / "checkpoint.npz"
        known = read_arithmetic(self.path) if path.exists() else []
        self.arithmetic = list_kinds([*known, *arithmetic])
        content = json.dumps({**self.settings, "arithmetic": self.arithmetic}, indent=1) + "\n"
        write_atomically(self.path / "settings.json", content.encode())
        if not path.exists():
            shutil.rmtree(self.path / FOLDS, ignore_errors=True)  # of another run
            write_atomically(self.path / "history.jsonl", b"")
            return None
        arrays = unpack_arrays(path)
        names = {*flatten(start), "run"}
        if not names - list_added(start) <= set(arrays) <= names:
            raise InputError(f"{path}: no checkpoint, or one of another version of streamsvm")
        try:
            extra, state = _read_about(arrays.pop("run")), restore(start, arrays, n_rows)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: damaged, or not of this run ({error})") from error
        lines = self._read_history(extra["steps"], extra.get("history"))
        write_atomically(self.path / "history.jsonl", b"".join(lines))
        told = extra["status"] or "", extra["seconds"], extra.get("task_seconds", {})
        return Saved(state, [json.loads(line) for line in lines], *told)

    def record(self, line: dict[str, Any]) -> None:
        """Add a line to the history."""
        content = (json.dumps(line) + "\n").encode()
        path = self.path / "history.jsonl"
        try:
            with path.open("ab") as file:
                file.write(content)
        except OSError as error:
            raise WriteError(f"{path}: cannot be written: {error.strerror}") from error
        self._digests.append(_digest(self._digests[-1], content))

    def save(
        self,
        state: Any,
        steps: int,
        status: str,
        seconds: float,
        task_seconds: Mapping[str, float] = MappingProxyType({}),
        now: bool = False,
    ) -> None:
        """Write a checkpoint of the state after so many steps, if `now` is set or if it is time for one.

        The lines of the history that it counts are brought to the disk before.
        """
        waited = time.monotonic() - self._last_save
        if not now and waited < max(CHECKPOINT_SECONDS, self._save_cost / self._share):
            return
        began = time.monotonic()
        with (self.path / "history.jsonl").open("rb") as file:
            os.fsync(file.fileno())
        about = {"status": status, "seconds": seconds, "steps": steps, "history": self._digests[steps]}
        about["task_seconds"] = dict(task_seconds)
        write_arrays(self.path / "checkpoint.npz", {**flatten(state), "run": json.dumps(about)})
        self._on_written(("settings.json", "history.jsonl", "checkpoint.npz"))
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - began

    def finish(self, model: bytes, result: dict[str, Any]) -> None:
        """Write the model and the result of a run that has ended."""
        write_atomically(self.path / MODEL_FILE, model)
        write_atomically(self.path / RESULT_FILE, pack_result(result))

    def close(self) -> None:
        """Release the lock, and remove the folder if this process made it and it is still empty."""
        if self._lock is not None and self._owns_lock:
            self._lock.release()
            self._lock = None
            remove_if_empty(self.path, self._is_new)

    def take_over(self) -> None:
        """Make and lock the folder. Remove what killed processes have left in it, and a run that is to be replaced."""
        try:
            self._is_new |= not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            if self._lock is None:
                self._lock = Lock(self.path, self.path / LOCK)
                self._check()  # once more, with the lock: another process may have written there until now
            sync_folder(self.path.absolute().parent)
            remove_partials(self.path)
            for name in RUN_FILES if self.overwrite else ():
                (self.path / name).unlink(missing_ok=True)
            sync_folder(self.path)
        except InputError:
            raise
        except OSError as error:
            raise WriteError(f"{self.path}: cannot be written: {error.strerror}") from error

    def _check(self) -> None:
        """Raise InputError if the folder holds anything that must not be written over."""
        check_place(self.path)
        if self.overwrite:
            return
        if not (self.path / "checkpoint.npz").exists():
            if self._lock is None or self._owns_lock:
                check_empty(self.path)
        elif self.resume:
            compare_settings(self.path, self.settings, self._is_settled)
        else:
            raise InputError(
                f"{self.path}: a run is there already; go on with --resume, or choose another --out, or replace the "
                "run by --overwrite"
            )

    def _read_history(self, n_steps: int, digest: str | None) -> list[bytes]:
        """Return the lines of the history that the checkpoint counts. Raises InputError if they are not those lines.

        `digest` is the checkpoint's digest of them (None: a checkpoint of streamsvm 0.1, which has none). Later lines
        are dropped: a killed process wrote them after its last checkpoint, and their steps are made again.
        """
        path = self.path / "history.jsonl"
        try:
            lines = path.read_bytes().splitlines(keepends=True)[:n_steps]
        except OSError as error:
            raise InputError(f"{path}: missing or damaged ({error})") from error
        if len(lines) < n_steps:
            raise InputError(
                f"{path}: {say_count(len(lines), 'line')}, the checkpoint has {say_count(n_steps, 'step')}"
            )
        for line in lines:
            self._digests.append(_digest(self._digests[-1], line))
        try:
            if digest not in (None, self._digests[-1]) or not all(isinstance(json.loads(line), dict) for line in lines):
                raise ValueError("it is not the history of the checkpoint")
        except ValueError as error:
            raise InputError(f"{path}: missing or damaged ({error})") from error
        return lines


def _digest(before: str, line: bytes) -> str:
    """Return the digest of a history, given its last line and the digest of the lines before."""
    return hashlib.sha256(before.encode() + line).hexdigest()


def _read_about(text: Any) -> dict[str, Any]:
    """Return the status, seconds and steps of a checkpoint. Raises ValueError for anything else."""
    about = json.loads(str(text))
    if not isinstance(about, dict) or not isinstance(about.get("status"), str | None):
        raise ValueError("run has no status")
    steps, seconds = about.get("steps"), about.get("seconds")
    if type(steps) is not int or steps < 0:
        raise ValueError(f"run: steps are {str(steps)[:40]}")
    tasks = about.get("task_seconds", {})
    counts = [seconds, *(tasks.values() if isinstance(tasks, dict) and set(tasks) <= TASKS else [None])]
    if not all(isinstance(count, int | float) and 0 <= count < 1e300 for count in counts):
        raise ValueError(f"run: seconds are {str(seconds)[:40]}, of its tasks {str(tasks)[:40]}")
    return about


def pack_result(result: dict[str, Any]) -> bytes:
    """Return the content of the file of a result."""
    return (json.dumps(result, indent=1) + "\n").encode()
