"""A run's folder: settings, history, checkpoint, result. Every file appears whole or not at all.

settings.json    what was asked for; `--resume` refuses to go on with other settings
history.jsonl    a line a step
checkpoint.npz   the solver's whole state after a step (arrays, no pickle)
model.npz        the model
result.json      the object that `--json` prints
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from streamsvm.errors import InputError
from streamsvm.files import unpack_arrays, write_arrays, write_atomically
from streamsvm.states import flatten, restore

S = TypeVar("S")

CHECKPOINT_SECONDS = 10.0
MOST_CHECKPOINT_SHARE = 0.05  # of the time; the state may be large


@dataclass(frozen=True)
class Saved(Generic[S]):
    """What a run goes on from: the state after the last step, the line of every step, status and seconds so far."""

    state: S
    history: list[dict[str, Any]]
    status: str
    seconds: float


class RunFolder:
    """The folder of one run, new or resumed. Nothing is written before `begin`."""

    def __init__(self, path: str | Path, settings: dict[str, Any], resume: bool) -> None:
        self.path, self.settings = Path(path), settings
        self._last_save, self._save_cost = time.monotonic(), 0.0
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: is a file, a folder is needed")
        if (self.path / "zarr.json").exists():
            raise InputError(f"{self.path}: is a dataset; choose another folder for the run")
        if not (self.path / "checkpoint.npz").exists():
            return  # nothing is there, or a run that ended before its first checkpoint: nothing to lose
        if not resume:
            raise InputError(f"{self.path}: a run is there already; go on with --resume, or choose another --out")
        self._check_settings(self._read_settings())

    def begin(self, start: S, n_rows: int | None = None) -> Saved[S] | None:
        """Make the folder; return what was saved there, if there is a checkpoint.

        start: the state of a new run. n_rows: of its data. InputError for a checkpoint that is none of such a run.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / "settings.json", (json.dumps(self.settings, indent=1) + "\n").encode())
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error
        path = self.path / "checkpoint.npz"
        if not path.exists():
            write_atomically(self.path / "history.jsonl", b"")
            return None
        arrays = unpack_arrays(path)
        if set(arrays) != {*flatten(start), "run"}:
            raise InputError(f"{path}: no checkpoint, or one of another version of streamsvm")
        try:
            extra, state = _read_about(arrays.pop("run")), restore(start, arrays, n_rows)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: damaged, or not of this run ({error})") from error
        history = self._read_history(extra["steps"])
        write_atomically(self.path / "history.jsonl", "".join(json.dumps(line) + "\n" for line in history).encode())
        return Saved(state, history, extra["status"] or "", extra["seconds"])

    def record(self, line: dict[str, Any]) -> None:
        """Add a line to the history."""
        with (self.path / "history.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def save(self, state: Any, steps: int, status: str, seconds: float, now: bool = False) -> None:
        """Write a checkpoint, if `now` or if it is time for one."""
        waited = time.monotonic() - self._last_save
        if not now and waited < max(CHECKPOINT_SECONDS, self._save_cost / MOST_CHECKPOINT_SHARE):
            return
        began = time.monotonic()
        run = json.dumps({"status": status, "seconds": seconds, "steps": steps})
        write_arrays(self.path / "checkpoint.npz", {**flatten(state), "run": run})
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - began

    def finish(self, model: bytes, result: dict[str, Any]) -> None:
        """Write model and result."""
        write_atomically(self.path / "model.npz", model)
        write_atomically(self.path / "result.json", (json.dumps(result, indent=1) + "\n").encode())

    def _read_settings(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.path / "settings.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{self.path}/settings.json: missing or damaged ({error})") from error

    def _check_settings(self, known: dict[str, Any]) -> None:
        """Compare all but the path of the data, which may move: their fingerprint says whether they are the same."""
        new = {name: value for name, value in self.settings.items() if name != "data"}
        differing = [name for name in new if known.get(name) != new[name]]
        if differing:
            listed = ", ".join(f"{name} was {known.get(name)!r}, now {new[name]!r}" for name in differing)
            raise InputError(f"{self.path}: cannot be resumed with other settings: {listed}")

    def _read_history(self, n_steps: int) -> list[dict[str, Any]]:
        try:
            lines = (self.path / "history.jsonl").read_text().splitlines()[:n_steps]
            history = [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}/history.jsonl: missing or damaged ({error})") from error
        if len(history) < n_steps:
            raise InputError(f"{self.path}/history.jsonl: {len(history)} lines, the checkpoint has {n_steps} steps")
        return history


def _read_about(text: Any) -> dict[str, Any]:
    """Return status, seconds and steps of a checkpoint; ValueError for anything else."""
    about = json.loads(str(text))
    if not isinstance(about, dict) or not isinstance(about.get("status"), str | None):
        raise ValueError("run has no status")
    steps, seconds = about.get("steps"), about.get("seconds")
    if type(steps) is not int or steps < 0:
        raise ValueError(f"run: steps are {str(steps)[:40]}")
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e300:
        raise ValueError(f"run: seconds are {str(seconds)[:40]}")
    return about
