"""Which segments may go, as a pure question."""

from __future__ import annotations

import pytest

from broker.storage.log_config import LogConfig
from broker.storage.retention import SegmentAge, expired

DAY = 86_400_000
SEGMENTS = [SegmentAge((index + 1) * 10, 100, index * DAY) for index in range(5)]


@pytest.mark.parametrize(
    ("settings", "bounds", "expected"),
    [
        ({"retention.ms": "-1"}, {}, 0),
        ({"retention.ms": str(2 * DAY)}, {}, 2),
        ({"retention.ms": "0"}, {}, 4),
        ({"retention.ms": "0"}, {"end_offset_max": 29}, 2),
        ({"retention.ms": "-1", "retention.bytes": "500"}, {}, 0),
        ({"retention.ms": "-1", "retention.bytes": "499"}, {}, 0),
        ({"retention.ms": "-1", "retention.bytes": "400"}, {}, 1),
        ({"retention.ms": "-1", "retention.bytes": "150"}, {}, 3),
        ({"retention.ms": "-1", "retention.bytes": "0"}, {}, 5),
        ({"retention.ms": "-1"}, {"log_start_offset": 30}, 3),
        ({"retention.ms": "-1"}, {"log_start_offset": 39}, 3),
        ({"retention.ms": "0", "retention.bytes": "0", "cleanup.policy": "compact"}, {}, 0),
        ({"retention.ms": "0", "cleanup.policy": "compact"}, {"log_start_offset": 10}, 1),
        ({"retention.ms": "0", "cleanup.policy": "compact,delete"}, {}, 4),
    ],
)
def test_the_oldest_segments_go(settings: dict[str, str], bounds: dict[str, int], expected: int) -> None:
    config = LogConfig().overridden(settings)
    limits = {"log_start_offset": 0, "end_offset_max": 1000, **bounds}
    found = expired(iter(SEGMENTS), config, size=500, now_ms=4 * DAY, **limits)
    assert found == SEGMENTS[:expected]
