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


@pytest.mark.parametrize("release", ["0.11.0", "0.11.0-IV2", "2.8", "3.0-IV1", "3.9.1"])
def test_releases_whose_records_have_the_one_format_are_taken(release: str) -> None:
    assert LogConfig().overridden({"message.format.version": release})


@pytest.mark.parametrize("release", ["0.8.2", "0.10.2-IV0", "newest"])
def test_other_releases_are_refused(release: str) -> None:
    with pytest.raises(ConfigurationError, match=r"message.format.version"):
        LogConfig().overridden({"message.format.version": release})


def test_levels_are_those_that_a_codec_has() -> None:
    config = LogConfig().overridden({"compression.type": "zstd", "compression.zstd.level": "-7"})
    assert config.compression_level == -7
    with pytest.raises(ConfigurationError) as caught:
        LogConfig().overridden(
            {
                "compression.gzip.level": "0",
                "compression.lz4.level": "18",
                "compression.zstd.level": "23",
            }
        )
    assert caught.value.problems == [
        "compression.gzip.level: expected a level from 1 to 9, not 0",
        "compression.lz4.level: expected a level from 1 to 17, not 18",
        "compression.zstd.level: expected a level from -131072 to 22, not 23",
    ]
