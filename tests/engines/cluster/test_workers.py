"""Worker processes of one's own, and schedulers of others: what is compiled where, what is refused, TLS."""

from __future__ import annotations

import asyncio
import datetime
import os
import pkgutil
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import dask
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster

import streamsvm
from streamsvm import LinearSVC
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import workers
from streamsvm.engines.cluster.workers import ReadyWorker, connect, prepare_worker, prepare_workers, start_workers
from streamsvm.numeric.compilation import describe_arithmetic
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import ALL_MODELS, compile_all
from streamsvm.system.errors import InputError
from tests.conftest import WORKER_BYTES, make_problem
from tests.docs.quoted import is_quoted
from tests.engines.cluster.test_pass_on_workers import await_file

LOAD = partial(compile_all, ALL_MODELS)

pytestmark = pytest.mark.usefixtures("spawned_workers")


@pytest.fixture(scope="module")
def client(spawned_workers: None, workers_import_tests: None) -> Iterator[Client]:
    """Two worker processes that start by themselves, as they do for users."""
    with start_workers(2, 1, WORKER_BYTES) as opened:
        yield opened


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_problem(1).store(tmp_path / "rows", chunk_bytes=1000)


@contextmanager
def cluster_of_others(n_workers: int, **options: Any) -> Iterator[LocalCluster]:
    """A cluster that is there already; in this process, to be quick."""
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=options.pop("processes", False),
        host="127.0.0.1",
        scheduler_kwargs=quiet,
        memory_limit=WORKER_BYTES,
        **{"protocol": "tcp", **options},
    ) as cluster:
        yield cluster


