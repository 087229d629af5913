"""Settings that routes carry over, and topics are to have, by names that topics have."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.server.topic_settings import TOPIC_SETTINGS
from mirrormaker.topology.setting_names import TOPIC_SETTING_NAMES, unknown_settings
from tests.topology.files import CLUSTERS, load


def told(folder: Path, config: str, seen: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    keys = f"topics: {{include: [x]}}, sync: {{config: {config}}}"
    topology = load(folder, f"{CLUSTERS}routes:\n  - {{from: a, to: b, {keys}}}\n")
    return [(finding.path, finding.message) for finding in unknown_settings(topology, lambda _: seen)]


def test_every_setting_of_our_nodes_topics_is_known() -> None:
    assert TOPIC_SETTINGS.keys() <= TOPIC_SETTING_NAMES


@pytest.mark.parametrize(
    "config",
    [
        "[retention.ms, archive.enable, remote.storage.enable]",
        "['retention[.].*', segment.ms|flush.ms]",
        "[]",
    ],
)
def test_names_that_are_known_and_patterns_that_take_one_are_well(tmp_path: Path, config: str) -> None:
    assert told(tmp_path, config) == []


def test_a_name_that_no_topic_has_is_told_with_the_nearest(tmp_path: Path) -> None:
    ((path, message),) = told(tmp_path, "[retention.ms, retention.sm]")
    assert path == "routes[0].sync.config[1]"
    assert message == (
        "'retention.sm' is no setting of a topic that is known, and carries nothing over;"
        " did you mean 'retention.ms'?"
    )
    assert [path for path, _ in told(tmp_path, "['vendor[.]tier.*']")] == ["routes[0].sync.config[0]"]


def test_what_a_topic_of_a_cluster_is_to_have_is_told_too(tmp_path: Path) -> None:
    topic = "topics: {orders: {config: {retention.ms: 1, retention.sm: 2}}}"
    clusters = CLUSTERS.replace("}", f", {topic}}}", 1)
    topology = load(tmp_path, clusters)
    ((path, message),) = [(finding.path, finding.message) for finding in unknown_settings(topology)]
    assert path == "clusters.a.topics.orders.config.retention.sm"
    assert message == "'retention.sm' is no setting of a topic that is known; did you mean 'retention.ms'?"
    assert not list(unknown_settings(topology, lambda name: ["retention.sm"] if name == "a" else []))


def test_what_topics_of_the_source_were_seen_with_is_known(tmp_path: Path) -> None:
    assert told(tmp_path, "['vendor[.]tier.*']", ("vendor.tier.enable",)) == []
