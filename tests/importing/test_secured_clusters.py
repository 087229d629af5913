"""How clusters are reached: without secrets, and without stores of Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importing.imports import ONE_WAY, imported, problems_of

SECRET = "s3cr3t"
TLS = f"{ONE_WAY}a.security.protocol = SSL\n"
SCRAM = f"{ONE_WAY}a.security.protocol = SASL_SSL\na.sasl.mechanism = SCRAM-SHA-512\n"
MECHANISMS = "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def security(folder: Path, text: str) -> tuple[dict[str, str], list[str]]:
    """Of the cluster `a`, as the file has it; and the notes."""
    outcome = imported(folder, text)
    assert SECRET not in outcome.text + "".join(outcome.notes)
    assert not outcome.topology.clusters["b"].security.references
    return dict(outcome.topology.clusters["a"].security.references), outcome.notes


def test_user_and_password_of_a_login_module(tmp_path: Path) -> None:
    options, notes = security(
        tmp_path, f'{SCRAM}a.sasl.jaas.config = {LOGIN} \\\n  username="mirror" password="{SECRET}";\n'
    )
    assert options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "mirror",
        "sasl.password": "env:A_SASL_PASSWORD",
    }
    assert notes == [
        "7: a.sasl.jaas.config: not written down: the environment variable A_SASL_PASSWORD is to hold the "
        "password"
    ]


@pytest.mark.parametrize(
    ("value", "options", "told"),
    [
        (
            f'{LOGIN} username="u" password="${{file:/etc/secrets:password}}";',
            {"sasl.username": "u", "sasl.password": "env:A_SASL_PASSWORD"},
            "the password, which stands there as ${file:/etc/secrets:password}",
        ),
        (
            f'{LOGIN} username="${{env:MM_USER}}" password="${{env:MM_PASSWORD}}";',
            {"sasl.username": "env:MM_USER", "sasl.password": "env:MM_PASSWORD"},
            None,
        ),
        (
            f'{LOGIN} username="id" password="{SECRET}" tokenauth="true";',
            {"sasl.jaas.config": "env:A_SASL_JAAS_CONFIG"},
            "the whole of it",
        ),
        (
            "${vault:kafka:jaas}",
            {"sasl.jaas.config": "env:A_SASL_JAAS_CONFIG"},
            "the whole of it, which stands there as ${vault:kafka:jaas}",
        ),
    ],
)
def test_logins_are_referred_to(
    tmp_path: Path, value: str, options: dict[str, str], told: str | None
) -> None:
    found, notes = security(tmp_path, f"{SCRAM}a.sasl.jaas.config = {value}\n")
    assert {name: text for name, text in found.items() if name.startswith("sasl.")} == {
        "sasl.mechanism": "SCRAM-SHA-512",
        **options,
    }
    assert [note.partition("is to hold ")[2] for note in notes] == ([told] if told else [])


def test_tokens_are_asked_for_as_before(tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    found, _ = security(
        tmp_path,
        f"{ONE_WAY}a.security.protocol = SASL_SSL\na.sasl.mechanism = OAUTHBEARER\n"
        f'a.sasl.jaas.config = {login} clientId="m" clientSecret="{SECRET}";\n'
        "a.sasl.oauthbearer.token.endpoint.url = https://idp.example/token\n",
    )
    assert found["sasl.jaas.config"] == "env:A_SASL_JAAS_CONFIG"
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://idp.example/token"


def test_stores_of_java_become_files_in_pem(tmp_path: Path) -> None:
    options, notes = security(
        tmp_path,
        f"{TLS}a.ssl.truststore.location = /etc/kafka/trust.jks\na.ssl.truststore.password = {SECRET}\n"
        f"a.ssl.keystore.location = certificates/key.p12\na.ssl.keystore.type = PKCS12\n"
        f"a.ssl.keystore.password = {SECRET}\na.ssl.endpoint.identification.algorithm =\n",
    )
    assert options == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/etc/kafka/trust.pem",
        "ssl.keystore.location": str(tmp_path / "certificates/key.pem"),
        "ssl.key.password": "env:A_SSL_KEY_PASSWORD",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert [note.split(" is to hold ")[0] for note in notes] == [
        "6: a.ssl.truststore.location: /etc/kafka/trust.pem",
        "8: a.ssl.keystore.location: certificates/key.pem",
        "10: a.ssl.keystore.password: not written down: the environment variable A_SSL_KEY_PASSWORD",
    ]


def test_files_in_pem_stay(tmp_path: Path) -> None:
    options, notes = security(
        tmp_path, f"{TLS}a.ssl.truststore.location = /ca.crt\na.ssl.truststore.type = PEM\n"
    )
    assert options == {"security.protocol": "SSL", "ssl.truststore.location": "/ca.crt"}
    assert notes == []


def test_versions_of_tls_that_are_not_spoken_are_told(tmp_path: Path) -> None:
    options, (note,) = security(tmp_path, f"{TLS}a.ssl.enabled.protocols = TLSv1.1,TLSv1.2\n")
    assert options["ssl.enabled.protocols"] == "TLSv1.2"
    assert note == "6: a.ssl.enabled.protocols: TLSv1.2, TLSv1.3 are spoken, and no others"


def test_options_of_all_clusters_are_those_of_each(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path, f"{ONE_WAY}security.protocol = SSL\nb.security.protocol = PLAINTEXT\nssl.provider = x\n"
    )
    assert outcome.topology.clusters["a"].security.tls is not None
    assert outcome.topology.clusters["b"].security.tls is None
    assert outcome.notes == ["7: ssl.provider: left out: TLS has no such option here"]


def test_what_clients_of_flows_are_told_is_for_the_cluster(tmp_path: Path) -> None:
    options, notes = security(
        tmp_path,
        f"{ONE_WAY}a.consumer.security.protocol = SASL_PLAINTEXT\na->b.consumer.sasl.mechanism = PLAIN\n"
        f"a.admin.security.protocol = SASL_PLAINTEXT\na.consumer.sasl.username = u\n"
        f"a.consumer.sasl.password = {SECRET}\na.admin.sasl.username = other\n",
    )
    assert options == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "env:A_SASL_PASSWORD",
    }
    assert notes[-1] == (
        "10: a.admin.sasl.username: left out: a cluster is reached in one way, as a.consumer.sasl.username "
        "says"
    )


def test_what_has_no_effect_is_told(tmp_path: Path) -> None:
    options, notes = security(
        tmp_path, f"{ONE_WAY}a.ssl.truststore.location = /x.jks\na.sasl.mechanism = PLAIN\n"
    )
    assert options == {}
    assert notes == [
        f"{line}: a.{name}: left out: has no effect while security.protocol is PLAINTEXT"
        for line, name in ((5, "ssl.truststore.location"), (6, "sasl.mechanism"))
    ]


def test_variables_of_clusters_with_like_names_differ(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path,
        "clusters = 1-a, 1.a\nsecurity.protocol = SASL_SSL\nsasl.mechanism = PLAIN\nsasl.username = u\n"
        "1-a.bootstrap.servers = a:1\n1.a.bootstrap.servers = b:1\n1-a->1.a.enabled = true\n"
        f"1-a.sasl.password = {SECRET}\n1.a.sasl.password = {SECRET}\n",
    )
    assert [
        cluster.security.references["sasl.password"] for cluster in outcome.topology.clusters.values()
    ] == [
        "env:_1_A_SASL_PASSWORD",
        "env:_1_A_SASL_PASSWORD_2",
    ]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            "security.protocol = TLS",
            "5: a.security.protocol: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'",
        ),
        (
            "security.protocol = SASL_SSL",
            f"5: a.security.protocol: sasl.mechanism is missing: {MECHANISMS}",
        ),
        (
            "security.protocol = SASL_SSL\na.sasl.mechanism = GSSAPI",
            f"6: a.sasl.mechanism: 'GSSAPI' is not supported: {MECHANISMS}",
        ),
        (
            "security.protocol = SASL_SSL\na.sasl.mechanism = PLAIN\n"
            f'a.sasl.jaas.config = x required password="{SECRET}',
            "7: a.sasl.jaas.config: a quote that is never closed",
        ),
        (
            "security.protocol = SSL\na.ssl.truststore.location = .",
            "6: a.ssl.truststore.location: expected the path of a file",
        ),
        (
            "security.protocol = SSL\na.ssl.truststore.location = ${file:/x:y}",
            "6: a.ssl.truststore.location: is a variable, which nobody fills in here: say what it stands for",
        ),
    ],
)
def test_what_cannot_be_reached_so_is_told_without_secrets(
    tmp_path: Path, settings: str, problem: str
) -> None:
    assert problems_of(tmp_path, f"{ONE_WAY}a.{settings}\n") == [problem]
