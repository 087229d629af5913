"""The options of one connection as they were given, and what turns out to be wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from broker.client.security.text_source import Place, TextSource
from broker.settings import suggestion

TLS_OPTIONS = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.ca.location",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
)
SASL_OPTIONS = (
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.token",
    "sasl.oauthbearer.token.provider",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.login.callback.handler.class",
    "https.ca.location",
)
OPTION_NAMES = ("security.protocol", *TLS_OPTIONS, *SASL_OPTIONS)
_SECRETS = frozenset(
    {
        "sasl.password",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.keystore.key",
    }
)
TRUSTED_TO_PEM = "only PEM is read; keytool -list -rfc -keystore STORE > ca.pem converts a store of Java"
IDENTITY_TO_PEM = (
    "only PEM is read; keytool -importkeystore -srckeystore STORE -destkeystore client.p12 -deststoretype "
    "PKCS12, then openssl pkcs12 -in client.p12 -out client.pem convert a store of Java"
)
_TO_PEM = {
    "ssl.truststore.location": TRUSTED_TO_PEM,
    "ssl.truststore.type": TRUSTED_TO_PEM,
    "ssl.ca.location": TRUSTED_TO_PEM,
}
"""How to convert what an option names, where it is not the identity of the client."""
STORE_PASSWORDS: Mapping[str, str] = {
    "ssl.truststore.password": f"certificates in PEM have no password, leave this out: {TRUSTED_TO_PEM}",
    "ssl.keystore.password": "a PEM file has no password of its own, that of its key is ssl.key.password: "
    f"{IDENTITY_TO_PEM}",
}
"""Options of Java's clients that there is no use for, and why."""
_SUFFIXES_OF_JAVA = (".jks", ".p12", ".pfx")


class OptionProblem(NamedTuple):
    """What is wrong with one option, or with the lack of it."""

    option: str
    message: str


class GivenOptions:
    """The options of one connection, read one after the other; what is wrong with them is collected."""

    def __init__(self, options: Mapping[str, str], *, folder: Path | None, inline_secrets: bool) -> None:
        self.problems: list[OptionProblem] = []
        self.inline_secrets = inline_secrets
        self._options = dict(options)
        self._folder = folder

    def report(self, option: str, message: str) -> None:
        self.problems.append(OptionProblem(option, message))

    def has_problem(self, option: str) -> bool:
        return any(problem.option == option for problem in self.problems)

    def refuse(self, names: Iterable[str], message: str) -> None:
        """Report every one of the options, with its like among those that exist."""
        for name in sorted(names):
            if name in STORE_PASSWORDS:
                self.report(name, STORE_PASSWORDS[name])
            else:
                hint = "" if name in OPTION_NAMES else suggestion(name, OPTION_NAMES)
                self.report(name, f"{message}{hint}")

    def get(self, *names: str) -> str | None:
        """The value of the first of these names that is given; two of them at once are a problem."""
        found = list(self.some(names))
        for name in found[1:]:
            self.report(name, f"says the same as {found[0]}: give one of them")
        return self._options[found[0]].strip() if found else None

    def name_of(self, *names: str) -> str:
        """Under which of these names the option is given; the first if it is not."""
        return next(iter(self.some(names)), names[0])

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self._options.get(name, default).strip().upper()
        if value in choices:
            return value
        self.report(name, f"expected one of {', '.join(choices)}, not {value!r}")
        return default

    def require_pem(self, name: str) -> None:
        """Report a type of store, as `name` gives it, that is not read."""
        value = self._options.get(name, "PEM").strip().upper()
        if value != "PEM":
            self.report(name, f"expected PEM, not {value!r}: {_TO_PEM.get(name, IDENTITY_TO_PEM)}")

    def some(self, names: Iterable[str]) -> dict[str, str]:
        """Those of the options that are given."""
        return {name: self._options[name] for name in names if self._options.get(name, "").strip()}

    def is_empty(self, name: str) -> bool:
        """Whether the option is given as nothing."""
        return name in self._options and not self._options[name].strip()

    def text(self, *names: str) -> TextSource | None:
        """A text given as it is or by reference."""
        if self.get(*names) is None:
            return None
        name = self.name_of(*names)
        return TextSource.parse(name, self._options[name], self._folder)

    def source(self, name: str, value: str, *, secret: bool) -> TextSource:
        """Where the text `value` stands that the option `name` gives."""
        source = TextSource.parse(name, value, self._folder)
        if secret and source.place is Place.INLINE and not self.inline_secrets:
            self.report(name, "a secret must not stand here: refer to it, as file:PATH or env:NAME")
        return source

    def check_secrets(self) -> None:
        """Report secrets that stand among the options as they are, whatever else is wrong with these."""
        for name, value in self.some(sorted(_SECRETS)).items():
            self.source(name, value, secret=True)

    def file(self, *names: str) -> TextSource | None:
        """The text of a file whose path the option is."""
        value = self.get(*names)
        if value is None:
            return None
        name = self.name_of(*names)
        if value.lower().endswith(_SUFFIXES_OF_JAVA):
            how = _TO_PEM.get(name, IDENTITY_TO_PEM)
            self.report(name, f"{value} seems to be a store of Java: {how}")
        return TextSource.of_file(name, Path(value), self._folder)
