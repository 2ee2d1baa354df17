"""Worker processes of one's own, and connections to clusters of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamsvm.errors import InputError
from streamsvm.machine import resident_bytes
from streamsvm.numeric.warm_up import compile_kernels

if TYPE_CHECKING:
    from distributed import Client, Worker


@dataclass(frozen=True)
class ReadyWorker:
    """A worker with its kernels loaded: resident memory, threads, memory limit (0: none)."""

    resident_bytes: int
    threads: int
    limit_bytes: int


def prepare_worker(dask_worker: Worker) -> ReadyWorker:
    """Load in a worker all that a task needs, so that its memory can be projected."""
    compile_kernels()
    limit_bytes = int(dask_worker.memory_manager.memory_limit or 0)
    return ReadyWorker(resident_bytes(), dask_worker.state.nthreads, limit_bytes)


@contextmanager
def start_workers(n_workers: int, threads: int, memory_bytes: int) -> Iterator[Client]:
    """Start worker processes on this machine; every socket is on loopback, and there is no dashboard."""
    import dask
    from distributed import Client, LocalCluster

    no_spilling = {f"distributed.worker.memory.{what}": False for what in ("target", "spill", "pause")}
    with (
        dask.config.set({**no_spilling, "distributed.worker.memory.terminate": 0.99}),
        LocalCluster(
            n_workers=n_workers, threads_per_worker=threads, processes=True, memory_limit=memory_bytes,
            host="127.0.0.1", dashboard_address=None, worker_dashboard_address=None, silence_logs="ERROR",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield client


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to a scheduler; TLS is taken from Dask's configuration (`distributed.comm.tls`)."""
    from distributed import Client

    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"scheduler {address}: {error}") from error
    with client:
        yield client
