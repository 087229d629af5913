"""Security by the options of Kafka's clients: `security.protocol`, `ssl.*`, `sasl.*`, every problem at once.

Names are those of Java's clients; where only librdkafka has a name for something, that is one too. Values
that may be secret can be references (`text_source`). An option that would have no effect is a problem: most
often another one is missing. Pure: no file is opened before a connection is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.client.sasl.oauthbearer import OAUTHBEARER
from broker.client.sasl.plain import PLAIN
from broker.client.sasl.scram_keys import SCRAM_MECHANISMS
from broker.client.security.given_options import (
    OPTION_NAMES,
    SASL_OPTIONS,
    TLS_OPTIONS,
    GivenOptions,
    OptionProblem,
)
from broker.client.security.login_options import read_login
from broker.client.security.settings import TLS_VERSIONS, Credentials, TlsSettings
from broker.client.security.text_source import TextSource

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """What the options say, as far as they make sense."""

    tls: TlsSettings | None
    credentials: Credentials | None
    problems: tuple[OptionProblem, ...]


def read_options(
    options: Mapping[str, str], *, folder: Path | None = None, inline_secrets: bool = True
) -> SecurityOptions:
    """Read the options; relative paths are below `folder`. Without `inline_secrets` only references may stand
    where secrets belong.
    """
    given = GivenOptions(options, folder=folder, inline_secrets=inline_secrets)
    given.refuse(set(options) - set(OPTION_NAMES), "unknown option")
    given.check_secrets()
    protocol = given.choice("security.protocol", PROTOCOLS, "PLAINTEXT")
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    tls = _read_tls(given) if has_tls else None
    credentials = _read_credentials(given) if has_sasl else None
    no_effect = f"has no effect while security.protocol is {protocol}"
    for names, is_used in ((TLS_OPTIONS, has_tls), (SASL_OPTIONS, has_sasl)):
        if not is_used and not given.has_problem("security.protocol"):
            given.refuse((name for name in names if name in options), no_effect)
    return SecurityOptions(tls=tls, credentials=credentials, problems=tuple(given.problems))


def _read_tls(given: GivenOptions) -> TlsSettings:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        given.require_pem(name)
    trusted = _only_one(
        given, ("ssl.truststore.location", "ssl.ca.location"), ("ssl.truststore.certificates",)
    )
    certificate = _only_one(
        given,
        ("ssl.keystore.location", "ssl.certificate.location"),
        ("ssl.keystore.certificate.chain",),
    )
    key = _only_one(given, ("ssl.key.location",), ("ssl.keystore.key",))
    _check_key(given, certificate, key)
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.lower() != "https":
        given.report(
            "ssl.endpoint.identification.algorithm",
            f"expected https, or nothing so that hosts are not checked, not {algorithm!r}",
        )
    return TlsSettings(
        trusted=trusted,
        certificate=certificate,
        key=key,
        key_password=given.text("ssl.key.password"),
        checks_host=not given.is_empty("ssl.endpoint.identification.algorithm"),
        versions=_read_versions(given),
    )


def _only_one(given: GivenOptions, files: tuple[str, ...], texts: tuple[str, ...]) -> TextSource | None:
    file, text = given.file(*files), given.text(*texts)
    if file is not None and text is not None:
        given.report(text.option, f"says the same as {file.option}: give one of them")
    return file or text


def _check_key(given: GivenOptions, certificate: TextSource | None, key: TextSource | None) -> None:
    if certificate is None:
        for name in ("ssl.key.location", "ssl.keystore.key", "ssl.key.password"):
            if given.get(name):
                given.report(name, "has no effect without a certificate: ssl.keystore.location")
    elif key is None and certificate.option in ("ssl.certificate.location", "ssl.keystore.certificate.chain"):
        other = "ssl.key.location" if certificate.option == "ssl.certificate.location" else "ssl.keystore.key"
        given.report(other, f"is missing: the private key that belongs to {certificate.option}")


def _read_versions(given: GivenOptions) -> tuple[str, ...]:
    text = given.get("ssl.enabled.protocols")
    if text is None:
        return TLS_VERSIONS
    names = {part.strip() for part in text.split(",") if part.strip()}
    if strange := sorted(names - set(TLS_VERSIONS)):
        expected = " and ".join(TLS_VERSIONS)
        given.report("ssl.enabled.protocols", f"{strange[0]!r} is not spoken, only {expected}")
    return tuple(version for version in TLS_VERSIONS if version in names) or TLS_VERSIONS


def _read_credentials(given: GivenOptions) -> Credentials | None:
    names = ("sasl.mechanism", "sasl.mechanisms")
    mechanism, name = given.get(*names), given.name_of(*names)
    if mechanism is None:
        given.report(name, f"is missing: one of {', '.join(MECHANISMS)}")
        return None
    if mechanism.upper() not in MECHANISMS:
        given.report(name, f"{mechanism!r} is not supported: one of {', '.join(MECHANISMS)}")
        return None
    return read_login(given, mechanism.upper())
