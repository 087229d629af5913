"""Settings of topics, groups and nodes: describe and change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.client.admin_requests import AdminRequests, error_of
from broker.errors import ErrorCode, ProtocolError
from broker.settings import ConfigSource, ResourceType
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class _Operation(IntEnum):
    SET = 0
    DELETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One of the values that a setting could have, under the name of the setting that has it."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting; `value` is None where it is secret or unset, `synonyms` are by falling precedence."""

    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()


class ConfigAdmin(AdminRequests):
    """Operations on settings.

    All raise ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """

    async def describe_topic_configs(
        self, topic: str, names: Collection[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The topic's settings, all or those named. Raises ProtocolError."""
        return await self._describe(ResourceType.TOPIC, topic, names, None)

    async def describe_topics_configs(
        self, topics: Collection[str], names: Collection[str] | None = None
    ) -> dict[str, dict[str, ConfigEntry] | ProtocolError]:
        """The settings of many topics, all or those named; for a topic that does not tell, why not."""
        keys = None if names is None else sorted(names)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=keys
                )
                for topic in sorted(topics)
            ]
        )

        async def attempt() -> dict[str, dict[str, ConfigEntry] | ProtocolError]:
            response = await (await self._cluster.any_connection()).request(request)
            return {result.resource_name: _settings_of(result) for result in response.results}

        return await self._retried(attempt) if topics else {}

    async def describe_broker_configs(
        self, node_id: int | None, names: Collection[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The node's settings, all or those named; with None what was altered for all nodes.

        Raises ProtocolError.
        """
        return await self._describe(ResourceType.BROKER, _name_of(node_id), names, node_id)

    async def describe_group_configs(
        self, group_id: str, names: Collection[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The group's settings, all or those named. Raises ProtocolError."""
        return await self._describe(ResourceType.GROUP, group_id, names, None)

    async def alter_topic_configs(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set the topic's settings, or with None take them back to the default. Raises ProtocolError."""
        await self._alter(ResourceType.TOPIC, topic, changes, None, validate_only=validate_only)

    async def alter_group_configs(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Set the group's settings, which may not have been used yet, or with None take them back to the
        node's. Raises ProtocolError.
        """
        await self._alter(ResourceType.GROUP, group_id, changes, None)

    async def alter_broker_configs(self, node_id: int | None, changes: Mapping[str, str | None]) -> None:
        """Set settings of one node, or with None of all, or with None as the value take them back.

        Raises ProtocolError.
        """
        await self._alter(ResourceType.BROKER, _name_of(node_id), changes, node_id)

    async def _describe(
        self, kind: ResourceType, name: str, names: Collection[str] | None, node_id: int | None
    ) -> dict[str, ConfigEntry]:
        resource = DescribeConfigsResource(
            resource_type=kind,
            resource_name=name,
            configuration_keys=None if names is None else sorted(names),
        )
        described = DescribeConfigsRequest(resources=[resource], include_synonyms=True)

        async def attempt() -> dict[str, ConfigEntry]:
            response: DescribeConfigsResponse
            if node_id is not None:
                response = await self._cluster.request(node_id, described)
            else:
                response = await (await self._cluster.any_connection()).request(described)
            for result in response.results:
                if error := error_of(result.error_code, result.error_message, f"settings of {name}"):
                    raise error
                return {entry.name: _entry(entry) for entry in result.configs}
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"settings of {name}: no answer about them")

        return await self._retried(attempt)

    async def _alter(
        self,
        kind: ResourceType,
        name: str,
        changes: Mapping[str, str | None],
        node_id: int | None,
        *,
        validate_only: bool = False,
    ) -> None:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                AlterableConfig(
                    name=setting,
                    value=value,
                    config_operation=_Operation.DELETE if value is None else _Operation.SET,
                )
                for setting, value in changes.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

        async def attempt() -> None:
            response: IncrementalAlterConfigsResponse
            if node_id is not None:
                response = await self._cluster.request(node_id, request)
            else:
                response = await (await self._cluster.controller()).request(request)
            for result in response.responses:
                if error := error_of(result.error_code, result.error_message, f"settings of {name}"):
                    raise error

        await self._retried(attempt)


def _settings_of(result: DescribeConfigsResult) -> dict[str, ConfigEntry] | ProtocolError:
    error = error_of(result.error_code, result.error_message, f"settings of {result.resource_name}")
    return error or {entry.name: _entry(entry) for entry in result.configs}


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        value=entry.value,
        source=_source(entry),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(name=synonym.name, value=synonym.value, source=_known(synonym.source))
            for synonym in entry.synonyms
        ),
    )


def _name_of(node_id: int | None) -> str:
    return "" if node_id is None else str(node_id)


def _source(entry: DescribeConfigsResourceResult) -> ConfigSource:
    """The first version of the protocol tells only whether a value is the default."""
    if entry.is_default:
        return ConfigSource.DEFAULT
    return _known(entry.config_source)


def _known(source: int) -> ConfigSource:
    try:
        return ConfigSource(source)
    except ValueError:
        return ConfigSource.UNKNOWN
