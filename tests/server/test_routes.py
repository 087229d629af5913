"""The table of what a node serves."""

from __future__ import annotations

from broker.config import SETTINGS
from broker.server.routes import ADVERTISED, ROUTES
from broker.server.topic_settings import TOPIC_SETTINGS
from broker.storage.log_config import SETTINGS as LOG_SETTINGS
from broker.wire.registry import api_of

CLIENT_MAXIMA = {0: 7, 1: 11, 2: 5, 3: 5, 10: 2, 13: 1, 22: 0, 23: 2, 28: 3}
"""The newest versions that the weakest clients know."""
CLIENT_MINIMA = {0: 3, 1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 32: 1, 35: 1}
"""The oldest versions that the strictest clients still speak (KIP-896)."""


_PRODUCE_TO_METADATA = "9 12 6 11"
_OFFSET_COMMIT_TO_ALTER_SCRAM = (
    "8 7 3 7 4 4 5 5 4 1 3 7 6 2 4 4 3 3 3 1 3 2 2 2 4 2 2 2 2 3 2 2 2 2 2 2 1 0 0 0 1 1 0 0"
)
NEWEST_OF_2_8 = {
    **dict(enumerate(map(int, _PRODUCE_TO_METADATA.split()))),
    **dict(enumerate(map(int, _OFFSET_COMMIT_TO_ALTER_SCRAM.split()), start=8)),
    **dict.fromkeys((57, 60, 61), 0),
}
"""The newest versions that Kafka 2.8.2 tells clients of; those who ask nobody take them for granted."""
WEB_TOOLS = {2: 2, 32: 0, 35: 0}
"""What consoles do not start without, in at least these versions."""


def test_every_api_is_served_once() -> None:
    keys = [route.request.api_key for route in ROUTES]
    assert len(set(keys)) == len(keys)


def test_weak_and_strict_clients_find_versions_they_know() -> None:
    ranges = {api.api_key: (api.min_version, api.max_version) for api in ADVERTISED}
    for api_key, newest_known in CLIENT_MAXIMA.items():
        assert ranges.get(api_key, (0, 0))[0] <= newest_known
    for api_key, oldest_spoken in CLIENT_MINIMA.items():
        assert ranges[api_key][1] >= oldest_spoken


def test_clients_that_take_a_broker_of_2_8_for_granted_find_every_version_of_it() -> None:
    for api in ADVERTISED:
        if api.api_key in NEWEST_OF_2_8:
            assert (api.min_version, max(api.max_version, NEWEST_OF_2_8[api.api_key])) == (0, api.max_version)


def test_consoles_find_what_they_do_not_start_without() -> None:
    newest = {api.api_key: api.max_version for api in ADVERTISED}
    assert all(newest[api_key] >= version for api_key, version in WEB_TOOLS.items())


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
        "ConsumerGroupDescribe",
        "CreatePartitions",
        "CreateTopics",
        "DeleteGroups",
        "DeleteRecords",
        "DeleteTopics",
        "DescribeConfigs",
        "DescribeGroups",
        "DescribeProducers",
        "DescribeTransactions",
        "IncrementalAlterConfigs",
        "ListOffsets",
        "OffsetForLeaderEpoch",
    }


def test_every_topic_setting_is_described_by_a_node_setting_that_exists() -> None:
    assert set(TOPIC_SETTINGS) == set(LOG_SETTINGS)
    assert {name for setting in TOPIC_SETTINGS.values() for name in setting.node_settings} <= set(SETTINGS)
