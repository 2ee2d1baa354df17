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
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from streamsvm.errors import InputError
from streamsvm.files import pack_arrays, unpack_arrays, write_atomically

S = TypeVar("S")

CHECKPOINT_SECONDS = 10.0
MOST_CHECKPOINT_SHARE = 0.05  # of the time; the state may be large


class RunFolder:
    """The folder of one run, new or resumed."""

    def __init__(self, path: str | Path, settings: dict[str, Any], resume: bool) -> None:
        self.path = Path(path)
        self.history: list[dict[str, Any]] = []
        self._last_save, self._save_cost = time.monotonic(), 0.0
        known = self._read_settings()
        if known is not None and not resume:
            raise InputError(f"{self.path}: a run is there already; go on with --resume, or choose another --out")
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: is a file, a folder is needed")
        if known is not None:
            self._check_settings(known, settings)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / "settings.json", (json.dumps(settings, indent=1) + "\n").encode())
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error

    def load(self, kind: type[S]) -> tuple[S, str | None, float] | None:
        """Return the state to go on from, the status it was saved with, and the seconds spent so far."""
        path = self.path / "checkpoint.npz"
        if not path.exists():
            write_atomically(self.path / "history.jsonl", b"")
            return None
        arrays = unpack_arrays(path)
        extra = json.loads(str(arrays.pop("run")))
        names = {part.name for part in fields(kind)}  # type: ignore[arg-type]
        if set(arrays) != names:
            raise InputError(f"{path}: written by another version of streamsvm")
        state = kind(**{name: value if value.ndim else value.item() for name, value in arrays.items()})
        self.history = self._read_history(extra["steps"])
        write_atomically(
            self.path / "history.jsonl", "".join(json.dumps(line) + "\n" for line in self.history).encode()
        )
        return state, extra["status"], extra["seconds"]

    def record(self, line: dict[str, Any]) -> None:
        """Add a line to the history."""
        self.history.append(line)
        with (self.path / "history.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def save(self, state: Any, status: str | None, seconds: float, now: bool = False) -> None:
        """Write a checkpoint, if `now` or if it is time for one."""
        waited = time.monotonic() - self._last_save
        if not now and waited < max(CHECKPOINT_SECONDS, self._save_cost / MOST_CHECKPOINT_SHARE):
            return
        began = time.monotonic()
        run = json.dumps({"status": status, "seconds": seconds, "steps": len(self.history)})
        arrays = {part.name: getattr(state, part.name) for part in fields(state)}
        write_atomically(self.path / "checkpoint.npz", pack_arrays({**arrays, "run": run}))
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - began

    def finish(self, model: bytes, result: dict[str, Any]) -> None:
        """Write model and result."""
        write_atomically(self.path / "model.npz", model)
        write_atomically(self.path / "result.json", (json.dumps(result, indent=1) + "\n").encode())

    def _read_settings(self) -> dict[str, Any] | None:
        try:
            return json.loads((self.path / "settings.json").read_text())  # type: ignore[no-any-return]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise InputError(f"{self.path}/settings.json: damaged ({error})") from error

    def _check_settings(self, known: dict[str, Any], settings: dict[str, Any]) -> None:
        differing = [name for name in settings if known.get(name) != settings[name]]
        if differing:
            listed = ", ".join(f"{name} was {known.get(name)!r}, now {settings[name]!r}" for name in differing)
            raise InputError(f"{self.path}: cannot be resumed with other settings: {listed}")

    def _read_history(self, n_steps: int) -> list[dict[str, Any]]:
        try:
            lines = (self.path / "history.jsonl").read_text().splitlines()[:n_steps]
        except FileNotFoundError:
            lines = []
        if len(lines) < n_steps:
            raise InputError(f"{self.path}/history.jsonl: {len(lines)} lines, the checkpoint has {n_steps} steps")
        return [json.loads(line) for line in lines]
