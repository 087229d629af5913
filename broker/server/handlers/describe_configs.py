"""DescribeConfigs: settings of topics and of this node, each with where its value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import require, topic_named
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.server.setting_view import SettingView
from broker.server.topic_settings import TOPIC_SETTINGS
from broker.settings import ConfigSource, ResourceType
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


def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Each resource is described, or refused, by itself."""
    return DescribeConfigsResponse(
        results=[_describe(services, context, request, asked) for asked in request.resources]
    )


def _describe(
    services: Services,
    context: RequestContext,
    request: DescribeConfigsRequest,
    asked: DescribeConfigsResource,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    try:
        entries = _entries(services, context, asked)
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


def _entries(
    services: Services, context: RequestContext, asked: DescribeConfigsResource
) -> Iterable[DescribeConfigsResourceResult]:
    match asked.resource_type:
        case ResourceType.TOPIC:
            require(services, context, Operation.DESCRIBE_CONFIGS, topic_named(asked.resource_name))
            if services.view.image.topic(asked.resource_name) is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return topic_entries(services, services.topic_configs.overrides(asked.resource_name))
        case ResourceType.BROKER:
            require(services, context, Operation.DESCRIBE_CONFIGS, CLUSTER)
            if asked.resource_name not in ("", str(services.broker_id)):
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    f"this is broker {services.broker_id}, it knows nothing of {asked.resource_name!r}",
                )
            if not asked.resource_name:
                return []
            return [_node_entry(setting) for setting in services.node_settings.values()]
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
        behind = services.node_settings.get(setting.node_setting)
        default = render(defaults, name)
        synonyms = list(_node_synonyms(behind, default))
        if name in overrides:
            synonyms.insert(
                0,
                DescribeConfigsSynonym(name=name, value=overrides[name], source=ConfigSource.TOPIC),
            )
        source = ConfigSource(synonyms[0].source)
        yield DescribeConfigsResourceResult(
            name=name,
            value=overrides.get(name, default),
            read_only=False,
            is_default=source is not ConfigSource.TOPIC,
            config_source=source,
            is_sensitive=False,
            synonyms=synonyms,
            config_type=SETTINGS[name].kind.type,
            documentation=setting.doc,
        )


def _node_synonyms(setting: SettingView | None, default: str) -> Iterator[DescribeConfigsSynonym]:
    if setting is None:
        yield DescribeConfigsSynonym(name="", value=default, source=ConfigSource.DEFAULT)
        return
    if setting.given:
        yield DescribeConfigsSynonym(
            name=setting.name, value=setting.value, source=ConfigSource.BROKER_STATIC
        )
    yield DescribeConfigsSynonym(name=setting.name, value=setting.default, source=ConfigSource.DEFAULT)


def _node_entry(setting: SettingView) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=True,
        is_default=not setting.given,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=list(_node_synonyms(setting, setting.default)),
        config_type=setting.type,
        documentation=setting.doc,
    )


def render(config: LogConfig, name: str) -> str:
    """A topic-level setting's value as Kafka writes it."""
    setting = SETTINGS[name]
    return setting.kind.render(getattr(config, setting.field))
