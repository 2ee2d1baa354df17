"""The folders of runs and grids, and runs in an object store.

All files except the history appear complete or not at all, and one process at a time writes to a folder
(system.files.Lock). Content reaches the disk before anything that relies on it: the lines of the history before the
checkpoint that counts them, and each file before it gets its final name. So a run can be resumed, or started again,
wherever a process or a machine stops.

settings.json    the settings; `--resume` refuses to continue with others
history.jsonl    a line for each step
checkpoint.npz   the whole state of the solver after a step (arrays, no pickle)
model.npz        the model
result.json      the object that `--json` prints
dual.npz         the dual point, if it was requested (verify.dual_file)
map.npz          the state of the passes that find a feature map, if there is one (runs.features)
folds/           the runs of the folds that calibrate probabilities, if there are any (runs.calibrate)
grid/            the settings of a grid, and a folder for each fit that has begun, such as fold0-C0.1

The folder that contains a grid becomes the folder of the run with the best setting. One lock is held from the first fit
to the end of that run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, TypeVar

from streamsvm.numeric.compilation import Arithmetic, list_kinds
from streamsvm.runs.records import accompany, flatten, refuse_changes, restore
from streamsvm.system import files
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.files import Lock
from streamsvm.system.npz import unpack_arrays, write_arrays

S = TypeVar("S")

LOCK, FOLDS, GRID = ".lock", "folds", "grid"
SETTINGS_FILE, HISTORY_FILE, CHECKPOINT_FILE = "settings.json", "history.jsonl", "checkpoint.npz"
MODEL_FILE, RESULT_FILE, MAP_FILE = "model.npz", "result.json", "map.npz"
# what each command resumes from, within the folder of the run
CHECKPOINTS = {"train": (CHECKPOINT_FILE, MAP_FILE), "tune": (f"{GRID}/*/{CHECKPOINT_FILE}", f"{GRID}/{MAP_FILE}")}
SET_BY = {  # for each setting with another name than its option: the option
    "class_costs": "--C and --class-weight",
    "class_weights": "--class-weight",
    "pair_cost": "--C",
    "kernel": "--kernel, --gamma, --degree and --coef0",
    "bias_feature": "--option intercept_scaling",
    "accelerated": "--option acceleration",
    "free_bias": "--option bias",
    "pack_rows": "--option pack",
    "resident_rows": "--resident-rows or --memory",
    "precise_rows": "--resident-rows or --memory",
    "working_rows": "--option working_rows, --resident-rows or --memory",
    "cache_bytes": "--option cache_bytes or --memory",
    "start_from": "--start-from",
    "updates": "--start-from",
    "fingerprint": "the data: these are other rows, or other labels",
}
# settings that are written only for runs that use them
WRITTEN_IF_ASKED = {"keep_dual", "axes", "forward", "start_from", "updates"}
# A run that ended before its first checkpoint leaves only these files. An estimator keeps features.zarr there.
MAY_BE_THERE = {SETTINGS_FILE, HISTORY_FILE, "report.html", "features.zarr", MAP_FILE, FOLDS, LOCK}


def compare_settings(folder: Path, settings: dict[str, Any], gamma_is_known: bool = True) -> None:
    """Raise InputError if the run in a folder was begun with other settings.

    The path of the data is not compared, since data may be moved; the fingerprint identifies them.
    """
    known = read_settings(folder)
    new = {name: settings.get(name) for name in (*settings, *(WRITTEN_IF_ASKED & known.keys())) if name != "data"}
    if not gamma_is_known:
        known, new = _drop_gamma(known), _drop_gamma(new)
    refuse_changes(folder, known, new, SET_BY)


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the run in a folder. Raises InputError if they are missing or damaged."""
    path = folder / SETTINGS_FILE
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: missing or damaged ({error}); restore the file, or start again with --overwrite"
        ) from error


