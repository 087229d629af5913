"""`security` of a cluster in a topology: Kafka's options, with secrets by reference only."""

from __future__ import annotations

from pathlib import Path

from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.client.security.options import read_options
from mirrormaker.topology.document import Section


def read_security(cluster: Section, folder: Path) -> ConnectionSecurity:
    """How to reach the cluster; relative paths are below `folder`."""
    section = cluster.section("security")
    if section is None:
        return PLAINTEXT
    options = {name: section.hidden_text(name) for name in section.keys()}  # noqa: SIM118
    read = read_options(options, folder=folder, inline_secrets=False)
    for option, message in read.problems:
        if option in options:
            section.report(option, message)
        else:
            section.report("", f"{option} {message}")
    return ConnectionSecurity(tls=read.tls, credentials=read.credentials)
