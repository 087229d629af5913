"""The settings of the node as clients see and change them, each with the sources of its value (KIP-226).

What the node started with lies under what ZooKeeper holds for all nodes, and that under what it holds for
this one. Only settings that take effect while a node runs can stand there. Secrets are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from broker.errors import ConfigurationError, ErrorCode, ProtocolError
from broker.settings import ConfigSource, Kind, SettingType, suggestion
from broker.telemetry import logger

log = logger("node_settings")


class Layer(Enum):
    """Who a dynamic setting is for."""

    THIS_NODE = ConfigSource.BROKER_DYNAMIC
    ALL_NODES = ConfigSource.CLUSTER_DYNAMIC


class SourcedValue(NamedTuple):
    """A value as text; None where the setting is unset or secret."""

    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetting:
    """One setting of the node. Values are texts, None where unset."""

    name: str
    kind: Kind[Any]
    default: str | None
    given: str | None
    """What the node's file or command line said."""
    dynamic: bool
    """Whether it can be altered while the node runs."""
    doc: str

    @property
    def is_sensitive(self) -> bool:
        return self.kind.type is SettingType.PASSWORD


class NodeSettings:
    """Every setting by name, with the layers that ZooKeeper holds. Owned by the event loop."""

    def __init__(
        self, settings: Mapping[str, NodeSetting], *, check: Callable[[Mapping[str, str]], object]
    ) -> None:
        """`check` raises ConfigurationError for dynamic settings that contradict each other or the rest."""
        self._settings = settings
        self._check = check
        self._layers: dict[Layer, Mapping[str, str]] = {Layer.ALL_NODES: {}, Layer.THIS_NODE: {}}

    def __iter__(self) -> Iterator[NodeSetting]:
        return iter(self._settings.values())

    def get(self, name: str) -> NodeSetting | None:
        """The setting, or None when there is none of the name."""
        return self._settings.get(name)

    def layer(self, layer: Layer) -> Mapping[str, str]:
        """What is set dynamically for this node, or for all."""
        return self._layers[layer]

    @property
    def overrides(self) -> Mapping[str, str]:
        """The dynamic settings in force."""
        return {**self._layers[Layer.ALL_NODES], **self._layers[Layer.THIS_NODE]}

    def adopt(self, layer: Layer, settings: Mapping[str, str]) -> None:
        """Take a layer as ZooKeeper has it; what this node cannot use is logged and left out."""
        usable = {}
        for name, text in settings.items():
            try:
                self.validate({name: text})
            except ProtocolError as error:
                log.warning("node_setting_ignored", setting=name, reason=str(error))
                continue
            usable[name] = text
        self._layers[layer] = usable

    def validate(self, settings: Mapping[str, str]) -> None:
        """Raises ProtocolError: INVALID_REQUEST for settings that cannot be altered while a node runs,
        INVALID_CONFIG for unknown names and wrong values.
        """
        fixed = [name for name in settings if (known := self._settings.get(name)) and not known.dynamic]
        if fixed:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"cannot be altered while a node runs, but in its file: {', '.join(sorted(fixed))}",
            )
        problems = list(self._problems(settings))
        if problems:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
        try:
            self._check(settings)
        except ConfigurationError as error:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def values(self, name: str) -> list[SourcedValue]:
        """The values of a setting by falling precedence; empty when it has none, or there is no such one."""
        setting = self._settings.get(name)
        if setting is None:
            return []
        texts = (
            (self._layers[Layer.THIS_NODE].get(name), ConfigSource.BROKER_DYNAMIC),
            (self._layers[Layer.ALL_NODES].get(name), ConfigSource.CLUSTER_DYNAMIC),
            (setting.given, ConfigSource.BROKER_STATIC),
            (setting.default, ConfigSource.DEFAULT),
        )
        return [
            SourcedValue(None if setting.is_sensitive else text, source)
            for text, source in texts
            if text is not None
        ]

    def _problems(self, settings: Mapping[str, str]) -> Iterator[str]:
        for name, text in settings.items():
            setting = self._settings.get(name)
            if setting is None:
                yield f"{name}: unknown setting of a node{suggestion(name, self._settings)}"
                continue
            try:
                setting.kind.parse(text)
            except ValueError as error:
                yield f"{name}: {error}"
