"""Worker processes of one's own, and schedulers of others: what listens where, what is refused, TLS."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import dask
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from distributed import Client, LocalCluster
from distributed.security import Security

from streamsvm.data.dataset import Dataset
from streamsvm.engines.workers import Load, ReadyWorker, connect, prepare_worker, prepare_workers, start_workers
from streamsvm.errors import InputError
from streamsvm.methods.warm_up import compile_kernels
from streamsvm.training.train import TrainOptions, train
from tests.conftest import WORKER_BYTES, make_problem, run_python


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_problem(1).store(tmp_path / "rows", chunk_bytes=1000)


@contextmanager
def cluster_of_others(n_workers: int, **options: Any) -> Iterator[LocalCluster]:
    """A cluster that is there already; in this process, to be quick."""
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=False, host="127.0.0.1", scheduler_kwargs=quiet,
        memory_limit=WORKER_BYTES, **{"protocol": "tcp", **options},
    ) as cluster:  # fmt: skip
        yield cluster


def listening(process: psutil.Process) -> list[Any]:
    return [c.laddr for c in process.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN]


def test_every_socket_is_on_loopback(client: Client) -> None:
    """Those of this process, where the scheduler runs, and of all processes it has started."""
    me = psutil.Process()
    processes = [me, *me.children(recursive=True)]
    addresses = [address for process in processes for address in listening(process)]
    assert len(addresses) >= 5, "a scheduler, two nannies and two workers listen"
    assert all(ipaddress.ip_address(address.ip).is_loopback for address in addresses)


def ports_of(client: Client) -> set[int]:
    """Where a cluster listens: the scheduler and the nannies in this process, the workers in their own."""
    me = psutil.Process()
    before = {address.port for address in listening(me)}
    assert client.scheduler.address.rpartition(":")[2] in map(str, before)
    return before | {address.port for child in me.children(recursive=True) for address in listening(child)}


def test_there_is_no_dashboard_and_no_fixed_port(client: Client) -> None:
    """Where Dask would serve pages nobody listens, not even to say that there are none."""
    ports = ports_of(client)
    assert 8787 not in ports
    info = client.scheduler_info(n_workers=-1)
    services = [info["services"], *(worker["services"] for worker in info["workers"].values())]
    assert not {port for each in services for port in each.values()} & ports


def test_no_port_answers_those_without_the_key(client: Client) -> None:
    """Neither plain text, nor TLS without a certificate, nor TLS with one of another cluster."""
    stranger = Security.temporary()
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    foreign = show_certificate(stranger.tls_client_cert, stranger.tls_client_key)
    own = show_certificate(client.security.tls_client_cert, client.security.tls_client_key)
    for port in ports_of(client):
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
        assert "PRIVATE KEY" not in " ".join(process.cmdline())
    assert not [name for name in os.listdir(gettempdir()) if name.endswith(".pem")]


def test_a_worker_that_replaces_a_dead_one_has_no_pages_either(workers_import_tests: None) -> None:
    with start_workers(1, 1, WORKER_BYTES) as client:
        (before,) = client.run(os.getpid).values()
        os.kill(before, signal.SIGKILL)
        after = client.submit(os.getpid, pure=False, retries=5).result()
        assert after != before
        assert len(listening(psutil.Process(after))) == 1


def test_workers_are_as_asked_for_and_end_with_the_block(workers_import_tests: None) -> None:
    before = set(psutil.Process().children(recursive=True))
    with start_workers(1, 2, WORKER_BYTES // 2) as client:
        (ready,) = client.run(prepare_worker, load=compile_kernels).values()
        started = set(psutil.Process().children(recursive=True)) - before
        assert ready == ReadyWorker(ready.resident_bytes, 2, WORKER_BYTES // 2)
        assert 50_000_000 < ready.resident_bytes < 1_000_000_000
        assert len(started) >= 1
    gone, alive = psutil.wait_procs(started, timeout=10)
    assert gone
    assert not [process for process in alive if "spawn_main" in " ".join(process.cmdline())]


def test_one_worker_of_each_host_compiles_before_the_others(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that compile the same function at once may crash: the second finds it in the cache."""
    calls: list[list[str]] = []
    run = client.run

    def record(function: Any, workers: list[str], **arguments: Any) -> Any:
        calls.append(workers)
        return run(function, workers=workers, **arguments)

    monkeypatch.setattr(client, "run", record)
    ready = prepare_workers(client, compile_kernels)
    assert [worker.threads for worker in ready] == [1, 1]
    assert [len(workers) for workers in calls] == [1, 1]
    assert {address for workers in calls for address in workers} == set(client.scheduler_info(-1)["workers"])


