"""What finished passes over the rows have found, kept in a file until all is done: so features are resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.errors import InputError
from streamsvm.files import unpack_arrays, write_arrays

Settings = dict[str, Any]


def name_passes(destination: Path) -> Path:
    """Return the file in which the passes for a dataset of features are kept, beside it and hidden."""
    return destination.with_name(f".{destination.name}.passes.npz")


class Passes:
    """What is known after the last finished pass: `found`, arrays and JSON by name; empty before the first one.

    path: the file (None: nothing is kept); settings: what the features depend on, which must be the same when they are
    gone on with. n_rows: rows read so far, those of a pass that was cut short left out.
    """

    def __init__(self, path: Path | None, settings: Settings, resume: bool) -> None:
        self.path, self.settings = path, settings
        self.found: dict[str, Any] = {}
        self.n_rows = 0
        if path is not None and resume and path.exists():
            self._read(path)

    def count(self, n_rows: int) -> None:
        """Take note of rows that were read."""
        self.n_rows += n_rows

    def keep(self, **found: Any) -> None:
        """Take note of what all passes until now have found, in place of what was known before."""
        self.found = found
        if self.path is not None:
            about = json.dumps({"settings": self.settings, "n_rows": self.n_rows})
            write_arrays(self.path, {**found, "about": about})

    def remove(self) -> None:
        """Forget what was kept, since all is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        found = unpack_arrays(path)
        try:
            about = json.loads(str(found.pop("about")))
            known, self.n_rows = dict(about["settings"]), int(about["n_rows"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: damaged, or not of streamsvm ({error!r}); remove it to begin anew") from error
        if differing := [name for name, value in self.settings.items() if known.get(name) != value]:
            listed = ", ".join(f"{name} was {known.get(name)!r}, now {self.settings[name]!r}" for name in differing)
            raise InputError(f"{path}: cannot be resumed with other settings: {listed}")
        self.found = {name: value if np.ndim(value) else value.item() for name, value in found.items()}
