from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.sasl.scram_keys import SCRAM_SHA_512
from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.client.security.given_options import OPTION_NAMES
from broker.client.security.options import read_options
from broker.client.security.settings import (
    BearerCredentials,
    CalledForToken,
    Credentials,
    GivenToken,
    JaasCredentials,
    PlainCredentials,
    ScramCredentials,
    TlsSettings,
    TokenEndpoint,
    UnsecuredToken,
)
from broker.client.security.text_source import Place, TextSource
from broker.errors import ConfigurationError

MODULES = "org.apache.kafka.common.security"
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
PLAIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "mirror",
    "sasl.password": "pencil",
}


def read(options: dict[str, str]) -> ConnectionSecurity:
    return ConnectionSecurity.from_options(options, folder=Path("/etc/mirror"))


def tls(options: dict[str, str]) -> TlsSettings:
    settings = read({"security.protocol": "SSL", **options}).tls
    assert settings is not None
    return settings


def credentials(options: dict[str, str]) -> Credentials:
    found = read(options).credentials
    assert found is not None
    return found


def problems(options: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(options)
    return caught.value.problems


def shown(source: TextSource | None) -> str:
    assert source is not None
    return source.given


def test_without_options_connections_are_not_secured() -> None:
    assert read({}) == PLAINTEXT
    assert read({"security.protocol": "plaintext"}) == PLAINTEXT


def test_tls_alone_trusts_what_the_system_trusts_and_checks_hosts() -> None:
    assert tls({}) == TlsSettings()
    assert read(PLAIN).tls == TlsSettings()
    assert read({**PLAIN, "security.protocol": "SASL_PLAINTEXT"}).tls is None


def test_the_protocol_is_called_as_it_was_asked_for() -> None:
    assert [read({"security.protocol": name}).protocol for name in ("PLAINTEXT", "SSL")] == [
        "PLAINTEXT",
        "SSL",
    ]
    for name in ("SASL_PLAINTEXT", "SASL_SSL"):
        assert read({**PLAIN, "security.protocol": name}).protocol == name


def test_files_are_found_below_the_folder() -> None:
    settings = tls({"ssl.truststore.location": "ca.pem", "ssl.keystore.location": "/keys/mirror.pem"})
    assert shown(settings.trusted) == "/etc/mirror/ca.pem"
    assert shown(settings.certificate) == "/keys/mirror.pem"
    assert settings.key is None
    login = credentials({**PLAIN, "sasl.password": "file:password"})
    assert isinstance(login, PlainCredentials)
    assert shown(login.password) == "/etc/mirror/password"


def test_names_of_librdkafka_are_taken_too() -> None:
    settings = tls(
        {"ssl.ca.location": "ca.pem", "ssl.certificate.location": "c.pem", "ssl.key.location": "c.key"}
    )
    assert [shown(source) for source in (settings.trusted, settings.certificate, settings.key)] == [
        "/etc/mirror/ca.pem",
        "/etc/mirror/c.pem",
        "/etc/mirror/c.key",
    ]
    renamed = {("sasl.mechanisms" if name == "sasl.mechanism" else name): PLAIN[name] for name in PLAIN}
    assert credentials(renamed) == credentials(PLAIN)


def test_hosts_are_not_checked_where_the_algorithm_is_nothing() -> None:
    assert not tls({"ssl.endpoint.identification.algorithm": ""}).checks_host
    assert tls({"ssl.endpoint.identification.algorithm": "HTTPS"}).checks_host
    assert (
        "expected https, or nothing"
        in problems({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"})[0]
    )


def test_versions_of_tls_can_be_chosen() -> None:
    assert tls({"ssl.enabled.protocols": "TLSv1.3"}).versions == ("TLSv1.3",)
    assert tls({"ssl.enabled.protocols": "TLSv1.3,TLSv1.2"}).versions == ("TLSv1.2", "TLSv1.3")
    assert problems({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}) == [
        "ssl.enabled.protocols: 'TLSv1.1' is not spoken, only TLSv1.2 and TLSv1.3"
    ]


def test_a_jaas_config_says_the_same_as_name_and_password() -> None:
    jaas = f'{MODULES}.plain.PlainLoginModule required username="mirror" password="pencil";'
    login = credentials(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    )
    assert isinstance(login, PlainCredentials)
    assert (shown(login.username), shown(login.password)) == ("mirror", "pencil")


def test_a_password_keeps_its_blanks() -> None:
    login = credentials({**PLAIN, "sasl.password": " pencil ", "sasl.mechanism": " plain "})
    assert isinstance(login, PlainCredentials)
    assert shown(login.password) == " pencil "


def test_scram_may_use_a_delegation_token() -> None:
    jaas = f'{MODULES}.scram.ScramLoginModule required username="id" password="hmac" tokenauth="true";'
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    login = credentials(options)
    assert isinstance(login, ScramCredentials)
    assert (login.mechanism, login.of_delegation_token) == (SCRAM_SHA_512, True)


def test_a_jaas_config_that_stands_elsewhere_is_read_when_a_connection_is_opened() -> None:
    login = credentials(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "plain", "sasl.jaas.config": "env:JAAS"}
    )
    assert isinstance(login, JaasCredentials)
    assert (login.mechanism, login.config.place, login.config.given) == ("PLAIN", Place.ENVIRONMENT, "JAAS")


def bearer(options: dict[str, str]) -> BearerCredentials:
    login = credentials({**BEARER, **options})
    assert isinstance(login, BearerCredentials)
    return login


def test_tokens_come_from_where_the_options_say() -> None:
    login = bearer({"sasl.oauthbearer.token": "file:token", "sasl.oauthbearer.extensions": "a=1,b=2"})
    assert isinstance(login.source, GivenToken)
    assert shown(login.source.token) == "/etc/mirror/token"
    assert login.extensions == {"a": "1", "b": "2"}
    assert bearer({"sasl.oauthbearer.token.provider": "tokens:fresh"}).source == CalledForToken(
        path="tokens:fresh"
    )
    of_file = bearer({"sasl.oauthbearer.token.endpoint.url": "file:///run/a%20token"}).source
    assert isinstance(of_file, GivenToken)
    assert shown(of_file.token) == "/run/a token"


@pytest.mark.parametrize(
    "options",
    [
        {
            "sasl.oauthbearer.client.credentials.client.id": "mirror",
            "sasl.oauthbearer.client.credentials.client.secret": "pencil",
            "sasl.oauthbearer.scope": "kafka",
        },
        {
            "sasl.oauthbearer.client.id": "mirror",
            "sasl.oauthbearer.client.secret": "pencil",
            "sasl.oauthbearer.scope": "kafka",
        },
        {
            "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'clientId="mirror" clientSecret="pencil" scope="kafka" extension_tenant="1";',
        },
    ],
    ids=["Kafka 4", "librdkafka", "JAAS"],
)
def test_tokens_come_from_an_endpoint(options: dict[str, str]) -> None:
    login = bearer({**options, "sasl.oauthbearer.token.endpoint.url": "https://login.example/token"})
    endpoint = login.source
    assert isinstance(endpoint, TokenEndpoint)
    assert (endpoint.url, endpoint.scope) == ("https://login.example/token", "kafka")
    assert (shown(endpoint.client_id), shown(endpoint.client_secret)) == ("mirror", "pencil")
    assert login.extensions == ({"tenant": "1"} if "sasl.jaas.config" in options else {})


def test_unsecured_tokens_have_the_claims_that_the_jaas_config_gives() -> None:
    prefix = "unsecuredLogin"
    jaas = (
        f'{MODULES}.oauthbearer.OAuthBearerLoginModule required {prefix}StringClaim_sub="mirror"'
        f' {prefix}NumberClaim_level="3" {prefix}ListClaim_groups=",a,b" {prefix}LifetimeSeconds="30"'
        f' {prefix}Extension_tenant="1";'
    )
    login = bearer({"sasl.jaas.config": jaas})
    claims = {"sub": "mirror", "level": 3.0, "groups": ["a", "b"]}
    assert login.source == UnsecuredToken(claims=claims, lifetime_ms=30_000)
    assert login.extensions == {"tenant": "1"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        ({"ssl.ca.location": "x"}, "ssl.ca.location: has no effect while security.protocol is PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: is missing: one of PLAIN, SCRAM-SHA-256"),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: 'GSSAPI' is not supported: one of PLAIN"),
        ({**PLAIN, "sasl.mechanisms": "PLAIN"}, "sasl.mechanisms: says the same as sasl.mechanism"),
        ({**PLAIN, "sasl.password": ""}, "sasl.password: is missing: PLAIN needs it"),
        ({**PLAIN, "sasl.pasword": "x"}, "sasl.pasword: unknown option (did you mean sasl.password?)"),
        ({**PLAIN, "ssl.truststore.type": "JKS"}, "ssl.truststore.type: expected PEM, not 'JKS': only"),
        ({**PLAIN, "ssl.keystore.type": "PKCS12"}, "expected PEM, not 'PKCS12': only PEM is read; keytool"),
        (
            {**PLAIN, "ssl.truststore.location": "a.jks"},
            "ssl.truststore.location: a.jks seems to be a store of Java",
        ),
        ({**PLAIN, "ssl.truststore.password": "x"}, "certificates in PEM have no password"),
        ({**PLAIN, "ssl.keystore.password": "x"}, "that of its key is ssl.key.password"),
        ({**PLAIN, "ssl.key.password": "x"}, "ssl.key.password: has no effect without a certificate"),
        ({**PLAIN, "ssl.certificate.location": "x"}, "ssl.key.location: is missing: the private key"),
        (
            {**PLAIN, "ssl.ca.location": "x", "ssl.truststore.certificates": "y"},
            "ssl.truststore.certificates: says the same as ssl.ca.location",
        ),
        (
            {
                **PLAIN,
                "sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required username=a password=b;",
            },
            "sasl.username: says the same as sasl.jaas.config",
        ),
        ({**PLAIN, "sasl.oauthbearer.scope": "x"}, "sasl.oauthbearer.scope: has no effect with PLAIN"),
        (BEARER, "sasl.oauthbearer.token: the token is missing: give sasl.oauthbearer.token,"),
        (
            {**BEARER, "sasl.oauthbearer.token": "a", "sasl.oauthbearer.token.provider": "b:c"},
            "the token comes from several places: sasl.oauthbearer.token, sasl.oauthbearer.token.provider",
        ),
        ({**BEARER, "sasl.oauthbearer.token.endpoint.url": "https://["}, "expected the URL of a token"),
        ({**BEARER, "sasl.oauthbearer.token.provider": "b"}, "expected MODULE:CALLABLE, not 'b'"),
        (
            {**BEARER, "sasl.oauthbearer.token": "a", "sasl.oauthbearer.scope": "x"},
            "sasl.oauthbearer.scope: has no effect without the endpoint",
        ),
        (
            {**BEARER, "sasl.oauthbearer.token.endpoint.url": "ftp://x"},
            "expected the URL of a token endpoint",
        ),
        (
            {**BEARER, "sasl.oauthbearer.token.endpoint.url": "https://x"},
            "sasl.oauthbearer.client.credentials.client.id: is missing",
        ),
        (
            {**BEARER, "sasl.oauthbearer.token": "a", "sasl.oauthbearer.extensions": "a-b=c"},
            "sasl.oauthbearer.extensions: 'a-b' is no name of an extension",
        ),
        (
            {**BEARER, "sasl.oauthbearer.token": "a", "sasl.login.callback.handler.class": "com.example.Own"},
            "com.example.Own is a class of Java",
        ),
    ],
)
def test_what_makes_no_sense_is_told_with_its_option(options: dict[str, str], problem: str) -> None:
    assert any(problem in told for told in problems(options)), problems(options)


JAAS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("jaas", "problem"),
    [
        ("", "sasl.username: is missing"),
        ("ScramLoginModule", "expected 'required'"),
        ("ScramLoginModule wanted;", "expected 'required' after the class"),
        ('ScramLoginModule required username="a" password="tell-me"', "expected ';' at the end"),
        ('ScramLoginModule required username="a" password="tell-me;', "a quote that is never closed"),
        ('ScramLoginModule required "a" "tell-me";', 'expected options as name="value"'),
        ("ScramLoginModule required username=;", "expected the value of username"),
        ("ScramLoginModule required =tell-me;", "expected the name of an option before '='"),
        ("ScramLoginModule required password=tell-me password=x;", "password is given twice"),
        ("ScramLoginModule required password=tell-me;", "the option username is missing"),
        ("ScramLoginModule required; PlainLoginModule required;", "one login module, found more"),
        ("PlainLoginModule required username=a password=tell-me;", "ScramLoginModule is"),
        ("ScramLoginModule required usrname=a password=tell-me;", "usrname (did you mean username?)"),
    ],
)
def test_a_jaas_config_that_cannot_be_read_is_told_without_what_it_holds(jaas: str, problem: str) -> None:
    told = "\n".join(problems({**JAAS, "sasl.jaas.config": jaas}))
    assert problem in told
    assert "tell-me" not in told


