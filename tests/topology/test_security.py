"""Secured clusters in topology files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.client.security.settings import ScramCredentials
from broker.errors import AuthenticationError, ConfigurationError
from mirrormaker.clusters import open_cluster
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterName, ClusterSpec, JdbcSink
from tests.client.peers import Peer, serving
from tests.client.sasl_peer import Guard

SECURED = """\
clusters:
  jfk: {{bootstrap: ["10.0.0.1:9093"]}}
  aggregate:
    bootstrap: ["{address}"]
    security:
      security.protocol: {protocol}
      sasl.mechanism: SCRAM-SHA-512
      sasl.username: mirror
      sasl.password: {password}
routes:
  - {{from: jfk, to: aggregate, topics: {{include: ['flights.*']}}}}
"""


def cluster(folder: Path, text: str) -> ClusterSpec:
    file = folder / "topology.yaml"
    file.write_text(text)
    return load_topology(file).clusters[ClusterName("aggregate")]


def problems_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        cluster(folder, text)
    return [problem.removeprefix(f"{folder / 'topology.yaml'}:") for problem in caught.value.problems]


def secured(
    *, password: str = "file:secrets/password", protocol: str = "SASL_SSL", address: str = "10.0.0.2:9093"
) -> str:
    return SECURED.format(password=password, protocol=protocol, address=address)


def test_a_cluster_says_how_it_is_reached_in_the_words_of_kafkas_clients(tmp_path: Path) -> None:
    security = cluster(tmp_path, secured()).security
    assert security.tls is not None
    assert isinstance(security.credentials, ScramCredentials)
    assert security.credentials.password.given == str(tmp_path / "secrets/password")
    assert load_topology(tmp_path / "topology.yaml").clusters[ClusterName("jfk")].security is PLAINTEXT


def test_a_file_is_checked_where_its_secrets_are_not(tmp_path: Path) -> None:
    assert cluster(tmp_path, secured(password="env:NOT_SET_HERE")).security.credentials is not None


@pytest.mark.parametrize(
    ("password", "problem"),
    [
        ("tell-me", "a secret must not stand here: refer to it, as file:PATH or env:NAME"),
        ("20261121", "expected text, found a whole number: put it in quotes"),
        ("[tell-me]", "expected text, found a list: put it in quotes"),
    ],
)
def test_secrets_do_not_stand_in_the_file_and_are_not_shown(
    tmp_path: Path, password: str, problem: str
) -> None:
    told = problems_of(tmp_path, secured(password=password))
    assert told[0] == f"9: clusters.aggregate.security.sasl.password: {problem}"
    assert password not in "\n".join(told)


@pytest.mark.parametrize(
    ("right", "wrong", "line", "problem"),
    [
        ("sasl.mechanism", "ssl.enabled.protocols", 5, "sasl.mechanism is missing"),
        ("SASL_SSL", "SSL", 9, "has no effect while security.protocol is SSL"),
        ("SASL_SSL", "SASL_TSL", 6, "expected one of PLAINTEXT, SSL"),
    ],
)
def test_a_secret_is_told_beside_whatever_else_is_wrong(
    tmp_path: Path, right: str, wrong: str, line: int, problem: str
) -> None:
    problems = problems_of(tmp_path, secured(password="tell-me").replace(right, wrong, 1))
    path = "clusters.aggregate.security.sasl.password"
    assert f"9: {path}: a secret must not stand here: refer to it, as file:PATH or env:NAME" in problems
    assert any(told.startswith(f"{line}: ") and problem in told for told in problems)
    assert "tell-me" not in str(problems)


def test_a_secret_in_the_place_of_all_options_is_not_shown(tmp_path: Path) -> None:
    text = "clusters: {aggregate: {bootstrap: ['a:1'], security: tell-me}}\n"
    assert problems_of(tmp_path, text) == ["1: clusters.aggregate.security: expected a mapping, found text"]


def test_problems_have_their_line_and_path(tmp_path: Path) -> None:
    text = secured().replace("sasl.username: mirror", "sasl.usrname: mirror")
    assert problems_of(tmp_path, text) == [
        "5: clusters.aggregate.security: sasl.username is missing: SCRAM-SHA-512 needs it",
        "8: clusters.aggregate.security.sasl.usrname: unknown option (did you mean sasl.username?)",
    ]
    assert problems_of(tmp_path, secured(protocol="TLS"))[0] == (
        "6: clusters.aggregate.security.security.protocol: "
        "expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'"
    )


def test_an_embedded_cluster_has_no_secured_listeners(tmp_path: Path) -> None:
    text = secured().replace('bootstrap: ["10.0.0.2:9093"]', "embedded: {port: 19092}")
    assert problems_of(tmp_path, text) == [
        "5: clusters.aggregate.security: an embedded cluster has no secured listeners: leave this out"
    ]


def test_who_a_mirror_is_is_said_with_the_secret_of_the_moment(tmp_path: Path) -> None:
    async def main() -> None:
        peer = Peer()
        guard = Guard(peer)
        async with serving([peer], partitions=1) as scripted:
            text = secured(protocol="SASL_PLAINTEXT", address=str(scripted.bootstrap[0]))
            spec = cluster(tmp_path, text)
            with pytest.raises(ConfigurationError, match=r"clusters\.aggregate\.security: sasl\.password: /"):
                async with open_cluster(spec):
                    pass
            (tmp_path / "secrets").mkdir()
            (tmp_path / "secrets/password").write_text("pen")
            with pytest.raises(
                AuthenticationError, match=r"cluster 'aggregate': 127.*SCRAM-SHA-512 is refused"
            ):
                async with open_cluster(spec):
                    pass
            (tmp_path / "secrets/password").write_text("pencil")
            async with open_cluster(spec):
                assert guard.logins == ["mirror"]

    asyncio.run(main())


def test_references_say_the_same_from_any_folder_and_hold_no_secret(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/password").write_text("pencil")
    trusted = "      ssl.truststore.location: ca.pem\n"
    text = secured().replace("      sasl.username", f"{trusted}      sasl.username")
    security = cluster(tmp_path, text).security
    assert security.references["ssl.truststore.location"] == str(tmp_path / "ca.pem")
    assert security.references["sasl.password"] == f"file:{tmp_path / 'secrets/password'}"
    assert ConnectionSecurity.from_options(security.references) == security
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required username=me"
    lines = secured().splitlines()
    kept = [line for line in lines if "sasl.username" not in line and "sasl.password" not in line]
    at = next(number for number, line in enumerate(kept) if "sasl.mechanism" in line)
    kept.insert(at, f"      sasl.jaas.config: '{jaas} password=\"file:secrets/password\";'")
    security = cluster(tmp_path, "\n".join(kept)).security
    assert f'password="file:{tmp_path}/secrets/password"' in security.references["sasl.jaas.config"]
    assert ConnectionSecurity.from_options(security.references) == security


@pytest.mark.parametrize("secret", ["918273645", "0.918273645", "[918273645]", "x918273645"])
def test_a_secret_that_stands_where_a_reference_belongs_is_not_told(tmp_path: Path, secret: str) -> None:
    text = f"""\
