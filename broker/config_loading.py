"""Reads a node's settings from YAML or `.properties`, and checks them as a whole.

Sources in rising order: default, file, `-o key=value`, then what is altered while the node runs. A file is
refused as a whole, with every problem listed at once and each one placed at its file and line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from broker.config import SETTINGS, LoadedConfig, NodeConfig
from broker.config_file import read_file, read_overrides
from broker.errors import ConfigurationError
from broker.listener_config import address_limit, listener_setting, listener_setting_name, problems_of
from broker.settings import parse_settings, suggestion

_CLEANER_MAP_BYTES_MIN = 1 << 20


def load_config(path: Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Read a YAML or `.properties` file and apply `key=value` overrides.

    Raises ConfigurationError listing every unknown name, invalid value and contradiction with its place.
    """
    problems: list[str] = []
    in_file = read_file(path, problems)
    if problems and not in_file:
        raise ConfigurationError(problems)
    entries = [*in_file, *read_overrides(overrides, problems)]
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    refused: set[str] = set()
    of_listeners: dict[tuple[str, str], Any] = {}
    for entry in entries:
        prefixed = listener_setting(entry.name)
        declaration = SETTINGS.get(prefixed[1] if prefixed else entry.name)
        if declaration is None:
            hint = suggestion(entry.name, SETTINGS)
            problems.append(f"{entry.place}: unknown setting {entry.name}{hint}")
            continue
        try:
            value = declaration.kind.parse(entry.text)
        except ValueError as error:
            problems.append(f"{entry.place}: {entry.name}: {error}")
            refused.add(entry.name)
            continue
        if prefixed:
            of_listeners[prefixed] = value
        else:
            values[declaration.field_name] = value
        places[entry.name] = entry.place
    node = NodeConfig(**values, of_listeners=of_listeners)
    if "log.dirs" in places and not node.log_dirs:
        problems.append(f"{places['log.dirs']}: log.dirs: at least one directory is needed")
    problems += [f"{places.get(name, path)}: {name}: {problem}" for name, problem in _contradictions(node)]
    if node.broker_id < 0 and "broker.id" not in refused:
        place = places.get("broker.id", path)
        problems.append(f"{place}: broker.id must be given, a number that no other node of the cluster has")
    if problems:
        raise ConfigurationError(problems)
    return LoadedConfig(node=node, given=frozenset(places))


def overridden(node: NodeConfig, settings: Mapping[str, str]) -> NodeConfig:
    """The settings with some, given as texts, replaced.

    Raises ConfigurationError listing every unknown name, invalid value and contradiction.
    """
    kinds = {name: (declared.field_name, declared.kind) for name, declared in SETTINGS.items()}
    own = {name: found for name in settings if (found := listener_setting(name))}
    kinds_of_own = {name: (name, SETTINGS[setting].kind) for name, (_, setting) in own.items()}
    values, problems = parse_settings(settings, kinds | kinds_of_own, unknown="unknown setting")
    of_listeners = {own[name]: values.pop(name) for name in own.keys() & values.keys()}
    changed = dataclasses.replace(node, **values, of_listeners={**node.of_listeners, **of_listeners})
    problems += [f"{name}: {problem}" for name, problem in _contradictions(changed)]
    if problems:
        raise ConfigurationError(problems)
    return changed


class _Contradiction(NamedTuple):
    name: str
    problem: str


def _contradictions(node: NodeConfig) -> Iterator[_Contradiction]:
    """What no single value shows."""
    yield from (_Contradiction(name, problem) for name, problem in problems_of(node.listener_texts))
    names = {text.partition("://")[0].upper() for text in node.listeners}
    for listener, setting in node.of_listeners:
        if listener not in names:
            name = listener_setting_name(listener, setting)
            yield _Contradiction(name, f"{listener} is none of the listeners")
    for text in node.max_connections_per_ip_overrides:
        try:
            address_limit(text)
        except ValueError as error:
            yield _Contradiction("max.connections.per.ip.overrides", str(error))
    if node.log_cleaner_dedupe_buffer_size < max(node.log_cleaner_threads, 1) * _CLEANER_MAP_BYTES_MIN:
        yield _Contradiction(
            "log.cleaner.dedupe.buffer.size",
            f"each of log.cleaner.threads needs {_CLEANER_MAP_BYTES_MIN} bytes",
        )
    if node.log_cleaner_min_compaction_lag_ms > node.log_cleaner_max_compaction_lag_ms:
        yield _Contradiction("log.cleaner.min.compaction.lag.ms", "exceeds log.cleaner.max.compaction.lag.ms")
    if node.log_archive_enable and node.log_archive_url is None:
        yield _Contradiction("log.archive.enable", "needs log.archive.url")
    if node.group_min_session_timeout_ms > node.group_max_session_timeout_ms:
        yield _Contradiction("group.min.session.timeout.ms", "exceeds group.max.session.timeout.ms")
    yield from _group_contradictions(node)
    if node.replica_fetch_wait_max_ms > node.replica_socket_timeout_ms:
        yield _Contradiction("replica.fetch.wait.max.ms", "exceeds replica.socket.timeout.ms")
    if node.replica_fetch_wait_max_ms > node.replica_lag_time_max_ms:
        yield _Contradiction("replica.fetch.wait.max.ms", "exceeds replica.lag.time.max.ms")
    if 0 < node.queued_max_request_bytes < node.socket_request_max_bytes:
        yield _Contradiction("queued.max.request.bytes", "is less than socket.request.max.bytes")


def _group_contradictions(node: NodeConfig) -> Iterator[_Contradiction]:
    for name, low, value, high in (
        (
            "session.timeout.ms",
            node.group_consumer_min_session_timeout_ms,
            node.group_consumer_session_timeout_ms,
            node.group_consumer_max_session_timeout_ms,
        ),
        (
            "heartbeat.interval.ms",
            node.group_consumer_min_heartbeat_interval_ms,
            node.group_consumer_heartbeat_interval_ms,
            node.group_consumer_max_heartbeat_interval_ms,
        ),
    ):
        if not low <= value <= high:
            yield _Contradiction(
                f"group.consumer.{name}",
                f"is not between group.consumer.min.{name} and group.consumer.max.{name}",
            )
    if node.group_consumer_heartbeat_interval_ms >= node.group_consumer_session_timeout_ms:
        yield _Contradiction(
            "group.consumer.heartbeat.interval.ms", "is not below group.consumer.session.timeout.ms"
        )
