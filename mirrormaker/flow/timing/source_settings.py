"""What the topics of a source say about time: how long they keep records, and who dates them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.config_admin import ConfigEntry
from broker.client.operations import DESCRIBE_CONFIGS
from broker.errors import ErrorCode, ProtocolError
from mirrormaker.flow.timing.latency import Basis
from mirrormaker.flow.timing.risk import Retention
from mirrormaker.missing_rights import explained

TOPICS_A_REQUEST = 500
_NAMES = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")
_KEPT_FOR_EVER = Retention()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Of one topic."""

    retention: Retention
    basis: Basis


async def read_source_settings(
    cluster: Cluster, topics: Collection[str]
) -> tuple[dict[str, SourceSettings], str | None]:
    """The settings of topics that tell, and why others do not. Raises BrokerError where the cluster does not
    answer.
    """
    found: dict[str, SourceSettings] = {}
    problem: str | None = None
    listed = sorted(topics)
    for start in range(0, len(listed), TOPICS_A_REQUEST):
        some = listed[start : start + TOPICS_A_REQUEST]
        try:
            answers = await Admin(cluster).describe_topics_configs(some, _NAMES)
        except ProtocolError as error:
            return found, str(error)
        for topic, answer in answers.items():
            if isinstance(answer, dict):
                found[topic] = _settings_of(answer)
            elif answer.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                problem = str(explained(answer, cluster.name, topic, DESCRIBE_CONFIGS))
    return found, problem


def _settings_of(configs: Mapping[str, ConfigEntry]) -> SourceSettings:
    values = {name: entry.value for name, entry in configs.items()}
    deletes = "delete" in (values.get("cleanup.policy") or "delete")
    kept = Retention(ms=_bound(values.get("retention.ms")), bytes=_bound(values.get("retention.bytes")))
    is_append = values.get("message.timestamp.type") == "LogAppendTime"
    return SourceSettings(
        retention=kept if deletes else _KEPT_FOR_EVER, basis=Basis.APPEND if is_append else Basis.CREATE
    )


def _bound(text: str | None) -> int | None:
    """None for none."""
    return int(text) if text is not None and text.isdecimal() else None