clusters: {{a: {{bootstrap: ["a:1"]}}, b: {{bootstrap: ["b:1"]}}}}
routes:
  - from: a
    to: b
    topics: {{include: [x]}}
    transforms: [{{mask: {{key: true, hash: true, salt: {secret}}}}}]
pipelines:
  - name: p
    cluster: a
    topics: {{include: [x]}}
    sinks: [{{jdbc: {{url: "jdbc:x", table: t, password: {secret}}}}}]
"""
    problems = problems_of(tmp_path, text)
    assert [problem.split(": ")[1] for problem in problems] == [
        "routes[0].transforms[0].mask.salt",
        "pipelines[0].sinks[0].jdbc.password",
    ]
    assert all("env:NAME or file:/PATH" in problem and "918" not in problem for problem in problems)


WITH_DATABASE = """\
clusters: {{a: {{bootstrap: ["a:1"]}}}}
routes: []
pipelines:
  - name: p
    cluster: a
    topics: {{include: [x]}}
    sinks: [{{jdbc: {{url: "{url}", table: t}}}}]
"""


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://db/x?user=me&password=t0918",
        "jdbc:postgresql://me:t0918@db:5432/x",
        "jdbc:postgresql://me:t/0918@db/x",
        "jdbc:mysql://address=(host=db)(user=me)(Password = t0918)/x",
        "jdbc:mysql://(host=db,user=me,password=t0918)/x",
        "jdbc:sqlserver://db:1433;databaseName=x;user=me;PWD=t0918",
        "jdbc:db2://db:50000/x:user=me;password=t0918;",
        "jdbc:oracle:thin:me/t0918@//db:1521/x",
        "jdbc:derby:x;passwd=t0918",
        "odbc://me:t0918@db/x",
    ],
)
def test_a_url_of_a_database_with_a_password_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    (problem,) = problems_of(tmp_path, WITH_DATABASE.format(url=url))
    assert problem.startswith("7: pipelines[0].sinks[0].jdbc.url: ")
    assert "0918" not in problem
    if url.startswith("jdbc:"):
        assert "'password: env:NAME'" in problem


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://db:5432/x?user=me&passwordEncryption=true",
        "jdbc:postgresql://me@db,other:5433/x?sslmode=require",
        "jdbc:postgresql://[::1]:5432/x?application_name=a:b@c",
        "jdbc:oracle:thin:@//db:1521/x",
        "jdbc:oracle:thin:/@wallet",
        "jdbc:sqlserver://db:1433;databaseName=x;password=;authentication=ActiveDirectoryDefault",
        "jdbc:derby:/var/lib/derby/x;create=true",
    ],
)
def test_a_url_of_a_database_without_one_is_taken(tmp_path: Path, url: str) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(WITH_DATABASE.format(url=url))
    (target,) = [sink.target for sink in load_topology(file).pipelines[0].sinks]
    assert isinstance(target, JdbcSink)
    assert target.url == url
