"""Replicas that are copied slowly: which, and how slowly."""

from __future__ import annotations

import pytest

from broker.errors import ConfigurationError
from broker.rates import RateWindows
from broker.replication.replication_quotas import ReplicationQuota, ReplicationQuotas
from broker.settings import LONG_MAX
from broker.storage.log_config import LogConfig

SETTING = "follower.replication.throttled.replicas"


class Time:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_quota_has_room_for_as_much_as_its_windows_hold() -> None:
    time = Time()
    quota = ReplicationQuota(100, RateWindows(count=3, size_ms=1000), time)
    assert (quota.in_force, quota.room(), quota.rest_ms()) == (True, 200, 0)
    quota.record(150)
    assert quota.room() == 50
    quota.record(100)
    assert (quota.room(), quota.rest_ms()) == (0, 1000)
    time.now_ms = 2600
    assert quota.room() == 10
    time.now_ms = 3000
    assert quota.room() == 200


def test_a_quota_tells_what_was_copied_and_whether_it_keeps_anything_back() -> None:
    time = Time()
    quota = ReplicationQuota(100, RateWindows(count=3, size_ms=1000), time)
    assert (quota.copied_bytes, quota.is_exhausted) == (0, False)
    quota.record(300)
    assert not quota.is_exhausted  # nobody has wanted more
    quota.rest_ms()
    assert (quota.copied_bytes, quota.is_exhausted) == (300, True)
    time.now_ms = 999
    assert quota.is_exhausted
    time.now_ms = 1000
    assert not quota.is_exhausted
    quota.room()
    quota.bound = LONG_MAX
    assert not quota.is_exhausted


def test_without_a_rate_there_is_nothing_to_wait_for() -> None:
    time = Time()
    quotas = ReplicationQuotas(
        leader=ReplicationQuota(LONG_MAX, RateWindows(), time),
        follower=ReplicationQuota(0, RateWindows(), time),
    )
    quotas.leader.record(1 << 40)
    assert (quotas.leader.in_force, quotas.leader.rest_ms()) == (False, 0)
    assert (quotas.follower.in_force, quotas.follower.rest_ms()) == (True, 1000)
    quotas.reconfigure(leader=5, follower=LONG_MAX)
    assert (quotas.leader.in_force, quotas.follower.in_force) == (True, False)


@pytest.mark.parametrize(
    ("text", "rendered", "held"),
    [
        ("", "", []),
        ("*", "*", [(0, 1), (0, 2), (1, 1), (1, 2)]),
        ("1:2, 0:1", "0:1,1:2", [(0, 1), (1, 2)]),
    ],
)
def test_topics_name_the_replicas(text: str, rendered: str, held: list[tuple[int, int]]) -> None:
    replicas = LogConfig().overridden({SETTING: text}).follower_replication_throttled_replicas
    pairs = [(partition, broker) for partition in (0, 1) for broker in (1, 2)]
    assert [pair for pair in pairs if replicas.holds(*pair)] == held
    assert replicas.render() == rendered


@pytest.mark.parametrize("text", ["1", "a:b", "0:1,*", "0:-1"])
def test_what_names_no_replica_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"throttled\.replicas: expected \* or a list"):
        LogConfig().overridden({SETTING: text})
