"""`--command-config`: a client's file, read for one command."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from broker.client.connection import ConnectionSettings
from broker.client.security.connection_security import PLAINTEXT
from broker.client.security.settings import PlainCredentials
from broker.command_settings import read_command_settings
from broker.errors import ConfigurationError
from broker.topic_commands import list_topics
from tests.client.peers import Peer, serving
from tests.client.running import run
from tests.client.sasl_peer import Guard
from tests.node.commands import broker

PROPERTIES = """\
# how to reach the cluster
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="mirror" \\
  password="file:password";
ssl.truststore.location=certificates/ca.pem
client.id=deployment
request.timeout.ms=5000
"""
YAML = """\
security.protocol: SASL_SSL
sasl:
  mechanism: PLAIN
  username: mirror
  password: file:password
ssl: {truststore.location: certificates/ca.pem}
client.id: deployment
request: {timeout: {ms: 5000}}
"""
DEFAULTS = ConnectionSettings(client_id="broker-cli", connect_timeout_ms=7)


@pytest.mark.parametrize(("name", "text"), [("client.properties", PROPERTIES), ("client.yaml", YAML)])
def test_a_clients_file_says_how_commands_connect(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    settings = read_command_settings(file, DEFAULTS)
    assert (settings.client_id, settings.request_timeout_ms, settings.connect_timeout_ms) == (
        "deployment",
        5000,
        7,
    )
    tls, credentials = settings.security.tls, settings.security.credentials
    assert tls is not None
    assert tls.trusted is not None
    assert tls.trusted.given == str(tmp_path / "certificates/ca.pem")
    assert isinstance(credentials, PlainCredentials)
    assert credentials.password.given == str(tmp_path / "password")


def test_a_file_that_says_nothing_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("")
    assert read_command_settings(file, DEFAULTS) == DEFAULTS
    assert DEFAULTS.security is PLAINTEXT


def test_every_problem_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=mirror\n"
        "sasl.pasword=tell-me\nacks=all\nclinet.id=x\nrequest.timeout.ms=soon\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        read_command_settings(file, DEFAULTS)
    assert caught.value.problems == [
        f"{file}:4: sasl.pasword: unknown option (did you mean sasl.password?)",
        f"{file}: sasl.password: is missing: SCRAM-SHA-256 needs it",
        f"{file}:5: acks: commands have no use for this",
        f"{file}:6: clinet.id: commands have no use for this (did you mean client.id?)",
        f"{file}:7: request.timeout.ms: expected a whole number, not 'soon'",
    ]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    told = broker("topics", "list", "--command-config", str(file))
    assert (told.code, told.errors) == (1, f"broker: {file}: cannot be read: No such file or directory\n")


def test_a_command_says_who_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=mirror\n"
        "sasl.password=pencil\n"
    )

    async def main() -> None:
        peer = Peer()
        guard = Guard(peer)
        async with serving([peer], partitions=1) as cluster:
            options = argparse.Namespace(
                bootstrap_server=cluster.bootstrap, command_config=file, internal=False, output="text"
            )
            await list_topics(options)
        assert guard.logins == ["mirror"]

    run(main)
    assert capsys.readouterr().out == "t\n"
