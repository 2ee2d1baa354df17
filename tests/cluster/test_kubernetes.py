"""cluster/kubernetes.yaml: its parts fit together, and pods hold their own keys only."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cluster.test_cluster import CLUSTER


@pytest.fixture(scope="module")
def kubernetes() -> dict[tuple[str, str], dict[str, Any]]:
    documents = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def pods(kubernetes: dict[tuple[str, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Templates of the pods by the role of Dask that they play."""
    names = {
        "scheduler": ("Deployment", "streamsvm-scheduler"),
        "worker": ("Deployment", "streamsvm-worker"),
        "client": ("Job", "streamsvm-train"),
    }
    return {role: kubernetes[name]["spec"]["template"] for role, name in names.items()}


def test_kubernetes_pods_hold_their_own_keys_only(kubernetes: dict[tuple[str, str], dict[str, Any]]) -> None:
    tls = yaml.safe_load(kubernetes["ConfigMap", "streamsvm-dask"]["data"]["dask.yaml"])["distributed"]["comm"]["tls"]
    for role, pod in pods(kubernetes).items():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert set(mounts) == set(volumes)
        files = {f"{mounts['tls']}/{item['path']}" for item in volumes["tls"]["secret"]["items"]}
        assert files == {tls["ca-file"], tls[role]["cert"], tls[role]["key"]}


def test_kubernetes_parts_fit_together(kubernetes: dict[tuple[str, str], dict[str, Any]]) -> None:
    labels = pods(kubernetes)["scheduler"]["metadata"]["labels"]
    service = kubernetes["Service", "streamsvm-scheduler"]
    assert service["spec"]["selector"] == labels
    worker, job = (pods(kubernetes)[role]["spec"]["containers"][0] for role in ("worker", "client"))
    address = f"tls://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert worker["args"][2] == address == job["env"][0]["value"]
    waited_for = re.search(r"wait_for_workers\((\d+)", job["args"][0])
    assert waited_for is not None
    assert int(waited_for[1]) == kubernetes["Deployment", "streamsvm-worker"]["spec"]["replicas"]
    limit = worker["args"][worker["args"].index("--memory-limit") + 1]
    assert f"--memory {limit}" in job["args"][0]
