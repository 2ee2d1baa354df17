"""A module that each worker process loads as it starts; a worker that replaces a dead one loads it, too.

It closes the port of the worker's web pages: Dask opens this port even if there are no pages to show, and the port asks
nobody for a key. It also lets the process end at once: before a process ends, Python looks for garbage among all
objects, of which the compiler's packages have so many that this takes half a second.
"""

from __future__ import annotations

import atexit
import gc
from typing import Any


def dask_setup(worker: Any) -> None:
    """Close the port, and leave the garbage; Dask calls this once the worker listens."""
    worker.http_server.stop()
    atexit.register(gc.freeze)
