"""DescribeConfigs: settings of topics, groups and this node, each with where its value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.groups.group_configs import GROUP_SETTINGS
from broker.groups.group_configs import KIND as GROUP_KIND
from broker.server.access import group_named, require, topic_named
from broker.server.node_settings import Layer, NodeSetting, NodeSettings
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.server.settings_alteration import require_group, require_this_node
from broker.server.topic_settings import TOPIC_SETTINGS
from broker.settings import ConfigSource, ResourceType, SettingType
from broker.storage.log_config import SETTINGS, LogConfig
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_SOURCE_FROM = 1
"""First version that tells a setting's source, in place of whether it is a default."""


async def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Each resource is described, or refused, by itself."""
    return DescribeConfigsResponse(
        results=[await _describe(services, context, request, asked) for asked in request.resources]
    )


async def _describe(
    services: Services,
    context: RequestContext,
    request: DescribeConfigsRequest,
    asked: DescribeConfigsResource,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    try:
        entries = await _entries(services, context, asked)
    except ProtocolError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    wanted = asked.configuration_keys
    for entry in entries:
        if wanted is not None and entry.name not in wanted:
            continue
        if context.api_version >= _SOURCE_FROM:
            entry.is_default = False
        if not request.include_synonyms:
            entry.synonyms = []
        if not request.include_documentation:
            entry.documentation = None
        result.configs.append(entry)
    return result


async def _entries(
    services: Services, context: RequestContext, asked: DescribeConfigsResource
) -> Iterable[DescribeConfigsResourceResult]:
    match asked.resource_type:
        case ResourceType.TOPIC:
            require(services, context, Operation.DESCRIBE_CONFIGS, topic_named(asked.resource_name))
            if services.view.image.topic(asked.resource_name) is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            try:
                overrides = await services.topic_configs.overrides(asked.resource_name)
            except CoordinationError as error:
                raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error
            return topic_entries(services, overrides)
        case ResourceType.BROKER:
            require(services, context, Operation.DESCRIBE_CONFIGS, CLUSTER)
            if require_this_node(services, asked.resource_name) is Layer.ALL_NODES:
                return _entries_of_all_nodes(services.node_settings)
            return [_node_entry(services.node_settings, setting) for setting in services.node_settings]
        case ResourceType.GROUP:
            require(services, context, Operation.DESCRIBE_CONFIGS, group_named(asked.resource_name))
            require_group(asked.resource_name)
            return _group_entries(services, services.group_configs.overrides(asked.resource_name))
        case _:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"resource type {asked.resource_type} has no settings"
            )


def topic_entries(
    services: Services, overrides: Mapping[str, str]
) -> Iterator[DescribeConfigsResourceResult]:
    """Every setting of a topic that has `overrides` of its own."""
    defaults = services.topic_configs.defaults
    for name, setting in TOPIC_SETTINGS.items():
        inherited = [
            synonym
            for node_setting in setting.node_settings
            for synonym in _node_synonyms(services.node_settings, node_setting)
        ]
        entry = _overridable_entry(name, overrides, ConfigSource.TOPIC, inherited, SETTINGS[name].kind.type)
        entry.value = overrides.get(name, render(defaults, name))
        entry.documentation = setting.doc
        yield entry


def _group_entries(
    services: Services, overrides: Mapping[str, str]
) -> Iterator[DescribeConfigsResourceResult]:
    """Every setting of a group that has `overrides` of its own."""
    for name, setting in GROUP_SETTINGS.items():
        inherited = list(_node_synonyms(services.node_settings, setting.node_setting))
        entry = _overridable_entry(name, overrides, ConfigSource.GROUP, inherited, GROUP_KIND.type)
        entry.documentation = setting.doc
        yield entry


def _overridable_entry(
    name: str,
    overrides: Mapping[str, str],
    source: ConfigSource,
    inherited: list[DescribeConfigsSynonym],
    kind: SettingType,
) -> DescribeConfigsResourceResult:
    """A setting that `overrides` may have, from this `source`, over what it is otherwise."""
    own = overrides.get(name)
    synonyms = list(inherited)
    if own is not None:
        synonyms.insert(0, DescribeConfigsSynonym(name=name, value=own, source=source))
    return DescribeConfigsResourceResult(
        name=name,
        value=synonyms[0].value if synonyms else None,
        read_only=False,
        is_default=own is None,
        config_source=ConfigSource(synonyms[0].source) if synonyms else ConfigSource.DEFAULT,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=kind,
    )


def _node_synonyms(settings: NodeSettings, name: str) -> Iterator[DescribeConfigsSynonym]:
    for value, source in settings.values(name):
        yield DescribeConfigsSynonym(name=name, value=value, source=source)


def _node_entry(settings: NodeSettings, setting: NodeSetting) -> DescribeConfigsResourceResult:
    """A setting as it is in force at this node."""
    synonyms = list(_node_synonyms(settings, setting.name))
    source = ConfigSource(synonyms[0].source) if synonyms else ConfigSource.DEFAULT
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=synonyms[0].value if synonyms else None,
        read_only=not setting.dynamic,
        is_default=source is ConfigSource.DEFAULT,
        config_source=source,
        is_sensitive=setting.is_sensitive,
        synonyms=synonyms,
        config_type=setting.kind.type,
        documentation=setting.doc,
    )


def _entries_of_all_nodes(settings: NodeSettings) -> Iterator[DescribeConfigsResourceResult]:
    """What was set dynamically for all nodes, and nothing else."""
    altered = settings.layer(Layer.ALL_NODES)
    for setting in settings:
        if setting.name in altered:
            entry = _node_entry(settings, setting)
            entry.synonyms = [each for each in entry.synonyms if each.source == ConfigSource.CLUSTER_DYNAMIC]
            entry.value = entry.synonyms[0].value
            entry.config_source = ConfigSource.CLUSTER_DYNAMIC
            yield entry


def render(config: LogConfig, name: str) -> str:
    """A topic-level setting's value as Kafka writes it."""
    setting = SETTINGS[name]
    return setting.kind.render(getattr(config, setting.field))
