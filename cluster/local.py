"""Start a cluster of processes on this machine for `streamsvm train --scheduler`, until Ctrl-C.

    python cluster/local.py [--workers 2] [--threads 1] [--memory 2GB]

Prints the scheduler's address as its first line. Every socket is on loopback; there is no dashboard. For one training,
`streamsvm train --workers N` does the same by itself; this saves the start of the workers to those that follow.
"""

from __future__ import annotations

import argparse
import signal
import sys

from streamsvm.engines.workers import start_workers
from streamsvm.errors import InputError
from streamsvm.machine import parse_bytes
from streamsvm.numeric.warm_up import compile_kernels


def main() -> int:
    parser = argparse.ArgumentParser(description="a cluster of processes on this machine, until Ctrl-C")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each (default: 1)")
    parser.add_argument("--memory", default="2GB", help="limit of each (default: 2GB)")
    options = parser.parse_args()
    ending = {signal.SIGINT, signal.SIGTERM}
    try:
        memory_bytes = parse_bytes(options.memory)
        compile_kernels()  # once, before several processes want to
        signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        with start_workers(options.workers, options.threads, memory_bytes) as client:
            print(client.scheduler.address, flush=True)
            print(f"{options.workers} workers; Ctrl-C ends them", file=sys.stderr)
            signal.sigwait(ending)
    except InputError as error:
        print(f"local.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