class TwoHosts:
    """Stands in for a Client of three workers on one host and one on another."""

    def __init__(self) -> None:
        self.hosts = {"tcp://a:1": "a", "tcp://b:1": "b", "tcp://a:2": "a", "tcp://a:3": "a"}
        self.calls: list[set[str]] = []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1, "all of them"
        return {"workers": {address: {"host": host} for address, host in self.hosts.items()}}

    def run(self, function: Any, workers: list[str], load: Load, on_error: str) -> dict[str, ReadyWorker]:
        assert (function, load, on_error) == (prepare_worker, compile_kernels, "return")
        self.calls.append(set(workers))
        return dict.fromkeys(workers, ReadyWorker(1, 1, 0))


def test_hosts_compile_side_by_side() -> None:
    client = TwoHosts()
    assert len(prepare_workers(client, compile_kernels)) == 4
    first, then = client.calls
    assert sorted(client.hosts[address] for address in first) == ["a", "b"]
    assert first | then == set(client.hosts)
    assert not first & then


def test_training_on_the_cluster_of_others_gives_the_same_bits(dataset: Dataset) -> None:
    with cluster_of_others(2) as cluster:
        there = train(dataset, TrainOptions(scheduler=cluster.scheduler_address))
        assert len(cluster.scheduler_info["workers"]) == 2, "their workers go on"
    assert there.model_sha256 == train(dataset, TrainOptions()).model_sha256


def test_a_cluster_without_workers_is_refused(dataset: Dataset) -> None:
    with (
        cluster_of_others(0) as cluster,
        pytest.raises(InputError, match=r"scheduler tcp://.*: no workers"),
    ):
        train(dataset, TrainOptions(scheduler=cluster.scheduler_address))


@pytest.mark.parametrize("address", ["nonsense", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "quic://a:1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=f"scheduler {address}: "), connect(address):
        pass


def test_a_scheduler_that_is_not_there_is_refused_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(InputError, match=f"scheduler {address}: .*refused"), connect(address):
            pass


def write_certificate(folder: Path) -> tuple[str, str]:
    """A key and the certificate it signs for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    key_file, certificate_file = folder / "key.pem", folder / "certificate.pem"
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return str(key_file), str(certificate_file)


def test_tls_is_taken_from_dasks_configuration(dataset: Dataset, tmp_path: Path) -> None:
    """With it a run has its usual bits; without it, and in plain text, the scheduler cannot be reached."""
    key, certificate = write_certificate(tmp_path)
    tls = {"distributed.comm.require-encryption": True, "distributed.comm.tls.ca-file": certificate}
    for role in ("scheduler", "worker", "client"):
        tls |= {f"distributed.comm.tls.{role}.key": key, f"distributed.comm.tls.{role}.cert": certificate}
    with dask.config.set(tls), cluster_of_others(1, protocol="tls") as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        secure = train(dataset, TrainOptions(scheduler=address))
        without, refused = (
            dask.config.set(dict.fromkeys(tls)),
            pytest.raises(InputError, match=f"scheduler {address}: "),
        )
        with without, refused, connect(address):
            pass
    assert secure.model_sha256 == train(dataset, TrainOptions()).model_sha256
