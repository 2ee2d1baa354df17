"""A disk that fills up: the message names the file, the exit status is 2, and nothing half-made is left."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamsvm.system.errors import WriteError
from streamsvm.system.files import sync_folder, write_atomically
from tests.commands import Run, data, run, text, trained  # noqa: F401
from tests.data.conftest import small_files

MANY_STEPS = ["--tol", "1e-12", "--option", "acceleration=none"]
COMMANDS: dict[str, tuple[int, Callable[[Path, Path, Path, Path], list[Any]]]] = {
    "d.zarr": (900, lambda text, data, trained, out: ["ingest", text, out]),
    "f.zarr": (1500, lambda text, data, trained, out: ["features", data, out, "--map", "nystrom", "--rank", "20"]),
    "p.csv": (1500, lambda text, data, trained, out: ["predict", trained, text, "--out", out]),
    "p.npy": (1500, lambda text, data, trained, out: ["predict", trained, text, "--out", out]),
    "p.zarr": (900, lambda text, data, trained, out: ["predict", trained, text, "--out", out]),
    "report.html": (1500, lambda text, data, trained, out: ["report", trained, "--out", out]),
    "m.json": (200, lambda text, data, trained, out: ["export", trained, "--to", "json", "--out", out]),
    "settings.json": (100, lambda text, data, trained, out: ["train", data, "--out", out.parent / "run"]),
    "history.jsonl": (
        2000,
        lambda text, data, trained, out: ["train", data, "--out", out.parent / "run", "--C", "1000", *MANY_STEPS],
    ),
    "checkpoint.npz": (2500, lambda text, data, trained, out: ["train", data, "--out", out.parent / "run"]),
    "grid/settings.json": (
        100,
        lambda text, data, trained, out: ["tune", data, "--C", "0.1,1", "--out", out.parents[1] / "run"],
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_file_is_named_and_nothing_is_left(
    run: Run, text: Path, data: Path, trained: Path, tmp_path: Path, name: str
) -> None:
    limit, make_command = COMMANDS[name]
    command = make_command(text, data, trained, tmp_path / name)
    before = sorted(path for path in trained.rglob("*"))
    with small_files(limit):
        ran = run(*command)
    assert (ran.code, f"{name}: cannot be written: File too large" in ran.err) == (2, True), ran.err
    assert "Traceback" not in ran.err
    assert sorted(path for path in trained.rglob("*")) == before
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.name.startswith(".f.zarr")}
    assert left <= {"run", "run/settings.json", "run/history.jsonl"}
    assert ("run" in left) == (name in ("history.jsonl", "checkpoint.npz"))


def test_a_checkpoint_stays_when_the_next_one_does_not_fit(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    several_passes = ("--option", "acceleration=line-search")
    assert run("train", data, "--out", out, "--max-passes", "1", *several_passes).code == 3
    before = (out / "checkpoint.npz").read_bytes()
    with small_files(len(before)):
        ran = run("train", data, "--out", out, "--resume", *several_passes)
    assert (ran.code, "cannot be written: File too large" in ran.err) == (2, True)
    assert (out / "checkpoint.npz").read_bytes() == before
    assert run("train", data, "--out", out, "--resume", *several_passes).code == 0
    assert run("train", data, "--out", tmp_path / "whole", *several_passes).code == 0
    assert (out / "model.npz").read_bytes() == (tmp_path / "whole/model.npz").read_bytes()


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_whatever_fails_is_an_error_of_the_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python callers may catch it as OSError, as ever, or as InputError."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "open") if call == "open" else (os, call)), fail)
        with pytest.raises(WriteError, match=r"model\.npz: cannot be written: No space left on device") as caught:
            write_atomically(tmp_path / "model.npz", b"model")
    assert isinstance(caught.value, OSError)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_synced_are_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems know no fsync of folders; a folder may be open for writing and not for reading."""
    sync, opened = os.fsync, os.open

    def sync_files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    def open_files_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, flags, *more, **named)

    for name, call in (("fsync", sync_files_only), ("open", open_files_only)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, call)
            sync_folder(tmp_path)
            write_atomically(tmp_path / name, b"content")
        assert (tmp_path / name).read_bytes() == b"content"
