"""Start a cluster of processes on this machine for `streamsvm train --scheduler`, until Ctrl-C.

    python cluster/local.py [--workers 2] [--threads 1] [--memory 2GB]

The script first prints the scheduler's address, and then a command that lets a shell connect to the scheduler: every
connection requires a key. The key is in a folder that only you can read, and that is removed at the end. Every socket
is on loopback, and there is no dashboard. For a single training, `streamsvm train --workers N` is simpler, since it
starts its own workers. For several trainings, this cluster starts the workers only once.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from distributed.security import Security
from make_certificates import ROLES, make_certificates, make_configuration

from streamsvm.engines.cluster.workers import start_workers
from streamsvm.solvers.set_up import ALL_MODELS, compile_all
from streamsvm.system.errors import InputError
from streamsvm.system.machine import parse_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description="a cluster of processes on this machine, until Ctrl-C")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each worker (default: 1)")
    parser.add_argument("--memory", default="2GB", help="memory limit of each worker (default: 2GB)")
    options = parser.parse_args()
    ending = {signal.SIGINT, signal.SIGTERM}
    try:
        memory_bytes = parse_bytes(options.memory)
        compile_all(ALL_MODELS)  # compile once here, since otherwise every worker process would compile
        signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        with (
            TemporaryDirectory(prefix="streamsvm-keys-") as keys,  # only the owner can read the folder (mode 0700)
            start_workers(options.workers, options.threads, memory_bytes, make_keys(Path(keys))) as client,
        ):
            print(f"{client.scheduler.address}\nexport DASK_CONFIG={keys}/dask.yaml", flush=True)
            print(f"{options.workers} workers; Ctrl-C ends them", file=sys.stderr)
            signal.sigwait(ending)
    except InputError as error:
        print(f"local.py: {error}", file=sys.stderr)
        return 2
    return 0


def make_keys(folder: Path) -> Security:
    """Write certificates, and a configuration that uses them, into a folder.

    Return the certificates for the cluster.
    """
    make_certificates(folder, days=365)
    tls = make_configuration(folder)["distributed"]["comm"]["tls"]
    files = {f"tls_{role}_{part}": tls[role][part] for role in ROLES for part in ("key", "cert")}
    return Security(require_encryption=True, tls_ca_file=tls["ca-file"], **files)


if __name__ == "__main__":
    sys.exit(main())
