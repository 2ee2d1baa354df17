"""The checkpoint of a feature map: what its passes have found so far is kept in a file until the features are written.

Like the checkpoint of a run, the file holds the state after the last finished pass and the settings that a resumed run
must share, as arrays without pickle. It is a hidden file beside the dataset of features, or a file in the folder of a
run whose features are not stored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from streamsvm.errors import InputError
from streamsvm.files import unpack_arrays, write_arrays
from streamsvm.training.states import flatten, restore

S = TypeVar("S")


def name_checkpoint(destination: Path) -> Path:
    """Return the path of the checkpoint that belongs to the dataset of features at `destination`."""
    return destination.with_name(f".{destination.name}.passes.npz")


class FeatureCheckpoint:
    """The checkpoint of one feature map, in a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.settings = path, dict[str, Any]()

    def begin(self, start: S, settings: dict[str, Any], n_rows: int, resume: bool) -> S:
        """Return the state to go on from: the kept state if `resume` is set and there is one, otherwise `start`.

        The settings are everything that the features depend on, as JSON. Raises InputError if the file is damaged, or
        belongs to other rows or settings.
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

    def save(self, state: Any) -> None:
        """Write a state to the file, in place of the state before."""
        write_arrays(self.path, {**flatten(state), "settings": json.dumps(self.settings)})

    def remove(self) -> None:
        """Remove the file, once the features are written."""
        self.path.unlink(missing_ok=True)

    def _compare(self, known: dict[str, Any]) -> None:
        differing = [name for name, value in self.settings.items() if known.get(name) != value]
        if differing:
            listed = ", ".join(f"{name} was {known.get(name)!r}, now {self.settings[name]!r}" for name in differing)
            raise InputError(f"{self.path}: cannot be resumed with other settings: {listed}")
