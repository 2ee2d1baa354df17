"""cluster/operator.yaml: it has the form that the operator of Dask publishes, its parts fit together, keys are apart.

dask_operator_schema.json has the fields of the published schema that the file uses; the file was compared with the
whole schema when they were taken out of it. A field that is added to the file has to be added there, from the same
source.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cluster.test_cluster import CLUSTER

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parent / "dask_operator_schema.json").read_text())
TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
ANYWHERE = {"apiVersion", "kind", "metadata"}  # of each object in Kubernetes


def find_faults(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Return what of a value is missing, unknown or of another type, as Kubernetes' strict validation has it."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [f"{path}: type"]
    if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
        return [f"{path}: type"]
    if isinstance(value, list):
        return [fault for k, each in enumerate(value) for fault in find_faults(schema["items"], each, f"{path}[{k}]")]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    faults = [f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value]
    for name, each in value.items():
        if name in known or isinstance(others, dict):
            faults += find_faults(known.get(name, others), each, f"{path}.{name}")
        elif path or name not in ANYWHERE:
            faults.append(f"{path}.{name}: unknown")
    return faults


@pytest.fixture
def documents() -> dict[str, dict[str, Any]]:
    """By kind."""
    found = yaml.safe_load_all((CLUSTER / "operator.yaml").read_text())
    return {document["kind"]: document for document in found}


@pytest.fixture
def pods(documents: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Specifications of the pods by the role of Dask that they play."""
    cluster = documents["DaskCluster"]["spec"]
    job = documents["Job"]["spec"]["template"]["spec"]
    return {"scheduler": cluster["scheduler"]["spec"], "worker": cluster["worker"]["spec"], "client": job}


def test_the_cluster_has_the_form_that_the_operator_publishes(documents: dict[str, dict[str, Any]]) -> None:
    assert documents["DaskCluster"]["apiVersion"] == "kubernetes.dask.org/v1"
    assert find_faults(SCHEMA, documents["DaskCluster"]) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda spec: spec["scheduler"].pop("service"), ".spec.scheduler.service: missing"),
        (lambda spec: spec["worker"].update(replica=4), ".spec.worker.replica: unknown"),
        (lambda spec: spec["worker"].update(replicas="4"), ".spec.worker.replicas: type"),
        (lambda spec: spec["worker"]["spec"]["containers"][0].pop("name"), ".containers[0].name: missing"),
        (lambda spec: spec["worker"]["spec"]["containers"][0].update(arg=[]), ".containers[0].arg: unknown"),
    ],
)
def test_another_form_is_found(change: Any, fault: str, documents: dict[str, dict[str, Any]]) -> None:
    changed = copy.deepcopy(documents["DaskCluster"])
    change(changed["spec"])
    (found,) = find_faults(SCHEMA, changed)
    assert found.endswith(fault)


def test_pods_hold_their_own_keys_only(documents: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> None:
    configuration = yaml.safe_load(documents["ConfigMap"]["data"]["dask.yaml"])["distributed"]
    tls = configuration["comm"]["tls"]
    assert configuration["comm"]["require-encryption"] is True
    for role, pod in pods.items():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert set(mounts) == set(volumes)
        files = {f"{mounts['tls']}/{item['path']}" for item in volumes["tls"]["secret"]["items"]}
        assert files == {tls["ca-file"], tls[role]["cert"], tls[role]["key"]}


def test_parts_fit_together(documents: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> None:
    """The operator names the service of the scheduler after the cluster, and selects pods by labels of its own.

    Its own address of the scheduler would be tcp://. It asks the port http-dashboard before it ends a worker, and goes
    on if there is no such page, but not if nobody answers; no page is served there.
    """
    cluster, name = documents["DaskCluster"]["spec"], documents["DaskCluster"]["metadata"]["name"]
    service = cluster["scheduler"]["service"]
    assert service["selector"] == {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    ports = {port["name"]: port["containerPort"] for port in pods["scheduler"]["containers"][0]["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    scheduler, worker, job = (pods[role]["containers"][0] for role in ("scheduler", "worker", "client"))
    assert scheduler["args"][-1] == f":{ports['http-dashboard']}"
    assert (
        yaml.safe_load(documents["ConfigMap"]["data"]["dask.yaml"])["distributed"]["scheduler"]["http"]["routes"] == []
    )
    address = {"name": "DASK_SCHEDULER_ADDRESS", "value": f"tls://{name}-scheduler:{ports['tcp-comm']}"}
    assert address in worker["env"]
    assert address["value"] == job["env"][0]["value"]
    waited_for = re.search(r"wait_for_workers\((\d+)", job["args"][0])
    assert waited_for is not None
    assert int(waited_for[1]) == cluster["worker"]["replicas"]
    limit = worker["args"][worker["args"].index("--memory-limit") + 1]
    assert f"--memory {limit}" in job["args"][0]
