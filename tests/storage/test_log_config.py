"""Topic-level settings under Kafka's names."""

from __future__ import annotations

import pytest

from broker.errors import ConfigurationError
from broker.storage.log_config import SETTINGS, LogConfig


def test_settings_are_read_by_kafkas_names() -> None:
    config = LogConfig().overridden(
        {
            "cleanup.policy": "compact, delete",
            "segment.index.bytes": "1024",
            "unclean.leader.election.enable": "TRUE",
            "message.timestamp.type": "LogAppendTime",
        }
    )
    assert config.compacts
    assert config.deletes
    assert config.segment_index_bytes_max == 1024
    assert config.unclean_leader_election_enable
    assert config.stamps_append_time


def test_every_field_is_a_setting() -> None:
    assert {setting.field for setting in SETTINGS.values()} == set(LogConfig.__dataclass_fields__)


def test_every_problem_is_listed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        LogConfig().overridden(
            {
                "retention.ms": "soon",
                "retention.hours": "1",
                "segment.bytes": "1",
                "cleanup.policy": "shred",
                "unclean.leader.election.enable": "maybe",
                "message.timestamp.type": "Sundial",
            }
        )
    assert caught.value.problems == [
        "retention.ms: expected a whole number, not 'soon'",
        "retention.hours: unknown setting of a topic",
        "segment.bytes: expected a whole number from 14 to 2147483647, not 1",
        "cleanup.policy: expected a list of delete, compact, not 'shred'",
        "unclean.leader.election.enable: expected true or false, not 'maybe'",
        "message.timestamp.type: expected one of CreateTime, LogAppendTime, not 'Sundial'",
    ]
