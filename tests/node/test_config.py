"""Settings of a node: files, overrides, and the errors in them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from broker.config import SETTINGS, LoadedConfig, NodeConfig
from broker.config_loading import load_config
from broker.errors import ConfigurationError
from broker.live_config import node_settings
from broker.part_configs import connection_limits, log_defaults
from broker.server.config import ListenerLimits
from broker.types import HostPort


def load(tmp_path: Path, text: str, *overrides: str, name: str = "node.yaml") -> LoadedConfig:
    path = tmp_path / name
    path.write_text(text)
    return load_config(path, overrides)


def problems_of(tmp_path: Path, text: str, *overrides: str, name: str = "node.yaml") -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, text, *overrides, name=name)
    return [problem.removeprefix(f"{tmp_path}/") for problem in refused.value.problems]


def test_flat_and_nested_names_are_the_same(tmp_path: Path) -> None:
    flat = load(tmp_path, "broker.id: 3\nlog.retention.hours: 5\nlog.dirs: /a,/b\n")
    nested = load(tmp_path, "broker: {id: 3}\nlog:\n  retention.hours: 5\n  dirs: [/a, /b]\n")
    assert flat == nested
    assert nested.node.data_roots == [Path("/a"), Path("/b")]


def test_properties_say_the_same_as_yaml(tmp_path: Path) -> None:
    text = "# comment\n! too\nbroker.id=3\nlog.retention.hours : 5\nlog.dirs = /a,\\\n   /b\n\n"
    properties = load(tmp_path, text, name="server.properties")
    assert properties == load(tmp_path, "broker.id: 3\nlog: {retention.hours: 5, dirs: [/a, /b]}\n")


def test_overrides_come_last(tmp_path: Path) -> None:
    loaded = load(tmp_path, "broker.id: 3\nnum.partitions: 2\n", "num.partitions=7")
    assert loaded.node.num_partitions == 7
    assert loaded.given == {"broker.id", "num.partitions"}


def test_everything_that_is_wrong_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    text = (
        "num.partitions: many\nlog:\n  segmnt.bytes: 5\n  roll.hours: 0\nauto.create.topics.enable: maybe\n"
    )
    assert problems_of(tmp_path, text, "compression.type=rar", "nonsense") == [
        "-o nonsense: expected key=value",
        "node.yaml:1: num.partitions: expected a whole number, not 'many'",
        "node.yaml:3: unknown setting log.segmnt.bytes (did you mean log.segment.bytes?)",
        "node.yaml:4: log.roll.hours: expected a whole number from 1 to 2147483647, not 0",
        "node.yaml:5: auto.create.topics.enable: expected true or false, not 'maybe'",
        "-o compression.type=rar: compression.type: expected one of producer, uncompressed, gzip, snappy, "
        "lz4, zstd, not 'rar'",
        "node.yaml: broker.id must be given, a number that no other node of the cluster has",
    ]


def test_properties_problems_have_lines_too(tmp_path: Path) -> None:
    text = "broker.id=1\n\nlog.dirs=/a,\\\n  /b\nnum.partition=1\n"
    assert problems_of(tmp_path, text, name="server.properties") == [
        "server.properties:5: unknown setting num.partition (did you mean num.partitions?)"
    ]


def test_broken_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    (first, *_) = problems_of(tmp_path, "broker.id: 1\nlog: [1, 2\nx: y: z\n")
    assert first.startswith("node.yaml:3: ")


def test_a_character_that_yaml_does_not_take_is_told_with_its_line(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "broker.id: 1\nlog.dirs: \x07\n")
    assert problem == "node.yaml:2: the character '\\x07' cannot stand in YAML"


def test_a_mapping_that_holds_itself_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "broker.id: 1\nlog: &log {dirs: *log}\n")
    assert problem == "node.yaml:2: expected settings, name: value"


def test_an_id_that_is_no_number_is_told_once(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "broker.id: one\n")
    assert problem == "node.yaml:1: broker.id: expected a whole number, not 'one'"


def test_a_setting_given_twice_is_told_with_both_places(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "broker.id: 1\nlog: {dirs: /a}\nlog.dirs: /b\n")
    assert problem.startswith("node.yaml:3: log.dirs is given twice, first at ")
    assert problem.endswith("node.yaml:2")


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "broker.id: {1: {2: [x, {y: z}]}}\n", "just text\n", "? [a]\n: b\n"]
)
def test_yaml_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    assert problems_of(tmp_path, text)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "absent.yaml"
    with pytest.raises(ConfigurationError) as caught:
        load_config(path)
    assert caught.value.problems == [f"{path}: cannot be read: No such file or directory"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("listeners: 127.0.0.1:9092", "NAME://HOST:PORT"),
        ("listeners: PLAINTEXT://127.0.0.1:port", "is not host:port"),
        ("listeners: SSL://127.0.0.1:9092", "has no protocol"),
        ("listeners: 'PLAINTEXT://a:1,PLAINTEXT://b:2'", "twice"),
        ("listeners: []", "at least one"),
        ("listeners: PLAINTEXT://0.0.0.0:9092", "clients cannot be told"),
        ("listeners: 'PLAINTEXT://[::]:9092'", "clients cannot be told"),
        ("listeners: PLAINTEXT://::1:9092", "stands in brackets"),
        ("listeners: PLAINTEXT://127.0.0.1:70000", "is not host:port"),
        ("advertised.listeners: OTHER://a:1", "OTHER has no protocol"),
        ("advertised.listeners: PLAINTEXT://a:0", "give the port"),
        ("advertised.listeners: 'PLAINTEXT://a:1,PLAINTEXT://b:2'", "twice"),
        ("inter.broker.listener.name: OTHER", "none of the advertised listeners"),
        ("listener.security.protocol.map: 'A:PLAINTEXT,A:PLAINTEXT'", "A is given twice"),
        ("listener.name.other.max.connections: 5", "none of the listeners"),
        ("listener.name.plaintext.max.connections: many", "expected a whole number"),
        ("listener.name.plaintext.log.dirs: /x", "unknown setting"),
        ("listener.security.protocol.map: PLAINTEXT:SECRET", "NAME:PROTOCOL"),
        ("max.connections.per.ip.overrides: 127.0.0.1", "ADDRESS:COUNT"),
        ("max.connections.per.ip.overrides: 'localhost:5'", "with an IP address"),
        ("group.min.session.timeout.ms: 2000000", "exceeds"),
        ("replica.fetch.wait.max.ms: 30001", "exceeds replica.socket.timeout.ms"),
        ("replica.fetch.wait.max.ms: 30001", "exceeds replica.lag.time.max.ms"),
        ("log.dirs: ''", "node.yaml:2: log.dirs: at least one directory"),
    ],
)
def test_contradictions_are_told_at_their_line(tmp_path: Path, setting: str, expected: str) -> None:
    problems = problems_of(tmp_path, f"broker.id: 1\n{setting}\n")
    assert any(expected in problem for problem in problems), problems


def test_several_listeners_are_understood_with_their_own_names_and_addresses(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "broker.id: 1\n"
        "listeners: [INSIDE://10.0.0.1:1, 'OUTSIDE://[::1]:2']\n"
        "advertised.listeners: [INSIDE://inside:1, OUTSIDE://outside:3]\n"
        "listener.security.protocol.map: [INSIDE:PLAINTEXT, OUTSIDE:PLAINTEXT]\n",
    )
    assert [listener.address for listener in loaded.node.listener_texts.bound] == [
        HostPort("10.0.0.1", 1),
        HostPort("::1", 2),
    ]
    assert [str(listener) for listener in loaded.node.listener_texts.told] == [
        "INSIDE://inside:1",
        "OUTSIDE://outside:3",
    ]


TWO_LISTENERS = "broker.id: 1\nlistener.security.protocol.map: [A:PLAINTEXT, B:PLAINTEXT]\n"


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("0.0.0.0:1", "[::1]:1", False),
        ("[::]:1", "127.0.0.1:1", True),
        (":1", "[::1]:1", True),
    ],
)
def test_addresses_that_cannot_both_be_bound_are_refused(
    tmp_path: Path, one: str, other: str, clash: bool
) -> None:
    listeners = f"listeners: ['A://{one}', 'B://{other}']\nadvertised.listeners: [A://a:1, B://b:2]\n"
    if clash:
        (problem,) = problems_of(tmp_path, TWO_LISTENERS + listeners)
        assert ":3: listeners: " in problem
        assert "cannot both have the port 1" in problem
    else:
        load(tmp_path, TWO_LISTENERS + listeners)


def test_an_empty_host_is_advertised_as_the_name_of_the_machine(tmp_path: Path) -> None:
    loaded = load(tmp_path, "broker.id: 1\nlisteners: PLAINTEXT://:9092\n")
    (listener,) = loaded.node.listener_texts.told
    assert listener.address == HostPort(socket.getfqdn(), 9092)


def test_a_listener_may_have_limits_of_its_own(tmp_path: Path) -> None:
    loaded = load(tmp_path, "broker.id: 1\nlistener.name.plaintext.max.connections: 5\nmax.connections: 9\n")
    limits = connection_limits(loaded.node)
    assert (limits.connections_max, limits.of_listener("PLAINTEXT").connections_max) == (9, 5)
    assert limits.of_listener("OTHER") == ListenerLimits()


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("log.retention.hours: 2", 2 * 3_600_000),
        ("log.retention.minutes: 3\nlog.retention.hours: 2", 180_000),
        ("log.retention.ms: 4\nlog.retention.minutes: 3", 4),
        ("log.retention.hours: -1", -1),
    ],
)
def test_the_finest_unit_of_retention_holds(tmp_path: Path, text: str, expected_ms: int) -> None:
    assert load(tmp_path, f"broker.id: 1\n{text}\n").node.retention_ms == expected_ms


def test_every_default_is_of_its_own_kind() -> None:
    defaults = NodeConfig()
    for name, declared in SETTINGS.items():
        value = getattr(defaults, declared.field_name)
        assert declared.kind.parse(declared.kind.render(value)) == value, name
        assert declared.doc


def test_defaults_of_logs_are_kafkas(tmp_path: Path) -> None:
    config = log_defaults(load(tmp_path, "broker.id: 1\n").node)
    assert config.segment_bytes == 1 << 30
    assert config.retention_ms == 7 * 24 * 3_600_000
    assert config.max_message_bytes == 1_048_588


def test_settings_tell_where_they_come_from(tmp_path: Path) -> None:
    settings = node_settings(load(tmp_path, "broker.id: 1\n", "num.partitions=4"))
    assert (settings["num.partitions"].given, settings["num.partitions"].default) == ("4", "1")
    assert settings["log.segment.bytes"].given is None
    assert settings["log.roll.ms"].default is None