def read_run_file(file: Path, parse: Callable[[str], Any] = json.loads) -> Any:
    """Return the parsed contents of a file of a run. Raises InputError if it is missing or damaged."""
    try:
        return parse(file.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: missing or damaged ({error})") from error


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the history. Raises InputError if it is missing or damaged."""
    path = folder / HISTORY_FILE
    lines: list[dict[str, Any]] = read_run_file(path, lambda text: [json.loads(line) for line in text.splitlines()])
    return lines


def _drop_gamma(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without the gamma of the kernel."""
    kernel = settings.get("kernel")
    if not isinstance(kernel, dict):
        return settings
    return {**settings, "kernel": {name: value for name, value in kernel.items() if name != "gamma"}}


def check_empty(folder: Path, besides: Collection[str] = ()) -> None:
    """Raise InputError unless a folder is empty, or holds a run that ended before its first checkpoint.

    besides: the names of other entries that the folder may contain.
    """
    names = {entry.name for entry in folder.iterdir() if not files.is_partial(entry.name)} if folder.exists() else set()
    if left := sorted(names & {MODEL_FILE, RESULT_FILE}):
        raise InputError(
            f"{folder}: a run has ended there ({left[0]}), and its checkpoint.npz is missing; choose another --out, or "
            "replace the run with --overwrite"
        )
    foreign = sorted(names - MAY_BE_THERE - set(besides))
    if SETTINGS_FILE in names and not holds_settings(folder):
        foreign = [SETTINGS_FILE, *foreign]
    if foreign:
        raise InputError(
            f"{folder}: is not empty and holds no run ({foreign[0]}); choose another --out, or write a run into that "
            "folder with --overwrite"
        )


def has_checkpoint(out: Path, command: str) -> bool:
    """Return whether a command, `train` or `tune`, can resume in its folder `out`."""
    return any(any(out.glob(name)) for name in CHECKPOINTS[command])


def holds_settings(folder: Path) -> bool:
    """Return whether a folder holds the settings of a run.

    The content is checked: editors write files of this name, too.
    """
    try:
        return "fingerprint" in read_settings(folder)
    except InputError:
        return False


CHECKPOINT_SECONDS = 10.0
MOST_CHECKPOINT_SHARE = 0.05  # maximum share of the run time spent on checkpoints, which may be large
TASKS = {"read", "verify", "compute"}  # the parts of task_seconds in a checkpoint (engines.engine)
NO_LINES = ""  # the digest of an empty history
REPORTS, PROOFS = ("tuning.json", "tuning.html", "report.html"), ("dual.npz", "ball.npz")
# in the order of removal: a model is never left next to the checkpoint or the settings of another run
RUN_FILES = (*REPORTS, RESULT_FILE, *PROOFS, MODEL_FILE, CHECKPOINT_FILE, HISTORY_FILE, MAP_FILE, SETTINGS_FILE)
OnWritten = Callable[[Sequence[str]], None]  # called with the names of files written together, in order of importance


@dataclass(frozen=True)
class Saved(Generic[S]):
    """The saved part of a run: the state after its last step, the history, the status, and the seconds so far.

    task_seconds: the seconds of tasks, by part (read, verify, compute); empty in older checkpoints.
    """

    state: S
    history: list[dict[str, Any]]
    status: str
    seconds: float
    task_seconds: dict[str, float]


@dataclass(eq=False)
class LockedFolder(ABC):
    """A folder to which one process at a time writes. `acquire` locks it until `close`.

    Nothing is written before `acquire`.

    place: the folder to lock. The files are in `path`, its subfolder `part`.

    Parameters
    ----------
    settings : dict or None
        The settings, as JSON; None if they are not known yet. A run can only be resumed with the same settings.
    resume : bool
        Whether to resume from the checkpoint in the folder. Otherwise an existing run is refused or replaced.
    overwrite : bool, default False
        Whether to replace an existing run. Its files are removed; files with other names stay.
    lock : Lock, optional
        The lock of a caller that already writes to this folder, and has checked its contents.
    is_settled : bool, default True
        Whether the settings are final. Otherwise the gamma of the kernel is not measured yet; `settle` sets it.
    """

    kind: ClassVar[str] = "a run"
    checkpoints: ClassVar[str] = CHECKPOINT_FILE
    part: ClassVar[str] = ""

    place: str | Path
    settings: dict[str, Any] | None
    resume: bool
    overwrite: bool = False
    lock: Lock | None = None
    is_settled: bool = True

    def __post_init__(self) -> None:
        self.root = files.to_local_path(self.place)
        self.path, self._owns_lock, self._is_new = self.root / self.part, self.lock is None, False
        self._check()

    def acquire(self) -> None:
        """Make and lock the folder. Remove the leftovers of killed processes, and a run to be overwritten."""
        with files.writing(self.path):
            self._is_new |= not self.root.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            if self.lock is None:
                self.lock = Lock(self.root, self.root / LOCK)
                self._check()  # check again under the lock: another process may have written to the folder
            self._clear()
            files.sync_folder(self.root)

    def close(self) -> None:
        """Release the lock. Remove the folder if this process made it and it is still empty."""
        if self.lock is not None and self._owns_lock:
            self._remove_if_empty(self.path)
            self.lock.release()
            self.lock = None
            self._remove_if_empty(self.root)

    def _remove_if_empty(self, folder: Path) -> None:
        if self._is_new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def _check(self) -> None:
        """Raise InputError if the folder holds anything that must not be overwritten."""
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root}: is a file, not a folder")
        if (self.root / "zarr.json").exists():
            raise InputError(f"{self.root}: is a dataset; choose another folder for the run")
        if self.overwrite:
            return
        if not self._has_begun():
            self._check_new()
        elif not self.resume:
            raise InputError(
                f"{self.root}: already holds {self.kind}; resume it with --resume, replace it with --overwrite, or "
                "choose another --out"
            )
        elif self.settings is not None:
            compare_settings(self.path, self.settings, self.is_settled)

    def _has_begun(self) -> bool:
        return any(self.path.glob(self.checkpoints))

    @abstractmethod
    def _check_new(self) -> None:
        """Raise InputError unless a run may begin in the folder."""

    @abstractmethod
    def _clear(self) -> None:
        """Remove leftovers, and the files of a run to be overwritten."""


