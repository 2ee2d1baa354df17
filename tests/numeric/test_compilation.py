"""The first run in a fresh environment: kernels are compiled outside of the memory that is projected, and once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamsvm.data.dataset import Dataset
from tests.conftest import ROOT, make_problem

pytestmark = pytest.mark.timeout(900)  # compiling takes half a minute of an idle machine, for each solver
FEW_BYTES = 8 << 20  # by which two runs of the same command differ
SOLVERS = {
    "cutting-plane": (),
    "smo": ("--solver", "smo", "--kernel", "rbf", "--gamma", "0.1"),
    "interior-point": ("--solver", "interior-point"),
}

# Trains, and prints how many passes of the compiler were run in this process itself.
TRAIN = """
import sys
from numba.core import event
from streamsvm.cli.command import main
with event.install_recorder("numba:run_pass") as seen:
    status = main(sys.argv[1:])
print(sum(one.is_start for _, one in seen.buffer))
sys.exit(status)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_problem(3, n=500).store(tmp_path_factory.mktemp("data") / "rows.zarr", chunk_bytes=4000)


def start_training(data: Dataset, out: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    arguments = ["train", data.path, "--out", str(out), "--json", "--threads", "2", *more]
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", TRAIN, *arguments], env={**os.environ, **environment}, text=True,
        cwd=ROOT, **pipes,
    )  # fmt: skip


def end_training(process: subprocess.Popen[str]) -> tuple[dict[str, Any], int, str]:
    """Return the result, the number of passes of the compiler in the process, and what it said."""
    written, told = process.communicate()
    assert process.returncode == 0, told
    result, n_compiled = written.splitlines()[-2:]
    return json.loads(result), int(n_compiled), told


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_first_run_is_as_the_second(solver: str, data: Dataset, tmp_path: Path) -> None:
    """With an empty cache: the same projection and the same model, and nothing is compiled in the process itself."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first, n_first, told_first = end_training(start_training(data, tmp_path / "first", *SOLVERS[solver], **cache))
    second, n_second, told_second = end_training(start_training(data, tmp_path / "second", *SOLVERS[solver], **cache))
    assert (n_first, n_second) == (0, 0)
    assert abs(first["projected_memory_bytes"] - second["projected_memory_bytes"]) < FEW_BYTES
    assert abs(first["peak_memory_bytes"] - second["peak_memory_bytes"]) < FEW_BYTES
    assert first["model_sha256"] == second["model_sha256"]
    message = f"compiling kernels for {solver}, once ..."
    assert (message in told_first.splitlines(), message in told_second.splitlines()) == (True, False)


def test_two_first_runs_at_once(data: Dataset, tmp_path: Path) -> None:
    """One compiles, the other waits for it and loads the same kernels."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    runs = [start_training(data, tmp_path / name, **cache) for name in ("one", "other")]
    (one, n_one, _), (other, n_other, _) = (end_training(run) for run in runs)
    assert (n_one, n_other) == (0, 0)
    assert one["model_sha256"] == other["model_sha256"]
    names = [path.name.rpartition(".")[0] for path in (tmp_path / "cache").rglob("*.nbc")]
    assert len(names) > 10


def test_a_package_that_cannot_be_written_to(data: Dataset, tmp_path: Path) -> None:
    """As in an installation of another user: the user's own cache folder is taken."""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    found = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserWideCacheLocator", **home}
    _, n_compiled, _ = end_training(start_training(data, tmp_path / "run", **found))
    assert n_compiled == 0
    assert list((tmp_path / ".cache" / "numba").rglob("*.nbc"))


def test_no_cache_folder_at_all(data: Dataset, tmp_path: Path) -> None:
    """A temporary folder is made, shared with the child that compiles, and removed at the end."""
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    nowhere = {
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator",
        "NUMBA_CACHE_DIR": str(tmp_path / "file" / "cache"),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    _, n_compiled, told = end_training(start_training(data, tmp_path / "run", **nowhere))
    assert n_compiled == 0
    assert "compiling kernels" in told
    assert list((tmp_path / "temporary").iterdir()) == []
