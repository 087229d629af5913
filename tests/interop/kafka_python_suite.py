"""The integration tests that kafka-python's source distribution brings, run against one broker."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from broker.types import HostPort
from tests.interop.outcome import Outcome

BROKER_VERSION = "4.0.0"
TIMEOUT_SECONDS = 900
_SERVICE = '''\
"""Brokers that somebody else runs: the distribution leaves this module out."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    def __init__(self, *_, **__):
        raise RuntimeError("no broker is started here")
'''


def fetch(directory: Path) -> Path:
    """Unpack the source distribution of the kafka-python that is installed; the directory with its tests."""
    version = importlib.metadata.version("kafka-python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = ["download", "--no-deps", "--no-binary=kafka-python", f"kafka-python=={version}"]
    subprocess.run([*pip, *source, f"--dest={directory}"], check=True, timeout=TIMEOUT_SECONDS)
    with tarfile.open(directory / f"kafka_python-{version}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    root = directory / f"kafka_python-{version}"
    (root / "test" / "__init__.py").touch()
    (root / "test" / "service.py").write_text(_SERVICE)
    return root


def run(root: Path, broker: HostPort) -> Outcome:
    """Run the integration tests under `root` against a broker with id 0; names are `FILE::TEST`, without the
    parameters.
    """
    report = root / "report.xml"
    pytest = [sys.executable, "-m", "pytest", "test/integration", "-p", "no:cacheprovider", "--timeout=60"]
    subprocess.run(
        [*pytest, "--show-capture=no", f"--junitxml={report}"],
        cwd=root,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(root),
            "KAFKA_ROOT": str(root),
            "KAFKA_VERSION": BROKER_VERSION,
            "KAFKA_URI": f"kafka://{broker}",
        },
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return _outcome(report)


def _outcome(report: Path) -> Outcome:
    outcome = Outcome()
    for name, case in _cases(report):
        problem = next((part for part in case if part.tag in ("failure", "error")), None)
        if problem is not None:
            outcome.failed[name] = problem.get("message", "") + (problem.text or "")
        elif case.find("skipped") is not None:
            outcome.skipped.add(name)
        else:
            outcome.passed.add(name)
    return outcome


def _cases(report: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module, *classes = case.attrib["classname"].removeprefix("test.integration.").split(".")
        yield "::".join([f"{module}.py", *classes, case.attrib["name"].partition("[")[0]]), case
