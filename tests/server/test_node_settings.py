"""The layers of a node's settings."""

from __future__ import annotations

import pytest

from broker.errors import ConfigurationError, ErrorCode, ProtocolError
from broker.server.node_settings import Layer, NodeSetting, NodeSettings
from broker.settings import ConfigSource, Kind, SettingType, integer


def settings() -> NodeSettings:
    def check(values: object) -> None:
        if values == {"size": "7"}:
            raise ConfigurationError(["size: seven contradicts the rest"])

    password = Kind(type=SettingType.PASSWORD, parse=str)
    declared = [
        NodeSetting(name="size", kind=integer(), default="1", given="2", dynamic=True, doc="Size."),
        NodeSetting(name="secret", kind=password, default=None, given="abc", dynamic=True, doc="Secret."),
    ]
    return NodeSettings({setting.name: setting for setting in declared}, check=check)


def test_values_come_from_the_nearest_layer() -> None:
    node = settings()
    node.adopt(Layer.ALL_NODES, {"size": "3"})
    node.adopt(Layer.THIS_NODE, {"size": "4"})
    assert [value for value, _ in node.values("size")] == ["4", "3", "2", "1"]
    assert node.overrides == {"size": "4"}
    assert node.values("unknown") == []


def test_secrets_are_never_told() -> None:
    node = settings()
    node.adopt(Layer.THIS_NODE, {"secret": "xyz"})
    assert node.values("secret") == [(None, ConfigSource.BROKER_DYNAMIC), (None, ConfigSource.BROKER_STATIC)]


def test_what_cannot_be_used_is_left_out() -> None:
    node = settings()
    node.adopt(Layer.ALL_NODES, {"size": "huge", "unknown": "1", "secret": "s"})
    assert node.overrides == {"secret": "s"}


def test_contradictions_are_refused() -> None:
    with pytest.raises(ProtocolError, match="contradicts") as caught:
        settings().validate({"size": "7"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