@dataclass(eq=False)
class RunFolder(LockedFolder):
    """The folder of one run, new or resumed.

    Parameters
    ----------
    n_beside : int, default 1
        Number of concurrent runs, which share the time allowed for checkpoints.
    on_written : callable, optional
        See OnWritten.
    """

    n_beside: int = 1
    on_written: OnWritten = lambda _: None

    def __post_init__(self) -> None:
        self._last_save, self._save_cost = time.monotonic(), 0.0
        self._digests, self.arithmetic = [NO_LINES], list[Arithmetic]()
        super().__post_init__()

    def settle(self, settings: dict[str, Any]) -> None:
        """Set the final settings. Raises InputError if the run to be resumed had other settings."""
        self.settings, self.is_settled = settings, True
        self._check()

    def begin(self, start: S, n_rows: int | None = None, arithmetic: Sequence[Arithmetic] = ()) -> Saved[S] | None:
        """Make and lock the folder, and return its saved run, or None if there is no checkpoint.

        start: the initial state. n_rows: the number of rows of the data. arithmetic: the kinds of arithmetic of the
        processes, which are added to the kinds in the saved run. Raises InputError if the checkpoint cannot belong to
        this run.
        """
        self.acquire()
        path = self.path / CHECKPOINT_FILE
        known = read_settings(self.path).get("arithmetic", []) if path.exists() else []
        is_known = isinstance(known, list) and all(isinstance(one, dict) for one in known)
        self.arithmetic = list_kinds([*(known if is_known else ()), *arithmetic])
        write_json(self.path / SETTINGS_FILE, {**(self.settings or {}), "arithmetic": self.arithmetic})
        if not path.exists():
            shutil.rmtree(self.path / FOLDS, ignore_errors=True)  # the folds of another run
            files.write_atomically(self.path / HISTORY_FILE, b"")
            return None
        arrays = accompany(start, unpack_arrays(path))
        try:
            if unknown := arrays.keys() - {*flatten(start), "run"}:
                raise KeyError(unknown)
            extra, state = _read_about(arrays.pop("run")), restore(start, arrays, n_rows)
        except KeyError as error:
            raise InputError(
                f"{path}: not a checkpoint of this version of streamsvm; use the version that wrote it, or --overwrite"
            ) from error
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}: damaged, or not of this run ({error}); restore the file, or start again with --overwrite"
            ) from error
        lines = self._read_history(extra["steps"], extra.get("history"))
        files.write_atomically(self.path / HISTORY_FILE, b"".join(lines))
        rest = extra["status"] or "", extra["seconds"], extra.get("task_seconds", {})
        return Saved(state, [json.loads(line) for line in lines], *rest)

    def record(self, line: dict[str, Any]) -> None:
        """Append a line to the history."""
        content = (json.dumps(line) + "\n").encode()
        path = self.path / HISTORY_FILE
        with files.writing(path), path.open("ab") as file:
            file.write(content)
        self._digests.append(_digest(self._digests[-1], content))

    def is_due(self) -> bool:
        """Return whether the last checkpoint is so old that the next one takes a small share of the time."""
        waited = time.monotonic() - self._last_save
        return waited >= max(CHECKPOINT_SECONDS, self._save_cost * self.n_beside / MOST_CHECKPOINT_SHARE)

    def save(self, saved: Saved[Any]) -> None:
        """Write a checkpoint. The history lines that it counts reach the disk first."""
        began = time.monotonic()
        with (self.path / HISTORY_FILE).open("rb") as file:
            os.fsync(file.fileno())
        steps, about = len(saved.history), {"status": saved.status, "seconds": saved.seconds}
        about |= {"steps": steps, "history": self._digests[steps], "task_seconds": saved.task_seconds}
        write_arrays(self.path / CHECKPOINT_FILE, {**flatten(saved.state), "run": json.dumps(about)})
        self.on_written((SETTINGS_FILE, HISTORY_FILE, CHECKPOINT_FILE))
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - began

    def _check_new(self) -> None:
        if self._owns_lock:
            check_empty(self.path)

    def _clear(self) -> None:
        files.sync_folder(self.path.absolute().parent)
        files.remove_partials(self.path)
        for name in RUN_FILES if self.overwrite else ():
            (self.path / name).unlink(missing_ok=True)

    def _read_history(self, n_steps: int, digest: str | None) -> list[bytes]:
        """Return the history lines that the checkpoint counts. Raises InputError if they were changed.

        digest: the digest of these lines, as stored in the checkpoint (None in checkpoints of streamsvm 0.1). Later
        lines are dropped: a killed process wrote them after its last checkpoint, and their steps are repeated.
        """
        path = self.path / HISTORY_FILE
        try:
            lines = path.read_bytes().splitlines(keepends=True)[:n_steps]
            if len(lines) < n_steps:
                raise ValueError(f"{say_count(len(lines), 'line')}, the checkpoint has {say_count(n_steps, 'step')}")
            for line in lines:
                self._digests.append(_digest(self._digests[-1], line))
            if digest not in (None, self._digests[-1]) or not all(isinstance(json.loads(line), dict) for line in lines):
                raise ValueError("it is not the history of the checkpoint")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path}: missing or damaged ({error}); restore the file, or start again with --overwrite"
            ) from error
        return lines


