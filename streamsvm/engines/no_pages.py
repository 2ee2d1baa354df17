"""What a worker process loads as it starts: it closes the port of its web pages, since that asks nobody for a key.

Dask opens this port even where there are no pages to show. A worker that takes the place of a dead one loads this, too.
"""

from __future__ import annotations

from typing import Any


def dask_setup(worker: Any) -> None:
    """Close the port; Dask calls this once the worker listens."""
    worker.http_server.stop()
