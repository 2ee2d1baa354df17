"""Names of Dask on which the engine of workers relies, and which no page of Dask's promises.

This test runs with the newest releases that pip installs, within the bounds in pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from typing import Any

import pytest
from distributed import Client, LocalCluster, Scheduler, Worker
from distributed.worker_memory import WorkerMemoryManager
from distributed.worker_state_machine import TaskState, WorkerState

from streamsvm.engines.cluster.watch import LocalWorkers
from tests.conftest import ROOT

NAMES: list[tuple[Any, str]] = [
    (Client, "sync"),
    (Scheduler, "get_call_stack"),
    (LocalCluster, "_update_worker_status"),
    (Worker, "get_current_task"),
    (WorkerMemoryManager, "memory_limit"),
    (WorkerState, "nthreads"),
    (WorkerState, "tasks"),
    (TaskState, "state"),
]


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_a_name_of_dask_is_there(owner: Any, name: str) -> None:
    known = {*dir(owner), *getattr(owner, "__annotations__", {})}
    assert name in known, (
        f"distributed {version('distributed')} has no {owner.__name__}.{name}, on which streamsvm.engines relies: "
        "use another one, or lower the bound of its version in pyproject.toml"
    )


def list_lacking(dask_worker: Worker) -> list[str]:
    return [name for name in ("state", "memory_manager", "metrics", "loop") if not hasattr(dask_worker, name)]


def test_attributes_of_a_worker_are_there(client: Client) -> None:
    """Those that a worker gets as it starts."""
    found = client.run(list_lacking)
    assert not any(found.values()), f"workers of distributed {version('distributed')} lack {found}"
    assert LocalWorkers._update_worker_status is not LocalCluster._update_worker_status


def test_the_versions_of_dask_have_an_upper_bound() -> None:
    """The release that is installed is within it, and so is the newest one, which pip installs for the tests."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for name in ("dask", "distributed"):
        (bounds,) = [re.fullmatch(rf"{name}>=(\d+)\.(\d+),<(\d+)", one) for one in wanted if one.startswith(name)]
        assert bounds is not None, f"{name} needs an upper bound: the engine of workers relies on names of its own"
        year = int(version(name).split(".")[0])
        assert int(bounds[1]) <= year < int(bounds[3])
