"""What `--command-config` says: how a command's connections are secured, and what else a client may set.

The file is one of Kafka's clients, in YAML or as Java's properties, under their names. Relative paths in it
are below its folder.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from broker.client.connection import ConnectionSettings
from broker.client.security.connection_security import ConnectionSecurity
from broker.client.security.given_options import OPTION_NAMES
from broker.client.security.options import read_options
from broker.config_file import Entry, read_file
from broker.errors import ConfigurationError
from broker.settings import Kind, integer, string, suggestion

_SECURITY_PREFIXES = ("security.", "ssl.", "sasl.", "https.")
_CLIENT_ID = "client.id"
_REQUEST_TIMEOUT = "request.timeout.ms"
_KINDS: dict[str, tuple[str, Kind[Any]]] = {
    _CLIENT_ID: ("client_id", string()),
    _REQUEST_TIMEOUT: ("request_timeout_ms", integer(1)),
}


def read_command_settings(file: Path, defaults: ConnectionSettings) -> ConnectionSettings:
    """The settings of a command's connections: `defaults`, with what the file says in their place.

    Raises ConfigurationError with every problem, each with file and line.
    """
    problems: list[str] = []
    entries = {entry.name: entry for entry in read_file(file, problems)}
    if problems and not entries:
        raise ConfigurationError(problems)
    security = {name: entry.text for name, entry in entries.items() if name.startswith(_SECURITY_PREFIXES)}
    read = read_options(security, folder=file.parent)
    for problem in read.problems:
        place = entries[problem.option].place if problem.option in entries else str(file)
        problems.append(f"{place}: {problem.option}: {problem.message}")
    values = _client_values([entries[name] for name in entries if name not in security], problems)
    if problems:
        raise ConfigurationError(problems)
    chosen = ConnectionSecurity(tls=read.tls, credentials=read.credentials)
    return dataclasses.replace(defaults, security=chosen, **values)


def _client_values(entries: list[Entry], problems: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for entry in entries:
        if entry.name not in _KINDS:
            hint = suggestion(entry.name, (*_KINDS, *OPTION_NAMES))
            problems.append(f"{entry.place}: {entry.name}: commands have no use for this{hint}")
            continue
        field, kind = _KINDS[entry.name]
        try:
            values[field] = kind.parse(entry.text)
        except ValueError as error:
            problems.append(f"{entry.place}: {entry.name}: {error}")
    return values
