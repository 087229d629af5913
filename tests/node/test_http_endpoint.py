"""Metrics and health of a real node, as Prometheus and a supervisor of processes ask for them."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from broker.embedded import EmbeddedZooKeeper
from broker.loopback import accepts, free_ports
from broker.types import HostPort
from tests.conftest import TEST_SETTINGS, until
from tests.node.raw_client import batch_of, connected, create_topic, produce

TIMEOUT_SECONDS = 60
KAFKA_STORAGE_ERROR = 56


def samples(address: HostPort) -> dict[str, float]:
    """The metrics of the node's own by name, summed over their labels."""
    with urlopen(f"http://{address}/metrics", timeout=TIMEOUT_SECONDS) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_a_node_tells_of_itself_over_http(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    port, http_port = free_ports(2)
    settings = {
        **TEST_SETTINGS,
        "broker.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(tmp_path / "data"),
        "log.dir.min.free.bytes": 1 << 60,
        "zookeeper.connect": zookeeper.connect_string("http"),
    }
    config = tmp_path / "node.yaml"
    config.write_text(yaml.safe_dump(settings))
    http = HostPort("127.0.0.1", http_port)
    command = [sys.executable, "-m", "broker.cli", "start", str(config), "--http", str(http)]
    with (tmp_path / "log").open("wb") as output:
        node = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until(lambda: accepts(http), seconds=TIMEOUT_SECONDS)
        with urlopen(f"http://{http}/health", timeout=TIMEOUT_SECONDS) as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(HTTPError, match="404") as missing:
            urlopen(f"http://{http}/nothing", timeout=TIMEOUT_SECONDS)
        missing.value.close()
        with connected(HostPort("127.0.0.1", port)) as client:
            create_topic(client, "flights")
            assert produce(client, "flights", batch_of(b"x")).error_code == KAFKA_STORAGE_ERROR
            told = samples(http)
        assert told["broker_log_directory_full"] == 1
        assert told["broker_log_directory_refused_appends_total"] >= 1
        assert told["broker_log_directory_online"] == 1
        assert told["broker_log_directory_logs"] == 1
        assert (told["broker_partitions"], told["broker_leaders"]) == (1, 1)
        assert (told["broker_under_replicated_partitions"], told["broker_at_min_isr_partitions"]) == (0, 1)
        assert (told["broker_under_min_isr_partitions"], told["broker_offline_replicas"]) == (0, 0)
        assert (told["broker_followed_partitions"], told["broker_replica_lag_max"]) == (0, 0)
        assert (told["broker_isr_shrinks_total"], told["broker_offline_partitions"]) == (0, 0)
        assert told["broker_replication_quota_bytes_per_second"] == math.inf
        assert (told["broker_replication_throttled_bytes_total"], told["broker_replication_throttled"]) == (
            0,
            0,
        )
        assert told["broker_connections"] >= 1
        assert "broker_loop_stalls_total" in told
    finally:
        node.send_signal(signal.SIGTERM)
        assert node.wait(TIMEOUT_SECONDS) == 0


def test_an_address_in_use_is_named(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {
        **TEST_SETTINGS,
        "broker.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(tmp_path / "data"),
        "zookeeper.connect": zookeeper.connect_string("http-in-use"),
    }
    config = tmp_path / "node.yaml"
    config.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "broker.cli", "start", str(config), "--http", zookeeper.address]
    finished = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert finished.returncode == 1
    assert f"--http {zookeeper.address}" in finished.stderr