def _digest(before: str, line: bytes) -> str:
    """Return the digest of a history, given the digest of the previous lines and the last line."""
    return hashlib.sha256(before.encode() + line).hexdigest()


def _read_about(text: Any) -> dict[str, Any]:
    """Parse the status, seconds and steps stored in a checkpoint. Raises ValueError if they are damaged."""
    about = json.loads(str(text))
    if not isinstance(about, dict) or not isinstance(about.get("status"), str | None):
        raise ValueError("run has no status")
    steps, seconds = about.get("steps"), about.get("seconds")
    if type(steps) is not int or steps < 0:
        raise ValueError(f"run: steps are {str(steps)[:40]}")
    tasks = about.get("task_seconds", {})
    counts = [seconds, *(tasks.values() if isinstance(tasks, dict) and set(tasks) <= TASKS else [None])]
    if not all(isinstance(count, int | float) and 0 <= count < 1e300 for count in counts):
        raise ValueError(f"run: seconds are {str(seconds)[:40]}, and seconds of tasks {str(tasks)[:40]}")
    return about


def write_result(folder: Path, model: bytes, result: dict[str, Any]) -> None:
    """Write the model and the result of a run that has ended. The run is then complete."""
    files.write_atomically(folder / MODEL_FILE, model)
    write_json(folder / RESULT_FILE, result)


def write_json(path: Path, value: Any) -> None:
    """Write settings or a result to a file."""
    files.write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


