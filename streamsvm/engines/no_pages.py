"""A module that each worker process loads as it starts, to close the port of its web pages.

Dask opens this port even if there are no pages to show, and the port asks nobody for a key. A worker that replaces a
dead one loads this module, too.
"""

from __future__ import annotations

from typing import Any


def dask_setup(worker: Any) -> None:
    """Close the port; Dask calls this once the worker listens."""
    worker.http_server.stop()
