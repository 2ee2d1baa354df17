"""What the passes that look for a feature map have found, kept in a file until the features are written.

The file is to a dataset of features what the checkpoint is to a run: the state after the last finished pass, the
settings that a resumed run has to share, and arrays without pickle. It lies beside the dataset, and is hidden.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Generic, TypeVar

from streamsvm.errors import InputError
from streamsvm.files import unpack_arrays, write_arrays
from streamsvm.training.states import flatten, restore

S = TypeVar("S")


def name_checkpoint(destination: Path) -> Path:
    """Return the file that belongs to a dataset of features of that name."""
    return destination.with_name(f".{destination.name}.passes.npz")


class FeatureCheckpoint(Generic[S]):
    """The checkpoint of one dataset of features."""

    def __init__(self, destination: Path) -> None:
        self.path, self.settings = name_checkpoint(destination), dict[str, Any]()

    def begin(self, start: S, settings: dict[str, Any], n_rows: int, resume: bool) -> S:
        """Return the state to go on from: the one that was kept, if it is to be resumed and there is one, or `start`.

        settings: what the features depend on, as JSON. InputError for a file that is damaged, or of other rows or
        settings.
        """
        self.settings = settings
        if not (resume and self.path.exists()):
            return start
        found = unpack_arrays(self.path)
        try:
            known = dict(json.loads(str(found.pop("settings"))))
            self._compare(known)
            if set(found) != set(flatten(start)):
                raise ValueError("it holds other values")
            return restore(start, found, n_rows)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{self.path}: damaged, or not of this version of streamsvm ({error!r}); remove it to begin anew"
            ) from error

    def save(self, state: S) -> None:
        """Keep a state in place of the one before."""
        write_arrays(self.path, {**flatten(state), "settings": json.dumps(self.settings)})

    def remove(self) -> None:
        """Remove the file, since the features are written."""
        self.path.unlink(missing_ok=True)

    def _compare(self, known: dict[str, Any]) -> None:
        differing = [name for name, value in self.settings.items() if known.get(name) != value]
        if differing:
            listed = ", ".join(f"{name} was {known.get(name)!r}, now {self.settings[name]!r}" for name in differing)
            raise InputError(f"{self.path}: cannot be resumed with other settings: {listed}")
