"""cluster/: clusters are started as its guides say, and `streamsvm train --scheduler` gives the bits of one thread."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml  # type: ignore[import-untyped]
from cryptography import x509
from distributed import Client
from distributed.security import Security

from streamsvm.data.store.dataset import Dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from tests.conftest import ROOT, make_problem

CLUSTER = ROOT / "cluster"
LISTEN = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
ROLES = ("scheduler", "worker", "client")


def environment(**more: str) -> dict[str, str]:
    """Variables for a process that imports this copy of streamsvm and these commands."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DASK")}
    return {**kept, "PYTHONPATH": str(ROOT), "PATH": path, **more}


@contextmanager
def running(*command: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python command in the background, and end it with all of its children."""
    whole, variables = [sys.executable, *command], environment(**more)
    process = subprocess.Popen(whole, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    family: list[psutil.Process] = []
    try:
        yield process
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        for left in family:
            if left.is_running():
                left.kill()
        process.kill()
        process.communicate()


def train_on(address: str, data: Dataset, run: Path, **more: str) -> subprocess.CompletedProcess[str]:
    where = ["--scheduler", address, "--memory", "1GB"]
    command = [sys.executable, "-m", "streamsvm", "train", data.path, "--out", str(run), "--C", "0.5", "--json", *where]
    return subprocess.run(command, env=environment(**more), capture_output=True, text=True, check=False)


def listening(*processes: subprocess.Popen[str]) -> set[str]:
    """Addresses on which these processes and their children listen."""
    roots = [psutil.Process(process.pid) for process in processes]
    family = [*roots, *(child for root in roots for child in root.children(recursive=True))]
    sockets = [socket for member in family for socket in member.net_connections("inet")]
    return {socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_problem(3, n=400).store(tmp_path_factory.mktemp("data") / "rows.zarr")


@pytest.fixture(scope="module")
def model_sha256(data: Dataset) -> str:
    """The model that one thread of this process finds."""
    return train(data, TrainOptions(C=0.5, threads=1)).model_sha256


@pytest.mark.slow("starts a cluster whose processes begin by themselves")
def test_local_workers_train_on_loopback_only(data: Dataset, model_sha256: str, tmp_path: Path) -> None:
    with running(str(CLUSTER / "local.py"), "--workers", "2", "--memory", "1GB") as cluster:
        assert cluster.stdout is not None
        address, export = (cluster.stdout.readline().strip() for _ in range(2))
        assert listening(cluster) == {"127.0.0.1"}
        configuration = Path(export.removeprefix("export DASK_CONFIG="))
        assert stat.S_IMODE(configuration.parent.stat().st_mode) == 0o700
        refused = train_on(address, data, tmp_path / "refused")
        assert (refused.returncode, f"scheduler {address}: " in refused.stderr) == (2, True)
        done = train_on(address, data, tmp_path / "run", DASK_CONFIG=str(configuration))
        workers = psutil.Process(cluster.pid).children(recursive=True)
        cluster.send_signal(signal.SIGINT)
        assert cluster.wait(timeout=60) == 0
    assert json.loads(done.stdout.splitlines()[-1])["model_sha256"] == model_sha256
    assert len(workers) >= 2
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert not configuration.parent.exists()


def test_local_refuses_a_size_that_is_none() -> None:
    done = subprocess.run(
        [sys.executable, str(CLUSTER / "local.py"), "--memory", "much"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "local.py: 'much' is not a size in bytes: write 2GB, 512MiB or a number of bytes\n",
    )


def make_certificates(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CLUSTER / "make_certificates.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls") / "certificates"
    assert make_certificates(folder).stdout == f"export DASK_CONFIG={folder}/dask.yaml\n"
    return folder


def test_certificates_are_signed_and_their_keys_private(certificates: Path) -> None:
    authority = x509.load_pem_x509_certificate((certificates / "ca.pem").read_bytes())
    for role in ROLES:
        x509.load_pem_x509_certificate((certificates / f"{role}.pem").read_bytes()).verify_directly_issued_by(authority)
        assert stat.S_IMODE((certificates / f"{role}-key.pem").stat().st_mode) == 0o600
    expected = {"ca.pem", "dask.yaml", *(f"{role}{end}.pem" for role in ROLES for end in ("", "-key"))}
    assert {file.name for file in certificates.iterdir()} == expected


def test_certificates_are_never_overwritten(certificates: Path) -> None:
    before = (certificates / "ca.pem").read_bytes()
    done = make_certificates(certificates)
    assert (done.returncode, done.stderr) == (2, f"make_certificates.py: {certificates}: File exists\n")
    assert (certificates / "ca.pem").read_bytes() == before


@pytest.fixture(scope="module")
def tls_configurations(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Dask's configuration of each role, in a folder that holds the files of that role only."""
    configurations = {}
    for role in ROLES:
        folder = tmp_path_factory.mktemp(role)
        for name in ("ca.pem", f"{role}.pem", f"{role}-key.pem"):
            shutil.copy(certificates / name, folder)
        text = (certificates / "dask.yaml").read_text()
        (folder / "dask.yaml").write_text(text.replace(str(certificates), str(folder)))
        configurations[role] = str(folder / "dask.yaml")
    return configurations


@pytest.fixture(scope="module")
def tls_address(tls_configurations: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Scheduler and two workers as in tls.md."""
    file = tmp_path_factory.mktemp("scheduler") / "scheduler.json"
    start = ("-m", "dask", "scheduler", "--protocol", "tls", *LISTEN, "--port", "0", "--scheduler-file", str(file))
    sizes = ("--nworkers", "2", "--nthreads", "1", "--memory-limit", "1GB")
    work = ("-m", "dask", "worker", *LISTEN, "--scheduler-file", str(file), *sizes)
    with running(*start, DASK_CONFIG=tls_configurations["scheduler"]) as scheduler:
        wait_for(file, scheduler)
        address = str(json.loads(file.read_text())["address"])
        with running(*work, DASK_CONFIG=tls_configurations["worker"]) as workers:
            with connect(tls_configurations["client"], address) as client:
                client.wait_for_workers(2, timeout=60)
            assert listening(scheduler, workers) == {"127.0.0.1"}
            yield address


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    while not (file.exists() and file.read_text().endswith("}")):
        assert process.poll() is None, "the scheduler ended"


def connect(configuration: str, address: str) -> Client:
    tls = yaml.safe_load(Path(configuration).read_text())["distributed"]["comm"]["tls"]
    security = Security(
        require_encryption=True,
        tls_ca_file=tls["ca-file"],
        tls_client_cert=tls["client"]["cert"],
        tls_client_key=tls["client"]["key"],
    )
    return Client(address, security=security, timeout=60)


@pytest.mark.slow("starts a cluster whose processes begin by themselves")
def test_train_over_tls(
    tls_address: str, tls_configurations: dict[str, str], data: Dataset, model_sha256: str, tmp_path: Path
) -> None:
    assert tls_address.startswith("tls://127.0.0.1:")
    done = train_on(tls_address, data, tmp_path / "run", DASK_CONFIG=tls_configurations["client"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["model_sha256"] == model_sha256


@pytest.mark.slow("starts a cluster whose processes begin by themselves")
def test_the_configuration_switches_dasks_memory_rules_off(
    tls_address: str, tls_configurations: dict[str, str]
) -> None:
    def rules(dask_worker: Any) -> list[Any]:
        manager = dask_worker.memory_manager
        return [manager.memory_target_fraction, manager.memory_spill_fraction, manager.memory_pause_fraction]

    with connect(tls_configurations["client"], tls_address) as client:
        assert list(client.run(rules).values()) == [[False, False, False]] * 2


@pytest.mark.slow("starts a cluster whose processes begin by themselves")
@pytest.mark.parametrize("whose", ["nobody's", "another authority's"])
def test_strangers_are_refused(whose: str, tls_address: str, data: Dataset, tmp_path: Path) -> None:
    more = {}
    if whose != "nobody's":
        make_certificates(tmp_path / "other")
        more["DASK_CONFIG"] = str(tmp_path / "other" / "dask.yaml")
    done = train_on(tls_address, data, tmp_path / "run", **more)
    assert done.returncode == 2
    assert done.stderr.startswith(f"streamsvm train: scheduler {tls_address}: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr


SRUN = """#!/usr/bin/env bash
# srun on one machine: the command as many times as there are tasks
tasks=$SLURM_NTASKS
while [[ $1 == --* ]]; do case $1 in --ntasks=*) tasks=${1#*=} ;; esac; shift; done
trap 'kill $(jobs -p)' TERM
for ((i = 0; i < tasks; i++)); do "$@" & done
wait
wait
"""


@pytest.mark.slow("starts a cluster whose processes begin by themselves")
def test_slurm_script_trains_with_a_stand_in_for_srun(data: Dataset, model_sha256: str, tmp_path: Path) -> None:
    script = CLUSTER / "slurm.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text(SRUN)
    (tmp_path / "bin" / "srun").chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "1", "SLURM_MEM_PER_CPU": "1000"}
    variables = environment(**job)
    variables["NUMBA_CACHE_DIR"] = ""  # kernels that this machine has
    variables["PATH"] = f"{tmp_path / 'bin'}:{variables['PATH']}"
    (tmp_path / "shared").mkdir()
    done = subprocess.run(
        ["bash", str(script), data.path, str(tmp_path / "shared" / "run"), "--C", "0.5", "--json"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["model_sha256"] == model_sha256
    assert [file.name for file in (tmp_path / "shared").iterdir()] == ["run"]


def test_slurm_script_needs_data_and_run() -> None:
    done = subprocess.run(["bash", str(CLUSTER / "slurm.sh"), "data.zarr"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_guides_name_files_that_exist() -> None:
    for guide in CLUSTER.glob("*.md"):
        text = guide.read_text()
        links = re.findall(r"\]\(([^)]+)\)", text) + [f"../{name}" for name in re.findall(r"cluster/[\w.]+\w", text)]
        for link in links:
            place = link.partition("#")[0]
            assert place.startswith("https://") or (CLUSTER / place).exists(), f"{guide.name}: {link}"