@given(username=st.text(min_size=1), password=st.text(min_size=1))
def test_any_name_and_password_can_be_quoted_in_a_jaas_config(username: str, password: str) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    jaas = f"ScramLoginModule required\n username={quoted(username)} password={quoted(password)};"
    login = credentials({**JAAS, "sasl.jaas.config": jaas})
    assert isinstance(login, ScramCredentials)
    expected = TextSource.parse("sasl.jaas.config", password, Path("/etc/mirror"))
    assert login.password == expected


@given(
    st.dictionaries(st.sampled_from(OPTION_NAMES), st.text() | st.sampled_from(["SASL_SSL", "OAUTHBEARER"]))
)
def test_any_options_are_read_or_refused(options: dict[str, str]) -> None:
    read_options(options)


def test_where_secrets_must_not_stand_only_references_are_taken() -> None:
    options = {
        **PLAIN,
        "ssl.certificate.location": "c.pem",
        "ssl.key.location": "c.key",
        "ssl.key.password": "pencil",
    }
    refused = read_options(options, inline_secrets=False).problems
    assert [problem.option for problem in refused] == ["sasl.password", "ssl.key.password"]
    assert all("refer to it, as file:PATH or env:NAME" in problem.message for problem in refused)
    jaas = "ScramLoginModule required username=a password=tell-me;"
    (problem,) = read_options({**JAAS, "sasl.jaas.config": jaas}, inline_secrets=False).problems
    assert problem.option == "sasl.jaas.config"
    referred = jaas.replace("tell-me", "env:SECRET")
    assert not read_options({**JAAS, "sasl.jaas.config": referred}, inline_secrets=False).problems


def test_no_secret_is_shown_and_copies_in_other_processes_are_the_same() -> None:
    for options in (
        {**PLAIN, "sasl.password": "tell-me"},
        {
            **BEARER,
            "sasl.oauthbearer.token.endpoint.url": "https://x/token",
            "sasl.oauthbearer.client.id": "mirror",
            "sasl.oauthbearer.client.secret": "tell-me",
        },
        {**JAAS, "sasl.jaas.config": 'ScramLoginModule required username=a password="tell-me";'},
        {"security.protocol": "SSL", "ssl.keystore.certificate.chain": "x", "ssl.keystore.key": "tell-me"},
    ):
        security = read(options)
        assert "tell-me" not in repr(security)
        assert pickle.loads(pickle.dumps(security)) == security
