"""`security` of a cluster in a topology: Kafka's options, with secrets by reference only."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.client.security.given_options import OPTION_NAMES
from broker.client.security.options import read_options
from mirrormaker.topology.document import STR, Place, describe_hidden
from mirrormaker.topology.kinds.kind import JsonSchema, Kind, UnreadableError

_OF_PATHS = ".location"
"""Options whose names end so are paths."""
_REFERENCE = re.compile(r"""((?:^|["'=])file:)([^/"'\s;][^"';]*)""")
"""A relative path that is referred to, by a value as a whole or by one in a login module's options."""


class Security(Kind[ConnectionSecurity]):
    """How to reach a cluster; relative paths are below `folder`. Values are never shown in complaints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def words(self) -> str:
        return "[options of Kafka's clients](clients.md#secured-clusters), flat"

    @property
    def stand_in(self) -> ConnectionSecurity:
        return PLAINTEXT

    def read(self, place: Place) -> ConnectionSecurity:
        if not isinstance(place.node, yaml.MappingNode):
            raise UnreadableError(f"expected a mapping, found {describe_hidden(place.node)}")
        entries = place.entries()
        options = {name: _hidden_text(entry) for name, entry in entries.items()}
        read = read_options(options, folder=self._folder, inline_secrets=False)
        for option, message in read.problems:
            if option in entries:
                entries[option].report(message)
            else:
                place.report(f"{option} {message}")
        references = {name: _absolute(name, text, self._folder) for name, text in options.items()}
        return ConnectionSecurity(tls=read.tls, credentials=read.credentials, references=references)

    def schema(self) -> JsonSchema:
        return {
            "type": "object",
            "properties": {name: {"type": "string"} for name in OPTION_NAMES},
            "additionalProperties": False,
        }

    def render(self, value: ConnectionSecurity) -> str:
        return "plaintext" if value == PLAINTEXT else "secured"


def _absolute(name: str, text: str, folder: Path) -> str:
    """An option that is the same wherever it is read: paths below `folder` in full."""
    if name.endswith(_OF_PATHS):
        return str(folder / text)
    return _REFERENCE.sub(lambda found: f"{found[1]}{folder / found[2]}", text)


def _hidden_text(place: Place) -> str:
    node = place.node
    if isinstance(node, yaml.ScalarNode) and node.tag == STR:
        return str(node.value)
    place.report(f"expected text, found {describe_hidden(node)}: put it in quotes")
    return ""
