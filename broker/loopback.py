"""The ports of this machine, as child processes use them: all on 127.0.0.1."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from broker.errors import ConfigurationError
from broker.types import HostPort

LOOPBACK = "127.0.0.1"
PROBE_SECONDS = 0.25
"""How long somebody who listens may take to accept a connection."""
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OUTGOING_PORT_MIN = 32_768
_LASTING_PORT_MIN = 10_000
_RESET = struct.pack("ii", 1, 0)
"""Of `SO_LINGER`: a connection that is closed is gone at once."""


def require_free_ports(ports: Iterable[int]) -> None:
    """Raises ConfigurationError that names every one of these ports of 127.0.0.1 that is taken."""
    problems = [problem for port in ports if (problem := _port_problem(port))]
    if problems:
        raise ConfigurationError(problems)


def _port_problem(port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            return f"cannot listen on {LOOPBACK}:{port}: {error}"
    return None


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]


def lasting_ports() -> range:
    """The ports that the kernel gives to no outgoing connection: who listens there may go and come back."""
    return range(_LASTING_PORT_MIN, _outgoing_port_min())


def free_ports_in_a_row(count: int, *, among: range | None = None) -> int:
    """The first of `count` consecutive ports of 127.0.0.1 that nobody listens on at this moment.

    They are `among` these ports, or any of the `lasting_ports`; who must not meet another process between
    this choice and listening takes ports that the other does not choose from.
    """
    ports = among or lasting_ports()
    while True:
        first = random.randrange(ports.start, ports.stop - count)
        if not any(_port_problem(port) for port in range(first, first + count)):
            return first


def _outgoing_port_min() -> int:
    try:
        return int(_OUTGOING_PORTS.read_text().split()[0])
    except OSError:
        return _OUTGOING_PORT_MIN


def accepts(address: HostPort) -> bool:
    """Whether somebody listens there: for a node, that it is ready."""
    try:
        with socket.create_connection(address, timeout=PROBE_SECONDS) as connection:
            return reaches_another(connection)
    except OSError:
        return False


def reaches_another(connection: socket.socket) -> bool:
    """Whether a connection leads to somebody. Where nobody listens, and the kernel gives the port itself to
    the connection, it meets itself (simultaneous open, RFC 9293 3.5): then it is to end with a reset, as
    otherwise it keeps the port for a minute from whoever is to listen there.
    """
    if connection.getsockname() != connection.getpeername():
        return True
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return False
