"""A local cluster of Dask that lives through the loss of any worker."""

from __future__ import annotations

from typing import Any

from distributed import LocalCluster


class LocalWorkers(LocalCluster):  # type: ignore[misc]
    """A cluster that may be told of the end of a worker whose start it was not told of.

    A worker that is killed while it starts can end in this way. LocalCluster would stop listening to the scheduler, and
    raise KeyError when it is closed, after a training that has succeeded.
    """

    def _update_worker_status(self, op: str, msg: Any) -> None:
        if op != "remove" or msg in self.scheduler_info["workers"]:
            super()._update_worker_status(op, msg)
