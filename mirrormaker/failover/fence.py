"""Topics closed to producers while a switch is under way, by what every Kafka cluster offers: a limit of the
size of a batch that none fits (see `plan.settings.FENCE`). Readers, the mirror among them, and markers of
transactions pass. The setting that was there before is recorded first, so that whoever goes on after a crash
can put it back. Topics that were deleted meanwhile are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.settings import ConfigSource
from mirrormaker.plan.settings import FENCE

_NAME, _VALUE = FENCE
MISSING_TIMEOUT_MS = 3_000
"""So long a topic that a node has not heard of is looked for at others."""


async def read_settings(cluster: Cluster, topics: Iterable[str]) -> dict[str, str | None]:
    """The setting as each topic has it of its own, else None. Raises BrokerError."""
    admin = Admin(cluster)
    before: dict[str, str | None] = {}
    for topic in topics:
        entry = (await admin.describe_topic_configs(topic, [_NAME])).get(_NAME)
        is_own = entry is not None and entry.source is ConfigSource.TOPIC and entry.value != _VALUE
        before[topic] = entry.value if entry is not None and is_own else None
    return before


async def closed_topics(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Those that are closed now. Raises BrokerError."""
    admin = Admin(cluster)
    found = {topic: (await admin.describe_topic_configs(topic, [_NAME])).get(_NAME) for topic in topics}
    return [topic for topic, entry in found.items() if entry is not None and entry.value == _VALUE]


async def why_not_closed(cluster: Cluster, topics: Iterable[str]) -> str | None:
    """What would be said to closing them, asked without changing anything; None where it would be done."""
    try:
        await close_topics(cluster, topics, validate_only=True)
    except BrokerError as error:
        return f"the right to alter the settings of its topics is needed: {error}"
    return None


async def close_topics(cluster: Cluster, topics: Iterable[str], *, validate_only: bool = False) -> None:
    """`validate_only`: only ask whether that would be allowed. Raises BrokerError."""
    await _alter(cluster, dict.fromkeys(topics, _VALUE), validate_only=validate_only)


async def open_topics(cluster: Cluster, before: Mapping[str, str | None]) -> None:
    """Put back what was there. Raises BrokerError."""
    await _alter(cluster, before)


async def _alter(cluster: Cluster, values: Mapping[str, str | None], *, validate_only: bool = False) -> None:
    """Give each topic that is there the setting, or with None take it away. Raises BrokerError."""
    known = (await cluster.refresh()).topics
    admin, missing = Admin(cluster), Admin(cluster, timeout_ms=MISSING_TIMEOUT_MS)
    for topic, value in values.items():
        asked = admin if topic in known else missing
        try:
            await asked.alter_topic_configs(topic, {_NAME: value}, validate_only=validate_only)
        except ProtocolError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
