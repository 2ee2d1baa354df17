"""The first run in a fresh environment: kernels are compiled outside of the memory that is projected, and once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamsvm.data.store.dataset import Dataset
from tests.conftest import ROOT, make_problem, run_python

# Compiling takes half a minute of an idle machine, for each solver.
pytestmark = [pytest.mark.slow("compiles in processes of their own"), pytest.mark.timeout(900)]
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
from streamsvm.cli.main import main
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
        [sys.executable, "-W", "error", "-c", TRAIN, *arguments],
        env={**os.environ, **environment},
        text=True,
        cwd=ROOT,
        **pipes,
    )


def end_training(process: subprocess.Popen[str]) -> tuple[dict[str, Any], int, str]:
    """Return the result, the number of passes of the compiler in the process, and what it said."""
    written, told = process.communicate()
    assert process.returncode == 0, told
    result, n_compiled = written.splitlines()[-2:]
    return json.loads(result), int(n_compiled), told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that is empty at first. The kernels that all solvers need are compiled by the first of them."""
    return tmp_path_factory.mktemp("compiled") / "cache"


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_first_run_is_as_the_second(solver: str, data: Dataset, folder: Path, tmp_path: Path) -> None:
    """With a cache without a solver's kernels: the same projection and model, and nothing is compiled in the process.

    The first run is two at once: one compiles, the other waits for it and loads the same kernels. The second run leaves
    the files of the cache as they are.
    """
    cache, before = {"NUMBA_CACHE_DIR": str(folder)}, list_kernels(folder)
    runs = [start_training(data, tmp_path / name, *SOLVERS[solver], **cache) for name in ("one", "other")]
    firsts = [end_training(run) for run in runs]
    compiled = list_kernels(folder)
    second, n_second, told_second = end_training(start_training(data, tmp_path / "second", *SOLVERS[solver], **cache))
    assert len(compiled) > len(before) + 5
    assert before.items() <= compiled.items()
    assert list_kernels(folder) == compiled
    assert n_second == 0
    message = f"compiling kernels for {solver}/dense"
    assert message not in told_second
    assert any(message in told for *_, told in firsts)
    for first, n_first, _ in firsts:
        assert n_first == 0
        assert abs(first["projected_memory_bytes"] - second["projected_memory_bytes"]) < FEW_BYTES
        assert abs(first["peak_memory_bytes"] - second["peak_memory_bytes"]) < FEW_BYTES
        assert first["model_sha256"] == second["model_sha256"]


def list_kernels(cache: Path) -> dict[str, int]:
    """Return when each compiled kernel of a cache folder was written, in nanoseconds."""
    return {str(path): path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}


# Loads the few kernels that all solvers need, and prints how many passes of the compiler were run in this process.
LOAD = """
import logging
from numba.core import event
from streamsvm.solvers.set_up import compile_all
logging.basicConfig(level=logging.INFO, format="%(message)s")
with event.install_recorder("numba:run_pass") as seen:
    compile_all(["rows"])
print(sum(one.is_start for _, one in seen.buffer))
"""


def load_kernels(**environment: str) -> str:
    """Load kernels in a fresh process, which must not compile itself; return what it wrote to standard error."""
    ended = run_python(LOAD, **environment)
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
    return ended.stderr


def test_a_package_that_cannot_be_written_to(tmp_path: Path) -> None:
    """As in an installation of another user: the user's own cache folder is taken."""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    load_kernels(NUMBA_CACHE_LOCATOR_CLASSES="UserWideCacheLocator", **home)
    assert list((tmp_path / ".cache" / "numba").rglob("*.nbc"))


def test_no_cache_folder_at_all(tmp_path: Path) -> None:
    """A temporary folder is made, shared with the child that compiles, and removed at the end."""
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    told = load_kernels(
        NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator",
        NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"),
        TMPDIR=str(tmp_path / "temporary"),
    )
    assert "compiling kernels" in told
    assert list((tmp_path / "temporary").iterdir()) == []
