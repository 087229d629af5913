"""Who a client is to be, by the options `sasl.*` and by `sasl.jaas.config`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from broker.client.sasl.oauthbearer import OAUTHBEARER, extension_problem
from broker.client.sasl.plain import PLAIN
from broker.client.sasl.scram_keys import SCRAM_MECHANISMS
from broker.client.sasl.unsecured_token import ClaimValue
from broker.client.security.given_options import GivenOptions
from broker.client.security.jaas import parse_jaas
from broker.client.security.settings import (
    UNSECURED_LIFETIME_S,
    BearerCredentials,
    CalledForToken,
    Credentials,
    DirectCredentials,
    GivenToken,
    JaasCredentials,
    PlainCredentials,
    ScramCredentials,
    TokenEndpoint,
    TokenSource,
    UnsecuredToken,
)
from broker.client.security.text_source import Place, TextSource
from broker.settings import suggestion

_JAAS = "sasl.jaas.config"
_URL = "sasl.oauthbearer.token.endpoint.url"
_TOKEN = "sasl.oauthbearer.token"
_PROVIDER = "sasl.oauthbearer.token.provider"
_HANDLER = "sasl.login.callback.handler.class"
_SCOPE = "sasl.oauthbearer.scope"
_EXTENSIONS = "sasl.oauthbearer.extensions"
_CLIENT_ID = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_CLIENT_SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
_ENDPOINT_ONLY = (*_CLIENT_ID, *_CLIENT_SECRET, _SCOPE, "https.ca.location")
_BEARER_ONLY = (_URL, _TOKEN, _PROVIDER, _HANDLER, _EXTENSIONS, *_ENDPOINT_ONLY)

_MODULES = {PLAIN: "PlainLoginModule", OAUTHBEARER: "OAuthBearerLoginModule"}
_SCRAM_MODULE = "ScramLoginModule"
_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
"""Classes of Kafka whose work is done here."""
_JAAS_SECRETS = ("password", "clientSecret")
_JAAS_OPTIONS = {
    "PlainLoginModule": ("username", "password"),
    _SCRAM_MODULE: ("username", "password", "tokenauth"),
    "OAuthBearerLoginModule": ("clientId", "clientSecret", "scope", "unsecuredLoginLifetimeSeconds"),
}
_EXTENSION = "extension_"
_EXTENSION_OF_UNSECURED = "unsecuredLoginExtension_"
_STRING_CLAIM = "unsecuredLoginStringClaim_"
_NUMBER_CLAIM = "unsecuredLoginNumberClaim_"
_LIST_CLAIM = "unsecuredLoginListClaim_"
_BEARER_PREFIXES = (_EXTENSION, _EXTENSION_OF_UNSECURED, _STRING_CLAIM, _NUMBER_CLAIM, _LIST_CLAIM)


def read_login(given: GivenOptions, mechanism: str) -> Credentials | None:
    """Credentials for `mechanism`; None when the options do not make any, which is reported."""
    if mechanism != OAUTHBEARER:
        for name in _BEARER_ONLY:
            if given.get(name):
                given.report(name, f"has no effect with {mechanism}")
    jaas = given.text(_JAAS)
    if jaas is None:
        return _Login(given, mechanism, {}).read()
    for name in ("sasl.username", "sasl.password"):
        if given.get(name):
            given.report(name, f"says the same as {_JAAS}: give one of them")
    if jaas.place is not Place.INLINE:
        return JaasCredentials(mechanism=mechanism, config=jaas, others=given.some(_BEARER_ONLY))
    return read_jaas(given, mechanism, jaas.given)


def read_jaas(given: GivenOptions, mechanism: str, config: str) -> DirectCredentials | None:
    """Credentials out of the text of `sasl.jaas.config`, with the options beside it."""
    try:
        entry = parse_jaas(config)
    except ValueError as error:
        given.report(_JAAS, str(error))
        return None
    module = _MODULES.get(mechanism, _SCRAM_MODULE)
    if entry.module_name != module:
        given.report(_JAAS, f"{entry.module_name} is not the login module for {mechanism}: {module} is")
        return None
    known = _JAAS_OPTIONS[module]
    for name in entry.options:
        by_prefix = mechanism == OAUTHBEARER and name.startswith(_BEARER_PREFIXES)
        if name not in known and not by_prefix:
            given.report(_JAAS, f"unknown option {name}{suggestion(name, known)}")
    return _Login(given, mechanism, entry.options).read()


class _Login:
    """Reads credentials; `jaas` are the options of the login module, if there is one."""

    def __init__(self, given: GivenOptions, mechanism: str, jaas: Mapping[str, str]) -> None:
        self._given = given
        self._mechanism = mechanism
        self._jaas = jaas

    def read(self) -> DirectCredentials | None:
        if self._mechanism == OAUTHBEARER:
            return self._bearer()
        username = self._required("username", "sasl.username")
        password = self._required("password", "sasl.password")
        if username is None or password is None:
            return None
        if self._mechanism == PLAIN:
            return PlainCredentials(username=username, password=password)
        return ScramCredentials(
            mechanism=SCRAM_MECHANISMS[self._mechanism],
            username=username,
            password=password,
            of_delegation_token=self._jaas.get("tokenauth", "false").lower() == "true",
        )

    def _text(self, in_jaas: str, *names: str) -> TextSource | None:
        value = self._jaas.get(in_jaas)
        if value:
            return self._given.source(_JAAS, value, secret=in_jaas in _JAAS_SECRETS)
        return self._given.text(*names)

    def _required(self, in_jaas: str, *names: str) -> TextSource | None:
        source = self._text(in_jaas, *names)
        if source is None:
            if self._jaas:
                self._given.report(_JAAS, f"the option {in_jaas} is missing")
            else:
                self._given.report(names[0], f"is missing: {self._mechanism} needs it")
        return source

    # OAUTHBEARER

    def _bearer(self) -> BearerCredentials | None:
        self._check_handler()
        source = self._token_source()
        extensions = self._extensions()
        return None if source is None else BearerCredentials(source=source, extensions=extensions)

    def _token_source(self) -> TokenSource | None:
        given = self._given
        found = [name for name in (_TOKEN, _PROVIDER, _URL) if given.get(name)]
        claims = self._claims()
        if claims:
            found.append(_JAAS)
        if len(found) != 1:
            what = f"{_TOKEN}, {_PROVIDER} or {_URL}"
            problem = (
                f"comes from several places: {', '.join(found)}" if found else f"is missing: give {what}"
            )
            given.report((*found, _TOKEN)[0], f"the token {problem}")
            return None
        url = _split(given.get(_URL) or "")
        if url.scheme not in ("http", "https"):
            for name in _ENDPOINT_ONLY:
                if given.get(name):
                    given.report(name, f"has no effect without the endpoint of {_URL}")
        if claims:
            return UnsecuredToken(claims=claims, lifetime_ms=self._lifetime_ms())
        if token := given.text(_TOKEN):
            return GivenToken(token=token)
        if provider := given.get(_PROVIDER):
            return self._provider(provider)
        return self._of_url(url)

    def _provider(self, path: str) -> CalledForToken | None:
        module, separator, name = path.partition(":")
        if not (separator and module and name):
            self._given.report(_PROVIDER, f"expected MODULE:CALLABLE, not {path!r}")
            return None
        return CalledForToken(path=path)

    def _of_url(self, url: SplitResult) -> TokenSource | None:
        if url.scheme == "file" and url.path:
            return GivenToken(token=TextSource.of_file(_URL, Path(unquote(url.path))))
        if url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
            self._given.report(_URL, "expected the URL of a token endpoint, https://..., or file:///...")
            return None
        client_id = self._required("clientId", *_CLIENT_ID)
        client_secret = self._required("clientSecret", *_CLIENT_SECRET)
        if client_id is None or client_secret is None:
            return None
        return TokenEndpoint(
            url=url.geturl(),
            client_id=client_id,
            client_secret=client_secret,
            scope=self._jaas.get("scope") or self._given.get(_SCOPE),
            trusted=self._given.file("https.ca.location"),
        )

    def _claims(self) -> dict[str, ClaimValue]:
        claims: dict[str, ClaimValue] = {}
        for name, value in self._jaas.items():
            if name.startswith(_STRING_CLAIM):
                claims[name.removeprefix(_STRING_CLAIM)] = value
            elif name.startswith(_NUMBER_CLAIM):
                claims[name.removeprefix(_NUMBER_CLAIM)] = self._number(name, value)
            elif name.startswith(_LIST_CLAIM):  # its first character parts the items
                claims[name.removeprefix(_LIST_CLAIM)] = value[1:].split(value[0]) if value else []
        return claims

    def _lifetime_ms(self) -> int:
        name = "unsecuredLoginLifetimeSeconds"
        seconds = self._jaas.get(name)
        return int((UNSECURED_LIFETIME_S if seconds is None else self._number(name, seconds)) * 1000)

    def _number(self, name: str, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            self._given.report(_JAAS, f"the value of {name} is no number")
            return 0.0

    def _extensions(self) -> dict[str, str]:
        extensions: dict[str, str] = {}
        for part in (self._given.get(_EXTENSIONS) or "").split(","):
            if part.strip():
                name, _, value = part.strip().partition("=")
                extensions[name] = value
        for name, value in self._jaas.items():
            for prefix in (_EXTENSION, _EXTENSION_OF_UNSECURED):
                if name.startswith(prefix):
                    extensions[name.removeprefix(prefix)] = value
        for name, value in extensions.items():
            if problem := extension_problem(name, value):
                self._given.report(_JAAS if self._jaas else _EXTENSIONS, problem)
        return extensions

    def _check_handler(self) -> None:
        handler = self._given.get(_HANDLER)
        if handler is not None and handler.rpartition(".")[2] not in _HANDLERS:
            problem = f"{handler} is a class of Java: name a callable of Python in {_PROVIDER}"
            self._given.report(_HANDLER, problem)


def _split(url: str) -> SplitResult:
    """The parts of a URL, none of what is no URL at all."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
