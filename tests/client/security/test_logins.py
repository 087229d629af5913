"""Credentials become exchanges: secrets are read from where they stand, tokens obtained."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from broker.client.security.connection_security import ConnectionSecurity
from broker.client.security.logins import begin_login, mechanism_of
from broker.client.security.settings import Credentials
from broker.clock import SystemClock
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, ConnectionFailedError
from tests.certificates import Authority

JAAS = 'ScramLoginModule required username="env:NAME" password="pencil";'


class SetClock:
    """Stands still but for `pass_ms`."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


class Provider:
    """A token endpoint on a port of its own; `answer` says what it says."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        """Who asked (the header Authorization), and for what."""
        self.answer: Callable[[], tuple[int, object]] = lambda: (
            200,
            {"access_token": f"token-{len(self.requests)}", "expires_in": 100},
        )
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.requests.append((self.headers["Authorization"], body))
                status, document = provider.answer()
                content = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    thread = threading.Thread(target=provider.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield provider
    provider.server.shutdown()
    provider.server.server_close()
    thread.join()


def credentials(mechanism: str, **options: str) -> Credentials:
    given = {name.replace("_", "."): value for name, value in options.items()}
    security = ConnectionSecurity.from_options(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **given}
    )
    assert security.credentials is not None
    return security.credentials


def endpoint(url: str, **options: str) -> Credentials:
    return credentials(
        "OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_id="mirror",
        sasl_oauthbearer_client_secret="tell-me",
        **options,
    )


def first(login: Credentials, clock: SetClock | None = None) -> bytes:
    return begin_login(login, clock or SetClock()).first()


def token(login: Credentials, clock: SetClock | None = None) -> str:
    return first(login, clock).decode().removeprefix("n,,\x01auth=Bearer ").rstrip("\x01")


def refusal(login: Credentials) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        begin_login(login, SystemClock())
    assert "tell-me" not in str(caught.value)
    return caught.value


def test_secrets_are_read_from_files_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pencil\r\n")
    monkeypatch.setenv("NAME", "mirror")
    login = credentials("PLAIN", sasl_username="env:NAME", sasl_password=f"file:{secret}")
    assert first(login) == b"\0mirror\0pencil"


def test_what_holds_no_name_or_password_for_plain_is_told_with_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    monkeypatch.setenv("NAME", "")
    login = credentials("PLAIN", sasl_username="mirror", sasl_password=f"file:{empty}")
    assert str(refusal(login)) == f"sasl.password: {empty} is empty"
    login = credentials("PLAIN", sasl_username="env:NAME", sasl_password="pencil")
    assert str(refusal(login)) == "sasl.username: the variable NAME of the environment is empty"


def test_references_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    missing, binary, large = tmp_path / "missing", tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff")
    large.write_bytes(bytes((1 << 20) + 1))
    for reference, problem in (
        ("env:NO_SUCH_NAME", "sasl.password: the environment has no variable NO_SUCH_NAME"),
        (f"file:{missing}", f"sasl.password: {missing} cannot be read: No such file or directory"),
        (f"file:{binary}", f"sasl.password: {binary} is not text in UTF-8"),
        (f"file:{large}", f"sasl.password: {large} is larger than 1048576 bytes"),
    ):
        error = refusal(credentials("PLAIN", sasl_username="mirror", sasl_password=reference))
        assert isinstance(error, ConfigurationError)
        assert error.problems == [problem]


def test_a_jaas_config_in_the_environment_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    login = credentials("SCRAM-SHA-256", sasl_jaas_config="env:JAAS")
    assert mechanism_of(login) == "SCRAM-SHA-256"
    monkeypatch.setenv("JAAS", JAAS)
    monkeypatch.setenv("NAME", "mirror")
    assert first(login).startswith(b"n,,n=mirror,r=")
    monkeypatch.setenv("JAAS", JAAS.replace("username", "usrname"))
    error = refusal(login)
    assert "sasl.jaas.config: env:JAAS: unknown option usrname (did you mean username?)" in str(error)


def test_nonces_are_never_the_same() -> None:
    login = credentials("SCRAM-SHA-512", sasl_username="mirror", sasl_password="pencil")
    assert first(login) != first(login)


def test_unsecured_tokens_are_made_for_the_moment() -> None:
    jaas = 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="mirror";'
    claims = token(credentials("OAUTHBEARER", sasl_jaas_config=jaas)).split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == {
        "iat": 1000.0,
        "exp": 4600.0,
        "sub": "mirror",
    }


def test_a_token_in_a_file_may_change(tmp_path: Path) -> None:
    file = tmp_path / "token"
    login = credentials("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=file.as_uri())
    for content in ("one\n", "two"):
        file.write_text(content)
        assert token(login) == content.strip()


def test_a_token_may_come_from_a_function_of_ones_own() -> None:
    assert token(credentials("OAUTHBEARER", sasl_oauthbearer_token_provider="platform:system")) == "Linux"
    for path, problem in (
        ("no_such_module:token", "no_such_module:token cannot be found: No module named 'no_such_module'"),
        ("platform:no_such_name", "platform:no_such_name cannot be found"),
        ("sys:maxsize", "sys:maxsize is nothing that can be called"),
        ("time:time", "time:time returned float, not a token"),
    ):
        error = refusal(credentials("OAUTHBEARER", sasl_oauthbearer_token_provider=path))
        assert isinstance(error, ConfigurationError)
        assert problem in str(error)
    error = refusal(credentials("OAUTHBEARER", sasl_oauthbearer_token_provider="decimal:Decimal.from_float"))
    assert isinstance(error, ConnectionFailedError)
    assert "decimal:Decimal.from_float obtained no token: TypeError" in str(error)


def test_an_endpoint_grants_a_token_for_the_clients_credentials(provider: Provider) -> None:
    login = endpoint(provider.url, sasl_oauthbearer_scope="kafka")
    assert token(login) == "token-1"
    basic = "Basic " + base64.b64encode(b"mirror:tell-me").decode()
    assert provider.requests == [(basic, "grant_type=client_credentials&scope=kafka")]


def test_a_token_serves_until_four_fifths_of_its_life_are_over(provider: Provider) -> None:
    clock, login = SetClock(), endpoint(provider.url)
    assert [token(login, clock), token(login, clock)] == ["token-1", "token-1"]
    clock.at_ms += 79_999
    assert token(login, clock) == "token-1"
    clock.at_ms += 1
    assert token(login, clock) == "token-2"


def test_an_old_token_serves_while_the_endpoint_is_away_until_it_expires(provider: Provider) -> None:
    clock, login = SetClock(), endpoint(provider.url)
    assert token(login, clock) == "token-1"
    provider.answer = lambda: (503, b"")
    clock.at_ms += 99_999
    assert token(login, clock) == "token-1"
    clock.at_ms += 1
    with pytest.raises(ConnectionFailedError, match="no token: status 503"):
        token(login, clock)


def test_a_token_without_a_lifetime_is_asked_for_every_time(provider: Provider) -> None:
    provider.answer = lambda: (200, {"access_token": f"token-{len(provider.requests)}"})
    clock, login = SetClock(), endpoint(provider.url)
    assert [token(login, clock), token(login, clock)] == ["token-1", "token-2"]


def test_tokens_for_a_jaas_config_that_stands_elsewhere_are_kept_too(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAAS", "OAuthBearerLoginModule required clientId=mirror clientSecret=tell-me;")
    login = credentials(
        "OAUTHBEARER", sasl_jaas_config="env:JAAS", sasl_oauthbearer_token_endpoint_url=provider.url
    )
    assert [token(login), token(login)] == ["token-1", "token-1"]


@pytest.mark.parametrize(
    ("status", "document", "kind", "problem"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": "who is that?"},
            AuthenticationError,
            "no token: status 401, invalid_client who is that?",
        ),
        (400, b"<html>", AuthenticationError, "no token: status 400"),
        (429, {}, ConnectionFailedError, "no token: status 429"),
        (302, {}, ConnectionFailedError, "no token: status 302"),
        (500, [], ConnectionFailedError, "no token: status 500"),
        (200, b"<html>", ConnectionFailedError, "the answer is no JSON object"),
        (200, [], ConnectionFailedError, "the answer is no JSON object"),
        (200, {"access_token": 1}, ConnectionFailedError, "the answer holds no access_token"),
    ],
)
def test_an_endpoint_that_grants_nothing_is_told_of(
    provider: Provider, status: int, document: object, kind: type[BrokerError], problem: str
) -> None:
    provider.answer = lambda: (status, document)
    error = refusal(endpoint(provider.url))
    assert type(error) is kind
    assert f"{provider.url}: {problem}" in str(error)
    assert len(provider.requests) == 1, "credentials go nowhere else"


def test_an_endpoint_that_is_not_there_is_told_of(provider: Provider) -> None:
    url = provider.url.replace(str(provider.server.server_port), "1")
    error = refusal(endpoint(url))
    assert isinstance(error, ConnectionFailedError)
    assert "Connection refused" in str(error)


def test_an_endpoint_whose_certificate_is_not_trusted_gets_no_credentials(
    provider: Provider, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    context = authority.issue("login").server_context()
    provider.server.socket = context.wrap_socket(provider.server.socket, server_side=True)
    url = provider.url.replace("http:", "https:")
    error = refusal(endpoint(url))
    assert isinstance(error, AuthenticationError)
    assert "its certificate is refused: unable to get local issuer certificate" in str(error)
    assert token(endpoint(url, https_ca_location=str(authority.certificate))) == "token-1"
