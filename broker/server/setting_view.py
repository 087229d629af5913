"""Settings as DescribeConfigs shows them: value, type, and which of several sources the value is from."""

from __future__ import annotations

from dataclasses import dataclass

from broker.settings import ConfigSource, SettingType


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
        return ConfigSource.BROKER_STATIC if self.given else ConfigSource.DEFAULT
