"""The sockets of worker processes: all are on loopback, and none answers those without the key."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import psutil
import pytest
from distributed import Client, Worker
from distributed.security import Security

from streamsvm.engines.cluster.workers import start_workers
from tests.conftest import WORKER_BYTES, run_python

pytestmark = pytest.mark.usefixtures("spawned_workers")


@pytest.fixture(scope="module")
def other_ports() -> set[int]:
    """Where clusters of other tests listen, before the one of these tests is there."""
    return list_ports()


@pytest.fixture(scope="module")
def client(other_ports: set[int], spawned_workers: None, workers_import_tests: None) -> Iterator[Client]:
    """Two worker processes that start by themselves, as they do for users."""
    with start_workers(2, 1, WORKER_BYTES) as opened:
        yield opened


def listening(process: psutil.Process) -> list[Any]:
    """Where a process listens: nowhere if it has ended, as workers of other tests may have a moment ago."""
    try:
        return [c.laddr for c in process.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN]
    except psutil.NoSuchProcess:
        return []


def test_every_socket_is_on_loopback(client: Client) -> None:
    """Those of this process, where the scheduler runs, and of all processes it has started."""
    me = psutil.Process()
    processes = [me, *me.children(recursive=True)]
    addresses = [address for process in processes for address in listening(process)]
    assert len(addresses) >= 5, "a scheduler, two nannies and two workers listen"
    assert all(ipaddress.ip_address(address.ip).is_loopback for address in addresses)


def list_ports() -> set[int]:
    """Where this process and all processes that it has started listen."""
    me = psutil.Process()
    return {address.port for process in (me, *me.children(recursive=True)) for address in listening(process)}


def ports_of(client: Client, other_ports: set[int]) -> set[int]:
    """Where a cluster listens: the scheduler and the nannies in this process, the workers in their own."""
    ports = list_ports() - other_ports
    assert client.scheduler.address.rpartition(":")[2] in map(str, ports)
    return ports


def test_there_is_no_dashboard_and_no_fixed_port(client: Client, other_ports: set[int]) -> None:
    """Where Dask would serve pages nobody listens, not even to say that there are none."""
    ports = ports_of(client, other_ports)
    assert 8787 not in ports
    info = client.scheduler_info(n_workers=-1)
    services = [info["services"], *(worker["services"] for worker in info["workers"].values())]
    assert not {port for each in services for port in each.values()} & ports


def test_no_port_answers_those_without_the_key(client: Client, other_ports: set[int]) -> None:
    """Neither plain text, nor TLS without a certificate, nor TLS with one of another cluster."""
    stranger = Security.temporary()
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    foreign = show_certificate(stranger.tls_client_cert, stranger.tls_client_key)
    own = show_certificate(client.security.tls_client_cert, client.security.tls_client_key)
    for port in ports_of(client, other_ports):
        assert greeting(port, own) != b"", "who holds the key is greeted"
        assert greeting(port, None) == b"", "plain text is answered"
        for context in (bare, foreign):
            assert greeting(port, context) == b"", "a stranger is answered"


def show_certificate(certificate: str, key: str) -> ssl.SSLContext:
    """A client that trusts everybody and shows a certificate of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("certificate.pem", "key.pem")]
        for file, content in zip(files, (certificate, key), strict=True):
            file.write_text(content)
        context.load_cert_chain(*map(str, files))
    return context


def greeting(port: int, context: ssl.SSLContext | None) -> bytes:
    """What is said to one who connects and says nothing; nothing if he is turned away. (Dask's servers greet first.)"""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            if context is None:
                plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return plain.recv(100)
            with context.wrap_socket(plain, server_hostname="localhost") as secure:
                return secure.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""


CONNECTING = """
import asyncio, sys
from distributed.core import rpc
from distributed.security import Security

async def ask(address, security):
    arguments = security.get_connection_args("client")
    async with rpc(address, connection_args=arguments, timeout=3) as server:
        return await asyncio.wait_for(server.identity(), 10)

for address in sys.argv[1:]:
    for security in (Security(), Security.temporary()):
        try:
            print(asyncio.run(ask(address, security))["type"])
        except (OSError, TypeError, RuntimeError) as error:
            print("refused")
"""


def test_another_process_cannot_connect(client: Client) -> None:
    """Neither to the scheduler nor to a worker, by either protocol, without a key or with one of its own."""
    addresses = [client.scheduler.address, *client.scheduler_info(n_workers=-1)["workers"]]
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    plain = [address.replace("tls://", "tcp://") for address in addresses]
    ran = run_python(CONNECTING, *addresses, *plain)
    assert ran.stdout.split() == ["refused"] * 4 * len(addresses), ran.stdout + ran.stderr


def test_the_key_is_in_no_file_and_no_command_line(client: Client, tmp_path: Path) -> None:
    """Other users can read command lines, and the environment of nobody else."""
    key = client.security.tls_client_key
    assert "PRIVATE KEY" in key
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended
            assert "PRIVATE KEY" not in " ".join(process.cmdline())
    assert not [name for name in os.listdir(gettempdir()) if name.endswith(".pem")]


def test_nothing_is_measured_for_pages_that_are_not_there(client: Client) -> None:
    def find_callbacks(dask_worker: Worker) -> dict[str, float]:
        return {name: callback.callback_time for name, callback in dask_worker.periodic_callbacks.items()}

    for callbacks in client.run(find_callbacks).values():
        assert "profile" not in callbacks
        assert callbacks["tick"] >= 1000
        assert callbacks["monitor"] >= 10_000


@pytest.mark.slow("kills a worker")
def test_a_worker_that_replaces_a_dead_one_has_no_pages_either(workers_import_tests: None) -> None:
    with start_workers(1, 1, WORKER_BYTES) as client:
        (before,) = client.run(os.getpid).values()
        os.kill(before, signal.SIGKILL)
        after = client.submit(os.getpid, pure=False, retries=5).result()
        assert after != before
        assert len(listening(psutil.Process(after))) == 1
