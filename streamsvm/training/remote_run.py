"""The folder of a run in an object store: a temporary folder, whose files are put into the store as they are complete.

A checkpoint is one object. It is put there on the condition that the object is the one that this process has read or
written last, so that two processes cannot write to one run unnoticed. The history is put there before the checkpoint
that counts its lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from streamsvm.data.remote_folder import RemoteFolder
from streamsvm.errors import InputError
from streamsvm.training.run_folder import RUN_FILES

CHECKPOINT = "checkpoint.npz"


class RemoteRun:
    """The files of a run, in a local folder and in the store.

    Parameters
    ----------
    url : str
        Where the files lie in the store.
    folder : Path
        The local folder, which holds the files that the store had.
    overwrite : bool
        Whether the files in the store are of a run that is replaced. They are removed before the first one is put.
    """

    def __init__(self, url: str, folder: Path, overwrite: bool) -> None:
        self.url, self.folder, self._overwrite = url, folder, overwrite
        self._store = RemoteFolder(url)
        self._known: dict[str, tuple[int, int]] = {}  # the size and time of the files that are in the store
        there = self._store.list_names()
        if "zarr.json" in there:
            raise InputError(f"{url}: is a dataset; choose another place for the run")
        self._to_remove = [name for name in RUN_FILES if name in there and overwrite]
        for name in there:
            if name in RUN_FILES and not overwrite:
                self._store.fetch(name, folder / name)
                self._known[name] = self._look(name)

    def put(self, names: Sequence[str]) -> None:
        """Put files into the store, one after another, unless they are there already."""
        for name in self._to_remove:
            self._store.remove(name)
        self._to_remove = []
        for name in names:
            if (self.folder / name).exists() and self._known.get(name) != (state := self._look(name)):
                self._store.put(name, self.folder / name, only_if_known=name == CHECKPOINT)
                self._known[name] = state

    def put_all(self) -> None:
        """Put all files of the run into the store; the model comes after the checkpoint, as on a disk."""
        self.put(RUN_FILES[::-1])

    def _look(self, name: str) -> tuple[int, int]:
        about = (self.folder / name).stat()
        return about.st_size, about.st_mtime_ns


@contextmanager
def open_remote_run(url: str, overwrite: bool) -> Iterator[RemoteRun]:
    """Yield a run in a store, whose files are all put there if the block succeeds. Messages of errors name the URL."""
    with TemporaryDirectory(prefix="streamsvm-run") as folder:
        try:
            run = RemoteRun(url.rstrip("/"), Path(folder), overwrite)
            yield run
            run.put_all()
        except InputError as error:
            raise type(error)(str(error).replace(folder, url.rstrip("/"))) from error
