"""The manifests for Kubernetes hang together, and the topology in them is one."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from mirrormaker.topology.loader import load_topology

FOLDER = Path(__file__).parents[2] / "ops/kubernetes"
TOPOLOGY = FOLDER / "topology.yaml"


def read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def resources() -> dict[str, dict[str, Any]]:
    (kustomization,) = read("kustomization.yaml")
    return {each["kind"]: each for name in kustomization["resources"] for each in read(name)}


def test_every_manifest_is_applied() -> None:
    (kustomization,) = read("kustomization.yaml")
    there = {file.name for file in FOLDER.glob("*.yaml")}
    assert there == {*kustomization["resources"], "kustomization.yaml", "topology.yaml"}
    assert all({"apiVersion", "kind", "metadata"} <= each.keys() for each in resources().values())
    assert resources()["Namespace"]["metadata"]["name"] == kustomization["namespace"]


def test_what_manifests_refer_to_is_there() -> None:
    (kustomization,) = read("kustomization.yaml")
    found = resources()
    daemon, service = found["StatefulSet"]["spec"], found["Service"]
    pod = daemon["template"]["spec"]
    labels = daemon["template"]["metadata"]["labels"]
    assert daemon["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert daemon["serviceName"] == service["metadata"]["name"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    binding = found["RoleBinding"]
    assert binding["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [pod["serviceAccountName"]]
    (container,) = pod["containers"]
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in daemon["volumeClaimTemplates"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    (generated,) = kustomization["configMapGenerator"]
    assert {"name": generated["name"]} in [each.get("configMap") for each in pod["volumes"]]
    assert generated["files"] == [TOPOLOGY.name]
    assert container["image"] in {each["name"] for each in kustomization["images"]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert container["command"][-1].endswith(f":{ports['http']}")
    probes = [container[name]["httpGet"]["port"] for name in container if name.endswith("Probe")]
    assert {*probes, *(each["targetPort"] for each in service["spec"]["ports"])} <= ports.keys()


def test_the_topology_is_valid_and_fits_the_pod() -> None:
    (kustomization,) = read("kustomization.yaml")
    found = resources()
    daemon = found["StatefulSet"]
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    topology = load_topology(TOPOLOGY)
    assert str(topology.data_dir) == mounts["data"]
    assert container["command"][2] == f"{mounts['topology']}/{TOPOLOGY.name}"
    for cluster in topology.clusters.values():
        for name in ("ssl.truststore.location", "sasl.password"):
            assert cluster.security.references[name].removeprefix("file:").startswith(mounts["secrets"])
    (pipeline,) = topology.pipelines
    settings = pipeline.spark
    driver = f"{daemon['metadata']['name']}-0"
    assert settings["spark.kubernetes.driver.pod.name"] == driver
    names = (driver, daemon["spec"]["serviceName"], kustomization["namespace"], "svc")
    assert settings["spark.driver.host"] == ".".join(names)
    assert settings["spark.kubernetes.namespace"] == kustomization["namespace"]
    (image,) = kustomization["images"]
    assert settings["spark.kubernetes.container.image"] == f"{image['newName']}:{image['newTag']}"
    secret = next(
        each["secret"] for each in daemon["spec"]["template"]["spec"]["volumes"] if "secret" in each
    )
    assert settings[f"spark.kubernetes.executor.secrets.{secret['secretName']}"] == mounts["secrets"]
    places = (pipeline.checkpoint, pipeline.quarantine, pipeline.sinks[0].target.path)  # type: ignore[union-attr]
    assert {urlsplit(place or "").scheme for place in places} == {"s3a"}, "every executor reaches them"
    variable = {"name": "AWS_SHARED_CREDENTIALS_FILE", "value": f"{mounts['secrets']}/s3"}
    assert variable in container["env"]
    assert settings[f"spark.executorEnv.{variable['name']}"] == variable["value"]
    provider = settings["spark.hadoop.fs.s3a.aws.credentials.provider"]
    assert provider.endswith("ProfileAWSCredentialsProvider"), "no other reads that file"


def test_the_image_is_made_of_what_is_there_and_has_what_the_package_asks_for() -> None:
    lines = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    root = FOLDER.parents[1]
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all((root / name).exists() for names in copied for name in names)
    project = tomllib.loads((root / "pyproject.toml").read_text())
    build = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert {name for names in copied for name in names} == needed | set(build["packages"])
    python = next(
        re.fullmatch(r"FROM python:3\.(\d+)-\S+", line) for line in reversed(lines) if "FROM" in line
    )
    assert python is not None
    assert int(python[1]) >= int(project["project"]["requires-python"].removeprefix(">=3."))
    argument = next(line for line in lines if line.startswith("ARG SPARK_VERSION="))
    assert argument.partition("=")[2] == version("pyspark")
