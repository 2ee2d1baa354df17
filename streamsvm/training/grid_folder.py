"""The folder RUN/grid, from which `tune` is resumed. It holds the run's folder of each fit that has begun.

RUN itself becomes the run's folder of the best setting. One lock, in RUN, is held from the first fit to the end.

settings.json     the grid that was asked for; `--resume` refuses to go on with another grid
fold0-C0.1/       the settings, history and checkpoint of a fit; after its end the checkpoint holds its last state
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from streamsvm.errors import InputError, WriteError
from streamsvm.files import sync_folder, write_atomically
from streamsvm.locks import Lock
from streamsvm.training.folder_checks import (
    LOCK,
    check_empty,
    check_place,
    compare_settings,
    is_of_a_run,
    remove_if_empty,
)
from streamsvm.training.run_folder import RUN_FILES, RunFolder

GRID = "grid"


class GridFolder:
    """The folder of one grid, new or resumed. `begin` locks it until `close`; before that, nothing is written."""

    def __init__(self, out: str | Path, settings: dict[str, Any], resume: bool, overwrite: bool) -> None:
        self.out, self.settings, self.resume, self.overwrite = Path(out), settings, resume, overwrite
        self.path = self.out / GRID
        self.lock: Lock | None = None
        self._is_new = self._has_settings = False
        self._check()

    def begin(self) -> None:
        """Make and lock the folder, and remove the files of a run that is to be replaced."""
        try:
            self._is_new = not self.out.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock = Lock(self.out, self.out / LOCK)
            self._check()  # once more, with the lock: another process may have written there until now
            if self.overwrite or not self._has_begun():
                self._clear()
        except InputError:
            raise
        except OSError as error:
            raise WriteError(f"{self.path}: cannot be written: {error.strerror}") from error

    def open_fit(self, name: str, settings: dict[str, Any], n_beside: int) -> RunFolder:
        """Open the folder of a fit, while `n_beside` fits go on side by side.

        The settings of the grid are written first. Raises InputError if the folder holds a fit with other settings.
        """
        if not self._has_settings:
            write_atomically(self.path / "settings.json", (json.dumps(self.settings, indent=1) + "\n").encode())
            self._has_settings = True
        return RunFolder(self.path / name, settings, resume=True, lock=self.lock, n_beside=n_beside)

    def close(self) -> None:
        """Release the lock, and remove the folders if this process made them and they are still empty."""
        if self.lock is not None:
            remove_if_empty(self.path, self._is_new)
            self.lock.release()
            remove_if_empty(self.out, self._is_new)

    def _check(self) -> None:
        """Raise InputError if the folder holds anything that must not be written over."""
        check_place(self.out)
        if self.path.exists() and any(self.path.iterdir()) and not is_of_a_run(self.path / "settings.json"):
            raise InputError(f"{self.path}: is not a grid of streamsvm; choose another --out")
        if self.overwrite:
            return
        if self._has_begun():
            if not self.resume:
                raise InputError(
                    f"{self.out}: a run is there already, of a grid; go on with --resume, or choose another --out, or "
                    "replace it by --overwrite"
                )
            compare_settings(self.path, self.settings)
        elif (self.out / "checkpoint.npz").exists():
            raise InputError(
                f"{self.out}: a run is there already, and not of `tune`; choose another --out, or replace it by "
                "--overwrite"
            )
        else:
            check_empty(self.out, besides={GRID})

    def _has_begun(self) -> bool:
        return any(self.path.glob("*/checkpoint.npz"))

    def _clear(self) -> None:
        for name in RUN_FILES:
            (self.out / name).unlink(missing_ok=True)
        for fit in self.path.iterdir():
            shutil.rmtree(fit) if fit.is_dir() else fit.unlink()
        sync_folder(self.out)
