"""Topics in formats without producer ids are not written to by routes that need them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from broker.client.config_admin import ConfigEntry, ConfigSource
from broker.errors import ErrorCode, ProtocolError
from mirrormaker.reconcile.old_formats import FormatCheck


class Told:
    """A cluster whose topics have the format of their name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def describe_topic_configs(
        self, topic: str, names: Collection[str] | None = None
    ) -> dict[str, ConfigEntry]:
        self.asked.append(topic)
        if topic == "untold":
            return {}
        if topic == "secret":
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
        if topic == "away":
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, topic)
        entry = ConfigEntry(value=topic, source=ConfigSource.TOPIC, read_only=False, sensitive=False)
        return {"message.format.version": entry}


def obstacles(told: Told, *topics: str) -> dict[str, str]:
    return asyncio.run(FormatCheck(told).obstacles(topics))


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        ("0.8.2.2", True),
        ("0.10.2-IV0", True),
        ("0.11.0-IV2", False),
        ("1.1-IV0", False),
        ("3.0-IV1", False),
        ("4", False),
        ("untold", False),
        ("secret", False),
    ],
)
def test_what_is_older_than_producer_ids_is_an_obstacle_and_a_cluster_that_does_not_tell_is_trusted(
    version: str, is_old: bool
) -> None:
    found = obstacles(Told(), version)
    assert bool(found) is is_old
    assert all("no place for producer ids" in reason for reason in found.values())


def test_a_good_topic_is_asked_for_once_and_an_old_one_until_it_is_good() -> None:
    async def main() -> None:
        told = Told()
        check = FormatCheck(told)
        for _ in range(2):
            assert (await check.obstacles(["3.0", "0.10"])).keys() == {"0.10"}
        assert told.asked == ["3.0", "0.10", "0.10"]

    asyncio.run(main())


def test_a_cluster_that_cannot_be_asked_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        obstacles(Told(), "away")
