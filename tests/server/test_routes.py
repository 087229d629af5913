"""The table of what a node serves."""

from __future__ import annotations

from broker.config import SETTINGS
from broker.server.routes import ADVERTISED, ROUTES
from broker.server.topic_settings import TOPIC_SETTINGS
from broker.storage.log_config import SETTINGS as LOG_SETTINGS
from broker.wire.registry import api_of

CLIENT_MAXIMA = {0: 7, 1: 11, 3: 6, 10: 2, 13: 1, 22: 0, 2: 5}
"""The newest versions that the weakest clients know."""
CLIENT_MINIMA = {0: 3, 1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 32: 1, 35: 1}
"""The oldest versions that the strictest clients still speak (KIP-896)."""


def test_every_api_is_served_once() -> None:
    keys = [route.request.api_key for route in ROUTES]
    assert len(set(keys)) == len(keys)


def test_weak_and_strict_clients_find_versions_they_know() -> None:
    ranges = {api.api_key: (api.min_version, api.max_version) for api in ADVERTISED}
    for api_key, newest_known in CLIENT_MAXIMA.items():
        assert ranges[api_key][0] <= newest_known
    for api_key, oldest_spoken in CLIENT_MINIMA.items():
        assert ranges[api_key][1] >= oldest_spoken


def test_produce_is_advertised_from_its_first_version() -> None:
    assert next(api.min_version for api in ADVERTISED if api.api_key == 0) == 0


def test_a_refused_request_of_every_api_has_an_answer_or_closes_by_decision() -> None:
    """APIs whose answers have no error of their own are listed, so that a new one is thought of."""
    silent = {
        api_of(route.request).name
        for route in ROUTES
        if route.refuse is None and not hasattr(api_of(route.request).response, "error_code")
    }
    assert silent == {
        "AlterConfigs",
        "CreatePartitions",
        "CreateTopics",
        "DeleteGroups",
        "DeleteRecords",
        "DeleteTopics",
        "DescribeConfigs",
        "DescribeGroups",
        "DescribeProducers",
        "IncrementalAlterConfigs",
        "ListOffsets",
        "OffsetForLeaderEpoch",
    }


def test_every_topic_setting_is_described_by_a_node_setting_that_exists() -> None:
    assert set(TOPIC_SETTINGS) == set(LOG_SETTINGS)
    assert {name for setting in TOPIC_SETTINGS.values() for name in setting.node_settings} <= set(SETTINGS)
