"""`security` of a cluster out of what MirrorMaker 2 was told: without a secret in it, and without stores that
only Java reads. Pure.

What is secret is referred to as an environment variable, and a note says which one is to hold it. Neither is
ever shown, but for references such as `${env:NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from broker.client.sasl.plain import PLAIN
from broker.client.sasl.scram_keys import SCRAM_MECHANISMS
from broker.client.security.given_options import (
    IDENTITY_TO_PEM,
    OPTION_NAMES,
    SASL_OPTIONS,
    TLS_OPTIONS,
    TRUSTED_TO_PEM,
)
from broker.client.security.jaas import JaasEntry, parse_jaas
from broker.client.security.options import read_options
from broker.client.security.settings import TLS_VERSIONS
from broker.config_file import Entry
from mirrormaker.importing.mirrors import UNFILLED, VARIABLE
from mirrormaker.importing.remarks import Remarks

_PROTOCOL, _JAAS, _MECHANISM = "security.protocol", "sasl.jaas.config", "sasl.mechanism"
_USERNAME, _PASSWORD, _KEY_PASSWORD = "sasl.username", "sasl.password", "ssl.key.password"
_SECRETS = (
    _PASSWORD,
    "sasl.oauthbearer.token",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
    _KEY_PASSWORD,
    "ssl.keystore.key",
)
_NAMES = (_USERNAME, "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
"""What else may be referred to."""
_STORES = {"ssl.truststore": TRUSTED_TO_PEM, "ssl.keystore": IDENTITY_TO_PEM}
_OF_ENVIRONMENT = re.compile(r"\$\{env:(?:[^:}]*:)?([A-Za-z_]\w*)\}")


@dataclass(slots=True)
class Variables:
    """Names of the environment variables that are to hold secrets: of two that would be alike the second has
    a number.
    """

    _taken: dict[str, tuple[str, str]] = field(default_factory=dict)

    def name(self, cluster: str, option: str) -> str:
        """The variable for what `option` of the cluster is."""
        stem = re.sub(r"\W", "_", f"{cluster}_{option}", flags=re.ASCII).upper()
        stem = f"_{stem}" if stem[0].isdigit() else stem
        name, number = stem, 1
        while self._taken.setdefault(name, (cluster, option)) != (cluster, option):
            number += 1
            name = f"{stem}_{number}"
        return name


def read_security(
    cluster: str, entries: Mapping[str, Entry], variables: Variables, remarks: Remarks
) -> dict[str, str]:
    """`security` of the cluster, by the options that it is reached with."""
    return _Security(cluster, entries, variables, remarks).read()


class _Security:
    def __init__(
        self, cluster: str, entries: Mapping[str, Entry], variables: Variables, remarks: Remarks
    ) -> None:
        self._cluster = cluster
        self._entries = entries
        self._variables = variables
        self._remarks = remarks
        self._options: dict[str, str] = {}
        self._is_whole = True

    def read(self) -> dict[str, str]:
        protocol = self._entries[_PROTOCOL].text.upper() if _PROTOCOL in self._entries else "PLAINTEXT"
        used = (_PROTOCOL, *(TLS_OPTIONS if protocol.endswith("SSL") else ()))
        used += SASL_OPTIONS if protocol.startswith("SASL") else ()
        for name, entry in self._entries.items():
            if name in used:
                self._add(name, entry)
            elif name in OPTION_NAMES:
                self._remarks.note(entry, f"left out: has no effect while {_PROTOCOL} is {protocol}")
        if protocol.endswith("SSL"):
            self._convert_stores()
        if self._is_whole:
            self._check()
        return self._options

    def _add(self, name: str, entry: Entry) -> None:
        self._remarks.use(entry)
        if name in _SECRETS:
            if entry.text:
                self._refer(name, entry, entry.text, "the secret")
        elif name == _JAAS:
            self._add_login(entry)
        elif name == "ssl.enabled.protocols":
            self._add_versions(entry)
        elif VARIABLE in entry.text and name in _NAMES:
            self._refer(name, entry, entry.text, "the name")
        elif VARIABLE in entry.text:
            self._report(entry, UNFILLED)
        elif entry.text or name == "ssl.endpoint.identification.algorithm":
            self._options[name] = entry.text

    def _refer(self, option: str, entry: Entry, text: str, what: str) -> None:
        """Say where the text will stand, in place of the text."""
        if found := _OF_ENVIRONMENT.fullmatch(text):
            self._options[option] = f"env:{found[1]}"
            return
        name = self._variables.name(self._cluster, option)
        self._options[option] = f"env:{name}"
        where = f", which stands there as {text}" if re.fullmatch(r"\$\{[^}]*\}", text) else ""
        self._remarks.note(
            entry, f"not written down: the environment variable {name} is to hold {what}{where}"
        )

    def _add_login(self, entry: Entry) -> None:
        """User and password where that is all there is to say, and else the configuration as a whole."""
        mechanism = self._entries[_MECHANISM].text.upper() if _MECHANISM in self._entries else ""
        login = self._login(entry)
        if login is None:
            return
        if mechanism not in (PLAIN, *SCRAM_MECHANISMS) or login.options.keys() != {"username", "password"}:
            self._refer(_JAAS, entry, entry.text, "the whole of it")
            return
        username = login.options["username"]
        if VARIABLE in username:
            self._refer(_USERNAME, entry, username, "the user's name")
        else:
            self._options[_USERNAME] = username
        self._refer(_PASSWORD, entry, login.options["password"], "the password")

    def _login(self, entry: Entry) -> JaasEntry | None:
        if re.fullmatch(r"\$\{[^}]*\}", entry.text):
            return JaasEntry(module="", options={})
        try:
            return parse_jaas(entry.text)
        except ValueError as error:
            self._report(entry, str(error))
            return None

    def _add_versions(self, entry: Entry) -> None:
        given = [part.strip() for part in entry.text.split(",") if part.strip()]
        known = [version for version in given if version in TLS_VERSIONS]
        if known != given:
            self._remarks.note(entry, f"{', '.join(TLS_VERSIONS)} are spoken, and no others")
        if known:
            self._options["ssl.enabled.protocols"] = ",".join(known)

    def _convert_stores(self) -> None:
        """Stores of Java are to become files in PEM beside them."""
        for store, how in _STORES.items():
            kind, password = self._options.pop(f"{store}.type", "JKS"), self._entries.get(f"{store}.password")
            if password is not None:
                self._remarks.use(password)
            place = self._entries.get(f"{store}.location")
            path = self._options.get(f"{store}.location", "")
            if place is None or not path or kind.upper() == "PEM":
                continue
            if not PurePath(path).name:
                self._report(place, "expected the path of a file")
                continue
            converted = str(PurePath(path).with_suffix(".pem"))
            self._options[f"{store}.location"] = converted
            self._remarks.note(place, f"{converted} is to hold it: {how}")
            if store == "ssl.keystore" and _KEY_PASSWORD not in self._options and password is not None:
                self._refer(_KEY_PASSWORD, password, password.text, f"the password of the key in {converted}")

    def _report(self, entry: Entry, message: str) -> None:
        self._is_whole = False
        self._remarks.report(entry, message)

    def _check(self) -> None:
        """What is wrong with all of it together, each where it is said, or else where the protocol is."""
        for option, message in read_options(self._options, inline_secrets=False).problems:
            entry = self._entries.get(option) or self._entries.get(_PROTOCOL)
            if entry is not None:
                told = message if entry.name.endswith(option) else f"{option} {message}"
                self._remarks.report(entry, told)
