"""The folder RUN/grid, from which `tune` is resumed. It holds the run's folder of each fit that has begun.

RUN itself becomes the run's folder of the best setting. One lock, in RUN, is held from the first fit to the end.

settings.json     the grid that was asked for; `--resume` refuses to go on with another grid
map.npz           what the passes have found that look for a feature map, if there is one (training.on_the_fly)
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
from streamsvm.training.run_folder import MAP_FILE, RUN_FILES, RunFolder

GRID = "grid"


class GridFolder:
    """The folder of one grid, new or resumed. `take_over` locks it until `close`; before that, nothing is written.

    settings: what was asked for; None while a feature map is looked for, on which the settings depend. lock: that of a
    caller who has locked the folder already.
    """

    def __init__(
        self, out: str | Path, settings: dict[str, Any] | None, resume: bool, overwrite: bool, lock: Lock | None = None
    ) -> None:
        self.out, self.settings, self.resume, self.overwrite = Path(out), settings, resume, overwrite
        self.path = self.out / GRID
        self.lock, self._owns_lock = lock, lock is None
        self._is_new = self._has_settings = False
        self._check()

    def take_over(self) -> None:
        """Make and lock the folder, and remove the files of a run that is to be replaced."""
        try:
            self._is_new = not self.out.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock = self.lock or Lock(self.out, self.out / LOCK)
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
        if self.lock is not None and self._owns_lock:
            remove_if_empty(self.path, self._is_new)
            self.lock.release()
            remove_if_empty(self.out, self._is_new)

    def _check(self) -> None:
        """Raise InputError if the folder holds anything that must not be written over."""
        check_place(self.out)
        names = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
        if not names <= {MAP_FILE} and not is_of_a_run(self.path / "settings.json"):
            raise InputError(f"{self.path}: is not a grid of streamsvm; choose another --out")
        if self.overwrite:
            return
        if self._has_begun():
            if not self.resume:
                raise InputError(
                    f"{self.out}: a run is there already, of a grid; go on with --resume, or choose another --out, or "
                    "replace it by --overwrite"
                )
            if self.settings is not None:
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
        kept = set() if self.overwrite else {MAP_FILE}
        for fit in [entry for entry in self.path.iterdir() if entry.name not in kept]:
            shutil.rmtree(fit) if fit.is_dir() else fit.unlink()
        sync_folder(self.out)