@dataclass(eq=False)
class GridFolder(LockedFolder):
    """The folder of one grid, new or resumed.

    settings: the settings of the grid; None while the feature map on which they depend is being computed.
    """

    kind, checkpoints, part = "a run of a grid", "*/checkpoint.npz", GRID
    _has_settings = False

    def open_fit(self, name: str, settings: dict[str, Any], n_beside: int) -> RunFolder:
        """Write the settings of the grid, then open the folder of one of `n_beside` fits that run side by side.

        Raises InputError if the folder holds a fit with other settings.
        """
        if not self._has_settings:
            write_json(self.path / SETTINGS_FILE, self.settings)
            self._has_settings = True
        return RunFolder(self.path / name, settings, resume=True, lock=self.lock, n_beside=n_beside)

    def _check(self) -> None:
        names = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
        if not names <= {MAP_FILE} and not holds_settings(self.path):
            raise InputError(f"{self.path}: is not a grid of streamsvm; choose another --out")
        super()._check()

    def _check_new(self) -> None:
        if (self.root / CHECKPOINT_FILE).exists():
            raise InputError(
                f"{self.root}: already holds a run that `tune` did not write; choose another --out, or replace the run "
                "with --overwrite"
            )
        check_empty(self.root, besides={GRID})

    def _clear(self) -> None:
        if not self.overwrite and self._has_begun():
            return
        for name in RUN_FILES:
            (self.root / name).unlink(missing_ok=True)
        kept = set() if self.overwrite else {MAP_FILE}
        for fit in [entry for entry in self.path.iterdir() if entry.name not in kept]:
            shutil.rmtree(fit) if fit.is_dir() else fit.unlink()


class RemoteRun:
    """A run in an object store, with copies of its files in a temporary local folder.

    Files are uploaded once they are complete. A checkpoint is one object. It is uploaded on the condition that the
    existing object is the one that this process last read or wrote, so two processes cannot write to one run unnoticed.
    A checkpoint of more than 256 MiB is uploaded in parts, for which stores do not support this condition. The
    history is uploaded before the checkpoint that counts its lines.

    Parameters
    ----------
    url : str
        The URL of the run in the store.
    folder : Path
        The local folder.
    overwrite : bool
        Whether to replace the run in the store. Its files are removed before the first new file is uploaded.
    """

    def __init__(self, url: str, folder: Path, overwrite: bool) -> None:
        self.url, self.folder, self._overwrite = url, folder, overwrite
        from streamsvm.data.remote.objects import RemoteFolder  # loads Zarr

        self._store = RemoteFolder(url)
        self._known: dict[str, tuple[int, int]] = {}  # size and modification time of each local copy
        there = self._store.list_names()
        if "zarr.json" in there:
            raise InputError(f"{url}: is a dataset; choose another place for the run")
        self._to_remove = [name for name in RUN_FILES if name in there and overwrite]
        for name in there:
            if name in RUN_FILES and not overwrite:
                self._store.fetch(name, folder / name)
                self._known[name] = self._look(name)

    def put(self, names: Sequence[str]) -> None:
        """Upload the given files, one after another, unless they are unchanged."""
        self._store.remove(self._to_remove)
        self._to_remove = []
        for name in names:
            if (self.folder / name).exists() and self._known.get(name) != (state := self._look(name)):
                self._store.put(name, self.folder / name, only_if_known=name == CHECKPOINT_FILE)
                self._known[name] = state

    def _look(self, name: str) -> tuple[int, int]:
        about = (self.folder / name).stat()
        return about.st_size, about.st_mtime_ns


@contextmanager
def open_place(
    out: str | Path | None, overwrite: bool, on_written: OnWritten
) -> Iterator[tuple[Path | None, OnWritten]]:
    """Yield the local folder of a run, if it has one, and the function to call when files are written there.

    For a run in a store, the folder is temporary. All its files are uploaded if the block succeeds. Errors name the
    URL.
    """
    if out is None or not files.is_remote(out):
        yield None if out is None else Path(out), on_written
        return
    url = str(out).rstrip("/")
    with TemporaryDirectory(prefix="streamsvm-run") as folder:
        try:
            run = RemoteRun(url, Path(folder), overwrite)
            yield run.folder, run.put
            run.put(RUN_FILES[::-1])  # the model after the checkpoint, as on a disk
        except InputError as error:
            raise type(error)(str(error).replace(folder, url)) from error
