"""What a page reads of a run: its settings, history and result, and the trials of a grid."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsvm.errors import InputError

History = list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A run by its files. result: None while the run has not ended. tuning: None unless `tune` has made it."""

    name: str
    settings: dict[str, Any]
    history: History
    result: dict[str, Any] | None = None
    tuning: dict[str, Any] | None = None

    def column(self, name: str) -> list[float]:
        """Return a figure of all steps, NaN where a step has none."""
        return [float("nan") if line.get(name) is None else float(line[name]) for line in self.history]


def read_run(folder: Path) -> Run:
    """Return the run of a folder. InputError if there is none, or if a file is damaged."""
    if not (folder / "settings.json").is_file():
        raise InputError(f"{folder}: this is not the folder of a run (settings.json is missing)")
    settings = _read(folder / "settings.json", json.loads)
    history = _read(folder / "history.jsonl", lambda text: [json.loads(line) for line in text.splitlines()])
    result, tuning = (
        _read(folder / name, json.loads) if (folder / name).exists() else None
        for name in ("result.json", "tuning.json")
    )
    return Run(folder.resolve().name, settings, history, result, tuning)


def _read(file: Path, parse: Callable[[str], Any]) -> Any:
    """Return the parsed file; InputError if it is missing or damaged."""
    try:
        return parse(file.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: missing or damaged ({error})") from error
