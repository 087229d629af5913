"""One real node for all foreign clients; every test works on topics of its own."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import cluster_spec, forked
from tests.node.transactions import UNVERIFIED

pytest.register_assert_rewrite(
    *(f"tests.conformance.{name}_cases" for name in ("group", "node", "record", "topic", "transaction"))
)

PROCESS_TIMEOUT_SECONDS = 60


@pytest.fixture(scope="session")
def bootstrap(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the node, as clients take it."""
    settings = {"group.initial.rebalance.delay.ms": 200, **UNVERIFIED}
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("conformance"), "node", settings=settings)
    with EmbeddedCluster(spec, forked) as cluster:
        yield str(cluster.bootstrap[0])


@pytest.fixture(autouse=True)
def _leaks_of_foreign_clients_are_not_ours() -> Iterator[None]:
    """Some clients leave sockets to the garbage collector: collect them here, quietly."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def kcat(bootstrap: str) -> Callable[..., str]:
    """Run kcat against the node; returns what it printed. Skips where kcat is not installed, except in CI."""
    program = shutil.which("kcat")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("kcat is missing: ops/install-kcat must run before the tests")
        pytest.skip("kcat is not installed (Debian: apt-get install kcat)")

    def run(*arguments: str, stdin: str | Path = "") -> str:
        finished = subprocess.run(
            [program, "-b", bootstrap, *arguments],
            input=stdin if isinstance(stdin, str) else stdin.read_text(),
            capture_output=True,
            text=True,
            timeout=PROCESS_TIMEOUT_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run