def test_workers_are_as_asked_for_and_end_with_the_block(workers_import_tests: None) -> None:
    before = set(psutil.Process().children(recursive=True))
    with start_workers(1, 2, WORKER_BYTES // 2) as client:
        (ready,) = client.run(prepare_worker, load=LOAD).values()
        children = set(psutil.Process().children(recursive=True)) - before
        started = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        assert ready == ReadyWorker(ready.address, ready.resident_bytes, 2, WORKER_BYTES // 2, describe_arithmetic())
        assert 50_000_000 < ready.resident_bytes < 1_000_000_000
        assert len(started) >= 1
        cluster: Any = client.cluster
        cluster._update_worker_status("remove", "tls://127.0.0.1:1")  # killed before the cluster heard of it
    assert psutil.wait_procs(started, timeout=60)[1] == []


@pytest.mark.slow("starts workers of its own")
def test_one_worker_of_each_host_compiles_before_the_others(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that compile the same function at once may crash: the second finds it in the cache."""
    calls: list[list[str]] = []
    run = client.run

    def record(function: Any, *arguments: Any, **named: Any) -> Any:
        if function is prepare_worker:
            calls.append(named["workers"])
        return run(function, *arguments, **named)

    monkeypatch.setattr(client, "run", record)
    ready = prepare_workers(client, LOAD)
    assert [worker.threads for worker in ready] == [1, 1]
    assert [len(workers) for workers in calls] == [1, 1]
    assert {address for workers in calls for address in workers} == set(client.scheduler_info(-1)["workers"])


def load_until_told(folder: Path) -> None:
    """Load nothing, for as long as it takes until the test has told that all workers have answered."""
    (folder / "loading").touch()
    await_file(folder / "answered")


def test_a_worker_answers_while_it_loads_its_kernels(client: Client, tmp_path: Path) -> None:
    """It may compile them for minutes, and the scheduler restarts a worker whose heart has not beaten for so long."""
    with ThreadPoolExecutor(1) as pool:
        preparing = pool.submit(prepare_workers, client, partial(load_until_told, tmp_path))
        await_file(tmp_path / "loading")
        assert len(client.run(os.getpid)) == 2
        (tmp_path / "answered").touch()
        assert len(preparing.result()) == 2


class TwoHosts:
    """Stands in for a Client of three workers on one host and one on another, and for what waits for them."""

    HOSTS: ClassVar = {"tcp://a:1": "a", "tcp://b:1": "b", "tcp://a:2": "a", "tcp://a:3": "a"}
    address, name = "tcp://c:1", "of the work"

    def __init__(self) -> None:
        self.calls: list[set[str]] = []

    def describe_workers(self) -> dict[str, Any]:
        return {address: {"host": host} for address, host in self.HOSTS.items()}

    def run(self, function: Any, *arguments: Any, workers: list[str], **named: Any) -> dict[str, Any]:
        if function is pkgutil.resolve_name:
            return dict.fromkeys(workers, streamsvm.__version__)
        assert (function, arguments, named["load"]) == (prepare_worker, (), LOAD)
        self.calls.append(set(workers))
        return dict.fromkeys(workers, ReadyWorker("", 1, 1, 0, {}))

    def submit(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(release=lambda: None)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = TwoHosts()
    monkeypatch.setattr(workers, "ClusterWatch", lambda *_: found)
    monkeypatch.setattr(workers, "_can_reach", lambda _: False)
    return found


def test_hosts_compile_side_by_side(hosts: Any) -> None:
    assert len(prepare_workers(hosts, LOAD)) == 4
    first, then = hosts.calls
    assert sorted(hosts.HOSTS[address] for address in first) == ["a", "b"]
    assert first | then == set(hosts.HOSTS)
    assert not first & then


def test_workers_that_are_lost_again_and_again_before_the_first_pass_are_given_up(
    hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As workers are whose memory is too small for the kernels."""
    tries, waits = list[Any](), list[Any]()
    monkeypatch.setattr(workers, "_prepare", lambda *given: tries.append(given) or [])
    monkeypatch.setattr(workers, "_await_workers", lambda *given: waits.append(given))
    with pytest.raises(ConnectionError, match=r"scheduler tcp://c:1: its workers were lost .* 3 times in a row"):
        prepare_workers(hosts, LOAD)
    assert len(tries) == 3
    assert len(waits) == 3, "for the first workers, and for others but after the last try"


@pytest.mark.slow("starts a worker")
def test_a_killed_worker_has_time_to_come_back(workers_import_tests: None) -> None:
    """Dask closes the nanny of a worker that is not back in time; then nobody starts the worker again."""
    with start_workers(1, 1, WORKER_BYTES):
        patience = dask.config.get("distributed.deploy.lost-worker-timeout")
        assert parse_timedelta(patience) >= workers.GIVEN_UP_SECONDS


@pytest.mark.slow("starts workers of its own")
def test_a_worker_that_cannot_import_the_package_is_named() -> None:
    """The worker is there afterwards, too."""
    without = "import sys\nsys.modules['streamsvm'] = None\n"
    with cluster_of_others(1, processes=True, preload=[without]) as cluster, Client(cluster) as client:
        with pytest.raises(InputError) as refused:
            prepare_workers(client, LOAD)
        message = re.sub(r"\(.*\)", "(No module named 'streamsvm')", str(refused.value))
        assert is_quoted(message, "clusters.md")
        assert len(client.run(os.getpid)) == 1


def test_an_asynchronous_client_is_refused(dataset: Dataset) -> None:
    async def fit(address: str) -> None:
        async with Client(address, asynchronous=True) as client:
            for work in (LinearSVC(client=client).fit, partial(train, options=TrainOptions(), client=client)):
                with pytest.raises(InputError) as refused:
                    work(dataset)
                assert is_quoted(str(refused.value), "clusters.md")

    with cluster_of_others(1) as cluster:
        asyncio.run(fit(cluster.scheduler_address))


def test_training_on_the_cluster_of_others_gives_the_same_bits(dataset: Dataset) -> None:
    with cluster_of_others(2) as cluster:
        there = train(dataset, TrainOptions(scheduler=cluster.scheduler_address))
        assert len(cluster.scheduler_info["workers"]) == 2, "their workers go on"
    assert there.model_sha256 == train(dataset, TrainOptions()).model_sha256


def test_a_cluster_without_workers_is_refused(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_WORKER_SECONDS", 0.1)
    with (
        cluster_of_others(0) as cluster,
        pytest.raises(InputError, match=r"scheduler tcp://.*: no workers"),
    ):
        train(dataset, TrainOptions(scheduler=cluster.scheduler_address))


def test_the_first_worker_of_a_cluster_is_waited_for(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that grows on demand has none; and Dask replaces all workers when a machine wakes from sleep."""
    with cluster_of_others(0) as cluster:
        monkeypatch.setattr(workers.LOGGER, "warning", lambda *_: cluster.scale(1))
        there = train(dataset, TrainOptions(scheduler=cluster.scheduler_address))
    assert there.model_sha256 == train(dataset, TrainOptions()).model_sha256


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


@contextmanager
def another_program(answer: bytes | None) -> Iterator[str]:
    """The address of a server that answers whoever connects with some bytes, or keeps silent."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as connections:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = connections.enter_context(server.accept()[0])
                    if answer is not None:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(64)])
def test_another_program_is_no_scheduler(answer: bytes) -> None:
    """No event loop of Dask is left behind, whose end could hold up the start of the next one for ten seconds."""
    before = set(threading.enumerate())
    with (
        another_program(answer) as address,
        pytest.raises(InputError, match="a program other than Dask"),
        connect(address),
    ):
        pass
    assert not {thread.name for thread in set(threading.enumerate()) - before}


def test_silence_is_not_waited_for_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER_SECONDS", 0.2)
    with another_program(None) as address, pytest.raises(InputError, match=r"no answer in 0\.2 s"), connect(address):
        pass


def test_a_worker_is_no_scheduler() -> None:
    with cluster_of_others(1) as cluster:
        (address,) = cluster.scheduler_info["workers"]
        with pytest.raises(InputError, match=f"scheduler {address}: a worker answers there, not"), connect(address):
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


@pytest.mark.slow("starts workers with certificates")
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
