"""Commands in unkind surroundings: warnings as errors, closed streams, few descriptors, no folders to write to."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import data, text, trained  # noqa: F401
from tests.conftest import ROOT

pytestmark = pytest.mark.slow("runs each command in a process of its own")

STREAMSVM = (sys.executable, "-W", "error", "-m", "streamsvm")


def execute(*arguments: object, redirect: str = "", limit: int | None = None, **variables: str | None) -> Any:
    """Run a command as a shell would, with these redirections; a variable that is None is removed."""
    kept = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = ["sh", "-c", f'exec "$@" {redirect}', "sh", *STREAMSVM, *map(str, arguments)]

    def lower() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lower,
        env={name: value for name, value in kept.items() if value is not None},
    )


def complaints(told: str) -> list[str]:
    """Lines on standard error that are no progress."""
    return [line for line in told.splitlines() if not line.startswith("pass ") and "rows read" not in line]


COMMANDS: dict[str, list[str]] = {
    "ingest": ["ingest", "{text}", "{out}/d.zarr"],
    "info": ["info", "{data}", "--verify", "--json"],
    "features": ["features", "{data}", "{out}/f.zarr", "--rank", "10"],
    "train": ["train", "{data}", "--out", "{out}/run"],
    "workers": ["train", "{data}", "--out", "{out}/run", "--workers", "1"],
    "plan": ["train", "{data}", "--plan"],
    "tune": ["tune", "{data}", "--C", "0.1,1", "--folds", "2", "--out", "{out}/run"],
    "csv": ["predict", "{trained}", "{text}", "--out", "{out}/p.csv"],
    "zarr": ["predict", "{trained}", "{data}", "--out", "{out}/p.zarr"],
    "evaluate": ["evaluate", "{trained}", "{data}"],
    "export": ["export", "{trained}", "--to", "libsvm", "--out", "{out}/m.txt"],
    "report": ["report", "{trained}", "--out", "{out}/page.html"],
}


def fill_in(name: str, text: Path, data: Path, trained: Path, out: Path) -> list[str]:
    return [part.format(text=text, data=data, trained=trained, out=out) for part in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_warns_and_few_descriptors_suffice(
    name: str, text: Path, data: Path, trained: Path, tmp_path: Path
) -> None:
    """Thirty of them, or eighty where a worker is started."""
    ran = execute(*fill_in(name, text, data, trained, tmp_path), limit=80 if name == "workers" else 30)
    told = [line for line in complaints(ran.stderr) if "fits done" not in line]
    assert (ran.returncode, told) == (0, [])
    assert ran.stdout


@pytest.mark.parametrize("name", ["info", "train", "csv"])
def test_standard_output_is_closed(name: str, text: Path, data: Path, trained: Path, tmp_path: Path) -> None:
    """It is told before anything is done: no result could be told afterwards."""
    ran = execute(*fill_in(name, text, data, trained, tmp_path), redirect=">&-")
    command = COMMANDS[name][0]
    message = f"streamsvm {command}: standard output is closed; send it to a file, or to /dev/null\n"
    assert (ran.returncode, ran.stderr) == (2, message)
    assert list(tmp_path.iterdir()) == []


def test_standard_input_is_closed(text: Path, data: Path, trained: Path, tmp_path: Path) -> None:
    for arguments in (
        ["ingest", "-", tmp_path / "d.zarr"],
        ["predict", trained, "-", "--out", tmp_path / "p.csv"],
        ["evaluate", trained, "-"],
    ):
        ran = execute(*arguments, redirect="<&-")
        message = f"streamsvm {arguments[0]}: <stdin>: standard input is closed\n"
        assert (ran.returncode, ran.stderr) == (2, message)
    assert list(tmp_path.iterdir()) == []
    assert execute("info", data, redirect="<&-").returncode == 0


def test_standard_error_is_closed(data: Path, trained: Path, tmp_path: Path) -> None:
    """No file of the run gets its number, to which libraries might write."""
    out = tmp_path / "run"
    ran = execute("train", data, "--out", out, "--json", redirect="2>&- <&-")
    assert (ran.returncode, json.loads(ran.stdout)["status"]) == (0, "converged")
    assert (out / "model.npz").read_bytes() == (trained / "model.npz").read_bytes()
    assert execute("info", tmp_path / "nothing", redirect=">&- 2>&- <&-").returncode == 2


@pytest.mark.parametrize("redirect", ["2>&-", ">&- 2>&-"])
def test_the_pipe_of_signals_does_not_become_standard_error(text: Path, tmp_path: Path, redirect: str) -> None:
    """Only the lowest free descriptor would be taken, so that standard input stays open here."""
    n_closed = redirect.count("&-")
    assert execute("ingest", text, tmp_path / "d.zarr", redirect=redirect).returncode == (0 if n_closed == 1 else 2)
    assert execute("ingest", tmp_path / "nothing.svm", tmp_path / "e.zarr", redirect=redirect).returncode == 2


def test_characters_that_a_stream_does_not_have_are_escaped(tmp_path: Path) -> None:
    rows, stored, run = tmp_path / "ü.csv", tmp_path / "ü.zarr", tmp_path / "run"
    rows.write_text("ö,y\n" + "1,ä\n2,b\n3,ä\n4,b\n" * 5, "utf-8")
    for command in (
        ["ingest", rows, stored],
        ["train", stored, "--out", run],
        ["evaluate", run, rows],
        ["info", stored],
    ):
        ran = execute(*command, PYTHONIOENCODING="ascii")
        assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert "\\xe4" in ran.stdout
    ran = execute("info", stored, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (ran.returncode, ran.stderr, "\\xe4" in ran.stdout) == (0, "", True)
    ran = execute("info", tmp_path / "é.zarr", PYTHONIOENCODING="ascii")
    assert (ran.returncode, "\\xe9.zarr: no such dataset" in ran.stderr) == (2, True)


def test_functions_that_are_not_to_be_compiled(data: Path) -> None:
    ran = execute("info", data, NUMBA_DISABLE_JIT="1")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "NUMBA_DISABLE_JIT is set" in ran.stderr
    assert "unset it" in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_standard_output_is_full(data: Path) -> None:
    ran = execute("info", data, redirect=">/dev/full", PYTHONUNBUFFERED=None)
    message = "streamsvm info: [Errno 28] standard output cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (1, message)


def test_workers_take_more(data: Path, tmp_path: Path) -> None:
    ran = execute("train", data, "--out", tmp_path / "run", "--workers", "2", limit=30)
    message = "streamsvm train: 2 workers: 96 open files are needed, and the limit is 30; raise it (ulimit -n 96)"
    assert (ran.returncode, len(complaints(ran.stderr))) == (2, 1)
    assert ran.stderr.startswith(message)
    assert list(tmp_path.iterdir()) == []


HOMELESS: list[dict[str, str | None]] = [
    {"TMPDIR": "/nonexistent", "HOME": None},
    {"TMPDIR": "/proc", "HOME": "/proc", "XDG_CACHE_HOME": "/proc"},
]


@pytest.mark.parametrize("variables", HOMELESS)
def test_folders_that_are_missing_or_not_to_be_written_to(
    variables: dict[str, str | None], data: Path, trained: Path, tmp_path: Path
) -> None:
    """Others are found, here beside the package and in /tmp."""
    more = ["--workers", "1"] if variables == HOMELESS[-1] else []
    ran = execute("train", data, "--out", tmp_path / "run", *more, **variables)
    assert (ran.returncode, complaints(ran.stderr)) == (0, [])
    assert (tmp_path / "run" / "model.npz").read_bytes() == (trained / "model.npz").read_bytes()
