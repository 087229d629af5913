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
            "min.cleanable.dirty.ratio": "0.1",
            "unclean.leader.election.enable": "TRUE",
            "message.timestamp.type": "LogAppendTime",
        }
    )
    assert config.compacts
    assert config.deletes
    assert config.segment_index_bytes_max == 1024
    assert config.min_cleanable_dirty_ratio == 0.1
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
                "preallocate": "maybe",
                "min.cleanable.dirty.ratio": "2",
            }
        )
    assert caught.value.problems == [
        "retention.ms: 'soon' is no whole number",
        "retention.hours: unknown setting of a topic",
        "segment.bytes: 1 is not between 14 and 2147483647",
        "cleanup.policy: 'shred' is none of delete, compact",
        "preallocate: 'maybe' is neither true nor false",
        "min.cleanable.dirty.ratio: 2.0 is not between 0 and 1",
    ]
