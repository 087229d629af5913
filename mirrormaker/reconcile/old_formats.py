"""Topics whose records are stored in a format that has no place for producer ids.

A cluster of Apache Kafka before 3.0 may keep a topic in the format of 0.8 to 0.10 (`message.format.version`):
what is written there forgets where it comes from, so a route with provenance must not write there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from broker.client.config_admin import ConfigEntry
from broker.errors import ErrorCode, ProtocolError

_SETTING = "message.format.version"
_FIRST_WITH_PRODUCER_IDS = (0, 11)
_NOT_TOLD_CODES = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class TopicConfigs(Protocol):
    """What tells settings of topics: `Admin`."""

    async def describe_topic_configs(
        self, topic: str, names: Collection[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """Raises ProtocolError."""
        ...


class FormatCheck:
    """Asks of each topic of one cluster once; what was found good stays so."""

    def __init__(self, admin: TopicConfigs) -> None:
        self._admin = admin
        self._good: set[str] = set()

    async def obstacles(self, topics: Iterable[str]) -> dict[str, str]:
        """Those that cannot be written to, with the reason. A cluster that does not tell is trusted.

        Raises BrokerError when it cannot be asked.
        """
        found: dict[str, str] = {}
        for topic in topics:
            if topic in self._good:
                continue
            version = await self._version_of(topic)
            if version is not None and _number_of(version) < _FIRST_WITH_PRODUCER_IDS:
                found[topic] = (
                    f"{topic!r} has {_SETTING}={version}, which has no place for producer ids: records would "
                    "forget where they come from, and go in circles"
                )
            else:
                self._good.add(topic)
        return found

    async def _version_of(self, topic: str) -> str | None:
        try:
            configs = await self._admin.describe_topic_configs(topic, [_SETTING])
        except ProtocolError as error:
            if error.code not in _NOT_TOLD_CODES:
                raise
            return None
        return configs[_SETTING].value if _SETTING in configs else None


def _number_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version such as 0.10.2-IV0 or 3.0."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return int(major), int(minor or 0)
