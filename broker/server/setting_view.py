"""Settings as DescribeConfigs shows them: value, type, and which of several sources the value is from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from broker.settings import SettingType


class ConfigSource(IntEnum):
    """Where a value comes from, as numbered in the protocol."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ResourceType(IntEnum):
    """What settings belong to, as numbered in the protocol."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingView:
    """One setting of the node."""

    name: str
    value: str
    default: str
    type: SettingType
    doc: str
    given: bool
    """Whether the node's file or command line gave it."""

    @property
    def source(self) -> ConfigSource:
        return ConfigSource.STATIC_BROKER if self.given else ConfigSource.DEFAULT
